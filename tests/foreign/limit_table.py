"""Render the table of reader limits as YAML; a value applies from its release to the next one listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# The record names are those of llvm/Bitcode/LLVMBitCodes.h.
NODES = {
    7: "DILocation", 12: "GenericDINode", 13: "DISubrange", 14: "DIEnumerator", 15: "DIBasicType",
    16: "DIFile", 17: "DIDerivedType", 18: "DICompositeType", 19: "DISubroutineType",
    20: "DICompileUnit", 21: "DISubprogram", 22: "DILexicalBlock", 23: "DILexicalBlockFile",
    24: "DINamespace", 25: "DITemplateTypeParameter", 26: "DITemplateValueParameter",
    27: "DIGlobalVariable", 28: "DILocalVariable", 30: "DIObjCProperty", 31: "DIImportedEntity",
    32: "DIModule", 33: "DIMacro", 34: "DIMacroFile", 37: "DIGlobalVariableExpression",
    40: "DILabel", 41: "DIStringType", 44: "DICommonBlock", 45: "DIGenericSubrange",
    46: "DIArgList", 47: "DIAssignID", 48: "DISubrangeType", 49: "DIFixedPointType",
}  # fmt: skip

_HEADER = """\
# The limits of LLVM's bitcode readers by release.
# tests/foreign/limits.py writes this file; do not edit it.
#
# A value applies from its release up to the next listed release. The reader of each release was tested with each
# value, in a module with one such record.
# source: opt and llvm-dis of Debian's packages, clang of the ziglang wheels
"""


@dataclass(frozen=True)
class Limits:
    """The limits of one reader; `attributes` are the supported forms of each attribute kind."""

    newest: Mapping[str, int]
    attributes: Mapping[int, tuple[int, ...]]
    operands: Mapping[int, int]
    conventions: Mapping[int, str]
    memory: Sequence[str]


def render(found: Mapping[int, Limits], names: Mapping[int, str]) -> str:
    """Return the table; `names` are those of attributes by their kind."""
    return "\n".join([_HEADER + f"releases: {list(found)}", *_lines(found, names)]) + "\n"


def _lines(found: Mapping[int, Limits], names: Mapping[int, str]) -> Iterator[str]:
    limits = dict(found)
    yield "\n# The highest number of each list."
    yield "newest:"
    for key in next(iter(limits.values())).newest:
        values = {release: one.newest[key] for release, one in limits.items()}
        yield f"  {key}: {_map(steps(values))}"
    yield "\n# The attribute kinds that not all releases accept, and the forms in which they do."
    yield "attributes:"
    for kind in sorted(set().union(*(one.attributes for one in limits.values()))):
        forms = steps(
            {release: list(one.attributes.get(kind, ())) for release, one in limits.items()}
        )
        if len(forms) > 1 or [] in forms.values():
            kept = {release: value for release, value in forms.items() if value}
            yield f"  - {{kind: {kind}, name: {names[kind]}, forms: {_map(kept)}}}"
    taken = set().union(*(one.attributes for one in limits.values()))
    yield "\n# The attribute kinds below the highest that no reader accepts."
    yield f"unread_attributes: {sorted(set(range(1, max(taken))) - taken)}"
    yield "\n# The highest number of operands of debug information nodes, if releases differ."
    yield "metadata_operands:"
    for code, name in NODES.items():
        most = {release: one.operands.get(code, 0) for release, one in limits.items()}
        if len(set(most.values()) - {0}) > 1:
            yield f"  - {{code: {code}, name: {name}, newest: {_map(_ascending(steps(most)))}}}"
    yield "\n# The locations of memory(...), in the order of their pairs of bits."
    yield "memory_locations:"
    places = steps({release: list(one.memory) for release, one in limits.items() if one.memory})
    yield from (f"  {release}: [{', '.join(words)}]" for release, words in places.items())
    yield "\n# The calling conventions that not all releases have. Textual IR of the others has `cc N`."
    yield "calling_conventions:"
    newest = limits[max(limits)].conventions
    for number, name in sorted(newest.items()):
        since = min(release for release, one in limits.items() if number in one.conventions)
        if since > min(limits):
            yield f'  - {{number: {number}, name: "{name}", since: {since}}}'


def steps(values: Mapping[int, Any]) -> dict[int, Any]:
    """Return the releases at which a value changes, with the new value."""
    found: dict[int, Any] = {}
    for release, value in sorted(values.items()):
        if not found or found[max(found)] != value:
            found[release] = value
    return found


def _ascending(values: dict[int, int]) -> dict[int, int]:
    return {release: value for release, value in values.items() if value}


def _map(values: Mapping[int, Any]) -> str:
    return "{" + ", ".join(f"{release}: {value}" for release, value in values.items()) + "}"
