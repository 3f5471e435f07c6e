"""Find, probe and choose installed LLVM releases."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, partial
from pathlib import Path

from msgspec import Struct

from mlir_offload.toolchain.errors import CompatibilityError, ToolchainError
from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.tool import (
    LlvmTable,
    ProbedVersion,
    Role,
    ToolchainRequest,
    ToolVersion,
    is_program,
    load_llvm_table,
    paths_like,
    probe_version,
)

LLVM_VERSION = pattern(r"\bversion |\bLLD ")
"""The text before the version in the output of `--version`."""
_SPELLED = pattern(r"(?:\bversion |\bLLD )(\d[\w.+-]*)")
_RELEASE = pattern(r"\d+(?:\.\d+)+")
_ENABLED = pattern(r"^LLVM_ENABLE_PROJECTS:\w+=(.*)$", re.MULTILINE)
_PREFIX_MAJOR = pattern(r"llvm-?(\d+)")
_OMP_MAJOR = pattern(r"libomptarget\.so\.(\d+)")
_BUILD_ROLES = (Role.LOWER, Role.LINK)


class LlvmInstallation(Struct, frozen=True):
    """Files with names of LLVM programs in one directory, found without starting a program.

    `tools` are paths as text, because most installations are never probed. `expected_major` is the major
    release that the paths suggest. It determines only the order of probing.
    """

    prefix: Path
    tools: tuple[tuple[str, str], ...]
    source: str
    expected_major: int | None = None

    def path(self, name: str) -> Path | None:
        """Return the path of a program, None if it is missing."""
        found = dict(self.tools).get(name)
        return None if found is None else Path(found)


class UnusableLlvm(Struct, frozen=True):
    """An installation whose release could not be determined."""

    installation: LlvmInstallation
    reason: str


class LlvmToolchain(Struct, frozen=True):
    """One LLVM release and its programs.

    `libomptarget` is the library to link, None if it is not installed.
    """

    prefix: Path
    version: ToolVersion
    tools: tuple[tuple[str, Path], ...]
    libomptarget: Path | None = None
    source: str = ""

    @property
    def library(self) -> Path | None:
        """Return the library with LLVM's C API, None if the release is too old or statically linked."""
        return find_llvm_library(self.prefix, self.version.major)

    def tool(self, name: str) -> Path:
        """Return the path of a program. Raises ToolchainError, with the package to install, if it is missing."""
        path = dict(self.tools).get(name)
        if path is not None:
            return path
        present = self.prefix / "bin" / name
        if present.exists():
            msg = f"{present} is not executable"
            raise ToolchainError(msg, hint=f"chmod +x {present}")
        msg = f"LLVM {self.version} in {self.prefix} has no {name}"
        raise ToolchainError(msg, hint=self.hint_for(name))

    def hint_for(self, name: str) -> str:
        """Return the installation hint for a missing program."""
        hint = missing_hint(self.prefix, self.version, (name,))
        return f"install it: {hint}" if hint.startswith("apt") else hint

    @property
    def spelled(self) -> str:
        """Return the version as the tools print it: `24.0.0git`."""
        match = _SPELLED.search(self.version.text)
        return match[1] if match else str(self.version)

    @property
    def is_measured(self) -> bool:
        """Return whether the tables describe this build: a measured release, not a fork or development build."""
        version, table = self.version, load_llvm_table()
        is_release = _RELEASE.fullmatch(self.spelled) is not None and not table.is_early(version)
        is_own = not any(vendor in version.text for vendor in table.vendors)
        return is_release and is_own and version.major in table.measured

    def has(self, name: str) -> bool:
        """Return whether the installation contains the program."""
        return name in dict(self.tools)

    def missing(self, role: Role) -> tuple[str, ...]:
        """Return the missing programs that the role requires."""
        needed = load_llvm_table().needed(role, self.version.major)
        return tuple(row.name for row in needed if not self.has(row.name))

    def is_supported(self, role: Role) -> bool:
        """Return whether the release is new enough for the role."""
        return self.version.major >= load_llvm_table().oldest_release(role)

    def can(self, role: Role) -> bool:
        """Return whether the release is new enough for the role and has its programs."""
        return self.is_supported(role) and not self.missing(role)

    @property
    def can_lower(self) -> bool:
        """Return whether the installation can lower MLIR."""
        return self.can(Role.LOWER)

    @property
    def is_complete(self) -> bool:
        """Return whether the installation can both lower and link."""
        return all(self.can(role) for role in _BUILD_ROLES)


ProbeLlvm = Callable[[LlvmInstallation], LlvmToolchain | UnusableLlvm]


def inspect_llvm(
    bin_folder: Path, *, suffix: str = "", source: str = "", fills_up: bool = False
) -> LlvmInstallation | None:
    """Return the LLVM programs in a directory, None if there are none.

    Only programs with the suffix (such as `-22`) are used. With `fills_up`, programs without it are
    used if the one with the suffix is missing.
    """
    try:
        present = set(os.listdir(bin_folder))  # noqa: PTH208 (one call instead of one for each program)
    except OSError:
        return None
    spelled = {row.name: f"{row.name}{suffix}" for row in load_llvm_table().tools}
    if fills_up:
        spelled = {name: file if file in present else name for name, file in spelled.items()}
    files = {name: f"{bin_folder}/{file}" for name, file in spelled.items() if file in present}
    # In `<prefix>/share`, for example, `clang` is a directory.
    tools = tuple((name, path) for name, path in files.items() if not os.path.isdir(path))  # noqa: PTH112
    if not any(name in dict(tools) for name in load_llvm_table().anchors):
        return None
    prefix = bin_folder.parent
    expected = int(suffix[1:]) if suffix else _expected_major(prefix)
    return LlvmInstallation(prefix, tools, source, expected)


def _expected_major(prefix: Path) -> int | None:
    """Return the major release from clang's resource directory, otherwise from the name of the prefix."""
    resources = prefix / "lib" / "clang"
    names = [path.name for path in resources.iterdir()] if resources.is_dir() else []
    majors = {int(name.split(".")[0]) for name in names if name.split(".")[0].isdecimal()}
    if majors:
        return majors.pop() if len(majors) == 1 else None
    match = _PREFIX_MAJOR.fullmatch(prefix.name)
    return int(match.group(1)) if match else None


def probe_llvm(runner: Runner, installation: LlvmInstallation) -> LlvmToolchain | UnusableLlvm:
    """Query one program for its release. If a directory may mix releases, query a second program.

    Does not raise if a program fails.
    """
    table = load_llvm_table()
    anchors = [path for name in table.anchors if (path := installation.path(name))]
    if _is_versioned(installation):
        anchors = anchors[:1]
    versions = []
    for path in anchors:
        probed = probe_version(runner, path, LLVM_VERSION)
        if probed.version is None:
            return UnusableLlvm(installation, probed.reason)
        versions.append(probed.version)
    if problem := _version_problem(table, versions):
        return UnusableLlvm(installation, problem)
    return LlvmToolchain(
        prefix=installation.prefix,
        version=versions[0],
        tools=tuple((name, Path(file)) for name, file in installation.tools if is_program(file)),
        libomptarget=_find_libomptarget(
            installation.prefix, versions[0].major, table.omp_directories
        ),
        source=installation.source,
    )


def probe_every_tool(
    runner: Runner, installation: LlvmInstallation
) -> tuple[tuple[str, ProbedVersion], ...]:
    """Query each program of a role that supports `--version` for its version."""
    table = load_llvm_table()
    names = [row.name for row in table.tools if row.role is not None and row.answers_version]
    present = [(name, path) for name in names if (path := installation.path(name))]
    return tuple((name, probe_version(runner, path, LLVM_VERSION)) for name, path in present)


def _is_versioned(installation: LlvmInstallation) -> bool:
    """Return whether the directory belongs to one release, such as /usr/lib/llvm-22."""
    return _PREFIX_MAJOR.fullmatch(installation.prefix.name) is not None


def _version_problem(table: LlvmTable, versions: Sequence[ToolVersion]) -> str:
    for version in versions:
        if any(fork in version.text for fork in table.forks):
            return f"'{version.text}' is a fork, whose numbers are not those of LLVM releases"
    if len({version.major for version in versions}) > 1:
        named = zip(table.anchors, versions, strict=False)
        found = ", ".join(f"{name} {version}" for name, version in named)
        return f"programs of two releases: {found}"
    return ""


def _find_libomptarget(prefix: Path, major: int, directories: Sequence[str]) -> Path | None:
    """Return libomptarget of this release. Without the -dev package only the versioned name exists."""
    for directory in directories:
        for path in sorted(paths_like(prefix / directory, "libomptarget.so*"), reverse=True):
            match = _OMP_MAJOR.match(path.resolve().name)
            if match is None or int(match[1]) == major:
                return path
    return None


@cache
def find_llvm_library(prefix: Path, major: int) -> Path | None:
    """Return libLLVM of this release, below the prefix or, for a system prefix, in a system directory."""
    table = load_llvm_table()
    if major < table.library_since:
        return None
    for directory in table.library_directories_of(prefix):
        found = sorted(paths_like(prefix / directory, f"libLLVM.so.{major}.*"))
        if found:
            return found[-1]
    return None


def missing_hint(prefix: Path, version: ToolVersion, names: Collection[str]) -> str:
    """Return an installation hint for missing programs: their packages, or the CMake call that builds them."""
    table = load_llvm_table()
    projects = sorted({table.project(name) for name in names} - {""})
    enabled = _enabled_projects(prefix)
    if enabled is not None:
        absent = [project for project in projects if project not in enabled]
        if not absent:
            return f"build it: cmake --build {prefix} --target {' '.join(names)}"
        listed = ";".join((*enabled, *absent))
        return f'build it: cmake -DLLVM_ENABLE_PROJECTS="{listed}" {prefix}, and build again'
    packaged = _PREFIX_MAJOR.fullmatch(prefix.name)
    if packaged is None or int(packaged[1]) != version.major:
        listed = f' with -DLLVM_ENABLE_PROJECTS="{";".join(projects)}"' if projects else ""
        return f"build LLVM {version.major}{listed}, and install it into {prefix}"
    packages = dict.fromkeys(table.tool(name).package(version.major) for name in names)
    return f"apt install {' '.join(packages)}"


def _enabled_projects(prefix: Path) -> tuple[str, ...] | None:
    """Return the enabled projects of an LLVM build tree, None if the prefix is not a build tree."""
    try:
        text = (prefix / "CMakeCache.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = _ENABLED.search(text)
    return tuple(filter(None, match[1].split(";"))) if match else ()


def choose_llvm(
    found: Sequence[LlvmInstallation],
    request: ToolchainRequest | None,
    probe: ProbeLlvm,
    *,
    roles: Collection[Role] = _BUILD_ROLES,
) -> LlvmToolchain:
    """Return the newest release that supports the roles. An explicit request has no alternatives.

    Probes only as many installations as necessary. Raises ToolchainError, with the missing programs
    and their package, if there is none, CompatibilityError if the requested release is too old.
    """
    seen: list[LlvmToolchain | UnusableLlvm] = []
    best: LlvmToolchain | None = None
    for installation in _in_probing_order(found, request):
        if best is not None and (
            request is not None or best.version.major >= _promised_major(installation)
        ):
            continue
        probed = probe(installation)
        seen.append(probed)
        if isinstance(probed, UnusableLlvm) or (
            request and not request.is_satisfied_by(probed.version)
        ):
            continue
        if all(probed.can(role) for role in roles) and (
            best is None or best.version < probed.version
        ):
            best = probed
    if best is None:
        raise _nothing_fits(seen, request, roles)
    return best


def _in_probing_order(
    found: Sequence[LlvmInstallation], request: ToolchainRequest | None
) -> Iterator[LlvmInstallation]:
    """Yield the installations of the requested major release first, then newest first."""
    wanted = request.major if request else None

    def rank(installation: LlvmInstallation) -> tuple[bool, int]:
        meets = wanted is not None and installation.expected_major == wanted
        return meets, _promised_major(installation)

    yield from sorted(found, key=rank, reverse=True)


def _promised_major(installation: LlvmInstallation) -> int:
    """Return the expected major release. If it is unknown, the installation may be the newest."""
    return sys.maxsize if installation.expected_major is None else installation.expected_major


def _nothing_fits(
    seen: Sequence[LlvmToolchain | UnusableLlvm],
    request: ToolchainRequest | None,
    roles: Collection[Role],
) -> ToolchainError | CompatibilityError:
    table = load_llvm_table()
    known = [
        t
        for t in seen
        if isinstance(t, LlvmToolchain) and (request is None or request.is_satisfied_by(t.version))
    ]
    if known:
        return _lacking(max(known, key=lambda toolchain: toolchain.version), request, roles)
    major = (request.major if request else None) or table.recommended
    install = f"apt install {' '.join(table.packages(major))}"
    where = (
        f"{request.source}: no LLVM installation there" if request else "no LLVM installation found"
    )
    if request and request.major:
        where = f"{request.source}: LLVM {request.value} is not installed"
    reasons = "".join(f"; {u.reason}" for u in seen if isinstance(u, UnusableLlvm))
    hint = _unbuilt_hint(request.path, roles) if request and not request.is_release else ""
    hint = hint or f"{install}, or name a prefix with --llvm="
    return ToolchainError(f"{where}{reasons}", hint=hint)


def _unbuilt_hint(path: Path, roles: Collection[Role]) -> str:
    """Return a build hint for a source tree of LLVM, or for a build tree without programs; "" for other paths."""
    table = load_llvm_table()
    names = [row.name for role in roles for row in table.needed(role, table.recommended)]
    enabled = _enabled_projects(path)
    if enabled is not None:
        absent = {table.project(name) for name in names} - {"", *enabled}
        listed = ";".join((*enabled, *sorted(absent)))
        before = f'cmake -DLLVM_ENABLE_PROJECTS="{listed}" {path} && ' if absent else ""
        return f"build it: {before}cmake --build {path} --target {' '.join(names)}"
    builds = sorted(cache.parent for cache in path.glob("*/CMakeCache.txt"))
    if builds:
        return f"name the build directory: --llvm={builds[0]}"
    return f"{path} is the source; name a build directory" if (path / "llvm").is_dir() else ""


def _lacking(
    toolchain: LlvmToolchain, request: ToolchainRequest | None, roles: Collection[Role]
) -> ToolchainError | CompatibilityError:
    """Return the error for an installed release that does not support every role."""
    table = load_llvm_table()
    name = f"LLVM {toolchain.version} in {toolchain.prefix}"
    prefix = f"{request.source}: " if request else ""
    for role in roles:
        if not toolchain.is_supported(role):
            oldest = table.oldest_release(role)
            msg = f"{prefix}{name} is too old to {role}: releases from {oldest} on can"
            hint = f"apt install {' '.join(table.packages(table.recommended))}"
            return CompatibilityError(msg, hint=hint)
    missing = [tool for role in roles for tool in toolchain.missing(role)]
    msg = f"{prefix}{name} has no {' and no '.join(missing)}"
    hint = missing_hint(toolchain.prefix, toolchain.version, missing)
    if toolchain.can(Role.LOWER):
        hint += "; or link with another release (--for-clang=), or on another machine (mlir-offload bundle)"
    return ToolchainError(msg, hint=hint)


def llvm_probe(runner: Runner) -> ProbeLlvm:
    """Return a probe that runs the real programs."""
    return partial(probe_llvm, runner)
