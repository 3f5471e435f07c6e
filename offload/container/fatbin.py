"""Read NVIDIA fat binaries, and the kernels of the cubins inside.

NVIDIA does not document the layout. The fields are those that `fatbinary` and `nvcc` of CUDA 13.0 write;
older releases select other compression methods.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from msgspec import Struct

from mlir_offload.offload.container.compression import inflate, inflation_limit
from mlir_offload.toolchain.byte_view import ByteView, memory_view, skip_zeros
from mlir_offload.toolchain.errors import CompatibilityError

_FORM = "fat binary"
MAGIC = b"\x50\xed\x55\xba"
HEADER = struct.Struct("<4sHHQ")
_VERSION = 1
# Kind, -, header size, padded size, compressed size, offset of the options, minor and major version,
# architecture, offset and size of the name, flags, key, inflated size.
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_OPTIONS = struct.Struct("<II")
# The keywords of `fatbinary --image3=kind=`; `nvvm` is the LTO-IR of `nvcc -dlto`.
_KINDS = {1: "ptx", 2: "elf", 8: "nvvm"}
# In an `elf`, the options field refers to binary attributes.
_KINDS_WITH_OPTIONS = ("ptx", "nvvm")
_FLAG_64_BITS = 0x1
_FLAG_DEBUG = 0x2
_FLAG_LZ4 = 0x2000
_FLAG_ZSTD = 0x8000
_FLAG_SCRAMBLED = 0x10000
_SUFFIXES = ((0x100000, "a"), (0x200000, "f"))
_ALIGNMENT = 8


class FatbinImage(Struct, frozen=True):
    """An image of a fat binary.

    `kind` is `elf` (a cubin), `ptx`, `nvvm`, or `kind-N` for an unknown enum value. `arch` includes its
    suffix (`sm_90a`). `compression` is empty, `lz4`, `zstd`, or `scrambled` for the LTO-IR that only NVIDIA's
    tools read. `version` is that of the PTX or of the cubin. `name` is the source file and `options` the rest
    of the ptxas command line, if the compiler stored them.
    """

    kind: str
    arch: str
    stored: ByteView
    size_bytes: int
    compression: str = ""
    version: tuple[int, int] = (0, 0)
    name: str = ""
    options: str = ""
    is_debug: bool = False
    is_64_bit: bool = True

    @property
    def stored_bytes(self) -> int:
        """Return the size of the stored image in bytes, without its header."""
        return self.stored.size

    @property
    def content(self) -> ByteView:
        """Return the image: a view of the file, or of memory if it is stored compressed.

        Each call inflates again. Raises VerificationError if the stream is corrupt, CompatibilityError if it
        is scrambled.
        """
        if not self.compression:
            return self._plain_content()
        if self.compression == "scrambled":
            msg = f"the {self.kind} image for {self.arch} is stored in an undocumented format of NVIDIA"
            hint = "compile with nvcc -Xfatbin -compress-mode=none"
            raise CompatibilityError(msg, hint=hint, location=self.stored.location)
        try:
            data = inflate(self.compression, self.stored.whole(), self.size_bytes)
        except ValueError as error:
            raise self.stored.malformed(0, "compressed image", str(error)) from error
        text = data.rstrip(b"\0") if self.kind == "ptx" else data
        return memory_view(text, form=_FORM, location=self.stored.location)

    def _plain_content(self) -> ByteView:
        """Return the stored bytes; for PTX, without the terminating and padding zeros."""
        if self.kind != "ptx":
            return self.stored
        # The string is NUL-terminated and padded with up to seven zeros to a multiple of eight.
        begin = max(0, self.stored.size - _ALIGNMENT)
        tail = self.stored.read(begin, self.stored.size - begin, "end of the PTX")
        return self.stored.part(0, begin + len(tail.rstrip(b"\0")), "PTX")


def is_fatbin(view: ByteView) -> bool:
    """Return whether the bytes begin with the magic of a fat binary."""
    return view.head(4) == MAGIC


def read_fatbins(view: ByteView) -> tuple[FatbinImage, ...]:
    """Read the images of one fat binary or of a section of several; none is inflated.

    Raises VerificationError, with offset and field, if a header is corrupt, or if the images claim to inflate
    to more than `inflation_limit` of the total size.
    """
    return tuple(iterate_fatbins(view))


def iterate_fatbins(view: ByteView) -> Iterator[FatbinImage]:
    """Yield the images of `read_fatbins` one by one, so that corruption only hides later images."""
    return _images_within_limit(view.part(0, view.size, "fat binary", form=_FORM))


def _images_within_limit(view: ByteView) -> Iterator[FatbinImage]:
    limit = inflation_limit(view.size)
    for image in _all_images(view):
        if image.compression:
            limit -= image.size_bytes
            if limit < 0:
                reason = f"the images would inflate to more than {inflation_limit(view.size)} bytes"
                raise image.stored.malformed(-8, "inflated size", reason)
        yield image


def _all_images(view: ByteView) -> Iterator[FatbinImage]:
    offset = skip_zeros(view, 0)
    while offset < view.size:
        magic, version, header_size, size = view.unpack(HEADER, offset, "header")
        if magic != MAGIC:
            raise view.malformed(offset, "magic", f"found {magic.hex()}, expected {MAGIC.hex()}")
        if version != _VERSION:
            raise view.malformed(offset + 4, "version", f"{version} is not known")
        if header_size < HEADER.size:
            raise view.malformed(offset + 6, "header size", f"{header_size} is too small")
        view.check(offset + header_size, size, "size")
        end = offset + header_size + size
        yield from _images(view, offset + header_size, end)
        # Zeros pad to the next fat binary.
        offset = skip_zeros(view, end)


def _images(view: ByteView, offset: int, end: int) -> Iterator[FatbinImage]:
    while offset < end:
        entry = view.part(offset, end - offset, "image header")
        header_size, padded = entry.unpack(_ENTRY, 0, "image header")[2:4]
        if header_size < _ENTRY.size:
            raise entry.malformed(4, "image header size", f"{header_size} is too small")
        entry.check(header_size, padded, "padded size")
        yield _image(entry.part(0, header_size + padded, "image"), header_size)
        offset += header_size + padded


def _image(entry: ByteView, header_size: int) -> FatbinImage:
    fields = entry.unpack(_ENTRY, 0, "image header")
    kind, _, _, padded, compressed, options_at, minor, major = fields[:8]
    arch, name_at, name_size, flags, _, size = fields[8:]
    compression = _compression(flags)
    stored = compressed if compression else padded
    if stored > padded:
        raise entry.malformed(16, "compressed size", f"{stored} bytes in {padded}")
    kind_name = _KINDS.get(kind, f"kind-{kind}")
    header = entry.part(0, header_size, "image header")
    suffix = "".join(letter for bit, letter in _SUFFIXES if flags & bit)
    return FatbinImage(
        kind=kind_name,
        arch=f"sm_{arch}{suffix}",
        stored=entry.part(header_size, stored, "image"),
        size_bytes=size if compression else padded,
        compression=compression,
        version=(major, minor),
        name=_text(header, name_at, name_size, "name"),
        options=_options(header, options_at) if kind_name in _KINDS_WITH_OPTIONS else "",
        is_debug=bool(flags & _FLAG_DEBUG),
        is_64_bit=bool(flags & _FLAG_64_BITS),
    )


def _compression(flags: int) -> str:
    if flags & _FLAG_SCRAMBLED:
        return "scrambled"
    if flags & _FLAG_ZSTD:
        return "zstd"
    return "lz4" if flags & _FLAG_LZ4 else ""


def _options(header: ByteView, offset: int) -> str:
    if not offset:
        return ""
    text_at, size = header.unpack(_OPTIONS, offset, "options")
    return _text(header, text_at, size, "options").strip()


def _text(header: ByteView, offset: int, size: int, field: str) -> str:
    if not size:
        return ""
    return header.read(offset, size, field).rstrip(b"\0").decode(errors="replace")
