"""Programs that load and unload libraries with kernels, fork, close descriptors and end at any time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.stress import FACTOR

from mlir_offload.offload.runtime import (
    EXIT_STATUS,
    runtime_compile_command,
    runtime_include_directory,
    runtime_link_arguments,
)
from mlir_offload.toolchain.target import Kind, host_triple

INPUTS = Path(__file__).parent / "runtime"
BIN = Path("/usr/lib/llvm-22/bin")
CLANG = BIN / "clang"
# GNU ld reads the symbols of libLLVM, which libomptarget needs, for half a second.
LINK = ("--offload-link", "-fuse-ld=lld")
COMPILE = ("-O1", "-g0", "-w", "-fPIC", "-DLLVM_MAJOR=22", f"-I{runtime_include_directory()}", "-c")
KINDS = (Kind.OPENMP,)
MARKS = {"program": 1, "first": 2, "second": 3}
RELEASES = ((22, 22), (19, 19), (22, 19), (22, 16))
NO_GUARDS = "-DMADV_GUARD_INSTALL=-1"
pytestmark = pytest.mark.llvm(22)


@dataclass(frozen=True, slots=True)
class Built:
    """A program with kernels, and two libraries with the same ones."""

    program: Path
    first: Path
    second: Path


def command(*words: object) -> None:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def embedded_image(directory: Path, name: str, *flags: str) -> tuple[str, ...]:
    """Return the flags of clang that put these kernels into an object."""
    kernels, package = directory / f"{name}_kernels.o", directory / f"{name}.bin"
    command(CLANG, *COMPILE, *flags, INPUTS / "lifetime_kernels.c", "-o", kernels)
    image = f"--image=file={kernels},triple={host_triple()},arch=,kind=openmp"
    command(BIN / "clang-offload-packager", "-o", package, image)
    return ("-Xclang", f"-fembed-offload-object={package}")


def compile_hosts(directory: Path, names: Iterable[str], *flags: str) -> dict[str, Path]:
    """Compile the program or libraries without their main function; `flags` are for the kernels."""
    found = {name: directory / f"{name}.o" for name in names}
    for name, output in found.items():
        image = embedded_image(directory, name, f"-DMARK={MARKS[name]}", *flags)
        command(CLANG, *COMPILE, *image, INPUTS / "lifetime_library.c", "-o", output)
    return found


def build(
    directory: Path, hosts: Mapping[str, Path], main: Path, libomptarget: Path | None
) -> Built:
    """Link what these objects are of with a runtime."""
    runtime = directory / "runtime.o"
    made = runtime_compile_command(
        CLANG, runtime, kinds=KINDS, archs={}, fallback=libomptarget is None
    )
    command(*made.argv)
    libraries = runtime_link_arguments(KINDS, {Kind.OPENMP: libomptarget})
    for name, host in hosts.items():
        how = (main, "-Wl,--export-dynamic-symbol=*") if name == "program" else ("-shared",)
        command(CLANG, *LINK, host, runtime, *how, *libraries, "-lm", "-o", directory / name)
    return Built(*(directory / name for name in MARKS))


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return compile_hosts(tmp_path_factory.mktemp("hosts"), MARKS)


@pytest.fixture(scope="module")
def main(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("main") / "main.o"
    command(CLANG, *COMPILE, INPUTS / "lifetime_program.c", "-o", output)
    return output


@pytest.fixture(scope="module", params=["fallback", "libomptarget"])
def built(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    hosts: dict[str, Path],
    main: Path,
) -> Built:
    library = None
    if request.param == "libomptarget":
        library = Path("/usr/lib/llvm-22/lib/libomptarget.so.22.1")
    return build(tmp_path_factory.mktemp(request.param), hosts, main, library)


@pytest.fixture(scope="module")
def fallback(tmp_path_factory: pytest.TempPathFactory, main: Path) -> Built:
    """Return a program alone, whose threads have canaries instead of guard pages."""
    directory = tmp_path_factory.mktemp("canaries")
    return build(directory, compile_hosts(directory, ("program",), NO_GUARDS), main, None)


def run(
    built: Built, way: str, count: int = 1, **environment: str
) -> subprocess.CompletedProcess[str]:
    argv = [str(built.program), way, str(count), str(built.first), str(built.second)]
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, env=environment, timeout=600
    )


def ends(done: subprocess.CompletedProcess[str]) -> bool:
    return (done.returncode, done.stdout.splitlines()[-1:], done.stderr) == (0, ["ended"], "")


def test_a_device_chosen_by_a_library_is_still_chosen_when_the_library_is_gone(
    built: Built,
) -> None:
    done = run(built, "device")
    assert ends(done), done


LOAD_AND_UNLOAD = """
import _ctypes, ctypes, pathlib, sys
maps = pathlib.Path("/proc/self/maps")
def cycle():
    library = ctypes.CDLL(sys.argv[1])
    assert library.mark() == 2
    assert library.meet() == 0
    _ctypes.dlclose(library._handle)
    return maps.read_text().count("\\n")
first = [cycle() for _ in range(10)][-1]
last = [cycle() for _ in range(int(sys.argv[2]))][-1]
print(last - first)
"""


@pytest.mark.soak
def test_libraries_leave_nothing_behind_when_they_are_unloaded(built: Built) -> None:
    argv = [sys.executable, "-c", LOAD_AND_UNLOAD, str(built.first), str(90 * FACTOR)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert int(done.stdout) <= 2


@pytest.mark.soak
def test_many_threads_run_the_largest_blocks_at_once(built: Built) -> None:
    done = run(built, "threads", 64, MLIR_OFFLOAD_NUM_THREADS="1")
    assert ends(done), done
    assert int(done.stdout.splitlines()[0]) <= 100


def test_a_child_of_a_program_that_is_loading_kernels_can_load_them(built: Built) -> None:
    done = run(built, "fork")
    assert ends(done), done


@pytest.mark.soak
def test_a_program_may_fork_at_any_time_of_its_first_launch(built: Built) -> None:
    done = run(built, "forks", 10 * FACTOR)
    assert ends(done), done


def test_a_program_may_close_all_descriptors(built: Built) -> None:
    done = run(built, "descriptors")
    assert ends(done), done


def test_closed_standard_streams_stay_closed(built: Built) -> None:
    done = run(built, "streams")
    assert ends(done), done


def test_a_program_ends_while_its_threads_are_in_kernels(built: Built) -> None:
    done = run(built, "end", MLIR_OFFLOAD_NUM_THREADS="3")
    assert ends(done), done


def test_the_stack_of_a_work_item_has_a_guard_page(built: Built) -> None:
    assert run(built, "overflow").returncode == -11


def test_a_used_up_stack_is_reported_if_linux_has_no_guard_pages_without_mappings(
    fallback: Built,
) -> None:
    done = run(fallback, "overflow")
    assert done.returncode == EXIT_STATUS
    assert "mlir-offload: error: a thread used more than 256 KiB of stack" in done.stderr
    assert "kernel: overflow" in done.stderr


@pytest.fixture(scope="module")
def libraries(
    tmp_path_factory: pytest.TempPathFactory, mlir_offload: list[str], cuda_recorder: Path
) -> list[Path]:
    """Return libraries of each release that lowers and links, of each runtime, and for two kinds."""
    directory = tmp_path_factory.mktemp("libraries")
    source = INPUTS / "many_libraries.mlir"
    made = [
        *((f"--llvm={lower}", f"--for-clang={link}") for lower, link in RELEASES),
        ("--llvm=22", f"--cuda-path={cuda_recorder}", "--offload-arch=sm_90"),
    ]
    paths = [directory / f"{number}.so" for number in range(len(made) + 1)]
    for options, path in zip(made, paths, strict=False):
        shared = ("-shared", "-fPIC", "--offload-arch=host", *options)
        command(*mlir_offload, *shared, source, "-o", path)
    embedding, embedded = ("--embed-runtime", "-fPIC", "-c"), directory / "embedded.o"
    command(*mlir_offload, "--llvm=22", *embedding, "--offload-arch=host", source, "-o", embedded)
    command(CLANG, *LINK, "-shared", embedded, "-ldl", "-lpthread", "-o", paths[-1])
    return paths


@pytest.mark.llvm(16)
@pytest.mark.llvm(19)
def test_libraries_of_every_release_and_kind_work_in_one_process(libraries: list[Path]) -> None:
    argv = [sys.executable, str(INPUTS / "many_libraries.py"), *map(str, libraries)]
    environment = {"MLIR_OFFLOAD_DEVICE": "host", "RECORD_QUIET": "1"}
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=300, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "ended"


@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_callbacks_between_launches_may_throw_and_end_their_thread(
    mlir_offload: list[str], tmp_path: Path, level: str
) -> None:
    program = tmp_path / "program"
    sources = (INPUTS / "callbacks.mlir", INPUTS / "callbacks.cpp")
    command(*mlir_offload, "--llvm=22", "--offload-arch=host", level, *sources, "-o", program)
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=300)
    assert ends(done), done


UNLOAD_BEFORE_THE_THREAD_ENDS = """
import _ctypes, ctypes, sys, threading
library = ctypes.CDLL(sys.argv[1])
used, unloaded = threading.Event(), threading.Event()
def use():
    library.use()
    used.set()
    unloaded.wait()
thread = threading.Thread(target=use)
thread.start()
used.wait()
_ctypes.dlclose(library._handle)
unloaded.set()
thread.join()
print("ended")
"""


def test_a_thread_that_used_sparse_matrices_may_end_after_the_library_is_gone(
    tmp_path: Path,
) -> None:
    cudart, library = tmp_path / "libcudart.so", tmp_path / "library.so"
    command(CLANG, "-w", "-shared", "-fPIC", INPUTS / "recording_sparse.c", "-o", cudart)
    flags = (
        "-w",
        "-shared",
        "-fPIC",
        "-DMLIR_OFFLOAD_HAVE_CUDA",
        f"-I{runtime_include_directory()}",
    )
    command(CLANG, *flags, INPUTS / "sparse_library.c", cudart, "-o", library)
    argv = [sys.executable, "-c", UNLOAD_BEFORE_THE_THREAD_ENDS, str(library)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300, env={})
    assert (done.returncode, done.stderr) == (0, "")
    assert "cusparseCreate h1\n" in done.stdout
