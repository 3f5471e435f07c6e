"""An object that makes the linker wrapper link the device code in static libraries.

The wrapper of every release silently skips the device code of a library member, unless an object on the link
line has an image for the same target. The dummy image object has empty images.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mlir_offload.offload.host import embed
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import Target, kind_of_image

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mlir_offload.offload.abi import OffloadAbi
    from mlir_offload.offload.link.objects import ObjectContents
    from mlir_offload.toolchain.llvm import LlvmToolchain

_HOST_ARCH = "host"
# clang's option for the architecture of a GPU; SPIR-V has none.
_FLAGGED = ("nvptx64", "amdgcn")
_GPU_OPTION = {"nvptx64": "-march=", "amdgcn": "-mcpu=", "spirv64": ""}


def targets_needing_dummy(inputs: Iterable[ObjectContents], abi: OffloadAbi) -> tuple[Target, ...]:
    """Return the targets of library members for which a release's wrapper needs a dummy image object.

    An object with an image for the target also works, unless the release only considers objects that precede
    the library.
    """
    contents = tuple(inputs)
    held = targets_of(item for item in contents if not item.member)
    offered = targets_of(item for item in contents if item.member)
    return tuple(sorted(offered if abi.reads_line_in_order else offered - held))


def empty_image_command(
    llvm: LlvmToolchain, target: Target, output: Path, *, feature: str = ""
) -> Command:
    """Return the command that compiles an empty image: bitcode for a GPU, an object for the CPU.

    `feature` is the PTX ISA (`+ptx83`). Without it, clang uses that of the CUDA installation that it finds,
    or one that is too old for the architecture.
    """
    flags: tuple[str, ...] = ("-fPIC",)
    language = "c"
    if is_bitcode_target(target):
        option = _GPU_OPTION[target.triple.partition("-")[0]]
        arch = (f"{option}{target.arch}",) if option else ()
        flags = ("-emit-llvm", *arch, "-nogpulib", "-Wno-unknown-cuda-version")
        flags += (f"--cuda-feature={feature}",) if feature else ()
    if target.triple.startswith(_FLAGGED):
        # From C, clang generates module flags, such as AMD's code object version, that may conflict with the
        # images of the libraries.
        language = "ir"
        flags += ("-Wno-override-module",)
    head = (str(llvm.tool("clang")), f"--target={target.triple}", *flags)
    return Command((*head, "-x", language, "-c", os.devnull, "-o", str(output)))


def is_bitcode_target(target: Target) -> bool:
    """Return whether the empty image for a target is bitcode, as for all GPUs."""
    return target.triple.partition("-")[0] in _GPU_OPTION


def render_dummy_image(binary: bytes) -> str:
    """Return the host module of a dummy image object, for the linking clang."""
    return embed.embed_binary("", binary)


def targets_of(contents: Iterable[ObjectContents]) -> frozenset[Target]:
    """Return the targets of the images of objects."""
    return frozenset(
        Target(kind, image.triple, image.arch or _HOST_ARCH)
        for item in contents
        for image in item.images
        if (kind := kind_of_image(image.kind, image.triple)) is not None
    )
