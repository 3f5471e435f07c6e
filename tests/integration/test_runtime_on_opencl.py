"""What the runtime asks of OpenCL, what its kernels compute there, and what it says when that fails.

The results come from Intel's OpenCL for the CPU. Whatever else needs a GPU, or several devices, runs
against a library that records the calls: it proves the calls and the messages, not OpenCL.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.opencl import opencl_environment

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
TOOLS = Path(f"/usr/lib/llvm-{MAJOR}/bin")
CLANG = TOOLS / "clang"
TRIPLE = "spirv64-unknown-unknown"
INCLUDE = f"-I{runtime_include_directory()}"
LAUNCH = "clEnqueueNDRangeKernel saxpy on 1 global 1024 1 1 local 64 1 1"
pytestmark = pytest.mark.llvm(MAJOR)


def _run(*argv: object, **environment: str) -> Completed:
    words = tuple(str(word) for word in argv)
    return run_checked(RUNNER, Command(words, tuple(environment.items())))


def _package(directory: Path) -> Path:
    """Compile the kernels; return them as what is embedded into a host object."""
    bitcode, binary = directory / "kernels.bc", directory / "kernels.offload"
    flags = (f"--target={TRIPLE}", "-cl-std=CL3.0", "-Xclang", "-finclude-default-header", "-O1")
    source = INPUTS / "sycl_kernels.cl"
    _run(CLANG, *flags, "-emit-llvm", "-c", source, "-o", bitcode)
    image = f"--image=file={bitcode},kind=sycl,triple={TRIPLE},arch=generic"
    _run(TOOLS / "llvm-offload-binary", "-o", binary, image)
    return binary


def _link(directory: Path, binary: Path, kinds: tuple[Kind, ...], *flags: str) -> Path:
    runtime, host, program = (directory / name for name in ("runtime.o", "host.o", "program"))
    command = runtime_compile_command(
        CLANG, runtime, kinds=kinds, archs={}, fallback=True, extra=flags
    )
    run_checked(RUNNER, command)
    embed = ("-Xclang", f"-fembed-offload-object={binary}")
    source = INPUTS / "sycl_program.c"
    _run(CLANG, *flags, f"-DLLVM_MAJOR={MAJOR}", INCLUDE, *embed, "-c", source, "-o", host)
    libraries = runtime_link_arguments(kinds, {})
    # The wrapper looks for its tools in PATH.
    path = f"{TOOLS}:/usr/bin:/bin"
    _run(CLANG, "--offload-link", *flags, host, runtime, *libraries, "-o", program, PATH=path)
    return program


def _record(directory: Path, *flags: str) -> Path:
    """Make the libOpenCL that records the calls; return its folder."""
    output = directory / "libOpenCL.so.1"
    source = INPUTS / "recording_opencl.c"
    _run(CLANG, "-shared", "-fPIC", *flags, INCLUDE, source, "-o", output)
    return directory


@dataclass(frozen=True, slots=True)
class Built:
    """The program, and the folder of the libOpenCL that records the calls."""

    program: Path
    recorder: Path

    def start(self, part: str, **environment: str) -> Completed:
        """Run a part of the program with the recorder."""
        variables = {"LD_LIBRARY_PATH": str(self.recorder), **environment}
        return RUNNER.run(Command((str(self.program), part), tuple(variables.items())))

    def calls(self, part: str, **environment: str) -> list[str]:
        """Return what a part that succeeds asks of OpenCL."""
        completed = self.start(part, **environment)
        assert completed.returncode == 0, completed.stdout + completed.stderr
        assert completed.stderr == ""
        return completed.stdout.splitlines()

    def error(self, part: str, **environment: str) -> str:
        """Return what a part says that the runtime ends."""
        completed = self.start(part, **environment)
        assert completed.returncode == EXIT_STATUS, completed.stdout + completed.stderr
        assert "\n  hint: " in completed.stderr
        return completed.stderr


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _package(tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, binary: Path) -> Built:
    directory = tmp_path_factory.mktemp("program")
    return Built(_link(directory, binary, (Kind.SYCL,)), _record(directory))


def _binary_of_llvm_23(spirv: bytes, kernels: Sequence[str]) -> bytes:
    """Return the packager's file, version 2 (llvm/include/llvm/Object/OffloadBinary.h of LLVM 23)."""
    names = [name.encode() for name in kernels]
    starts = [
        4 + 8 * len(names) + sum(len(name) + 1 for name in names[:i]) for i in range(len(names))
    ]
    symbols = struct.pack("<I", len(names))
    symbols += b"".join(
        struct.pack("<II", start, len(name)) for start, name in zip(starts, names, strict=True)
    )
    symbols += b"".join(name + b"\0" for name in names)
    values = {b"symbols": symbols, b"arch": b"", b"triple": TRIPLE.encode()}
    strings_at, image_kind, sycl = 32 + 40, 6, 8
    table, places = b"\0", b""
    for key, value in values.items():
        key_at = strings_at + 24 * len(values) + len(table)
        table += key + b"\0"
        value_at = strings_at + 24 * len(values) + len(table)
        table += value + b"\0"
        places += struct.pack("<QQQ", key_at, value_at, len(value))
    image_at = -(-(strings_at + len(places) + len(table)) // 8) * 8
    size = image_at + len(spirv)
    header = struct.pack("<IIQQQ", 0xAD10FF10, 2, size, 32, 1)
    numbers = (strings_at, len(values), image_at, len(spirv))
    entry = struct.pack("<HHIQQQQ", image_kind, sycl, 0, *numbers)
    return (header + entry + places + table).ljust(image_at, b"\0") + spirv


def test_images_that_llvm_23_registers_are_found(binary: Path, tmp_path: Path) -> None:
    spirv, images, host, runtime = (
        tmp_path / name for name in ("kernels.spv", "images.offload", "host.o", "runtime.o")
    )
    llc = (TOOLS / "llc", f"-mtriple={TRIPLE}", "-O1", "-filetype=obj")
    _run(*llc, binary.with_name("kernels.bc"), "-o", spirv)
    kernels = ("saxpy", "turn", "types", "shape", "eight", "follow")
    images.write_bytes(_binary_of_llvm_23(spirv.read_bytes(), kernels))
    run_checked(
        RUNNER, runtime_compile_command(CLANG, runtime, kinds=(Kind.SYCL,), archs={}, fallback=True)
    )
    source = INPUTS / "sycl_program.c"
    _run(CLANG, f"-DLLVM_MAJOR={MAJOR}", INCLUDE, "-c", source, "-o", host)
    registration = (f'-DIMAGES="{images}"', INPUTS / "sycl_registration_23.c")
    libraries = runtime_link_arguments((Kind.SYCL,), {})
    _run(CLANG, *registration, host, runtime, *libraries, "-o", tmp_path / "program")
    completed = _start_on_the_cpu(tmp_path / "program", "all")
    assert (completed.returncode, completed.stdout) == (0, "ended\n"), completed.stderr


def _start_on_the_cpu(program: Path, part: str) -> Completed:
    return RUNNER.run(Command((str(program), part), tuple(opencl_environment().items())))


def test_kernels_compute_on_a_real_device(built: Built) -> None:
    completed = _start_on_the_cpu(built.program, "all")
    assert (completed.returncode, completed.stdout) == (0, "ended\n"), completed.stdout
    assert completed.stderr == ""


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            "large-block",
            "clEnqueueNDRangeKernel failed: CL_INVALID_WORK_GROUP_SIZE\n  kernel: shape",
        ),
        ("wrong-block", "\n  the kernel was compiled for blocks of 8 x 1 x 1\n"),
        ("much-shared", "1073741824 bytes of dynamic shared memory\n  limits: blocks of "),
    ],
)
def test_a_real_device_refuses_a_launch_that_is_too_large(
    built: Built, part: str, said: str
) -> None:
    completed = _start_on_the_cpu(built.program, part)
    assert completed.returncode == EXIT_STATUS
    assert said in completed.stderr


def test_a_launch_becomes_the_matching_calls(built: Built) -> None:
    assert built.calls("saxpy") == [
        "clCreateContext 1 for 3 devices",
        "clCreateCommandQueueWithProperties 1 in context 1 on device 1",
        "clDeviceMemAllocINTEL 4000 in context 1 on device 1",
        "clEnqueueMemcpyINTEL 4000 bytes on 1",
        "clFlush 1",
        "clDeviceMemAllocINTEL 4000 in context 1 on device 1",
        "clEnqueueMemcpyINTEL 4000 bytes on 1",
        "clFlush 1",
        "clCreateProgramWithIL in context 1 magic 07230203",
        "clBuildProgram for device 1 with ''",
        "clCreateKernel saxpy in context 1",
        f"{LAUNCH} with 4:00000040 pointer pointer 4:e8030000",
        "clFlush 1",
        "clEnqueueMemcpyINTEL 4000 bytes on 1",
        "clFlush 1",
        "clFinish 1",
        "clMemBlockingFreeINTEL in context 1",
        "clMemBlockingFreeINTEL in context 1",
        "ended",
        "clFinish 1",
    ]


def _of_queue(calls: list[str], queue: int) -> list[str]:
    names = (
        "clEnqueueMemcpy",
        "clEnqueueMemFill",
        "clEnqueueNDRange",
        "clEnqueueMarker",
        "clFlush",
    )
    return [
        call.split()[0]
        for call in calls
        if call.startswith(names) and (f" on {queue}" in call or call == f"clFlush {queue}")
    ]


def test_independent_chains_run_on_two_queues_and_are_joined_by_events(built: Built) -> None:
    calls = built.calls("chains")
    chain = [
        *("clEnqueueMemcpyINTEL", "clFlush", "clEnqueueMemFillINTEL", "clFlush"),
        *("clEnqueueNDRangeKernel", "clFlush", "clEnqueueMarkerWithWaitList", "clFlush"),
    ]
    assert _of_queue(calls, 1)[:8] == _of_queue(calls, 2)[:8] == chain
    joined = calls.index("clCreateCommandQueueWithProperties 3 in context 1 on device 1")
    assert not any(
        call.startswith(("clWait", "clFinish", "clEnqueueBarrier")) for call in calls[:joined]
    )
    assert [call for call in calls[joined:] if call.startswith("clEnqueueBarrier")] == [
        "clEnqueueBarrierWithWaitList on 3 for 1",
        "clEnqueueBarrierWithWaitList on 3 for 2",
    ]


def test_a_program_is_built_once_for_a_device_and_a_context(built: Built) -> None:
    assert built.calls("threads").count("clBuildProgram for device 1 with ''") == 1


def test_a_callers_queue_brings_its_device_and_its_context(built: Built) -> None:
    calls = built.calls("callers-stream")
    start = calls.index("clCreateCommandQueueWithProperties 2 in context 2 on device 0")
    own = calls[start + 1 : calls.index("clEnqueueMarkerWithWaitList 1 on 2")]
    assert [call for call in own if "context 1" in call] == [
        "clDeviceMemAllocINTEL 64 in context 1 on device 1",
        "clMemBlockingFreeINTEL in context 1",
    ]
    assert "clBuildProgram for device 0 with ''" in own
    assert "clDeviceMemAllocINTEL 4000 in context 2 on device 0" in own
    # A queue of one context cannot wait for that of another.
    assert calls[-6:] == [
        "clFlush 2",
        "clWaitForEvents 1",
        "clFinish 2",
        "clFlush 2",
        "ended",
        "clFinish 1",
    ]


def test_an_error_on_a_callers_queue_names_its_device(built: Built) -> None:
    failed = built.error("callers-stream", OPENCL_RECORD_FAIL="clBuildProgram=-11")
    assert "\n  device: sycl:2 (device 0, driver 9.0)\n" in failed


def test_work_that_names_no_stream_gets_a_queue_that_the_end_waits_for(built: Built) -> None:
    calls = built.calls("no-stream")
    assert "clEnqueueMemFillINTEL 32 bytes of 4-byte values on 2" in calls
    assert calls[-2:] == ["clFinish 1", "clFinish 2"]


def test_values_of_both_widths_are_set(built: Built) -> None:
    fills = [call for call in built.calls("fill") if call.startswith("clEnqueueMemFillINTEL")]
    assert [call.partition(" on ")[0] for call in fills] == [
        "clEnqueueMemFillINTEL 32 bytes of 4-byte values",
        "clEnqueueMemFillINTEL 16 bytes of 2-byte values",
    ]


@pytest.mark.parametrize(
    ("devices", "choice", "number"),
    [
        ("CPU,GPU,GPU", {}, 1),
        ("CPU,GPU,GPU", {"MLIR_OFFLOAD_DEVICE": "sycl"}, 1),
        ("CPU,GPU,GPU", {"MLIR_OFFLOAD_DEVICE": "sycl:1"}, 2),
        ("CPU,GPU,GPU", {"MLIR_OFFLOAD_DEVICE": "sycl:2"}, 0),
        ("CPU,GPU,GPU", {"MLIR_OFFLOAD_DEVICE": "level_zero:gpu:0"}, 1),
        ("CPU,GPU,GPU", {"MLIR_OFFLOAD_DEVICE": "opencl:gpu:1"}, 2),
        ("CPU,GPU,GPU", {"MLIR_OFFLOAD_DEVICE": "opencl:cpu:0"}, 0),
        ("GPU,CPU,CPU", {"MLIR_OFFLOAD_DEVICE": "opencl:cpu"}, 1),
        ("CPU,ACC", {}, 1),
        ("CPU", {}, 0),
    ],
)
def test_gpus_come_first(built: Built, devices: str, choice: dict[str, str], number: int) -> None:
    calls = built.calls("nothing", OPENCL_RECORD_DEVICES=devices, **choice)
    assert calls[1] == f"clCreateCommandQueueWithProperties 1 in context 1 on device {number}"


def test_a_thread_may_choose_another_device(built: Built) -> None:
    completed = built.start("devices")
    assert "clBuildProgram for device 2 with ''" in completed.stdout
    assert (
        "there is no device 7: 'sycl' has 3\n  hint: choose a device from 0 to 2"
        in completed.stderr
    )


@pytest.fixture(scope="module")
def with_the_host(tmp_path_factory: pytest.TempPathFactory, binary: Path, built: Built) -> Built:
    """Return the program for OpenCL and for the CPU itself."""
    directory = tmp_path_factory.mktemp("both")
    return Built(_link(directory, binary, (Kind.SYCL, Kind.OPENMP)), built.recorder)


@pytest.mark.parametrize(
    ("devices", "choice", "uses_opencl"),
    [
        ("CPU,GPU", "", True),
        ("CPU,ACC", "", False),
        ("CPU", "", False),
        ("CPU", "sycl", True),
        ("GPU", "host", False),
    ],
)
def test_without_a_gpu_the_cpu_itself_comes_before_opencl_on_it(
    with_the_host: Built,
    devices: str,
    choice: str,
    uses_opencl: bool,  # noqa: FBT001 (a value of the table)
) -> None:
    calls = with_the_host.calls(
        "nothing", OPENCL_RECORD_DEVICES=devices, MLIR_OFFLOAD_DEVICE=choice
    )
    assert any(call.startswith("clCreateContext") for call in calls) == uses_opencl


NO_DEVICE = {"OPENCL_RECORD_LACK": "usm"}


@pytest.mark.parametrize(
    ("part", "environment", "said"),
    [
        ("nothing", NO_DEVICE, "no OpenCL device can be used, on 1 OpenCL platform\n"),
        ("nothing", NO_DEVICE, "'device 1' cannot be used: it has no cl_intel_unified_shared_memory"),
        ("nothing", {"OPENCL_RECORD_LACK": "spirv"}, "'device 0' cannot be used: it has no SPIR-V"),
        ("nothing", {"OPENCL_RECORD_FAIL": "clGetPlatformIDs=-1001"}, "clGetPlatformIDs failed: CL_PLATFORM_NOT_FOUND_KHR"),
        ("nothing", {"OPENCL_RECORD_FAIL": "clGetPlatformIDs=-1001"}, "apt install intel-opencl-icd"),
        ("nothing", {"OPENCL_RECORD_FAIL": "clCreateContext=-6"}, "clCreateContext failed: CL_OUT_OF_HOST_MEMORY\n  while starting OpenCL"),
        ("nothing", {"MLIR_OFFLOAD_DEVICE": "sycl:x"}, "unknown device 'sycl:x' in MLIR_OFFLOAD_DEVICE"),
        ("nothing", {"MLIR_OFFLOAD_DEVICE": "opencl:cpu:x"}, "unknown device 'opencl:cpu:x' in MLIR_OFFLOAD_DEVICE"),
        ("nothing", {"MLIR_OFFLOAD_DEVICE": "level_zero:cpu:0"}, "unknown device 'level_zero:cpu:0'"),
        ("nothing", {"MLIR_OFFLOAD_DEVICE": "level_zero:gpu:7"}, "there is no GPU 7: OpenCL has"),
        ("nothing", {"MLIR_OFFLOAD_DEVICE": "hip"}, "device code is there for: sycl"),
        ("saxpy", {"OPENCL_RECORD_FAIL": "clDeviceMemAllocINTEL=-4"}, (
            "clDeviceMemAllocINTEL failed: CL_MEM_OBJECT_ALLOCATION_FAILURE\n  while allocating 4000 bytes\n"
            "  device: sycl:0 (device 1, driver 9.1)\n  memory: 65536 bytes, at most 65536 of them at a time\n"
        )),
        ("saxpy", {"OPENCL_RECORD_FAIL": "clBuildProgram=-11"}, (
            "clBuildProgram failed: CL_BUILD_PROGRAM_FAILURE\n  kernel: saxpy\n"
            "  launch: grid 16 x 1 x 1, block 64 x 1 x 1, 0 bytes of dynamic shared memory\n"
            "  build log: first fault\n  build log: second fault\n"
            "  the module is SPIR-V 1.4, the device takes: SPIR-V_1.0 SPIR-V_1.4\n"
        )),
        ("saxpy", {"OPENCL_RECORD_FAIL": "clCreateProgramWithIL=-42"}, "clCreateProgramWithIL failed: CL_INVALID_BINARY\n  kernel: saxpy"),
        ("saxpy", {"OPENCL_RECORD_FAIL": "clCreateKernel=-46"}, "clCreateKernel failed: CL_INVALID_KERNEL_NAME\n  kernel: saxpy"),
        ("saxpy", {"OPENCL_RECORD_FAIL": "clSetKernelArg=-51"}, "clSetKernelArg (argument 0) failed: CL_INVALID_ARG_SIZE\n  kernel: saxpy"),
        ("saxpy", {"OPENCL_RECORD_FAIL": "clSetKernelArgMemPointerINTEL=-50"}, "clSetKernelArgMemPointerINTEL (argument 1) failed: CL_INVALID_ARG_VALUE"),
        ("saxpy", {"OPENCL_RECORD_FAIL": "clSetKernelArgMemPointerINTEL=-50"}, "hint: pass memory that the device reaches: from gpu.alloc"),
        ("saxpy", {"OPENCL_RECORD_FAIL": "clEnqueueNDRangeKernel=-54"}, "limits: blocks of 256 work-items, 1024 x 512 x 64; 65536 bytes of shared memory"),
        ("synchronize", {"OPENCL_RECORD_FAIL": "clFinish=-9999"}, "clFinish failed: OpenCL error -9999\n  while waiting for a stream"),
        ("nothing", {"OPENCL_RECORD_FAIL": "clFinish=-5"}, "clFinish failed: CL_OUT_OF_RESOURCES"),
        ("register", {"OPENCL_RECORD_LACK": "system"}, "host memory cannot be registered on this device"),
        ("register", {"OPENCL_RECORD_LACK": "system"}, "hint: allocate the memory by gpu.alloc host_shared"),
        ("unordered", {}, "the caller's stream is a queue that runs its commands out of order"),
        ("absent", {}, "no device image of kind sycl has the kernel absent\n  kernel: absent"),
        ("cluster", {}, "cluster launches are not supported by OpenCL\n  kernel: shape"),
        ("cooperative", {}, "cooperative launches are not supported by OpenCL\n  kernel: shape"),
        ("stub", {}, "saxpy was called from host code, but this program contains no device code for a GPU"),
    ],
)  # fmt: skip
def test_an_error_names_the_call_the_context_and_the_cure(
    built: Built, part: str, environment: dict[str, str], said: str
) -> None:
    assert said in built.error(part, **environment)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "libOpenCL.so.1 was not loaded: "),
        (None, "libOpenCL.so.1 has no clGetPlatformIDs: it is too old"),
    ],
)
def test_a_library_that_cannot_be_used_is_told(
    built: Built, tmp_path: Path, content: bytes | None, said: str
) -> None:
    library, source = tmp_path / "libOpenCL.so.1", tmp_path / "empty.c"
    if content is None:
        source.write_text("int nothing;\n")
        _run(CLANG, "-shared", source, "-o", library)
    else:
        library.write_bytes(content)
    failed = Built(built.program, tmp_path).error("nothing")
    assert f"there is no OpenCL here: {said}" in failed


def test_memory_that_the_device_reaches_needs_no_registration(built: Built) -> None:
    assert "ended" in built.calls("register")


@pytest.mark.parametrize(
    ("pending", "made"), [({}, 256), ({"OPENCL_RECORD_FAIL": "pending=1"}, 400)]
)
def test_forgotten_events_are_used_again_once_they_are_complete(
    built: Built, pending: dict[str, str], made: int
) -> None:
    calls = built.calls("events", **pending)
    assert sum(call.startswith("clEnqueueMarker") for call in calls) == 400
    assert sum(call == "clReleaseEvent freed one" for call in calls) == 400 - made


def test_threads_that_launch_one_kernel_do_not_race(tmp_path: Path, binary: Path) -> None:
    flags = ("-fsanitize=thread", "-g")
    program = _link(tmp_path, binary, (Kind.SYCL,), *flags)
    calls = Built(program, _record(tmp_path, *flags)).calls("threads")
    assert sum(call.startswith("clEnqueueNDRangeKernel") for call in calls) == 200
