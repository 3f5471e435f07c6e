"""What a `gpu.module` itself says of its targets: `[#nvvm.target<chip = "sm_90">, ...]`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.target import AMDGPU_TRIPLE, NVPTX_TRIPLE, Kind, Target
from mlir_offload.translate.mlir_text import split_list, unescape

_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_TARGETS = re.compile(r"\btargets = \[")
_ATTRIBUTE = re.compile(r"#(?P<dialect>nvvm|rocdl)\.target(?:<(?P<body>.*)>)?", re.DOTALL)
_KINDS = {"nvvm": Kind.CUDA, "rocdl": Kind.HIP}
_KNOWN_FLAGS = {
    Kind.CUDA: ("fast", "ftz"),
    Kind.HIP: (
        "daz",
        "fast",
        "finite_only",
        "no_wave64",
        "unsafe_math",
        "unsafe_sqrt",
        "wave64",
    ),
}
_TRIPLES = {Kind.CUDA: NVPTX_TRIPLE, Kind.HIP: AMDGPU_TRIPLE}
# What the flags of ROCm's libraries say of the code's own features.
_FLAG_FEATURES = {"wave64": "+wavefrontsize64", "no_wave64": "-wavefrontsize64"}
_ABI = re.compile(r"[1-9]00")
_SOURCE_CHIP = re.compile(
    rb'#(?:nvvm|rocdl)\.target<[^>"]*(?:"[^"]*"[^>"]*)*?chip = "((?:sm_|gfx)[\w-]+)"'
)
_SOURCE_LINK = re.compile(rb"\blink = \[([^\]]*)\]")
_SOURCE_STRING = re.compile(rb'"([^"\\]*)"')
_COMMENT = re.compile(rb"//[^\n]*")


@dataclass(frozen=True, slots=True)
class TargetAttribute:
    """A target attached to a module; empty, and -1, is what the command line says.

    `code_object` is the version of an AMD code object, 0 for the usual one.
    """

    kind: Kind
    chip: str = ""
    features: str = ""
    opt_level: int = -1
    link: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    code_object: int = 0

    def serves(self, target: Target) -> bool:
        """Say whether the module is to be compiled for the target because of this."""
        return self.kind is target.kind and self.chip in {
            "",
            target.arch,
            # Without the features of a target ID.
            target.arch.partition(":")[0],
        }

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
    strings: list[str] = []

    def masked(match: re.Match[str]) -> str:
        # Brackets and commas in a file name are none of the text's.
        strings.append(unescape(match[1]))
        return f'"{len(strings) - 1}"'

    attributes = _STRING.sub(masked, attributes)
    start = _TARGETS.search(attributes)
    if start is None:
        return ()
    listed = split_list(_until(attributes[start.end() :], "]"))
    found = []
    for text in listed:
        match = _ATTRIBUTE.fullmatch(text)
        if match is not None:
            found.append(
                _read_target(_KINDS[match["dialect"]], match["body"] or "", strings, location)
            )
    return tuple(found)


def _read_target(kind: Kind, body: str, strings: Sequence[str], location: str) -> TargetAttribute:
    fields = {
        name.strip(): value.strip()
        for name, _, value in (part.partition("=") for part in split_list(body))
    }
    link = tuple(_text(item, strings) for item in split_list(_inside(fields.get("link", ""))))
    flags = tuple(item.partition(" ")[0] for item in split_list(_inside(fields.get("flags", ""))))
    unknown = [flag for flag in flags if flag not in _KNOWN_FLAGS[kind]]
    if unknown:
        msg = f"flag {unknown[0]} of a target attribute is not known"
        hint = f"known are {', '.join(_KNOWN_FLAGS[kind])}; -Xptxas and -Xdevice-opt pass others"
        raise SourceError(msg, hint=hint, location=location)
    triple, abi = (_text(fields.get(name, ""), strings) for name in ("triple", "abi"))
    if triple not in {"", _TRIPLES[kind]}:
        msg = f"triple {triple} of a target attribute is not that of the device code, {_TRIPLES[kind]}"
        raise SourceError(msg, hint="leave the triple out", location=location)
    if abi and not _ABI.fullmatch(abi):
        msg = f"abi {abi} of a target attribute is no version of a code object"
        raise SourceError(msg, hint="write 500 for version 5, or leave it out", location=location)
    return TargetAttribute(
        kind,
        _text(fields.get("chip", ""), strings),
        _text(fields.get("features", ""), strings),
        int(fields.get("O", "-1")),
        link,
        flags,
        int(abi or "0") // 100,
    )


def _text(masked: str, strings: Sequence[str]) -> str:
    return strings[int(masked.strip('"'))] if masked else ""


def _inside(text: str) -> str:
    return text[1:-1]


def _until(text: str, end: str) -> str:
    depth = 0
    for index, character in enumerate(text):
        if depth == 0 and character == end:
            return text[:index]
        depth += (character in "<[{(") - (character in ">]})")
    return text


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
    found = _SOURCE_CHIP.findall(_COMMENT.sub(b"", content))
    return tuple(dict.fromkeys(name.decode() for name in found))


def libraries_in_source(content: bytes) -> tuple[str, ...]:
    """Return the libraries that a program, as text, attaches to its modules."""
    lists = _SOURCE_LINK.findall(_COMMENT.sub(b"", content))
    found = [name for names in lists for name in _SOURCE_STRING.findall(names)]
    return tuple(dict.fromkeys(name.decode(errors="surrogateescape") for name in found))
