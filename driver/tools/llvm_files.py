"""The files of an LLVM release that affect outputs, with their content identity."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from mlir_offload.driver.system.file_identity import program_identities
from mlir_offload.driver.system.memo import Memo
from mlir_offload.driver.system.tool_watch import FileIdentity
from mlir_offload.driver.system.workspace import user_cache
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.tool import load_llvm_table


@cache
def llvm_files(llvm: LlvmToolchain) -> tuple[FileIdentity, ...]:
    """Return the programs that steps depend on, and their libraries.

    Raises ToolchainError for a missing library.
    """
    rows = [row.name for row in load_llvm_table().tools if row.role is not None]
    programs = [(name, llvm.tool(name)) for name in rows if llvm.has(name)]
    if llvm.library is not None:
        programs.append((llvm.library.name, llvm.library))
    return identify_programs(programs)


def identify_programs(programs: Iterable[tuple[str, Path]]) -> tuple[FileIdentity, ...]:
    """Return the identities of programs and their libraries. Raises ToolchainError for a missing library."""
    places = [Path(place) for place in os.environ.get("LD_LIBRARY_PATH", "").split(":") if place]
    return program_identities(programs, places, own_memo())


def own_memo() -> Memo:
    """Return the cache of facts about tools."""
    return Memo(user_cache(os.environ) / "tools")
