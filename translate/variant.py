"""Modules that are variants of one another: the same kernels, each written for other GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.target import Kind, all_kinds
from mlir_offload.translate.mlir.location import Locations
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import render_symbol
from mlir_offload.translate.target_attribute import TargetAttribute, are_variants


def find_variants(
    modules: Mapping[str, Operation],
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
        for function in modules[name].operations:
            if function.symbol not in kernels[name]:
                continue
            own = function.attribute("function_type")
            if types.setdefault(function.symbol, own) != own:
                kernel = render_symbol(function.symbol)
                msg = (
                    f"kernel {kernel} has other parameters here than in its variant for another GPU"
                )
                hint = "give both the same parameters, or other names"
                raise SourceError(msg, hint=hint, location=locations.of(function))
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
