"""Check that linked kernels for AMD GPUs and SPIR-V expect the argument offsets that the host uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlir_offload.offload.device.code import read_device_code
from mlir_offload.offload.kind_format import FORMATS, format_of
from mlir_offload.offload.link.finding import Finding, raise_findings
from mlir_offload.offload.link.objects import ObjectContents, read_objects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from mlir_offload.toolchain.byte_view import ByteView

_Layout = tuple[tuple[int, int], ...]


def check_layouts(linked: Path, inputs: Sequence[ObjectContents], *, name: str = "") -> None:
    """Raise VerificationError if a linked kernel has other parameters than before the link.

    The host packs the arguments for the latter. Code objects with unknown parameters are skipped. Also raised
    if a kernel has no descriptor or its metadata is corrupt.
    """
    raise_findings(layout_findings(linked, inputs, name=name))


def layout_findings(
    linked: Path, inputs: Sequence[ObjectContents], *, name: str = ""
) -> tuple[Finding, ...]:
    """Return the kernels whose parameters differ, each as a finding about the linked file."""
    if not any(_is_checked(image.kind) for item in inputs for image in item.images):
        return ()
    before = _layouts(_packaged(inputs))
    after = _layouts(_linked(read_objects(linked)))
    return tuple(
        Finding(
            f"kernel '{kernel}' for {arch} takes its arguments at {_listed(after[arch, kernel])}, "
            f"the host passes them at {_listed(layout)}",
            name or str(linked),
            "compile the file that defines it again",
        )
        for (arch, kernel), layout in before.items()
        if after.get((arch, kernel), layout) != layout
    )


def _packaged(inputs: Iterable[ObjectContents]) -> Iterator[tuple[str, ByteView]]:
    for item in inputs:
        if item.is_relocatable:
            yield from _of_kinds(item)


def _of_kinds(item: ObjectContents) -> Iterator[tuple[str, ByteView]]:
    return ((image.arch, image.content) for image in item.images if _is_checked(image.kind))


def _linked(contents: Iterable[ObjectContents]) -> Iterator[tuple[str, ByteView]]:
    for item in contents:
        yield from _of_kinds(item)
        for one in FORMATS:
            if one.describes_parameters:
                images = one.linked_images(item)
                yield from ((arch, content) for arch, content in images if content is not None)


def _is_checked(kind: str) -> bool:
    return format_of(kind).describes_parameters


def _layouts(images: Iterable[tuple[str, ByteView]]) -> dict[tuple[str, str], _Layout]:
    """Return the offset and size in bytes of each argument, per architecture and kernel.

    Of several kernels of the same name only the first is checked, because the others are device-linked
    separately.
    """
    found: dict[tuple[str, str], _Layout] = {}
    for arch, content in images:
        code = read_device_code(content)
        for kernel in code.kernels if code else ():
            if kernel.parameters is not None:
                explicit = (p for p in kernel.parameters if not p.is_hidden)
                places = tuple((p.offset, p.size_bytes) for p in explicit)
                found.setdefault((arch, kernel.name), places)
    return found


def _listed(layout: _Layout) -> str:
    return ", ".join(f"{offset}:{size}" for offset, size in layout) or "nowhere"
