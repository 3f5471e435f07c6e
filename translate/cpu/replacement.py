"""Replacements of functions that device code calls, and the table of supported functions."""

from __future__ import annotations

from enum import Enum
from functools import cache

from msgspec import Struct

from mlir_offload.toolchain.tables import load_table


class Sync(Enum):
    """The threads with which a call synchronizes: none, the block, or the subgroup (`WARP`)."""

    NONE = 0
    BLOCK = 1
    WARP = 2


class Replacement(Struct, frozen=True):
    """The replacement of a called function: its name, its definition, and the additional operands of a call.

    `definition` is empty if the function is in libm, libc or the runtime. A subgroup operation also takes the
    number of its call site, a barrier a string with its source location. `called` are the names and definitions
    of functions that the definition calls. `operands` precede the operands of the original call.
    """

    name: str
    definition: str = ""
    sync: Sync = Sync.NONE
    takes_context: bool = True
    called: tuple[tuple[str, str], ...] = ()
    operands: tuple[str, ...] = ()

    @property
    def takes_site(self) -> bool:
        """Return whether the second parameter is the number of the call site."""
        return "i32 %site" in self.definition

    @property
    def takes_place(self) -> bool:
        """Return whether the second parameter is the source location of the call."""
        return "(ptr %c, ptr %place" in self.definition

    @property
    def takes_operands(self) -> bool:
        """Return whether the operands of the original call are passed on."""
        return self.sync is not Sync.BLOCK


def define(name: str, result: str, parameters: str, *lines: str) -> str:
    """Return a function definition whose first parameter is the thread context `%c`."""
    body = "\n".join(f"  {line}" for line in lines)
    listed = f"ptr %c, {parameters}" if parameters else "ptr %c"
    return f"define internal {result} @{name}({listed}) alwaysinline nounwind {{\n{body}\n}}"


def scalar(suffix: str) -> tuple[str, str]:
    """Return the type of the suffix `f` or `d`, and its suffix in names of LLVM intrinsics."""
    return ("float", "f32") if suffix == "f" else ("double", "f64")


class ArithmeticRow(Struct, frozen=True):
    """A function with the parameters `operands`, whose body is `lines` of LLVM IR."""

    operands: str
    result: str
    lines: str


class CallTable(Struct, frozen=True):
    """Rows of data/cpu.yaml."""

    aliases: dict[str, str]
    inline_asm: dict[str, str]
    unsupported: dict[str, str]
    arithmetic: dict[str, ArithmeticRow]
    libdevice: dict[str, str]
    libm: frozenset[str]
    vectorized: frozenset[str]
    external: frozenset[str]
    runtime: frozenset[str]


@cache
def load_calls() -> CallTable:
    """Read the table."""
    rows = load_table("mlir_offload.translate", "cpu")
    return CallTable(
        {row["name"]: row["as"] for row in rows["aliases"]},
        rows["inline_asm"],
        rows["unsupported"],
        {name: ArithmeticRow(*row) for name, row in rows["arithmetic"].items()},
        rows["libdevice"],
        frozenset(rows["libm"]),
        frozenset(rows["vectorized"]),
        frozenset(rows["external"]),
        frozenset(rows["runtime"]),
    )


def libm_type(name: str) -> str | None:
    """Return the floating-point type of a libm function; None for another name."""
    names = load_calls().libm
    if name in names:
        return "double"
    return "float" if name.endswith("f") and name[:-1] in names else None


def is_c_function(name: str) -> bool:
    """Return whether a kernel on the CPU may call a C function of this name."""
    calls = load_calls()
    return libm_type(name) is not None or name in calls.external or name in calls.runtime
