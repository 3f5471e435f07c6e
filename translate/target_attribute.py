"""What a `gpu.module` itself says of its targets: `[#nvvm.target<chip = "sm_90">, ...]`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.target import Kind, Target, device_kind
from mlir_offload.translate.kind_lowering import LOWERINGS
from mlir_offload.translate.mlir_syntax import MLIR
from mlir_offload.translate.mlir_text import unescape

_STRING = re.compile(r'"((?:[^"\\]++|\\.)*+)"')
_TARGETS = re.compile(r"\btargets = \[")
_ATTRIBUTE = re.compile(r"#(?P<dialect>nvvm|rocdl)\.target(?:<(?P<body>.*)>)?", re.DOTALL)
# What the flags of ROCm's libraries say of the code's own features.
_FLAG_FEATURES = {"wave64": "+wavefrontsize64", "no_wave64": "-wavefrontsize64"}
_ABI = re.compile(r"[1-9]00")
_SOURCE_CHIP = re.compile(
    rb'#(?:nvvm|rocdl)\.target<[^>"]*(?:"[^"]*"[^>"]*)*?chip = "((?:sm_|gfx)[\w-]+)"'
)
_SOURCE_LINK = re.compile(rb"\blink = \[([^\]]*)\]")
_SOURCE_STRING = re.compile(rb'"([^"\\]*)"')
# What looks like a comment in a string is none; in bytecode texts end with NUL.
_COMMENT = re.compile(rb'("(?:[^"\\\n]++|\\.)*+")|//[^\n\0]*')


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

    def serves(self, target: Target) -> bool:
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
        return int(self.abi) // 100 if _ABI.fullmatch(self.abi) else 0

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


def read_targets(attributes: str, location: str) -> tuple[TargetAttribute, ...]:
    """Return the targets in the attributes of a `gpu.module`, in generic form.

    Raises SourceError for what would not be heeded.
    """
    masked, strings = mask_strings(attributes)
    start = _TARGETS.search(masked)
    if start is None:
        return ()
    listed = MLIR.split_list(MLIR.inside(masked, start.end() - 1))
    found = [parse_target(text, strings) for text in listed]
    targets = tuple(target for target in found if target is not None)
    for target in targets:
        _check_heeded(target, location)
    return targets


def mask_strings(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the text with a number in each string, and the strings as they are spelled.

    Brackets and commas in a string are none of the text's.
    """
    strings: list[str] = []

    def masked(match: re.Match[str]) -> str:
        strings.append(match[1])
        return f'"{len(strings) - 1}"'

    return _STRING.sub(masked, text), tuple(strings)


def parse_target(masked: str, strings: Sequence[str]) -> TargetAttribute | None:
    """Return the target that an attribute is, None for one of another dialect."""
    match = _ATTRIBUTE.fullmatch(masked)
    if match is None:
        return None
    kind = next(one.name for one in LOWERINGS if one.target_dialect == match["dialect"])
    fields = {
        name.strip(): value.strip()
        for name, _, value in (part.partition("=") for part in MLIR.split_list(match["body"] or ""))
    }
    link = tuple(_text(item, strings) for item in MLIR.split_list(_inside(fields.get("link", ""))))
    flags = tuple(
        item.partition(" ")[0] for item in MLIR.split_list(_inside(fields.get("flags", "")))
    )
    return TargetAttribute(
        kind,
        _text(fields.get("chip", ""), strings),
        _text(fields.get("features", ""), strings),
        int(fields.get("O", "-1")),
        link,
        flags,
        *(_text(fields.get(name, ""), strings) for name in ("triple", "abi")),
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
    if target.abi and not _ABI.fullmatch(target.abi):
        msg = f"abi {target.abi} of a target attribute is no version of a code object"
        raise SourceError(msg, hint="write 500 for version 5, or leave it out", location=location)


def _text(masked: str, strings: Sequence[str]) -> str:
    return unescape(strings[int(masked.strip('"'))]) if masked else ""


def _inside(text: str) -> str:
    return text[1:-1]


def served_targets(
    attached: Sequence[TargetAttribute], targets: Iterable[Target]
) -> tuple[Target, ...]:
    """Return those of the targets that a module with these attributes is compiled for.

    What is attached decides for its own kind only: a module for one GPU runs on the CPU as well.
    """
    pinned = {attribute.kind for attribute in attached}
    return tuple(
        target
        for target in targets
        if target.kind not in pinned or any(item.serves(target) for item in attached)
    )


def attribute_for(attached: Sequence[TargetAttribute], target: Target) -> TargetAttribute | None:
    """Return what is attached for a target: what names its chip before what names none."""
    fitting = [attribute for attribute in attached if attribute.serves(target)]
    return max(fitting, key=lambda attribute: bool(attribute.chip), default=None)


def are_variants(modules: Sequence[Sequence[TargetAttribute]]) -> bool:
    """Say whether modules are for different GPUs, so that one of them serves each."""
    chips = [{(item.kind, item.chip) for item in attached} for attached in modules]
    whole = [chip for own in chips for chip in own]
    return all(chips) and all(name for _, name in whole) and len(whole) == len(set(whole))


def chips_in_source(content: bytes) -> tuple[str, ...]:
    """Return the chips that a program, as text, attaches to its modules."""
    found = _SOURCE_CHIP.findall(_COMMENT.sub(rb"\1", content))
    return tuple(dict.fromkeys(name.decode() for name in found))


def libraries_in_source(content: bytes) -> tuple[str, ...]:
    """Return the libraries that a program, as text, attaches to its modules."""
    lists = _SOURCE_LINK.findall(_COMMENT.sub(rb"\1", content))
    found = [name for names in lists for name in _SOURCE_STRING.findall(names)]
    return tuple(dict.fromkeys(name.decode(errors="surrogateescape") for name in found))
