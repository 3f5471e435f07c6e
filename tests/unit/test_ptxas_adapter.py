from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from mlir_offload.offload.link.fatbinary_adapter import ptxas_script


@pytest.mark.parametrize("seconds", [0, 86400])
def test_the_adapter_gives_files_a_time_and_passes_all_on(tmp_path: Path, seconds: int) -> None:
    real = tmp_path / "real one"
    real.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 3\n')
    real.chmod(0o755)
    adapter = tmp_path / "ptxas"
    adapter.write_text(ptxas_script([str(real)], seconds))
    source = tmp_path / "it's.s"
    source.write_text('\t.file\t1 "a b.mlir"\n.file 2 "c", 5, 6\n.loc 1 2 3\n')
    arguments = ["-c", str(source), "-o", "x y.cubin"]
    result = subprocess.run(
        ["sh", adapter, *arguments], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout.splitlines()) == (3, arguments)
    time = max(seconds, 1)
    assert (
        source.read_text() == f'\t.file\t1 "a b.mlir", {time}, 1\n.file 2 "c", 5, 6\n.loc 1 2 3\n'
    )


def test_the_adapter_fails_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "ptxas").write_text(ptxas_script(["/bin/true"], 1))
    missing = shlex.quote(str(tmp_path / "missing.s"))
    command = ["sh", "-c", f"sh {tmp_path / 'ptxas'} {missing}"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
