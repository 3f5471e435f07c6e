"""Options and attached targets of AMD GPUs, read from the code objects that come of them."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlir_offload.offload.device.code import read_device_code
from mlir_offload.offload.elf import read_elf
from mlir_offload.offload.link.objects import read_objects
from mlir_offload.toolchain.byte_view import ByteView, open_view

INPUTS = Path(__file__).parent / "inputs"
RDC = INPUTS / "rdc"
DEBIAN_LIBRARIES = Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")
DEVICE_RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
# llvm/docs/AMDGPUUsage.rst: the version in e_ident[EI_ABIVERSION], the mode of 32-bit subnormal
# numbers and the wavefront in the kernel descriptor.
ABI_VERSIONS = {4: 2, 5: 3, 6: 4}
RSRC1, PROPERTIES = 48, 56
FLUSHES, KEEPS = 0, 3

pytestmark = pytest.mark.skipif(not DEBIAN_LIBRARIES.is_dir(), reason="no rocm-device-libs")


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What a kernel descriptor says."""

    denormals_32: int
    wavefront: int


def compiled(mlir_offload: list[str], major: int, folder: Path, *options: object) -> Path:
    output = folder / "made.o"
    argv = [*mlir_offload, f"--llvm={major}", "--rocm-path=/usr", "-c", *map(str, options)]
    done = subprocess.run([*argv, "-o", output], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


def images(path: Path) -> dict[str, ByteView]:
    return {image.arch: image.content for item in read_objects(path) for image in item.images}


def code_object_version(view: ByteView) -> int:
    return next(key for key, value in ABI_VERSIONS.items() if value == view.whole()[8])


def descriptor(view: ByteView, kernel: str) -> Descriptor:
    elf = read_elf(view)
    symbol = next(item for item in elf.symbols(".symtab") if item.name == f"{kernel}.kd")
    section = next(item for item in elf.sections if item.number == symbol.section)
    content = elf.content(section).whole()[symbol.value :]
    (rsrc1,) = struct.unpack_from("<I", content, RSRC1)
    (properties,) = struct.unpack_from("<H", content, PROPERTIES)
    return Descriptor(rsrc1 >> 16 & 3, 32 if properties >> 10 & 1 else 64)


@pytest.mark.parametrize("major", DEVICE_RELEASES)
def test_options_reach_the_code_object(major: int, mlir_offload: list[str], tmp_path: Path) -> None:
    options = ["--device-code=object", "--ftz", "-Xdevice-opt", "-mcode-object-version=4"]
    archs = "--offload-arch=gfx90a:xnack+,gfx90a:xnack-,gfx1100"
    made = images(compiled(mlir_offload, major, tmp_path, archs, *options, INPUTS / "hip_program.mlir"))  # fmt: skip

    assert sorted(made) == ["gfx1100", "gfx90a:xnack+", "gfx90a:xnack-"]
    for arch, view in made.items():
        code = read_device_code(view)
        assert code is not None
        assert code.arch == arch
        assert code_object_version(view) == 4
        wavefront = 32 if arch == "gfx1100" else 64
        assert descriptor(view, "scale") == Descriptor(FLUSHES, wavefront)
        (kernel,) = code.kernels
        assert kernel.required_threads == (32, 1, 1)


@pytest.mark.llvm(22)
def test_what_a_program_attaches_reaches_the_code_object(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    options = ["--device-code=object", "--offload-arch=gfx90a:xnack+,gfx1100"]
    made = images(compiled(mlir_offload, 22, tmp_path, *options, RDC / "hip_targets.mlir"))

    first, second = made["gfx90a:xnack+"], made["gfx1100"]
    assert [code_object_version(view) for view in (first, second)] == [4, 5]
    assert descriptor(first, "run") == Descriptor(FLUSHES, 64)
    assert descriptor(second, "run") == Descriptor(KEEPS, 32)
    for view in (first, second):
        code = read_device_code(view)
        assert code is not None
        assert code.kernels[0].required_threads == (128, 2, 1)


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            ["--offload-arch=gfx90a,gfx1100", RDC / "hip_targets.mlir"],
            "+xnack contradicts the target",
        ),
        (["--offload-arch=gfx90a,gfx90a:xnack+", RDC / "hip_targets.mlir"], "one program"),
    ],
)
def test_code_that_would_not_be_what_its_image_says_is_refused(
    options: list[object], complaint: str, mlir_offload: list[str], tmp_path: Path
) -> None:
    argv = [
        *mlir_offload,
        "--rocm-path=/usr",
        "-c",
        *map(str, options),
        "-o",
        str(tmp_path / "k.o"),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert complaint in done.stderr


@pytest.mark.llvm(22)
def test_a_library_is_linked_for_its_gpu_and_kept_inside(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    libraries = []
    for arch in ("gfx90a", "gfx1100"):
        library = device_library(tmp_path, arch)
        libraries.append(f"--device-lib={arch}={library}")
    options = ["--device-code=object", "--offload-arch=gfx90a,gfx1100", "--maxrregcount=64"]
    made = images(compiled(mlir_offload, 22, tmp_path, *options, *libraries, RDC / "kernel.mlir"))

    assert sorted(made) == ["gfx1100", "gfx90a"]
    for view in made.values():
        symbols = [item for item in read_elf(view).symbols(".symtab") if item.is_global]
        assert {item.name for item in symbols} == {"run", "run.kd"}


@pytest.mark.llvm(22)
def test_a_device_function_is_called_from_mlir_and_from_hip(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    thrice = tmp_path / "thrice.o"
    bare = ("-nogpuinc", "-nogpulib", "-nohipwrapperinc", "-mcode-object-version=5")
    clang = ["/usr/lib/llvm-22/bin/clang++", "-x", "hip", "--offload-arch=gfx90a", "-fgpu-rdc"]
    form = ("--offload-new-driver", "-foffload-lto")
    subprocess.run([*clang, *bare, *form, "-c", RDC / "thrice.hip", "-o", thrice], check=True)

    files = [RDC / "kernel.mlir", RDC / "library.mlir", thrice, RDC / "main.c"]
    link = [
        *mlir_offload,
        "--rocm-path=/usr",
        "-fgpu-rdc",
        *map(str, files),
        "-o",
        str(tmp_path / "a"),
    ]
    # The link itself checks that each GPU's code object has the kernel.
    subprocess.run([*link, "--offload-arch=gfx90a"], check=True)


def device_library(folder: Path, arch: str) -> Path:
    source, library = folder / "library.c", folder / f"library.{arch}.bc"
    source.write_text("float twice(float x) { return 2 * x; }\nfloat thrice(float x) { return 3 * x; }\n")  # fmt: skip
    target = ("--target=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-nogpulib")
    form = ("-c", "-emit-llvm", "-O2", "-Xclang", "-mcode-object-version=none")
    clang = "/usr/lib/llvm-22/bin/clang"
    subprocess.run([clang, *target, *form, source, "-o", library], check=True)
    return library


# The second kernel has the attribute as mlir-translate imports it from HIP C++ and from Triton.
_LIMITED = """
module attributes {gpu.container_module} {
  gpu.module @m {
    llvm.func @range() attributes {rocdl.kernel, rocdl.flat_work_group_size = "1,256"} {
      llvm.return
    }
    llvm.func amdgpu_kernelcc @imported() attributes {passthrough = ["nofree", ["amdgpu-flat-work-group-size", "1,256"]]} {
      llvm.return
    }
    llvm.func @largest() attributes {rocdl.kernel, rocdl.max_flat_work_group_size = 256 : i64} {
      llvm.return
    }
    gpu.func @outlined() kernel attributes {rocdl.max_flat_work_group_size = 256 : i64} {
      gpu.return
    }
    llvm.func @other() attributes {rocdl.kernel, rocdl.max_flat_work_group_size = 128 : i64} {
      llvm.return
    }
    llvm.func @none() attributes {rocdl.kernel} {
      llvm.return
    }
  }
}
"""


@pytest.mark.parametrize("major", DEVICE_RELEASES)
def test_a_limit_of_256_threads_is_kept_if_the_program_states_it(
    major: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    source, code = tmp_path / "limited.mlir", tmp_path / "limited.hsaco"
    source.write_text(_LIMITED)
    words = [f"--llvm={major}", "--offload-arch=gfx90a", "--offload-device-only", "-c"]
    subprocess.run([*mlir_offload, *words, source, "-o", code], check=True)

    with open_view(code) as view:
        found = read_device_code(view)
    assert found is not None
    limits = {kernel.name: kernel.max_threads for kernel in found.kernels}
    assert limits.pop("none") == 1024
    assert limits.pop("other") == 128
    assert limits == dict.fromkeys(("range", "imported", "largest", "outlined"), 256)
