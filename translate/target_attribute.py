"""The target attributes of a `gpu.module`: `[#nvvm.target<chip = "sm_90">, ...]`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.target import Kind, all_kinds, device_kind
from mlir_offload.translate.kind_lowering import LOWERINGS, TargetAttribute
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import Attribute, attributes_in, render_symbol


def read_targets(attached: Attribute, location: str) -> tuple[TargetAttribute, ...]:
    """Return the targets in the attribute `targets` of a `gpu.module`.

    Raises SourceError for parameters that would be ignored.
    """
    found = map(parse_target, attached.elements)
    targets = tuple(target for target in found if target is not None)
    for target in targets:
        _check_heeded(target, location)
    return targets


def parse_target(attribute: Attribute) -> TargetAttribute | None:
    """Parse a target attribute. Return None for an attribute of another dialect."""
    kind = _kinds().get(attribute.name)
    if kind is None:
        return None
    fields = attribute.parameters
    flags = fields.get("flags", Attribute("")).entries
    opt_level = fields.get("O", Attribute("-1")).integer
    return TargetAttribute(
        kind,
        opt_level=-1 if opt_level is None else opt_level,
        link=tuple(item.string for item in fields.get("link", Attribute("")).elements),
        # A name that is not an identifier, such as one with a hyphen, is printed as a string.
        flags=tuple(Attribute(name).string or name for name in flags),
        **{
            name: fields[name].string
            for name in ("chip", "features", "triple", "abi")
            if name in fields
        },
    )


def _check_heeded(target: TargetAttribute, location: str) -> None:
    known, triple = LOWERINGS[target.kind].target_flags, device_kind(target.kind).triple
    unknown = [flag for flag in target.flags if flag not in known]
    if unknown:
        msg = f"flag {unknown[0]} of a target attribute is not known"
        hint = f"known are {', '.join(known)}; -Xptxas and -Xdevice-opt pass others"
        raise SourceError(msg, hint=hint, location=location)
    if target.triple not in {"", triple}:
        msg = (
            f"triple {target.triple} of a target attribute is not that of the device code, {triple}"
        )
        raise SourceError(msg, hint="leave the triple out", location=location)
    if target.abi and not target.code_object:
        msg = f"abi {target.abi} of a target attribute is not a version of a code object"
        raise SourceError(msg, hint="write 500 for version 5, or leave it out", location=location)


def _kinds() -> dict[str, Kind]:
    """Return the device kinds by the names of their target attributes."""
    return {f"#{one.target_dialect}.target": one.name for one in LOWERINGS if one.target_dialect}


def are_variants(modules: Sequence[Sequence[TargetAttribute]]) -> bool:
    """Return whether all modules have target attributes with chips, and no two for the same chip."""
    chips = [{(item.kind, item.chip) for item in attached} for attached in modules]
    whole = [chip for own in chips for chip in own]
    return all(chips) and all(name for _, name in whole) and len(whole) == len(set(whole))


def chips_in_source(content: bytes) -> tuple[str, ...]:
    """Return the chips in the target attributes of a textual program."""
    named = (target.get("chip", Attribute("")).string for target in _targets_in(content))
    return tuple(dict.fromkeys(name for name in named if name.startswith(("sm_", "gfx"))))


def libraries_in_source(content: bytes) -> tuple[str, ...]:
    """Return the libraries in the target attributes of a textual program."""
    lists = (target.get("link", Attribute("")).elements for target in _targets_in(content))
    return tuple(dict.fromkeys(item.string for names in lists for item in names))


def _targets_in(content: bytes) -> Iterable[dict[str, Attribute]]:
    if b"nvvm.target" not in content and b"rocdl.target" not in content:
        return ()
    text = content.decode(errors="surrogateescape")
    return (found.parameters for found in attributes_in(text, _kinds()))


def find_variants(
    modules: Mapping[str, Operation],
    kernels: Mapping[str, Sequence[str]],
    attached: Mapping[str, Sequence[TargetAttribute]],
    locations: Locations,
) -> frozenset[str]:
    """Return the modules that are variants for different GPUs: with different chips and equal kernels.

    Raises SourceError if variants of a kernel have different parameters, because one launch is for all.
    """
    chosen = [name for name in modules if kernels[name] and attached.get(name)]
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
    """Return for each variant the device kinds for which another variant is used.

    For a kind without a target attribute, such as the CPU, the first variant is used.
    """
    ordered = [name for name in attached if name in variants]
    own = {name: {target.kind for target in attached[name]} for name in ordered}
    chosen = set().union(*own.values())
    return {
        name: frozenset((chosen if name == ordered[0] else set(all_kinds())) - own[name])
        for name in ordered
    }
