"""The identity of this host's processor, for code compiled with -march=native."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from mlir_offload.toolchain.byte_view import sha256
from mlir_offload.toolchain.errors import ToolchainError

NATIVE_FLAG = "-march=native"
_CPU_INFO = Path("/proc/cpuinfo")
_CPU_FIELDS = ("vendor_id", "cpu family", "model", "stepping", "flags")


@cache
def processor_identity() -> str:
    """Return a hash of the processor properties that `-march=native` depends on. Raises ToolchainError."""
    try:
        first, _, _ = _CPU_INFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")
    except OSError as error:
        msg = f"cannot tell the processor: {_CPU_INFO}: {error.strerror}"
        raise ToolchainError(msg, hint="build without a cache") from error
    rows = dict(line.split(":", 1) for line in first.splitlines() if ":" in line)
    known = {name.strip(): value.strip() for name, value in rows.items()}
    text = "\n".join(f"{name}={known.get(name, '')}" for name in _CPU_FIELDS)
    return f"sha256:{sha256(text.encode()).hexdigest()}"
