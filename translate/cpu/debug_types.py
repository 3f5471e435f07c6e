"""Debug types of variables: numbers, pointers, vectors and memref descriptors."""

from __future__ import annotations

from mlir_offload.toolchain.pattern import ir_line
from mlir_offload.translate.mlir.syntax import parse_shaped

_NUMBER = {
    **{f"i{bits}": (bits, "DW_ATE_signed") for bits in (8, 16, 32, 64, 128)},
    "i1": (8, "DW_ATE_boolean"),
    "index": (64, "DW_ATE_signed"),
    "half": (16, "DW_ATE_float"),
    "f16": (16, "DW_ATE_float"),
    "float": (32, "DW_ATE_float"),
    "f32": (32, "DW_ATE_float"),
    "double": (64, "DW_ATE_float"),
    "f64": (64, "DW_ATE_float"),
}
_SHOWN = {"half": "f16", "float": "f32", "double": "f64"}
_VECTOR = ir_line("<`count:number` x `element:word`>`end`")


def memref_pieces(type_: str) -> tuple[str, ...]:
    """Return the field names of a memref descriptor, in order; empty for another type."""
    memref = parse_shaped(type_, "memref")
    if memref is None:
        return ()
    rank = len(memref.sizes)
    sizes, strides = (tuple(f"{name}{n}" for n in range(rank)) for name in ("size", "stride"))
    return ("allocated", "aligned", "offset", *sizes, *strides)


class DebugTypes:
    """Metadata nodes of debug types, without duplicates."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._known: dict[str, str] = {}
        self.lines: list[str] = []

    def add(self, node: str) -> str:
        """Return the reference to a node, which is added on first use."""
        if node not in self._known:
            self._known[node] = f"!{self._next}"
            self.lines.append(f"!{self._next} = {node}")
            self._next += 1
        return self._known[node]

    def is_known(self, type_: str) -> bool:
        """Return whether a value of this LLVM IR type can be a debug variable."""
        vector = _VECTOR.match(type_)
        return type_ == "ptr" or (vector[2] if vector else type_) in _NUMBER

    def of_source(self, type_: str, value: str) -> str:
        """Return the debug type of an MLIR number type; for another type, that of the value in LLVM IR."""
        return self._number(type_) if type_ in _NUMBER else self.of_value(value)

    def of_value(self, type_: str) -> str:
        """Return the debug type of an LLVM IR type."""
        if type_ == "ptr":
            return self._pointer("null")
        vector = _VECTOR.match(type_)
        return self._vector(int(vector[1]), vector[2]) if vector else self._number(type_)

    def of_memref(self, type_: str) -> str:
        """Return the debug type of a memref descriptor: two pointers, an offset, sizes and strides."""
        memref = parse_shaped(type_, "memref")
        element = memref.element if memref else ""
        pointer = self._pointer(self._number(element) if element in _NUMBER else "null")
        index = self._number("index")
        members = [
            self.add(
                f'!DIDerivedType(tag: DW_TAG_member, name: "{name}", size: 64, offset: {64 * n}, '
                f"baseType: {index if n > 1 else pointer})"
            )
            for n, name in enumerate(memref_pieces(type_))
        ]
        elements = self.add(f"!{{{', '.join(members)}}}")
        shown = type_.replace("\\", "\\5C").replace('"', "\\22")
        return self.add(
            f'!DICompositeType(tag: DW_TAG_structure_type, name: "{shown}", size: {64 * len(members)}, '
            f"elements: {elements})"
        )

    def _number(self, type_: str) -> str:
        bits, encoding = _NUMBER[type_]
        name = _SHOWN.get(type_, type_)
        return self.add(f'!DIBasicType(name: "{name}", size: {bits}, encoding: {encoding})')

    def _pointer(self, to: str) -> str:
        return self.add(f"!DIDerivedType(tag: DW_TAG_pointer_type, baseType: {to}, size: 64)")

    def _vector(self, count: int, type_: str) -> str:
        rows = self.add(f"!{{{self.add(f'!DISubrange(count: {count})')}}}")
        size = count * _NUMBER[type_][0]
        return self.add(
            f"!DICompositeType(tag: DW_TAG_array_type, baseType: {self._number(type_)}, "
            f"size: {size}, flags: DIFlagVector, elements: {rows})"
        )
