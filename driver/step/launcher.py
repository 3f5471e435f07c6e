"""The program that runs the cacheable steps: ccache, srun, or none."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.step.compiler_step import HermeticStep
from mlir_offload.driver.system.own_program import OWN_NAME, own_program
from mlir_offload.driver.tools.choose import NO_CUDA
from mlir_offload.driver.tools.toolchain_id import identify_for
from mlir_offload.toolchain.errors import ToolchainError, UsageError
from mlir_offload.toolchain.process import Command, Environment

if TYPE_CHECKING:
    from mlir_offload.driver.option.command_line import CompileOptions
    from mlir_offload.driver.tools.releases import Releases
    from mlir_offload.toolchain.cuda import CudaToolkit
    from mlir_offload.toolchain.rocm import RocmInstallation
    from mlir_offload.toolchain.target import Kind, Target

LAUNCHER_VARIABLE = "MLIR_OFFLOAD_LAUNCHER"
CACHE_VARIABLE = "MLIR_OFFLOAD_CACHE"
_CCACHE = "ccache"
_SWITCH = {"": None, "on": True, "1": True, "off": False, "0": False}
# Variables that would make ccache run another program or ignore options, and the values that prevent it.
_FORCED = (("CCACHE_COMPILERTYPE", "other"), ("CCACHE_COMPILER", ""), ("CCACHE_IGNOREOPTIONS", ""))


class Launcher(Struct, frozen=True):
    """The launcher of the steps of a build.

    `words` precede the driver's own command. If the driver sets up ccache (`uses_ccache`), `behind` is the
    launcher that ccache starts for a step that is not in the cache.
    """

    words: tuple[str, ...]
    behind: tuple[str, ...] = ()
    uses_ccache: bool = False

    @property
    def name(self) -> str:
        """Return the file name of its program."""
        return Path(self.words[0]).name

    def environment(self, toolchain_id: str, given: Mapping[str, str]) -> Environment:
        """Return the variables that a step sets for ccache.

        Values of the user are kept, unless they could cause a wrong result.
        """
        if not self.uses_ccache:
            return ()
        # The driver is a script, whose modification time does not identify the tools. No step depends on
        # its directory, not even with -g, because the input contains the paths.
        wanted = (("CCACHE_COMPILERCHECK", f"string:{toolchain_id}"), ("CCACHE_NOHASHDIR", "1"))
        return (*_FORCED, *((name, value) for name, value in wanted if name not in given))


def choose_launcher(options: CompileOptions, environment: Mapping[str, str]) -> Launcher | None:
    """Return the launcher of the options, or else of the environment; None if there is none.

    Raises ToolchainError if its program is not installed, UsageError for an invalid value.
    """
    source, words = _launcher_words(options, environment)
    is_ccache = bool(words) and Path(words[0]).name == _CCACHE
    cache = _wants_cache(options, environment)
    if is_ccache and cache is False:
        return None
    if words:
        _check_installed(words[0], source)
    if not cache:
        return Launcher(words) if words else None
    _check_installed(_CCACHE, "--cache")
    if is_ccache:
        return Launcher(words, uses_ccache=True)
    return Launcher((_CCACHE,), behind=words, uses_ccache=True)


def _wants_cache(options: CompileOptions, environment: Mapping[str, str]) -> bool | None:
    """Return whether ccache is requested; None if neither options nor environment say."""
    value = environment.get(CACHE_VARIABLE, "")
    if value.lower() not in _SWITCH:
        msg = f"{CACHE_VARIABLE}={value}: neither 'on' nor 'off'"
        raise UsageError(msg, hint=f"set {CACHE_VARIABLE}=on or {CACHE_VARIABLE}=off")
    return _SWITCH[value.lower()] if options.cache is None else options.cache


def _launcher_words(
    options: CompileOptions, environment: Mapping[str, str]
) -> tuple[str, tuple[str, ...]]:
    """Return the option or variable that sets the launcher, and its words."""
    given, source = options.launcher, "--launcher"
    if given is None:
        given, source = environment.get(LAUNCHER_VARIABLE, ""), LAUNCHER_VARIABLE
    try:
        return source, tuple(shlex.split(given))
    except ValueError as error:
        msg = f"{source}={given}: {error}"
        raise UsageError(msg, hint="quote its words as for a shell") from error


def _check_installed(program: str, source: str) -> None:
    if shutil.which(program) is None:
        msg = f"{source}: no program '{program}'"
        is_ccache = Path(program).name == _CCACHE
        hint = "apt install ccache" if is_ccache else "install it, or name its full path"
        raise ToolchainError(msg, hint=hint)


def step_program(launcher: Launcher, workspace: Path) -> tuple[str, ...]:
    """Return the words at the beginning of a step's command.

    ccache takes one program as the compiler. If starting this driver takes more words, or ccache is
    followed by a launcher, they are written to a script in the workspace.
    """
    own = own_program()
    if len(own) > 1 or launcher.behind:
        script = workspace / OWN_NAME
        line = shlex.join((*launcher.behind, *own))
        script.write_text(f'#!/bin/sh\nexec {line} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        own = (str(script.absolute()),)
    return (*launcher.words, *own)


class LaunchedSteps(Struct, frozen=True):
    """The steps of one invocation: the launcher, the driver's command, and the tools.

    `program` is the result of step_program. The paths of the tools are passed in environment variables, which
    ccache does not hash, because equal tools may be in other directories on another host.
    """

    launcher: Launcher
    program: tuple[str, ...]
    releases: Releases
    cuda: CudaToolkit | None
    rocm: RocmInstallation | None = None

    def prepare(self, targets: Sequence[Target]) -> None:
        """Compute the identities of the tools early; they are cached."""
        for kind in (None, *dict.fromkeys(target.kind for target in targets)):
            self.identity(kind)

    def identity(self, kind: Kind | None) -> str:
        """Return the identity of the tools for a device kind, or for host code if None."""
        return str(identify_for(kind, self.releases, self.cuda, self.rocm))

    def command(self, step: HermeticStep, kind: Kind | None) -> Command:
        """Return the command of a step, for images of a kind or for host code."""
        identity = self.identity(kind)
        argv = (*self.program, *replace(step, toolchain_id=identity).argv)
        tools = list(self.releases.environment)
        if kind == "cuda":
            tools.append(("CUDA_PATH", str(self.cuda.root) if self.cuda else NO_CUDA))
        if self.rocm is not None:
            tools.append(("ROCM_PATH", str(self.rocm.root)))
        cache = self.launcher.environment(identity, os.environ)
        return Command(argv, (*tools, *cache))
