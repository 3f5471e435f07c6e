"""Compare the version that a tool reports with the version that its output and behavior show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from mlir_offload.toolchain.errors import MlirOffloadError
from mlir_offload.toolchain.pattern import pattern

# The producer strings in LLVM bitcode, MLIR bytecode and files linked by lld: LLVM22.1.8,
# LLVM22.1.2-rust-1.95.0-stable, LLVM13.0.0git, APPLE_1_1500.1.0.2.5_0.
_SIGNATURE = pattern(r"(?:LLVM|MLIR|LLD) ?(\d{1,4})\.(\d+)(?:\.(\d+))?(.*)", re.DOTALL)
_DEVELOPMENT = ("git", "svn", "rc")


class Evidence(StrEnum):
    """The source of a fact."""

    MEASURED = "measured"
    SAID = "said by --version"
    NAMED = "by the name of the file"


class Severity(StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Fact(Struct, frozen=True):
    """A property of a tool or library."""

    name: str
    value: str
    evidence: Evidence = Evidence.MEASURED


class Trial(Struct, frozen=True):
    """The producer string of a program's output, and facts derived from the output."""

    signature: str = ""
    facts: tuple[Fact, ...] = ()


class ToolIdentity(Struct, frozen=True):
    """A program or library: the version that it reports, and the producer string that it writes.

    `group` is its installation, such as `LLVM in /usr/lib/llvm-22`. Unknown fields are empty;
    `problem` is the reason why the tool could not be queried.
    """

    group: str
    name: str
    path: Path | None
    said: str = ""
    written: str = ""
    facts: tuple[Fact, ...] = ()
    problem: str = ""


class ToolFinding(Struct, frozen=True):
    """A problem of an installed tool, with the ID of its rule."""

    rule: str
    severity: Severity
    message: str
    hint: str
    location: str = ""


class Signature(Struct, frozen=True):
    """The parsed producer string of a file.

    `vendor` is empty for LLVM itself. `major` is None if the version is not one of LLVM.
    """

    text: str
    major: int | None
    number: str
    vendor: str = ""
    is_development: bool = False


@lru_cache(maxsize=8)
def parse_signature(text: str) -> Signature:
    """Parse a producer string."""
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
    """Return the identity of a tool from a test run `use`. An error of the run becomes its problem."""
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
    """Yield a finding for each fact that differs from the expected value. Keys are tool and fact names."""
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
    """Return a finding for each tool and library that could not be identified."""
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
    """Return findings for programs that report a wrong version, and for an installation of mixed releases."""
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
