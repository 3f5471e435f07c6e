"""The properties of a back end's output for a module that a user of a kernel could notice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

_COMMENT = re.compile(r"//.*|/\*.*?\*/")
_DEFINITION = re.compile(r"\.(entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)\s*\(([^)]*)\)([^{;]*)([{;])")
_DIRECTIVE = re.compile(r"\.(maxntid|reqntid|minnctapersm|maxnreg|\w*cluster\w*)\s*([\d, ]*)")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.([a-z]+)(\d+)\b[^,\[]*(\[\d*\])?")
_VARIABLE = re.compile(
    r"^\s*(?:\.(?:visible|extern|weak|common)\s+)?\.(global|const|shared)\b([^=;]*)(?:=([^;]*))?;",
    re.MULTILINE,
)
_EXTERN = re.compile(r"\.extern\s+\.func\s+(?:\([^)]*\)\s*)?([\w$.]+)")
# Operations whose number must not change, and those that an optimizer may change.
_PTX_FIXED = {
    "barrier": r"\b(?:bar|barrier)\.",
    "shuffle": r"\bshfl\.",
    "matrix": r"\b(?:mma|wmma|ldmatrix)\.",
    "order": r"\.(?:acquire|release|acq_rel)\b|\bfence\.|\bmembar\.",
    "volatile or atomic": r"\b(?:ld|st)\.(?:volatile|relaxed|acquire|release)",
}
_PTX_FREE = {
    "atomic": r"\b(?:atom|red)\.",
    "div": r"\bdiv\.",
    "sqrt": r"\bsqrt\.",
    "fma": r"\bfma\.",
}
_GCN_FIXED = {
    "barrier": r"\bs_barrier\b",
    "shuffle": r"\bds_(?:bpermute|permute|swizzle)|_dpp\b",
    "matrix": r"\bv_mfma",
}
_GCN_FREE = {"atomic": r"_atomic_", "sqrt": r"\bv_sqrt", "fma": r"\bv_(?:fma|fmac|mad)"}
_KERNEL_FACT = re.compile(
    r"^    \.(max_flat_workgroup_size|reqd_workgroup_size|name):\s*(.*(?:\n {6,}- .*)*)",
    re.MULTILINE,
)
_ARGUMENT = re.compile(r"\.size:\s*(\d+)\s+\.value_kind:\s+(?!hidden_)(\w+)")
_HIDDEN = re.compile(r"\.offset:\s*(\d+)\s+\.size:\s*\d+\s+\.value_kind:\s+hidden_(\w+)")
# An offset that a release leaves empty because no kernel reads it.
_NO_ARGUMENT = "none"
_GCN_CALLED = re.compile(r"\b([\w.$]+)@(?:gotpcrel32|rel32)@lo")
_CODE_OBJECT = re.compile(r"\.amdhsa_code_object_version (\d+)")
_METADATA_VERSION = re.compile(r"amdhsa\.version:\s+- 1\s+- (\d)")
_LABEL = re.compile(r"^([A-Za-z_$][\w.$]*):", re.MULTILINE)
_ELF_DATA = re.compile(r"^\s+\.(quad|xword|long|word|byte|asciz|ascii|zero)\s+(.*)", re.MULTILINE)
# Code object versions by metadata version; from 5 on the directive is used.
_METADATA_VERSIONS = {"0": "3", "1": "4", "2": "5"}


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Properties that must not change (`fixed`), and those that an optimizer may change (`free`).

    For AMD code objects also the version, and the `hidden` kernel arguments by offset.
    """

    fixed: Counter[str]
    free: Counter[str]
    code_object: str = ""
    hidden: Mapping[tuple[str, int], str] = field(default_factory=dict)

    def lost(self, other: Fingerprint) -> list[str]:
        """Return the properties that the other one lacks."""
        return sorted((self.fixed - other.fixed).elements())

    def changed(self, other: Fingerprint) -> list[str]:
        """Return the properties that only the other one has, and the free ones that differ."""
        free = (self.free - other.free) + (other.free - self.free)
        return sorted((other.fixed - self.fixed + free).elements())

    def hidden_conflict(self, other: Fingerprint) -> str:
        """Return a difference of hidden arguments; empty if there is none."""
        for (kernel, offset), name in self.hidden.items():
            found = other.hidden.get((kernel, offset), name)
            if found != name and _NO_ARGUMENT not in {found, name}:
                return f"hidden argument {found} in place of {name} at {offset} of {kernel}"
        return ""


def read_fingerprint(target: str, assembly: str) -> Fingerprint:
    """Return the fingerprint of the assembly for a target of the corpus."""
    if target == "nvptx":
        return _of_ptx(_COMMENT.sub("", assembly))
    if target == "amdgpu":
        return _of_gcn(assembly)
    return _of_data(assembly)


def _of_ptx(text: str) -> Fingerprint:
    found = Counter[str]()
    for word, name, parameters, directives, end in _DEFINITION.findall(text):
        if word == "entry" and end == "{":
            kinds = (f"{bits}{count}" for _, bits, count in _PARAMETER.findall(parameters))
            found[f"kernel {name}({', '.join(kinds)})"] += 1
            found.update(
                f".{key} {_extent(value)} of {name}"
                for key, value in _DIRECTIVE.findall(directives)
            )
    found.update(f"call of {name}" for name in _EXTERN.findall(text))
    for space, what, value in _VARIABLE.findall(text):
        if not what.split()[-1].startswith("__local_depot"):
            words = [word for word in what.split() if not word.startswith(".align")]
            initial = re.sub(r"(?:, 0)*\}", "}", " ".join((value or "").split()))
            found[f"variable .{space} {words[-1]} {initial}"] += 1
    target = re.search(r"^\.target (\S+?),?$", text, re.MULTILINE)
    found[f"target {target[1] if target else ''}"] += 1
    return Fingerprint(_counted(text, _PTX_FIXED) + found, _counted(text, _PTX_FREE))


def _extent(value: str) -> str:
    """Return the sizes without trailing ones, which may be omitted."""
    sizes = [int(size) for size in value.split(",") if size.strip()]
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return " ".join(map(str, sizes))


def _of_gcn(text: str) -> Fingerprint:
    found = Counter[str]()
    hidden: dict[tuple[str, int], str] = {}
    _, _, metadata = text.partition(".amdgpu_metadata")
    for kernel in re.split(r"^  - ", metadata, flags=re.MULTILINE)[1:]:
        facts = {
            key: " ".join(value.split()) for key, value in _KERNEL_FACT.findall("    " + kernel)
        }
        name = facts.pop("name", "")
        arguments = " ".join(f"{kind}:{size}" for size, kind in _ARGUMENT.findall(kernel))
        found[f"kernel {name}({arguments})"] += 1
        found.update(f"{key} {value} of {name}" for key, value in facts.items())
        hidden |= {(name, int(offset)): kind for offset, kind in _HIDDEN.findall(kernel)}
    labels = set(_LABEL.findall(text))
    found.update(f"call of {name}" for name in set(_GCN_CALLED.findall(text)) - labels)
    version = _CODE_OBJECT.search(text)
    old = _METADATA_VERSION.search(text)
    return Fingerprint(
        _counted(text, _GCN_FIXED) + found,
        _counted(text, _GCN_FREE),
        version[1] if version else _METADATA_VERSIONS.get(old[1], "") if old else "",
        hidden,
    )


def _of_data(text: str) -> Fingerprint:
    found = Counter(
        f"symbol {name}" for name in re.findall(r"^\s+\.globl\s+(\S+)", text, re.MULTILINE)
    )
    for section in re.split(r"^\s+\.section\s+", text, flags=re.MULTILINE):
        if not section.startswith((".debug", ".note", '".note', '".llvm', ".llvm", ".eh_frame")):
            found.update(
                f"data {kind} {value.split('#')[0].strip()}"
                for kind, value in _ELF_DATA.findall(section)
            )
    return Fingerprint(found, Counter())


def _counted(text: str, patterns: dict[str, str]) -> Counter[str]:
    counts = {name: len(re.findall(pattern, text)) for name, pattern in patterns.items()}
    return Counter({name: count for name, count in counts.items() if count})
