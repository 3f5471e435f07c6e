"""LLVM IR for PTX conversions (`cvt`) between floating-point types, and between these and integers."""

from __future__ import annotations

from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.translate.cpu.number import (
    AWAY,
    DIRECTIONS,
    DOUBLE,
    PAIR,
    SHORT,
    SINGLE,
    TYPES,
    Built,
    Code,
    Number,
    flushed,
    rectified,
)

_CONVERT = ir_pattern(
    "cvt`(`.`round:rni|rzi|rmi|rpi|rn|rz|rm|rp``)?``ftz:.ftz?``relu:.relu?`."
    "`to:f16x2|bf16x2|f16|bf16|f32|f64|s8|s16|s32|s64|u8|u16|u32|u64`."
    "`from:f16|bf16|f32|f64|s8|s16|s32|s64|u8|u16|u32|u64`"
)
_TO_INTEGER = {"rn": "roundeven", "rz": "trunc", "rm": "floor", "rp": "ceil"}


def convert(code: Code, opcode: str) -> Built | None:
    """Append `cvt`; return None if the opcode is not a supported conversion.

    With the suffix `.swapped`, the first operand is the lower element of the pair, otherwise the upper one.
    """
    is_swapped = opcode.endswith(".swapped")
    match = _CONVERT.fullmatch(opcode.removesuffix(".swapped"))
    if match is None:
        return None
    to, from_, rounding = match["to"], match["from"], match["round"]
    source, result = TYPES.get(from_), TYPES.get(to)
    value = "%a"
    if source is not None and match["ftz"]:
        value = flushed(code, source, value)
    if result is None:
        if source is None or not rounding.endswith("i"):
            return None
        return [source], *_integer(code, source, to, rounding, value)
    operands: list[str | Number] = [source or f"i{from_[1:]}"]
    if result.lanes == PAIR and from_ == "f32":
        value = _pair(code, result, rounding, is_swapped=is_swapped)
        operands *= 2
    elif source is None:
        value = _from_integer(code, from_, result, rounding, value)
    elif result.lanes == PAIR or (source == result and not rounding.endswith("i")):
        return None
    else:
        value = _from_number(code, source, result, rounding, value)
    if match["ftz"]:
        value = flushed(code, result, value)
    if match["relu"]:
        value = rectified(code, result, value)
    return operands, result, value


def _pair(code: Code, result: Number, rounding: str, *, is_swapped: bool) -> str:
    """Append a conversion of two floats to a pair, whose upper element is the first unless `is_swapped`."""
    low, high = ("%a", "%b") if is_swapped else ("%b", "%a")
    pair = code.add(f"insertelement <2 x float> poison, float {low}, i32 0")
    pair = code.add(f"insertelement <2 x float> {pair}, float {high}, i32 1")
    return narrowed(code, "<2 x float>", result, rounding, pair)


def _from_number(code: Code, source: Number, result: Number, rounding: str, value: str) -> str:
    if source == result:
        return code.call(_TO_INTEGER[rounding[:2]], source, value)
    if source.bits < result.bits:
        return code.add(f"fpext {source.type} {value} to {result.type}")
    return narrowed(code, source.type, result, rounding, value)


def _integer(code: Code, source: Number, to: str, rounding: str, value: str) -> tuple[str, str]:
    """Append a saturating conversion to an integer; return its type and the value."""
    if source.bits == SHORT:
        value, source = code.add(f"fpext {source.type} {value} to float"), TYPES["f32"]
    whole = code.call(_TO_INTEGER[rounding[:2]], source, value)
    type_, letter = f"i{to[1:]}", "s" if to[0] == "s" else "u"
    result = code.add(
        f"call {type_} @llvm.fpto{letter}i.sat.{type_}.{source.name}({source.type} {whole})"
    )
    if source.bits == DOUBLE or type_ == "i64":
        # Here NaN becomes 0x80...0. For other types it becomes 0, as llvm.fpto*i.sat returns.
        nan = code.add(f"fcmp uno {source.type} {value}, {value}")
        result = code.add(f"select i1 {nan}, {type_} {-(1 << int(to[1:]) - 1)}, {type_} {result}")
    if type_ == "i8":
        # The register of an 8-bit result has 32 bits.
        extend = "sext" if letter == "s" else "zext"
        return "i32", code.add(f"{extend} i8 {result} to i32")
    return type_, result


def _from_integer(code: Code, from_: str, result: Number, rounding: str, value: str) -> str:
    """Append a conversion of an integer with a single rounding."""
    type_, instruction = f"i{from_[1:]}", "sitofp" if from_[0] == "s" else "uitofp"
    if type_ != "i64":
        # Integers of up to 32 bits are exact in double.
        wide = code.add(f"{instruction} {type_} {value} to double")
        if result.bits == DOUBLE:
            return wide
        return narrowed(code, "double", result, rounding, wide)
    if rounding == "rn" and result.bits >= SINGLE:
        return code.add(f"{instruction} i64 {value} to {result.type}")
    if from_ == "s64" and result.bits >= SINGLE:
        intrinsic = f"sitofp.{result.mangled}.i64"
        return code.in_direction(rounding, intrinsic, result.type, [f"i64 {value}"])
    if result.bits == DOUBLE:
        # Both halves are exact, their sum is rounded.
        upper, lower = code.add(f"lshr i64 {value}, 32"), code.add(f"and i64 {value}, 4294967295")
        high = code.add(f"sitofp i64 {upper} to double")
        high = code.add(f"fmul double {high}, 0x41F0000000000000")
        low = code.add(f"sitofp i64 {lower} to double")
        return code.in_direction(
            rounding, "fadd.f64", "double", [f"double {high}", f"double {low}"]
        )
    # Round to odd: the upper 53 bits, the last one set if a dropped bit is, are exact in double.
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
    return narrowed(code, "double", result, rounding, wide)


def narrowed(code: Code, source: str, result: Number, rounding: str, value: str) -> str:
    """Append a conversion to a narrower type. `ra` rounds to nearest, of two to the number with the larger magnitude."""
    near = code.add(f"fptrunc {source} {value} to {result.type}")
    if rounding != AWAY and rounding not in DIRECTIONS:
        return near
    # Step to the neighbor if the rounding mode requires it.
    bits = code.add(f"bitcast {result.type} {near} to {result.integer}")
    back = code.add(f"fpext {result.type} {near} to {source}")
    step = (_tie if rounding == AWAY else _step)(
        code, (source, value, back), result, rounding, bits
    )
    moved = code.add(f"add {result.integer} {bits}, {step}")
    return code.add(f"bitcast {result.integer} {moved} to {result.type}")


def _tie(code: Code, wide: tuple[str, str, str], result: Number, _rounding: str, bits: str) -> str:
    """Append 1 if the value is in the middle of the nearest number and the one with the next larger magnitude."""
    source, value, back = wide
    next_bits = code.add(f"add {result.integer} {bits}, {result.constant('1', f'i{result.bits}')}")
    beyond = code.add(f"bitcast {result.integer} {next_bits} to {result.type}")
    beyond = code.add(f"fpext {result.type} {beyond} to {source}")
    # Both differences are exact if they are equal.
    below = code.add(f"fsub {source} {value}, {back}")
    above = code.add(f"fsub {source} {beyond}, {value}")
    tie = code.add(f"fcmp oeq {source} {below}, {above}")
    return code.add(f"zext {result.of('i1')} {tie} to {result.integer}")


def _step(code: Code, wide: tuple[str, str, str], result: Number, rounding: str, bits: str) -> str:
    """Append 1 or -1 if the nearest number is on the wrong side of the value, otherwise 0."""
    source, value, back = wide
    above = code.add(f"fcmp ogt {source} {back}, {value}")
    below = code.add(f"fcmp olt {source} {back}, {value}")
    negative = code.add(f"icmp slt {result.integer} {bits}, zeroinitializer")
    flag = result.of("i1")
    toward_zero = code.add(f"select {flag} {negative}, {flag} {below}, {flag} {above}")
    outward = code.add(f"select {flag} {negative}, {flag} {above}, {flag} {below}")
    if rounding == "rz":
        return code.add(f"sext {flag} {toward_zero} to {result.integer}")
    wrong = above if rounding == "rm" else below
    shrinks = code.add(f"and {flag} {wrong}, {toward_zero}")
    grows = code.add(f"and {flag} {wrong}, {outward}")
    less = code.add(f"sext {flag} {shrinks} to {result.integer}")
    more = code.add(f"zext {flag} {grows} to {result.integer}")
    return code.add(f"add {result.integer} {less}, {more}")
