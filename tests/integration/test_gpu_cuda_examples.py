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
# The PTX that the linked cubin was assembled from; of some also the PTX that is kept for later GPUs, and that of the
# other release.
OTHERS = ("reduction", "two_modules")
CASES = [
    pytest.param(
        example,
        release,
        is_kept,
        marks=pytest.mark.llvm(release),
        id=f"{example.stem}-{release}-{form}",
    )
    for release, is_kept, form in ((22, False, "cubin"), (22, True, "ptx"), (19, False, "cubin"))
    for example in EXAMPLES
    if (release, is_kept) == (22, False) or example.stem in OTHERS
]
# In order, and in a random one.
SEEDS = (0, 1)


@pytest.mark.parametrize(("example", "release", "is_kept"), CASES)
def test_an_example_runs_as_ptx_and_finds_its_result_right(
    mlir_offload: list[str],
    cuda_emulator: CudaEmulator,
    tmp_path: Path,
    example: Path,
    release: int,
    *,
    is_kept: bool,
) -> None:
    program = tmp_path / "program"
    caller = CALLED_FROM_C.get(example.stem)
    inputs = [str(example), *([str(DOCS / caller)] if caller else [])]
    options = cuda_emulator.options(is_kept=is_kept)
    flags = (f"--llvm={release}", "--offload-arch=sm_90", *options, "-o", str(program))
    subprocess.run([*mlir_offload, *flags, *inputs], check=True)
    for seed in SEEDS:
        result = run_program(program, seed=seed)
        assert (result.returncode, result.stderr) == (0, ""), seed
        assert "ok" in result.stdout
