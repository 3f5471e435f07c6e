"""The identity of a toolchain: a short hash that changes if any of its parts changes."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.option.command_line import CompileOptions, read_arguments
from mlir_offload.driver.system.file_identity import content_identity
from mlir_offload.driver.system.processor import processor_identity
from mlir_offload.driver.system.tool_watch import FileIdentity, ToolWatch
from mlir_offload.driver.tools.choose import choose_rocm_for, choose_toolkit, places_of
from mlir_offload.driver.tools.llvm_files import identify_programs, llvm_files, own_memo
from mlir_offload.driver.tools.releases import BUILD_ROLES, Releases, choose_releases
from mlir_offload.toolchain.errors import (
    CompatibilityError,
    MlirOffloadError,
    ToolchainError,
    UsageError,
)
from mlir_offload.toolchain.process import Command, Completed, Runner
from mlir_offload.toolchain.tables import known_release
from mlir_offload.toolchain.target import Kind, uses_cuda, uses_processor, uses_rocm

if TYPE_CHECKING:
    from mlir_offload.toolchain.cuda import CudaToolkit
    from mlir_offload.toolchain.rocm import RocmInstallation

NATIVE = "native"
_DIGITS = 32
_CUDA_PARTS = ("ptxas", "nvlink", "fatbinary", "libdevice")
_BITCODE = "o[cl]*.bc"
_PACKAGES = ("driver", "offload", "toolchain", "translate")
_SOURCES = (".py", ".yaml", ".c", ".h")
_CLANG_VARIABLES = ("CCC_OVERRIDE_OPTIONS", "CPATH", "C_INCLUDE_PATH")
# Architectures whose code depends on the processor of the host that compiles.
_OF_THIS_MACHINE = frozenset({"host", NATIVE})


class ToolchainIdentity(Struct, frozen=True):
    """Everything that affects outputs: files of tools, sources of the driver, and variables."""

    files: tuple[FileIdentity, ...]

    def __str__(self) -> str:
        """Return the hash: 32 hexadecimal digits."""
        lines = "".join(f"{file.name} {file.content}\n" for file in self.files)
        return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]


@cache
def identify_for(
    kind: Kind | None,
    releases: Releases,
    cuda: CudaToolkit | None,
    rocm: RocmInstallation | None = None,
    march: str = NATIVE,
) -> ToolchainIdentity:
    """Return the identity of the tools for images of a kind, or for host code if None.

    CPU images are for the processor of this host, unless `march` names another one. Raises ToolchainError
    if a library of a tool is missing.
    """
    return identify_kinds(() if kind is None else (kind,), releases, cuda, rocm, march)


def identify_kinds(
    kinds: Collection[Kind],
    releases: Releases,
    cuda: CudaToolkit | None,
    rocm: RocmInstallation | None = None,
    march: str = NATIVE,
) -> ToolchainIdentity:
    """Return the identity of the tools for images of several kinds and host code. Raises ToolchainError."""
    return identify_toolchain(
        releases,
        cuda if uses_cuda(kinds) else None,
        rocm if uses_rocm(kinds) else None,
        with_processor=uses_processor(kinds) and march == NATIVE,
    )


def identify_toolchain(
    releases: Releases,
    cuda: CudaToolkit | None,
    rocm: RocmInstallation | None = None,
    *,
    with_processor: bool = False,
) -> ToolchainIdentity:
    """Return the identity of LLVM's tools, of CUDA and ROCm if given, and of this driver.

    `with_processor` adds the processor of this host. Raises ToolchainError if a library of a tool is
    missing.
    """
    files = [FileIdentity("mlir-offload", own_identity()), *_release_files(releases)]
    files.extend(_settings())
    if cuda is not None:
        files.extend(_cuda_files(cuda))
    if rocm is not None:
        files.extend(_rocm_files(rocm))
    if with_processor:
        files.append(FileIdentity("processor", processor_identity()))
    return ToolchainIdentity(tuple(files))


def _release_files(releases: Releases) -> Iterable[FileIdentity]:
    """Yield the programs of the linking LLVM, and of the lowering LLVM if it is another one."""
    yield from llvm_files(releases.llvm)
    if releases.is_one:
        return
    yield FileIdentity("linked by LLVM", str(releases.consumer))
    # Learned rows of an installed release depend only on its files and on the driver.
    release = None if releases.is_consumer_here else known_release(releases.consumer)
    if release is not None:
        rows = hashlib.sha256(release.row_text.encode()).hexdigest()
        yield FileIdentity("learned rows", f"sha256:{rows}")
    if releases.mlir != releases.llvm:
        for file in llvm_files(releases.mlir):
            yield replace(file, name=f"{file.name} of the lowering LLVM")


def _settings() -> Iterable[FileIdentity]:
    """Yield the variables that are set and that clang reads in addition to its options."""
    for name in _CLANG_VARIABLES:
        if value := os.environ.get(name):
            yield FileIdentity(name, f"sha256:{hashlib.sha256(os.fsencode(value)).hexdigest()}")


def _cuda_files(cuda: CudaToolkit) -> Iterable[FileIdentity]:
    parts = dict(cuda.installation.parts)
    return [
        FileIdentity(name, content_identity(parts[name], own_memo()), parts[name])
        for name in _CUDA_PARTS
        if name in parts
    ]


def _rocm_files(rocm: RocmInstallation) -> Iterable[FileIdentity]:
    """Return the device libraries; the set of files determines the code object version."""
    files = sorted(rocm.bitcode.glob(_BITCODE)) if rocm.bitcode else []
    return [FileIdentity(file.name, content_identity(file, own_memo()), file) for file in files]


@cache
def own_identity() -> str:
    """Return a hash of the driver's sources, because its version number does not identify them."""
    # The packages are in one directory in a checkout as well.
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 (quick)
    digest = hashlib.sha256()
    for name in own_sources(root):
        with open(os.path.join(root, name), "rb") as stream:  # noqa: PTH118, PTH123
            digest.update(f"{name} {hashlib.sha256(stream.read()).hexdigest()}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def own_sources(root: str) -> Iterator[str]:
    """Yield the sources of the package in a fixed order, relative to `root`."""
    for package in _PACKAGES:
        for place, folders, names in os.walk(os.path.join(root, package)):  # noqa: PTH118
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            folder = os.path.relpath(place, root)
            yield from (f"{folder}/{name}" for name in sorted(names) if name.endswith(_SOURCES))


class RememberingRunner(Struct, frozen=True):
    """Runs programs, and caches the output of `--version`.

    The cache is keyed by the content of the program and of its libraries.
    """

    runner: Runner

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        """Run the command, or return its cached output."""
        program, *rest = command.argv
        if rest != ["--version"]:
            return self.runner.run(command, input_text=input_text)
        subject = f"version {program}"
        stamp = _stamp(Path(program))
        known = own_memo().find(subject, stamp) if stamp else None
        if known is not None:
            return Completed(command, 0, known, "")
        completed = self.runner.run(command, input_text=input_text)
        if completed.returncode == 0 and stamp:
            own_memo().keep(subject, stamp, completed.stdout)
        return completed


def _stamp(program: Path) -> str:
    try:
        return str(ToolchainIdentity(identify_programs([(program.name, program)])))
    except MlirOffloadError:
        # The program or a library cannot be identified, so that its version is not cached.
        return ""


def show_toolchain_id(arguments: Sequence[str], runner: Runner) -> int:
    """Print the identity of the toolchain that the other arguments select; with -v, its parts.

    Raises UsageError for an input.
    """
    options = read_arguments([word for word in arguments if word != "--toolchain-id"])
    if options.inputs:
        msg = f"--toolchain-id names tools and takes no input: {options.inputs[0]}"
        raise UsageError(msg, hint="give the options of the build only, such as --llvm=22")
    native = not _OF_THIS_MACHINE.isdisjoint(options.offload_archs)
    identity = identify_options(options, RememberingRunner(runner), uses_processor=native)
    lines = [f"{file.name} {file.content}" for file in identity.files] if options.verbose else []
    sys.stdout.write("\n".join((*lines, str(identity))) + "\n")
    return 0


def identify_options(
    options: CompileOptions, runner: Runner, *, uses_processor: bool
) -> ToolchainIdentity:
    """Return the identity of the tools that the options select."""
    places = places_of(options)
    releases = choose_releases(options, places, runner, roles=BUILD_ROLES)
    try:
        cuda = choose_toolkit(places, runner)
    except ToolchainError:
        if places.cuda is not None:
            raise
        cuda = None
    hip = any(name.startswith("gfx") for name in options.offload_archs)
    rocm = choose_rocm_for(places, needed=hip)
    return identify_toolchain(releases, cuda, rocm, with_processor=uses_processor)


def check_step_tools(identity: ToolchainIdentity, wanted: str, watch: ToolWatch) -> None:
    """Watch the files of the tools. Raises CompatibilityError if their identity differs from `wanted`."""
    watch.add(identity.files)
    found = str(identity)
    if wanted and found != wanted:
        msg = f"the tools here are not those of the build: {found}, not {wanted}"
        hint = "install the same packages; 'mlir-offload --toolchain-id -v' lists what is there"
        raise CompatibilityError(msg, hint=hint)
