"""Small objects with device code for real links, made by the tools of one LLVM release."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.cuda_tools import cuda_root
from support.device_image import DeviceImage, image_kind_of, serialize_binary

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.host.embed import HostKernel, embed_offload_data
from mlir_offload.offload.link.dummy_image import (
    empty_image_command,
    is_bitcode_target,
    render_dummy_image,
    targets_needing_dummy,
)
from mlir_offload.offload.link.fatbinary_adapter import CudaTools, write_cuda_directory
from mlir_offload.offload.link.objects import ObjectContents
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.process import Command, Completed, ProcessRunner, run_checked
from mlir_offload.toolchain.target import NVPTX_TRIPLE, Kind, Target, host_triple
from mlir_offload.toolchain.tool import ToolVersion

CUDA = cuda_root()
AMD_TRIPLE = "amdgcn-amd-amdhsa"
PTX_HEAD = ".version 7.8\n.target {arch}\n.address_size 64\n"
PTX = """\
.visible .entry {kernel}(.param .u64 p) {{
  .reg .u64 %a; .reg .u32 %b;
  ld.param.u64 %a, [p]; mov.u32 %b, {value}; st.global.u32 [%a], %b; ret;
}}
"""
AMD = """\
__attribute__((amdgpu_kernel, visibility("protected")))
void {kernel}(__attribute__((address_space(1))) int *p) {{ *p = {value}; }}
"""
CPU = "void {kernel}(int *p) {{ *p = {value}; }}\n"
# Definitions for linking a program without the runtimes; it is not run.
RUNTIMES = """\
void mlir_offload_launch_stub(void *stub, void *arguments) {}
int main(void) { return 0; }
"""
REGISTRATION = """\
void *__cudaRegisterFatBinary(void *b) { return b; }
void __cudaRegisterFatBinaryEnd(void *b) {}
void __cudaUnregisterFatBinary(void *b) {}
void __cudaRegisterFunction(void) {}
void __cudaRegisterVar(void) {}
void __cudaRegisterManagedVar(void) {}
void __cudaRegisterSurface(void) {}
void __cudaRegisterTexture(void) {}
"""
REGISTRATION_HIP = "".join(
    line.replace("__cuda", "__hip") + "\n" for line in REGISTRATION.splitlines()
)
REGISTRATION_OPENMP = "void __tgt_register_lib(void *d) {}\nvoid __tgt_unregister_lib(void *d) {}\n"


def target_of(kind: Kind, arch: str = "") -> Target:
    """Return a target of a kind that every tested release supports."""
    match kind:
        case Kind.CUDA:
            return Target(kind, NVPTX_TRIPLE, arch or "sm_80")
        case Kind.HIP:
            return Target(kind, AMD_TRIPLE, arch or "gfx90a")
        case _:
            return Target(kind, host_triple(), "host")


@dataclass(frozen=True, slots=True)
class LinkInputs:
    """A directory with link inputs, and the LLVM release that makes and links them."""

    major: int
    directory: Path

    @property
    def llvm(self) -> LlvmToolchain:
        """Return the release."""
        prefix = Path(f"/usr/lib/llvm-{self.major}")
        tools = (("clang", prefix / "bin" / "clang"),)
        return LlvmToolchain(prefix, ToolVersion(self.major, 0, 0), tools)

    def run(self, *argv: object, path: str = "") -> Completed:
        """Run a program; fail if it fails."""
        environment = (("PATH", path),) if path else ()
        words = tuple(str(word) for word in argv)
        return run_checked(ProcessRunner(), Command(words, environment, cwd=self.directory))

    def clang(self, *arguments: object) -> Completed:
        """Run the release's clang."""
        return self.run(self.llvm.tool("clang"), "-Wno-override-module", *arguments)

    def device_image(
        self, kind: Kind, kernels: Iterable[str], arch: str = "", value: int = 1
    ) -> DeviceImage:
        """Return a relocatable device object that defines kernels."""
        target = target_of(kind, arch)
        names = tuple(kernels)
        data = _device_object(self.major, target, names, value)
        return DeviceImage(target, data, image_kind_of(data))

    def host_object(
        self,
        name: str,
        kinds: Sequence[Kind],
        kernels: Sequence[str],
        images: Iterable[DeviceImage],
        *,
        calls: Collection[str] = (),
    ) -> Path:
        """Return an object that registers kernels and defines `use_<name>`, which calls those of other objects."""
        abi = load_abi(self.major)
        declared = "".join(f"declare void @use_{other}()\n" for other in calls)
        called = "".join(f"  call void @use_{other}()\n" for other in calls)
        text = embed_offload_data(
            f"{declared}define void @use_{name}() {{\n{called}  ret void\n}}\n",
            kernels=[HostKernel(kernel, ("ptr",)) for kernel in kernels],
            kinds=kinds,
            binary=serialize_binary(images, abi),
            abis=(abi,),
        )
        source, output = self.directory / f"{name}.ll", self.directory / f"{name}.o"
        source.write_text(text, encoding="utf-8")
        self.clang("-fPIC", "-c", source, "-o", output)
        return output

    def simple(self, name: str, *kinds: Kind, calls: Collection[str] = (), arch: str = "") -> Path:
        """Return an object with one kernel, `k_<name>`, and an image for each kind."""
        kernel = f"k_{name}"
        images = [self.device_image(kind, [kernel], arch) for kind in kinds]
        return self.host_object(name, kinds, [kernel], images, calls=calls)

    def c_object(self, name: str, text: str) -> Path:
        """Return an object compiled from C."""
        source, output = self.directory / f"{name}.c", self.directory / f"{name}.o"
        source.write_text(text, encoding="utf-8")
        self.clang("-w", "-fPIC", "-c", source, "-o", output)
        return output

    def library(self, name: str, *objects: Path, thin: bool = False) -> Path:
        """Return a static library `lib<name>.a`."""
        output = self.directory / f"lib{name}.a"
        self.run("ar", "rcsT" if thin else "rcs", output, *objects)
        return output

    def dummy_image(self, contents: Sequence[ObjectContents]) -> tuple[Path, ...]:
        """Return the dummy image object that the driver would link first; empty if it needs none."""
        abi, images = load_abi(self.major), []
        for number, target in enumerate(targets_needing_dummy(contents, abi)):
            path = self.directory / f"empty{number}.{'bc' if is_bitcode_target(target) else 'o'}"
            feature = "+ptx75" if target.triple == NVPTX_TRIPLE else ""
            self.run(*empty_image_command(self.llvm, target, path, feature=feature).argv)
            data = path.read_bytes()
            images.append(DeviceImage(target, data, image_kind_of(data)))
        if not images:
            return ()
        source, output = self.directory / "dummy.ll", self.directory / "dummy.o"
        source.write_text(render_dummy_image(serialize_binary(images, abi)), encoding="utf-8")
        self.clang("-c", source, "-o", output)
        return (output,)

    def link(self, *items: object, output: str = "program") -> Path:
        """Link with plain clang and its linker wrapper."""
        abi, result = load_abi(self.major), self.directory / output
        arguments = [str(self.llvm.tool("clang")), "--offload-link", "-fuse-ld=lld"]
        path = os.environ["PATH"]
        if CUDA.exists():
            cuda = self._cuda_directory()
            arguments += abi.cuda_path_arguments(cuda)
            path = f"{cuda / 'bin'}{os.pathsep}{path}"
        self.run(*arguments, *items, "-o", result, path=path)
        return result

    def runtimes(self) -> Path:
        """Return an object with `main` and the functions that registration calls."""
        text = RUNTIMES + REGISTRATION + REGISTRATION_HIP + REGISTRATION_OPENMP
        return self.c_object("runtimes", text)

    def _cuda_directory(self) -> Path:
        directory = self.directory / "cuda"
        if not directory.exists():
            names = ("ptxas", "nvlink", "fatbinary")
            ptxas, nvlink, fatbinary = (CUDA / "bin" / name for name in names)
            tools = CudaTools(ToolVersion(13, 0), ptxas, nvlink, fatbinary)
            write_cuda_directory(directory, tools, self.major)
        return directory


@functools.cache
def _device_object(major: int, target: Target, kernels: tuple[str, ...], value: int) -> bytes:
    """Return the device object of kernels, cached because many tests link the same ones."""
    form = {Kind.CUDA: PTX, Kind.HIP: AMD, Kind.OPENMP: CPU}[target.kind]
    text = "".join(form.format(kernel=kernel, value=value) for kernel in kernels)
    with tempfile.TemporaryDirectory() as folder:
        made = LinkInputs(major, Path(folder))
        source, output = made.directory / "source", made.directory / "device.o"
        if target.kind is Kind.CUDA:
            source.write_text(PTX_HEAD.format(arch=target.arch) + text, encoding="utf-8")
            made.run(CUDA / "bin" / "ptxas", "-c", f"-arch={target.arch}", source, "-o", output)
            return output.read_bytes()
        source.write_text(text, encoding="utf-8")
        flags: tuple[str, ...] = ("-fPIC",)
        if target.kind is Kind.HIP:
            flags = (f"--target={target.triple}", f"-mcpu={target.arch}", "-nogpulib")
        made.clang("-O1", *flags, "-x", "c", "-c", source, "-o", output)
        return output.read_bytes()
