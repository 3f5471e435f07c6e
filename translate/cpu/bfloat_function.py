"""Definitions of functions that compute bf16 as f32, and round once."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from mlir_offload.offload.ir_syntax import LLVM_IR
from mlir_offload.toolchain.pattern import ir_line
from mlir_offload.translate.cpu.conversion import convert
from mlir_offload.translate.cpu.number import TYPES, Code, Number

BFLOAT = "bfloat"
_VECTOR = ir_line("<`lanes:number` x `scalar:word`>`end`")
_PREFIX = "mo.bf16."
# The bits of the significands of float and double, which hold every integer of that size.
_SINGLE_DIGITS, _DOUBLE_DIGITS, _LARGEST = 24, 53, 64
_SIGN, _SIZE = "-32768", "32767"
_REDUCED = {"fmax": "maxnum", "fmin": "minnum", "fmaximum": "maximum", "fminimum": "minimum"}


def number_of(kind: str) -> Number:
    """Return bf16 with the number of elements of a type."""
    return replace(TYPES["bf16"], lanes=split_type(kind)[0])


def instruction_function(opcode: str, kind: str, result: str, count: int) -> tuple[str, str]:
    """Return the name and the definition of the function for an instruction with `count` operands of a type.

    `opcode` includes the predicate of `fcmp`.
    """
    number = number_of(kind)
    wide, code = number.of("float"), Code("")
    if opcode == "fneg":
        return _signed(_name(opcode, number), opcode, [kind])
    values = [_widened(code, number, f"%{name}") for name in "ab"[:count]]
    value = code.add(f"{opcode} {wide} {', '.join(values)}")
    if BFLOAT in result:
        value = _rounded(code, number, value)
    return define(_name(opcode.replace(" ", "."), number), result, [kind] * count, code, value)


def conversion_function(opcode: str, kind: str, result: str) -> tuple[str, str] | None:
    """Return the name and the definition of a conversion; None if one is not supported."""
    number, code = number_of(result if BFLOAT in result else kind), Code("")
    name = _name(f"{opcode}.{split_type(result if BFLOAT in kind else kind)[1]}", number)
    if BFLOAT in kind:
        single, value = number.of("float"), _widened(code, number, "%a")
        if result != single:
            value = code.add(f"{opcode} {single} {value} to {result}")
    elif opcode == "fptrunc":
        value = _narrowed(code, number, kind)
    else:
        value = _from_integer(code, number, opcode, kind)
    return define(name, result, [kind], code, value) if value else None


def _narrowed(code: Code, number: Number, kind: str) -> str:
    """Append a conversion of another floating-point type; return an empty string for an unknown one."""
    value = _odd(code, number, "%a") if kind == number.of("double") else "%a"
    return _rounded(code, number, value) if split_type(kind)[1] in {"float", "double"} else ""


def _from_integer(code: Code, number: Number, opcode: str, kind: str) -> str:
    """Append a conversion of an integer; return an empty string for one of more than 64 bits."""
    bits = int(split_type(kind)[1][1:])
    if bits <= _SINGLE_DIGITS:
        value = code.add(f"{opcode} {kind} %a to {number.of('float')}")
        return _rounded(code, number, value)
    if bits <= _DOUBLE_DIGITS:
        value = code.add(f"{opcode} {kind} %a to {number.of('double')}")
        return code.add(f"fptrunc {number.of('double')} {value} to {number.type}")
    if bits > _LARGEST:
        return ""
    if number.lanes:
        return _each(code, number, opcode, kind)
    if bits < _LARGEST:
        value = code.add(f"{'sext' if opcode == 'sitofp' else 'zext'} {kind} %a to i64")
        return code.add(f"{opcode} i64 {value} to {BFLOAT}")
    built = convert(code, f"cvt.rn.bf16.{'s' if opcode == 'sitofp' else 'u'}64")
    return built[2] if built else ""


def intrinsic_function(
    intrinsic: str, result: str, given: Sequence[str], fixed: dict[int, str]
) -> tuple[str, str]:
    """Return the name and the definition of the function for an intrinsic that computes.

    `given` are the types of the operands that are passed, `fixed` the constant operands by their places.
    """
    name = ".".join(
        (intrinsic.removeprefix("llvm."), *(text.split()[-1] for text in fixed.values()))
    )
    operation, code = intrinsic.split(".")[1], Code("")
    if operation in ("fabs", "copysign"):
        return _signed(f"{_PREFIX}{name}", operation, given)
    operands = []
    for place, kind in enumerate(given):
        value = f"%{'abcdefgh'[place]}"
        is_short = BFLOAT in kind
        wide = kind.replace(BFLOAT, "float")
        operands.append(f"{wide} {_widened(code, number_of(kind), value) if is_short else value}")
    for place, text in sorted(fixed.items()):
        operands.insert(place, text)
    called = ".".join(
        part.replace("bf16", "f32") if part.endswith("bf16") else part
        for part in intrinsic.split(".")
    )
    value = code.add(f"call {result.replace(BFLOAT, 'float')} @{called}({', '.join(operands)})")
    if result.startswith("{"):
        value = _members(code, result, value)
    elif BFLOAT in result:
        value = _rounded(code, number_of(result), value)
    return define(f"{_PREFIX}{name}", result, list(given), code, value)


def reduction_function(intrinsic: str, given: Sequence[str]) -> tuple[str, str] | None:
    """Return the name and the definition of a reduction of a vector, which rounds after each step as GPUs do."""
    operation = intrinsic.split(".")[3]
    vector, code = given[-1], Code("")
    number = number_of(vector)
    elements = [
        code.add(f"extractelement {vector} %{'ab'[len(given) - 1]}, i64 {place}")
        for place in range(number.lanes)
    ]
    value, *others = elements if len(given) == 1 else ("%a", *elements)
    for element in others:
        if operation in ("fadd", "fmul"):
            value = code.add(f"{operation} {BFLOAT} {value}, {element}")
        elif operation in _REDUCED:
            function = f"@llvm.{_REDUCED[operation]}.bf16"
            value = code.add(f"call {BFLOAT} {function}({BFLOAT} {value}, {BFLOAT} {element})")
        else:
            return None
    name = f"{_PREFIX}{intrinsic.removeprefix('llvm.')}"
    return define(name, BFLOAT, list(given), code, value)


def atomic_function(operation: str) -> tuple[str, str] | None:
    """Return the name and the definition of `atomicrmw`, as a loop that exchanges 16 bits.

    It is not inlined: the loop ends as soon as no other thread changes the number, and so waits for none.
    """
    name = f"{_PREFIX}atomic.{operation}"
    if operation in ("fadd", "fsub"):
        step = f"{operation} {BFLOAT} %old, %b"
    elif operation in _REDUCED:
        step = f"call {BFLOAT} @llvm.{_REDUCED[operation]}.bf16({BFLOAT} %old, {BFLOAT} %b)"
    else:
        return None
    return (
        name,
        f"""\
define internal {BFLOAT} @{name}(ptr %a, {BFLOAT} %b) noinline nounwind {{
entry:
  %first = load atomic i16, ptr %a monotonic, align 2
  br label %again
again:
  %bits = phi i16 [ %first, %entry ], [ %seen, %again ]
  %old = bitcast i16 %bits to {BFLOAT}
  %new = {step}
  %wanted = bitcast {BFLOAT} %new to i16
  %pair = cmpxchg ptr %a, i16 %bits, i16 %wanted seq_cst seq_cst, align 2
  %seen = extractvalue {{ i16, i1 }} %pair, 0
  %done = extractvalue {{ i16, i1 }} %pair, 1
  br i1 %done, label %end, label %again
end:
  ret {BFLOAT} %old
}}""",
    )


def split_type(kind: str) -> tuple[int, str]:
    """Return the number of elements of a vector type, and their type; 0 and the type for another one."""
    match = _VECTOR.match(kind)
    return (int(match["lanes"]), match["scalar"]) if match else (0, kind)


def _name(operation: str, number: Number) -> str:
    return f"{_PREFIX}{operation}" + (f".v{number.lanes}" if number.lanes else "")


def define(
    name: str, result: str, parameters: Sequence[str], code: Code, value: str
) -> tuple[str, str]:
    """Return the name and the definition of a function, which is always inlined, with parameters %a, %b and so on."""
    listed = ", ".join(f"{kind} %{x}" for kind, x in zip(parameters, "abcdefgh", strict=False))
    body = "\n".join(f"  {line}" for line in (*code.lines, f"ret {result} {value}"))
    head = f"define internal {result} @{name}({listed}) alwaysinline nounwind"
    return name, f"{head} {{\n{body}\n}}"


def _widened(code: Code, number: Number, value: str) -> str:
    """Append the exact conversion to float."""
    wide, kind = number.of("i32"), number.of("float")
    bits = code.add(f"bitcast {number.type} {value} to {number.integer}")
    bits = code.add(f"zext {number.integer} {bits} to {wide}")
    bits = code.add(f"shl {wide} {bits}, {number.constant('16', 'i32')}")
    return code.add(f"bitcast {wide} {bits} to {kind}")


def _rounded(code: Code, number: Number, value: str) -> str:
    """Append the conversion of a float to the nearest number, of two the even one. NaN becomes a quiet NaN."""
    kind = number.of("i32")

    def add(instruction: str, left: str, right: str) -> str:
        return code.add(f"{instruction} {kind} {left}, {right}")

    def constant(bits: int) -> str:
        return number.constant(str(bits), "i32")

    bits = code.add(f"bitcast {number.of('float')} {value} to {kind}")
    high = add("lshr", bits, constant(16))
    half = add("add", add("and", high, constant(1)), constant(0x7FFF))
    near = add("lshr", add("add", bits, half), constant(16))
    quiet = add("or", high, constant(0x40))
    nan = code.add(f"fcmp uno {number.of('float')} {value}, {value}")
    chosen = code.add(f"select {number.of('i1')} {nan}, {kind} {quiet}, {kind} {near}")
    short = code.add(f"trunc {kind} {chosen} to {number.integer}")
    return code.add(f"bitcast {number.integer} {short} to {number.type}")


def _odd(code: Code, number: Number, value: str) -> str:
    """Append the conversion of a double to float, rounded to odd, so that rounding the result again is correct."""
    single, double, bits = number.of("float"), number.of("double"), number.of("i32")
    flag, zero = number.of("i1"), "zeroinitializer" if number.lanes else "0.0"
    near = code.add(f"fptrunc {double} {value} to {single}")
    whole = code.add(f"bitcast {single} {near} to {bits}")
    back = code.add(f"fpext {single} {near} to {double}")
    inexact = code.add(f"fcmp one {double} {back}, {value}")
    positive = code.add(f"fcmp ogt {double} {value}, {zero}")
    more = code.add(f"fcmp ogt {double} {back}, {value}")
    less = code.add(f"fcmp olt {double} {back}, {value}")
    above = code.add(f"select {flag} {positive}, {flag} {more}, {flag} {less}")
    step = code.add(f"sext {flag} {above} to {bits}")
    cut = code.add(f"add {bits} {whole}, {step}")
    odd = code.add(f"or {bits} {cut}, {number.constant('1', 'i32')}")
    exact = code.add(f"select {flag} {inexact}, {bits} {odd}, {bits} {whole}")
    return code.add(f"bitcast {bits} {exact} to {single}")


def _each(code: Code, number: Number, opcode: str, kind: str) -> str:
    """Append a conversion of each element of a vector."""
    made, scalar = "poison", split_type(kind)[1]
    for place in range(number.lanes):
        value = code.add(f"extractelement {kind} %a, i64 {place}")
        value = code.add(f"{opcode} {scalar} {value} to {BFLOAT}")
        made = code.add(f"insertelement {number.type} {made}, {BFLOAT} {value}, i64 {place}")
    return made


def _members(code: Code, result: str, value: str) -> str:
    """Append the conversion of the floats in a structure."""
    made, given = "poison", result.replace(BFLOAT, "float")
    for place, kind in enumerate(LLVM_IR.split_list(LLVM_IR.inside(result, 0))):
        member = code.add(f"extractvalue {given} {value}, {place}")
        if BFLOAT in kind:
            member = _rounded(code, number_of(kind), member)
        made = code.add(f"insertvalue {result} {made}, {kind} {member}, {place}")
    return made


def _signed(name: str, operation: str, given: Sequence[str]) -> tuple[str, str]:
    """Return the function that changes, replaces or removes the sign."""
    code, number = Code(""), number_of(given[0])
    kind = number.integer
    sign, size = number.constant(_SIGN, "i16"), number.constant(_SIZE, "i16")
    bits = [code.add(f"bitcast {number.type} %{x} to {kind}") for x in "ab"[: len(given)]]
    if operation == "fneg":
        value = code.add(f"xor {kind} {bits[0]}, {sign}")
    else:
        value = code.add(f"and {kind} {bits[0]}, {size}")
    if operation == "copysign":
        other = code.add(f"and {kind} {bits[1]}, {sign}")
        value = code.add(f"or {kind} {value}, {other}")
    value = code.add(f"bitcast {kind} {value} to {number.type}")
    return define(name, number.type, given, code, value)
