"""Calls of intrinsics with given types, and what a reader makes of each: reads it, rejects it, or calls a function."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from foreign.intrinsics import known_names
from foreign.reader import Reader

from mlir_offload.toolchain.skew.signature import split_signature, split_spelled

_CALL = re.compile(r"call [^@\n]*@([\w.]+)(\(.*\))")
_FUNCTION = re.compile(r"^define void @c(\d+)\(\)[^\n]*\n(.*?)^}", re.MULTILINE | re.DOTALL)
_PARSED = re.compile(r"^(?:\S+ )?(?:error: )?[^\s:]*:(\d+):\d+: error:", re.MULTILINE)
_AT_ONCE = 200
# The lines of a call in a module, and in which of them the call is.
_LINES = 5
# What has a value in text but not this one, and a type of which no value can be written.
_VALUES = {"token": "none", "i1": "false", "metadata": "!{}", "label": "", "x86_mmx": "undef"}


class Taken(StrEnum):
    """What a reader makes of a call."""

    READ = "read"
    REJECTED = "rejected"
    FUNCTION = "function"


@dataclass(frozen=True)
class Call:
    """A call of an intrinsic; `suffix` is an overload's, which no LLVM writes: readers put their own in its place.

    `number` is passed for integers: those that must be constant are often not free to be any.
    """

    name: str
    signature: str
    suffix: str = ""
    number: int = 0

    @property
    def is_possible(self) -> bool:
        """Return whether there are values for all parameters."""
        return "label" not in split_signature(self.signature)[1]

    @property
    def arguments(self) -> str:
        """Return its arguments as LLVM prints them."""
        _, parameters = split_spelled(self.signature)
        passed = (f"{one} {self._value(one)}" for one in parameters if one != "...")
        return f"({', '.join(passed)})"

    def lines(self, place: int) -> tuple[str, ...]:
        """Return the declaration, and a function that calls it."""
        result, parameters = split_spelled(self.signature)
        kind = f"{result} ({', '.join(parameters)})" if "..." in parameters else result
        name = f"{self.name}{self.suffix}"
        declared = f"declare {result} @{name}({', '.join(parameters)})"
        call = f"  call {kind} @{name}{self.arguments}"
        return declared, f"define void @c{place}() {{", call, "  ret void", "}"

    def _value(self, kind: str) -> str:
        """Return a constant: parameters that must be constants have types of integers."""
        default = str(self.number) if re.fullmatch(r"i\d+", kind) else "poison"
        return _VALUES.get(kind, default)


def answers(
    reader: Reader, calls: Sequence[Call], writer: Reader | None = None
) -> dict[Call, Taken]:
    """Return what a reader makes of each call: of its text, or of the bitcode of a writer, which reads all of them."""
    found: dict[Call, Taken] = {}
    for begin in range(0, len(calls), _AT_ONCE):
        found |= _answers(reader, calls[begin : begin + _AT_ONCE], writer)
    return found


def _answers(reader: Reader, calls: Sequence[Call], writer: Reader | None) -> dict[Call, Taken]:
    found: dict[Call, Taken] = {}
    left = list(calls)
    while left:
        data = _module(left)
        if writer is not None:
            written = writer.write(data)
            if not written.is_read:
                msg = f"LLVM {writer.release} does not write what it reads: {written.message}"
                raise RuntimeError(msg)
            data = written.output
        answer = reader.print(data)
        if answer.is_read:
            functions = frozenset(_functions(reader, left, answer.output.decode()))
            return found | {
                call: Taken.FUNCTION if call in functions else Taken.READ for call in left
            }
        rejected = _rejected(answer.message, left, is_text=writer is None)
        if not rejected and len(left) > 1:
            # The reader crashed, or says nothing of the call.
            half = len(left) // 2
            halves = (left[:half], left[half:])
            return found | {
                call: taken
                for one in halves
                for call, taken in _answers(reader, one, writer).items()
            }
        found |= dict.fromkeys(rejected or left, Taken.REJECTED)
        left = [call for call in left if call not in found]
    return found


def _functions(reader: Reader, calls: Sequence[Call], printed: str) -> Iterator[Call]:
    """Return the calls of which a reader left one of a function that it does not know."""
    called = {
        calls[int(place)]: {name for name, _ in _CALL.findall(body) if name.startswith("llvm.")}
        for place, body in _FUNCTION.findall(printed)
    }
    suffixed = {name for call, names in called.items() if call.suffix for name in names}
    known = known_names(reader, sorted(suffixed)) if suffixed else frozenset()
    for call, names in called.items():
        if names - (known if call.suffix else reader.names):
            yield call


def _module(calls: Sequence[Call]) -> bytes:
    lines = [line for place, call in enumerate(calls) for line in call.lines(place)]
    return "\n".join([*lines, ""]).encode()


def _rejected(message: str, calls: Sequence[Call], *, is_text: bool) -> list[Call]:
    """Return the calls that the parser or the verifier names."""
    parsed = _PARSED.search(message) if is_text else None
    if parsed is not None:
        return [calls[(int(parsed[1]) - 1) // _LINES]]
    printed = _CALL.findall(message)
    if is_text:
        pairs = {(_base(name, calls), arguments) for name, arguments in printed}
        return [call for call in calls if (call.name, call.arguments) in pairs]
    # Bitcode has one call of a name, whose types the reader may have replaced.
    names = {_base(name, calls) for name, _ in printed}
    return [call for call in calls if call.name in names]


def _base(printed: str, calls: Sequence[Call]) -> str:
    """Return the longest name among those of the calls that a name is or begins with."""
    own = (call.name for call in calls if f"{printed}.".startswith(f"{call.name}."))
    return max(own, key=len, default="")
