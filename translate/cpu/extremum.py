"""Functions for llvm.maximum, llvm.minimum and the reductions by them: -0 is less than +0, and NaN is kept.

The back end for x86-64 of LLVM 15 and 16 has none of them, that of LLVM 19 drops NaN in vectors of f16, and no release
has them for f80 and f128. LLVM up to 21 has no atomic ones.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from mlir_offload.toolchain.pattern import ir_line, ir_pattern, pattern
from mlir_offload.translate.cpu.bfloat_function import define
from mlir_offload.translate.cpu.number import TYPES, WIDE, Code, Number

_NAME = (
    "llvm.`reduction:vector.reduce.f?``operation:maximum|minimum`."
    "`(`v`lanes:number``)?``type:f16|f32|f64|f80|f128`"
)
_EXTREMUM = ir_pattern(_NAME)
_FOR_NVIDIA = ir_line('target triple = "nvptx`string`"')
_USE = ir_pattern(f"@`name:(`{_NAME}`)`(")
_DECLARATION = ir_line(f"declare `head`@{_NAME}(`rest`\n")
_DEFINED = ir_line("define `head`@`name:(`mo.`bare``)`(")
_ATOMIC = ir_line(
    "`head:(``indent``result``)`atomicrmw `volatile:volatile ?``operation:fmaximum|fminimum` "
    "`space:(`ptr`addrspace?``)` `address:operand`, `type:half|float|double` `value:value`"
    '`scope:(` syncscope("`string`")`)?` `order:monotonic|acquire|release|acq_rel|seq_cst`'
    "`align:align?``rest:rest`\n"
)
_LOCATION = ir_pattern(", !dbg !`number`")
_WORDS = pattern(r"[\w.]+")
_FORMATS = {"half": "f16", "float": "f32", "double": "f64"}
# Those of other types are correct in some releases.
_ALWAYS_EXPANDED = frozenset({"f16", *WIDE})


def without_extrema(text: str) -> str:
    """Call functions instead of the intrinsics in a module, and define them; not for NVIDIA GPUs, which have them."""
    if _FOR_NVIDIA.search(text) is not None:
        return text
    # Host code may have defined some (`find_extremum`).
    defined = dict.fromkeys(_DEFINED.findall(text), "")

    def renamed(match: re.Match[str]) -> str:
        found = _EXTREMUM.fullmatch(match["name"])
        if found is None:
            return match[0]
        name, definition = _function(found)
        if name not in defined:
            defined[name] = ""
            defined[name] = _USE.sub(renamed, definition)
        return f"@{name}("

    text = _USE.sub(renamed, _DECLARATION.sub("", text))
    made = list(filter(None, defined.values()))
    return "\n".join((text.removesuffix("\n"), *made, "")) if made else text


def without_atomic_extrema(text: str) -> str:
    """Call functions instead of atomicrmw fmaximum and fminimum of single numbers, and define them; not for NVIDIA GPUs."""
    if _FOR_NVIDIA.search(text) is not None:
        return text
    defined: dict[str, str] = {}

    def renamed(match: re.Match[str]) -> str:
        name, definition = _atomic_function(match)
        defined[name] = definition
        debug = _LOCATION.search(match["rest"])
        values = f"{match['space']} {match['address']}, {match['type']} {match['value']}"
        return f"{match['head']}call {match['type']} @{name}({values}){debug[0] if debug else ''}\n"

    text = _ATOMIC.sub(renamed, text)
    return "\n".join((text.removesuffix("\n"), *defined.values(), "")) if defined else text


def _atomic_function(match: re.Match[str]) -> tuple[str, str]:
    """Return the name and the definition of the function for an operation: a loop that exchanges integers."""
    number = TYPES[_FORMATS[match["type"]]]
    kind, bits, space = number.type, number.integer, match["space"]
    scope, order = match["scope"] or "", match["order"]
    align = match["align"] or f", align {number.bits // 8}"
    parts = ("mo.atomic", match["operation"], kind, space, match["volatile"], scope, order, align)
    name = ".".join(word for part in parts for word in _WORDS.findall(part))
    function = match["operation"].removeprefix("f")
    access = f"{match['volatile']}{bits}, {space} %a{scope}"
    return (
        name,
        f"""\
define internal {kind} @{name}({space} %a, {kind} %b) nounwind {{
entry:
  %first = load atomic {access} monotonic{align}
  br label %again
again:
  %bits = phi {bits} [ %first, %entry ], [ %seen, %again ]
  %old = bitcast {bits} %bits to {kind}
  %new = call {kind} @llvm.{function}.{_FORMATS[kind]}({kind} %old, {kind} %b)
  %wanted = bitcast {kind} %new to {bits}
  %pair = cmpxchg {match["volatile"]}{space} %a, {bits} %bits, {bits} %wanted{scope} {order} monotonic{align}
  %seen = extractvalue {{ {bits}, i1 }} %pair, 0
  %done = extractvalue {{ {bits}, i1 }} %pair, 1
  br i1 %done, label %end, label %again
end:
  ret {kind} %old
}}""",
    )


def find_extremum(name: str) -> tuple[str, str] | None:
    """Return the name and the definition of the function for an intrinsic that no release, or not each, has."""
    match = _EXTREMUM.fullmatch(name)
    return _function(match) if match and match["type"] in _ALWAYS_EXPANDED else None


def _function(match: re.Match[str]) -> tuple[str, str]:
    number = replace((TYPES | WIDE)[match["type"]], lanes=int(match["lanes"] or 0))
    name, code = f"mo.{match[0].removeprefix('llvm.')}", Code("")
    if match["reduction"]:
        value = _reduced(code, number, match["operation"])
        return define(name, number.scalar, [number.type], code, value)
    value = _chosen(code, number, match["operation"])
    return define(name, number.type, [number.type] * 2, code, value)


def _chosen(code: Code, number: Number, operation: str) -> str:
    """Append comparisons and selections."""
    is_maximum, kind, integer = operation == "maximum", number.type, number.integer
    is_first = code.add(f"fcmp {'ogt' if is_maximum else 'olt'} {kind} %a, %b")
    value = code.select(is_first, number, "%a", "%b")
    # Equal numbers have the same bits, except zeros of different signs.
    bits = [code.add(f"bitcast {kind} {one} to {integer}") for one in ("%a", "%b")]
    both = code.add(f"{'and' if is_maximum else 'or'} {integer} {', '.join(bits)}")
    both = code.add(f"bitcast {integer} {both} to {kind}")
    equal = code.add(f"fcmp oeq {kind} %a, %b")
    value = code.select(equal, number, both, value)
    unordered = code.add(f"fcmp uno {kind} %a, %b")
    total = code.add(f"fadd {kind} %a, %b")
    return code.select(unordered, number, total, value)


def _reduced(code: Code, number: Number, operation: str) -> str:
    """Append the operation on all elements of a vector, in order."""
    places = range(number.lanes)
    value, *others = (code.add(f"extractelement {number.type} %a, i64 {n}") for n in places)
    for other in others:
        value = code.call(operation, replace(number, lanes=0), value, other)
    return value
