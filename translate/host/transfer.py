"""gpu.memcpy and gpu.memset that the stock lowering gets wrong or refuses, as calls of the runtime.

gpu-to-llvm copies as many bytes as the elements have from pointer to pointer, without the offset and the
strides of the target, and sets elements of 16 and 32 bits only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from mlir_offload.translate.gpu_operation import POINTER, is_async
from mlir_offload.translate.host.launch import element_bytes
from mlir_offload.translate.mlir.operation import CustomOperation, Operation, Value
from mlir_offload.translate.mlir.rewriter import Rewriter
from mlir_offload.translate.mlir.syntax import Attribute, float_width, is_layout, parse_shaped

_COPY, _SET = "mgpuMemcpyMemRef", "mgpuMemsetMemRef"
_FIXED = {
    _COPY: f"{POINTER}, i64, {POINTER}, i64, i64, {POINTER}, i64",
    _SET: f"{POINTER}, i64, i64, i64, {POINTER}, i64",
}
"""Functions of the runtime, and their parameters; further ones are numbers, per dimension."""
_TRANSFERS = frozenset({"gpu.memcpy", "gpu.memset"})
_STOCK = frozenset({"i16", "si16", "ui16", "i32", "si32", "ui32", "f16", "bf16", "f32"})
_WORD = "i64"


class _MemRef(Struct, frozen=True):
    """A memref: its value, its element type and rank, and the type of its base."""

    value: Value
    element: str
    rank: int
    base: str
    is_identity: bool


class _Description(Struct, frozen=True):
    """What a memref spans, as words."""

    pointer: Value
    offset: Value
    sizes: Sequence[Value]
    strides: Sequence[Value]


class TransferRewriter(Rewriter):
    """Rewrites function after function of one host module; the names it makes never clash."""

    def __init__(self) -> None:
        """Begin with a module that calls nothing."""
        super().__init__("%mo_transfer_")
        self._called: set[str] = set()

    def rewrite_function(self, function: Operation) -> None:
        """Rewrite the operations of a function, which have one token each."""
        if any(one.name in _TRANSFERS for one in function.walk_inside()):
            for region in function.regions:
                self.rewrite(
                    region, lambda one: TransferRewriter._transfer if _is_transfer(one) else None
                )

    def declarations(self, declared: Collection[str]) -> list[Operation]:
        """Return the declarations of the functions that were called and are not declared yet."""
        names = sorted(self._called.difference(declared))
        heads = (f"llvm.func @{name}({_FIXED[name]}, ...)" for name in names)
        return [CustomOperation("", head=head) for head in heads]

    def _transfer(self, operation: Operation) -> None:
        token, first, second = operation.operands
        target = _parse_memref(first)
        if operation.name == "gpu.memcpy":
            source = _parse_memref(second)
            if target.is_identity and source.is_identity:
                self.insert(operation)
                return
            self._copy(target, source, token)
        else:
            if target.is_identity and target.element in _STOCK:
                self.insert(operation)
                return
            self._set(target, second, token)
        self.replace(operation, (token,))

    def _copy(self, target: _MemRef, source: _MemRef, token: Value) -> None:
        to, from_ = self._describe(target), self._describe(source)
        sizes = zip(to.sizes, to.strides, from_.strides, strict=True)
        dimensions = [number for dimension in sizes for number in dimension]
        fixed = (to.pointer, to.offset, from_.pointer, from_.offset)
        self._call(_COPY, fixed, target, token, dimensions)

    def _set(self, target: _MemRef, value: Value, token: Value) -> None:
        to = self._describe(target)
        dimensions = [n for pair in zip(to.sizes, to.strides, strict=True) for n in pair]
        fixed = (to.pointer, to.offset, self._bits(value))
        self._call(_SET, fixed, target, token, dimensions)

    def _call(
        self,
        function: str,
        fixed: Sequence[Value],
        target: _MemRef,
        token: Value,
        dimensions: Sequence[Value],
    ) -> None:
        stream = self._cast("builtin.unrealized_conversion_cast", token, POINTER)
        size, rank = self._number(element_bytes(target.element)), self._number(target.rank)
        arguments = ", ".join(one.name for one in (*fixed, size, stream, rank, *dimensions))
        numbers = f", {_WORD}" * len(dimensions)
        kind = f"void ({_FIXED[function].replace(POINTER, 'ptr')}, ...)"
        signature = f"({_FIXED[function]}{numbers}) -> ()"
        # The custom form: the properties of llvm.call differ between releases.
        self.custom(f"llvm.call @{function}({arguments}) vararg(!llvm.func<{kind}>) : {signature}")
        self._called.add(function)

    def _describe(self, memref: _MemRef) -> _Description:
        rank = memref.rank
        types = (memref.base, *["index"] * (1 + 2 * rank))
        described = self.create("memref.extract_strided_metadata", (memref.value,), types)
        address = self._cast("memref.extract_aligned_pointer_as_index", memref.value, "index")
        pointer = self._cast("llvm.inttoptr", self._to_word(address), POINTER)
        offset, *numbers = map(self._to_word, described.results[1:])
        return _Description(pointer, offset, numbers[:rank], numbers[rank:])

    def _bits(self, value: Value) -> Value:
        """Return the bits of a value as a word."""
        kind = Attribute(value.type)
        if kind.name == "complex":
            real, imaginary = (
                self._bits(self._cast(f"complex.{part}", value, kind.body)) for part in ("re", "im")
            )
            shift = self._number(element_bytes(kind.body) * 8)
            high = self.value("arith.shli", (imaginary, shift), _WORD)
            return self.value("arith.ori", (real, high), _WORD)
        if kind == "index":
            return self._to_word(value)
        if width := float_width(kind):
            value = self._cast("arith.bitcast", value, f"i{width}")
        return value if value.type == _WORD else self._cast("arith.extui", value, _WORD)

    def _to_word(self, value: Value) -> Value:
        return self._cast("arith.index_cast", value, _WORD)

    def _number(self, number: int) -> Value:
        properties = {"value": f"{number} : {_WORD}"}
        return self.value("llvm.mlir.constant", (), _WORD, properties)

    def _cast(self, operation: str, value: Value, kind: str) -> Value:
        return self.value(operation, (value,), kind)


def _is_transfer(operation: Operation) -> bool:
    return operation.name in _TRANSFERS and is_async(operation)


def _parse_memref(value: Value) -> _MemRef:
    shaped = parse_shaped(value.type, "memref")
    element, parameters = (shaped.element, shaped.parameters) if shaped else ("", ())
    layouts = [one for one in parameters if is_layout(one)]
    spaces = [one for one in parameters if one not in layouts]
    base = f"memref<{', '.join((element, *spaces))}>"
    rank = len(shaped.sizes) if shaped else 0
    return _MemRef(value, element, rank, base, is_identity=not layouts)
