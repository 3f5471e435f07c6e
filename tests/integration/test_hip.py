"""Programs for AMD GPUs: compiled and linked by each release, and what they ask of the HIP runtime.

There is no AMD GPU here. A library that records the calls takes the place of libamdhip64; clang's
program of the same HIP C++ says which calls are right. The real library links and finds no GPU.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mlir_offload.offload.container.bundle import read_bundles
from mlir_offload.offload.device.code import read_device_code
from mlir_offload.offload.device.kernel import DeviceCode
from mlir_offload.offload.link.objects import read_objects
from mlir_offload.offload.runtime import EXIT_STATUS

HERE = Path(__file__).parent
INPUTS, EXAMPLES = HERE / "inputs", HERE.parents[1] / "docs" / "examples"
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
# A pointer, a float and an integer of 64 bits.
ARGUMENTS = {"RECORD_ARGUMENTS": "scale=848"}

SINE = """
module attributes {gpu.container_module} {
  gpu.module @m {
    gpu.func @sine(%a: memref<?xf32>) kernel {
      %i = gpu.thread_id x
      %v = memref.load %a[%i] : memref<?xf32>
      %w = math.sin %v : f32
      memref.store %w, %a[%i] : memref<?xf32>
      gpu.return
    }
  }
}
"""


def run(*argv: object, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in argv]
    variables = {"PATH": "/usr/bin:/bin", **environment}
    return subprocess.run(words, capture_output=True, text=True, env=variables, check=False)


def checked(argv: list[str], *words: object) -> None:
    done = subprocess.run([*argv, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def calls(program: Path, **environment: str) -> list[str]:
    done = run(program, **ARGUMENTS, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def hip_object(major: int, source: Path, output: Path) -> Path:
    flags = ("-fgpu-rdc", "--offload-new-driver", "-foffload-lto", "-mcode-object-version=5")
    bare = ("-nogpuinc", "-nogpulib", "-nohipwrapperinc")
    clang = f"/usr/lib/llvm-{major}/bin/clang++"
    checked(
        [clang, "-x", "hip"], "--offload-arch=gfx90a", *flags, *bare, "-c", source, "-o", output
    )
    return output


def linked_code(program: Path) -> DeviceCode:
    (contents,) = read_objects(program)
    (section,) = contents.hip_fatbins
    (part,) = [p for b in read_bundles(section) for p in b.images if p.kind.startswith("hip")]
    code = read_device_code(part.content)
    assert code is not None
    return code


@pytest.mark.parametrize("major", RELEASES)
def test_a_program_asks_the_hip_runtime_for_what_clangs_program_asks_for(
    major: int, mlir_offload: list[str], rocm_recorder: Path, tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    compiler = [*mlir_offload, f"--llvm={major}", f"--rocm-path={rocm_recorder}"]
    checked(compiler, "--offload-arch=gfx90a", INPUTS / "hip_program.mlir", "-o", ours)
    made = hip_object(major, INPUTS / "hip_program.hip", tmp_path / "theirs.o")
    library = rocm_recorder / "lib" / "libamdhip64.so"
    clang = f"/usr/lib/llvm-{major}/bin/clang++"
    rpath = f"-Wl,-rpath,{library.parent}"
    checked([clang], "--offload-link", made, library, rpath, "-o", theirs)
    expected = calls(theirs)
    assert len(expected) == 9
    assert expected[0].startswith("__hipRegisterFatBinary right version 1 __CLANG_OFFLOAD_BUNDLE__")
    assert calls(ours)[: len(expected)] == expected


@pytest.mark.parametrize("major", RELEASES)
def test_hip_cpp_launches_a_kernel_by_its_stub_and_by_its_handle(
    major: int, mlir_offload: list[str], rocm_recorder: Path, tmp_path: Path
) -> None:
    compiler = [*mlir_offload, f"--llvm={major}", f"--rocm-path={rocm_recorder}"]
    kernel, program = tmp_path / "kernel.o", tmp_path / "program"
    checked(compiler, "--offload-arch=gfx90a", "-c", INPUTS / "hip_kernel.mlir", "-o", kernel)
    caller = hip_object(major, INPUTS / "hip_caller.hip", tmp_path / "caller.o")
    checked(compiler, caller, kernel, "-o", program)
    launches = [call for call in calls(program) if call.startswith("hipLaunchKernel")]
    line = "hipLaunchKernel scale grid 2 1 1 block 32 1 1 shared 16 on default with "
    assert launches == [line + "0000000000000000 00002040 4000000000000000"] * 2


@pytest.fixture(scope="module")
def mixed(
    tmp_path_factory: pytest.TempPathFactory, mlir_offload: list[str], rocm_recorder: Path
) -> Path:
    """Return a program for two AMD GPUs and the CPU."""
    program = tmp_path_factory.mktemp("mixed") / "program"
    compiler = [*mlir_offload, "--llvm=22", f"--rocm-path={rocm_recorder}"]
    archs = "--offload-arch=gfx90a,gfx1030,host"
    checked(compiler, archs, INPUTS / "hip_program.mlir", "-o", program)
    return program


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("choice", "found", "serves"),
    [
        ({}, "2", "hip"),
        ({}, "0", "host"),
        ({"MLIR_OFFLOAD_DEVICE": "host"}, "2", "host"),
        ({"MLIR_OFFLOAD_DEVICE": "hip"}, "2", "hip"),
        ({"MLIR_OFFLOAD_DEVICE": "hip:1"}, "2", "hip:1"),
    ],
)
def test_which_kind_serves_is_chosen_when_the_program_runs(
    choice: dict[str, str], found: str, serves: str, mixed: Path
) -> None:
    made = calls(mixed, RECORD_DEVICES=found, **choice)
    launched = [call for call in made if call.startswith("hipLaunchKernel scale")]
    assert len(launched) == (0 if serves == "host" else 1)
    assert ("hipSetDevice 1 @1" in made) == (serves == "hip:1")


@pytest.mark.llvm(22)
def test_a_program_for_several_kinds_starts_without_rocm(
    mixed: Path, rocm_recorder: Path, tmp_path: Path
) -> None:
    assert "libamdhip64" not in run("readelf", "-d", mixed).stdout
    alone = Path(shutil.copy(mixed, tmp_path / "alone"))
    data = alone.read_bytes()
    # No library lies where the program looks for it.
    alone.write_bytes(
        data.replace(str(rocm_recorder).encode(), b"/x".ljust(len(str(rocm_recorder)), b"x"))
    )
    assert run(alone).returncode == 0
    failed = run(alone, MLIR_OFFLOAD_DEVICE="hip")
    assert failed.returncode == EXIT_STATUS
    assert "hipGetDeviceCount failed: hipErrorNoDevice" in failed.stderr


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (
            {"RECORD_DEVICES": "0", "MLIR_OFFLOAD_DEVICE": "hip"},
            "hipGetDeviceCount failed: hipErrorNoDevice (no ROCm-capable device is detected)",
        ),
        ({"RECORD_FAIL": "hipMallocAsync=2"}, "while allocating 256 bytes"),
        ({"RECORD_FAIL": "hipMallocAsync=2"}, "memory: 10 of 20 bytes free"),
        (
            {"RECORD_FAIL": "hipLaunchKernel=98"},
            "image has gfx1030,gfx90a, device is gfx908:sramecc+:xnack-",
        ),
        ({"RECORD_FAIL": "hipLaunchKernel=98"}, "kernel: scale"),
        ({"RECORD_FAIL": "hipStreamSynchronize=700"}, "AMD_SERIALIZE_KERNEL=3"),
        ({"MLIR_OFFLOAD_DEVICE": "hip:7"}, "there is no device 7: 'hip' has 2"),
        ({"MLIR_OFFLOAD_DEVICE": "cuda"}, "this program contains no device code for it"),
        ({"MLIR_OFFLOAD_DEVICE": "hip:x"}, "unknown device 'hip:x' in MLIR_OFFLOAD_DEVICE"),
    ],
)
def test_a_failed_call_is_told_with_its_name_and_a_cure(
    environment: dict[str, str], said: str, mixed: Path
) -> None:
    failed = run(mixed, **environment)
    assert failed.returncode == EXIT_STATUS
    assert said in failed.stderr
    assert "\n  hint: " in failed.stderr


@pytest.mark.parametrize("major", RELEASES)
def test_with_debians_runtime_a_program_says_that_there_is_no_gpu(
    major: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    program = tmp_path / "program"
    compiler = [*mlir_offload, f"--llvm={major}", "--rocm-path=/usr"]
    checked(compiler, "--offload-arch=gfx90a", INPUTS / "hip_program.mlir", "-o", program)
    failed = run(program)
    if failed.returncode == 0:
        pytest.skip("this machine has an AMD GPU")
    assert failed.returncode == EXIT_STATUS
    assert "hipGetDeviceCount failed: hipErrorNoDevice" in failed.stderr
    assert "there is no ROCm-capable device" in failed.stderr


@pytest.mark.parametrize("major", RELEASES)
@pytest.mark.parametrize("form", ["bitcode", "object"])
def test_the_linked_code_object_takes_the_arguments_that_the_host_passes(
    form: str, major: int, mlir_offload: list[str], rocm_recorder: Path, tmp_path: Path
) -> None:
    made, program = tmp_path / "program.o", tmp_path / "program"
    compiler = [*mlir_offload, f"--llvm={major}", f"--rocm-path={rocm_recorder}"]
    code_form = f"--device-code={form}"
    source = INPUTS / "hip_program.mlir"
    checked(compiler, "--offload-arch=gfx90a", code_form, "-c", source, "-o", made)
    checked(compiler, made, "-o", program)
    code = linked_code(program)
    kernel = code.kernel("scale")
    assert kernel is not None
    assert (code.arch, code.is_relocatable) == ("gfx90a", False)
    assert not [name for name in code.undefined if name.startswith("__o")]
    assert kernel.required_threads == (32, 1, 1)
    assert kernel.subgroup_size == 64
    explicit = [(p.offset, p.size_bytes) for p in kernel.parameters or () if not p.is_hidden]
    assert explicit == [(0, 8), (8, 4), (16, 8)]


CHIPS = [
    ("gfx900", 64, 19),
    ("gfx906", 64, 22),
    ("gfx942", 64, 22),
    ("gfx1030", 32, 19),
    ("gfx1201", 32, 22),
]


@pytest.mark.parametrize(
    ("arch", "wavefront", "major"),
    [pytest.param(*row, marks=pytest.mark.llvm(row[2])) for row in CHIPS],
)
def test_each_chip_gets_code_of_its_own(
    arch: str,
    wavefront: int,
    major: int,
    mlir_offload: list[str],
    rocm_recorder: Path,
    tmp_path: Path,
) -> None:
    made = tmp_path / "k.o"
    compiler = [*mlir_offload, f"--llvm={major}", f"--rocm-path={rocm_recorder}"]
    options = (f"--offload-arch={arch}", "--device-code=object", "-c")
    checked(compiler, *options, INPUTS / "hip_operations.mlir", "-o", made)
    (contents,) = read_objects(made)
    (image,) = contents.images
    code = read_device_code(image.content)
    assert code is not None
    (kernel,) = code.kernels
    assert (image.arch, code.arch) == (arch, arch)
    assert kernel.subgroup_size == wavefront
    assert kernel.max_threads == 1024


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("arch", "major", "said"),
    [
        ("gfx999", 22, "LLVM 22 does not know gfx999"),
        pytest.param("gfx1250", 19, "LLVM 21 and newer know it", marks=pytest.mark.llvm(19)),
        ("gfx9-generic", 22, "needs code object version 6"),
        ("gfx90", 22, "unknown offload architecture 'gfx90'"),
    ],
)
def test_a_chip_that_cannot_be_compiled_for_is_refused(
    arch: str, major: int, said: str, mlir_offload: list[str], rocm_recorder: Path, tmp_path: Path
) -> None:
    compiler = [*mlir_offload, f"--llvm={major}", f"--rocm-path={rocm_recorder}"]
    options = [f"--offload-arch={arch}", "-c", str(INPUTS / "hip_program.mlir")]
    failed = subprocess.run(
        [*compiler, *options, "-o", str(tmp_path / "k.o")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode != 0
    assert said in failed.stderr


@pytest.mark.llvm(19)
def test_functions_that_the_libraries_have_for_older_chips_only_are_an_error(
    mlir_offload: list[str], rocm_recorder: Path, tmp_path: Path
) -> None:
    compiler = [
        *mlir_offload,
        "--llvm=19",
        f"--rocm-path={rocm_recorder}",
        "--offload-arch=gfx1100",
    ]
    source, output = EXAMPLES / "saxpy.mlir", str(tmp_path / "k.o")
    failed = subprocess.run(
        [*compiler, "-c", str(source), "-o", output], capture_output=True, text=True, check=False
    )
    assert "the ROCm device libraries" in failed.stderr
    assert "are older than gfx1100" in failed.stderr


@pytest.mark.llvm(22)
def test_a_launcher_makes_the_same_images(
    mlir_offload: list[str], rocm_recorder: Path, tmp_path: Path
) -> None:
    compiler = [
        *mlir_offload,
        "--llvm=22",
        f"--rocm-path={rocm_recorder}",
        "--offload-arch=gfx90a,gfx1030",
    ]
    source = INPUTS / "hip_operations.mlir"
    checked(compiler, "-c", source, "-o", tmp_path / "plain.o")
    checked(compiler, "--launcher=env", "-c", source, "-o", tmp_path / "launched.o")
    for name in ("plain", "launched"):
        (contents,) = read_objects(tmp_path / f"{name}.o")
        assert [image.arch for image in contents.images] == ["gfx1030", "gfx90a"]


@pytest.mark.llvm(22)
def test_an_object_for_the_device_names_its_compiler_and_not_that_of_a_library_in_it(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source, made = tmp_path / "k.mlir", tmp_path / "k.o"
    source.write_text(SINE, encoding="utf-8")
    words = (*mlir_offload, "-c", "--offload-arch=gfx90a", "--device-code=object", source)
    done = run(*words, "-o", made)
    assert done.returncode == 0, done.stderr
    (image,) = (image for item in read_objects(made) for image in item.images)
    code = read_device_code(image.content)
    assert code is not None
    assert (code.producer, code.llvm_major) == ("mlir-offload for LLVM 22", 22)
