"""Fat binaries that NVIDIA's fatbinary and nvcc write, read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlir_offload.driver.tools.choose import choose_toolkit, places_for
from mlir_offload.offload.container.fatbin import FatbinImage, read_fatbins
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.cuda import CudaToolkit
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.process import Command, ProcessRunner, run_checked

# Without indentation, which fatbinary takes away.
PTX = """\
.version 9.0
.target {target}
.address_size 64
.visible .entry kernel(.param .u64 pointer)
{{
.reg .b64 %rd<2>;
ld.param.u64 %rd1, [pointer];
st.global.u32 [%rd1], 7;
ret;
}}
"""
MODES = {"none": "", "speed": "lz4", "balance": "zstd", "size": "zstd", "default": "zstd"}
KERNEL = "__global__ void kernel(int *p) { p[threadIdx.x] = 7; }\n"


@pytest.fixture(scope="module")
def cuda() -> CudaToolkit:
    try:
        return choose_toolkit(places_for(), ProcessRunner())
    except ToolchainError as error:
        pytest.skip(f"no CUDA toolkit: {error.message}")


def run(program: object, *arguments: object) -> None:
    run_checked(ProcessRunner(), Command((str(program), *map(str, arguments))))


def ptx(directory: Path, arch: str) -> Path:
    path = directory / f"{arch}.ptx"
    path.write_text(PTX.format(target=arch), encoding="utf-8")
    return path


def cubin(cuda: CudaToolkit, directory: Path, arch: str, *options: str) -> Path:
    path = directory / f"{arch}.cubin"
    run(cuda.ptxas, f"-arch={arch}", *options, ptx(directory, arch), "-o", path)
    return path


def pack(
    cuda: CudaToolkit, directory: Path, *options: str
) -> tuple[list[FatbinImage], list[bytes]]:
    """Return the images of a fat binary, and what each of them inflates to."""
    path = directory / "images.fatbin"
    run(cuda.fatbinary, "-64", "--create", path, *options)
    with open_view(path) as view:
        images = list(read_fatbins(view))
        return images, [image.content.whole() for image in images]


@pytest.mark.parametrize("mode", MODES)
def test_every_way_to_compress_is_read(mode: str, cuda: CudaToolkit, tmp_path: Path) -> None:
    elf, text = cubin(cuda, tmp_path, "sm_90"), ptx(tmp_path, "sm_80")
    images, contents = pack(
        cuda,
        tmp_path,
        "--compress-all",
        f"--compress-mode={mode}",
        f"--image3=kind=elf,sm=90,file={elf}",
        f"--image3=kind=ptx,sm=80,file={text}",
    )
    assert [(image.kind, image.arch, image.compression) for image in images] == [
        ("elf", "sm_90", MODES[mode]),
        ("ptx", "sm_80", MODES[mode]),
    ]
    assert contents == [elf.read_bytes(), text.read_bytes()]
    assert images[1].version == (9, 0)
    assert all(image.stored_bytes <= image.size_bytes for image in images)


def test_ptx_alone_is_compressed_unless_told_otherwise(cuda: CudaToolkit, tmp_path: Path) -> None:
    elf, text = cubin(cuda, tmp_path, "sm_90"), ptx(tmp_path, "sm_80")
    inputs = (f"--image3=kind=elf,sm=90,file={elf}", f"--image3=kind=ptx,sm=80,file={text}")
    images, _ = pack(cuda, tmp_path, *inputs)
    assert [image.compression for image in images] == ["", "zstd"]
    images, contents = pack(cuda, tmp_path, "--compress=false", *inputs)
    assert [image.compression for image in images] == ["", ""]
    assert contents == [elf.read_bytes(), text.read_bytes()]


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_100f", "sm_120f"])
def test_letters_of_the_architecture_are_read(arch: str, cuda: CudaToolkit, tmp_path: Path) -> None:
    number = arch.removeprefix("sm_")
    images, contents = pack(
        cuda,
        tmp_path,
        f"--image3=kind=elf,sm={number},file={cubin(cuda, tmp_path, arch)}",
        f"--image3=kind=ptx,sm={number},file={ptx(tmp_path, arch)}",
    )
    assert [image.arch for image in images] == [arch, arch]
    assert images[0].options == ""
    assert contents[1].decode() == PTX.format(target=arch)


def test_source_options_and_debug_information_are_read(cuda: CudaToolkit, tmp_path: Path) -> None:
    images, _ = pack(
        cuda,
        tmp_path,
        "-g",
        "--ident=saxpy.cu",
        "--cmdline=-O1 --maxrregcount 40",
        f"--image3=kind=elf,sm=90,file={cubin(cuda, tmp_path, 'sm_90', '-g')}",
        f"--image3=kind=ptx,sm=80,file={ptx(tmp_path, 'sm_80')}",
    )
    assert [(image.name, image.is_debug, image.is_64_bit) for image in images] == [
        ("saxpy.cu", True, True)
    ] * 2
    assert images[1].options.startswith("-O1 --maxrregcount 40")


def test_what_nvcc_makes_for_many_targets_is_read(cuda: CudaToolkit, tmp_path: Path) -> None:
    nvcc = cuda.root / "bin" / "nvcc"
    if not nvcc.exists():
        pytest.skip("no nvcc")
    source, output = tmp_path / "kernel.cu", tmp_path / "kernel.fatbin"
    source.write_text(KERNEL, encoding="utf-8")
    targets = (
        "-gencode=arch=compute_80,code=[sm_80,lto_80]",
        "-gencode=arch=compute_100f,code=[sm_100f,compute_100f]",
    )
    run(nvcc, "-fatbin", "-rdc=true", *targets, source, "-o", output)
    with open_view(output) as view:
        images = read_fatbins(view)
        assert sorted((image.kind, image.arch) for image in images) == [
            ("elf", "sm_100f"),
            ("elf", "sm_80"),
            ("nvvm", "sm_80"),
            ("ptx", "sm_100f"),
        ]
        elf = [image.content.head(4) for image in images if image.kind == "elf"]
        assert elf == [b"\x7fELF"] * 2
    assert output.stat().st_size >= sum(image.stored_bytes for image in images)
