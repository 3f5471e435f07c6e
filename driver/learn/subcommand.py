"""Show what the tools of a build of LLVM tell, next to what the tables say of the nearest release."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from mlir_offload.driver.learn.patch import render_patch
from mlir_offload.driver.learn.table import show_table
from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.option.click_command import call, command
from mlir_offload.driver.tools.calibration import learn_toolchain
from mlir_offload.driver.tools.choose import choose_toolkit, places_for
from mlir_offload.driver.tools.family import PART_PROGRAMS, Family, program_families
from mlir_offload.toolchain.errors import CompatibilityError, ToolchainError
from mlir_offload.toolchain.learned_row import ProgramsRow
from mlir_offload.toolchain.llvm import LlvmToolchain, choose_llvm, llvm_probe
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.search import SearchPlaces, find_llvm
from mlir_offload.toolchain.tables import LearnedRelease
from mlir_offload.toolchain.target import all_kinds


@command("learn")
@click.pass_obj
def learn(runner: Runner, *, llvm: str, as_json: bool, patch: bool) -> int:
    """Ask the tools of an LLVM for all that the tables hold of a release.

    Exit status 4 where its tools do what this driver cannot follow, or contradict each other.
    """
    places = places_for(llvm)
    chosen = choose_llvm(find_llvm(places), places.llvm, llvm_probe(runner), roles=())
    families, cuda = _families(chosen), _cuda(places, runner)
    release = learn_toolchain(chosen, families, runner, is_quiet=True, cuda=cuda)
    if as_json:
        text = msgspec.json.format(release.text.encode(), indent=1).decode() + "\n"
        sys.stdout.write(text)
    elif patch:
        sys.stdout.write(render_patch(release, os.environ))
    else:
        show_table(release, str(chosen.prefix))
    if not chosen.has("clang"):
        show_note(f"{chosen.prefix} has no clang: {chosen.hint_for('clang')}")
    return _status(release)


def run_learn(arguments: Sequence[str], runner: Runner) -> int:
    """Run `mlir-offload learn`; return its exit status. Raises UsageError, ToolchainError."""
    return int(call(learn, arguments, runner) or 0)


def _families(llvm: LlvmToolchain) -> list[Family]:
    device = [Family.ABI, Family.NVPTX, Family.AMDGPU] if llvm.has("clang") else []
    device += [Family.LINKS, Family.FORMS] if llvm.has("clang-linker-wrapper") else []
    if not llvm.can_lower:
        return device
    programs = program_families(llvm, all_kinds())
    return [*device, Family.RECIPE, *programs, *(PART_PROGRAMS if programs else ())]


def _cuda(places: SearchPlaces, runner: Runner) -> Path | None:
    """Return the root of the CUDA toolkit that would be chosen, if there is one."""
    with contextlib.suppress(ToolchainError):
        toolkit = choose_toolkit(places, runner)
        return toolkit.root
    return None


def _status(release: LearnedRelease) -> int:
    failed = any(isinstance(row, ProgramsRow) and row.failed for row in release.rows)
    return CompatibilityError.exit_status if release.refused or failed else 0
