"""Detect kernels whose stubs a linker folded into one, so that all launches run the same kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mlir_offload.offload.elf import read_elf
from mlir_offload.offload.host.object_entry import kernel_addresses
from mlir_offload.offload.link.finding import Finding, raise_findings
from mlir_offload.toolchain.byte_view import open_view

_HINT = "link with -Wl,--icf=safe, which keeps functions apart whose addresses are used"


def check_folded(linked: Path, *, name: str) -> None:
    """Raise VerificationError if two kernels with different names are registered with the same address."""
    raise_findings(_folded(linked, name))


def _folded(linked: Path, name: str) -> Iterator[Finding]:
    with open_view(linked) as view:
        found: dict[tuple[str, tuple[int, int]], str] = {}
        for kind, kernel, address in kernel_addresses(read_elf(view)):
            other = found.setdefault((kind, address), kernel)
            if other != kernel:
                msg = (
                    f"the linker folded the stubs of kernels '{other}' and '{kernel}' (--icf=all):"
                    f" a launch of '{kernel}' would run '{other}'"
                )
                yield Finding(msg, name, _HINT)
