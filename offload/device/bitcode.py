"""Read the kernels of a device image in LLVM bitcode."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from math import prod

from msgspec.structs import replace

from mlir_offload.offload.device.kernel import DeviceCode, DeviceKernel, KernelParameter
from mlir_offload.toolchain.bitcode.attribute import AttributeList
from mlir_offload.toolchain.bitcode.body import UnknownInstructionError
from mlir_offload.toolchain.bitcode.code import AttributeForm, AttributeKind
from mlir_offload.toolchain.bitcode.constant import ConstantTable
from mlir_offload.toolchain.bitcode.data_layout import TypeSizes, aligned, parse_data_layout
from mlir_offload.toolchain.bitcode.global_value import (
    BitcodeFunction,
    BitcodeVariable,
    Symbol,
)
from mlir_offload.toolchain.bitcode.hash import CodeHash
from mlir_offload.toolchain.bitcode.metadata import MetadataTable, function_attachments
from mlir_offload.toolchain.bitcode.module import BitcodeModule, read_bitcode
from mlir_offload.toolchain.bitcode.reference import ReferenceGraph
from mlir_offload.toolchain.byte_view import ByteView
from mlir_offload.toolchain.target import is_gpu_triple

FORM = "LLVM bitcode"
_PRODUCER = re.compile(r"LLVM ?(\d{1,4})\.\d")
_NUMBERS = re.compile(r"\d{1,10}(?:,\d{1,10})*")
_OPENMP_KERNEL = "__omp_offloading_"
_SHARED_SPACE = 3
_DIMENSIONS = 3
_FEW_PARAMETERS = 1 << 15
_LOCAL = frozenset({"internal", "private"})
_IN_MEMORY = (AttributeKind.BYVAL, AttributeKind.BYREF)
_Bounds = dict[str, int]


def read_device_bitcode(view: ByteView, *, with_hashes: bool = False) -> DeviceCode:
    """Read a bitcode image and its kernels, with hashes of their code if requested.

    Hashes take longer, because all instructions are read. Raises VerificationError if it is malformed.
    """
    module = read_bitcode(view)
    constants = ConstantTable(module)
    code_hash = CodeHash(module, constants) if with_hashes else None
    reader = _KernelReader(module, MetadataTable(module, constants))
    graph = _Graph(module, constants)
    kernels = [
        (number, function)
        for number, function in enumerate(module.symbols)
        if isinstance(function, BitcodeFunction) and reader.is_kernel(function)
    ]
    return DeviceCode(
        FORM,
        producer=module.producer,
        llvm_major=llvm_major(module.producer),
        triple=module.triple,
        arch=_arch(module, [function for _, function in kernels]),
        is_relocatable=True,
        kernels=tuple(
            replace(
                reader.kernel(function),
                shared_bytes=graph.shared_bytes(number, reader.sizes),
                code_sha256=code_hash.function(number) if code_hash else "",
            )
            for number, function in kernels
        ),
        undefined=graph.undefined(),
    )


def target_cpus(module: BitcodeModule) -> tuple[str, ...]:
    """Return the `target-cpu` attributes of the functions of a module, sorted."""
    functions = (item for item in module.symbols if isinstance(item, BitcodeFunction))
    return tuple(sorted({_arch(module, [function]) for function in functions} - {""}))


def llvm_major(producer: str) -> int | None:
    """Return the LLVM release that wrote a module; None if its producer string does not contain it."""
    found = _PRODUCER.match(producer)
    return int(found[1]) if found else None


def _arch(module: BitcodeModule, kernels: list[BitcodeFunction]) -> str:
    defined = kernels or [one for one in module.functions if not one.is_declaration]
    archs = {module.attributes[one.attributes].string("target-cpu") for one in defined}
    return (archs.pop() or "") if len(archs) == 1 else ""


class _KernelReader:
    """The kernels of a module, and the attributes and metadata for their launch."""

    def __init__(self, module: BitcodeModule, metadata: MetadataTable) -> None:
        self.sizes = TypeSizes(module.types, parse_data_layout(module.data_layout))
        self._module = module
        self._annotations = _annotations(metadata)
        self._known: dict[tuple[int, int], tuple[KernelParameter, ...] | None] = {}
        # A long type and many attribute lists could expand to more than memory can hold.
        self._parameters_left = module.content.stream.size // 16 + _FEW_PARAMETERS
        attached = function_attachments(module, metadata, "reqd_work_group_size", self.is_kernel)
        self._group_sizes = {
            name: _three([one for one in operands if isinstance(one, int)])
            for name, operands in attached.items()
        }

    def is_kernel(self, function: BitcodeFunction) -> bool:
        """Return whether a host can launch the function: by its calling convention, or by `nvvm.annotations`."""
        if function.is_declaration:
            return False
        if function.has_kernel_convention:
            return True
        if self._annotations.get(function.name, {}).get("kernel") == 1:
            return True
        # The CPU has no kernel calling convention; clang gives OpenMP kernels this name.
        return function.name.startswith(_OPENMP_KERNEL) and function.linkage not in _LOCAL

    def kernel(self, function: BitcodeFunction) -> DeviceKernel:
        """Return the kernel with its attributes, without what it uses from other functions."""
        attributes = self._module.attributes[function.attributes]
        bounds = self._annotations.get(function.name, {})
        required = self._group_sizes.get(function.name)
        return DeviceKernel(
            function.name,
            parameters=self._known_parameters(function, attributes),
            max_threads=_max_threads(attributes, bounds),
            required_threads=_three(_numbers(attributes, "nvvm.reqntid"))
            or _three(_dimensions(bounds, "reqntid"))
            or required,
            min_blocks=next(iter(_numbers(attributes, "nvvm.minctasm")), bounds.get("minctasm")),
            max_registers=next(iter(_numbers(attributes, "nvvm.maxnreg")), bounds.get("maxnreg")),
        )

    def _known_parameters(
        self, function: BitcodeFunction, attributes: AttributeList
    ) -> tuple[KernelParameter, ...] | None:
        """Return the parameters, computed once for all kernels with the same declaration."""
        key = (function.type, function.attributes)
        if key not in self._known:
            self._known[key] = self._parameters(function, attributes)
        return self._known[key]

    def _parameters(
        self, function: BitcodeFunction, attributes: AttributeList
    ) -> tuple[KernelParameter, ...] | None:
        """Return the parameters, each at the next offset that its alignment allows."""
        parameters: list[KernelParameter] = []
        offset = 0
        passed_types = self._module.types.function(function.type).elements[1:]
        self._parameters_left -= len(passed_types)
        if self._parameters_left < 0:
            raise self._module.types.malformed(function.type, "kernels have too many parameters")
        for place, passed in enumerate(passed_types, 1):
            number = _type_in_memory(attributes, place, passed)
            size = self.sizes(number)
            if size is None:
                return None
            alignment = size.align_bytes
            if number != passed:
                explicit = attributes.find(place, AttributeKind.ALIGN)
                alignment = max(1, _number(explicit.value)) if explicit else alignment
            offset = aligned(offset, alignment)
            text = self._module.types.spell(number)
            parameters.append(KernelParameter(offset, size.size_bytes, text))
            offset += size.size_bytes
        return tuple(parameters)


def _type_in_memory(attributes: AttributeList, place: int, passed: int) -> int:
    """Return the type in the argument buffer: for a `byval` pointer, the structure."""
    for kind in _IN_MEMORY:
        found = attributes.find(place, kind)
        if found and found.form == AttributeForm.TYPE:
            return _number(found.value)
    return passed


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _annotations(metadata: MetadataTable) -> Mapping[str, _Bounds]:
    """Return the `nvvm.annotations` of each function: pairs of a name and a number."""
    found: dict[str, _Bounds] = {}
    for operands in metadata.named("nvvm.annotations"):
        if not operands or not isinstance(operands[0], BitcodeFunction):
            continue
        bounds = found.setdefault(operands[0].name, {})
        for name, value in zip(operands[1::2], operands[2::2], strict=False):
            if isinstance(name, str) and isinstance(value, int):
                bounds[name] = value
    return found


def _dimensions(bounds: _Bounds, name: str) -> list[int]:
    """Return the annotated values for x, y and z, up to the last annotated one."""
    values = [bounds.get(f"{name}{axis}") for axis in "xyz"]
    while values and values[-1] is None:
        values.pop()
    return [1 if value is None else value for value in values]


def _numbers(attributes: AttributeList, name: str) -> list[int]:
    text = attributes.string(name) or ""
    return [int(number) for number in text.split(",")] if _NUMBERS.fullmatch(text) else []


def _three(values: list[int]) -> tuple[int, int, int] | None:
    if not 0 < len(values) <= _DIMENSIONS:
        return None
    x, y, z = (*values, 1, 1)[:_DIMENSIONS]
    return x, y, z


def _max_threads(attributes: AttributeList, bounds: _Bounds) -> int | None:
    flat = _numbers(attributes, "amdgpu-flat-work-group-size")
    if flat:
        return flat[-1]
    return _product(_numbers(attributes, "nvvm.maxntid") or _dimensions(bounds, "maxntid"))


def _product(values: list[int]) -> int | None:
    return prod(values) if values else None


class _Graph:
    """The symbols that kernels use of this module and of others; bodies are read only if that matters."""

    def __init__(self, module: BitcodeModule, constants: ConstantTable) -> None:
        self._module = module
        self._shared = {
            number: symbol
            for number, symbol in enumerate(module.symbols)
            if isinstance(symbol, BitcodeVariable)
            and symbol.address_space == _SHARED_SPACE
            and symbol.initializer is not None
        }
        self._missing = {
            number: symbol.name
            for number, symbol in enumerate(module.symbols)
            if _is_missing(symbol)
        }
        self._graph = ReferenceGraph(module, constants)
        self._is_known = not self._shared and not self._missing

    def undefined(self) -> tuple[str, ...]:
        """Return the declarations that are used (all, if that cannot be determined)."""
        used: Collection[int] = self._missing
        if self._missing:
            with suppress(UnknownInstructionError):
                used = self._graph.used(self._missing)
        return tuple(name for number, name in self._missing.items() if number in used)

    def shared_bytes(self, kernel: int, sizes: TypeSizes) -> int | None:
        """Return the size in bytes of the shared variables that a kernel reaches in this module."""
        if not is_gpu_triple(self._module.triple):
            return None
        if self._is_known:
            return 0
        reached = None
        with suppress(UnknownInstructionError):
            reached = self._graph.reached(kernel)
        if reached is None or any(
            isinstance(self._module.symbols[number], BitcodeFunction)
            for number in self._missing.keys() & reached
        ):
            return None
        total = 0
        for number in self._shared.keys() & reached:
            variable = self._shared[number]
            size = sizes(variable.type)
            if size is None:
                return None
            total = aligned(total, variable.align_bytes or size.align_bytes) + size.size_bytes
        return total


def _is_missing(symbol: Symbol) -> bool:
    """Return whether another image must define a symbol; shared memory sized at launch does not count."""
    if isinstance(symbol, BitcodeFunction):
        return symbol.is_declaration and not symbol.is_intrinsic
    if isinstance(symbol, BitcodeVariable):
        return symbol.initializer is None and symbol.address_space != _SHARED_SPACE
    return False
