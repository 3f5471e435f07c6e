"""What linked programs ask of the GPU runtimes, call by call.

Libraries that record the calls take the place of libcudart and libamdhip64. A program of the same CUDA C++,
made by clang alone, says which calls are right; how streams order the calls says what may overlap.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support.gpu_trace import read_trace

from mlir_offload.offload.runtime import EXIT_STATUS, runtime_include_directory

INPUTS = Path(__file__).parent / "inputs"
STREAMS = Path(__file__).parent / "streams"
# A struct-like memref is seven numbers; what a kernel takes beyond that has 1, 1, 2, 2 and 8 bytes.
ARGUMENTS = "scale=848 narrow=811228 tile=8888888 left=888884 right=888884 both=8888888888"
GPUS = pytest.mark.parametrize("kind", ["cuda", "hip"])


def run(program: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {"RECORD_ARGUMENTS": ARGUMENTS, **environment}
    argv = [str(program), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, env=variables, check=False)


def record(program: Path, *arguments: str, **environment: str) -> list[str]:
    done = run(program, *arguments, **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if not line.startswith("__")]


@pytest.fixture(scope="module")
def streams(
    tmp_path_factory: pytest.TempPathFactory,
    mlir_offload: list[str],
    gpu_recorders: tuple[str, ...],
) -> Path:
    """Return a program for GPUs of two vendors and the CPU; its arguments choose what it does where."""
    program = tmp_path_factory.mktemp("streams") / "program"
    sources = (str(STREAMS / "streams.mlir"), str(STREAMS / "streams.c"))
    options = ("--llvm=22", "--offload-arch=sm_90,gfx90a,host", f"-I{runtime_include_directory()}")
    subprocess.run([*mlir_offload, *gpu_recorders, *options, *sources, "-o", program], check=True)
    return program


@pytest.mark.parametrize("major", [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)])  # fmt: skip
def test_a_program_asks_the_cuda_runtime_for_what_clangs_program_asks_for(
    major: int, mlir_offload: list[str], gpu_recorders: tuple[str, ...], tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    source = INPUTS / "cuda_program.mlir"
    options = (f"--llvm={major}", "--offload-arch=sm_90", source, "-o", ours)
    subprocess.run([*mlir_offload, *gpu_recorders, *options], check=True)
    cuda, bare = gpu_recorders[0], ("-nocudainc", "-nocudalib", "-Wno-unknown-cuda-version")
    library = f"{cuda.removeprefix('--cuda-path=')}/lib64"
    linked = (f"-L{library}", f"-Wl,-rpath,{library}", "-lcudart")
    clang = ("/usr/lib/llvm-22/bin/clang++", "-x", "cuda", "--offload-arch=sm_90", cuda, *bare)
    subprocess.run([*clang, INPUTS / "cuda_program.cu", *linked, "-o", theirs], check=True)
    expected = run(theirs, RECORD_SHARED="49152").stdout.splitlines()
    assert len(expected) == 19
    assert all(" @1" in call for call in expected[4:])
    assert _once_chosen(run(ours, RECORD_SHARED="49152").stdout.splitlines())[:19] == expected


def _once_chosen(calls: list[str]) -> list[str]:
    """Return the calls without what the runtime does besides.

    It makes the device current before each call, tries a launch before it asks for more shared memory,
    and wakes CUDA up before it looks for a function of the driver.
    """
    kept = [call for call in calls if "failed 1" not in call and "cudaFree nothing" not in call]
    first = kept.index("cudaSetDevice 1 @1")
    return [call for n, call in enumerate(kept) if n <= first or "cudaSetDevice" not in call]


@pytest.mark.llvm(22)
@GPUS
def test_work_that_does_not_depend_on_other_work_may_overlap_it(streams: Path, kind: str) -> None:
    lines = record(streams, "overlap", kind)
    trace = read_trace(lines)
    text = "\n".join(trace.calls)
    chains = {
        name: re.search(rf"LaunchKernel {name} .* on (\w+)", text)
        for name in ("left", "right", "both")
    }
    left, right, both = (found[1] for found in chains.values() if found)
    assert len({left, right, both}) == 3
    # Allocation, both copies, kernel and release of one chain against all of the other one.
    of_left = [
        call for call in trace.calls if call.endswith(f" on {left}") or f" on {left} " in call
    ]
    of_right = [
        call for call in trace.calls if call.endswith(f" on {right}") or f" on {right} " in call
    ]
    for of_chain in (of_left, of_right):
        assert [_name(call) for call in of_chain] == [
            "MallocAsync", "MemcpyAsync", "LaunchKernel", "MemcpyAsync", "FreeAsync", "EventRecord",
        ]  # fmt: skip
    assert all(trace.may_overlap(one, other) for one in of_left for other in of_right)
    # The kernel of both comes behind all of them, and the host has not waited for it.
    for call in (*of_left, *of_right):
        assert not trace.may_overlap(call, "LaunchKernel both")
    assert text.index("LaunchKernel both") < text.index("StreamSynchronize")


def _name(call: str) -> str:
    return re.sub(r"^(?:cuda|hip)(\w+) .*", r"\1", call)


@pytest.mark.llvm(22)
def test_a_trace_that_waits_or_shares_a_stream_is_told_from_one_that_overlaps() -> None:
    free = ["cudaLaunchKernel a on s1", "cudaLaunchKernel b on s2"]
    assert read_trace(free).may_overlap(" a ", " b ")
    for between in ("cudaStreamSynchronize s1", "cudaFree m1", "cudaDeviceSynchronize "):
        assert not read_trace([free[0], between, free[1]]).may_overlap(" a ", " b ")
    joined = ["cudaEventRecord e1 on s1", "cudaStreamWaitEvent s2 for e1 flags 0"]
    assert not read_trace([free[0], *joined, free[1]]).may_overlap(" a ", " b ")
    assert not read_trace([free[0], free[1].replace("s2", "s1")]).may_overlap(" a ", " b ")


@pytest.mark.llvm(22)
def test_overlapping_chains_give_the_right_numbers_on_the_cpu(streams: Path) -> None:
    # 3 i - (i + 3), for i from 0 to 63
    assert record(streams, "overlap", "host") == ["sum 3840"]


@pytest.mark.llvm(22)
@GPUS
def test_a_token_of_a_caller_is_its_stream(streams: Path, kind: str) -> None:
    lines = record(streams, "callers", kind)
    cuts = [number for number, line in enumerate(lines) if line == "--"]
    on_token, join, explicit = (
        [line.removeprefix(kind) for line in lines[start:end]]
        for start, end in zip([0, *(cut + 1 for cut in cuts)], cuts, strict=False)
    )
    assert [line.split(" with")[0] for line in on_token] == [
        "MallocAsync m1 256 bytes on 0xa000",
        "MemcpyAsync 256 bytes kind 4 from host to m1 on 0xa000",
        "LaunchKernel left grid 1 1 1 block 64 1 1 shared 0 on 0xa000",
        "MemcpyAsync 256 bytes kind 4 from m1 to host on 0xa000",
        "FreeAsync m1 on 0xa000",
        "StreamSynchronize 0xa000",
    ]
    assert [line.split(" with")[0] for line in join] == [
        "StreamCreateWithFlags s1 flags 1",
        "EventCreateWithFlags e1 flags 2",
        "EventRecord e1 on 0xa000",
        "StreamWaitEvent s1 for e1 flags 0",
        "EventRecord e1 on 0xb000",
        "StreamWaitEvent s1 for e1 flags 0",
        "LaunchKernel left grid 1 1 1 block 64 1 1 shared 0 on s1",
        "StreamSynchronize s1",
    ]
    assert [line.split(" with")[0] for line in explicit] == [
        "LaunchKernel right grid 1 1 1 block 64 1 1 shared 0 on s1",
        "EventRecord e1 on s1",
        "StreamWaitEvent 0xc000 for e1 flags 0",
        "LaunchKernel left grid 1 1 1 block 64 1 1 shared 0 on 0xc000",
    ]
    assert not any("Destroy" in line for line in lines)


@pytest.mark.llvm(22)
@GPUS
def test_each_thread_has_its_stream_and_its_device(streams: Path, kind: str) -> None:
    lines = record(streams, "threads", kind)
    assert not any("thread's stream" in line for line in lines)
    once = ["MallocAsync", "MemcpyAsync", "LaunchKernel", "MemcpyAsync", "FreeAsync"]
    for stream, device in (("0xa000", ""), ("0xb000", " @1"), ("0xc000", "")):
        calls = [line for line in lines if f" {stream}" in line]
        assert [_name(call) for call in calls] == [
            name for _ in range(20) for name in (*once, "StreamSynchronize")
        ]
        assert {call.endswith(" @1") for call in calls} == {device == " @1"}


FAILURES = [
    ({"RECORD_FAIL": "cudaStreamCreateWithFlags=46"}, "cudaStreamCreateWithFlags failed: ", "another program holds"),
    ({"RECORD_FAIL": "cudaMallocAsync=2"}, "cudaMallocAsync failed: ", "use less memory"),
    ({"RECORD_FAIL": "cudaLaunchKernel=209"}, "cudaLaunchKernel failed: ", "add --offload-arch=sm_90"),
    ({"MLIR_OFFLOAD_DEVICE": "cuda", "RECORD_DEVICES": "0"}, "cudaGetDeviceCount failed: cudaErrorNoDevice", "check nvidia-smi"),
    ({"MLIR_OFFLOAD_DEVICE": "hip", "RECORD_DEVICES": "0"}, "hipGetDeviceCount failed: hipErrorNoDevice", "MLIR_OFFLOAD_DEVICE=host"),
    ({"MLIR_OFFLOAD_DEVICE": "hip:1", "RECORD_FAIL": "hipSetDevice=101"}, "hipSetDevice failed: ", "hint: "),
    ({"MLIR_OFFLOAD_DEVICE": "cuda:2"}, "there is no device 2: 'cuda' has 2", "choose a device from 0 to 1"),
]  # fmt: skip


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("environment", "said", "hint"), FAILURES, ids=lambda value: str(value)[:40]
)
def test_a_chosen_device_that_fails_at_its_first_use_ends_the_program(
    streams: Path, environment: dict[str, str], said: str, hint: str
) -> None:
    failed = run(streams, "overlap", **environment)
    assert failed.returncode == EXIT_STATUS, failed.stdout + failed.stderr
    assert failed.stderr.startswith(f"mlir-offload: error: {said}")
    assert hint in failed.stderr.split("\n  hint: ")[0] + failed.stderr.splitlines()[-1]
    # No other device goes on in its place.
    assert "sum" not in failed.stdout
