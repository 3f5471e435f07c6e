"""Code for AMD GPUs, executed: the IR of the device link on the emulator of tests/gpu/amd, and some machine code."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest
from support.amd_emulator import FAULT, WAVES, AmdGpu
from support.amd_launch import read_images, run_probe
from support.host_operations import HOST, LEFT, PRINTED, caller_of_host
from support.operation_batch import read_results, write_batch, wrong_threads
from support.operation_probe import Probe
from support.operation_results import probes_for
from support.random_kernel import computed, program_of, random_kernel
from support.random_program import caller_of, read_numbers

from mlir_offload.offload.runtime import EXIT_STATUS

INPUTS = Path(__file__).parent / "inputs"
# The releases and GPUs of the probes; a wave has 64 lanes on gfx90a and 32 on gfx1100.
GPUS = [
    pytest.param(release, arch, marks=pytest.mark.llvm(release))
    for release, arch in ((19, "gfx90a"), (19, "gfx1100"), (22, "gfx90a"), (22, "gfx1100"))
]
# What is also executed as machine code: all of the exchange between threads for one GPU; of the others, what waves of
# 32 lanes and the older release do otherwise.
EXCHANGE = ("exchange", "turn", "subgroups", "blocks")
MACHINE_CODE = {
    (22, "gfx90a"): (EXCHANGE, ((20, 3, 2), (160, 1, 1))),
    (22, "gfx1100"): (("turn", "blocks"), ((20, 3, 2),)),
    (19, "gfx90a"): (("blocks",), ((96, 1, 1), (20, 3, 2))),
    (19, "gfx1100"): (("blocks",), ((160, 1, 1),)),
}


@pytest.mark.parametrize(("release", "arch"), GPUS)
def test_every_thread_gets_what_the_dialect_defines(
    amd: AmdGpu, tmp_path: Path, release: int, arch: str
) -> None:
    probes = [probe for probe in probes_for(WAVES[arch]) if probe.of(release)]
    if (release, arch) == (19, "gfx1100"):
        # The rest is the same as for the other release or the other GPU.
        probes = [probe for probe in probes if probe.name in {"exchange", "blocks"}]
    program = tmp_path / "program"
    amd.build(release, arch, program, "-O1", *write_batch(tmp_path, probes, release))
    right = b""
    for seed in (0, 1):
        ran = amd.run(program, seed=seed)
        assert (ran.returncode, ran.stderr.decode()) == (0, "")
        if ran.stdout == right:
            continue
        right = ran.stdout
        results = read_results(ran.stdout, probes, release)
        for probe in probes:
            for block in probe.blocks:
                rows = results[probe.name, block]
                wrong = wrong_threads(probe, release, block, rows)
                assert wrong == {}, (seed, probe.name, block)
    _check_machine_code(program, probes, release, arch)


def _check_machine_code(program: Path, probes: list[Probe], release: int, arch: str) -> None:
    (image,) = read_images(program, arch, WAVES[arch])
    names, blocks = MACHINE_CODE[release, arch]
    for probe, block in ((p, block) for p in probes if p.name in names for block in blocks):
        rows = len(probe.of(release))
        left = run_probe(image, probe, block, rows)
        threads = prod(probe.grid) * prod(block)
        cut = [left[row * threads : (row + 1) * threads] for row in range(rows)]
        assert wrong_threads(probe, release, block, cut) == {}, (probe.name, block)


@pytest.mark.llvm(22)
def test_a_loop_over_the_grid_with_narrow_indices_is_right(amd: AmdGpu, tmp_path: Path) -> None:
    program = tmp_path / "program"
    amd.build(22, "gfx1100", program, INPUTS / "grid_loop.mlir", "--index-bits=32")
    ran = amd.run(program, seed=1, arch="gfx1100")
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.fixture(scope="module")
def hosted(amd: AmdGpu, tmp_path_factory: pytest.TempPathFactory) -> Path:
    caller = tmp_path_factory.mktemp("hosted") / "caller.c"
    caller.write_text(caller_of_host())
    program = caller.with_name("program")
    amd.build(22, "gfx1100", program, HOST, caller)
    return program


@pytest.mark.llvm(22)
@pytest.mark.parametrize("name", LEFT)
def test_memory_holds_what_the_host_and_kernels_wrote(amd: AmdGpu, hosted: Path, name: str) -> None:
    ran = amd.run(hosted, name)
    assert ran.stdout.decode().split() == [name, *map(str, LEFT[name])], ran.stderr


@pytest.mark.llvm(22)
def test_a_kernel_prints_numbers_of_every_type(amd: AmdGpu, hosted: Path) -> None:
    ran = amd.run(hosted, "print")
    assert ran.stdout.decode() == f"{PRINTED}print\n", ran.stderr


@pytest.mark.llvm(22)
def test_what_cannot_go_on_stops_the_program_with_its_reason(amd: AmdGpu, hosted: Path) -> None:
    stopped = amd.run(hosted, "too_many", arch="gfx1100")
    assert (stopped.returncode, stopped.stdout) == (EXIT_STATUS, b"")
    assert b"hipLaunchKernel failed" in stopped.stderr
    # The message comes before the trap, to standard output as of all printf in kernels.
    asserted = amd.run(hosted, "asserted", arch="gfx1100")
    assert asserted.returncode == FAULT
    assert "Assertion `thread too large` failed" in asserted.stdout.decode()
    assert "trap: kernel" in asserted.stderr.decode()


@pytest.mark.llvm(22)
def test_random_kernels_compute_what_is_written(amd: AmdGpu, tmp_path: Path) -> None:
    kernels = [random_kernel(f"k{seed}", seed, reduces=seed % 4 == 3) for seed in range(924, 930)]
    source, caller, program = (tmp_path / name for name in ("k.mlir", "caller.c", "program"))
    source.write_text(program_of(kernels))
    caller.write_text(caller_of(kernels, is_registered=True))
    amd.build(22, ",".join(WAVES), program, source, caller)
    for arch in WAVES:
        for seed in (0, 1, 2):
            ran = amd.run(program, seed=seed, arch=arch)
            assert (ran.returncode, ran.stderr) == (0, b""), (arch, seed)
            given = read_numbers(ran.stdout.decode())
            for kernel in kernels:
                threads = Probe(kernel.name, (), (kernel.block,), kernel.grid).threads(kernel.block)
                assert given[kernel.name] == computed(kernel, threads), (arch, seed, kernel)


# What the host passes to the kernel of inputs/gpu_parameters.mlir.
PASSED = "1 -5 -300 2 -70000 -8 1000000000000 4 -3 -7 -6000000000 13 -5"


@pytest.mark.llvm(22)
def test_a_kernel_gets_parameters_of_every_kind(amd: AmdGpu, tmp_path: Path) -> None:
    program, archs = tmp_path / "program", ",".join(WAVES)
    amd.build(22, archs, program, INPUTS / "gpu_parameters.mlir", INPUTS / "gpu_parameters.c")
    for arch in WAVES:
        ran = amd.run(program, arch=arch)
        assert (ran.stdout.decode().strip(), ran.stderr) == (PASSED, b"")


@pytest.fixture(scope="module")
def faults(amd: AmdGpu, tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("faults") / "program"
    sources = (INPUTS / "gpu_faults.mlir", INPUTS / "gpu_faults.c")
    amd.build(22, "gfx1100", program, "-O1", *sources)
    return program


# What each kernel of inputs/gpu_faults.mlir does wrong, and what the emulator says.
FAULTS = {
    "behind": "access out of the bounds of device memory of 4 bytes",
    "freed": "access out of the bounds of device memory of 4 bytes",
    "host_memory": "access out of the bounds of device memory of 4 bytes",
    "workgroup": "access out of the bounds of workgroup memory of 4 bytes",
    "divergent": "a barrier that not all threads of the block reach",
    "early": "a barrier that not all threads of the block reach",
    "race": "data race: write here, write in the wave of thread 0 of this block, and nothing orders them of 4 bytes",
    "workgroup_race": "data race: write here, read in the wave of thread 0 of this block, and nothing orders them of 4 bytes",
}


@pytest.mark.llvm(22)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_device_code_ends_the_program(amd: AmdGpu, faults: Path, name: str) -> None:
    ran = amd.run(faults, name)
    assert ran.returncode == FAULT, ran.stdout
    assert FAULTS[name] in ran.stderr.decode()
    assert "kernel " in ran.stderr.decode()


@pytest.mark.llvm(22)
def test_what_the_emulator_does_not_have_ends_the_program(amd: AmdGpu, tmp_path: Path) -> None:
    program, source = tmp_path / "program", tmp_path / "packed.mlir"
    text = (INPUTS / "packed_parameter.mlir").read_text()
    source.write_text(
        text.replace(
            "      memref.store %number, %out",
            "      %old = memref.load %out[%zero] : memref<1xi64>\n"
            "      %wide = arith.extui %old : i64 to i128\n      %square = arith.muli %wide, %wide : i128\n"
            "      %width = arith.constant 64 : i128\n      %high = arith.shrui %square, %width : i128\n"
            "      %number = arith.trunci %high : i128 to i64\n      memref.store %number, %out",
        ).replace(
            "%number = arith.extui %bit : i1 to i64", "%unused = arith.extui %bit : i1 to i64"
        )
    )
    amd.build(22, "gfx1100,host", program, source)
    ran = amd.run(program)
    assert (ran.returncode, b"an integer of 128 bits" in ran.stderr) == (FAULT, True)


@pytest.mark.llvm(22)
def test_the_host_cannot_touch_device_memory(amd: AmdGpu, faults: Path) -> None:
    assert amd.run(faults, "touch").returncode < 0


@pytest.mark.llvm(22)
@pytest.mark.parametrize("name", ["late", "uninitialized"])
def test_what_the_order_of_things_decides_comes_out_in_different_ways(
    amd: AmdGpu, faults: Path, name: str
) -> None:
    printed = {amd.run(faults, name, seed=seed).stdout for seed in range(4)}
    # Without the wait the host sees its own numbers; memory holds something else each time.
    assert printed == {b"late 0\n"} if name == "late" else len(printed) > 1, printed
