"""The structures of offload binaries, versions 1 to 3 (`llvm/Object/OffloadBinary.h`)."""

from __future__ import annotations

import struct

MAGIC = b"\x10\xff\x10\xad"
ALIGNMENT = 8

# Magic, version, size, offset of the entries, and: size of an entry (1), count of entries (2, 3).
HEADER = struct.Struct("<4sIQQQ")
# What version 3 adds to it: the size once decompressed, 0 where the rest is not compressed.
INFLATED_SIZE = struct.Struct("<Q")
# Image kind, offload kind, flags, offset and count of the string entries, offset and size of the image.
ENTRY = struct.Struct("<HHIQQQQ")
# Offset of the key and of the value; from version 2 the size of the value, which may hold NUL bytes.
STRING_ENTRY_V1 = struct.Struct("<QQ")
STRING_ENTRY = struct.Struct("<QQQ")


def aligned(offset: int) -> int:
    """Return the first aligned offset from this one on."""
    return -(-offset // ALIGNMENT) * ALIGNMENT
