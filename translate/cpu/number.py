"""LLVM IR for PTX floating-point arithmetic on scalars and pairs, for one thread."""

from __future__ import annotations

from msgspec import Struct

# Bits of the types, and elements of a pair.
SHORT, SINGLE, DOUBLE, PAIR = 16, 32, 64, 2
# To nearest, of two to the number with the larger magnitude: not in PTX.
AWAY = "ra"
# The rounding mode of a PTX modifier: its name in LLVM, and its value for llvm.set.rounding.
DIRECTIONS = {"rz": ("towardzero", 0), "rp": ("upward", 2), "rm": ("downward", 3)}


class Number(Struct, frozen=True):
    """A floating-point type, or a vector type with `lanes` elements if that is not 0.

    `normal` is the smallest positive normal number of an element, `nan` the canonical NaN of PTX, and `bits` the
    size of an element.
    """

    scalar: str
    mangled: str
    normal: str
    nan: str
    bits: int
    lanes: int = 0

    @property
    def type(self) -> str:
        """Return the type as LLVM IR spells it."""
        return self.of(self.scalar)

    @property
    def name(self) -> str:
        """Return the suffix of the type in names of intrinsics."""
        return f"v{self.lanes}{self.mangled}" if self.lanes else self.mangled

    @property
    def integer(self) -> str:
        """Return the integer type with the same size and number of elements."""
        return self.of("i" + str(self.bits))

    @property
    def register(self) -> str:
        """Return the type of operands in inline assembly: an integer for 16-bit elements."""
        return f"i{self.bits * (self.lanes or 1)}" if self.bits == SHORT else self.type

    def of(self, scalar: str) -> str:
        """Return the type with the element type `scalar` and the same number of elements."""
        return f"<{self.lanes} x {scalar}>" if self.lanes else scalar

    def constant(self, value: str, scalar: str = "") -> str:
        """Return a constant with this value in each element."""
        if not self.lanes:
            return value
        return f"<{', '.join([f'{scalar or self.scalar} {value}'] * self.lanes)}>"


TYPES = {
    "f16": Number("half", "f16", "0xH0400", "0xH7FFF", 16),
    "bf16": Number("bfloat", "bf16", "0xR0080", "0xR7FFF", 16),
    "f16x2": Number("half", "f16", "0xH0400", "0xH7FFF", 16, 2),
    "bf16x2": Number("bfloat", "bf16", "0xR0080", "0xR7FFF", 16, 2),
    "f32": Number("float", "f32", "0x3810000000000000", "0x7FFFFFFFE0000000", 32),
    "f64": Number("double", "f64", "0x0010000000000000", "0x7FFFFFFFFFFFFFFF", 64),
}
# Types that PTX does not have.
WIDE = {"f80": Number("x86_fp80", "f80", "", "", 80), "f128": Number("fp128", "f128", "", "", 128)}
TYPES |= {"f": TYPES["f32"], "d": TYPES["f64"]}


class Code:
    """The instructions of a function under construction.

    `called` are the names and definitions of functions that the instructions call.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.lines: list[str] = []
        self.called: tuple[tuple[str, str], ...] = ()

    def add(self, text: str) -> str:
        """Append an instruction; return the name of its value."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def call(self, function: str, type_: Number, *values: str) -> str:
        """Append a call of an intrinsic for operands and a result of one type."""
        listed = ", ".join(f"{type_.type} {value}" for value in values)
        return self.add(f"call {type_.type} @llvm.{function}.{type_.name}({listed})")

    def select(self, condition: str, type_: Number, yes: str, no: str) -> str:
        """Append a `select`, for each element of a vector."""
        return self.add(
            f"select {type_.of('i1')} {condition}, {type_.type} {yes}, {type_.type} {no}"
        )

    def in_direction(self, rounding: str, intrinsic: str, result: str, operands: list[str]) -> str:
        """Append a call of a function that executes an intrinsic in another rounding mode.

        The function is not inlined, so that no other code runs in that mode.
        """
        direction, number = DIRECTIONS[rounding]
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


# The types of the operands, the type of the result, and the name of the result.
Built = tuple[list[str | Number], str | Number, str]


def flushed(code: Code, type_: Number, value: str) -> str:
    """Append instructions that flush a subnormal number to a zero of the same sign (`.ftz`)."""
    size = code.call("fabs", type_, value)
    small = code.add(f"fcmp olt {type_.type} {size}, {type_.constant(type_.normal)}")
    zero = code.call("copysign", type_, "zeroinitializer", value)
    return code.select(small, type_, zero, value)


def saturated(code: Code, type_: Number, value: str) -> str:
    """Append instructions that clamp a number to the range 0 to 1; NaN becomes 0 (`.sat`)."""
    positive = code.add(f"fcmp ogt {type_.type} {value}, zeroinitializer")
    value = code.select(positive, type_, value, "zeroinitializer")
    one = type_.constant("1.000000e+00")
    less = code.add(f"fcmp olt {type_.type} {value}, {one}")
    return code.select(less, type_, value, one)


def rectified(code: Code, type_: Number, value: str) -> str:
    """Append instructions that replace a negative number by 0 and NaN by the canonical NaN (`.relu`)."""
    least = code.add(f"fcmp ole {type_.type} {value}, zeroinitializer")
    value = code.select(least, type_, "zeroinitializer", value)
    return canonical(code, type_, value, value)


def canonical(code: Code, type_: Number, *values: str) -> str:
    """Append a selection: the canonical NaN if a value before the last is a NaN, otherwise the last value."""
    result = values[-1]
    for value in dict.fromkeys(values[:-1]):
        is_nan = code.add(f"fcmp uno {type_.type} {value}, {value}")
        result = code.select(is_nan, type_, type_.constant(type_.nan), result)
    return result
