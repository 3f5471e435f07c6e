"""What represents a function that device code calls, and the table of what has a replacement."""

from __future__ import annotations

from enum import Enum
from functools import cache

from msgspec import Struct

from mlir_offload.toolchain.tables import load_table


class Sync(Enum):
    """Whom a call waits for."""

    NONE = 0
    BLOCK = 1
    WARP = 2


class Replacement(Struct, frozen=True):
    """What represents a called function: its definition, and what the call passes besides.

    `definition` may be empty (the function comes from libm or libc). A call that waits for the
    warp also passes the number of the call, a barrier a string: where it is in the source.
    `called` are the names and definitions of functions that the definition calls, `operands`
    what a call passes that has none.
    """

    name: str
    definition: str = ""
    sync: Sync = Sync.NONE
    takes_context: bool = True
    called: tuple[tuple[str, str], ...] = ()
    operands: tuple[str, ...] = ()

    @property
    def takes_site(self) -> bool:
        """Say whether the number of the call is the second argument."""
        return "i32 %site" in self.definition

    @property
    def takes_place(self) -> bool:
        """Say whether the place of the call in the source is the second argument."""
        return "(ptr %c, ptr %place" in self.definition

    @property
    def takes_operands(self) -> bool:
        """Say whether the operands of the call stay."""
        return self.sync is not Sync.BLOCK


def define(name: str, result: str, parameters: str, *lines: str) -> str:
    """Return a function definition whose first parameter is the thread's context `%c`."""
    body = "\n".join(f"  {line}" for line in lines)
    listed = f"ptr %c, {parameters}" if parameters else "ptr %c"
    return f"define internal {result} @{name}({listed}) alwaysinline nounwind {{\n{body}\n}}"


def scalar(suffix: str) -> tuple[str, str]:
    """Return the type, and its name in intrinsics, of libdevice's `f` and NVVM's `f` and `d`."""
    return ("float", "f32") if suffix == "f" else ("double", "f64")


class ArithmeticRow(Struct, frozen=True):
    """A function of `operands`, whose `lines` are instructions of LLVM IR."""

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
    """Return the type of the numbers that a function of libm takes; None for another name."""
    names = load_calls().libm
    if name in names:
        return "double"
    return "float" if name.endswith("f") and name[:-1] in names else None


def is_c_function(name: str) -> bool:
    """Say whether kernels for the CPU may call a C function of this name."""
    calls = load_calls()
    return libm_type(name) is not None or name in calls.external or name in calls.runtime
