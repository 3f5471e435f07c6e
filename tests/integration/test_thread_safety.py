"""Host threads that use the runtime at once, watched by ThreadSanitizer.

It finds two accesses that nothing orders, whether or not they happen at the same time. The GPU runtimes are
stand-ins whose own locks it does not see, so that these order nothing in the runtime.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mlir_offload.offload.runtime import (
    EXIT_STATUS,
    runtime_compile_command,
    runtime_include_directory,
)
from mlir_offload.toolchain.target import Kind

HERE = Path(__file__).parent / "runtime"
STREAMS = Path(__file__).parent / "streams"
INCLUDE = runtime_include_directory()
CLANG = Path("/usr/lib/llvm-22/bin/clang")
WATCHED = ("-fsanitize=thread", "-shared-libsan", "-g1", "-O1", "-fPIC", "-w", f"-I{INCLUDE}")
# The fibers of a block come one behind the other; what orders two blocks is to be seen.
IN_ORDER = (
    *("-DMO_TSAN", "-DMO_NO_SYNC=0u"),
    *("-D__tsan_ignore_thread_begin(x)=", "-D__tsan_ignore_thread_end(x)="),
)
REPORTED = 66
pytestmark = pytest.mark.llvm(22)

Compile = Callable[..., Path]


def command(*words: object) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the stand-ins of the GPU runtimes lie."""
    place = tmp_path_factory.mktemp("threads")
    shared = ("-shared", "-fPIC", "-w", HERE / "recording_gpu.c")
    for name, flags in (("cudart", ()), ("amdhip64", ("-DHIP",))):
        soname = f"-Wl,-soname,lib{name}.so"
        command(CLANG, *flags, *shared, soname, "-o", place / f"lib{name}.so")
    return place


def program(directory: Path, name: str, *flags: object) -> Path:
    """Return a program for every kind of device, its runtime compiled with these flags."""
    runtime, output = directory / f"{name}.o", directory / name
    kinds = (Kind.CUDA, Kind.HIP, Kind.OPENMP)
    extra = ("-fsanitize=thread", "-g1", *map(str, flags))
    made = runtime_compile_command(
        CLANG, runtime, kinds=kinds, archs={}, fallback=True, extra=extra
    )
    command(*made.argv)
    library = command(CLANG, "-print-file-name=libclang_rt.tsan-x86_64.so").strip()
    rpaths = [f"-Wl,-rpath,{place}" for place in (directory, Path(library).parent)]
    sources = (HERE / "threads_program.c", runtime, directory / "libcudart.so")
    # ThreadSanitizer's dlopen, which loads the HIP runtime, knows the old kind of rpath only.
    old = "-Wl,--disable-new-dtags"
    command(CLANG, *WATCHED, "-DLLVM_MAJOR=22", *sources, old, *rpaths, "-o", output)
    return output


def image(directory: Path, name: str, *flags: str) -> Path:
    """Return kernels for the CPU, the code that runs them compiled with these flags."""
    output = directory / name
    sources = (HERE / "threads_kernels.c", INCLUDE / "cpu_device.c")
    command(CLANG, *WATCHED, *IN_ORDER, *flags, "-shared", *sources, "-lm", "-o", output)
    return output


@pytest.fixture(scope="module")
def right(directory: Path) -> tuple[Path, Path]:
    """Return the program and its image as they are."""
    return program(directory, "right"), image(directory, "right.so")


def run(
    made: Path, kernels: Path, way: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    variables = {"RECORD_QUIET": "1", **environment}
    argv = [str(made), str(kernels), way]
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, env=variables, timeout=600
    )


@pytest.mark.parametrize("way", ["together", "in-turn", "leave"])
@pytest.mark.parametrize("threads", ["1", "4"])
def test_threads_may_use_all_devices_at_once(
    right: tuple[Path, Path], way: str, threads: str
) -> None:
    done = run(*right, way, MLIR_OFFLOAD_NUM_THREADS=threads)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


def test_of_several_threads_that_fail_one_reports(right: tuple[Path, Path]) -> None:
    done = run(*right, "fail")
    assert done.returncode == EXIT_STATUS
    assert done.stderr.count("mlir-offload: error: ") == 1
    assert done.stderr.count("  hint: ") == 1
    assert "ThreadSanitizer" not in done.stderr


def test_a_runtime_without_its_locks_is_found_out(
    directory: Path, right: tuple[Path, Path]
) -> None:
    without = program(directory, "without_locks", "-include", HERE / "without_locks.h")
    # One behind the other, so that nothing breaks: each access is still one that nothing orders. The thread
    # that watches for kernels that do not end has no turn, and is not started without a time limit.
    alone = {"MLIR_OFFLOAD_NUM_THREADS": "1", "MLIR_OFFLOAD_TIMEOUT": "0"}
    done = run(without, right[1], "in-turn", **alone)
    assert (done.returncode, done.stdout) == (REPORTED, "ended\n")
    assert "data race" in done.stderr
    assert "stream_pool.c:" in done.stderr


def test_a_program_whose_threads_launch_kernels_with_barriers_is_silent(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    made = tmp_path / "program"
    sources = (STREAMS / "streams.mlir", STREAMS / "streams.c")
    options = ("--llvm=22", "-fsanitize=thread", "--offload-arch=host", f"-I{INCLUDE}")
    command(*mlir_offload, *options, *sources, "-o", made)
    for part in ("threads", "overlap"):
        done = subprocess.run(
            [str(made), part, "host"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
