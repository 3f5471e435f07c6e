"""How a bundle is linked by clang alone: its `README.md`, `link.sh`, and `images.s`.

The commands are those that the compiler itself runs. Only the container of the device images is made
another way: the assembler writes it, so that no program but clang is needed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from msgspec import Struct

from mlir_offload.offload.abi import fatbinary_without_image, known_majors, load_abi
from mlir_offload.offload.container.binary_layout import ENTRY, HEADER, MAGIC
from mlir_offload.offload.container.mob_manifest import MobDevice, MobManifest
from mlir_offload.offload.image import ImageKind
from mlir_offload.offload.runtime import (
    loads_hip,
    runtime_compile_command,
    runtime_include_directory,
)
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.ptx import ptx_isa_for
from mlir_offload.toolchain.rocm import DeviceMath, common_code_object, device_library_names
from mlir_offload.toolchain.target import Kind, Target
from mlir_offload.toolchain.version import ToolVersion
from mlir_offload.translate.amdgpu import AmdgpuCodegen, amdgpu_image_command
from mlir_offload.translate.cpu.module import cpu_image_command, cpu_runtime_command
from mlir_offload.translate.device import (
    DeviceCodegen,
    links_library_into_ir,
    nvptx_object_command,
)

RUNTIME = "runtime"
IMAGES = "images.s"
_CPU_RUNTIME = "cpu_device.bc"
_CPU_RUNTIME_OBJECT = "cpu_device.o"
_CUDA = "${CUDA_PATH:-/usr/local/cuda}"
_ROCM = "${ROCM_PATH:-/opt/rocm}"
_ROCM_LIBRARIES = f"${{HIP_DEVICE_LIB_PATH:-{_ROCM}/amdgcn/bitcode}}"
# What stands for them until the words are written for the shell.
_CUDA_PLACE, _ROCM_PLACE = "@CUDA@", "@ROCM@"
_PLACES = {_CUDA_PLACE: _CUDA, _ROCM_PLACE: _ROCM_LIBRARIES}
_IMAGE = """\
.Lstart{n}:
  .long 0x{magic:08x}, 1
  .quad .Lend{n} - .Lstart{n}, {header}, {entry}
  .short {image_kind}, {kind}
  .long 0
  .quad .Lstrings{n} - .Lstart{n}, 2, .Limage{n} - .Lstart{n}, .Ltail{n} - .Limage{n}
.Lstrings{n}:
  .quad .Lkey{n}a - .Lstart{n}, .Lvalue{n}a - .Lstart{n}
  .quad .Lkey{n}b - .Lstart{n}, .Lvalue{n}b - .Lstart{n}
.Lkey{n}a: .asciz "arch"
.Lvalue{n}a: .asciz "{arch}"
.Lkey{n}b: .asciz "triple"
.Lvalue{n}b: .asciz "{triple}"
  .p2align 3
.Limage{n}:
  .incbin "{file}"
.Ltail{n}:
  .p2align 3
.Lend{n}:
"""
_SCRIPT = """\
#!/bin/sh
# Links {name} with clang alone: sh link.sh -o {name} [objects, libraries, options of clang]
# CLANG names the clang, CUDA_PATH the CUDA toolkit, ROCM_PATH ROCm, HIP_DEVICE_LIB_PATH its device libraries.
set -e
d=$(dirname "$0")
: "${{CLANG:=clang}}"
{lines}
"""


class RecipeImage(Struct, frozen=True):
    """A device image of the recipe: what it is made of, for which target, the file that it becomes."""

    device: MobDevice
    target: Target

    @property
    def file(self) -> str:
        """Return the name of the object, beside the other things in the bundle."""
        stem = PurePath(self.device.file).name.split(".")
        return f"{'.'.join(stem[:2])}.{self.target.arch.replace(':', '.')}.o"


class Recipe(Struct, frozen=True):
    """The calls of clang that link a bundle."""

    manifest: MobManifest

    @property
    def images(self) -> tuple[RecipeImage, ...]:
        """Return the device images in the order in which they are linked."""
        return tuple(
            RecipeImage(device, target)
            for device in self.manifest.devices
            for target in device.targets
        )

    @property
    def kinds(self) -> frozenset[Kind]:
        """Return the offload kinds of the images."""
        return frozenset(image.target.kind for image in self.images)

    @property
    def packaged(self) -> tuple[tuple[str, Target], ...]:
        """Return the files that stand in `images.s`, with their targets.

        Where clang does not link the device runtime into LLVM IR, it is an image of its own.
        """
        files = [(image.file, image.target) for image in self.images]
        if Kind.OPENMP in self.kinds and not self._takes_library:
            cpu = next(target for _, target in files if target.kind is Kind.OPENMP)
            files.append((_CPU_RUNTIME_OBJECT, cpu))
        return tuple(files)

    @property
    def _takes_library(self) -> bool:
        return links_library_into_ir(self.manifest.llvm.first)

    def render_line(self) -> str:
        """Return all calls as one line for the shell, to be given in the directory of the bundle."""
        calls = [self._shell(words, "clang", "") for words in self._calls()]
        output = f"-o {self.manifest.name}"
        return " && ".join((*calls, self._link_line("clang", "", output)))

    def render_script(self) -> str:
        """Return the same as a script, which can be started anywhere."""
        place = '"$d"/'
        lines = [self._shell(words, '"$CLANG"', place) for words in self._calls()]
        lines.append(self._link_line('"$CLANG"', place, '"$@"'))
        return _SCRIPT.format(name=self.manifest.name, lines="\n".join(lines))

    def _calls(self) -> Iterator[tuple[str, ...]]:
        """Yield the calls that make the device images."""
        clang = _named_clang(self.manifest.llvm.first)
        if Kind.OPENMP in self.kinds:
            yield self._runtime_call(clang)
        for image in self.images:
            if image.target.kind is Kind.CUDA:
                yield _cuda_call(self.manifest, clang, image)
            elif image.target.kind is Kind.HIP:
                yield _hip_call(self.manifest, clang, image)
            else:
                library = Path(_CPU_RUNTIME) if self._takes_library else None
                yield _cpu_call(self.manifest, clang, image, library)

    def _runtime_call(self, clang: LlvmToolchain) -> tuple[str, ...]:
        """Return the call that compiles the device runtime for the CPU: to bitcode, or to an object."""
        made = _CPU_RUNTIME if self._takes_library else _CPU_RUNTIME_OBJECT
        argv = cpu_runtime_command(clang, Path(made), opt_level=self.manifest.opt_level).argv
        shipped = str(runtime_include_directory() / "cpu_device.c")
        words = [f"{RUNTIME}/cpu_device.c" if word == shipped else word for word in argv]
        if not self._takes_library:
            unoptimised = words.index("-disable-llvm-passes")
            words = [*words[: unoptimised - 1], *words[unoptimised + 1 :]]
            words.remove("-emit-llvm")
        return tuple(words)

    def _link_line(self, clang: str, place: str, output: str) -> str:
        """Return the last call, which compiles the host modules and the runtime, and links."""
        words = ["clang", *(("--offload-link",) if self.images else ()), "-fuse-ld=lld", "-w"]
        words += [
            f"-O{self.manifest.opt_level}",
            "-fPIC",
            *(("-g",) if self.manifest.debug else ()),
        ]
        words += [unit.host for unit in self.manifest.units]
        if self.images:
            words += [*_runtime_definitions(self), f"{RUNTIME}/runtime.c", IMAGES]
        line = self._shell(words, clang, place)
        if self.images:
            line += f" -I {place or '.'}"
        libraries = "-lm"
        if Kind.OPENMP in self.kinds:
            abi = load_abi(self.manifest.llvm.first)
            device = " ".join(abi.host_device_arguments(self.manifest.host_triple))
            libraries = f"{device} {libraries}"
        if self.images:
            libraries += " -ldl -lpthread"
        if Kind.CUDA in self.kinds:
            line = f'PATH="{_CUDA}/bin:$PATH" {line}'
            cuda = f'--cuda-path="{_CUDA}" -L"{_CUDA}/lib64" -lcudart_static -lrt'
            libraries = f"{cuda} {libraries}"
        if Kind.HIP in self.kinds and not loads_hip(self.kinds):
            libraries = f'-L"{_ROCM}/lib" -Wl,-rpath,"{_ROCM}/lib" -lamdhip64 {libraries}'
        return f"{line} {output} {libraries}"

    def _shell(self, words: Sequence[str], clang: str, place: str) -> str:
        """Return a call as a shell line, with the files of the bundle at a place."""
        own = {name for name, _ in self.manifest.files} | {_CPU_RUNTIME, IMAGES}
        own |= {file for file, _ in self.packaged} | {f"{RUNTIME}/runtime.c"}
        shown = [f"{place}{word}" if word in own else _quoted(word) for word in words[1:]]
        return " ".join((clang, *shown))

    def render_images(self) -> str:
        """Return `images.s`: each image in the container that the linker wrapper looks for."""
        abi = load_abi(self.manifest.llvm.first)
        head = '  .section .llvm.offloading,"e",@llvm_offloading\n  .p2align 3\n'
        return head + "".join(
            _IMAGE.format(
                n=number,
                magic=int.from_bytes(MAGIC, "little"),
                header=HEADER.size,
                entry=ENTRY.size,
                image_kind=int(ImageKind.OBJECT),
                kind=abi.kind_code(target.kind),
                arch="" if target.kind is Kind.OPENMP else target.arch,
                triple=target.triple,
                file=file,
            )
            for number, (file, target) in enumerate(self.packaged)
        )


def _named_clang(major: int) -> LlvmToolchain:
    """Return a release whose clang is wherever PATH says."""
    version = ToolVersion(major, 0, 0)
    return LlvmToolchain(Path(), version, (("clang", Path("clang")),))


def _cpu_call(
    manifest: MobManifest, clang: LlvmToolchain, image: RecipeImage, library: Path | None
) -> tuple[str, ...]:
    source, output = Path(image.device.file), Path(image.file)
    debug = ("-g",) if manifest.debug else ()
    level = manifest.opt_level
    command = cpu_image_command(clang, source, library, output, opt_level=level, extra=debug)
    return command.argv


def _cuda_call(manifest: MobManifest, clang: LlvmToolchain, image: RecipeImage) -> tuple[str, ...]:
    isa = ptx_isa_for(image.target.arch, manifest.llvm.first, None)
    codegen = DeviceCodegen(image.target.arch, isa, manifest.opt_level, debug=manifest.debug)
    library = None
    if image.device.needs_libdevice:
        library = Path(manifest.libdevice or f"{_CUDA_PLACE}/nvvm/libdevice/libdevice.10.bc")
    source, output = Path(image.device.file), Path(image.file)
    command = nvptx_object_command(clang, source, output, codegen, library)
    return (*command.argv, f"--cuda-path={_CUDA_PLACE}")


def _hip_call(manifest: MobManifest, clang: LlvmToolchain, image: RecipeImage) -> tuple[str, ...]:
    major, arch = manifest.llvm.first, image.target.arch
    libraries: tuple[Path, ...] = ()
    if image.device.needs_libdevice:
        version = common_code_object(major)
        names = device_library_names(arch, version, DeviceMath())
        libraries = tuple(Path(f"{_ROCM_PLACE}/{name}.bc") for name in names)
    level, debug = manifest.opt_level, manifest.debug
    codegen = AmdgpuCodegen(arch, level, debug=debug, libraries=libraries)
    source, output = Path(image.device.file), Path(image.file)
    return amdgpu_image_command(clang, source, output, codegen).argv


def _runtime_definitions(recipe: Recipe) -> tuple[str, ...]:
    """Return what the runtime is told of the program; it brings what replaces libomptarget."""
    archs: dict[Kind, list[str]] = {}
    for kind in (Kind.CUDA, Kind.HIP):
        archs[kind] = sorted({i.target.arch for i in recipe.images if i.target.kind is kind})
    command = runtime_compile_command(
        Path("clang"),
        Path("runtime.o"),
        kinds=recipe.kinds,
        archs=archs,
        standin=True,
    )
    return tuple(word for word in command.argv if word.startswith("-D"))


def _quoted(word: str) -> str:
    """Return a word for the shell, the directories of CUDA and ROCm put in."""
    for mark, place in _PLACES.items():
        head, found, tail = word.partition(mark)
        if found:
            return f'{head}"{place}"{tail}'
    return shlex.quote(word)


def plain_library_limit(manifest: MobManifest) -> int | None:
    """Return the first LLVM whose clang alone links libdevice; None where each that is meant does."""
    if not any(device.needs_libdevice for device in manifest.devices):
        return None
    first = next(major for major in known_majors() if links_library_into_ir(major))
    return first if manifest.llvm.first < first else None


def plain_cuda_limit(manifest: MobManifest) -> tuple[int, tuple[int, int]] | None:
    """Return from which LLVM on a plain link takes every CUDA, and the first CUDA that older ones do not.

    None where each release that the bundle is for takes all.
    """
    if manifest.cuda is None:
        return None
    wants = [m for m in known_majors() if load_abi(m).fatbinary_option == "image"]
    if not wants or not any(manifest.llvm.admits(major) for major in wants):
        return None
    return wants[-1] + 1, fatbinary_without_image()
