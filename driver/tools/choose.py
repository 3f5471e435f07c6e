"""Choose the tools and targets of a build, and the tools that are loaded into fork servers."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.option import command_line
from mlir_offload.driver.option.command_line import MLIR_SUFFIXES, CompileOptions
from mlir_offload.driver.system import jobserver
from mlir_offload.driver.system.parallel import JobSlots
from mlir_offload.driver.system.workspace import replace_bytes, user_cache
from mlir_offload.driver.tools.releases import (
    BUILD_ROLES,
    Releases,
    choose_releases,
    kinds_of,
    learn_given,
    learn_llvm,
)
from mlir_offload.toolchain import cuda, fork_server, gpu, rocm, search
from mlir_offload.toolchain.byte_view import sha256
from mlir_offload.toolchain.errors import MlirOffloadError, ToolchainError, UsageError
from mlir_offload.toolchain.llvm import LlvmToolchain, choose_llvm, llvm_probe
from mlir_offload.toolchain.process import Command, Runner
from mlir_offload.toolchain.search import SearchPlaces, find_cuda, find_llvm, search_places
from mlir_offload.toolchain.tables import LEARNED
from mlir_offload.toolchain.target import HOST, Target, parse_offload_arch, uses_cuda, uses_rocm
from mlir_offload.toolchain.tool import Role

if TYPE_CHECKING:
    from mlir_offload.toolchain.cuda import CudaToolkit
    from mlir_offload.toolchain.process import ProcessRunner
    from mlir_offload.toolchain.rocm import RocmInstallation

_FORK_FLAGS = ("-O1", "-std=c11", "-w", "-shared", "-fPIC")
# Names the file for what a program counts, and is read when it is loaded: forks would write one file.
_PROFILE = "LLVM_PROFILE_FILE"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_NATIVE = "native"
NO_CUDA = "none"
"""The value of `--cuda-path=` and CUDA_PATH for no toolkit."""
# The end of the year 9999, clang's limit.
_LAST_SECOND = 253402300799
# Variables of the driver and of clang.
_DECIDING = (
    "CCC_OVERRIDE_OPTIONS",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "C_INCLUDE_PATH",
    "LIBRARY_PATH",
    "MLIR_OFFLOAD_FOR_CLANG",
    LEARNED,
    "MLIR_OFFLOAD_LLVM",
    "ROCM_PATH",
    "SOURCE_DATE_EPOCH",
)


def places_for(
    llvm: str = "", cuda_path: str = "", rocm_path: str = "", *, for_clang: str = ""
) -> SearchPlaces:
    """Return the search paths: options first, then the environment, which only this function reads."""
    return search_places(
        os.environ,
        sys.path,
        llvm=llvm,
        for_clang=for_clang,
        cuda_path=cuda_path,
        rocm_path=rocm_path,
    )


def places_of(options: CompileOptions) -> SearchPlaces:
    """Return the search paths for a command line."""
    consumer = "" if options.is_for_any_clang else options.for_clang
    return places_for(options.llvm, options.cuda_path, options.rocm_path, for_clang=consumer)


def choose_source_time() -> int:
    """Return the timestamp to write in outputs: SOURCE_DATE_EPOCH in seconds, by default 1.

    Raises UsageError for an invalid value.
    """
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return 1
    if not (text.isascii() and text.isdecimal() and int(text) <= _LAST_SECOND):
        msg = f"SOURCE_DATE_EPOCH is '{text}': not a number of seconds since 1970"
        raise UsageError(msg, hint="set it to what 'git log -1 --format=%ct' prints, for example")
    return int(text)


def build_environment() -> tuple[tuple[str, str], ...]:
    """Return the variables that are set and affect outputs, with their values, sorted by name."""
    return tuple((name, os.environ[name]) for name in _DECIDING if name in os.environ)


def choose_slots(options: CompileOptions) -> JobSlots:
    """Return the slots for concurrent programs. Must be called before a file is opened.

    If a jobserver is announced but not reachable, there is one slot: the implicit one of this process.
    """
    if "MAKEFLAGS" not in os.environ:
        return JobSlots(options.jobs)
    found = jobserver.find_jobserver(os.environ)
    is_lost = found.is_announced and found.server is None
    return JobSlots(1 if is_lost else options.jobs, found.server)


def choose_release(options: CompileOptions, places: SearchPlaces, runner: Runner) -> LlvmToolchain:
    """Return the LLVM release that links, and lowers if an input is MLIR.

    Raises ToolchainError that names what is missing and the package to install.
    """
    roles = {Role.LINK}
    if any(path.suffix in MLIR_SUFFIXES for path in options.inputs):
        roles.add(Role.LOWER)
    ordered = [role for role in (Role.LOWER, Role.LINK) if role in roles]
    llvm = choose_llvm(find_llvm(places), places.llvm, llvm_probe(runner), roles=ordered)
    learn_given(os.environ)
    learn_llvm(llvm, kinds_of(options.offload_archs), runner, lowers=Role.LOWER in roles)
    return llvm


def choose_toolkit(places: SearchPlaces, runner: Runner) -> CudaToolkit:
    """Return the CUDA toolkit. Raises ToolchainError with a hint if it is missing or incomplete."""
    try:
        return cuda.choose_cuda(find_cuda(places), places.cuda, cuda.cuda_probe(runner))
    except ToolchainError as error:
        error.hint += "; or compile for the CPU with --offload-arch=host"
        raise


def choose_toolkit_for(
    options: CompileOptions, places: SearchPlaces, runner: Runner, *, needed: bool
) -> CudaToolkit | None:
    """Return the CUDA toolkit; None if there is none and the build can emit bitcode without it."""
    if not needed:
        return None
    if places.cuda is not None and places.cuda.value == NO_CUDA:
        if options.needs_ptxas:
            msg = f"{places.cuda.source}: assembling code for NVIDIA GPUs needs a CUDA toolkit"
            hint = "make bitcode, with -emit-llvm or -c --device-code=bitcode, or name a toolkit"
            raise ToolchainError(msg, hint=hint)
        return None
    try:
        return choose_toolkit(places, runner)
    except ToolchainError:
        if places.cuda is not None or options.needs_ptxas:
            raise
        return None


def choose_rocm_for(places: SearchPlaces, *, needed: bool) -> RocmInstallation | None:
    """Return the ROCm installation; None if there is none, because not every program needs its libraries.

    Raises ToolchainError if the user named a directory without one.
    """
    if not needed:
        return None

    found = search.find_rocm(places)
    return rocm.choose_rocm(found, places.rocm) if found or places.rocm else None


def choose_targets(names: Sequence[str]) -> tuple[Target, ...]:
    """Return the targets of `--offload-arch=` values, by default the GPU of this host, or the CPU.

    A default is noted. Raises UsageError for an unknown architecture, ToolchainError for `native` without a
    GPU.
    """
    if not names:
        names = _default_archs()
    resolved: list[str] = []
    for name in names:
        resolved.extend(_native_archs() if name == _NATIVE else (name,))
    targets = {parse_offload_arch(name) for name in resolved}
    # Sorted, so that the order of options does not affect the output.
    return tuple(sorted(targets, key=lambda target: (target.kind, target.triple, target.arch)))


def _default_archs() -> tuple[str, ...]:
    gpus = _gpus()
    if gpus:
        show_note(f"compiling for the GPU of this machine (--offload-arch={','.join(gpus)})")
        return gpus
    show_note("no GPU found; compiling for the CPU (--offload-arch=host)")
    return (HOST,)


def _gpus() -> tuple[str, ...]:

    amd = gpu.probe_amd_gpus()
    return tuple(dict.fromkeys((*gpu.probe_gpus(), *(amd.archs if amd.is_open else ()))))


def _closed_amd_gpus() -> str:

    amd = gpu.probe_amd_gpus()
    return "" if amd.is_open else ", ".join(dict.fromkeys(amd.archs))


def _native_archs() -> tuple[str, ...]:
    gpus = _gpus()
    if not gpus:
        msg = "--offload-arch=native: this machine has no GPU that its driver can use"
        hint = "name the architecture (sm_90, gfx90a), or use --offload-arch=host"
        amd = _closed_amd_gpus()
        if amd:
            msg += f"; it has {amd}, but /dev/kfd cannot be opened"
            hint = f"become a member of the group of /dev/kfd (render); or {hint}"
        raise ToolchainError(msg, hint=hint)
    return gpus


def print_of_clang(asked: Sequence[str], others: Sequence[str], runner: ProcessRunner) -> int:
    """Let the clang that would compile print the answers to `asked`; return its exit status."""
    options = command_line.read_arguments(others)
    llvm = choose_release(options, places_of(options), runner)
    return runner.run_attached(Command((str(llvm.tool("clang")), *asked)))


class FoundTools(Struct, frozen=True):
    """The search paths, the tools found there, and the targets."""

    places: SearchPlaces
    releases: Releases
    targets: tuple[Target, ...]
    cuda: CudaToolkit | None = None
    rocm: RocmInstallation | None = None


def find_step_tools(options: CompileOptions, runner: Runner) -> FoundTools:
    """Find the tools for the targets of a step. Raises ToolchainError if one is missing."""
    places = places_of(options)
    releases = choose_releases(options, places, runner, roles=BUILD_ROLES)
    targets = tuple(parse_offload_arch(name) for name in options.offload_archs)
    kinds = {target.kind for target in targets}
    cuda = choose_toolkit_for(options, places, runner, needed=uses_cuda(kinds))
    rocm = choose_rocm_for(places, needed=uses_rocm(kinds))
    return FoundTools(places, releases, targets, cuda, rocm)


def load_tools_once(
    runner: ProcessRunner, releases: Releases, workspace: Path, *, is_dry: bool
) -> None:
    """Use fork servers for the tools that a compilation starts several times, if that is possible."""
    if runner.fork_servers is not None or _PROFILE in os.environ:
        return
    library = _fork_library(runner, releases.llvm, workspace, is_dry=is_dry)
    if library is not None:
        runner.fork_servers = fork_server.ForkServers(library, _entries(releases))


def _entries(releases: Releases) -> dict[str, tuple[str, int]]:
    """Return, for each tool, the program to load and the entry point of its forks."""
    mlir, llvm = dict(releases.mlir.tools), dict(releases.llvm.tools)
    tools = (mlir.get("mlir-opt"), llvm.get("clang"), mlir.get("mlir-translate"))
    opt, clang, translate = (
        tool if tool and fork_server.can_be_forked(tool) else None for tool in tools
    )
    entries = {str(tool): (str(tool), fork_server.PROGRAM) for tool in (opt, clang) if tool}
    # Only of one installation: two installations may be different builds of one release. A program that the
    # user names may have translations that libMLIR does not have.
    if opt and translate and opt.parent == translate.parent and releases.found is None:
        entries[str(translate)] = (str(opt), fork_server.MLIR_TRANSLATE)
    return entries


def _fork_library(
    runner: ProcessRunner, llvm: LlvmToolchain, workspace: Path, *, is_dry: bool
) -> Path | None:
    """Return the fork server library; the first invocation compiles it. None if that fails or is unsafe."""
    source = fork_server.SOURCE.read_bytes()
    kept = user_cache(os.environ) / "fork-server" / f"{sha256(source).hexdigest()[:32]}.so"
    if not fork_server.can_be_preloaded(kept):
        return None
    with suppress(OSError):
        return kept if _is_ours(kept.stat()) else None
    clang = dict(llvm.tools).get("clang")
    if is_dry or clang is None:
        return None
    try:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = workspace / kept.name
        argv = (str(clang), *_FORK_FLAGS, str(fork_server.SOURCE), "-o", str(made))
        if runner.run(Command(argv)).returncode != 0:
            return None
        replace_bytes(kept, made.read_bytes())
        made.unlink()
    except (OSError, MlirOffloadError):
        return None
    return kept


def _is_ours(status: os.stat_result) -> bool:
    """Return whether only this user can have written the file."""
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE
