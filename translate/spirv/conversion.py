"""Conversions of signed integers to floating point, which LLVM's back end for SPIR-V gets wrong for `i1`.

It makes 1.0 of true, which is -1, and the optimizer makes such conversions of wider ones: `sitofp (sext i1)` becomes
`sitofp i1`. Therefore none is left that the optimizer knows.
"""

from __future__ import annotations

from msgspec import Struct

from mlir_offload.translate.spirv.call import PURE, SpirvFunction, declaration

_SIGNED = {"i8": "c", "i16": "s", "i32": "i", "i64": "l"}
_RESULTS = ("half", "float", "double")
_LANES = ("", "2", "3", "4", "8", "16")
_CONVERTS, _TO = " = sitofp ", " to "


class Conversion(Struct, frozen=True):
    """The lines that represent a conversion, and the functions that they call."""

    lines: tuple[str, ...]
    used: tuple[SpirvFunction, ...] = ()


def rewrite_conversion(line: str) -> Conversion:
    """Return what represents a line: itself, unless it converts a signed integer."""
    head, found, rest = line.partition(_CONVERTS)
    given, _, rest = rest.partition(_TO)
    kind, _, value = given.rpartition(" ")
    result, comma, tail = rest.partition(",")
    count, element = _parts(kind)
    number = _parts(result)[1]
    if not found or number not in _RESULTS or count not in _LANES:
        return Conversion((line,))
    end = f"{comma}{tail}"
    if element == "i1":
        ones = f"splat ({number} -1.0)" if count else "-1.0"
        zeros = "zeroinitializer" if count else "0.0"
        chosen = f"select {kind} {value}, {result} {ones}, {result} {zeros}{end}"
        return Conversion((f"{head} = {chosen}",))
    if element not in _SIGNED:
        return Conversion((line,))
    letter = f"Dv{count}_{_SIGNED[element]}" if count else _SIGNED[element]
    if number == "double":
        function = _definition(f"mo.sitofp.{letter}", kind, result)
    else:
        name = f"convert_float{count}"
        single = result.replace("half", "float")
        function = declaration(f"_Z{len(name)}{name}{letter}", single, kind, PURE)
    return _called(head, function, f"{kind} {value}", result, end)


def _called(head: str, function: SpirvFunction, given: str, result: str, end: str) -> Conversion:
    if "half" not in result:
        call = f"call spir_func {result} @{function.symbol}({given}){end}"
        return Conversion((f"{head} = {call}",), (function,))
    # Numbers that half has are exact in float.
    single, local = result.replace("half", "float"), f"%mo.float.{head.strip().removeprefix('%')}"
    call = f"  {local} = call spir_func {single} @{function.symbol}({given}){end}"
    narrowed = f"{head} = fptrunc {single} {local} to {result}{end}"
    return Conversion((call, narrowed), (function,))


def _definition(symbol: str, kind: str, result: str) -> SpirvFunction:
    text = f"""\
define internal spir_func {result} @{symbol}({kind} %x) noinline nounwind willreturn memory(none) {{
  %y = sitofp {kind} %x to {result}
  ret {result} %y
}}"""
    return SpirvFunction(symbol, text)


def _parts(kind: str) -> tuple[str, str]:
    """Return the number of elements, as text, and their type: `<4 x i8>`; no number for a scalar."""
    count, found, element = kind.strip("<>").partition(" x ")
    return (count, element) if found else ("", kind)
