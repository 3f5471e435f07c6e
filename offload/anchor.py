"""An object that makes the linker wrapper take device code out of static libraries.

The wrapper of every release skips the device code of a library member, without a word, unless an
object on the link line has an image for the same target. The anchor has empty ones.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mlir_offload.offload.annotate import embed_binary
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import Kind, Target

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mlir_offload.offload.objects import ObjectContents
    from mlir_offload.toolchain.llvm import LlvmToolchain

_KINDS = frozenset((Kind.CUDA.value, Kind.OPENMP.value))
_HOST_ARCH = "host"


def targets_to_anchor(inputs: Iterable[ObjectContents]) -> tuple[Target, ...]:
    """Return the targets that only members of libraries have images for."""
    contents = tuple(inputs)
    held = _targets(item for item in contents if not item.member)
    return tuple(sorted(_targets(item for item in contents if item.member) - held))


def empty_image_command(
    llvm: LlvmToolchain, target: Target, output: Path, *, feature: str = ""
) -> Command:
    """Return the command that makes an empty image: bitcode for a GPU, an object for the CPU.

    `feature` is the PTX ISA (`+ptx83`); without it clang takes that of the CUDA that it finds by
    itself, or one that is too old for the architecture.
    """
    flags: tuple[str, ...] = ("-fPIC",)
    if target.kind is Kind.CUDA:
        flags = ("-emit-llvm", f"-march={target.arch}", "-nogpulib", "-Wno-unknown-cuda-version")
        flags += (f"--cuda-feature={feature}",) if feature else ()
    head = (str(llvm.tool("clang")), f"--target={target.triple}", *flags)
    return Command((*head, "-x", "c", "-c", os.devnull, "-o", str(output)))


def render_anchor(binary: bytes) -> str:
    """Return the host module of an anchor, to be compiled by the consumer's clang."""
    return embed_binary("", binary)


def _targets(contents: Iterable[ObjectContents]) -> frozenset[Target]:
    return frozenset(
        Target(Kind(image.kind), image.triple, image.arch or _HOST_ARCH)
        for item in contents
        for image in item.images
        if image.kind in _KINDS
    )
