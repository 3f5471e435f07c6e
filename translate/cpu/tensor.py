"""Matrix operations of a subgroup: wmma, mma.sync, ldmatrix and stmatrix, executed by cpu_tensor.c.

Each lane writes a description of the operation (`mo_fragments`) and its registers to private memory. When all
lanes have arrived, the runtime executes the operation once for the subgroup.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate

from mlir_offload.offload.ir_syntax import LLVM_IR
from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.translate.cpu.replacement import Replacement, Sync, define
from mlir_offload.translate.cpu.shared import size_of, without_address_spaces
from mlir_offload.translate.cpu.text import DeviceModule, first_type

# The enum values and offsets of offload/runtime/cpu_tensor.c.
_OPERATIONS = ("load", "store", "wmma", "mma", "ldmatrix", "stmatrix")
_BITS = {
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "f32": 32,
    "f64": 64,
    "s8": 8,
    "u8": 8,
    "s4": 4,
    "u4": 4,
    "b1": 1,
    "s32": 32,
    "e4m3": 8,
    "e5m2": 8,
}
_COLUMN_A, _COLUMN_B, _SATURATES, _XOR = 1, 2, 4, 8
_STRIDE, _MEMORY, _REGISTERS = 48, 56, 64
_WARP = 32
# PTX ISA, "Matrix fragments for WMMA": a and b have eight registers of f16x2 in every shape.
_WMMA_F16_BYTES = 32
# mma.m8n8k4 of f16 computes four products.
_QUARTERED = (8, 8, 4)

_ACCUMULATORS = {"bf16": "f32", "tf32": "f32", "f64": "f64"}
_MOVE = ir_pattern(
    "wmma.m`m:number`n`n:number`k`k:number`.`name:load|store`.`part:a|b|c|d`.`layout:row|col`"
    "`stride:.stride?`.`type:word`.p`number`"
)
_MULTIPLY = ir_pattern(
    "`name:wmma|mma``.and.popc|.xor.popc?`.m`m:number`n`n:number`k`k:number``.mma?``.and.popc|.xor.popc?`"
    ".`a:row|col`.`b:row|col``.rn?``.satfinite?`.`types:dotted`"
)
_ROWS = ir_pattern(
    "`name:ldmatrix|stmatrix`.sync.aligned.m8n8.x`count:1|2|4``trans:.trans?`.b16.p`number`"
)


@dataclass(frozen=True, slots=True)
class _Operation:
    """The fields of `mo_fragments`, except the offsets.

    `sizes` are the sizes in bytes of a lane's registers: of each operand, then of the result. `stride` is the
    default for calls without an operand for it.
    """

    name: str
    shape: tuple[int, int, int]
    elements: tuple[str, str, str, str]
    flags: int
    sizes: tuple[int, ...]
    stride: int = 0


@dataclass(frozen=True, slots=True)
class _Signature:
    result: str
    parameters: tuple[str, ...]

    @property
    def registers(self) -> tuple[str, ...]:
        """Return the types of the result registers."""
        if self.result == "void":
            return ()
        is_structure = self.result.startswith("{")
        return tuple(LLVM_IR.split_list(self.result[1:-1])) if is_structure else (self.result,)


def find_tensor_operation(module: DeviceModule, callee: str) -> Replacement | None:
    """Return the replacement of a matrix operation; None for another function."""
    line = dict(module.declarations).get(callee)
    name = callee.removeprefix("llvm.nvvm.")
    if line is None or name == callee:
        return None
    signature = _parse_declaration(line)
    operation = _parse(name, signature)
    if operation is None:
        return None
    return Replacement(f"mo.{name}", _definition(f"mo.{name}", operation, signature), Sync.WARP)


def _parse_declaration(line: str) -> _Signature:
    line = without_address_spaces(line)
    start = line.index("(", line.index("@"))
    listed = LLVM_IR.split_list(line[start + 1 : LLVM_IR.closing(line, start)])
    head = line[: line.index("@")].strip()
    result = head[head.index("{") :] if head.endswith("}") else head.split()[-1]
    return _Signature(result, tuple(first_type(text.strip()) for text in listed))


def _parse(name: str, signature: _Signature) -> _Operation | None:
    if found := _ROWS.fullmatch(name):
        size = 4 * int(found["count"])
        flags = _COLUMN_A if found["trans"] else 0
        elements = ("f16", "f16", "f16", "f16")
        return _Operation(found["name"], (size // 4, 8, 8), elements, flags, (size,))
    if (found := _MOVE.fullmatch(name)) and found["type"] in _BITS:
        return _parse_move(found, signature)
    found = _MULTIPLY.fullmatch(name)
    operation = _parse_multiply(found, name) if found else None
    if operation is None or operation.sizes != _sizes(operation, signature):
        return None
    return operation


def _parse_move(found: re.Match[str], signature: _Signature) -> _Operation:
    m, n, k = (int(text) for text in found.group("m", "n", "k"))
    rows, columns = {"a": (m, k), "b": (k, n)}.get(found["part"], (m, n))
    registers = signature.registers
    if found["name"] == "store":
        registers = signature.parameters[1 : -1 if found["stride"] else None]
    size, element = sum(size_of(type_)[0] for type_ in registers), found["type"]
    is_column = found["layout"] == "col"
    return _Operation(
        found["name"],
        (rows, columns, size * 8 // _BITS[element]),
        (element, element, element, element),
        _COLUMN_A if is_column else 0,
        (size,),
        rows if is_column else columns,
    )


def _parse_multiply(found: re.Match[str], name: str) -> _Operation | None:
    m, n, k = shape = (int(found["m"]), int(found["n"]), int(found["k"]))
    elements = _elements(found["types"].removesuffix(".satfinite").split("."))
    if (
        elements is None
        or not _BITS.keys() >= set(elements)
        or ("satfinite" in name and elements[3] != "s32")
    ):
        return None
    choices = (
        (_COLUMN_A, found["a"] == "col"),
        (_COLUMN_B, found["b"] == "col"),
        (_SATURATES, "satfinite" in name),
        (_XOR, ".xor." in name),
    )
    flags = sum(flag for flag, is_set in choices if is_set)
    is_quartered = found["name"] == "mma" and shape == _QUARTERED and elements[0] == "f16"
    counts = [count * (4 if is_quartered else 1) for count in (m * k, k * n, m * n, m * n)]
    sizes = [
        count * _BITS[type_] // 8 // _WARP for count, type_ in zip(counts, elements, strict=True)
    ]
    if found["name"] == "wmma" and elements[0] == "f16":
        sizes[:2] = [_WMMA_F16_BYTES, _WMMA_F16_BYTES]
    return _Operation(found["name"], shape, elements, flags, tuple(sizes))


def _elements(types: list[str]) -> tuple[str, str, str, str] | None:
    """Return the element types of a, b, c and d; names contain those of d and c, of a and b, of a, or all."""
    match types:
        case [d, a, b, c]:
            return a, b, c, d
        case [("f16" | "f32") as d, ("f16" | "f32") as c]:
            return "f16", "f16", c, d
        case [a, b] if {a, b} <= {"s8", "u8"} or {a, b} <= {"s4", "u4"}:
            return a, b, "s32", "s32"
        case [a]:
            sum_ = _ACCUMULATORS.get(a, "s32")
            return a, a, sum_, sum_
        case _:
            return None


def _sizes(operation: _Operation, signature: _Signature) -> tuple[int, ...]:
    """Return the sizes of the operation with the result of the call; empty if its parameters differ in size."""
    ends = [0, *accumulate(size_of(type_)[0] for type_ in signature.parameters)]
    wanted = [0, *accumulate(operation.sizes[:-1])]
    if not set(wanted) <= set(ends) or wanted[-1] != ends[-1]:
        return ()
    return (*operation.sizes[:-1], sum(size_of(type_)[0] for type_ in signature.registers))


def _definition(name: str, operation: _Operation, signature: _Signature) -> str:
    starts = [*accumulate(operation.sizes, initial=_REGISTERS)]
    end = starts.pop()
    result_at = starts[-1]
    numbers = (
        _OPERATIONS.index(operation.name),
        *operation.shape,
        *(list(_BITS).index(element) for element in operation.elements),
        operation.flags,
        *(starts[1:] if len(starts) > 1 else (_REGISTERS, _REGISTERS, _REGISTERS)),
    )
    words = ", ".join(f"i32 {number}" for number in numbers)
    lines = [
        f"%r = alloca [{end} x i8], align 16",
        f"store [{len(numbers)} x i32] [{words}], ptr %r, align 4",
        *_store_operands(operation, signature),
        "call void @mo_cpu_fragments(ptr %c, i32 %site, ptr %r)",
        *_load_results(result_at, signature),
    ]
    listed = [f"{type_} %o{number}" for number, type_ in enumerate(signature.parameters)]
    return define(name, signature.result, ", ".join(("i32 %site", *listed)), *lines)


def _store_operands(operation: _Operation, signature: _Signature) -> list[str]:
    lines: list[str] = []

    def store(type_: str, value: str, offset: int) -> None:
        address = f"%at{len(lines) // 2}"
        lines.append(f"{address} = getelementptr inbounds i8, ptr %r, i64 {offset}")
        lines.append(f"store {type_} {value}, ptr {address}, align 4")

    registers = list(enumerate(signature.parameters))
    if signature.parameters[0] == "ptr":
        registers = registers[1:]
        store("ptr", "%o0", _MEMORY)
        stride = str(operation.stride)
        given = sum(size_of(type_)[0] for _, type_ in registers)
        if given == 4 + (operation.sizes[0] if operation.name == "store" else 0):
            stride = f"%o{registers.pop()[0]}"
        store("i32", stride, _STRIDE)
    offset = _REGISTERS
    for number, type_ in registers:
        store(type_, f"%o{number}", offset)
        offset += size_of(type_)[0]
    return lines


def _load_results(offset: int, signature: _Signature) -> list[str]:
    if signature.result == "void":
        return ["ret void"]
    lines: list[str] = []
    made = "poison"
    is_structure = signature.result.startswith("{")
    for number, type_ in enumerate(signature.registers):
        lines.append(f"%from{number} = getelementptr inbounds i8, ptr %r, i64 {offset}")
        lines.append(f"%v{number} = load {type_}, ptr %from{number}, align 4")
        offset += size_of(type_)[0]
        if is_structure:
            lines.append(
                f"%s{number} = insertvalue {signature.result} {made}, {type_} %v{number}, {number}"
            )
            made = f"%s{number}"
    return [*lines, f"ret {signature.result} {made if is_structure else '%v0'}"]
