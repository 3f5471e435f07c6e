"""Query programs for their versions, parse toolchain requests, and load the table of LLVM's programs."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache, total_ordering
from pathlib import Path
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.errors import ToolchainError, ToolFailedError
from mlir_offload.toolchain.pattern import compiled, pattern
from mlir_offload.toolchain.process import Command, Runner, describe_status
from mlir_offload.toolchain.tables import load_table

_RELEASE = pattern(r"\d+(\.\d+){0,2}")
_NUMBER = pattern(r"(\d+)\.(\d+)(?:\.(\d+))?")


@total_ordering
class ToolVersion(Struct, frozen=True, eq=False):
    """A release number. `text` is the text that it was parsed from; comparisons ignore it."""

    major: int
    minor: int
    patch: int = 0
    text: str = ""

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Return the parts of the number."""
        return self.major, self.minor, self.patch

    def __eq__(self, other: object) -> bool:
        """Compare the numbers."""
        return isinstance(other, ToolVersion) and self.numbers == other.numbers

    def __lt__(self, other: ToolVersion) -> bool:
        """Compare the numbers."""
        return self.numbers < other.numbers

    def __hash__(self) -> int:
        """Hash the number."""
        return hash(self.numbers)

    def __str__(self) -> str:
        """Return the dotted number."""
        return f"{self.major}.{self.minor}.{self.patch}"


def parse_version(text: str) -> ToolVersion | None:
    """Return the first dotted number in `text`, None if there is none."""
    match = _NUMBER.search(text)
    if match is None:
        return None
    major, minor, patch = match.groups()
    return ToolVersion(int(major), int(minor), int(patch or 0), text.strip())


# A program that does not print its version within this time hangs, even on a busy host.
PROBE_LIMIT_S = 60.0


class ProbedVersion(Struct, frozen=True):
    """The result of `--version`: a version, or None with the reason."""

    version: ToolVersion | None
    reason: str = ""


_WILD = frozenset("*?[")
_WILDCARDS = {r"\*": ".*", r"\?": ".", r"\[": "[", r"\]": "]", r"\-": "-"}


def is_program(path: Path | str) -> bool:
    """Return whether the path is a file that this user can execute."""
    # Path.is_file raises an error if the directory is not accessible.
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113


def paths_like(folder: Path, form: str) -> list[Path]:
    """Return the results of `Path.glob` in a directory, with cached patterns."""
    found = [str(folder).rstrip("/")]
    for part in form.split("/"):
        if _WILD.isdisjoint(part):
            found = [f"{above}/{part}" for above in found]
            continue
        spelled = re.escape(part)
        for escaped, meant in _WILDCARDS.items():
            spelled = spelled.replace(escaped, meant)
        is_like = compiled(spelled).fullmatch
        found = [f"{above}/{name}" for above in found for name in _names(above) if is_like(name)]
    return [Path(path) for path in found if os.path.lexists(path)]


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 (names are enough)
    except OSError:
        return []


def probe_version(runner: Runner, program: Path, pattern: re.Pattern[str]) -> ProbedVersion:
    """Query a program for its version. Does not raise if the program fails.

    The version is in the first line that `pattern` matches, after the match.
    """
    try:
        completed = runner.run(Command((str(program), "--version"), limit_s=PROBE_LIMIT_S))
    except (ToolchainError, ToolFailedError) as error:
        return ProbedVersion(None, error.message)
    if completed.returncode != 0:
        status = describe_status(completed.returncode)
        return ProbedVersion(None, f"'{program} --version' ended with {status}")
    for line in completed.stdout.splitlines():
        match = pattern.search(line)
        version = parse_version(line[match.end() :]) if match else None
        if version is not None:
            return ProbedVersion(
                ToolVersion(version.major, version.minor, version.patch, line.strip())
            )
    return ProbedVersion(None, f"'{program} --version' printed no version")


class ToolchainRequest(Struct, frozen=True):
    """A requested toolchain, and the option or variable: `--llvm=22`, `CUDA_PATH=/opt/cuda`."""

    value: str
    source: str

    @property
    def is_release(self) -> bool:
        """Return whether the value is a release number, not a path."""
        return _RELEASE.fullmatch(self.value) is not None

    @property
    def path(self) -> Path:
        """Return the value as a path."""
        return Path(self.value).expanduser()

    @property
    def major(self) -> int | None:
        """Return the requested major release, None if the value is a path."""
        return int(self.value.split(".")[0]) if self.is_release else None

    def is_satisfied_by(self, version: ToolVersion) -> bool:
        """Return whether the version is the requested release. Every version satisfies a path."""
        if not self.is_release:
            return True
        wanted = [int(part) for part in self.value.split(".")]
        return [version.major, version.minor, version.patch][: len(wanted)] == wanted


def first_request(*given: tuple[str, str]) -> ToolchainRequest | None:
    """Return a request for the first (name, value) with a nonempty value; its source is `name=value`."""
    for name, value in given:
        if value:
            return ToolchainRequest(value, f"{name}={value}")
    return None


class Role(StrEnum):
    """A use of an LLVM release."""

    LOWER = "lower"
    LINK = "link"
    CPU = "cpu"


class ToolRow(Struct, frozen=True):
    """A program of LLVM: its role (None: no step requires it) and its package."""

    name: str
    package_template: str
    role: Role | None = None
    since: int = 0
    answers_version: bool = True
    is_optional: bool = False

    def package(self, major: int) -> str:
        """Return the Debian package of a release that contains the program."""
        return self.package_template.format(major=major)


class LlvmTable(Struct, frozen=True):
    """The search paths, programs and packages of LLVM. `measured` are the releases that the tables contain."""

    places: tuple[str, ...]
    anchors: tuple[str, ...]
    recommended: int
    forks: tuple[str, ...]
    vendors: tuple[str, ...]
    projects: tuple[tuple[str, str], ...]
    measured: tuple[int, ...]
    zero_is_early_since: int
    oldest: tuple[tuple[Role, int], ...]
    tools: tuple[ToolRow, ...]
    omp_directories: tuple[str, ...]
    omp_packages: tuple[tuple[int, str], ...]
    library_directories: tuple[str, ...]
    system_prefixes: tuple[str, ...]
    system_directories: tuple[str, ...]
    library_since: int
    library_package: str

    def is_early(self, version: ToolVersion) -> bool:
        """Return whether a version is that of a development build."""
        return version.major >= self.zero_is_early_since and version.minor == 0

    def oldest_release(self, role: Role) -> int:
        """Return the oldest release that supports the role."""
        return dict(self.oldest)[role]

    def tool(self, name: str) -> ToolRow:
        """Return the row of a program. Raises ValueError if the table does not contain it."""
        for row in self.tools:
            if row.name == name:
                return row
        msg = f"llvm_tools: no row for the program {name!r}"
        raise ValueError(msg)

    def project(self, name: str) -> str:
        """Return the LLVM project that contains a program, an empty string for LLVM itself."""
        return dict(self.projects).get(name, "")

    def serving(self, role: Role, major: int) -> Iterator[ToolRow]:
        """Yield the programs that the role uses in a release, including optional ones."""
        for row in self.tools:
            if row.role is role and row.since <= major:
                yield row

    def needed(self, role: Role, major: int) -> Iterator[ToolRow]:
        """Yield the programs that the role requires in a release."""
        return (row for row in self.serving(role, major) if not row.is_optional)

    def libomptarget_package(self, major: int) -> str:
        """Return the Debian package with libomptarget of a release, an empty string if there is none."""
        templates = [template for since, template in self.omp_packages if since <= major]
        return templates[-1].format(major=major) if templates else ""

    def library_directories_of(self, prefix: Path) -> tuple[str, ...]:
        """Return the directories of libLLVM for a prefix; system directories only for system prefixes."""
        is_of_system = any(fnmatchcase(str(prefix), one) for one in self.system_prefixes)
        return (*self.library_directories, *(self.system_directories if is_of_system else ()))

    def library_package_of(self, major: int) -> str:
        """Return the Debian package with LLVM's C API, an empty string if the release is too old."""
        is_known = major >= self.library_since
        return self.library_package.format(major=major) if is_known else ""

    def packages(self, major: int, roles: Collection[Role] = tuple(Role)) -> tuple[str, ...]:
        """Return the Debian packages for the roles, without duplicates."""
        rows = [row for role in roles for row in self.serving(role, major)]
        return tuple(dict.fromkeys(row.package(major) for row in rows))


@cache
def load_llvm_table() -> LlvmTable:
    """Return the table that ships with the package."""
    return parse_llvm_table(load_table("mlir_offload.toolchain", "llvm_tools"))


def parse_llvm_table(table: Mapping[str, Any]) -> LlvmTable:
    """Parse and check the table. Raises ValueError with the name of an invalid row."""
    parsed = LlvmTable(
        places=_strings(table, "places"),
        anchors=_strings(table, "anchors"),
        recommended=int(table["recommended"]),
        forks=_strings(table, "forks"),
        vendors=_strings(table, "vendors"),
        projects=tuple(
            (str(name), str(project))
            for project, names in table["projects"].items()
            for name in names
        ),
        measured=tuple(map(int, table["roles"].get(Role.LINK, {}).get("checked", ()))),
        zero_is_early_since=int(table["zero_is_early_since"]),
        oldest=tuple((Role(name), int(row["since"])) for name, row in table["roles"].items()),
        tools=tuple(_tool_row(row) for row in table["tools"]),
        omp_directories=_strings(table["libomptarget"], "directories"),
        omp_packages=tuple(
            (int(r["since"]), str(r["package"])) for r in table["libomptarget"]["packages"]
        ),
        library_directories=_strings(table["libllvm"], "directories"),
        system_prefixes=_strings(table["libllvm"], "system_prefixes"),
        system_directories=_strings(table["libllvm"], "system_directories"),
        library_since=int(table["libllvm"]["since"]),
        library_package=str(table["libllvm"]["package"]),
    )
    _check(parsed)
    return parsed


def _strings(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = table.get(key)
    if not isinstance(values, list) or not values or not all(isinstance(v, str) for v in values):
        msg = f"llvm_tools: {key} must be a list of strings"
        raise ValueError(msg)
    return tuple(values)


def _tool_row(row: Mapping[str, Any]) -> ToolRow:
    unknown = set(row) - {"name", "role", "since", "package", "answers_version", "optional"}
    if unknown or "{major}" not in row.get("package", ""):
        msg = f"llvm_tools: tool {row.get('name')!r}: needs a package with {{major}}, has {sorted(row)}"
        raise ValueError(msg)
    role = Role(row["role"]) if "role" in row else None
    return ToolRow(
        name=str(row["name"]),
        package_template=str(row["package"]),
        role=role,
        since=int(row.get("since", 0)),
        answers_version=bool(row.get("answers_version", True)),
        is_optional=bool(row.get("optional", False)),
    )


def _check(table: LlvmTable) -> None:
    names = [row.name for row in table.tools]
    problems = [f"tool {name!r} twice" for name in set(names) if names.count(name) > 1]
    problems += [f"anchor {name!r} is not a tool" for name in table.anchors if name not in names]
    problems += [f"project of {name!r}: no tool" for name, _ in table.projects if name not in names]
    problems += [f"role {role} has no row" for role in Role if role not in dict(table.oldest)]
    problems += [
        f"role {role} has no tool" for role in Role if not any(t.role is role for t in table.tools)
    ]
    if list(table.omp_packages) != sorted(table.omp_packages):
        problems.append("libomptarget packages are not in the order of releases")
    if any(since > table.recommended for _, since in table.oldest):
        problems.append(f"the recommended release {table.recommended} cannot play every role")
    if problems:
        msg = f"llvm_tools: {'; '.join(sorted(problems))}"
        raise ValueError(msg)
