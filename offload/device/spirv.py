"""Read SPIR-V modules (SPIR-V specification, "Physical Layout of a SPIR-V Module"): their kernels."""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from enum import IntEnum

from msgspec import Struct, field

from mlir_offload.offload.device.kernel import DeviceCode, DeviceKernel, KernelParameter
from mlir_offload.offload.device.spirv_type import SpirvTypes, aligned
from mlir_offload.toolchain.byte_view import ByteView

_FORM = "SPIR-V"
_HEADER = struct.Struct("<5I")
_WORD = 4
_MAGIC_LITTLE, _MAGIC_BIG = b"\x03\x02\x23\x07", b"\x07\x23\x02\x03"
_KERNEL_MODEL = 6
_PACKED = 10  # CPacked
_LINKAGE, _IMPORT = 41, 1
_BUILT_IN = 11
_PARAMETER_ATTRIBUTE, _BY_VALUE = 38, 2  # FuncParamAttr ByVal
_MAX_WORK_GROUP = 5893  # MaxWorkgroupSizeINTEL
_DIMENSIONS = 3
_LOCAL_SIZE, _SUBGROUP_SIZE = 17, 35
_TRIPLES = {
    0: "spirv-unknown-unknown",
    1: "spirv32-unknown-unknown",
    2: "spirv64-unknown-unknown",
}
# The generators of compute kernels that are registered in SPIRV-Headers, `include/spirv/spir-v.xml`.
_GENERATORS = {
    6: "Khronos LLVM/SPIR-V Translator",
    7: "Khronos SPIR-V Tools Assembler",
    17: "Khronos SPIR-V Tools Linker",
    21: "Google Clspv",
    22: "LLVM MLIR SPIR-V Serializer",
    43: "LLVM SPIR-V Backend",
}
_LLVM_BACKEND = 43  # its version is the major release of LLVM


class Op(IntEnum):
    """The instructions that are read, besides those of types."""

    MEMORY_MODEL = 14
    ENTRY_POINT = 15
    EXECUTION_MODE = 16
    FUNCTION = 54
    FUNCTION_PARAMETER = 55
    FUNCTION_END = 56
    DECORATE = 71


_INTERESTING = frozenset(Op) | SpirvTypes.OPERATIONS


class _Function(Struct):
    """A function: its type, the IDs of its parameters, and its range of words."""

    type: int
    parameters: list[int]
    begin: int
    end: int = 0


class _Module(Struct):
    """The declarations found so far; functions, parameters and types are identified by their IDs."""

    types: SpirvTypes
    addressing: int = 0
    names: dict[int, str] = field(default_factory=dict)
    modes: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    by_value: set[int] = field(default_factory=set)
    imports: dict[int, str] = field(default_factory=dict)
    built_in: set[int] = field(default_factory=set)
    functions: dict[int, _Function] = field(default_factory=dict)
    open_function: _Function | None = None


def is_spirv(view: ByteView) -> bool:
    """Return whether the bytes begin with the magic of SPIR-V, in either byte order."""
    return view.head(_WORD) in (_MAGIC_LITTLE, _MAGIC_BIG)


def read_spirv(view: ByteView) -> DeviceCode:
    """Read a SPIR-V module and its kernels, holding it in memory.

    `arch` is the version of SPIR-V, spelled as in LLVM's triples (`v1.4`). SPIR-V passes parameters
    individually; their offsets are those of the members of a corresponding struct. Raises VerificationError
    if it is not SPIR-V, or if an instruction exceeds its end.
    """
    view = view.part(0, view.size, "content", form=_FORM)
    words = _read_words(view)
    module = _read_module(view, words)
    tool, release = words[2] >> 16, words[2] & 0xFFFF
    # The LLVM backend imports the built-in variables, which every device defines.
    undefined = [name for key, name in module.imports.items() if key not in module.built_in]
    return DeviceCode(
        form=_FORM,
        producer=f"{_GENERATORS.get(tool, f'generator {tool}')} {release}",
        llvm_major=release if tool == _LLVM_BACKEND and release else None,
        triple=_TRIPLES.get(module.addressing, ""),
        arch=f"v{words[1] >> 16 & 0xFF}.{words[1] >> 8 & 0xFF}",
        is_relocatable=bool(undefined),
        kernels=tuple(_kernels(module)),
        undefined=tuple(dict.fromkeys(undefined)),
    )


def spirv_kernel_names(view: ByteView) -> tuple[str, ...]:
    """Return the kernels that a module defines. Raises VerificationError if it is corrupt."""
    view = view.part(0, view.size, "content", form=_FORM)
    module = _read_module(view, _read_words(view))
    return tuple(module.names[function] for function in module.functions)


def _read_words(view: ByteView) -> array[int]:
    if view.size < _HEADER.size or view.size % _WORD:
        raise view.malformed(0, "module", f"{view.size} bytes are not a whole number of words")
    data = view.whole()
    if data[:_WORD] not in (_MAGIC_LITTLE, _MAGIC_BIG):
        raise view.malformed(0, "magic number", "not SPIR-V")
    words = array("I", data)
    if (data[:_WORD] == _MAGIC_LITTLE) != (sys.byteorder == "little"):
        words.byteswap()
    return words


def _read_module(view: ByteView, words: array[int]) -> _Module:
    module = _Module(SpirvTypes())
    place = _HEADER.size // _WORD
    while place < len(words):
        count, operation = words[place] >> 16, words[place] & 0xFFFF
        end = place + count
        if count == 0 or end > len(words):
            reason = f"its {count} words do not fit"
            raise view.malformed(place * _WORD, f"instruction {operation}", reason)
        if operation in _INTERESTING:
            _read_instruction(module, operation, words[place + 1 : end], place)
        place = end
    return module


def _read_instruction(module: _Module, operation: int, operands: Sequence[int], place: int) -> None:
    match operation, *operands:
        case Op.MEMORY_MODEL, addressing, _:
            module.addressing = addressing
            module.types.pointer_bytes = {1: 4, 2: 8}.get(addressing)
        case Op.ENTRY_POINT, model, function, *_:
            if model == _KERNEL_MODEL:
                module.names[function] = _text(operands[2:])[0]
        case Op.EXECUTION_MODE, function, mode, *values:
            module.modes[function, mode] = tuple(values)
        case Op.DECORATE, target, decoration, *_:
            _read_decoration(module, target, decoration, operands[2:])
        case Op.FUNCTION | Op.FUNCTION_PARAMETER | Op.FUNCTION_END, *_:
            _read_function(module, operation, operands, place)
        case _:
            module.types.read(operation, operands)


def _read_function(module: _Module, operation: int, operands: Sequence[int], place: int) -> None:
    current = module.open_function
    match operation, *operands:
        case Op.FUNCTION, _, number, _, kind:
            module.open_function = _Function(kind, [], place)
            if number in module.names:
                module.functions[number] = module.open_function
        case Op.FUNCTION_PARAMETER, _, number if current is not None:
            current.parameters.append(number)
        case Op.FUNCTION_END, *_ if current is not None:
            current.end = place + 1
            module.open_function = None


def _read_decoration(
    module: _Module, target: int, decoration: int, operands: Sequence[int]
) -> None:
    if decoration == _PACKED:
        module.types.packed.add(target)
    elif decoration == _BUILT_IN:
        module.built_in.add(target)
    elif decoration == _PARAMETER_ATTRIBUTE and operands and operands[0] == _BY_VALUE:
        module.by_value.add(target)
    elif decoration == _LINKAGE:
        name, rest = _text(operands)
        if rest and rest[0] == _IMPORT:
            module.imports[target] = name


def _text(words: Sequence[int]) -> tuple[str, Sequence[int]]:
    """Return a NUL-terminated literal string, and the words after it."""
    for index, word in enumerate(words):
        if not all(word.to_bytes(_WORD, "little")):
            data = b"".join(part.to_bytes(_WORD, "little") for part in words[: index + 1])
            return data.partition(b"\0")[0].decode(errors="replace"), words[index + 1 :]
    return "", ()


def _kernels(module: _Module) -> Iterator[DeviceKernel]:
    for number, function in module.functions.items():
        bounds = module.modes.get((number, _MAX_WORK_GROUP), ())
        size = module.modes.get((number, _LOCAL_SIZE), ())
        subgroup = module.modes.get((number, _SUBGROUP_SIZE), ())
        yield DeviceKernel(
            name=module.names[number],
            parameters=_parameters(module, function),
            max_threads=math.prod(bounds) if len(bounds) == _DIMENSIONS else None,
            required_threads=(size[0], size[1], size[2]) if len(size) == _DIMENSIONS else None,
            subgroup_size=subgroup[0] if subgroup else None,
            code_bytes=(function.end - function.begin) * _WORD if function.end else None,
        )


def _parameters(module: _Module, function: _Function) -> tuple[KernelParameter, ...] | None:
    """Return the parameters; None if the size of one depends on the device, such as that of an image."""
    found = []
    end = 0
    types = module.types.functions.get(function.type)
    if types is None or len(types) != len(function.parameters):
        return None
    for kind, parameter in zip(types, function.parameters, strict=True):
        spelled = module.types.get(kind)
        if parameter in module.by_value:
            spelled = module.types.get(spelled.pointee)
        if spelled.size_bytes is None:
            return None
        place = aligned(end, spelled.alignment)
        end = place + spelled.size_bytes
        found.append(KernelParameter(place, spelled.size_bytes, spelled.name))
    return tuple(found)
