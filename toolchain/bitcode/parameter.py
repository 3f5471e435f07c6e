"""Find kernel parameters in constant memory (grid constants) whose address an older LLVM replaces by a copy."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mlir_offload.toolchain.bitcode.body import (
    OperandKind,
    UnknownInstructionError,
    function_bodies,
    read_body,
)
from mlir_offload.toolchain.bitcode.constant import ConstantTable
from mlir_offload.toolchain.bitcode.global_value import BitcodeFunction
from mlir_offload.toolchain.bitcode.module import BitcodeModule

_LOAD, _ADDRESS = 20, 43


def copied_parameters(module: BitcodeModule, attribute: str) -> Iterator[BitcodeFunction]:
    """Return the functions in which the address of a parameter with an attribute has uses other than loads."""
    first = None
    for number, body in function_bodies(module):
        function = module.symbols[number]
        if not isinstance(function, BitcodeFunction):
            continue
        groups = module.attributes[function.attributes].groups.values()
        places = [group.place for group in groups if attribute in group.attributes]
        if not places:
            continue
        if first is None:
            first = len(module.symbols) + len(ConstantTable(module))
        # The result has place 0.
        addresses = {first + place - 1 for place in places}
        entries = read_body(module, number, body, first)
        try:
            is_copied = any(
                _is_other_use(entry.code, entry.operands, entry.number, addresses)
                for entry in entries
            )
        except UnknownInstructionError:
            is_copied = True
        if is_copied:
            yield function


def _is_other_use(
    code: int,
    operands: Collection[tuple[OperandKind, int]],
    number: int | None,
    addresses: set[int],
) -> bool:
    """Return whether an instruction uses an address, but is neither a load nor a getelementptr.

    Adds the result of a getelementptr to `addresses`.
    """
    if not any(kind is OperandKind.VALUE and value in addresses for kind, value in operands):
        return False
    if code == _ADDRESS and number is not None:
        addresses.add(number)
    return code not in {_LOAD, _ADDRESS}
