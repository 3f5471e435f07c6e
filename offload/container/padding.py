"""The zeros that linkers put between containers of device images in one section."""

from __future__ import annotations

from mlir_offload.toolchain.byte_view import CHUNK_BYTES, ByteView

_FIRST_CHUNK_BYTES = 64


def skip_zeros(view: ByteView, offset: int) -> int:
    """Return where the next byte that is not zero lies, or the size of the view.

    It reads pieces that grow, so that short gaps cost little and long ones run at memory speed.
    """
    size = _FIRST_CHUNK_BYTES
    while offset < view.size:
        piece = view.read(offset, min(size, view.size - offset), "padding")
        zeros = len(piece) - len(piece.lstrip(b"\0"))
        offset += zeros
        if zeros < len(piece):
            return offset
        size = min(size * 2, CHUNK_BYTES)
    return offset
