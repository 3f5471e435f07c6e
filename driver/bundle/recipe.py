"""The commands that link a bundle with plain clang, for `README.md`, `link.sh` and `images.s`.

They are the commands that the driver runs. Only the container of the device images is made differently:
the assembler writes it, so that clang is the only program needed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from msgspec import Struct

from mlir_offload.driver.compile.kind_build import BUILDS, build_of, builds_of
from mlir_offload.offload.abi import known_majors, load_abi
from mlir_offload.offload.container.mob_manifest import MobDevice, MobManifest
from mlir_offload.offload.container.packager import ENTRY, HEADER, MAGIC
from mlir_offload.offload.image import ImageKind
from mlir_offload.offload.runtime import (
    runtime_compile_command,
)
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.target import Kind, Target
from mlir_offload.toolchain.tool import ToolVersion
from mlir_offload.translate.kind.cuda import (
    links_library_into_ir,
)

RUNTIME = "runtime"
IMAGES = "images.s"
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
    """A device image of the recipe: its LLVM IR, its target and the object compiled from them."""

    device: MobDevice
    target: Target

    @property
    def file(self) -> str:
        """Return the name of the object, in the directory of the bundle."""
        stem = PurePath(self.device.file).name.split(".")
        return f"{'.'.join(stem[:2])}.{self.target.arch.replace(':', '.')}.o"


class Recipe(Struct, frozen=True):
    """The clang commands that link a bundle."""

    manifest: MobManifest

    @property
    def images(self) -> tuple[RecipeImage, ...]:
        """Return the device images in link order."""
        return tuple(
            RecipeImage(device, target)
            for device in self.manifest.devices
            for target in device.targets
        )

    @property
    def kinds(self) -> frozenset[Kind]:
        """Return the device kinds of the images."""
        return self.manifest.kinds

    @property
    def packaged(self) -> tuple[tuple[str, Target], ...]:
        """Return the files that `images.s` includes, with their targets."""
        files = [(image.file, image.target) for image in self.images]
        for build in builds_of(self.kinds):
            target = next(target for _, target in files if target.kind is build.name)
            files += [(file, target) for file in build.recipe_files(self.manifest)]
        return tuple(files)

    def render_line(self) -> str:
        """Return all commands as one shell line, to be run in the directory of the bundle."""
        calls = [self._shell(words, "clang", "") for words in self._calls()]
        output = f"-o {self.manifest.name}"
        return " && ".join((*calls, self._link_line("clang", "", output)))

    def render_script(self) -> str:
        """Return the same commands as a script that can be run in any directory."""
        place = '"$d"/'
        lines = [self._shell(words, '"$CLANG"', place) for words in self._calls()]
        lines.append(self._link_line('"$CLANG"', place, '"$@"'))
        return _SCRIPT.format(name=self.manifest.name, lines="\n".join(lines))

    def _calls(self) -> Iterator[tuple[str, ...]]:
        """Yield the commands that make the device images."""
        clang = _named_clang(self.manifest.llvm.first)
        for build in builds_of(self.kinds):
            yield from build.recipe_preparation(self.manifest, clang)
        for image in self.images:
            build, output = build_of(image.target.kind), Path(image.file)
            yield build.recipe_call(self.manifest, clang, image.device, image.target.arch, output)

    def _link_line(self, clang: str, place: str, output: str) -> str:
        """Return the last command, which compiles the host modules and the runtime, and links."""
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
        libraries = "-lm -ldl -lpthread" if self.images else "-lm"
        for build in reversed(tuple(builds_of(self.kinds))):
            before, own = build.recipe_link(self.manifest)
            line, libraries = f"{before}{line}", f"{own}{libraries}"
        return f"{line} {output} {libraries}"

    def _shell(self, words: Sequence[str], clang: str, place: str) -> str:
        """Return a command as a shell line, with `place` in front of the bundle's files."""
        own = {name for name, _ in self.manifest.files} | {IMAGES}
        own |= {name for build in builds_of(self.kinds) for name in build.recipe_makes}
        own |= {file for file, _ in self.packaged} | {f"{RUNTIME}/runtime.c"}
        shown = [f"{place}{word}" if word in own else _quoted(word) for word in words[1:]]
        return " ".join((clang, *shown))

    def render_images(self) -> str:
        """Return `images.s`, which writes each image in the container that the linker wrapper reads."""
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
                arch=abi.container_arch(target),
                triple=target.triple,
                file=file,
            )
            for number, (file, target) in enumerate(self.packaged)
        )


def _named_clang(major: int) -> LlvmToolchain:
    """Return a toolchain of this release whose clang is the first on PATH."""
    version = ToolVersion(major, 0, 0)
    return LlvmToolchain(Path(), version, (("clang", Path("clang")),))


def _runtime_definitions(recipe: Recipe) -> tuple[str, ...]:
    """Return the macros that describe the program to the runtime, which includes its libomptarget fallback."""
    archs = {kind: sorted(set(recipe.manifest.archs(kind))) for kind in recipe.kinds}
    command = runtime_compile_command(
        Path("clang"),
        Path("runtime.o"),
        kinds=recipe.kinds,
        archs=archs,
        fallback=True,
    )
    return tuple(word for word in command.argv if word.startswith("-D"))


def _quoted(word: str) -> str:
    """Return a word quoted for the shell, with placeholders replaced by shell expressions for directories."""
    places = {mark: place for build in BUILDS for mark, place in build.recipe_places.items()}
    for mark, place in places.items():
        head, found, tail = word.partition(mark)
        if found:
            return f'{head}"{place}"{tail}'
    return shlex.quote(word)


def plain_library_limit(manifest: MobManifest) -> int | None:
    """Return the first LLVM whose plain clang links libdevice; None if all admitted releases do."""
    if not any(device.needs_libdevice for device in manifest.devices):
        return None
    first = next(major for major in known_majors() if links_library_into_ir(major))
    return first if manifest.llvm.first < first else None
