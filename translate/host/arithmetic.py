"""Expand operations of host code that the back end for x86-64 rounds twice or in another direction, or rejects.

The LLVM IR that mlir-translate wrote contains every operation, also those that passes created from reductions and
transfers. A function with the expansion, which is always inlined, replaces each. bf16 is computed as in kernels on the
CPU. The back end also calls functions of libgcc 13 and compiler-rt for bf16: for values that are passed on (-O0), and up
to LLVM 19 for signs. A module with bf16 defines them, because these libraries are often not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from msgspec.structs import replace

from mlir_offload.offload.ir_syntax import extend_used_list
from mlir_offload.translate.cpu.arithmetic import SHORT_FMA, short_fma
from mlir_offload.translate.cpu.bfloat import BfloatLines, attachments, call_parts, library_support
from mlir_offload.translate.cpu.bfloat_function import define, split_type
from mlir_offload.translate.cpu.conversion import narrowed
from mlir_offload.translate.cpu.extremum import find_extremum
from mlir_offload.translate.cpu.number import TYPES, Code
from mlir_offload.translate.cpu.text import CALL, DeviceModule, callee_name, location_of

_TRUNCATION = "llvm.experimental.constrained.fptrunc."
_RESULTS = {TYPES[name].scalar: TYPES[name] for name in ("f16", "bf16", "f32", "f64")}
_MODES = {"tonearest": "rn", "tonearestaway": "ra", "downward": "rm", "upward": "rp", "towardzero": "rz"}  # fmt: skip


def expand_arithmetic(text: str) -> str:
    """Return the LLVM IR of a host module, concealed, with the expansions.

    Raises SourceError for an operation on bf16, or a rounding mode, that is not supported.
    """
    module = DeviceModule((), (), (), (), tuple(text.splitlines()))
    lines = _HostLines(partial(location_of, module))
    made = [new for line in text.splitlines() for new in lines.rewrite(line)]
    kept = [line for line in made if not lines.declares_expanded(line)]
    called = {
        name: definition
        for name, definition in library_support(kept).items()
        if not any(line.startswith("define ") and f"@{name}(" in line for line in kept)
    }
    whole = "\n".join((*kept, *lines.used.values(), *called.values(), ""))
    return extend_used_list(whole, "llvm.compiler.used", tuple(called)) if called else whole


class _HostLines(BfloatLines):
    """Rewrites lines, and records the functions that they call and the intrinsics that these replace."""

    def __init__(self, location: Callable[[str], str]) -> None:
        super().__init__(location, None)
        self._expanded: set[str] = set()

    def rewrite(self, line: str) -> Iterator[str]:
        """Yield the lines that represent a line."""
        match = CALL.match(line) if "@llvm." in line else None
        name = callee_name(match["callee"]) if match else ""
        if match and name.startswith(_TRUNCATION):
            line = self._truncated(line, name, match["rest"])
        elif function := find_extremum(name) or _find_fused(name):
            self._expanded.add(f"@{name}(")
            line = line.replace(f"@{name}(", f"@{self.define(function, name, line)}(", 1)
        yield from super().rewrite(line)

    def declares_expanded(self, line: str) -> bool:
        """Return whether a line declares an intrinsic that older releases may not know, and nothing calls."""
        return line.startswith("declare ") and any(name in line for name in self._expanded)

    def _truncated(self, line: str, name: str, rest: str) -> str:
        """Return the call of a conversion that rounds in the direction of an operand."""
        result, (value, mode, *_), after = call_parts(line, rest)
        lanes, scalar = split_type(result)
        written = mode.removeprefix('metadata !"round.').removesuffix('"')
        if written not in _MODES or scalar not in _RESULTS:
            what = f"a conversion to {scalar} with rounding mode {written}"
            raise self.unsupported(what, line)
        number = replace(_RESULTS[scalar], lanes=lanes)
        source, code = value.rpartition(" ")[0], Code("")
        made = narrowed(code, source, number, _MODES[written], "%a")
        self._expanded.add(f"@{name}(")
        function = define(_own(f"{name}.{written}"), number.type, [source], code, made)
        called = f"call {number.type} @{self.define(function, name, line)}({value})"
        return f"{line.partition(' = ')[0]} = {called}{attachments(after)}"


def _own(name: str) -> str:
    return f"mo.{name.removeprefix('llvm.')}"


def _find_fused(name: str) -> tuple[str, str] | None:
    """Return the function for llvm.fma of 16-bit numbers; None for another intrinsic."""
    match = SHORT_FMA.fullmatch(name)
    if match is None:
        return None
    number, code = replace(TYPES[match["type"]], lanes=int(match["lanes"] or 0)), Code("")
    value = short_fma(code, number, ["%a", "%b", "%c"])
    return define(_own(name), number.type, [number.type] * 3, code, value)
