"""What the runtime asks of the CUDA runtime API, and what it says when that fails.

The real libcudart is used for what a machine without a GPU can show. Everything that needs a GPU
runs against a library that records the calls: it proves the calls and the messages, not CUDA.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlir_offload.driver.tools.choose import choose_toolkit, places_for
from mlir_offload.offload.runtime import (
    EXIT_STATUS,
    runtime_compile_command,
    runtime_include_directory,
    runtime_link_arguments,
)
from mlir_offload.toolchain.process import Command, Completed, ProcessRunner, run_checked
from mlir_offload.toolchain.target import Kind

INPUTS = Path(__file__).parent / "runtime"
RUNNER = ProcessRunner()
MAJOR = 22
CLANG = Path(f"/usr/lib/llvm-{MAJOR}/bin/clang")
pytestmark = pytest.mark.llvm(MAJOR)


def _run(*argv: object) -> Completed:
    return run_checked(RUNNER, Command(tuple(str(word) for word in argv)))


def _link(directory: Path, gpu_runtime: Path, kind: Kind = Kind.CUDA) -> Path:
    runtime, host, program = (directory / name for name in ("runtime.o", "host.o", "program"))
    command = runtime_compile_command(
        CLANG, runtime, kinds=(kind,), archs={Kind.CUDA: ("sm_80", "sm_90")}, fallback=False
    )
    run_checked(RUNNER, command)
    include = f"-I{runtime_include_directory()}"
    source = INPUTS / "cuda_program.c"
    defined = (f"-DLLVM_MAJOR={MAJOR}", f"-DHAVE_{kind.upper()}")
    _run(CLANG, "-fPIC", *defined, include, "-c", source, "-o", host)
    libraries = runtime_link_arguments((kind,), {kind: gpu_runtime})
    _run(CLANG, host, runtime, "-o", program, *libraries)
    return program


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program linked with a libcudart that records the calls."""
    directory = tmp_path_factory.mktemp("recorded")
    cudart = directory / "libcudart.so"
    _run(CLANG, "-shared", "-fPIC", INPUTS / "recording_cudart.c", "-o", cudart)
    return _link(directory, cudart)


def _start(program: Path, part: str, **environment: str) -> Completed:
    return RUNNER.run(Command((str(program), part), tuple(environment.items())))


def _calls(program: Path, part: str, **environment: str) -> list[str]:
    completed = _start(program, part, **environment)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert completed.stderr == ""
    return completed.stdout.splitlines()


def _error(program: Path, part: str, **environment: str) -> str:
    completed = _start(program, part, **environment)
    assert completed.returncode == EXIT_STATUS, completed.stdout + completed.stderr
    return completed.stderr


@pytest.mark.parametrize("form", ["static", "shared"])
def test_without_a_driver_the_program_says_so(form: str, tmp_path: Path) -> None:
    toolkit = choose_toolkit(places_for(), RUNNER)
    cudart = toolkit.cudart_static if form == "static" else toolkit.cudart
    assert cudart is not None
    completed = _start(_link(tmp_path, cudart), "launch", CUDA_VISIBLE_DEVICES="")
    if "cudaErrorNoDevice" in completed.stderr:
        pytest.skip("this machine has an NVIDIA driver")
    assert completed.returncode == EXIT_STATUS
    assert completed.stdout == ""
    lines = completed.stderr.splitlines()
    assert lines[0].startswith(
        "mlir-offload: error: cudaGetDeviceCount failed: cudaErrorInsufficientDriver (CUDA driver version is insufficient"
    )
    assert re.fullmatch(r"  CUDA runtime \d+\.\d in this program, no NVIDIA driver found", lines[2])
    assert re.fullmatch(
        r"  hint: install an NVIDIA driver of version \d{3} or newer, "
        r"or compile with --offload-arch=host to run on the CPU",
        lines[3],
    )


def test_launches_become_the_matching_calls(recorded: Path) -> None:
    stream = "0x1010"
    assert _calls(recorded, "all-launches") == [
        f"cudaStreamCreateWithFlags {stream} flags 1",
        f"cudaLaunchKernel grid 1 2 3 block 4 5 6 shared 0 on {stream} with 42",
        f"cudaLaunchKernel grid 1 1 1 block 4 1 1 shared 60000 on {stream} with 42",
        "attribute 4 = 2 1 1",
        "cudaLaunchKernelExC grid 8 block 32 shared 5",
        "attribute 2 = 1",
        "cudaLaunchKernelExC grid 8 block 32 shared 0",
        "attribute 4 = 4 2 1",
        "attribute 2 = 1",
        "cudaLaunchKernelExC grid 8 block 32 shared 0",
        "cudaLaunchKernel grid 9 8 7 block 6 5 4 shared 3 on 0x777 with 42",
        "ended",
        f"cudaStreamSynchronize {stream}",
    ]


def test_large_dynamic_shared_memory_is_asked_for_when_it_is_refused(recorded: Path) -> None:
    calls = _calls(recorded, "shared", CUDA_RECORD_FAIL="cudaLaunchKernel=1!")
    assert [call.split()[0] for call in calls[1:4]] == [
        "cudaLaunchKernel",
        "cudaFuncSetAttribute",
        "cudaLaunchKernel",
    ]
    assert "cudaFuncSetAttribute 8 = 60000" in calls


def test_memory_calls_hold_for_every_value(recorded: Path) -> None:
    assert _calls(recorded, "memory")[1:] == [
        "cudaMallocAsync 64 on 0x1010",
        "cudaMallocManaged 32 flags 1",
        "cudaFree memory",
        "cudaMemcpyAsync 64 bytes kind 4 on 0x1010",
        "cudaMemsetAsync 64 bytes of 0x00",
        "cudaMemsetAsync 64 bytes of 0xff",
        "cudaFree nothing",
        "cuMemsetD32Async 16 of 0x3f800000",
        "cudaMemsetAsync 64 bytes of 0x01",
        "cudaFree nothing",
        "cuMemsetD16Async 32 of 0x0102",
        # elements 0 to 18: offset 3, 3 * 5 up and 1 * -3 down, 2 bytes each; then an empty memref
        "cudaHostRegister 38 bytes flags 0",
        "cudaFreeAsync memory on 0x1010",
        "ended",
        "cudaStreamSynchronize 0x1010",
    ]


def test_memory_is_freed_in_order_and_only_its_own_stream_is_waited_for(recorded: Path) -> None:
    stream = "0x1010"
    assert _calls(recorded, "free")[1:-2] == [
        *(f"cudaMallocAsync 1 on {stream}", f"cudaFreeAsync memory on {stream}"),
        *(f"cudaMallocAsync 2 on {stream}", "cudaFreeAsync memory on (nil)"),
        *("cudaMalloc 3", f"cudaStreamSynchronize {stream}", "cudaFree memory"),
        *("cudaMallocManaged 4 flags 1", f"cudaStreamSynchronize {stream}", "cudaFree memory"),
        *("cudaMallocManaged 5 flags 1", "cudaFree memory"),
    ]


def test_memory_of_another_runtime_that_is_of_no_pool_is_freed(recorded: Path) -> None:
    calls = _calls(recorded, "memory", CUDA_RECORD_FAIL="cudaFreeAsync=1")
    assert calls[-4:-2] == ["cudaStreamSynchronize 0x1010", "cudaFree memory"]


def test_a_child_does_not_wait_for_the_streams_of_its_parent(recorded: Path) -> None:
    assert _count(_calls(recorded, "child"), "cudaStreamSynchronize") == 1


def test_a_child_that_uses_the_gpu_of_its_parent_says_so_and_does_not_hang(recorded: Path) -> None:
    completed = _start(recorded, "fork-in-a-call")
    assert f"child ended with {EXIT_STATUS}\n" in completed.stdout
    assert completed.stderr.splitlines()[0] == (
        "mlir-offload: error: device 'cuda' was in use when this process was forked"
    )


def test_tensor_maps_are_encoded_by_the_driver_innermost_dimension_first(recorded: Path) -> None:
    assert _calls(recorded, "tensor-maps")[1:-1] == [
        "cudaFree nothing",
        "address memory of element 8",
        "dimension of 256 box 32 element stride 1",
        "dimension of 128 box 64 element stride 1",
        "stride of 1024 bytes",
        "cuTensorMapEncodeTiled type 6 rank 2 interleave 0 swizzle 3 promotion 3 fill 0",
        # Kernels on any stream read it.
        "cudaMalloc 128",
        "cudaMemcpyAsync 128 bytes kind 4 on (nil)",
        "cudaStreamSynchronize (nil)",
        "cudaFree nothing",
        "address vector",
        "dimension of 1024 box 256 element stride 1",
        "cuTensorMapEncodeTiled type 7 rank 1 interleave 0 swizzle 0 promotion 0 fill 1",
        "ended",
    ]


def test_a_tensor_map_that_the_driver_refuses_is_described(recorded: Path) -> None:
    error = _error(recorded, "tensor-maps", CUDA_RECORD_FAIL="cuTensorMapEncodeTiled=1")
    assert "cuTensorMapEncodeTiled" in error
    assert "a tensor map of rank 2 at " in error
    assert "sizes 256 128, box 32 64, strides in bytes 1024" in error
    error = _error(recorded, "tensor-map-of-rank-6")
    assert "tensor map of rank 6" in error
    assert "1 to 5" in error


def test_a_device_without_memory_pools_allocates_without_a_stream(recorded: Path) -> None:
    calls = _calls(recorded, "memory", CUDA_RECORD_FAIL="cudaMallocAsync=801")
    assert calls[1:3] == ["cudaMallocAsync 64 on 0x1010", "cudaMalloc 64"]
    calls = _calls(recorded, "memory", CUDA_RECORD_FAIL="cudaFreeAsync=801")
    assert calls[-5:-2] == [
        "cudaFreeAsync memory on 0x1010",
        "cudaStreamSynchronize 0x1010",
        "cudaFree memory",
    ]


def _count(calls: list[str], name: str) -> int:
    return sum(call.startswith(f"{name} ") for call in calls)


def test_streams_that_the_lowering_forgets_do_not_add_up(recorded: Path) -> None:
    calls = _calls(recorded, "forget-streams")
    assert _count(calls, "cudaStreamCreateWithFlags") == 32
    assert _count(calls, "cudaEventCreateWithFlags") == 1
    assert _count(calls, "cudaEventRecord") == 1000


def test_forgotten_events_are_used_again_once_they_are_complete(recorded: Path) -> None:
    assert _count(_calls(recorded, "forget-events"), "cudaEventCreateWithFlags") == 256


def test_pending_events_are_not_used_again(recorded: Path) -> None:
    calls = _calls(recorded, "forget-events", CUDA_RECORD_FAIL="cudaEventQuery=600")
    assert _count(calls, "cudaEventCreateWithFlags") == 2000


def test_streams_are_made_once_and_used_again(recorded: Path) -> None:
    assert _count(_calls(recorded, "reuse"), "cudaStreamCreateWithFlags") == 3


def test_streams_with_work_left_are_shared_in_turn_beyond_a_limit(recorded: Path) -> None:
    calls = _calls(recorded, "share", CUDA_RECORD_FAIL="cudaStreamQuery=600")
    assert _count(calls, "cudaStreamCreateWithFlags") == 32
    used = [call.split()[-1] for call in calls if call.startswith("cudaEventRecord")]
    # One of them is held all the time.
    assert len(set(used[:31])) == 31
    assert used[31:62] == used[:31]


def test_a_callers_stream_is_used_and_never_destroyed(recorded: Path) -> None:
    calls = _calls(recorded, "callers-stream")
    assert calls[1:5] == [
        "cudaEventCreateWithFlags 0x1020 flags 2",
        "cudaEventRecord 0x1020 on 0xca11",
        "cudaStreamWaitEvent 0x1010 for 0x1020 flags 0",
        "cudaStreamSynchronize 0xca11",
    ]
    assert not any("Destroy" in call for call in calls)


def test_a_cooperative_launch_is_hips_own_call(recorded: Path, tmp_path: Path) -> None:
    library = tmp_path / "libamdhip64.so"
    flags = ("-DHIP", "-w", "-shared", "-fPIC", "-Wl,-soname,libamdhip64.so")
    _run(CLANG, *flags, INPUTS / "recording_gpu.c", "-o", library)
    calls = _calls(_link(tmp_path, library, Kind.HIP), "cooperative", RECORD_UNKNOWN="1")
    shape = "grid 8 1 1 block 32 1 1 shared 0 on s1"
    assert f"hipLaunchCooperativeKernel unknown {shape}" in calls
    assert "cudaLaunchKernelExC grid 8 block 32 shared 0" in _calls(recorded, "cooperative")


def test_streams_stay_with_their_device(recorded: Path) -> None:
    said = _error(recorded, "devices")
    assert "there is no device 7: 'cuda' has 2\n  hint: choose a device from 0 to 1" in said


@pytest.mark.parametrize(
    ("part", "fail", "said"),
    [
        (
            "launch",
            "cudaLaunchKernel=209",
            (
                "cudaLaunchKernel failed: cudaErrorNoKernelImageForDevice (text of 209)\n"
                "  kernel: saxpy\n"
                "  launch: grid 1 x 2 x 3, block 4 x 5 x 6, 0 bytes of dynamic shared memory\n"
                "  device: cuda:0 (sm_75)\n"
                "  no kernel image for this device: image has sm_80,sm_90, device is sm_75\n"
                "  hint: add --offload-arch=sm_75 when compiling, or compile with --offload-arch=host"
            ),
        ),
        ("launch", "cudaLaunchKernel=98", "image has sm_80,sm_90, device is sm_75"),
        (
            "memory",
            "cudaMallocAsync=2",
            (
                "cudaMallocAsync failed: cudaErrorMemoryAllocation (text of 2)\n"
                "  while allocating 64 bytes\n  device: cuda:0 (sm_75)\n  memory: 10 of 20 bytes free\n  hint: "
            ),
        ),
        (
            "synchronize",
            "cudaStreamSynchronize=700",
            "cudaStreamSynchronize failed: cudaErrorIllegalAddress (text of 700)\n  while waiting for a stream\n",
        ),
        (
            "synchronize",
            "cudaStreamSynchronize=700",
            "hint: the error belongs to a kernel or copy that was started",
        ),
        ("destroy", "cudaStreamQuery=700", "cudaStreamQuery failed: cudaErrorIllegalAddress"),
        (
            "launch",
            "cudaLaunchKernel=701",
            "limits: 1024 threads per block, 65536 bytes of shared memory per block",
        ),
        (
            "shared",
            "cudaLaunchKernel=1",
            "limits: 1024 threads per block, 65536 bytes of shared memory per block",
        ),
        ("all-launches", "__cudaPopCallConfiguration=52", "while launching saxpy from host code"),
        (
            "launch",
            "cudaGetDeviceCount=35",
            "CUDA runtime 12.4 in this program, driver for CUDA 11.8",
        ),
        (
            "launch",
            "cudaGetDeviceCount=35",
            "hint: install an NVIDIA driver of version 525 or newer",
        ),
        ("launch", "cudaGetDeviceCount=100", "hint: check nvidia-smi and CUDA_VISIBLE_DEVICES"),
    ],
)
def test_an_error_names_the_call_the_context_and_the_cure(
    recorded: Path, part: str, fail: str, said: str
) -> None:
    assert said in _error(recorded, part, CUDA_RECORD_FAIL=fail)


def test_an_error_that_nothing_waited_for_is_reported_at_exit(recorded: Path) -> None:
    completed = _start(recorded, "launch", CUDA_RECORD_FAIL="cudaStreamSynchronize=700")
    assert completed.returncode == EXIT_STATUS
    assert completed.stdout.endswith("ended\ncudaStreamSynchronize 0x1010\n")
    assert "while waiting for unfinished work at exit" in completed.stderr


def test_the_device_of_the_environment_is_made_current(recorded: Path) -> None:
    calls = _calls(recorded, "launch", MLIR_OFFLOAD_DEVICE="cuda:1")
    assert calls[0] == "cudaSetDevice 1"


def test_the_callers_current_device_is_kept_without_a_choice(recorded: Path) -> None:
    assert _count(_calls(recorded, "launch"), "cudaSetDevice") == 0
