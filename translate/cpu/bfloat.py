"""Compute bf16 as f32, and represent it as a 16-bit integer.

The instructions of processors with AVX512_BF16, AVX-NE-CONVERT or AVX10.2 flush subnormal numbers to zero, whatever
MXCSR contains (Intel SDM, VCVTNEPS2BF16; Intel AVX10.2 specification, VADDBF16). For other processors LLVM calls a
library function for each element. Without the type LLVM uses neither: the results are the same on every processor,
and rounding is vectorized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from msgspec.structs import replace

from mlir_offload.offload.ir_syntax import LLVM_IR
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.pattern import ir_line, ir_pattern
from mlir_offload.translate.bfloat import with_short_integers
from mlir_offload.translate.cpu.bfloat_function import (
    BFLOAT,
    atomic_function,
    conversion_function,
    instruction_function,
    intrinsic_function,
    reduction_function,
)
from mlir_offload.translate.cpu.result_type import result_type, without_flags
from mlir_offload.translate.cpu.text import (
    CALL,
    DeviceModule,
    callee_name,
    first_type,
    location_of,
)

_DEFINITION = ir_line("`head:(``indent``local` = `)``opcode:word` `rest:rest`")
_ARITHMETIC = frozenset(("fadd", "fsub", "fmul", "fdiv", "frem", "fneg", "fcmp"))
_CONVERSIONS = frozenset(("fpext", "fptrunc", "sitofp", "uitofp", "fptosi", "fptoui"))
# Intrinsics that move values; all others compute.
_MOVING = ("llvm.masked.", "llvm.vector.", "llvm.experimental.vector.")
_REDUCTION = "llvm.vector.reduce."
# Not replaced if lines keep the type, nor is `fneg`: back ends replace equal operations on integers by them, and LLVM 22
# makes a wrong llvm.copysign (-O0).
_SIGNS = ("llvm.fabs.", "llvm.copysign.")
_CONSTRAINED = "llvm.experimental.constrained."
_IN_NAME = ir_pattern("`lanes:lanes`bf16`part_end`")
_FIXED = frozenset(("i1", "i32", "metadata"))

# Functions that the back end calls in libraries, with their operands. libgcc has them since release 13, compiler-rt too,
# but it is often not installed.
_IN_LIBRARIES = {"__truncsfbf2": "float", "__truncdfbf2": "double"}

Support = tuple[tuple[str, str], ...]


def without_bfloat(device: DeviceModule, support: Support) -> tuple[DeviceModule, Support]:
    """Replace bf16 in a module and in the definitions of functions that it calls.

    Functions that neither defines take and return bf16. Raises SourceError for an operation that is not supported.
    """
    own = {function.name for function in device.functions} | {name for name, _ in support}
    lines = BfloatLines(partial(location_of, device), frozenset(own))
    functions = []
    for function in device.functions:
        lines.begin()
        body = tuple(made for line in function.body for made in lines.rewrite(line))
        functions.append(replace(function, head=with_short_integers(function.head), body=body))
    whole = replace(
        device,
        globals=tuple((name, with_short_integers(line)) for name, line in device.globals),
        declarations=tuple(lines.declarations(device)),
        functions=tuple(functions),
    )
    rewritten = [(name, lines.text(text)) for name, text in support]
    return whole, (*rewritten, *lines.used.items())


def library_support(lines: Iterable[str]) -> dict[str, str]:
    """Return the definitions, by name, that a library requires whose functions take or return bf16."""
    if not any(BFLOAT in line for line in lines):
        return {}
    found = {}
    for name, kind in _IN_LIBRARIES.items():
        made = conversion_function("fptrunc", kind, BFLOAT)
        body = made[1].partition("{")[2] if made else ""
        head = f"define linkonce_odr hidden {BFLOAT} @{name}({kind} %a) nounwind"
        found[name] = f"{head} {{{body}"
    return found


class BfloatLines:
    """Rewrites lines, and records the functions that they call.

    `own` are the functions that take and return integers for bf16. If it is None, the lines keep the type, and only
    the operations that compute are replaced.
    """

    def __init__(self, location: Callable[[str], str], own: frozenset[str] | None) -> None:
        """`location` returns the source location of a line."""
        self._location = location
        self._own = own or frozenset()
        self._keeps_type = own is None
        self._foreign: set[str] = set()
        self._casts = 0
        self.used: dict[str, str] = {}

    def begin(self) -> None:
        """Start a function, whose values have their own names."""
        self._casts = 0

    def rewrite(self, line: str) -> Iterator[str]:
        """Yield the lines that represent a line."""
        if BFLOAT not in line:
            yield line
            return
        match = _DEFINITION.match(line)
        called = CALL.match(line)
        if called is not None:
            yield from self._call(line, callee_name(called["callee"]))
            return
        if match is not None and not (self._keeps_type and match["opcode"] == "fneg"):
            made = self._instruction(line, match["opcode"], match["rest"])
            line = f"{match['head']}{made}"
        yield self._stored(line)

    def text(self, text: str) -> str:
        """Return a definition, rewritten."""
        self.begin()
        return "\n".join(made for line in text.split("\n") for made in self.rewrite(line))

    def declarations(self, device: DeviceModule) -> Iterator[tuple[str, str]]:
        """Yield the declarations, those of foreign functions unchanged."""
        for name, line in device.declarations:
            yield name, line if name in self._foreign else with_short_integers(line)

    def _instruction(self, line: str, opcode: str, rest: str) -> str:
        """Return what represents an instruction other than a call."""
        operands, notes = _operands(LLVM_IR.split_list(without_flags(rest)))
        if opcode == "atomicrmw":
            name, _, address = operands[0].partition(" ")
            if not operands[1].startswith(f"{BFLOAT} "):
                what = f"atomicrmw {name} of {first_type(operands[1])}"
                raise self.unsupported(what, line)
            if name == "xchg":
                return f"{opcode} {rest}"
            value = " ".join(operands[1].split(" ", 2)[:2])
            function = self.define(atomic_function(name), f"atomicrmw {name} of bf16", line)
            return f"call {BFLOAT} @{function}({address}, {value}){notes}"
        kind = result = result_type(line)
        if opcode in _CONVERSIONS:
            kind = first_type(operands[0])
            operands[0] = operands[0].rpartition(" to ")[0]
            what = f"a conversion of {kind} to {result}"
            function = self.define(conversion_function(opcode, kind, result), what, line)
        elif opcode in _ARITHMETIC:
            if opcode == "fcmp":
                predicate, _, operands[0] = operands[0].partition(" ")
                opcode, kind = f"{opcode} {predicate}", first_type(operands[0])
            count = len(operands)
            function = self.define(instruction_function(opcode, kind, result, count), "", line)
        else:
            # Flags for floating-point values do not apply to integers.
            drops_flags = opcode in {"phi", "select"} and not self._keeps_type
            return f"{opcode} {without_flags(rest) if drops_flags else rest}"
        first, *others = operands
        listed = ", ".join((first, *(f"{kind} {other}" for other in others)))
        return f"call {result} @{function}({listed}){notes}"

    def _call(self, line: str, name: str) -> Iterator[str]:
        """Yield the lines that represent a call."""
        match = CALL.match(line)
        if match is None:
            raise ValueError(line)
        result, operands, after = call_parts(line, match["rest"])
        head = f"{line.split(' = ', 1)[0]} = " if result != "void" else "  "
        is_moved = name.startswith(_MOVING) and not name.startswith(_REDUCTION)
        if self._keeps_type and (
            is_moved or not name.startswith("llvm.") or name.startswith(_SIGNS)
        ):
            yield line
            return
        if not name.startswith("llvm."):
            if name in self._own or match["callee"].startswith("%"):
                called = f"call {result} {match['callee']}({', '.join(operands)}){after}"
                yield with_short_integers(f"{head}{called}")
            else:
                self._foreign.add(name)
                yield from self._foreign_call(head, result, match["callee"], operands, after)
            return
        if is_moved:
            renamed = _IN_NAME.sub(r"\1i16", name)
            called = f"call {result} @{renamed}({', '.join(operands)}){after}"
            yield with_short_integers(f"{head}{called}")
            return
        fixed = {place: text for place, text in enumerate(operands) if _is_fixed(text)}
        passed = [text for place, text in enumerate(operands) if place not in fixed]
        kinds = [first_type(text) for text in passed]
        if name.startswith(_CONSTRAINED):
            what = f"{name.removeprefix('llvm.')} of bf16"
            raise self.unsupported(what, line)
        if name.startswith(_REDUCTION):
            function = self.define(reduction_function(name, kinds), name, line)
        else:
            function = self.define(intrinsic_function(name, result, kinds, fixed), name, line)
        called = f"call {result} @{function}({', '.join(passed)}){attachments(after)}"
        yield self._stored(f"{head}{called}")

    def _foreign_call(
        self, head: str, result: str, callee: str, operands: list[str], after: str
    ) -> Iterator[str]:
        """Yield the call of a function of a library, which takes and returns bf16."""
        passed = []
        for operand in operands:
            kind = first_type(operand)
            if BFLOAT in kind:
                value = self._name()
                given = operand.split()[-1] if "%" in operand else operand[len(kind) + 1 :]
                yield f"  {value} = bitcast {with_short_integers(f'{kind} {given}')} to {kind}"
                passed.append(f"{kind} {value}")
            else:
                passed.append(operand)
        called = f"call {result} {callee}({', '.join(passed)}){after}"
        if BFLOAT not in result:
            yield f"{head}{called}"
            return
        value = self._name()
        yield f"  {value} = {called}"
        yield f"{head}bitcast {result} {value} to {with_short_integers(result)}"

    def _stored(self, line: str) -> str:
        return line if self._keeps_type else with_short_integers(line)

    def _name(self) -> str:
        self._casts += 1
        return f"%mo.bfloat.{self._casts}"

    def define(self, made: tuple[str, str] | None, what: str, line: str) -> str:
        """Record a function; return its name."""
        if made is None:
            raise self.unsupported(what, line)
        name, text = made
        if name not in self.used:
            self.used[name] = ""
            self._own |= {name}
            self.used[name] = self.text(text)
        return name

    def unsupported(self, what: str, line: str) -> SourceError:
        """Return the error for an operation."""
        return SourceError(
            f"{what} is not supported on the CPU",
            hint="compute with f32: arith.extf before, arith.truncf after",
            location=self._location(line),
        )


def _operands(listed: list[str]) -> tuple[list[str], str]:
    """Return the operands of an instruction, and what is attached to it."""
    notes = [text for text in listed if text.startswith("!")]
    return [text for text in listed if not text.startswith("!")], _joined(notes)


def call_parts(line: str, rest: str) -> tuple[str, list[str], str]:
    """Return the result type of a call, its operands, and the text after them."""
    end = LLVM_IR.closing(f"({rest}", 0) - 1
    is_void = " = " not in line
    result = "void" if is_void else result_type(line)
    return result, LLVM_IR.split_list(rest[:end]), rest[end + 1 :]


def attachments(after: str) -> str:
    """Return what is attached to a call, without attributes."""
    return _joined([text for text in LLVM_IR.split_list(after) if text.startswith("!")])


def _joined(notes: list[str]) -> str:
    return "".join(f", {note}" for note in notes)


def _is_fixed(operand: str) -> bool:
    """Return whether an operand is a constant that is not a number of bf16."""
    kind, _, value = operand.rpartition(" ")
    return kind.split(" ", 1)[0] in _FIXED and not value.startswith("%")
