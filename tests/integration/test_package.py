"""`mlir-offload package`, next to clang-offload-packager and linked by clang-linker-wrapper."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlir_offload.driver.tools.choose import choose_toolkit, places_for
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.container.binary import read_binary
from mlir_offload.offload.container.fatbin import read_fatbins
from mlir_offload.offload.device.code import image_kernels
from mlir_offload.offload.link.dummy_image import render_dummy_image
from mlir_offload.offload.link.fatbinary_adapter import CudaTools, write_cuda_directory
from mlir_offload.offload.link.objects import read_objects
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.process import ProcessRunner

RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (15, 16, 19, 22)]
PACKAGERS = {22: "llvm-offload-binary"}
CUDA = "triple=nvptx64-nvidia-cuda,arch=sm_80,kind=cuda"
BITCODE = b"BC\xc0\xde some code"
KERNEL = """\
.version 7.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 p) {
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [p];
  st.global.u32 [%rd1], 42;
  ret;
}
"""
REGISTRATION = """\
int main(void) { return 0; }
void __cudaRegisterFatBinary(void) {}
void __cudaRegisterFatBinaryEnd(void) {}
void __cudaUnregisterFatBinary(void) {}
void __cudaRegisterFunction(void) {}
void __cudaRegisterVar(void) {}
void __cudaRegisterSurface(void) {}
void __cudaRegisterTexture(void) {}
void __cudaRegisterManagedVar(void) {}
"""


@dataclass
class Package:
    """The subcommand, run in a directory."""

    command: list[str]
    directory: Path

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [*self.command, "package", *arguments]
        return subprocess.run(argv, cwd=self.directory, capture_output=True, text=True, check=False)


@pytest.fixture
def package(mlir_offload: list[str], tmp_path: Path) -> Package:
    (tmp_path / "a.bc").write_bytes(BITCODE)
    (tmp_path / "b.o").write_bytes(BITCODE + b" and more")
    return Package(mlir_offload, tmp_path)


@pytest.mark.parametrize("major", RELEASES)
def test_the_same_arguments_give_the_bytes_of_the_packager(major: int, package: Package) -> None:
    images = [
        f"--image=file=a.bc,{CUDA},feature=+ptx83,zeta=1,foo",
        "-image=triple=x86_64-pc-linux-gnu,kind=openmp,file=b.o",
        "--image=file=b.o,triple=amdgcn-amd-amdhsa,kind=hip,arch=gfx90a,feature=a,feature=b,,=",
    ]
    program = f"/usr/lib/llvm-{major}/bin/{PACKAGERS.get(major, 'clang-offload-packager')}"
    theirs, ours = package.directory / "theirs", package.directory / "ours"
    subprocess.run([program, "-o", theirs, *images], cwd=package.directory, check=True)
    completed = package(*images, f"--for-clang={major}", "-o", "ours")
    assert (completed.returncode, completed.stderr) == (0, "")
    assert ours.read_bytes() == theirs.read_bytes()
    assert stat.S_IMODE(ours.stat().st_mode) == stat.S_IMODE(
        (package.directory / "a.bc").stat().st_mode
    )


def test_several_files_of_an_image_are_several_images(package: Package) -> None:
    completed = package(f"--image=file=a.bc,{CUDA},file=b.o", "-o=out", "--for-clang", "16")
    assert (completed.returncode, completed.stderr) == (0, "")
    images = read_binary(memory_view((package.directory / "out").read_bytes()))
    assert [image.data for image in images] == [BITCODE, BITCODE + b" and more"]


def test_the_release_that_links_is_the_default_and_named(package: Package) -> None:
    completed = package(f"--image=file=a.bc,{CUDA}", "-o", "out")
    assert completed.returncode == 0
    assert "note: packaging for LLVM " in completed.stderr
    assert "(--for-clang=" in completed.stderr


def test_no_image_makes_an_empty_file_as_with_the_packager(package: Package) -> None:
    completed = package("-o", "out", "--for-clang=22")
    assert completed.returncode == 0
    assert "no --image=" in completed.stderr
    assert (package.directory / "out").read_bytes() == b""


def test_images_come_from_a_redirected_input_and_go_to_a_pipe(package: Package) -> None:
    argv = [*package.command, "package", f"--image=file=-,{CUDA}", "--for-clang=22", "-o", "-"]
    with (package.directory / "a.bc").open("rb") as source:
        completed = subprocess.run(argv, stdin=source, capture_output=True, check=True)
    (image,) = read_binary(memory_view(completed.stdout))
    assert image.data == BITCODE


@pytest.mark.parametrize(
    ("arguments", "status", "error", "hint"),
    [
        ([], 2, "package needs an output", "add -o FILE"),
        (["-o"], 2, "option '-o' needs a value", "--help"),
        (["--images=x"], 2, "unknown option '--images=x'", "--help"),
        (["-o", "out", "a.bc"], 2, "'a.bc' is one", "mlir-offload extract"),
        (["--for-clang=", "-o", "out"], 2, "is not a release of LLVM", "--for-clang=22"),
        (["--for-clang=14", "-o", "out"], 4, "LLVM 14 is not known", "that range"),
        ([f"--image={CUDA}"], 2, "has no file", "file=FILE"),
        (["--image="], 2, "has no file", "file=FILE"),
        ([f"--image=file=a.bc,{CUDA}d"], 2, "unknown offload kind 'cudad'", "cuda, hip"),
        (["--image=file=a.bc,triple=nvptx64,kind=cuda"], 2, "has no arch", "arch=sm_90"),
        ([f"--image=file=none.o,{CUDA}"], 7, "cannot read none.o: No such file", "check the name"),
        ([f"--image=file=.,{CUDA}"], 7, "cannot read .: it is not a regular file", "name a file"),
        ([f"--image=file=x,a.bc,{CUDA}"], 7, "cannot read x:", "a file name cannot contain a comma"),
        ([f"--image=file=junk.o,{CUDA}"], 4, "junk.o: error: cannot package", "package LLVM bitcode"),
        ([f"--image=file=k.ptx,{CUDA}"], 4, "cannot package PTX for LLVM 22", "ptxas -c"),
    ],
)  # fmt: skip
def test_what_would_be_lost_is_refused_and_nothing_is_written(
    arguments: list[str], status: int, error: str, hint: str, package: Package
) -> None:
    (package.directory / "junk.o").write_bytes(b"junk")
    (package.directory / "k.ptx").write_text(KERNEL, encoding="utf-8")
    (package.directory / "out").write_bytes(b"before")
    if any(argument.startswith("--image=") for argument in arguments):
        arguments = [f"--image=file=a.bc,{CUDA}", *arguments, "--for-clang=22", "-o", "out"]
    completed = package(*arguments)
    assert completed.returncode == status
    assert error in completed.stderr
    assert hint in completed.stderr.partition("hint: ")[2]
    assert (package.directory / "out").read_bytes() == b"before"
    assert not list(package.directory.glob(".*"))


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (".", "it is a directory"),
        ("none/out", "there is no directory none"),
        ("/dev/full", "No space left on device"),
    ],
)
def test_an_output_that_cannot_be_written_is_an_error(
    output: str, error: str, package: Package
) -> None:
    completed = package(f"--image=file=a.bc,{CUDA}", "--for-clang=22", "-o", output)
    assert completed.returncode == 7
    assert f"cannot write {output}: {error}" in completed.stderr
    assert not list(package.directory.glob(".*"))


def test_an_image_is_not_overwritten_by_the_output(package: Package) -> None:
    done = package(f"--image=file=a.bc,{CUDA}", "--for-clang=22", "-o", "a.bc")
    assert done.returncode == 2
    assert "input file 'a.bc' is the same as output file" in done.stderr
    assert (package.directory / "a.bc").read_bytes() == BITCODE


@pytest.fixture(scope="module")
def cuda() -> CudaTools:
    try:
        toolkit = choose_toolkit(places_for(), ProcessRunner())
    except ToolchainError as error:
        pytest.skip(f"no CUDA toolkit: {error.message}")
    assert toolkit.ptxas
    assert toolkit.nvlink
    assert toolkit.fatbinary
    return CudaTools(toolkit.version, toolkit.ptxas, toolkit.nvlink, toolkit.fatbinary)


@dataclass
class Link:
    """Links what is packaged, with one release."""

    major: int
    cuda: CudaTools
    directory: Path

    def run(self, *argv: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [os.fspath(word) if isinstance(word, Path) else str(word) for word in argv],
            cwd=self.directory, check=False, capture_output=True,
            env={**os.environ, "PATH": f"{self.directory}/cuda/bin:{os.environ['PATH']}"},
        )  # fmt: skip

    def linked_kernels(self, binary: Path) -> frozenset[str] | None:
        """Return the kernels of the linked program's device images, or None where the link fails."""
        clang = f"/usr/lib/llvm-{self.major}/bin/clang"
        (self.directory / "images.ll").write_text(render_dummy_image(binary.read_bytes()), "utf-8")
        (self.directory / "main.c").write_text(REGISTRATION, "utf-8")
        tools = write_cuda_directory(self.directory / "cuda", self.cuda, self.major)
        for source in ("images.ll", "main.c"):
            self.run(clang, "-w", "-fPIC", "-c", source, "-o", source + ".o").check_returncode()
        arguments = load_abi(self.major).cuda_path_arguments(tools)
        inputs = ("images.ll.o", "main.c.o")
        if self.run(clang, "--offload-link", *inputs, *arguments, "-o", "program").returncode:
            return None
        return frozenset(
            kernel
            for contents in read_objects(self.directory / "program")
            for fatbin in contents.fatbins
            for image in read_fatbins(fatbin)
            if image.kind == "elf"
            for kernel in image_kernels(image.content)
        )


@pytest.mark.parametrize("major", RELEASES)
def test_what_is_refused_is_what_a_real_link_loses(
    major: int, cuda: CudaTools, package: Package
) -> None:
    link = Link(major, cuda, package.directory)
    directory = package.directory
    (directory / "k.s").write_text(KERNEL, encoding="utf-8")
    link.run(cuda.ptxas, "-c", "-arch=sm_80", "k.s", "-o", "relocatable.o").check_returncode()
    link.run(cuda.ptxas, "-arch=sm_80", "k.s", "-o", "executable.o").check_returncode()
    shutil.copy(directory / "relocatable.o", directory / "unnamed")
    for name in ("k.s", "relocatable.o", "executable.o", "unnamed"):
        image = f"--image=file={name},{CUDA}"
        is_refused = package(image, f"--for-clang={major}", "-o", "ours").returncode == 4
        program = f"/usr/lib/llvm-{major}/bin/{PACKAGERS.get(major, 'clang-offload-packager')}"
        link.run(program, "-o", "theirs", image).check_returncode()
        is_linked = link.linked_kernels(directory / "theirs") == frozenset({"kernel"})
        assert is_refused is not is_linked, name
