"""Keep i1 in memory as bytes, as LLVM does on other targets.

The back end makes booleans of SPIR-V of it, which have no size: drivers disagree on the distance of two elements of
an array.
"""

from __future__ import annotations

from collections.abc import Iterator

from mlir_offload.toolchain.pattern import ir_line, ir_pattern

_LOAD = ir_line("`head:(``indent``local` = `)``load:(`load `volatile ?``)`i1, `place:rest`")
_STORE = ir_line("`head:(``indent`store `volatile ?``)`i1 `value:operand`, `place:rest`")
_CONSTANT = ir_pattern("i1 `value:true|false`")
_TYPE = ir_pattern("i1")
_PLACES = (" getelementptr ", " = alloca ")
_BYTES = {"true": "i8 1", "false": "i8 0"}


def with_bytes(line: str, number: int) -> Iterator[str]:
    """Yield the lines that represent an instruction, with names for new values that contain its number."""
    if " i1" not in line and "(i1" not in line:
        yield line
    elif match := _LOAD.fullmatch(line):
        byte = f"%mo.byte.{number}"
        yield f"  {byte} = {match['load']}i8, {match['place']}"
        yield f"{match['head']}trunc i8 {byte} to i1"
    elif match := _STORE.fullmatch(line):
        byte = f"%mo.byte.{number}"
        yield f"  {byte} = zext i1 {match['value'].rstrip(',')} to i8"
        yield f"{match['head']}i8 {byte}, {match['place']}"
    elif any(word in line for word in _PLACES) and "x i1>" not in line:
        yield _TYPE.sub("i8", line)
    else:
        yield line


def variable_of_bytes(line: str) -> str:
    """Return the definition of a global variable with bytes instead of i1."""
    if "i1" not in line or "x i1>" in line:
        return line
    return _TYPE.sub("i8", _CONSTANT.sub(lambda match: _BYTES[match["value"]], line))
