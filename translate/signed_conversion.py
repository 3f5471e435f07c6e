"""Conversions of signed integers to floating point for NVIDIA GPUs, which some releases get wrong for `i1`.

Their back end makes 1.0 of true, which is -1, and the optimizer makes such conversions of wider ones: `sitofp (sext
i1)` becomes `sitofp i1`. The intrinsics become the same instructions, and the optimizer does not know them.
"""

from __future__ import annotations

import re

from mlir_offload.toolchain.pattern import ir_line

_CONVERSION = ir_line(
    "`indent``result:local` = sitofp `(`<`lanes:number` x `)?`i`bits:number``(`>`)?` `value:operand` to "
    "`(`<`number` x `)?``to:half|float|double``(`>`)?``notes:metadata``end`"
)
_WORD, _LONG = 32, 64
_LETTERS = {"float": "f", "double": "d"}


def with_known_conversions(text: str) -> str:
    """Replace the conversions by intrinsics; those of integers with more than 64 bits are not changed."""
    return _CONVERSION.sub(_converted, text) if " sitofp " in text else text


def _converted(match: re.Match[str]) -> str:
    if int(match["bits"]) > _LONG:
        return match[0]
    result, value, notes = match["result"], match["value"], match["notes"] or ""
    if not match["lanes"]:
        return "\n".join(_scalar(match, result, value, notes))
    lanes, kind, to = int(match["lanes"]), f"i{match['bits']}", match["to"]
    lines, made = [], "poison"
    for lane in range(lanes):
        name = f"{_named(result)}.{lane}"
        lines.append(f"  {name} = extractelement <{lanes} x {kind}> {value}, i64 {lane}")
        lines += _scalar(match, f"{name}.to", name, notes)
        target = result if lane == lanes - 1 else f"{name}.in"
        lines.append(
            f"  {target} = insertelement <{lanes} x {to}> {made}, {to} {name}.to, i64 {lane}"
        )
        made = target
    return "\n".join(lines)


def _scalar(match: re.Match[str], result: str, value: str, notes: str) -> list[str]:
    """Return the conversion of one integer."""
    bits, to = int(match["bits"]), match["to"]
    width = _WORD if bits <= _WORD else _LONG
    lines = []
    if bits < width:
        lines.append(f"  {_named(result)}.wide = sext i{bits} {value} to i{width}")
        value = f"{_named(result)}.wide"
    single = "float" if to == "half" else to
    # Integers that half can hold are exact in float.
    made = f"{_named(result)}.float" if to == "half" else result
    function = f"llvm.nvvm.{'i' if width == _WORD else 'll'}2{_LETTERS[single]}.rn"
    lines.append(f"  {made} = call {single} @{function}(i{width} {value}){notes}")
    if to == "half":
        lines.append(f"  {result} = fptrunc float {made} to half{notes}")
    return lines


def _named(value: str) -> str:
    """Return a name for values that belong to a value, which may be a number."""
    return value if value.startswith("%mo.") else f"%mo.{value[1:]}"
