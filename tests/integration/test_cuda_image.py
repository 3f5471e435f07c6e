"""Device modules for CUDA: compiled, assembled, linked by each release, and looked into."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.device_image import DeviceImage, image_kind_of, serialize_binary

from mlir_offload.driver.tools.choose import choose_toolkit, places_for
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.container.fatbin import read_fatbins
from mlir_offload.offload.device.code import image_kernels
from mlir_offload.offload.host.embed import HostKernel, embed_offload_data
from mlir_offload.offload.image import ImageKind
from mlir_offload.offload.ir_syntax import kernel_signatures
from mlir_offload.offload.link.coverage import KernelImage, check_coverage, held_kernels
from mlir_offload.offload.link.dummy_image import (
    empty_image_command,
    render_dummy_image,
    targets_needing_dummy,
)
from mlir_offload.offload.link.fatbinary_adapter import CudaTools, write_cuda_directory
from mlir_offload.offload.link.objects import read_objects
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import ToolchainError, VerificationError
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.process import Command, Completed, ProcessRunner, run_checked
from mlir_offload.toolchain.ptx import ptx_isa_for
from mlir_offload.toolchain.target import Kind, Target
from mlir_offload.toolchain.tool import ToolVersion
from mlir_offload.translate.kind.cuda import (
    DeviceCodegen,
    cubin_command,
    needs_libdevice,
    nvptx_assembly_command,
    nvptx_bitcode_command,
    nvptx_device_ir,
)

if TYPE_CHECKING:
    from mlir_offload.toolchain.cuda import CudaToolkit

INPUTS = Path(__file__).parent / "inputs"
LOWERED = Path(__file__).parent.parent / "golden" / "lowered"
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
MODULES = {"kernels": ("saxpy", "other"), "second": ("__mo_k2",)}
KERNELS = frozenset({"saxpy", "other", "__mo_k2"})


@pytest.fixture(scope="module")
def cuda() -> CudaToolkit:
    try:
        return choose_toolkit(places_for(), ProcessRunner())
    except ToolchainError as error:
        pytest.skip(f"no CUDA toolkit: {error.message}")


@dataclass(frozen=True, slots=True)
class Build:
    """One release, one toolkit, one directory to work in."""

    major: int
    cuda: CudaToolkit
    directory: Path

    @property
    def llvm(self) -> LlvmToolchain:
        prefix = Path(f"/usr/lib/llvm-{self.major}")
        clang = (("clang", prefix / "bin" / "clang"),)
        return LlvmToolchain(prefix, ToolVersion(self.major, 1, 0), clang)

    def run(self, command: Command) -> Completed:
        return run_checked(ProcessRunner(), command)

    def clang(self, *arguments: object) -> Completed:
        argv = (str(self.llvm.tool("clang")), "-Wno-override-module", *map(str, arguments))
        return self.run(Command(argv))

    def codegen(self, arch: str, opt_level: int = 2) -> DeviceCodegen:
        isa = ptx_isa_for(arch, self.major, self.cuda)
        return DeviceCodegen(arch, isa, opt_level)

    def prepared(self, name: str) -> tuple[Path, Path | None]:
        """Write the device module as the back end wants it, and return libdevice if it is needed."""
        lowered = (LOWERED / f"{name}.{self.major}.ll").read_text(encoding="utf-8")
        text = nvptx_device_ir(lowered, kernels=MODULES[name], llvm_major=self.major)
        source = self.directory / f"{name}.ll"
        source.write_text(text, encoding="utf-8")
        return source, self.cuda.libdevice if needs_libdevice(text) else None

    def assembly(self, name: str, arch: str, opt_level: int = 2) -> Path:
        output = self.directory / f"{name}.{arch}.s"
        source, libdevice = self.prepared(name)
        codegen = self.codegen(arch, opt_level)
        self.run(nvptx_assembly_command(self.llvm, source, output, codegen, libdevice))
        return output

    def cubin(self, name: str, arch: str, *, is_whole: bool = False) -> Path:
        output = self.directory / f"{name}.{arch}.cubin"
        source = self.assembly(name, arch)
        codegen = self.codegen(arch)
        self.run(cubin_command(self.cuda, source, output, codegen, is_whole=is_whole))
        return output

    def bitcode(self, name: str, arch: str) -> Path:
        output = self.directory / f"{name}.{arch}.bc"
        source, libdevice = self.prepared(name)
        self.run(nvptx_bitcode_command(self.llvm, source, output, self.codegen(arch), libdevice))
        return output

    def host_object(self, images: dict[str, list[Path]]) -> Path:
        """Compile the host module with images, given per architecture."""
        signatures: dict[str, tuple[str, ...]] = {}
        for name in MODULES:
            text = (LOWERED / f"{name}.{self.major}.ll").read_text(encoding="utf-8")
            signatures |= kernel_signatures(text)
        packaged = [
            DeviceImage(Target(Kind.CUDA, "nvptx64-nvidia-cuda", arch), data, image_kind_of(data))
            for arch, paths in images.items()
            for data in (path.read_bytes() for path in paths)
        ]
        text = embed_offload_data(
            (LOWERED / f"host.{self.major}.ll").read_text(encoding="utf-8"),
            kernels=[HostKernel(symbol, types) for symbol, types in signatures.items()],
            kinds=[Kind.CUDA],
            binary=serialize_binary(packaged, load_abi(self.major)) if packaged else b"",
            abis=(load_abi(self.major),),
        )
        source, output = self.directory / "host.ll", self.directory / "host.o"
        source.write_text(text, encoding="utf-8")
        self.clang("-c", source, "-o", output)
        return output

    def link(self, *inputs: object, cubins: tuple[tuple[str, Path], ...] = ()) -> Path:
        tools = self.cuda
        assert tools.ptxas
        assert tools.nvlink
        assert tools.fatbinary
        directory = write_cuda_directory(
            self.directory / "cuda",
            CudaTools(tools.version, tools.ptxas, tools.nvlink, tools.fatbinary, cubins=cubins),
            self.major,
        )
        recorder, program = self.directory / "recorder.o", self.directory / "program"
        self.clang("-w", "-c", INPUTS / "recording_registration.c", "-o", recorder)
        abi = load_abi(self.major)
        arguments = [*abi.cuda_path_arguments(directory)]
        for _, path in cubins:
            arguments += abi.override_arguments(Kind.CUDA, path)
        argv = (self.llvm.tool("clang"), "--offload-link", *inputs, recorder, *arguments)
        search = os.pathsep.join((str(directory / "bin"), os.environ["PATH"]))
        self.run(Command((*map(str, argv), "-o", str(program)), environment=(("PATH", search),)))
        return program


@pytest.mark.parametrize("major", RELEASES)
def test_ptx_has_kernels_as_entries_and_nothing_unresolved(
    major: int, cuda: CudaToolkit, tmp_path: Path
) -> None:
    build = Build(major, cuda, tmp_path)
    for opt_level in (0, 2):
        text = build.assembly("kernels", "sm_90", opt_level).read_text(encoding="utf-8")
        assert re.findall(r"\.visible \.entry (\w+)", text) == ["saxpy", "other"]
        assert ".extern .func" not in text
        assert not re.search(r"\.visible \.func", text)
        assert re.search(r"\.extern \.shared \.align 16 \.b8 __dynamic_shmem__0\[\];", text)
        isa = build.codegen("sm_90").ptx_isa
        assert f".version {isa // 10}.{isa % 10}\n" in text


@pytest.mark.parametrize("major", RELEASES)
def test_cubins_of_two_architectures_link_and_register(
    major: int, cuda: CudaToolkit, tmp_path: Path
) -> None:
    build = Build(major, cuda, tmp_path)
    archs = ("sm_80", "sm_90")
    cubins = {arch: [build.cubin(name, arch) for name in MODULES] for arch in archs}
    assert image_kernels(memory_view(cubins["sm_80"][0].read_bytes())) == {"saxpy", "other"}
    host = build.host_object(cubins)
    program = build.link(host)
    check_coverage(program, read_objects(host))
    (contents,) = read_objects(program)
    assert held_kernels(contents) == {
        KernelImage("cuda", arch, kernel) for arch in archs for kernel in KERNELS
    }
    completed = build.run(Command((str(program),)))
    assert set(completed.stdout.splitlines()) == {f"{kernel} registered" for kernel in KERNELS}


@pytest.mark.llvm(22)
def test_linked_cubins_are_packed_as_they_are_and_registered(
    cuda: CudaToolkit, tmp_path: Path
) -> None:
    build = Build(22, cuda, tmp_path)
    # The wrapper says sm_90a for sm_90, and sm_100 for sm_100a.
    cubins = tuple(
        (arch, build.cubin("kernels", arch, is_whole=True))
        for arch in ("sm_80", "sm_90", "sm_100a")
    )
    program = build.link(build.host_object({}), cubins=cubins)
    (contents,) = read_objects(program)
    images = [image for view in contents.fatbins for image in read_fatbins(view)]
    packed = {image.arch: image.content.whole() for image in images}
    assert packed == {arch: path.read_bytes() for arch, path in cubins}
    assert len(images) == len(cubins)
    completed = build.run(Command((str(program),)))
    assert set(completed.stdout.splitlines()) == {f"{kernel} registered" for kernel in KERNELS}


@pytest.mark.parametrize("major", RELEASES)
def test_bitcode_is_compiled_by_the_link(major: int, cuda: CudaToolkit, tmp_path: Path) -> None:
    build = Build(major, cuda, tmp_path)
    host = build.host_object({"sm_90": [build.bitcode(name, "sm_90") for name in MODULES]})
    program = build.link(host)
    (contents,) = read_objects(program)
    assert {pair.kernel for pair in held_kernels(contents)} == KERNELS


@pytest.mark.llvm(22)
def test_a_kernel_that_no_image_holds_is_reported_after_the_link(
    cuda: CudaToolkit, tmp_path: Path
) -> None:
    build = Build(22, cuda, tmp_path)
    host = build.host_object({"sm_90": [build.cubin("kernels", "sm_90")]})
    program = build.link(host)
    with pytest.raises(VerificationError, match="'__mo_k2' for sm_90") as caught:
        check_coverage(program, read_objects(host))
    assert caught.value.location == str(program)


@pytest.mark.llvm(22)
def test_modules_for_a_new_architecture_link(cuda: CudaToolkit, tmp_path: Path) -> None:
    build = Build(22, cuda, tmp_path)
    host = build.host_object({"sm_100a": [build.cubin(name, "sm_100a") for name in MODULES]})
    check_coverage(build.link(host), read_objects(host))


@pytest.mark.llvm(22)
@pytest.mark.parametrize("mode", ["none", "speed", "size"])
def test_compressed_fat_binaries_are_read(mode: str, cuda: CudaToolkit, tmp_path: Path) -> None:
    build = Build(22, cuda, tmp_path)
    cubin, output = build.cubin("second", "sm_90"), tmp_path / "images.fatbin"
    options = ("-64", "--create", str(output), "--compress-all", f"--compress-mode={mode}")
    image = f"--image3=kind=elf,sm=90,file={cubin}"
    build.run(Command((str(cuda.fatbinary), *options, image)))
    (read,) = read_fatbins(memory_view(output.read_bytes()))
    assert (read.arch, read.content.whole()) == ("sm_90", cubin.read_bytes())


@pytest.mark.parametrize("major", RELEASES)
def test_a_dummy_image_gets_device_code_out_of_a_library(
    major: int, cuda: CudaToolkit, tmp_path: Path
) -> None:
    build = Build(major, cuda, tmp_path)
    host = build.host_object({"sm_90": [build.cubin(name, "sm_90") for name in MODULES]})
    library = tmp_path / "library.a"
    build.run(Command(("ar", "rc", str(library), str(host))))
    inputs = read_objects(library)
    with pytest.raises(VerificationError, match="'saxpy' for sm_90"):
        check_coverage(build.link("-Wl,-u,run", library), inputs)
    (target,) = targets_needing_dummy(inputs, load_abi(major))
    empty, source, dummy = (tmp_path / name for name in ("empty.bc", "dummy.ll", "dummy.o"))
    feature = f"+ptx{ptx_isa_for(target.arch, major, cuda)}"
    build.run(empty_image_command(build.llvm, target, empty, feature=feature))
    image = DeviceImage(target, empty.read_bytes(), ImageKind.BITCODE)
    source.write_text(
        render_dummy_image(serialize_binary([image], load_abi(major))), encoding="utf-8"
    )
    build.clang("-c", source, "-o", dummy)
    check_coverage(build.link(dummy, "-Wl,-u,run", library), inputs)
