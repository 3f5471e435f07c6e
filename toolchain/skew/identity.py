"""What a tool says it is, what it turned out to be when it wrote or read, and where the two differ."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from mlir_offload.toolchain.errors import MlirOffloadError
from mlir_offload.toolchain.pattern import pattern

# How LLVM signs bitcode, MLIR its own, lld what it links: LLVM22.1.8, LLVM22.1.2-rust-1.95.0-stable,
# LLVM13.0.0git, APPLE_1_1500.1.0.2.5_0.
_SIGNATURE = pattern(r"(?:LLVM|MLIR|LLD) ?(\d{1,4})\.(\d+)(?:\.(\d+))?(.*)", re.DOTALL)
_DEVELOPMENT = ("git", "svn", "rc")


class Evidence(StrEnum):
    """How something is known."""

    MEASURED = "measured"
    SAID = "said by --version"
    NAMED = "by the name of the file"


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Fact(Struct, frozen=True):
    """Something that is known of a tool or library."""

    name: str
    value: str
    evidence: Evidence = Evidence.MEASURED


class Trial(Struct, frozen=True):
    """What a program signed its output with, and what else the output tells."""

    signature: str = ""
    facts: tuple[Fact, ...] = ()


class ToolIdentity(Struct, frozen=True):
    """A program or library: what it says it is, and what it signs when it writes.

    `group` is the installation that it belongs to, such as `LLVM in /usr/lib/llvm-22`; what cannot
    be known is empty, and `problem` says why it could not be asked.
    """

    group: str
    name: str
    path: Path | None
    said: str = ""
    written: str = ""
    facts: tuple[Fact, ...] = ()
    problem: str = ""


class ToolFinding(Struct, frozen=True):
    """Something wrong with what is installed; `rule` names the rule that it breaks."""

    rule: str
    severity: Severity
    message: str
    hint: str
    location: str = ""


class Signature(Struct, frozen=True):
    """Who wrote a file, by the string it is signed with.

    `vendor` is empty for LLVM itself; `major` is None where the numbers are not those of LLVM.
    """

    text: str
    major: int | None
    number: str
    vendor: str = ""
    is_development: bool = False


@lru_cache(maxsize=8)
def parse_signature(text: str) -> Signature:
    """Return what a producer string tells."""
    match = _SIGNATURE.fullmatch(text)
    if match is None:
        vendor = re.split(r"[_\d.]", text, maxsplit=1)[0]
        return Signature(text, None, "", vendor or text)
    major, minor, patch, rest = match.groups()
    suffix = rest.lstrip("-+ ")
    is_development = suffix.startswith(_DEVELOPMENT)
    vendor = "" if is_development else suffix
    return Signature(text, int(major), f"{major}.{minor}.{patch or 0}", vendor, is_development)


def identified(
    group: str, name: str, path: Path | None, said: str, use: Callable[[], Trial]
) -> ToolIdentity:
    """Return what a tool turns out to be when it is used; an error of the use is its problem."""
    used, problem = Trial(), ""
    try:
        used = use()
    except (MlirOffloadError, OSError, ValueError) as error:
        problem = str(error)
    return ToolIdentity(group, name, path, said, used.signature, used.facts, problem)


def fact_findings(
    identities: Iterable[ToolIdentity],
    expected: Mapping[tuple[str, str], str],
    release: str,
    hint: str,
) -> Iterator[ToolFinding]:
    """Yield where a tool differs from what its release is known for, by the names of tool and fact."""
    for identity in identities:
        for fact in identity.facts:
            right = expected.get((identity.name, fact.name))
            if right not in {None, fact.value}:
                yield ToolFinding(
                    "TOOL004",
                    Severity.ERROR,
                    f"{identity.name} {fact.name} {fact.value}, where {release} has {right}",
                    hint,
                    str(identity.path or ""),
                )


def problem_findings(identities: Iterable[ToolIdentity]) -> tuple[ToolFinding, ...]:
    """Return which tools and libraries could not be found out about."""
    return tuple(
        ToolFinding(
            "TOOL001",
            Severity.WARNING,
            f"cannot tell what {identity.name} is: {identity.problem}",
            "install it again, or leave it out of use",
            str(identity.path or ""),
        )
        for identity in identities
        if identity.problem
    )


def llvm_findings(identities: Sequence[ToolIdentity]) -> tuple[ToolFinding, ...]:
    """Return where programs of one LLVM installation are not what they say, or are of several."""
    return (*(f for identity in identities for f in _false_names(identity)), *_mixed(identities))


def _false_names(identity: ToolIdentity) -> Iterator[ToolFinding]:
    where = str(identity.path or "")
    signature = parse_signature(identity.written)
    if identity.said and signature.number and signature.number != identity.said:
        yield ToolFinding(
            "TOOL006",
            Severity.ERROR,
            f"{identity.name} says that it is {identity.said}, but writes {identity.written}",
            "a script in front of it or LD_LIBRARY_PATH gives it another release: call the real program",
            where,
        )
    if identity.written and (signature.vendor or signature.is_development):
        kind = "a development build" if signature.is_development else "a fork"
        yield ToolFinding(
            "TOOL002",
            Severity.WARNING,
            f"{identity.name} writes {identity.written}: {kind}, whose number tells no release",
            "judge it by what it was seen to read and write, or use a release of LLVM",
            where,
        )


def _mixed(identities: Iterable[ToolIdentity]) -> Iterator[ToolFinding]:
    majors: dict[int, str] = {}
    for identity in identities:
        major = parse_signature(identity.written).major
        if major is not None:
            majors.setdefault(major, f"{identity.name} ({identity.written})")
    if len(majors) > 1:
        yield ToolFinding(
            "TOOL003",
            Severity.ERROR,
            f"programs of several releases in one installation: {' and '.join(majors.values())}",
            "take all programs from one release",
        )
