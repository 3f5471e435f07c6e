"""Check the code object version of an AMD module against the one that the consumer emits."""

from __future__ import annotations

from collections.abc import Iterator

from mlir_offload.toolchain.amdgpu import CodeObjects, hidden_layout
from mlir_offload.toolchain.bitcode import body as bitcode_body
from mlir_offload.toolchain.bitcode import constant, metadata, reference
from mlir_offload.toolchain.bitcode.global_value import BitcodeVariable
from mlir_offload.toolchain.bitcode.module import BitcodeModule
from mlir_offload.toolchain.skew.fact import HIDDEN_ARGUMENTS, Consumer, Skew
from mlir_offload.toolchain.skew.identity import parse_signature
from mlir_offload.toolchain.skew.limits import code_object_of

_FLAGS = ("amdhsa_code_object_version", "amdgpu_code_object_version")
_DEVICE_LIBRARY_ABI = "__oclc_ABI_version"


def check_code_object(module: BitcodeModule, consumer: Consumer) -> Iterator[Skew]:
    """Report incompatibilities of the code object version that an AMD module requests or was written for."""
    made = code_object_of(consumer.llvm)
    constants = constant.ConstantTable(module)
    flag, wanted = _wanted(module, constants)
    version = made.made(flag, wanted) if flag else made.versions[-1]
    if wanted and wanted != version:
        values = {"wanted": wanted, "consumer": consumer.llvm, "default": version}
        is_other = hidden_layout(wanted) != hidden_layout(version)
        if is_other and is_used(module, constants, HIDDEN_ARGUMENTS):
            yield Skew("AM004", values)
        elif flag:
            yield Skew("AM007", values)
    yield from _device_library(module, constants, version, consumer)
    if consumer.rocm is not None and 100 * version not in consumer.rocm.abi_versions:
        known = ", ".join(str(abi // 100) for abi in consumer.rocm.abi_versions)
        yield Skew("AM003", {"version": version, "known": known, "root": consumer.rocm.bitcode})


def is_used(module: BitcodeModule, constants: constant.ConstantTable, name: str) -> bool:
    """Return whether something in a module refers to a global; True if an instruction is unknown."""
    numbers = [number for number, one in enumerate(module.symbols) if one.name == name]
    try:
        return bool(reference.ReferenceGraph(module, constants).used(numbers)) if numbers else False
    except bitcode_body.UnknownInstructionError:
        return True


def _wanted(module: BitcodeModule, constants: constant.ConstantTable) -> tuple[str, int]:
    """Return the module flag and its version.

    Without a flag, return '' and the default version of the producer, or 0 if it is unknown or irrelevant.
    """
    table = metadata.MetadataTable(module, constants)
    for name in _FLAGS:
        flag = table.flag(name)
        if isinstance(flag, int):
            return name, flag // 100
    if any(one.name == _DEVICE_LIBRARY_ABI for one in module.symbols):
        # The device libraries read their own variable instead.
        return "", 0
    writer = parse_signature(module.producer)
    own: CodeObjects | None = None
    if writer.major is not None and not writer.vendor:
        own = code_object_of(writer.major)
    return "", own.versions[-1] if own else 0


def _device_library(
    module: BitcodeModule, constants: constant.ConstantTable, version: int, consumer: Consumer
) -> Iterator[Skew]:
    """Report a device library that expects a layout of hidden arguments other than the consumer's.

    An unused ABI variable is reported too, unless the module is complete: later linked code may use it.
    """
    for variable in module.symbols:
        if not isinstance(variable, BitcodeVariable) or variable.name != _DEVICE_LIBRARY_ABI:
            continue
        abi = None if variable.initializer is None else constants.integer(variable.initializer)
        if abi is None or hidden_layout(abi // 100) == hidden_layout(version):
            continue
        if not _is_complete(module) or is_used(module, constants, _DEVICE_LIBRARY_ABI):
            yield Skew("AM001", {"abi": abi, "version": version, "consumer": consumer.llvm})


def _is_complete(module: BitcodeModule) -> bool:
    """Return whether a module defines functions and declares none except intrinsics."""
    functions = [one for one in module.functions if not one.is_intrinsic]
    return bool(functions) and not any(one.is_declaration for one in functions)
