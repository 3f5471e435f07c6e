"""Host code with the gpu dialect, and random kernels, for NVIDIA's GPUs: run by the interpreter of PTX."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support.cuda_emulator import SOURCES, CudaEmulator, run_program
from support.host_operations import HOST, LEFT, PRINTED, caller_of_host
from support.operation_probe import Probe
from support.random_kernel import computed, program_of, random_kernel
from support.random_program import caller_of, read_numbers

from mlir_offload.offload.runtime import EXIT_STATUS


def _link(
    compiler: list[str],
    emulator: CudaEmulator,
    release: int,
    *inputs: Path,
    archs: str = "sm_90",
) -> Path:
    """Link all paths but the last to the last."""
    *sources, program = map(str, inputs)
    flags = (f"--llvm={release}", f"--offload-arch={archs}", *emulator.options(is_kept=False))
    subprocess.run([*compiler, *flags, *sources, "-o", program], check=True)
    return inputs[-1]


@pytest.fixture(scope="module")
def hosted(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    caller = tmp_path_factory.mktemp("hosted") / "caller.c"
    caller.write_text(caller_of_host())
    return _link(mlir_offload, cuda_emulator, 22, HOST, caller, caller.with_name("program"))


@pytest.mark.llvm(22)
@pytest.mark.parametrize("name", LEFT)
def test_memory_holds_what_the_host_and_kernels_wrote(hosted: Path, name: str) -> None:
    assert run_program(hosted, name).stdout.split() == [name, *map(str, LEFT[name])]


@pytest.mark.llvm(22)
def test_a_kernel_prints_numbers_of_every_type(hosted: Path) -> None:
    assert run_program(hosted, "print").stdout == f"{PRINTED}print\n"


STOPPED = {
    "asserted": r"host_operations\.mlir:\d+: \(unknown\): block: \[0,0,0\], thread: \[3,0,0\] "
    r"Assertion `thread too large` failed\.\nmlir-offload: error: \w+ failed: cudaErrorAssert",
    "absent_device": "there is no device 99: 'cuda' has 1",
    "too_many": "cudaLaunchKernel failed: cudaErrorInvalidConfiguration",
}


@pytest.mark.llvm(22)
@pytest.mark.parametrize("name", STOPPED)
def test_what_cannot_go_on_stops_the_program_with_its_reason(hosted: Path, name: str) -> None:
    stopped = run_program(hosted, name)
    assert (stopped.returncode, stopped.stdout) == (EXIT_STATUS, "")
    assert re.search(STOPPED[name], stopped.stderr)


@pytest.mark.parametrize(
    ("release", "seeds"),
    [
        pytest.param(major, seeds, marks=pytest.mark.llvm(major), id=f"{major}")
        for major, seeds in ((19, range(904, 908)), (22, range(912, 924)))
    ],
)
def test_random_kernels_compute_what_is_written_in_any_order(
    mlir_offload: list[str],
    cuda_emulator: CudaEmulator,
    tmp_path: Path,
    release: int,
    seeds: range,
) -> None:
    kernels = [random_kernel(f"k{seed}", seed, reduces=seed % 4 == 3) for seed in seeds]
    source, caller = tmp_path / "random.mlir", tmp_path / "caller.c"
    source.write_text(program_of(kernels))
    caller.write_text(caller_of(kernels, is_registered=True))
    program = _link(mlir_offload, cuda_emulator, release, source, caller, tmp_path / "program")
    for order in range(2):
        ran = run_program(program, seed=order)
        assert (ran.returncode, ran.stderr) == (0, ""), order
        given = read_numbers(ran.stdout)
        for kernel in kernels:
            threads = Probe(kernel.name, (), (kernel.block,), kernel.grid).threads(kernel.block)
            assert given[kernel.name] == computed(kernel, threads), (order, kernel)


PROGRAMS = SOURCES / "programs"
INPUTS = Path(__file__).parent / "inputs"


@pytest.mark.parametrize(
    "release", [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
)
def test_parameters_of_every_type_arrive_as_on_the_cpu(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path, release: int
) -> None:
    inputs = (INPUTS / "odd_parameters.mlir", PROGRAMS / "odd_parameters.c", tmp_path / "program")
    program = _link(mlir_offload, cuda_emulator, release, *inputs, archs="sm_90,host")
    outputs = {run_program(program, device=device).stdout for device in ("cuda", "host")}
    # Number 12 and 14 are what the second kernel leaves, number 13 the sum of a struct.
    assert outputs == {f"1 {'-77 ' * 11}2 -154 3\n"}


@pytest.mark.llvm(22)
def test_a_vector_of_bits_arrives(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path
) -> None:
    inputs = (INPUTS / "packed_parameter.mlir", tmp_path / "program")
    program = _link(mlir_offload, cuda_emulator, 22, *inputs, archs="sm_90,host")
    for device in ("cuda", "host"):
        ran = run_program(program, device=device)
        assert (ran.returncode, ran.stderr) == (0, ""), device


@pytest.mark.llvm(22)
def test_matrices_of_a_subgroup_and_clusters_of_blocks_are_right(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path
) -> None:
    sources = (INPUTS / "matrices.mlir", INPUTS / "clusters.mlir", PROGRAMS / "matrices.c")
    program = _link(mlir_offload, cuda_emulator, 22, *sources, tmp_path / "program")
    for seed in range(2):
        ran = run_program(program, seed=seed)
        ways = ("wmma", "mma.sync f16", "mma.sync tf32", "element by element", "clusters")
        assert ran.stdout == "".join(f"{way}: 0 wrong\n" for way in ways), ran.stderr


@pytest.mark.llvm(22)
def test_what_sm_90_adds_gives_the_numbers_that_the_cpu_gives(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path
) -> None:
    sources = (INPUTS / "hopper.mlir", PROGRAMS / "hopper.c")
    program = _link(
        mlir_offload, cuda_emulator, 22, *sources, tmp_path / "program", archs="sm_90a,host"
    )
    for device in ("cuda", "host"):
        ran = run_program(program, device=device)
        parts = ("product", "turns", "tile", "clear")
        assert ran.stdout == "".join(f"{part}: 0 wrong\n" for part in parts), (device, ran.stderr)
