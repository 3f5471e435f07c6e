"""Read and write the bundles of clang-offload-bundler (`clang/docs/ClangOffloadBundler.rst`).

A bundle contains device images and the host part, each with a target ID. It is binary, compressed binary
(from LLVM 18), or text between comments for textual file types. In an object, each image has its own section.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence

from msgspec import Struct

from mlir_offload.offload.container.compression import inflate, inflation_limit
from mlir_offload.toolchain.byte_view import ByteView, memory_view, skip_zeros
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.pattern import pattern

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"
# The alignment of code objects in a HIP fat binary, and of fat binaries in a section.
FAT_BINARY_ALIGN = 4096
METHODS = {"zlib": 0, "zstd": 1}
# Version -> magic, version, method, total size (from 2), inflated size, hash.
COMPRESSED_HEADERS = {
    1: struct.Struct("<4sHHIQ"),
    2: struct.Struct("<4sHHIIQ"),
    3: struct.Struct("<4sHHQQQ"),
}
_FORM = "offload bundle"
_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQQ")
_COMPRESSED_START = struct.Struct("<4sHH")
_SECTION_PREFIX = MAGIC.decode()
_TEXT_HEAD_BYTES = 64
_HEAD = rb"\n(//|#|;) __CLANG_OFFLOAD_BUNDLE____START__ "
_TEXT_HEAD = pattern(_HEAD)
_TEXT_START = pattern(_HEAD + rb"([^\n]*)\n")
_DEVICE_PREFIXES = ("gfx", "sm_")

_HIP = "hip"


class BundledImage(Struct, frozen=True):
    """An image of a bundle: its stored target ID, and its content."""

    target_id: str
    content: ByteView

    @property
    def kind(self) -> str:
        """Return the offload kind: `host`, `hip`, `hipv4`, `openmp`, `cuda`..."""
        return self.target_id.partition("-")[0]

    @property
    def triple(self) -> str:
        """Return the target triple, without the environment if that is empty."""
        return "-".join(self._parts[:4]).rstrip("-")

    @property
    def arch(self) -> str:
        """Return the architecture with its features (`gfx90a:xnack+`); empty if there is none."""
        arch = "-".join(self._parts[4:])
        # LLVM 17 to 20 repeat an ID without architecture, and append `-` to an unknown one.
        if arch.startswith(f"{self.kind}-"):
            return ""
        return arch if ":" in arch else arch.removesuffix("-")

    @property
    def _parts(self) -> list[str]:
        """Return the components of the triple, always four, and those of the architecture."""
        parts = self.target_id.split("-")[1:]
        # Up to LLVM 16, the environment may be absent: openmp-amdgcn-amd-amdhsa-gfx906.
        if len(parts) > 3 and parts[3].startswith(_DEVICE_PREFIXES):  # noqa: PLR2004 (a triple)
            parts.insert(3, "")
        return parts


class Bundle(Struct, frozen=True):
    """A bundle: its images, its offset in the view, and its size there in bytes.

    `compression` is `zlib`, `zstd` or empty. `version` is that of the compressed format (0 if not
    compressed). `inflated_bytes` are held in memory as long as the images are.
    """

    images: tuple[BundledImage, ...]
    offset: int
    size_bytes: int
    compression: str = ""
    version: int = 0
    inflated_bytes: int = 0


def is_bundle(view: ByteView) -> bool:
    """Return whether the bytes begin with the magic of a bundle, of any format."""
    head = view.head(_TEXT_HEAD_BYTES)
    return head.startswith((MAGIC, COMPRESSED_MAGIC)) or _TEXT_HEAD.match(head) is not None


def read_bundles(view: ByteView) -> Iterator[Bundle]:
    """Read concatenated bundles with zeros in between, as in the section `.hip_fatbin`.

    A compressed bundle is inflated when it is reached. Raises VerificationError, with offset and field, for
    anything but a bundle, or if the bundles would inflate to more than `inflation_limit`.
    """
    view = view.part(0, view.size, _FORM, form=_FORM)
    budget = inflation_limit(view.size)
    offset = skip_zeros(view, 0)
    while offset < view.size:
        bundle = _read_bundle(view, offset, budget)
        budget -= bundle.inflated_bytes
        yield bundle
        offset = skip_zeros(view, offset + bundle.size_bytes)


def hip_images(view: ByteView) -> Iterator[BundledImage]:
    """Yield the images for AMD GPUs in the bundles of a view, of any ABI version (`hipv4`)."""
    for bundle in read_bundles(view):
        for image in bundle.images:
            if image.kind.startswith(_HIP):
                yield image


def section_image(section: str, content: ByteView) -> BundledImage | None:
    """Return the image in a section of a bundled object; None for another section.

    The host part of such an object is the object itself; its section is one zero byte.
    """
    if not section.startswith(_SECTION_PREFIX):
        return None
    return BundledImage(section.removeprefix(_SECTION_PREFIX), content)


def serialize_bundle(images: Sequence[BundledImage], *, align: int = 1) -> Iterator[bytes]:
    """Yield the bundle in pieces, as `clang-offload-bundler -bundle-align=` of every release writes it.

    The images are copied piece by piece. Raises UsageError if two images have the same target ID, which
    readers could not distinguish, or if the alignment is below 1.
    """
    header, offsets = _header(images, align)
    yield header
    position = len(header)
    for image, offset in zip(images, offsets, strict=True):
        yield bytes(offset - position)
        yield from image.content.chunks()
        position = offset + image.content.size


def bundle_bytes(images: Sequence[BundledImage], *, align: int = 1) -> int:
    """Return the size in bytes of the output of `serialize_bundle`."""
    header, offsets = _header(images, align)
    ends = (offset + image.content.size for image, offset in zip(images, offsets, strict=True))
    return max((len(header), *ends))


def _header(images: Sequence[BundledImage], align: int) -> tuple[bytes, list[int]]:
    """Return the header and the offset of each image; an empty image is aligned too."""
    if align < 1:
        msg = f"cannot align images to {align} bytes"
        raise UsageError(msg, hint="name a positive number")
    ids = [image.target_id.encode() for image in images]
    if len(set(ids)) < len(ids):
        twice = max(image.target_id for image in images if ids.count(image.target_id.encode()) > 1)
        msg = f"two images of a bundle have the target id {twice!r}"
        raise UsageError(msg, hint="give each image an architecture of its own")
    position = len(MAGIC) + _COUNT.size + sum(_ENTRY.size + len(name) for name in ids)
    header = [MAGIC, _COUNT.pack(len(images))]
    offsets = []
    for image, name in zip(images, ids, strict=True):
        position = -(-position // align) * align
        header += (_ENTRY.pack(position, image.content.size, len(name)), name)
        offsets.append(position)
        position += image.content.size
    return b"".join(header), offsets


def _read_bundle(view: ByteView, offset: int, budget: int) -> Bundle:
    rest = view.part(offset, view.size - offset, "bundle")
    if rest.head(len(COMPRESSED_MAGIC)) == COMPRESSED_MAGIC:
        return _read_compressed(view, offset, budget)
    images, end = _read_stored(rest)
    return Bundle(images, offset, end)


def _read_stored(view: ByteView) -> tuple[tuple[BundledImage, ...], int]:
    """Return the images of an uncompressed bundle, and its end."""
    head = view.head(_TEXT_HEAD_BYTES)
    if head.startswith(MAGIC):
        return _read_binary(view)
    if _TEXT_HEAD.match(head):
        return tuple(_read_text(view)), view.size
    found = head[: len(MAGIC)]
    raise view.malformed(0, "magic", f"found {found!r}, expected {MAGIC.decode()}")


def _read_binary(view: ByteView) -> tuple[tuple[BundledImage, ...], int]:
    (count,) = view.unpack(_COUNT, len(MAGIC), "count of images")
    position = len(MAGIC) + _COUNT.size
    if count > (view.size - position) // _ENTRY.size:
        raise view.malformed(len(MAGIC), "count of images", f"there is no room for {count}")
    images = []
    for _ in range(count):
        offset, size, id_size = view.unpack(_ENTRY, position, "entry")
        name = _target_id(view, position + _ENTRY.size, id_size)
        images.append(BundledImage(name, view.part(offset, size, f"image of {name!r}")))
        position += _ENTRY.size + id_size
    return tuple(images), _checked_end(view, images, position)


def _target_id(view: ByteView, offset: int, size: int) -> str:
    raw = view.read(offset, size, "target id")
    try:
        return raw.decode("ascii")
    except UnicodeDecodeError:
        raise view.malformed(offset, "target id", "it is not ASCII") from None


def _checked_end(view: ByteView, images: Sequence[BundledImage], header_end: int) -> int:
    """Return the end of the last image.

    Raises VerificationError if images overlap each other or the header. No bundler writes that, and reading
    all images would read the shared bytes once per image.
    """
    end = header_end
    for image in sorted(images, key=lambda image: image.content.start):
        begin = image.content.start - view.start
        if image.content.size and begin < end:
            field = f"image of {image.target_id!r}"
            raise view.malformed(begin, field, "it overlaps the header or another image")
        end = max(end, begin + image.content.size)
    return end


def _read_text(view: ByteView) -> Iterator[BundledImage]:
    """Yield images between comments; the bundler writes a newline before each comment."""
    data = view.whole()
    position = 0
    while position < len(data):
        start = _TEXT_START.match(data, position)
        if start is None:
            raise view.malformed(position, "start of an image", "there is no comment of a bundler")
        comment, name = start.groups()
        closing = b"\n%b __CLANG_OFFLOAD_BUNDLE____END__ %b\n" % (comment, name)
        end = data.find(closing, start.end())
        if end < 0:
            raise view.malformed(start.end(), "end of an image", f"{name!r} is not closed")
        content = view.part(start.end(), end - start.end(), "image")
        yield BundledImage(name.decode(errors="replace"), content)
        position = end + len(closing)


def _read_compressed(view: ByteView, offset: int, budget: int) -> Bundle:
    _, version, code = view.unpack(_COMPRESSED_START, offset, "header")
    layout = COMPRESSED_HEADERS.get(version)
    if layout is None:
        raise view.malformed(offset + 4, "version", f"{version} is not known")
    method = next((name for name, number in METHODS.items() if number == code), None)
    if method is None:
        raise view.malformed(offset + 6, "compression method", f"{code} is not known")
    *sizes, size, digest = view.unpack(layout, offset, "header")[3:]
    total = sizes[0] if sizes else _first_version_end(view, offset + layout.size) - offset
    if not layout.size <= total <= view.size - offset:
        raise view.malformed(offset + 8, "total size", f"{total} is not a valid bundle size")
    if size > budget:
        reason = f"{size} bytes are more than the {budget} that this file may still inflate to"
        raise view.malformed(offset + layout.size - 8, "inflated size", reason)
    stored = view.read(offset + layout.size, total - layout.size, "compressed images")
    try:
        data = inflate(method, stored, size, is_padded=not sizes)
    except ValueError as error:
        raise view.malformed(offset + layout.size, "compressed images", str(error)) from error
    actual = truncated(hashlib.md5(data, usedforsecurity=False).digest())
    if actual != digest:
        reason = f"found {digest:#018x}, but that of the content is {actual:#018x}"
        raise view.malformed(offset + layout.size - 8, "hash", reason)
    inside = memory_view(data, form=f"inflated {_FORM}", location=view.location)
    images, _ = _read_stored(inside)
    return Bundle(images, offset, total, method, version, size)


def truncated(digest: bytes) -> int:
    """Return the part of an MD5 digest in the header of a compressed bundle."""
    return int.from_bytes(digest[:8], "little")


def _first_version_end(view: ByteView, offset: int) -> int:
    """Return the latest possible end of a compressed bundle of version 1, whose header has no size.

    In a section of several bundles each is aligned, so the next one begins at such an offset.
    """
    first = -(-offset // FAT_BINARY_ALIGN) * FAT_BINARY_ALIGN
    for place in range(first, view.size, FAT_BINARY_ALIGN):
        if is_bundle(view.part(place, view.size - place, "bundle")):
            return place
    return view.size
