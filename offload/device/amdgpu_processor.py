"""The AMD processors that each LLVM release supports."""

from __future__ import annotations

from functools import cache

from mlir_offload.toolchain.amdgpu import processor_of
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.tables import load_table


@cache
def known_processors(llvm_major: int) -> tuple[str, ...]:
    """Return the processors that a release supports, in the order of the table."""
    rows = load_table("mlir_offload.offload", "amdgpu_mach")["processors"]
    return tuple(
        name
        for row in rows
        if row["since"] <= llvm_major <= row.get("until", llvm_major)
        for name in row["codes"]
    )


def check_processor(target_id: str, llvm_major: int) -> None:
    """Raise CompatibilityError if the release does not support a processor."""
    processor, known = processor_of(target_id), known_processors(llvm_major)
    if processor in known:
        return
    rows = load_table("mlir_offload.offload", "amdgpu_mach")["processors"]
    since = next((int(row["since"]) for row in rows if processor in row["codes"]), None)
    if since is not None and since > llvm_major:
        hint = f"LLVM {since} and newer know it: choose another release with --llvm="
    else:
        import difflib

        near = difflib.get_close_matches(processor, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(sorted(known))}"
    msg = f"--offload-arch={target_id}: LLVM {llvm_major} does not know {processor}"
    raise CompatibilityError(msg, hint=hint)
