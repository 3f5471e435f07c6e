"""Random kernels with barriers on the CPU: cut into regions, or on stacks, they compute the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.operation_probe import Probe
from support.random_kernel import computed, program_of, random_kernel
from support.random_program import caller_of, read_numbers

# More of them are run by giving another range; these take most ways through the code that cuts kernels.
SEEDS = {19: range(900, 906), 22: range(906, 914)}
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]


@pytest.mark.parametrize("release", RELEASES)
def test_kernels_with_barriers_compute_what_is_written(
    release: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    # Every fourth one reduces over the block, for which work-items need stacks.
    kernels = [random_kernel(f"k{seed}", seed, reduces=seed % 4 == 3) for seed in SEEDS[release]]
    source, caller, program = (tmp_path / name for name in ("random.mlir", "caller.c", "program"))
    source.write_text(program_of(kernels))
    caller.write_text(caller_of(kernels))
    flags = (f"--llvm={release}", "--offload-arch=host", "-O1", source, caller, "-o", program)
    done = subprocess.run(
        [*mlir_offload, *map(str, flags)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout

    given = read_numbers(printed)
    for kernel in kernels:
        threads = Probe(kernel.name, (), (kernel.block,), kernel.grid).threads(kernel.block)
        assert given[kernel.name] == computed(kernel, threads), kernel
