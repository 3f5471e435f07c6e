"""What a `gpu.module` itself says of its targets: `[#nvvm.target<chip = "sm_90">, ...]`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.target import Kind, Target, all_kinds, device_kind
from mlir_offload.translate.kind_lowering import LOWERINGS
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import Attribute, attributes_in, render_symbol

# What the flags of ROCm's libraries say of the code's own features.
_FLAG_FEATURES = {"wave64": "+wavefrontsize64", "no_wave64": "-wavefrontsize64"}
_ABI_UNIT = 100


class TargetAttribute(Struct, frozen=True):
    """A target attached to a module; empty, and -1, is what the command line says."""

    kind: Kind
    chip: str = ""
    features: str = ""
    opt_level: int = -1
    link: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    triple: str = ""
    abi: str = ""

    def is_compatible(self, target: Target) -> bool:
        """Say whether the module is to be compiled for the target because of this."""
        return self.kind is target.kind and self.chip in {
            "",
            target.arch,
            # Without the features of a target ID.
            target.arch.partition(":")[0],
        }

    @property
    def code_object(self) -> int:
        """Return the version of an AMD code object, 0 for the usual one."""
        return int(self.abi) // _ABI_UNIT if _is_abi(self.abi) else 0

    @property
    def all_features(self) -> tuple[str, ...]:
        """Return the features as LLVM spells them, those that a flag implies as well."""
        implied = (_FLAG_FEATURES[flag] for flag in self.flags if flag in _FLAG_FEATURES)
        return (*filter(None, self.features.split(",")), *implied)

    @property
    def feature_arguments(self) -> tuple[str, ...]:
        """Return the features as arguments of clang."""
        return tuple(
            word
            for name in filter(None, self.features.split(","))
            for word in ("-Xclang", "-target-feature", "-Xclang", name)
        )


def read_targets(attached: Attribute, location: str) -> tuple[TargetAttribute, ...]:
    """Return the targets in the attribute `targets` of a `gpu.module`.

    Raises SourceError for what would not be heeded.
    """
    found = map(parse_target, attached.elements)
    targets = tuple(target for target in found if target is not None)
    for target in targets:
        _check_heeded(target, location)
    return targets


def parse_target(attribute: Attribute) -> TargetAttribute | None:
    """Return the target that an attribute is, None for one of another dialect."""
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
        # A name that is no identifier, such as one with a hyphen, is printed as a string.
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
    if target.abi and not _is_abi(target.abi):
        msg = f"abi {target.abi} of a target attribute is not a version of a code object"
        raise SourceError(msg, hint="write 500 for version 5, or leave it out", location=location)


def _kinds() -> dict[str, Kind]:
    """Return the kinds whose devices are named by target attributes, by their names."""
    return {f"#{one.target_dialect}.target": one.name for one in LOWERINGS if one.target_dialect}


def _is_abi(text: str) -> bool:
    version, rest = text[:1], text[1:]
    return version.isdigit() and version != "0" and rest == "00"


def compatible_targets(
    attached: Sequence[TargetAttribute], targets: Iterable[Target]
) -> tuple[Target, ...]:
    """Return those of the targets that a module with these attributes is compiled for.

    What is attached decides for its own kind only: a module for one GPU runs on the CPU as well.
    """
    pinned = {attribute.kind for attribute in attached}
    return tuple(
        target
        for target in targets
        if target.kind not in pinned or any(item.is_compatible(target) for item in attached)
    )


def attribute_for(attached: Sequence[TargetAttribute], target: Target) -> TargetAttribute | None:
    """Return what is attached for a target: what names its chip before what names none."""
    fitting = [attribute for attribute in attached if attribute.is_compatible(target)]
    return max(fitting, key=lambda attribute: bool(attribute.chip), default=None)


def are_variants(modules: Sequence[Sequence[TargetAttribute]]) -> bool:
    """Say whether modules are for different GPUs, so that one of them serves each."""
    chips = [{(item.kind, item.chip) for item in attached} for attached in modules]
    whole = [chip for own in chips for chip in own]
    return all(chips) and all(name for _, name in whole) and len(whole) == len(set(whole))


def chips_in_source(content: bytes) -> tuple[str, ...]:
    """Return the chips that a program, as text, attaches to its modules."""
    named = (target.get("chip", Attribute("")).string for target in _targets_in(content))
    return tuple(dict.fromkeys(name for name in named if name.startswith(("sm_", "gfx"))))


def libraries_in_source(content: bytes) -> tuple[str, ...]:
    """Return the libraries that a program, as text, attaches to its modules."""
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

    A kind that none is attached to, such as the CPU, gets the first.
    """
    ordered = [name for name in attached if name in variants]
    own = {name: {target.kind for target in attached[name]} for name in ordered}
    chosen = set().union(*own.values())
    return {
        name: frozenset((chosen if name == ordered[0] else set(all_kinds())) - own[name])
        for name in ordered
    }
