"""The names of skew rules in options."""

from __future__ import annotations

from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.skew.rule import load_rules


def checked_name(option: str, name: str) -> str:
    """Return the name of a rule in the value of an option. Raises UsageError for an unknown name."""
    if name in load_rules():
        return name
    msg = f"{option}{name}: there is no such rule"
    raise UsageError(msg, hint="'mlir-offload explain' lists them")
