"""gpu.memcpy and gpu.memset that the stock lowering gets wrong or refuses, as calls of the runtime.

gpu-to-llvm copies as many bytes as the elements have from pointer to pointer, without the offset and the
strides of the target, and sets elements of 16 and 32 bits only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from mlir_offload.translate.host.gpu_operation import (
    POINTER,
    TOKEN,
    GpuOperation,
    parse_gpu_operation,
)
from mlir_offload.translate.host.memory import element_bytes
from mlir_offload.translate.mlir_syntax import MLIR

_COPY, _SET = "mgpuMemcpyMemRef", "mgpuMemsetMemRef"
_FIXED = {
    _COPY: f"{POINTER}, i64, {POINTER}, i64, i64, {POINTER}, i64",
    _SET: f"{POINTER}, i64, i64, i64, {POINTER}, i64",
}
"""Functions of the runtime, and their parameters; further ones are numbers, per dimension."""
_SHAPE = re.compile(r"memref<((?:(?:\?|\d+)x)*)")
_LAYOUT = re.compile(r"strided<|affine_map<|#(?!gpu\.)")
_STOCK = re.compile(r"[su]?i(?:16|32)|b?f16|f32")
_INTEGER = re.compile(r"i(\d+)")
_FLOAT = re.compile(r"(?:b?f|tf)(\d+)")
_COMPLEX = re.compile(r"complex<(\w+)>")
_WORD_BITS = 64


@dataclass(frozen=True, slots=True)
class _MemRef:
    """A memref: its value and type, its element type and rank, and the type of its base."""

    value: str
    kind: str
    element: str
    rank: int
    base: str
    is_identity: bool


@dataclass(slots=True)
class TransferRewriter:
    """Rewrites function after function of one host module; the names it makes never clash."""

    count: int = 0
    called: set[str] = field(default_factory=set)

    def rewrite(self, lines: Iterable[str]) -> tuple[str, ...]:
        """Return the lines of a function whose operations have one token each."""
        out: list[str] = []
        for line in lines:
            call = self._call(line) if '"gpu.mem' in line else None
            out += call or (line,)
        return tuple(out)

    def declarations(self, declared: Collection[str]) -> list[str]:
        """Return the declarations of the functions that were called and are not declared yet."""
        names = sorted(self.called.difference(declared))
        return [f"llvm.func @{name}({_FIXED[name]}, ...)" for name in names]

    def _call(self, line: str) -> Sequence[str]:
        gpu = parse_gpu_operation(line)
        if gpu is None or gpu.name not in {"gpu.memcpy", "gpu.memset"} or not gpu.is_async:
            return ()
        token, first, second = gpu.operands
        types = gpu.operand_types[1:]
        target = _parse_memref(first, types[0])
        writer = _Writer(self, gpu)
        if gpu.name == "gpu.memcpy":
            source = _parse_memref(second, types[1])
            if target.is_identity and source.is_identity:
                return ()
            writer.copy(target, source, token)
        else:
            if target.is_identity and _STOCK.fullmatch(target.element):
                return ()
            writer.set(target, second, token)
        return writer.lines

    def name(self) -> str:
        """Return a new name."""
        self.count += 1
        return f"%mo_transfer_{self.count}"


@dataclass(slots=True)
class _Writer:
    """Writes the operations that take the place of one."""

    rewriter: TransferRewriter
    place: GpuOperation
    lines: list[str] = field(default_factory=list)

    def copy(self, target: _MemRef, source: _MemRef, token: str) -> None:
        to, from_ = self._describe(target), self._describe(source)
        sizes = zip(to.sizes, to.strides, from_.strides, strict=True)
        dimensions = [number for dimension in sizes for number in dimension]
        fixed = (to.pointer, to.offset, from_.pointer, from_.offset)
        self._finish(_COPY, fixed, target, token, dimensions)

    def set(self, target: _MemRef, value: str, token: str) -> None:
        to = self._describe(target)
        dimensions = [n for pair in zip(to.sizes, to.strides, strict=True) for n in pair]
        bits = self._bits(value, target.element, _WORD_BITS)
        self._finish(_SET, (to.pointer, to.offset, bits), target, token, dimensions)

    def _finish(
        self,
        function: str,
        fixed: Sequence[str],
        target: _MemRef,
        token: str,
        dimensions: Sequence[str],
    ) -> None:
        stream = self._cast("builtin.unrealized_conversion_cast", token, TOKEN, POINTER)
        size, rank = self._number(element_bytes(target.element)), self._number(target.rank)
        arguments = (*fixed, size, stream, rank, *dimensions)
        numbers = ", i64" * len(dimensions)
        kind = f"void ({_FIXED[function].replace(POINTER, 'ptr')}, ...)"
        signature = f"({_FIXED[function]}{numbers}) -> ()"
        self._write(
            f"llvm.call @{function}({', '.join(arguments)}) vararg(!llvm.func<{kind}>) : {signature}"
        )
        result = self.place.values[-1]
        cast = "builtin.unrealized_conversion_cast"
        self._write(f'{result} = "{cast}"({token}) : ({TOKEN}) -> {TOKEN}')
        self.rewriter.called.add(function)

    def _describe(self, memref: _MemRef) -> _Description:
        rank = memref.rank
        names = [self.rewriter.name() for _ in range(2 + 2 * rank)]
        types = ", ".join((memref.base, *["index"] * (1 + 2 * rank)))
        self._write(
            f'{", ".join(names)} = "memref.extract_strided_metadata"({memref.value})'
            f" : ({memref.kind}) -> ({types})"
        )
        address = self._cast(
            "memref.extract_aligned_pointer_as_index", memref.value, memref.kind, "index"
        )
        pointer = self._cast("llvm.inttoptr", self._to_word(address), "i64", POINTER)
        offset, *numbers = map(self._to_word, names[1:])
        return _Description(pointer, offset, numbers[:rank], numbers[rank:])

    def _bits(self, value: str, kind: str, width: int) -> str:
        """Return the bits of a value as an integer of this width."""
        if match := _COMPLEX.fullmatch(kind):
            half = element_bytes(match[1]) * 8
            real, imaginary = (
                self._bits(self._cast(f"complex.{part}", value, kind, match[1]), match[1], width)
                for part in ("re", "im")
            )
            shift = self._number(half)
            high = self._combine("arith.shli", imaginary, shift)
            return self._combine("arith.ori", real, high)
        if kind == "index":
            return self._to_word(value)
        if match := _FLOAT.match(kind):
            value = self._cast("arith.bitcast", value, kind, f"i{match[1]}")
            kind = f"i{match[1]}"
        return value if kind == f"i{width}" else self._cast("arith.extui", value, kind, f"i{width}")

    def _to_word(self, value: str) -> str:
        return self._cast("arith.index_cast", value, "index", "i64")

    def _number(self, number: int) -> str:
        name = self.rewriter.name()
        self._write(f'{name} = "llvm.mlir.constant"() <{{value = {number} : i64}}> : () -> i64')
        return name

    def _combine(self, operation: str, left: str, right: str) -> str:
        name = self.rewriter.name()
        self._write(f'{name} = "{operation}"({left}, {right}) : (i64, i64) -> i64')
        return name

    def _cast(self, operation: str, value: str, before: str, after: str) -> str:
        name = self.rewriter.name()
        self._write(f'{name} = "{operation}"({value}) : ({before}) -> {after}')
        return name

    def _write(self, line: str) -> None:
        self.lines.append(f"{' ' * self.place.indent}{line} {self.place.location}".rstrip())


@dataclass(frozen=True, slots=True)
class _Description:
    """What a memref spans: names of words."""

    pointer: str
    offset: str
    sizes: Sequence[str]
    strides: Sequence[str]


def _parse_memref(value: str, kind: str) -> _MemRef:
    shape = _SHAPE.match(kind)
    start = shape.end() if shape else 0
    element, *others = MLIR.split_list(kind[start:-1])
    layouts = [other for other in others if _LAYOUT.match(other)]
    spaces = [other for other in others if other not in layouts]
    rank = shape[1].count("x") if shape else 0
    base = f"memref<{', '.join((element, *spaces))}>"
    return _MemRef(value, kind, element, rank, base, is_identity=not layouts)
