"""Constructs of LLVM IR that identify the LLVM release of a clang by what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.process import Command, Runner
from mlir_offload.toolchain.tables import load_table
from mlir_offload.toolchain.tool import PROBE_LIMIT_S

_KEYS = frozenset({"name", "since", "text"})


class IrFeature(Struct, frozen=True):
    """A construct, the first release that reads it, and a module that contains it."""

    name: str
    since: int
    text: str


@cache
def load_ir_features() -> tuple[IrFeature, ...]:
    """Return the table that ships with the package, oldest first."""
    return parse_ir_features(load_table("mlir_offload.toolchain", "ir_features"))


def parse_ir_features(table: Mapping[str, Any]) -> tuple[IrFeature, ...]:
    """Parse and check the table. Raises ValueError with the reason if it is invalid."""
    rows = table["features"]
    for row in rows:
        if set(row) != _KEYS:
            msg = f"ir_features: {row.get('name')!r} must have {sorted(_KEYS)}, has {sorted(row)}"
            raise ValueError(msg)
    features = tuple(IrFeature(str(r["name"]), int(r["since"]), str(r["text"])) for r in rows)
    releases = [feature.since for feature in features]
    if not releases or releases != sorted(set(releases)):
        msg = f"ir_features: releases must ascend, each once, not {releases}"
        raise ValueError(msg)
    return features


def probe_ir_features(runner: Runner, clang: Path) -> tuple[IrFeature, ...]:
    """Return the constructs that a clang reads. Raises ToolchainError or ToolFailedError if it cannot be run."""
    command = Command(
        (
            *(str(clang), "-x", "ir", "-c", "-emit-llvm", "-O0", "-Xclang", "-disable-llvm-passes"),
            *("-Wno-override-module", "-", "-o", "/dev/null"),
        ),
        limit_s=PROBE_LIMIT_S,
    )
    return tuple(
        feature
        for feature in load_ir_features()
        if runner.run(command, input_text=f"{feature.text}\n").returncode == 0
    )


def expected_ir_features(major: int) -> tuple[IrFeature, ...]:
    """Return the constructs that a release of LLVM reads."""
    return tuple(feature for feature in load_ir_features() if feature.since <= major)
