"""Which tools of a call are loaded once and forked for each use, and the library that does it."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.driver.system.workspace import replace_bytes, user_cache
from mlir_offload.toolchain import fork_server
from mlir_offload.toolchain.digest import sha256
from mlir_offload.toolchain.errors import MlirOffloadError
from mlir_offload.toolchain.process import Command, ProcessRunner

if TYPE_CHECKING:
    from mlir_offload.driver.tools.releases import Releases
    from mlir_offload.toolchain.llvm import LlvmToolchain

_FLAGS = ("-O1", "-std=c11", "-w", "-shared", "-fPIC")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def load_tools_once(
    runner: ProcessRunner, releases: Releases, workspace: Path, *, is_dry: bool
) -> None:
    """Have the tools that a compilation starts several times forked; nothing changes if that cannot be."""
    if runner.fork_servers is not None:
        return
    library = _fork_library(runner, releases.llvm, workspace, is_dry=is_dry)
    if library is not None:
        runner.fork_servers = fork_server.ForkServers(library, _entries(releases))


def _entries(releases: Releases) -> dict[str, tuple[str, int]]:
    """Return for each tool which one is loaded, and what its forks enter."""
    mlir, llvm = dict(releases.mlir.tools), dict(releases.llvm.tools)
    tools = (mlir.get("mlir-opt"), llvm.get("clang"), mlir.get("mlir-translate"))
    opt, clang, translate = (
        tool if tool and fork_server.can_be_forked(tool) else None for tool in tools
    )
    entries = {str(tool): (str(tool), fork_server.PROGRAM) for tool in (opt, clang) if tool}
    # Of one installation: programs of two may be different builds of one release.
    if opt and translate and opt.parent == translate.parent:
        entries[str(translate)] = (str(opt), fork_server.MLIR_TRANSLATE)
    return entries


def _fork_library(
    runner: ProcessRunner, llvm: LlvmToolchain, workspace: Path, *, is_dry: bool
) -> Path | None:
    """Return the library; the first call compiles and keeps it. None if that fails, or it may be another's."""
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
        argv = (str(clang), *_FLAGS, str(fork_server.SOURCE), "-o", str(made))
        if runner.run(Command(argv)).returncode != 0:
            return None
        replace_bytes(kept, made.read_bytes())
        made.unlink()
    except (OSError, MlirOffloadError):
        return None
    return kept


def _is_ours(status: os.stat_result) -> bool:
    """Say whether nobody else can have written the file."""
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE
