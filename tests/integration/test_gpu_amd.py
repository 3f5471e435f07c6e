"""Code for AMD GPUs, executed: the IR of the device link on the emulator of tests/gpu/amd."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from support.amd_emulator import DEVICE_LIBRARIES, FAULT, WAVES, AmdGpu, make_emulator
from support.operation_batch import read_results, write_batch, wrong_threads
from support.operation_results import probes_for

INPUTS = Path(__file__).parent / "inputs"
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
# The releases and GPUs of the probes; a wave has 64 lanes on gfx90a and 32 on gfx1100.
GPUS = [
    pytest.param(release, arch, marks=pytest.mark.llvm(release))
    for release, arch in ((19, "gfx90a"), (19, "gfx1100"), (22, "gfx90a"), (22, "gfx1100"))
]
# Without kernels, for NVIDIA GPUs only, or called from other languages.
OTHERS = {"plain", "lowered", "calling"}
RUN = [path for path in sorted(EXAMPLES.glob("*.mlir")) if path.stem not in OTHERS]
ARGUMENTS = {"saxpy": ["4096"]}


@pytest.fixture(scope="session")
def amd(mlir_offload: list[str], tmp_path_factory: pytest.TempPathFactory) -> AmdGpu:
    if not DEVICE_LIBRARIES.is_dir():
        pytest.skip("no rocm-device-libs")
    # Processes that run tests side by side share one.
    shared = tmp_path_factory.getbasetemp().parent / "amd_emulator"
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shared.exists():
            make_emulator(shared)
    return AmdGpu(mlir_offload, shared)


@pytest.mark.parametrize(("release", "arch"), GPUS)
def test_every_thread_gets_what_the_dialect_defines(
    amd: AmdGpu, tmp_path: Path, release: int, arch: str
) -> None:
    probes = [probe for probe in probes_for(WAVES[arch]) if probe.of(release)]
    program = tmp_path / "program"
    amd.build(release, arch, program, "-O1", *write_batch(tmp_path, probes, release))
    for seed in (0, 1):
        ran = amd.run(program, seed=seed)
        assert (ran.returncode, ran.stderr.decode()) == (0, "")
        results = read_results(ran.stdout, probes, release)
        for probe in probes:
            for block in probe.blocks:
                rows = results[probe.name, block]
                wrong = wrong_threads(probe, release, block, rows)
                assert wrong == {}, (seed, probe.name, block)


@pytest.mark.llvm(22)
@pytest.mark.parametrize("example", RUN, ids=lambda path: path.stem)
def test_an_example_finds_its_result_right(amd: AmdGpu, tmp_path: Path, example: Path) -> None:
    program = tmp_path / "program"
    main = [example.with_name("main.c")] if example.stem == "square" else []
    amd.build(22, ",".join(WAVES), program, example, *main)
    for arch in WAVES:
        for seed in (0, 1):
            ran = amd.run(program, *ARGUMENTS.get(example.stem, []), seed=seed, arch=arch)
            assert (ran.returncode, ran.stderr.decode()) == (0, "")
            assert b"ok" in ran.stdout


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
}


@pytest.mark.llvm(22)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_device_code_ends_the_program(amd: AmdGpu, faults: Path, name: str) -> None:
    ran = amd.run(faults, name)
    assert ran.returncode == FAULT, ran.stdout
    assert FAULTS[name] in ran.stderr.decode()
    assert "kernel " in ran.stderr.decode()


@pytest.mark.llvm(22)
def test_the_host_cannot_touch_device_memory(amd: AmdGpu, faults: Path) -> None:
    assert amd.run(faults, "touch").returncode < 0


@pytest.mark.llvm(22)
@pytest.mark.parametrize("name", ["late", "uninitialized", "race"])
def test_what_the_order_of_things_decides_comes_out_in_different_ways(
    amd: AmdGpu, faults: Path, name: str
) -> None:
    printed = {amd.run(faults, name, seed=seed).stdout for seed in range(4)}
    # Without the wait the host sees its own numbers; memory holds something else each time.
    assert printed == {b"late 0\n"} if name == "late" else len(printed) > 1, printed
