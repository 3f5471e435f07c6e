"""An object that makes the linker wrapper take device code out of static libraries.

The wrapper of every release skips the device code of a library member, silently, unless an
object on the link line has an image for the same target. The dummy image object has empty ones.
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
# How clang takes the architecture for a GPU; SPIR-V has none.
_FLAGGED = ("nvptx64", "amdgcn")
_GPU_OPTION = {"nvptx64": "-march=", "amdgcn": "-mcpu=", "spirv64": ""}


def targets_needing_dummy(inputs: Iterable[ObjectContents], abi: OffloadAbi) -> tuple[Target, ...]:
    """Return the targets of library members that need a dummy image object with the wrapper of a release.

    An object with an image for the target does as well, unless the release heeds only those that
    precedes the library.
    """
    contents = tuple(inputs)
    held = targets_of(item for item in contents if not item.member)
    offered = targets_of(item for item in contents if item.member)
    return tuple(sorted(offered if abi.reads_line_in_order else offered - held))


def empty_image_command(
    llvm: LlvmToolchain, target: Target, output: Path, *, feature: str = ""
) -> Command:
    """Return the command that makes an empty image: bitcode for a GPU, an object for the CPU.

    `feature` is the PTX ISA (`+ptx83`); without it clang takes that of the CUDA that it finds by
    itself, or one that is too old for the architecture.
    """
    flags: tuple[str, ...] = ("-fPIC",)
    language = "c"
    if is_bitcode_target(target):
        option = _GPU_OPTION[target.triple.partition("-")[0]]
        arch = (f"{option}{target.arch}",) if option else ()
        flags = ("-emit-llvm", *arch, "-nogpulib", "-Wno-unknown-cuda-version")
        flags += (f"--cuda-feature={feature}",) if feature else ()
    if target.triple.startswith(_FLAGGED):
        # Of C clang makes module flags, such as AMD's code object version, that the images of the
        # libraries may contradict.
        language = "ir"
        flags += ("-Wno-override-module",)
    head = (str(llvm.tool("clang")), f"--target={target.triple}", *flags)
    return Command((*head, "-x", language, "-c", os.devnull, "-o", str(output)))


def is_bitcode_target(target: Target) -> bool:
    """Return whether the empty image for a target is bitcode: that of a GPU, whatever the kind."""
    return target.triple.partition("-")[0] in _GPU_OPTION


def render_dummy_image(binary: bytes) -> str:
    """Return the host module of a dummy image object, to be compiled by the consumer's clang."""
    return embed.embed_binary("", binary)


def targets_of(contents: Iterable[ObjectContents]) -> frozenset[Target]:
    """Return the targets of the images that objects have."""
    return frozenset(
        Target(kind, image.triple, image.arch or _HOST_ARCH)
        for item in contents
        for image in item.images
        if (kind := kind_of_image(image.kind, image.triple)) is not None
    )
