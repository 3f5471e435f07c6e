"""What operations of the gpu dialect give on NVIDIA's GPUs, number by number, by interpreting the PTX.

With LLVM 22 it is the PTX of which the linked cubin was assembled, with LLVM 19 that which is kept in the program.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.cuda_emulator import CudaEmulator, run_program
from support.operation_batch import read_results, write_batch, wrong_threads
from support.operation_results import PROBES

RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]


@pytest.mark.parametrize("release", RELEASES)
def test_every_thread_gets_what_the_dialect_defines_in_any_order(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path, release: int
) -> None:
    probes = [probe for probe in PROBES if probe.of(release)]
    program = tmp_path / "program"
    # The cubin is not run: ptxas has to take the PTX, and not to optimize it.
    given = ("--offload-arch=sm_90", "-O1", "-Xptxas", "-O0")
    flags = (f"--llvm={release}", *given, "-o", str(program))
    options = cuda_emulator.options(is_kept=release == 19)
    sources = map(str, write_batch(tmp_path, probes, release))
    subprocess.run([*mlir_offload, *flags, *options, *sources], check=True)
    right = b""
    for seed in range(2):
        output = tmp_path / f"output{seed}"
        ran = run_program(program, output=output, seed=seed)
        assert (ran.returncode, ran.stderr) == (0, ""), seed
        if output.read_bytes() == right:
            continue
        right = output.read_bytes()
        results = read_results(output.read_bytes(), probes, release)
        wrong = {
            (probe.name, block): wrong_threads(probe, release, block, results[probe.name, block])
            for probe in probes
            for block in probe.blocks
        }
        assert not any(wrong.values()), (seed, wrong)
