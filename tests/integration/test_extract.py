"""`mlir-offload extract`: what comes out is what was packaged, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.cuda_tools import assemble, cuda_tool

LLVM = Path("/usr/lib/llvm-22/bin")
PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry {0}() {{ ret; }}
"""
CUDA_TRIPLE = "nvptx64-nvidia-cuda"
PEAK_BYTES = """\
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)
"""


def extract(
    command: list[str], *arguments: str | Path, cwd: Path
) -> subprocess.CompletedProcess[str]:
    argv = [*command, "extract", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def images(tmp_path: Path) -> dict[str, Path]:
    """Return images that differ, by architecture."""
    made = {}
    for arch in ("sm_80", "sm_90"):
        made[arch] = tmp_path / f"{arch}.cubin"
        assemble(PTX.format(f"kernel_{arch}"), made[arch], f"-arch={arch}", "-c")
    return made


@pytest.fixture
def packaged(images: dict[str, Path], tmp_path: Path) -> Path:
    """Return what LLVM's own packager makes of them."""
    output = tmp_path / "images.offload"
    arguments = [
        f"--image=file={path},triple={CUDA_TRIPLE},arch={arch},kind=cuda"
        for arch, path in images.items()
    ]
    subprocess.run([LLVM / "llvm-offload-binary", "-o", output, *arguments], check=True)
    return output


pytestmark = pytest.mark.llvm(22)


def test_all_images_come_out_as_they_were_packaged(
    mlir_offload: list[str], packaged: Path, images: dict[str, Path], tmp_path: Path
) -> None:
    done = extract(mlir_offload, packaged, "-o", "out/", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    expected = {"images.0.cuda.sm_80.cubin": "sm_80", "images.1.cuda.sm_90.cubin": "sm_90"}
    assert names(out) == sorted(expected)
    for name, arch in expected.items():
        assert (out / name).read_bytes() == images[arch].read_bytes()


def test_it_agrees_with_llvm_s_own_extraction(
    mlir_offload: list[str], packaged: Path, tmp_path: Path
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    image = f"--image=file={theirs},triple={CUDA_TRIPLE},arch=sm_90,kind=cuda"
    subprocess.run([LLVM / "llvm-offload-binary", packaged, image], check=True)
    extract(mlir_offload, packaged, "--arch=sm_90", "--kind=cuda", "-o", ours, cwd=tmp_path)
    assert ours.read_bytes() == theirs.read_bytes()


def test_a_compressed_image_comes_out_inflated(
    mlir_offload: list[str], images: dict[str, Path], tmp_path: Path
) -> None:
    fatbin = tmp_path / "f"
    program = Path(cuda_tool("ptxas")).with_name("fatbinary")
    image = f"--image3=kind=elf,sm=80,file={images['sm_80']}"
    subprocess.run([program, "-64", "--compress-all", f"--create={fatbin}", image], check=True)
    assert extract(mlir_offload, fatbin, "-o", "x", cwd=tmp_path).returncode == 0
    assert (tmp_path / "x").read_bytes() == images["sm_80"].read_bytes()


def test_one_is_chosen_by_its_kernel(
    mlir_offload: list[str], packaged: Path, images: dict[str, Path], tmp_path: Path
) -> None:
    extract(mlir_offload, packaged, "--kernel=kernel_sm_90", "-o", "x", cwd=tmp_path)
    assert (tmp_path / "x").read_bytes() == images["sm_90"].read_bytes()


def test_names_are_those_that_inspect_shows(mlir_offload: list[str], tmp_path: Path) -> None:
    device, host, output = tmp_path / "device.o", tmp_path / "host.o", tmp_path / "all.offload"
    amd = ("-target", "amdgcn-amd-amdhsa", "-mcpu=gfx90a", "-nogpulib")
    for options, path in (((), host), (amd, device)):
        argv = [LLVM / "clang", *options, "-c", "-x", "c", "/dev/null", "-o", path]
        subprocess.run(argv, check=True)
    bundle = tmp_path / "amd.hipfb"
    targets = "-targets=host-x86_64-unknown-linux--,hipv4-amdgcn-amd-amdhsa--gfx90a"
    bundler = (LLVM / "clang-offload-bundler", "-type=o", targets, f"-output={bundle}")
    subprocess.run([*bundler, "-input=/dev/null", f"-input={device}"], check=True)
    image = f"--image=file={host},triple=x86_64-pc-linux-gnu,kind=openmp"
    subprocess.run([LLVM / "llvm-offload-binary", "-o", output, image], check=True)

    for_cpu = extract(mlir_offload, output, "--list", "--arch=host", cwd=tmp_path)
    for_amd = extract(mlir_offload, bundle, "--list", "--kind=hip", cwd=tmp_path)

    assert for_cpu.stdout.startswith("all.0.openmp.host.o: openmp host ELF")
    assert for_amd.stdout.startswith("amd.0.hipv4.gfx90a.hsaco: hipv4 gfx90a AMDGPU code object")


def test_one_is_chosen_by_its_format(
    mlir_offload: list[str], images: dict[str, Path], tmp_path: Path
) -> None:
    text = tmp_path / "k.ptx"
    text.write_text(PTX.format("k"))
    fatbin = tmp_path / "f"
    program = Path(cuda_tool("ptxas")).with_name("fatbinary")
    both = [
        f"--image3=kind=elf,sm=80,file={images['sm_80']}",
        f"--image3=kind=ptx,sm=80,file={text}",
    ]
    subprocess.run([program, "-64", f"--create={fatbin}", *both], check=True)
    extract(mlir_offload, fatbin, "--image-kind=ptx", cwd=tmp_path)
    (made,) = tmp_path.glob("f.*.cuda.sm_80.ptx")
    assert made.read_text() == text.read_text()


def test_the_list_writes_nothing(mlir_offload: list[str], packaged: Path, tmp_path: Path) -> None:
    before = names(tmp_path)
    done = extract(mlir_offload, packaged, "--list", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "images.0.cuda.sm_80.cubin",
        "images.1.cuda.sm_90.cubin",
    ]
    assert names(tmp_path) == before


def test_what_does_not_fit_is_an_error_that_lists_what_there_is(
    mlir_offload: list[str], packaged: Path, tmp_path: Path
) -> None:
    done = extract(mlir_offload, packaged, "--arch=sm_70", cwd=tmp_path)
    assert done.returncode == 2
    assert "has arch sm_70" in done.stderr
    assert "cuda sm_80 cubin" in done.stderr
    assert "cuda sm_90 cubin" in done.stderr


def test_several_images_and_one_file_are_an_error(
    mlir_offload: list[str], packaged: Path, tmp_path: Path
) -> None:
    done = extract(mlir_offload, packaged, "-o", "x", cwd=tmp_path)
    assert done.returncode == 2
    assert "-o x/" in done.stderr
    assert not (tmp_path / "x").exists()


def test_a_file_without_images_is_an_error_that_says_what_it_is(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    for text, form in (("# Notes\n\n    module {}\n", "text"), ("", "empty")):
        (tmp_path / "notes").write_text(text)
        done = extract(mlir_offload, "notes", cwd=tmp_path)
        assert done.returncode == 2
        assert f"contains no device image: it is {form}\n" in done.stderr


def test_nothing_is_left_where_one_image_cannot_be_written(
    mlir_offload: list[str], packaged: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    (out / "images.1.cuda.sm_90.cubin").mkdir(parents=True)
    done = extract(mlir_offload, packaged, "-o", out, cwd=tmp_path)
    assert done.returncode == 7
    assert names(out) == ["images.1.cuda.sm_90.cubin"]


def test_an_image_that_cannot_be_inflated_is_left_out_and_said(
    mlir_offload: list[str], images: dict[str, Path], tmp_path: Path
) -> None:
    fatbin, program = tmp_path / "f", Path(cuda_tool("ptxas")).with_name("fatbinary")
    both = [f"--image3=kind=elf,sm={arch[3:]},file={path}" for arch, path in images.items()]
    subprocess.run([program, "-64", "--compress-all", f"--create={fatbin}", *both], check=True)
    data = bytearray(fatbin.read_bytes())
    data[16 + 64 + 20] ^= 0xFF
    fatbin.write_bytes(data)
    done = extract(mlir_offload, fatbin, "-o", "out/", cwd=tmp_path)
    assert done.returncode == 6
    assert "warning: malformed fat binary: compressed image at offset " in done.stderr
    (made,) = (tmp_path / "out").iterdir()
    assert made.read_bytes() in [path.read_bytes() for path in images.values()]


def test_a_name_from_a_file_cannot_lead_out_of_the_directory(
    mlir_offload: list[str], images: dict[str, Path], tmp_path: Path
) -> None:
    output, place = tmp_path / "evil", tmp_path / "place"
    image = f"--image=file={images['sm_80']},triple={CUDA_TRIPLE},arch=../../up\x1b,kind=cuda"
    subprocess.run([LLVM / "llvm-offload-binary", "-o", output, image], check=True)
    done = extract(mlir_offload, output, "-o", "place/", cwd=tmp_path)
    assert names(place) == ["evil.0.cuda..._.._up_.cubin"]
    assert "\x1b" not in done.stderr


def test_images_keep_the_modes_of_the_files_that_they_replace(
    mlir_offload: list[str], packaged: Path, tmp_path: Path
) -> None:
    def modes() -> list[int]:
        return [path.stat().st_mode & 0o777 for path in sorted((tmp_path / "x").iterdir())]

    extract(mlir_offload, packaged, "-o", "x/", cwd=tmp_path)
    made, given = modes(), [0o600, 0o640]
    assert len(made) == len(given)
    for path, mode in zip(sorted((tmp_path / "x").iterdir()), given, strict=True):
        path.chmod(mode)
    extract(mlir_offload, packaged, "-o", "x/", cwd=tmp_path)
    assert modes() == given


def test_large_images_are_not_held_in_memory(fresh_mlir_offload: list[str], tmp_path: Path) -> None:
    big, output = tmp_path / "big", tmp_path / "big.offload"
    with big.open("wb") as file:
        file.write(b"\x7fOTHER")
        file.truncate(128 << 20)
    image = f"--image=file={big},triple={CUDA_TRIPLE},arch=sm_80,kind=cuda"
    subprocess.run([LLVM / "llvm-offload-binary", "-o", output, image], check=True)
    command = [*fresh_mlir_offload, "extract", str(output), "-o", str(tmp_path / "x")]
    # A process counts what its parent held when it was forked: one that holds little is between.
    measured = subprocess.run(
        [sys.executable, "-c", PEAK_BYTES, *command], check=True, capture_output=True, text=True
    )
    assert int(measured.stdout) < 64 << 20
    assert (tmp_path / "x").stat().st_size == 128 << 20
