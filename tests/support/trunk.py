"""An LLVM build that no table knows: scripts that report 24.0.0git around the real tools of a release."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlir_offload.toolchain.llvm import LlvmToolchain, inspect_llvm, probe_llvm
from mlir_offload.toolchain.process import ProcessRunner
from mlir_offload.toolchain.tool import load_llvm_table

REAL = Path("/usr/lib/llvm-22/bin")
VERSION = "24.0.0git"
_SCRIPT = """\
#!/bin/sh
if [ "$*" = --version ]; then
  {real} --version | sed 's/version [0-9][^ ]*/version {version}/; s/LLD [0-9][^ ]*/LLD {version}/'
  exit
fi
"""
# Edits the output of a program and keeps its exit status.
_CHANGED = """\
printed=$({real} "$@" 2>&1)
status=$?
printf '%s\\n' "$printed" | sed -E '{change}'
exit $status
"""


def make_trunk(
    prefix: Path, changes: Mapping[str, str] | None = None, version: str = VERSION
) -> Path:
    """Return a prefix with every program of LLVM 22; `changes` are sed scripts for the output of one.

    A change that begins with `!` is a shell command that replaces the program.
    """
    folder = prefix / "bin"
    folder.mkdir(parents=True)
    for row in load_llvm_table().tools:
        real = REAL / row.name
        if not real.exists():
            continue
        text = _SCRIPT.format(real=real, version=version)
        change = (changes or {}).get(row.name, "")
        if change.startswith("!"):
            text += change[1:].format(real=real) + "\n"
        elif change:
            text += _CHANGED.format(real=real, change=change)
        else:
            text += f'exec {real} "$@"\n'
        script = folder / row.name
        script.write_text(text, encoding="utf-8")
        script.chmod(0o755)
    return prefix


def toolchain_in(prefix: Path) -> LlvmToolchain:
    """Return the release in a prefix, according to its `--version`."""
    installation = inspect_llvm(prefix / "bin")
    assert installation is not None
    found = probe_llvm(ProcessRunner(), installation)
    assert isinstance(found, LlvmToolchain), found
    return found
