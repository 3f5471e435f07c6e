"""What LLVM says of AMD GPUs: the parts of a target ID, wavefronts, data layouts, code object versions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from mlir_offload.toolchain.tables import load_table

TARGET_ID = re.compile(r"(gfx(?:\d+(?:-\d+)*-generic|\d{1,2}[0-9a-f]{2}))((?::[a-z0-9]+[+-])*)")
"""The form of an AMD GPU with features: `gfx90a:sramecc+:xnack-`."""
_GENERATION = re.compile(r"gfx(\d+)(?:-[\d-]*generic|[0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class CodeObjects:
    """The code object versions that a release writes, oldest first, and the module flag for them."""

    versions: tuple[int, ...]
    flag: str


def is_target_id(name: str) -> bool:
    """Return whether a word has the form of an AMD GPU with features: `gfx90a:sramecc+:xnack-`."""
    return TARGET_ID.fullmatch(name) is not None


def normalize_target_id(name: str) -> str:
    """Return the target ID with its features in their order, as clang and the HIP runtime write it."""
    processor, *features = name.split(":")
    return ":".join((processor, *sorted(dict.fromkeys(features))))


def processor_of(target_id: str) -> str:
    """Return the processor of a target ID, without the features."""
    return target_id.partition(":")[0]


def lowering_chip(target_id: str) -> str:
    """Return the chip that MLIR lowers for: the processor, or one of the family that it stands for."""
    processor = processor_of(target_id)
    return str(_table()["generic"]["chips"].get(processor, processor))


def oldest_code_object(target_id: str) -> int:
    """Return the oldest code object version that a processor can be in."""
    generic = _table()["generic"]
    return int(generic["code_object"]) if processor_of(target_id) in generic["chips"] else 0


def wavefront_size(target_id: str) -> int:
    """Return how many threads run in step. Raises ValueError for a name of another form."""
    match = _GENERATION.fullmatch(processor_of(target_id))
    if match is None:
        msg = f"not an AMD GPU: {target_id!r}"
        raise ValueError(msg)
    return int(_newest(_table()["wavefronts"], int(match.group(1)))["threads"])


def amdgpu_layout(llvm_major: int) -> str:
    """Return the data layout that a release of LLVM gives AMD GPUs."""
    return str(_newest(_table()["layouts"], llvm_major)["layout"])


def load_code_objects(llvm_major: int) -> CodeObjects:
    """Return the code object versions of a release of LLVM."""
    row = _newest(_table()["code_objects"], llvm_major)
    return CodeObjects(tuple(row["versions"]), str(row["flag"]))


def _newest(rows: Sequence[Mapping[str, Any]], number: int) -> Mapping[str, Any]:
    known = [row for row in rows if row["since"] <= number]
    return max(known or rows[:1], key=lambda row: int(row["since"]))


@cache
def _table() -> Mapping[str, Any]:
    return load_table("mlir_offload.toolchain", "amdgpu")
