"""Replacements of PTX arithmetic: NVVM intrinsics, and inline assembly of one instruction.

Both are parsed as a PTX opcode, such as `add.rz.ftz.f32`. The results are bit-exact: rounding, saturation,
NaN and subnormal numbers follow the PTX ISA. Approximate instructions use the host's libm.
"""

from __future__ import annotations

from msgspec.structs import replace

from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.translate.cpu.conversion import convert
from mlir_offload.translate.cpu.number import (
    PAIR,
    SHORT,
    TYPES,
    Built,
    Code,
    Number,
    canonical,
    flushed,
    rectified,
    saturated,
)
from mlir_offload.translate.cpu.replacement import Replacement, define, load_calls

_TYPE = "`type:f16x2|bf16x2|f16|bf16|f32|f64|f|d`"
_CONVERSION = ir_pattern(
    "`from:ui|ull|i|ll|f|d`2`to:ui|ull|i|ll|f|d|h`.`round:rn|rz|rm|rp``ftz:.ftz?`"
)
_NARROWING = ir_pattern("`pair:ff2|f2``to:f16x2|bf16x2|f16|bf16`.`round:rn|rz``relu:.relu?`")
_NUMBERS = {"i": "s32", "ui": "u32", "ll": "s64", "ull": "u64", "f": "f32", "d": "f64"}

_ARITHMETIC = ir_pattern(
    "`operation:add|sub|mul|fma|div|rcp|sqrt``(`.`round:rn|rz|rm|rp``)?``ftz:.ftz?``sat:.sat?``relu:.relu?`."
    + _TYPE
)
_CHOICE = ir_pattern("`operation:fmin|fmax|min|max``ftz:.ftz?``nan:.nan|.NaN?`." + _TYPE)
_UNARY = ir_pattern("`operation:fabs|abs|neg|saturate|floor|ceil|trunc|round``ftz:.ftz?`." + _TYPE)
_APPROXIMATE = ir_pattern(
    "`operation:rcp|sqrt|rsqrt|ex2|lg2|sin|cos|tanh|div`.`approx|full``ftz:.ftz?``(`."
    + _TYPE
    + "`)?`"
)
_CONDITION = "`condition:eq|ne|lt|le|gt|ge|num|nan|equ|neu|ltu|leu|gtu|geu`."
_COMPARISON = ir_pattern(
    "set`p:p?`." + _CONDITION + "`(``to:u32|f16x2|bf16x2|f16|bf16|f32`.`)?`" + _TYPE
)
# In inline assembly, $$ is a literal dollar sign.
_ASM_COMPARISON = ir_pattern(
    "{ .reg .pred __$$temp3; setp."
    + _CONDITION
    + _TYPE
    + " __$$temp3, $1, $2; selp.u16 $0, 1, 0, __$$temp3;}"
)

# On x86, LLVM computes it in float and rounds the result again.
_SHORT = ir_pattern("llvm.`operation:fma|maximum|minimum`.`(`v`lanes:number``)?``type:bf16|f16`")

_DOT = ir_pattern("dp4a.`a:s|u`32.`b:s|u`32")

_INSTRUCTIONS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_OPERANDS = {"fma": 3, "add": 2, "sub": 2, "mul": 2, "div": 2}
_ORDERED = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_CONDITIONS = {"num": "ord", "nan": "uno", "neu": "une", "equ": "ueq"}
_LIBRARY = {
    "sqrt": "sqrt",
    "rsqrt": "sqrt",
    "ex2": "exp2",
    "lg2": "log2",
    "sin": "sin",
    "cos": "cos",
    "tanh": "tanh",
    "fabs": "fabs",
    "abs": "fabs",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "roundeven",
}


def asm_instruction(text: str) -> str | None:
    """Return the opcode of inline assembly of one instruction with its operands in order; None for other assembly.

    `setp` followed by `selp`, which converts the predicate to 0 or 1, counts as one instruction.
    """
    if match := _ASM_COMPARISON.fullmatch(text):
        return f"setp.{match['condition']}.{match['type']}"
    bare = text.strip().removeprefix("{").removesuffix("}").strip().removesuffix(";").strip()
    opcode, _, listed = bare.partition(" ")
    operands = [operand.strip() for operand in listed.split(",")]
    in_order = [f"${number}" for number in range(len(operands))]
    if opcode.startswith("cvt.rn.") and "x2." in opcode and operands == ["$0", "$2", "$1"]:
        return f"{opcode}.swapped"
    return opcode if operands in (in_order, ["$0", "$0"]) else None


def find_short_operation(name: str) -> Replacement | None:
    """Return the replacement of `llvm.fma`, `maximum` or `minimum` on 16-bit floating-point numbers or vectors of them."""
    match = _SHORT.fullmatch(name)
    if match is None:
        return None
    type_ = replace(TYPES[match["type"]], lanes=int(match["lanes"] or 1))
    code = Code(f"mo.{name}")
    if match["operation"] == "fma":
        value = _short_fma(code, type_, ["%a", "%b", "%e"])
        return _function(code, [type_] * 3, type_, value, is_asm=False)
    value = _short_extremum(code, type_, match["operation"])
    return _function(code, [type_] * 2, type_, value, is_asm=False)


def find_arithmetic(name: str) -> Replacement | None:
    """Return the replacement of `llvm.nvvm.NAME`, or of inline assembly (`asm.OPCODE`)."""
    opcode = name.removeprefix("asm.")
    is_asm = opcode != name
    if (row := load_calls().arithmetic.get(opcode)) is not None:
        lines = [f"{line.strip()}" for line in row.lines.splitlines()]
        return Replacement(f"mo.{name}", define(f"mo.{name}", row.result, row.operands, *lines))
    if match := _CONVERSION.fullmatch(opcode):
        to = "f16" if match["to"] == "h" else _NUMBERS[match["to"]]
        integer = "" if to.startswith("f") else "i"
        from_ = _NUMBERS[match["from"]]
        opcode = f"cvt.{match['round']}{integer}{match['ftz'] or ''}.{to}.{from_}"
        is_asm = True
    if match := _NARROWING.fullmatch(opcode):
        if match["to"].endswith("x2") != (match["pair"] == "ff2"):
            return None
        opcode = f"cvt.{match['round']}{match['relu']}.{match['to']}.f32"
    code = Code(f"mo.{name}")
    for build in (
        _arithmetic,
        _choice,
        _unary,
        _approximation,
        _comparison,
        convert,
        _permute,
        _dot,
    ):
        if (built := build(code, opcode)) is not None:
            return _function(code, *built, is_asm=is_asm)
    return None


def _function(
    code: Code, operands: list[str | Number], result: str | Number, value: str, *, is_asm: bool
) -> Replacement:
    """Return a replacement with the lines as its body and the parameters `%a`, `%b` and `%e`."""
    parameters, before = [], []
    for name, type_ in zip("abe", operands, strict=False):
        plain = type_ if isinstance(type_, str) else type_.type
        register = plain if isinstance(type_, str) or not is_asm else type_.register
        if register == plain:
            parameters.append(f"{plain} %{name}")
        else:
            parameters.append(f"{register} %{name}.bits")
            before.append(f"%{name} = bitcast {register} %{name}.bits to {plain}")
    plain = result if isinstance(result, str) else result.type
    register = plain if isinstance(result, str) or not is_asm else result.register
    if register != plain:
        value = code.add(f"bitcast {plain} {value} to {register}")
    lines = (*before, *code.lines, f"ret {register} {value}")
    definition = define(code.target, register, ", ".join(parameters), *lines)
    return Replacement(code.target, definition, called=code.called)


def _arithmetic(code: Code, opcode: str) -> Built | None:
    match = _ARITHMETIC.fullmatch(opcode)
    if match is None:
        return None
    operation, type_, rounding = match["operation"], TYPES[match["type"]], match["round"] or "rn"
    if type_.bits == SHORT and (
        rounding != "rn" or operation not in _OPERANDS or operation == "div"
    ):
        return None
    count = _OPERANDS.get(operation, 1)
    values = ["%a", "%b", "%e"][:count]
    if match["ftz"]:
        values = [flushed(code, type_, value) for value in values]
    if rounding == "rn":
        value = _nearest(code, operation, type_, values)
    else:
        if operation == "rcp":
            operation, values = "div", ["1.000000e+00", *values]
        intrinsic = f"{_INSTRUCTIONS.get(operation, operation)}.{type_.name}"
        value = code.in_direction(
            rounding, intrinsic, type_.type, [f"{type_.type} {value}" for value in values]
        )
    if match["ftz"]:
        value = flushed(code, type_, value)
    if match["sat"]:
        value = saturated(code, type_, value)
    if match["relu"]:
        value = rectified(code, type_, value)
    return [type_] * count, type_, value


def _nearest(code: Code, operation: str, type_: Number, values: list[str]) -> str:
    if operation == "fma":
        if type_.bits == SHORT:
            return _short_fma(code, type_, values)
        return code.call("fma", type_, *values)
    if operation == "sqrt":
        return code.call("sqrt", type_, *values)
    if operation == "rcp":
        operation, values = "div", [type_.constant("1.000000e+00"), *values]
    return code.add(f"{_INSTRUCTIONS[operation]} {type_.type} {', '.join(values)}")


def _short_extremum(code: Code, type_: Number, operation: str) -> str:
    """Append a maximum or minimum in f32. In vectors of f16, LLVM 19 returns 0 for 0 and NaN.

    Its expansion selects the zero if the result is equal to 0 or is NaN (`expandFMINIMUM_FMAXIMUM` in
    llvm/CodeGen/SelectionDAG/TargetLowering.cpp).
    """
    wide = replace(TYPES["f32"], lanes=type_.lanes)
    values = [code.add(f"fpext {type_.type} {value} to {wide.type}") for value in ("%a", "%b")]
    found = code.call(operation, wide, *values)
    return code.add(f"fptrunc {wide.type} {found} to {type_.type}")


def _short_fma(code: Code, type_: Number, values: list[str]) -> str:
    """Append a fused multiply-add of 16-bit numbers, with a single rounding.

    The product is exact in float, or in double for bfloat. The sum is rounded to odd; the second rounding then
    gives the correct result (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    """
    number, integer = ("float", "i32") if type_.mangled == "f16" else ("double", "i64")
    kind, bits = type_.of(number), type_.of(integer)
    wide = [code.add(f"fpext {type_.type} {value} to {kind}") for value in values]
    product, third = code.add(f"fmul {kind} {wide[0]}, {wide[1]}"), wide[2]
    total = code.add(f"fadd {kind} {product}, {third}")
    other = code.add(f"fsub {kind} {total}, {product}")
    back = code.add(f"fsub {kind} {total}, {other}")
    lost = code.add(f"fsub {kind} {third}, {other}")
    lost_too = code.add(f"fsub {kind} {product}, {back}")
    error = code.add(f"fadd {kind} {lost_too}, {lost}")
    zero = "zeroinitializer"
    inexact = code.add(f"fcmp one {kind} {error}, {zero}")
    up = code.add(f"fcmp ogt {kind} {error}, {zero}")
    positive = code.add(f"fcmp ogt {kind} {total}, {zero}")
    away = code.add(f"xor {type_.of('i1')} {up}, {positive}")
    whole = code.add(f"bitcast {kind} {total} to {bits}")
    step = code.add(f"sext {type_.of('i1')} {away} to {bits}")
    cut = code.add(f"add {bits} {whole}, {step}")
    odd = code.add(f"or {bits} {cut}, {type_.constant('1', integer)}")
    chosen = code.add(f"select {type_.of('i1')} {inexact}, {bits} {odd}, {bits} {whole}")
    exact = code.add(f"bitcast {bits} {chosen} to {kind}")
    return code.add(f"fptrunc {kind} {exact} to {type_.type}")


def _choice(code: Code, opcode: str) -> Built | None:
    """Build minimum and maximum: -0 is less than +0. NaN operands are ignored; with `.NaN` the result is NaN."""
    match = _CHOICE.fullmatch(opcode)
    if match is None:
        return None
    type_, least = TYPES[match["type"]], match["operation"].endswith("min")
    values = ["%a", "%b"]
    if match["ftz"]:
        values = [flushed(code, type_, value) for value in values]
    first, second = values
    bits = [code.add(f"bitcast {type_.type} {value} to {type_.integer}") for value in values]
    both = code.add(f"{'or' if least else 'and'} {type_.integer} {bits[0]}, {bits[1]}")
    zero = code.add(f"bitcast {type_.integer} {both} to {type_.type}")
    less = code.add(f"fcmp {'olt' if least else 'ogt'} {type_.type} {first}, {second}")
    value = code.select(less, type_, first, second)
    equal = code.add(f"fcmp oeq {type_.type} {first}, {second}")
    value = code.select(equal, type_, zero, value)
    if match["nan"]:
        value = canonical(code, type_, first, second, value)
    else:
        nan = code.add(f"fcmp uno {type_.type} {second}, {second}")
        value = code.select(nan, type_, first, value)
        value = canonical(code, type_, value, value)
    return [type_, type_], type_, value


def _unary(code: Code, opcode: str) -> Built | None:
    match = _UNARY.fullmatch(opcode)
    if match is None:
        return None
    operation, type_, value = match["operation"], TYPES[match["type"]], "%a"
    if match["ftz"]:
        value = flushed(code, type_, value)
    if operation == "neg":
        value = code.add(f"fneg {type_.type} {value}")
    elif operation == "saturate":
        value = saturated(code, type_, value)
    else:
        value = code.call(_LIBRARY[operation], type_, value)
    return [type_], type_, value


def _approximation(code: Code, opcode: str) -> Built | None:
    match = _APPROXIMATE.fullmatch(opcode)
    if match is None:
        return None
    operation, type_ = match["operation"], TYPES[match["type"] or "f32"]
    values = ["%a", "%b"] if operation == "div" else ["%a"]
    operands: list[str | Number] = [type_] * len(values)
    wide = TYPES["f32"] if type_.bits == SHORT else type_
    if type_.lanes == PAIR:
        return None
    if wide != type_:
        values = [code.add(f"fpext {type_.type} {value} to float") for value in values]
    if match["ftz"]:
        values = [flushed(code, wide, value) for value in values]
    value = code.call(_LIBRARY[operation], wide, *values) if operation in _LIBRARY else values[0]
    if operation in {"rcp", "rsqrt"}:
        value = code.add(f"fdiv {wide.type} 1.000000e+00, {value}")
    elif operation == "div":
        value = code.add(f"fdiv {wide.type} {', '.join(values)}")
    if match["ftz"]:
        value = flushed(code, wide, value)
    if wide != type_:
        value = code.add(f"fptrunc float {value} to {type_.type}")
    return operands, type_, value


def _comparison(code: Code, opcode: str) -> Built | None:
    """Build `set`, where true is 1.0 or all bits set in each element, and `setp`, where true is 1."""
    match = _COMPARISON.fullmatch(opcode)
    if match is None:
        return None
    type_, to, condition = TYPES[match["type"]], match["to"], match["condition"]
    ordered = f"o{condition}" if condition in _ORDERED else f"u{condition[:2]}"
    condition = _CONDITIONS.get(condition, ordered)
    found = code.add(f"fcmp {condition} {type_.type} %a, %b")
    if match["p"]:
        return [type_, type_], "i16", code.add(f"zext i1 {found} to i16")
    if to == "u32":
        word = type_.of("i16" if type_.lanes == PAIR else "i32")
        value = code.add(f"sext {type_.of('i1')} {found} to {word}")
        if type_.lanes == PAIR:
            value = code.add(f"bitcast {word} {value} to i32")
        return [type_, type_], "i32", value
    result = TYPES[to]
    value = code.add(f"uitofp {type_.of('i1')} {found} to {result.type}")
    return [type_, type_], result, value


def _permute(code: Code, opcode: str) -> Built | None:
    """Build `prmt`: each byte of the result is a byte of the two operands, or eight copies of its sign."""
    if opcode != "prmt":
        return None
    low, high = code.add("zext i32 %a to i64"), code.add("zext i32 %b to i64")
    high = code.add(f"shl i64 {high}, 32")
    both, value = code.add(f"or i64 {high}, {low}"), "0"
    for number in range(4):
        selector = code.add(f"lshr i32 %e, {4 * number}")
        place = code.add(f"and i32 {selector}, 7")
        place = code.add(f"shl i32 {place}, 3")
        place = code.add(f"zext i32 {place} to i64")
        word = code.add(f"lshr i64 {both}, {place}")
        byte = code.add(f"trunc i64 {word} to i8")
        sign = code.add(f"ashr i8 {byte}, 7")
        bit = code.add(f"and i32 {selector}, 8")
        is_sign = code.add(f"icmp ne i32 {bit}, 0")
        byte = code.add(f"select i1 {is_sign}, i8 {sign}, i8 {byte}")
        byte = code.add(f"zext i8 {byte} to i32")
        byte = code.add(f"shl i32 {byte}, {8 * number}")
        value = code.add(f"or i32 {value}, {byte}")
    return ["i32", "i32", "i32"], "i32", value


def _dot(code: Code, opcode: str) -> Built | None:
    """Build `dp4a`: the dot product of two vectors of four bytes, added to a 32-bit number."""
    match = _DOT.fullmatch(opcode)
    if match is None:
        return None
    total = "%e"
    for number in range(4):
        factors = []
        for name in "ab":
            high = code.add(f"shl i32 %{name}, {24 - 8 * number}")
            shift = "ashr" if match[name] == "s" else "lshr"
            factors.append(code.add(f"{shift} i32 {high}, 24"))
        term = code.add(f"mul i32 {factors[0]}, {factors[1]}")
        total = code.add(f"add i32 {total}, {term}")
    return ["i32", "i32", "i32"], "i32", total
