"""The examples for NVIDIA's GPUs, run by an interpreter of the PTX that is in the programs.

Threads run in order and in random ones. A data race in workgroup memory, an access outside of what was
allocated, a divergent barrier, and memory of the device that the host touches end a program.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.cuda_emulator import CudaEmulator, run_program

DOCS = Path(__file__).resolve().parents[2] / "docs" / "examples"
EXAMPLES = sorted(path for path in DOCS.glob("*.mlir") if path.stem != "calling")
CALLED_FROM_C = {"square": "main.c"}
# Each release with each form of device code: the PTX that is kept in the program for later GPUs, and the PTX
# that the linked cubin was assembled from.
FORMS = [
    pytest.param(22, False, marks=pytest.mark.llvm(22), id="22-cubin"),
    pytest.param(22, True, marks=pytest.mark.llvm(22), id="22-ptx"),
    pytest.param(19, False, marks=pytest.mark.llvm(19), id="19-cubin"),
]
SEEDS = (0, 1, 2)


@pytest.mark.parametrize(("release", "is_linked_ptx"), FORMS)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_as_ptx_and_finds_its_result_right(
    mlir_offload: list[str],
    cuda_emulator: CudaEmulator,
    tmp_path: Path,
    example: Path,
    release: int,
    *,
    is_linked_ptx: bool,
) -> None:
    program = tmp_path / "program"
    caller = CALLED_FROM_C.get(example.stem)
    inputs = [str(example), *([str(DOCS / caller)] if caller else [])]
    options = cuda_emulator.options(is_linked_ptx=is_linked_ptx)
    flags = (f"--llvm={release}", "--offload-arch=sm_90", *options, "-o", str(program))
    subprocess.run([*mlir_offload, *flags, *inputs], check=True)
    for seed in SEEDS:
        result = run_program(program, seed=seed)
        assert (result.returncode, result.stderr) == (0, ""), seed
        assert "ok" in result.stdout
