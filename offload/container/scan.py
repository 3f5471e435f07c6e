"""Extract the images from sections and files of containers; a corrupt one does not hide the others.

After corruption, the scan resumes at the next magic of a container.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec import Struct

from mlir_offload.offload.container.binary import PackagedImage, iterate_binary
from mlir_offload.offload.container.bundle import (
    COMPRESSED_MAGIC,
    Bundle,
    BundledImage,
    read_bundles,
)
from mlir_offload.offload.container.bundle import MAGIC as BUNDLE_MAGIC
from mlir_offload.offload.container.contents import Container, Image
from mlir_offload.offload.container.fatbin import HEADER as FATBIN_HEADER
from mlir_offload.offload.container.fatbin import MAGIC as FATBIN_MAGIC
from mlir_offload.offload.container.fatbin import FatbinImage, iterate_fatbins
from mlir_offload.offload.container.offload_section import bare_image, container_bytes
from mlir_offload.offload.container.packager import HEADER as BINARY_HEADER
from mlir_offload.offload.container.packager import INFLATED_SIZE
from mlir_offload.offload.container.packager import MAGIC as BINARY_MAGIC
from mlir_offload.offload.device.spirv import is_spirv
from mlir_offload.offload.image import ImageKind
from mlir_offload.toolchain.byte_view import CHUNK_BYTES, ByteView, FileSource, skip_zeros
from mlir_offload.toolchain.errors import MlirOffloadError, VerificationError
from mlir_offload.toolchain.target import NVPTX_TRIPLE

_Item = TypeVar("_Item")
Report = Callable[[MlirOffloadError], None]
_FIRST_CHUNK_BYTES = 1 << 12
_COMPRESSED_SINCE = 3
_CUDA = "cuda"
_OWN_FIELDS = ("triple", "arch")
_FATBIN_IMAGE_KINDS = {"elf": "cubin"}


class FoundImage(Struct, frozen=True):
    """An image as its container describes it, and a function that opens its content."""

    image: Image
    open_content: Callable[[], ByteView]


def file_offset(view: ByteView) -> int | None:
    """Return the offset of a view in its file; None if it was inflated into memory."""
    return view.start if isinstance(view.source, FileSource) else None


def scan_binaries(view: ByteView, report: Report) -> Iterator[FoundImage]:
    """Yield the images of concatenated offload binaries, and SPIR-V without a container."""
    for piece in _containers(view, BINARY_MAGIC, _binary_or_spirv_bytes, report):
        if is_spirv(piece):
            yield _bare(bare_image(piece))
            continue
        if _is_compressed_binary(piece) and file_offset(piece) is None:
            report(_twice_compressed(piece))
            continue
        for image in _until_damaged(iterate_binary(piece), report):
            yield packaged(image, piece)


def scan_fatbins(view: ByteView, report: Report) -> Iterator[FoundImage]:
    """Yield the images of concatenated NVIDIA fat binaries; none is inflated."""
    for piece in _containers(view, FATBIN_MAGIC, _fatbin_bytes, report):
        for image in _until_damaged(iterate_fatbins(piece), report):
            yield _of_fatbin(image, piece)


def scan_bundles(view: ByteView, report: Report) -> Iterator[FoundImage]:
    """Yield the images of clang-offload-bundler's bundles, without the empty host part."""
    offset = skip_zeros(view, 0)
    while offset < view.size:
        rest = view.part(offset, view.size - offset, "bundle")
        try:
            if rest.head(4) == COMPRESSED_MAGIC and file_offset(rest) is None:
                raise _twice_compressed(rest)
            bundle = next(read_bundles(rest))
        except VerificationError as error:
            report(error)
            offset += _distance(rest, (BUNDLE_MAGIC, COMPRESSED_MAGIC))
            continue
        yield from _of_bundle(bundle, rest)
        offset = skip_zeros(view, offset + bundle.size_bytes)


def _is_compressed_binary(view: ByteView) -> bool:
    has_size = view.size >= BINARY_HEADER.size + INFLATED_SIZE.size
    version = int.from_bytes(view.head(8)[4:], "little")
    if not has_size or version < _COMPRESSED_SINCE:
        return False
    return bool(view.unpack(INFLATED_SIZE, BINARY_HEADER.size, "inflated size")[0])


def _twice_compressed(view: ByteView) -> VerificationError:
    """Return the error for nested compression: no tool writes it, and it would multiply the inflation limits."""
    return view.malformed(0, "header", "a compressed container within a compressed one")


def _until_damaged(items: Iterator[_Item], report: Report) -> Iterator[_Item]:
    """Yield the items up to the first corrupt one, which is reported."""
    try:
        yield from items
    except VerificationError as error:
        report(error)


def _containers(
    view: ByteView, magic: bytes, size_of: Callable[[ByteView], int], report: Report
) -> Iterator[ByteView]:
    """Yield each container as a view; zeros may be between them."""
    offset = skip_zeros(view, 0)
    while offset < view.size:
        rest = view.part(offset, view.size - offset, "container")
        try:
            size = size_of(rest)
            yield rest.part(0, size, "size")
        except VerificationError as error:
            report(error)
            size = _distance(rest, (magic,))
        offset = skip_zeros(view, offset + size)


def _distance(view: ByteView, magics: tuple[bytes, ...]) -> int:
    """Return the distance from the start of a view to the next possible container."""
    longest = max(map(len, magics))
    offset, size = 1, _FIRST_CHUNK_BYTES
    while offset < view.size:
        piece = view.read(offset, min(size, view.size - offset), "container")
        found = [place for place in map(piece.find, magics) if place >= 0]
        if found:
            return offset + min(found)
        offset += max(len(piece) - longest + 1, 1)
        size = min(2 * size, CHUNK_BYTES)
    return view.size


def _binary_or_spirv_bytes(view: ByteView) -> int:
    return bare_image(view).content.size if is_spirv(view) else container_bytes(view)


def _fatbin_bytes(view: ByteView) -> int:
    magic, _, header_size, size = view.unpack(FATBIN_HEADER, 0, "header")
    if magic != FATBIN_MAGIC:
        raise view.malformed(0, "magic", f"found {magic.hex()}, expected {FATBIN_MAGIC.hex()}")
    view.check(header_size, size, "size")
    return max(int(header_size + size), FATBIN_HEADER.size)


def _bare(found: PackagedImage) -> FoundImage:
    content = found.content
    image = Image(
        index=0,
        form="",
        size_bytes=content.size,
        offset=file_offset(content),
        kind=found.kind,
        triple=found.triple,
        arch=found.arch,
    )
    return FoundImage(image, lambda: content)


def packaged(found: PackagedImage, piece: ByteView) -> FoundImage:
    """Return an image of an offload binary at `piece`."""
    content = found.content
    is_inflated = file_offset(content) is None and file_offset(piece) is not None
    container = Container(
        form="offload binary",
        version=found.version,
        offset=file_offset(piece),
        size_bytes=piece.size,
        compression="zlib or zstd" if is_inflated else "",
    )
    image = Image(
        index=0,
        form="",
        size_bytes=content.size,
        offset=file_offset(content),
        container=container,
        kind=found.kind,
        image_kind=_image_kind(found.image_kind),
        triple=found.triple,
        arch=found.arch,
        flags=found.flags,
        strings=tuple(pair for pair in found.strings if pair[0] not in _OWN_FIELDS),
    )
    return FoundImage(image, lambda: content)


def _of_fatbin(found: FatbinImage, piece: ByteView) -> FoundImage:
    container = Container("fat binary", 1, file_offset(piece), piece.size)
    strings = (("name", found.name), ("options", found.options))
    image = Image(
        index=0,
        form="",
        size_bytes=found.size_bytes,
        offset=file_offset(found.stored),
        container=container,
        kind=_CUDA,
        image_kind=_FATBIN_IMAGE_KINDS.get(found.kind, found.kind),
        triple=NVPTX_TRIPLE,
        arch=found.arch,
        strings=tuple(pair for pair in strings if pair[1]),
        compression=found.compression,
        stored_bytes=found.stored_bytes if found.compression else None,
    )
    return FoundImage(image, lambda: found.content)


def _of_bundle(bundle: Bundle, rest: ByteView) -> Iterator[FoundImage]:
    container = Container(
        "offload bundle",
        bundle.version,
        file_offset(rest),
        bundle.size_bytes,
        bundle.compression,
    )
    for found in bundle.images:
        if found.content.size:
            yield bundled(found, container)


def bundled(found: BundledImage, container: Container | None) -> FoundImage:
    """Return an image of a bundle, or of a section of a bundled object."""
    content = found.content
    image = Image(
        index=0,
        form="",
        size_bytes=content.size,
        offset=file_offset(content),
        container=container,
        kind=found.kind,
        triple=found.triple,
        arch=found.arch,
        strings=(("target_id", found.target_id),),
    )
    return FoundImage(image, lambda: content)


def _image_kind(code: int) -> str:
    try:
        return ImageKind(code).name.lower()
    except ValueError:
        return f"image-kind-{code}"
