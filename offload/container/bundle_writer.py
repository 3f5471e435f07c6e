"""Write bundles in the format of an LLVM release: HIP fat binaries and compressed bundles."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from mlir_offload.offload.abi import row_of
from mlir_offload.offload.container.bundle import (
    COMPRESSED_HEADERS,
    COMPRESSED_MAGIC,
    METHODS,
    BundledImage,
    bundle_bytes,
    serialize_bundle,
    truncated,
)
from mlir_offload.offload.container.compression import deflate
from mlir_offload.offload.table_check import check_rows
from mlir_offload.toolchain.byte_view import ByteView, memory_view
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.tables import load_table

_FIRST_RELEASE = 15
_HIP_TRIPLE = "amdgcn-amd-amdhsa-"
_ROW_LISTS = ("compressed", "fat_binary")
_DEFAULT_LEVEL = 3


def fat_binary_images(
    code_objects: Iterable[tuple[str, ByteView]],
    *,
    major: int,
    host_triple: str = "x86_64-unknown-linux-gnu",
) -> tuple[BundledImage, ...]:
    """Return the images of a HIP fat binary in the form that the linker wrapper of a release bundles them.

    `code_objects` are pairs of architecture (`gfx90a:xnack+`) and code object. Bundled with the alignment
    `FAT_BINARY_ALIGN`, the images are an argument for `__hipRegisterFatBinary`. Raises CompatibilityError if
    the table does not contain the release.
    """
    row = _row("fat_binary", major)
    host = BundledImage(row["host"].format(triple=host_triple), memory_view(b""))
    devices = (
        BundledImage(f"{row['hip']}-{_HIP_TRIPLE}-{arch}", content)
        for arch, content in code_objects
    )
    return (host, *devices)


def compressed_version(major: int) -> int:
    """Return the version of compressed bundles that a release writes; 0 if it does not support them."""
    version: int = _row("compressed", major)["version"]
    return version


def serialize_compressed_bundle(
    images: Sequence[BundledImage],
    *,
    major: int,
    align: int = 1,
    method: str = "zstd",
    level: int = _DEFAULT_LEVEL,
) -> Iterator[bytes]:
    """Yield a compressed bundle in the format of a release, in pieces.

    The images are read once; only the compressed output is held in memory. Sizes and hash are those that the
    bundler writes; the compressed bytes depend on the library. Raises CompatibilityError if the release does
    not support compressed bundles, or if the sizes do not fit in their header.
    """
    version = compressed_version(major)
    if not version:
        msg = f"LLVM {major} reads no compressed bundles"
        raise CompatibilityError(msg, hint="write the bundle without compression")
    size = bundle_bytes(images, align=align)
    # Fails before the work if not even the inflated size fits in the header.
    _header(version, METHODS[method], 0, size, b"")
    digest = hashlib.md5(usedforsecurity=False)
    pieces = _hashed(serialize_bundle(images, align=align), digest.update)
    stored = tuple(deflate(method, pieces, size, level))
    yield _header(version, METHODS[method], sum(map(len, stored)), size, digest.digest())
    yield from stored


def _hashed(pieces: Iterable[bytes], update: Callable[[bytes], None]) -> Iterator[bytes]:
    for piece in pieces:
        update(piece)
        yield piece


def _header(version: int, method: int, stored: int, size: int, digest: bytes) -> bytes:
    layout = COMPRESSED_HEADERS[version]
    sizes = (size,) if version == 1 else (layout.size + stored, size)
    try:
        return layout.pack(COMPRESSED_MAGIC, version, method, *sizes, truncated(digest))
    except struct.error:
        msg = f"{size} bytes are too many for version {version} of compressed bundles"
        hint = "write it without compression, or for a release that writes version 3"
        raise CompatibilityError(msg, hint=hint) from None


def _row(name: str, major: int) -> Mapping[str, Any]:
    if major < _FIRST_RELEASE:
        msg = f"the bundles of LLVM {major} are not known (known: from {_FIRST_RELEASE})"
        raise CompatibilityError(msg, hint="name a newer release with --llvm=")
    return row_of(bundle_table()[name], major)


@cache
def bundle_table() -> dict[str, Any]:
    """Read and validate the table."""
    table = load_table("mlir_offload.offload", "bundle")
    for name in _ROW_LISTS:
        check_rows(name, table[name], _FIRST_RELEASE)
    return table
