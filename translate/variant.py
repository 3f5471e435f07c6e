"""Modules that are variants of one another: the same kernels, each written for other GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.target import Kind, all_kinds
from mlir_offload.translate.mlir_text import Locations, OperationText, render_symbol, symbol_name
from mlir_offload.translate.target_attribute import TargetAttribute, are_variants

_TYPE = re.compile(r"\bfunction_type = (.*?)(?:, [\w.]+ = |>?\}>? ?\()")


def find_variants(
    modules: Mapping[str, OperationText],
    kernels: Mapping[str, Sequence[str]],
    attached: Mapping[str, Sequence[TargetAttribute]],
    locations: Locations,
) -> frozenset[str]:
    """Return the modules of which one serves each GPU: attached to other chips, with equal kernels.

    Raises SourceError where variants of a kernel take other parameters: one launch is for all.
    """
    chosen = [name for name in modules if kernels[name] and attached[name]]
    shared = [
        name
        for name in chosen
        if any(set(kernels[name]) & set(kernels[other]) for other in chosen if other != name)
    ]
    if not shared or not are_variants([attached[name] for name in shared]):
        return frozenset()
    types: dict[str, str] = {}
    for name in shared:
        for function in modules[name].body:
            if symbol_of(function) not in kernels[name]:
                continue
            found = _TYPE.search(function.lines[0])
            own = found[1] if found else function.lines[0]
            if types.setdefault(symbol_name(function), own) != own:
                kernel = render_symbol(symbol_name(function))
                msg = (
                    f"kernel {kernel} has other parameters here than in its variant for another GPU"
                )
                hint = "give both the same parameters, or other names"
                raise SourceError(msg, hint=hint, location=locations.of(function.lines[-1]))
    return frozenset(shared)


def kinds_left(
    variants: frozenset[str], attached: Mapping[str, Sequence[TargetAttribute]]
) -> dict[str, frozenset[Kind]]:
    """Return for each variant the kinds of device that another one serves.

    A kind that none is attached to, such as the CPU, is served by the first.
    """
    ordered = [name for name in attached if name in variants]
    own = {name: {target.kind for target in attached[name]} for name in ordered}
    chosen = set().union(*own.values())
    return {
        name: frozenset((chosen if name == ordered[0] else set(all_kinds())) - own[name])
        for name in ordered
    }


def symbol_of(operation: OperationText) -> str:
    """Return the name that an operation defines, empty where it defines none."""
    return symbol_name(operation) if "sym_name" in operation.attributes else ""
