"""Arithmetic of PTX for one thread of the CPU: NVVM intrinsics, and inline assembly of one instruction.

Both become an opcode of PTX, such as `add.rz.ftz.f32`, whose results are exact: rounding, saturation,
NaN and subnormal numbers as the PTX ISA says. Approximations are those of the host's library.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.toolchain.pattern import ir_pattern
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
_UNARY = ir_pattern(
    "`operation:fabs|abs|neg|saturate|floor|ceil|trunc|round``ftz:.ftz?`." + _TYPE
)
_APPROXIMATE = ir_pattern(
    "`operation:rcp|sqrt|rsqrt|ex2|lg2|sin|cos|tanh|div`.`approx|full``ftz:.ftz?``(`." + _TYPE + "`)?`"
)
_CONDITION = "`condition:eq|ne|lt|le|gt|ge|num|nan|equ|neu|ltu|leu|gtu|geu`."
_COMPARISON = ir_pattern(
    "set`p:p?`." + _CONDITION + "`(``to:u32|f16x2|bf16x2|f16|bf16|f32`.`)?`" + _TYPE
)
# $$ is a dollar.
_ASM_COMPARISON = ir_pattern(
    "{ .reg .pred __$$temp3; setp." + _CONDITION + _TYPE
    + " __$$temp3, $1, $2; selp.u16 $0, 1, 0, __$$temp3;}"
)
_CONVERT = ir_pattern(
    "cvt`(`.`round:rni|rzi|rmi|rpi|rn|rz|rm|rp``)?``ftz:.ftz?``sat:.sat?``relu:.relu?`."
    "`to:f16x2|bf16x2|f16|bf16|f32|f64|s8|s16|s32|s64|u8|u16|u32|u64`."
    "`from:f16|bf16|f32|f64|s8|s16|s32|s64|u8|u16|u32|u64`"
)

# x86 computes it in float, which LLVM rounds again.
_BFLOAT_FMA = ir_pattern("llvm.fma.`(`v`lanes:number``)?`bf16")

_DOT = ir_pattern("dp4a.`a:s|u`32.`b:s|u`32")

_INSTRUCTIONS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_OPERANDS = {"fma": 3, "add": 2, "sub": 2, "mul": 2, "div": 2}
_TO_INTEGER = {"rn": "roundeven", "rz": "trunc", "rm": "floor", "rp": "ceil"}
_DIRECTIONS = {"rz": ("towardzero", 0), "rp": ("upward", 2), "rm": ("downward", 3)}
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


class _Number(Struct, frozen=True):
    """A type of floating-point numbers, or of pairs of them.

    `normal` is its least normal number, `integer` the type of its bits.
    """

    scalar: str
    mangled: str
    normal: str
    nan: str
    bits: int
    lanes: int = 1

    @property
    def type(self) -> str:
        return self.scalar if self.lanes == 1 else f"<{self.lanes} x {self.scalar}>"

    @property
    def name(self) -> str:
        return self.mangled if self.lanes == 1 else f"v{self.lanes}{self.mangled}"

    @property
    def integer(self) -> str:
        return self.of("i" + str(self.bits))

    @property
    def register(self) -> str:
        """Return the type that inline assembly has for it."""
        return f"i{self.bits * self.lanes}" if self.bits == 16 else self.type

    def of(self, scalar: str) -> str:
        """Return a type with as many elements."""
        return scalar if self.lanes == 1 else f"<{self.lanes} x {scalar}>"

    def constant(self, value: str, scalar: str = "") -> str:
        """Return a constant with this value in each element."""
        if self.lanes == 1:
            return value
        return f"<{', '.join([f'{scalar or self.scalar} {value}'] * self.lanes)}>"


_TYPES = {
    "f16": _Number("half", "f16", "0xH0400", "0xH7FFF", 16),
    "bf16": _Number("bfloat", "bf16", "0xR0080", "0xR7FFF", 16),
    "f16x2": _Number("half", "f16", "0xH0400", "0xH7FFF", 16, 2),
    "bf16x2": _Number("bfloat", "bf16", "0xR0080", "0xR7FFF", 16, 2),
    "f32": _Number("float", "f32", "0x3810000000000000", "0x7FFFFFFFE0000000", 32),
    "f64": _Number("double", "f64", "0x0010000000000000", "0x7FFFFFFFFFFFFFFF", 64),
}
_TYPES |= {"f": _TYPES["f32"], "d": _TYPES["f64"]}


class _Code:
    """The lines of a function, and functions that it calls besides."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.lines: list[str] = []
        self.called: tuple[tuple[str, str], ...] = ()

    def add(self, text: str) -> str:
        """Append an instruction; return the name of its value."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def call(self, function: str, type_: _Number, *values: str) -> str:
        """Append a call of an intrinsic for operands and a result of one type."""
        listed = ", ".join(f"{type_.type} {value}" for value in values)
        return self.add(f"call {type_.type} @llvm.{function}.{type_.name}({listed})")

    def select(self, condition: str, type_: _Number, yes: str, no: str) -> str:
        """Append a choice for each element."""
        return self.add(
            f"select {type_.of('i1')} {condition}, {type_.type} {yes}, {type_.type} {no}"
        )

    def in_direction(
        self, rounding: str, intrinsic: str, result: str, operands: list[str]
    ) -> str:
        """Append a call of a function that computes while the processor rounds in another direction.

        It is not inlined, and so nothing else is computed meanwhile.
        """
        direction, number = _DIRECTIONS[rounding]
        listed = ", ".join(operands)
        types = [operand.split()[0] for operand in operands]
        parameters = ", ".join(f"{type_} %p{index}" for index, type_ in enumerate(types))
        name = f"{self.target}.rounded"
        text = (
            f"define internal {result} @{name}({parameters}) noinline nounwind"
            " willreturn memory(none) strictfp {\n"
            f"  call void @llvm.set.rounding(i32 {number}) strictfp\n"
            f"  %r = call {result} @llvm.experimental.constrained.{intrinsic}({parameters},"
            f' metadata !"round.{direction}", metadata !"fpexcept.ignore") strictfp\n'
            f"  call void @llvm.set.rounding(i32 1) strictfp\n  ret {result} %r\n}}"
        )
        self.called = ((name, text),)
        return self.add(f"call {result} @{name}({listed})")


def asm_instruction(text: str) -> str | None:
    """Return the opcode of inline assembly that is one instruction with its operands in order.

    A comparison of `setp` whose result `selp` makes a number is one.
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


def find_bfloat_fma(name: str) -> Replacement | None:
    """Return what represents LLVM's fused product and sum of bfloat, or of vectors of them."""
    match = _BFLOAT_FMA.fullmatch(name)
    if match is None:
        return None
    type_ = replace(_TYPES["bf16"], lanes=int(match["lanes"] or 1))
    code = _Code(f"mo.{name}")
    value = _short_fma(code, type_, ["%a", "%b", "%e"])
    return _function(code, [type_] * 3, type_, value, is_asm=False)


def find_arithmetic(name: str) -> Replacement | None:
    """Return what represents `llvm.nvvm.NAME`, or inline assembly: `asm.OPCODE`."""
    opcode = name.removeprefix("asm.")
    is_asm = opcode != name
    if (row := load_calls().arithmetic.get(opcode)) is not None:
        lines = [f"{line.strip()}" for line in row.lines.splitlines()]
        return Replacement(
            f"mo.{name}", define(f"mo.{name}", row.result, row.operands, *lines)
        )
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
    code = _Code(f"mo.{name}")
    for build in (_arithmetic, _choice, _unary, _approximation, _comparison, _convert, _permute, _dot):
        if (built := build(code, opcode)) is not None:
            return _function(code, *built, is_asm=is_asm)
    return None


# The types of the operands, that of the result, and the result.
Built = tuple[list[str | _Number], str | _Number, str]


def _function(
    code: _Code, operands: list[str | _Number], result: str | _Number, value: str, *, is_asm: bool
) -> Replacement:
    """Return the function around the lines, whose operands are `%a`, `%b` and `%e`."""
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


def _arithmetic(code: _Code, opcode: str) -> Built | None:
    match = _ARITHMETIC.fullmatch(opcode)
    if match is None:
        return None
    operation, type_, rounding = match["operation"], _TYPES[match["type"]], match["round"] or "rn"
    if type_.bits == 16 and (rounding != "rn" or operation not in _OPERANDS or operation == "div"):
        return None
    count = _OPERANDS.get(operation, 1)
    values = ["%a", "%b", "%e"][:count]
    if match["ftz"]:
        values = [_flushed(code, type_, value) for value in values]
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
        value = _flushed(code, type_, value)
    if match["sat"]:
        value = _saturated(code, type_, value)
    if match["relu"]:
        value = _rectified(code, type_, value)
    return [type_] * count, type_, value


def _nearest(code: _Code, operation: str, type_: _Number, values: list[str]) -> str:
    if operation == "fma":
        if type_.bits == 16:
            return _short_fma(code, type_, values)
        return code.call("fma", type_, *values)
    if operation == "sqrt":
        return code.call("sqrt", type_, *values)
    if operation == "rcp":
        operation, values = "div", [type_.constant("1.000000e+00"), *values]
    return code.add(f"{_INSTRUCTIONS[operation]} {type_.type} {', '.join(values)}")


def _short_fma(code: _Code, type_: _Number, values: list[str]) -> str:
    """Append a product and sum of 16-bit numbers that is rounded once.

    The product is exact in double; the sum is rounded to odd, so that rounding it again is harmless
    (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    """
    double, bits = type_.of("double"), type_.of("i64")
    wide = [code.add(f"fpext {type_.type} {value} to {double}") for value in values]
    product, third = code.add(f"fmul {double} {wide[0]}, {wide[1]}"), wide[2]
    total = code.add(f"fadd {double} {product}, {third}")
    other = code.add(f"fsub {double} {total}, {product}")
    back = code.add(f"fsub {double} {total}, {other}")
    lost = code.add(f"fsub {double} {third}, {other}")
    lost_too = code.add(f"fsub {double} {product}, {back}")
    error = code.add(f"fadd {double} {lost_too}, {lost}")
    zero = "zeroinitializer"
    inexact = code.add(f"fcmp one {double} {error}, {zero}")
    up = code.add(f"fcmp ogt {double} {error}, {zero}")
    positive = code.add(f"fcmp ogt {double} {total}, {zero}")
    away = code.add(f"xor {type_.of('i1')} {up}, {positive}")
    whole = code.add(f"bitcast {double} {total} to {bits}")
    step = code.add(f"sext {type_.of('i1')} {away} to {bits}")
    cut = code.add(f"add {bits} {whole}, {step}")
    odd = code.add(f"or {bits} {cut}, {type_.constant('1', 'i64')}")
    chosen = code.add(f"select {type_.of('i1')} {inexact}, {bits} {odd}, {bits} {whole}")
    exact = code.add(f"bitcast {bits} {chosen} to {double}")
    return code.add(f"fptrunc {double} {exact} to {type_.type}")


def _flushed(code: _Code, type_: _Number, value: str) -> str:
    """Append what makes a subnormal number a zero with its sign (`.ftz`)."""
    size = code.call("fabs", type_, value)
    small = code.add(f"fcmp olt {type_.type} {size}, {type_.constant(type_.normal)}")
    zero = code.call("copysign", type_, "zeroinitializer", value)
    return code.select(small, type_, zero, value)


def _saturated(code: _Code, type_: _Number, value: str) -> str:
    """Append what limits a number to 0 to 1; NaN becomes 0 (`.sat`)."""
    positive = code.add(f"fcmp ogt {type_.type} {value}, zeroinitializer")
    value = code.select(positive, type_, value, "zeroinitializer")
    one = type_.constant("1.000000e+00")
    less = code.add(f"fcmp olt {type_.type} {value}, {one}")
    return code.select(less, type_, value, one)


def _rectified(code: _Code, type_: _Number, value: str) -> str:
    """Append what makes a negative number 0; NaN becomes the canonical one (`.relu`)."""
    least = code.add(f"fcmp ole {type_.type} {value}, zeroinitializer")
    value = code.select(least, type_, "zeroinitializer", value)
    return _canonical(code, type_, value, value)


def _canonical(code: _Code, type_: _Number, *values: str) -> str:
    """Append the last value, or the canonical NaN if another one is a NaN."""
    result = values[-1]
    for value in dict.fromkeys(values[:-1]):
        is_nan = code.add(f"fcmp uno {type_.type} {value}, {value}")
        result = code.select(is_nan, type_, type_.constant(type_.nan), result)
    return result


def _choice(code: _Code, opcode: str) -> Built | None:
    """Build minimum and maximum: -0 is less than +0, NaN is the other operand or with `.NaN` the result."""
    match = _CHOICE.fullmatch(opcode)
    if match is None:
        return None
    type_, least = _TYPES[match["type"]], match["operation"].endswith("min")
    values = ["%a", "%b"]
    if match["ftz"]:
        values = [_flushed(code, type_, value) for value in values]
    first, second = values
    bits = [code.add(f"bitcast {type_.type} {value} to {type_.integer}") for value in values]
    both = code.add(f"{'or' if least else 'and'} {type_.integer} {bits[0]}, {bits[1]}")
    zero = code.add(f"bitcast {type_.integer} {both} to {type_.type}")
    less = code.add(f"fcmp {'olt' if least else 'ogt'} {type_.type} {first}, {second}")
    value = code.select(less, type_, first, second)
    equal = code.add(f"fcmp oeq {type_.type} {first}, {second}")
    value = code.select(equal, type_, zero, value)
    if match["nan"]:
        value = _canonical(code, type_, first, second, value)
    else:
        nan = code.add(f"fcmp uno {type_.type} {second}, {second}")
        value = code.select(nan, type_, first, value)
        value = _canonical(code, type_, value, value)
    return [type_, type_], type_, value


def _unary(code: _Code, opcode: str) -> Built | None:
    match = _UNARY.fullmatch(opcode)
    if match is None:
        return None
    operation, type_, value = match["operation"], _TYPES[match["type"]], "%a"
    if match["ftz"]:
        value = _flushed(code, type_, value)
    if operation == "neg":
        value = code.add(f"fneg {type_.type} {value}")
    elif operation == "saturate":
        value = _saturated(code, type_, value)
    else:
        value = code.call(_LIBRARY[operation], type_, value)
    return [type_], type_, value


def _approximation(code: _Code, opcode: str) -> Built | None:
    match = _APPROXIMATE.fullmatch(opcode)
    if match is None:
        return None
    operation, type_ = match["operation"], _TYPES[match["type"] or "f32"]
    values = ["%a", "%b"] if operation == "div" else ["%a"]
    operands: list[str | _Number] = [type_] * len(values)
    wide = _TYPES["f32"] if type_.bits == 16 else type_
    if type_.lanes == 2:
        return None
    if wide != type_:
        values = [code.add(f"fpext {type_.type} {value} to float") for value in values]
    if match["ftz"]:
        values = [_flushed(code, wide, value) for value in values]
    value = code.call(_LIBRARY[operation], wide, *values) if operation in _LIBRARY else values[0]
    if operation in {"rcp", "rsqrt"}:
        value = code.add(f"fdiv {wide.type} 1.000000e+00, {value}")
    elif operation == "div":
        value = code.add(f"fdiv {wide.type} {', '.join(values)}")
    if match["ftz"]:
        value = _flushed(code, wide, value)
    if wide != type_:
        value = code.add(f"fptrunc float {value} to {type_.type}")
    return operands, type_, value


def _comparison(code: _Code, opcode: str) -> Built | None:
    """Build `set`: the result is 1.0, or a word of ones for each element."""
    match = _COMPARISON.fullmatch(opcode)
    if match is None:
        return None
    type_, to, condition = _TYPES[match["type"]], match["to"], match["condition"]
    if len(condition) == 2:
        condition = f"o{condition}"
    else:
        condition = _CONDITIONS.get(condition, f"u{condition[:2]}")
    found = code.add(f"fcmp {condition} {type_.type} %a, %b")
    if match["p"]:
        return [type_, type_], "i16", code.add(f"zext i1 {found} to i16")
    if to == "u32":
        word = type_.of("i16" if type_.lanes == 2 else "i32")
        value = code.add(f"sext {type_.of('i1')} {found} to {word}")
        if type_.lanes == 2:
            value = code.add(f"bitcast {word} {value} to i32")
        return [type_, type_], "i32", value
    result = _TYPES[to]
    value = code.add(f"uitofp {type_.of('i1')} {found} to {result.type}")
    return [type_, type_], result, value


def _convert(code: _Code, opcode: str) -> Built | None:
    is_swapped = opcode.endswith(".swapped")
    match = _CONVERT.fullmatch(opcode.removesuffix(".swapped"))
    if match is None:
        return None
    to, from_, rounding = match["to"], match["from"], match["round"]
    if match["sat"] or (to[0] in "su" and from_[0] in "su"):
        return None
    source, result = _TYPES.get(from_), _TYPES.get(to)
    value = "%a"
    if source is not None and match["ftz"]:
        value = _flushed(code, source, value)
    if result is None:
        if source is None or not rounding.endswith("i"):
            return None
        return [source], *_integer(code, source, to, rounding, value)
    operands: list[str | _Number] = [source or f"i{from_[1:]}"]
    if result.lanes == 2:
        # The first operand of the instruction goes to the upper half.
        pair = code.add(f"insertelement <2 x float> poison, float {'%a' if is_swapped else '%b'}, i32 0")
        value = code.add(f"insertelement <2 x float> {pair}, float {'%b' if is_swapped else '%a'}, i32 1")
        value = _narrowed(code, "<2 x float>", result, rounding, value)
        operands *= 2
    elif source is None:
        value = _from_integer(code, from_, result, rounding, value)
    elif source == result:
        if not rounding.endswith("i"):
            return None
        value = code.call(_TO_INTEGER[rounding[:2]], source, value)
    elif source.bits < result.bits:
        value = code.add(f"fpext {source.type} {value} to {result.type}")
    else:
        value = _narrowed(code, source.type, result, rounding, value)
    if match["ftz"]:
        value = _flushed(code, result, value)
    if match["relu"]:
        value = _rectified(code, result, value)
    return operands, result, value


def _integer(
    code: _Code, source: _Number, to: str, rounding: str, value: str
) -> tuple[str, str]:
    """Append a conversion to an integer, which is limited; return its type and the value."""
    if source.bits == 16:
        value, source = code.add(f"fpext {source.type} {value} to float"), _TYPES["f32"]
    whole = code.call(_TO_INTEGER[rounding[:2]], source, value)
    type_, letter = f"i{to[1:]}", "s" if to[0] == "s" else "u"
    result = code.add(
        f"call {type_} @llvm.fpto{letter}i.sat.{type_}.{source.name}({source.type} {whole})"
    )
    if source.bits == 64 or type_ == "i64":
        # NaN, which becomes 0 elsewhere.
        nan = code.add(f"fcmp uno {source.type} {value}, {value}")
        result = code.add(f"select i1 {nan}, {type_} {-(1 << int(to[1:]) - 1)}, {type_} {result}")
    if type_ == "i8":
        # It has a register of 32 bits.
        extend = "sext" if letter == "s" else "zext"
        return "i32", code.add(f"{extend} i8 {result} to i32")
    return type_, result


def _from_integer(code: _Code, from_: str, result: _Number, rounding: str, value: str) -> str:
    """Append a conversion of an integer that is rounded once."""
    type_, instruction = f"i{from_[1:]}", "sitofp" if from_[0] == "s" else "uitofp"
    if type_ != "i64":
        # Exact in double.
        wide = code.add(f"{instruction} {type_} {value} to double")
        if result.bits == 64:
            return wide
        return _narrowed(code, "double", result, rounding, wide)
    if rounding == "rn" and result.bits >= 32:
        return code.add(f"{instruction} i64 {value} to {result.type}")
    if from_ == "s64" and result.bits >= 32:
        intrinsic = f"sitofp.{result.mangled}.i64"
        return code.in_direction(rounding, intrinsic, result.type, [f"i64 {value}"])
    if result.bits == 64:
        # Both halves are exact, their sum is rounded.
        upper, lower = code.add(f"lshr i64 {value}, 32"), code.add(f"and i64 {value}, 4294967295")
        high = code.add(f"sitofp i64 {upper} to double")
        high = code.add(f"fmul double {high}, 0x41F0000000000000")
        low = code.add(f"sitofp i64 {lower} to double")
        return code.in_direction(
            rounding, "fadd.f64", "double", [f"double {high}", f"double {low}"]
        )
    # Its upper 53 bits, the last one set if a lower one is, are exact in double.
    size = code.add(f"call i64 @llvm.abs.i64(i64 {value}, i1 false)") if from_ == "s64" else value
    shifted = code.add(f"lshr i64 {size}, 11")
    lost = code.add(f"and i64 {size}, 2047")
    sticky = code.add(f"add i64 {lost}, 2047")
    sticky = code.add(f"lshr i64 {sticky}, 11")
    odd = code.add(f"or i64 {shifted}, {sticky}")
    large = code.add(f"sitofp i64 {odd} to double")
    large = code.add(f"fmul double {large}, 2.048000e+03")
    small = code.add(f"sitofp i64 {size} to double")
    is_large = code.add(f"icmp ugt i64 {size}, 9007199254740992")
    wide = code.add(f"select i1 {is_large}, double {large}, double {small}")
    if from_ == "s64":
        negative = code.add(f"icmp slt i64 {value}, 0")
        opposite = code.add(f"fneg double {wide}")
        wide = code.add(f"select i1 {negative}, double {opposite}, double {wide}")
    return _narrowed(code, "double", result, rounding, wide)


def _narrowed(code: _Code, source: str, result: _Number, rounding: str, value: str) -> str:
    """Append a conversion to fewer bits."""
    if rounding == "rn" or rounding not in _DIRECTIONS:
        return code.add(f"fptrunc {source} {value} to {result.type}")
    if result.bits == 32:
        return code.in_direction(
            rounding, "fptrunc.f32.f64", "float", [f"{source} {value}"]
        )
    # The nearest number, or its neighbor in the direction.
    near = code.add(f"fptrunc {source} {value} to {result.type}")
    bits = code.add(f"bitcast {result.type} {near} to {result.integer}")
    back = code.add(f"fpext {result.type} {near} to {source}")
    above = code.add(f"fcmp ogt {source} {back}, {value}")
    below = code.add(f"fcmp olt {source} {back}, {value}")
    negative = code.add(f"icmp slt {result.integer} {bits}, zeroinitializer")
    flag = result.of("i1")
    toward_zero = code.add(f"select {flag} {negative}, {flag} {below}, {flag} {above}")
    outward = code.add(f"select {flag} {negative}, {flag} {above}, {flag} {below}")
    if rounding == "rz":
        step = code.add(f"sext {flag} {toward_zero} to {result.integer}")
    else:
        wrong = above if rounding == "rm" else below
        shrinks = code.add(f"and {flag} {wrong}, {toward_zero}")
        grows = code.add(f"and {flag} {wrong}, {outward}")
        less = code.add(f"sext {flag} {shrinks} to {result.integer}")
        more = code.add(f"zext {flag} {grows} to {result.integer}")
        step = code.add(f"add {result.integer} {less}, {more}")
    moved = code.add(f"add {result.integer} {bits}, {step}")
    return code.add(f"bitcast {result.integer} {moved} to {result.type}")


def _permute(code: _Code, opcode: str) -> Built | None:
    """Build the choice of four bytes of two words, or of their signs."""
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


def _dot(code: _Code, opcode: str) -> Built | None:
    """Build the sum of the products of four bytes each, and of a word."""
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
