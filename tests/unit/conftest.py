"""Fixtures of the unit tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.recorded import PROGRAM, RecordedTools

from mlir_offload.driver import cli
from mlir_offload.driver.compile import device


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedTools:
    """Return the tools of LLVM 19 and 22 and of CUDA; no other program is to be found."""
    made = RecordedTools(tmp_path / "tools")
    made.install(19, 22)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("scale.mlir").write_bytes(PROGRAM.read_bytes())
    for name in ("launch.cu", "launch.hip", "call.c"):
        Path(name).write_text("int called(void);\n")
    monkeypatch.setattr(cli, "ProcessRunner", lambda: made)
    monkeypatch.setattr(device, "_MOST_BYTES", 0)
    for name in [name for name in os.environ if name.startswith("MLIR_OFFLOAD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(made.root / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return made
