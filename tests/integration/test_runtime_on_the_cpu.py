"""Programs that use the runtime on the CPU, through the real libomptarget and through the fallback."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlir_offload.offload.runtime import (
    EXIT_STATUS,
    runtime_compile_command,
    runtime_include_directory,
    runtime_link_arguments,
)
from mlir_offload.toolchain.process import Command, Completed, ProcessRunner, run_checked
from mlir_offload.toolchain.target import Kind, host_triple

INPUTS = Path(__file__).parent / "runtime"
RUNNER = ProcessRunner()
KINDS = (Kind.OPENMP,)
DEVICE_LINK = f"-Wl,--device-linker={host_triple()}=-lm"
# GNU ld reads the symbols of libLLVM, which libomptarget needs, for half a second.
LINKER = "-fuse-ld=lld"


@dataclass(frozen=True, slots=True)
class Consumer:
    """The LLVM release that compiles and links, and whether its libomptarget is used."""

    major: int
    fallback: bool

    @property
    def bin(self) -> Path:
        return Path(f"/usr/lib/llvm-{self.major}/bin")

    @property
    def libomptarget(self) -> Path | None:
        if self.fallback:
            return None
        found = sorted(Path(f"/usr/lib/llvm-{self.major}/lib").glob("libomptarget.so.*"))
        if not found:
            pytest.skip(f"libomptarget of LLVM {self.major} is not installed")
        return found[0]


def _consumer(major: int, *, fallback: bool) -> object:
    name = f"{major}-{'fallback' if fallback else 'libomptarget'}"
    return pytest.param(Consumer(major, fallback), marks=pytest.mark.llvm(major), id=name)


FALLBACK = [_consumer(major, fallback=True) for major in (16, 19, 22)]
REAL = [_consumer(major, fallback=False) for major in (19, 22)]
every_consumer = pytest.mark.parametrize("consumer", [*REAL, *FALLBACK], scope="module")

Build = Callable[..., Path]


def _run(*argv: object) -> Completed:
    return run_checked(RUNNER, Command(tuple(str(word) for word in argv)))


def _compile(consumer: Consumer, source: str, output: Path, *flags: str) -> Path:
    include = f"-I{runtime_include_directory()}"
    major = f"-DLLVM_MAJOR={consumer.major}"
    clang = consumer.bin / "clang"
    _run(clang, "-O1", "-g0", "-fPIC", include, major, *flags, "-c", INPUTS / source, "-o", output)
    return output


def _link(consumer: Consumer, objects: tuple[Path, ...], output: Path, *flags: str) -> Path:
    libraries = runtime_link_arguments(KINDS, {Kind.OPENMP: consumer.libomptarget})
    _run(
        consumer.bin / "clang",
        "--offload-link",
        LINKER,
        *objects,
        "-o",
        output,
        *libraries,
        DEVICE_LINK,
        *flags,
    )
    return output


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder for what the consumers of a release have in common."""
    return tmp_path_factory.mktemp("objects")


@pytest.fixture(scope="module")
def build(consumer: Consumer, objects: Path, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return a function that compiles a C program with the kernels in it, and links it."""
    directory = tmp_path_factory.mktemp("runtime")
    package = objects / f"kernels-{consumer.major}.bin"
    if not package.exists():
        kernels = _compile(consumer, "kernels.c", package.with_suffix(".o"))
        image = f"--image=file={kernels},triple={host_triple()},arch=,kind=openmp"
        _run(consumer.bin / "clang-offload-packager", "-o", package, image)
    runtime = directory / "runtime.o"
    clang = consumer.bin / "clang"
    _run(
        *runtime_compile_command(
            clang, runtime, kinds=KINDS, archs={}, fallback=consumer.fallback
        ).argv
    )

    def build_program(source: str, name: str, *flags: str, link: tuple[str, ...] = ()) -> Path:
        output = directory / name
        if output.exists():
            return output
        host = objects / f"{name}-{consumer.major}.o"
        if not host.exists():
            embed = ("-Xclang", f"-fembed-offload-object={package}")
            _compile(consumer, source, host, *flags, *embed)
        return _link(consumer, (host, runtime), output, *link)

    return build_program


def _start(
    program: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Completed:
    command = Command((str(program), *arguments), tuple((environment or {}).items()))
    return RUNNER.run(command)


def _error(program: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    completed = _start(program, *arguments, environment=environment)
    assert completed.returncode == EXIT_STATUS, completed.stderr
    assert completed.stderr.count("mlir-offload: error: ") == 1
    assert completed.stderr.count("\n  hint: ") == 1
    return completed.stderr


@every_consumer
@pytest.mark.parametrize("threads", ["1", "2", "7"])
def test_the_contract_holds_with_any_number_of_threads(build: Build, threads: str) -> None:
    program = build("cpu_program.c", "program")
    completed = _start(program, environment={"MLIR_OFFLOAD_NUM_THREADS": threads})
    assert (completed.returncode, completed.stdout) == (0, "started\nended\n"), completed.stderr
    assert completed.stderr == ""


@every_consumer
@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("negative-grid", "a kernel was launched with a grid of -1 x 1 x 1"),
        ("empty-block", "a kernel was launched with blocks of 0 x 1 x 1"),
        (
            "large-block",
            "a block has more than 1024 threads\n  kernel: count\n  launch: grid 1 x 1 x 1, block 32 x 32 x 2",
        ),
        ("cluster", "a grid is not a multiple of its clusters\n  kernel: count"),
        ("cooperative", "cooperative launches are not supported on the CPU\n  kernel: count"),
        ("kernel", "threads of one block wait at different barriers\n  kernel: failing"),
        (
            "stub",
            "count was called from host code, but this program contains no device code for a GPU",
        ),
        ("device-number", "there is no device 99: 'host' has "),
        ("device-name", "unknown device 'cuda:' in mlir_offload_set_device"),
        (
            "memory",
            "posix_memalign failed: ENOMEM (out of memory)\n  while allocating 4611686018427387904 bytes",
        ),
    ],
)
def test_an_error_names_what_failed_and_ends_the_program(
    build: Build, part: str, said: str
) -> None:
    assert f"mlir-offload: error: {said}" in _error(build("cpu_program.c", "program"), part)


@pytest.mark.parametrize("consumer", REAL[-1:], scope="module")
@pytest.mark.parametrize("is_newer", [True, False], ids=["newer", "as old"])
def test_a_libomptarget_that_calls_kernels_otherwise_launches_none_of_ours(
    build: Build, consumer: Consumer, tmp_path: Path, *, is_newer: bool
) -> None:
    program, library = build("cpu_program.c", "program"), tmp_path / "newer.so"
    flags = ("-shared", "-fPIC", *(("-DNEWER",) if is_newer else ()))
    _run(consumer.bin / "clang", *flags, INPUTS / "newer_libomptarget.c", "-o", library)
    done = _start(program, environment={"LD_PRELOAD": str(library)})
    if is_newer:
        assert (done.returncode, done.stdout) == (0, "started\nended\n"), done.stderr
    else:
        assert "__tgt_target_kernel failed: the kernel was not launched" in done.stderr


@every_consumer
def test_the_files_of_images_are_gone_when_the_program_has_ended(
    build: Build, consumer: Consumer
) -> None:
    done = _start(build("cpu_program.c", "program"), "images")
    files = [Path(line) for line in done.stdout.splitlines() if "tmpfile_" in line]
    assert done.returncode == 0, done.stderr
    assert bool(files) is not consumer.fallback
    assert not any(file.exists() for file in files)


@every_consumer
def test_a_caller_handles_errors_and_goes_on(build: Build) -> None:
    program, parts = build("cpu_program.c", "program"), ("large-block", "kernel", "stub", "memory")
    done = _start(program, "handle", *parts)
    assert (done.returncode, done.stderr) == (0, ""), done
    reports = [part.splitlines() for part in done.stdout.split("mlir-offload: error: ")[1:]]
    assert [report[0] for report in reports] == [
        "a block has more than 1024 threads",
        "threads of one block wait at different barriers",
        "count was called from host code, but this program contains no device code for a GPU of NVIDIA or AMD",
        "posix_memalign failed: ENOMEM (out of memory)",
    ]
    assert all(
        "  hint: " in report[-1 - (part == "memory")]
        for part, report in zip(parts, reports, strict=True)
    )
    assert _start(program, "twice", "kernel").returncode == 0


@every_consumer
@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("MLIR_OFFLOAD_DEVICE", "gpu", "unknown device 'gpu' in MLIR_OFFLOAD_DEVICE"),
        (
            "MLIR_OFFLOAD_DEVICE",
            "cuda:0",
            "device 'cuda' was chosen, but this program contains no device code",
        ),
        ("MLIR_OFFLOAD_NUM_THREADS", "0", "MLIR_OFFLOAD_NUM_THREADS is '0'"),
        ("MLIR_OFFLOAD_NUM_THREADS", "two", "MLIR_OFFLOAD_NUM_THREADS is 'two'"),
        ("OMP_TARGET_OFFLOAD", "disabled", "OMP_TARGET_OFFLOAD is 'disabled'"),
    ],
)
def test_a_wrong_environment_is_refused(build: Build, variable: str, value: str, said: str) -> None:
    assert said in _error(build("cpu_program.c", "program"), environment={variable: value})


@every_consumer
def test_the_device_can_be_chosen_by_name(build: Build) -> None:
    completed = _start(
        build("cpu_program.c", "program"), environment={"MLIR_OFFLOAD_DEVICE": "host"}
    )
    assert (completed.returncode, completed.stderr) == (0, "")


# The real libomptarget crashes on this; there the linked program is checked before it is kept.
@pytest.mark.parametrize("consumer", FALLBACK, scope="module")
def test_a_kernel_that_the_image_lacks_is_named(build: Build) -> None:
    said = _error(build("cpu_program.c", "absent", "-DWITH_ABSENT_KERNEL"), "absent")
    assert "kernel absent is not in the device image for the CPU" in said


@every_consumer
def test_libraries_with_kernels_can_be_loaded_and_unloaded_side_by_side(
    build: Build, tmp_path: Path
) -> None:
    first = build("library.c", "libfirst.so", link=("-shared",))
    second = Path(shutil.copy(first, tmp_path / "libsecond.so"))
    program = build("library_user.c", "library_user")
    completed = _start(
        program, str(first), str(second), environment={"MLIR_OFFLOAD_NUM_THREADS": "3"}
    )
    assert (completed.returncode, completed.stdout) == (0, "ended\n"), completed.stderr


@every_consumer
def test_libraries_with_kernels_share_what_the_program_sets(
    build: Build, consumer: Consumer, tmp_path: Path
) -> None:
    renamed = ("-Drun_library=run_other", "-Dstream_of_library=stream_of_other")
    libraries = (
        build("library.c", "libfirst.so", link=("-shared",)),
        build("library.c", "libother.so", *renamed, link=("-shared",)),
    )
    user = _compile(consumer, "linked_user.c", tmp_path / "user.o")
    program = tmp_path / "user"
    _run(
        *(consumer.bin / "clang", LINKER, user, *libraries),
        *(f"-Wl,-rpath,{libraries[0].parent}", "-o", program),
    )
    completed = _start(program)
    assert (completed.returncode, completed.stdout) == (0, "ended\n"), completed.stderr
    assert "device 'cuda' was chosen, but this program contains no device code for it" in _error(
        program, "cuda"
    )
