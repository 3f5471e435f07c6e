"""Calls of intrinsics with given types, and what a reader makes of each: reads it, rejects it, or calls a function."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from foreign.reader import Reader

from mlir_offload.toolchain.skew.signature import split_signature

_CALL = re.compile(r"call [^@\n]*@([\w.]+)(\(.*\))")
_PARSED = re.compile(r"^(?:\S+ )?(?:error: )?[^\s:]*:(\d+):\d+: error:", re.MULTILINE)
_AT_ONCE = 200
# What has no constant that can be passed, and a type of which text, not bitcode, is gone.
_WITHOUT_VALUE = ("metadata", "token", "...", "label", "target(", "x86_mmx")


class Taken(StrEnum):
    """What a reader makes of a call."""

    READ = "read"
    REJECTED = "rejected"
    FUNCTION = "function"


@dataclass(frozen=True)
class Call:
    """A call of an intrinsic; `suffix` is an overload's, which no LLVM writes: readers put their own in its place."""

    name: str
    signature: str
    suffix: str = ""

    @property
    def is_possible(self) -> bool:
        """Return whether there are values for all parameters."""
        result, parameters = split_signature(self.signature)
        return not any(word.startswith(_WITHOUT_VALUE) for word in (result, *parameters))

    @property
    def arguments(self) -> str:
        """Return its arguments as LLVM prints them."""
        parameters = split_signature(self.signature)[1]
        return f"({', '.join(f'{one} {_value(one)}' for one in parameters)})"

    def lines(self) -> tuple[str, str]:
        """Return the declaration and the call."""
        result, parameters = split_signature(self.signature)
        name = f"{self.name}{self.suffix}"
        declared = f"declare {result} @{name}({', '.join(parameters)})"
        return declared, f"  call {result} @{name}{self.arguments}"


def _value(kind: str) -> str:
    """Return a constant: parameters that must be constants have types of integers."""
    return "0" if re.fullmatch(r"i\d+", kind) and kind != "i1" else _boolean(kind)


def _boolean(kind: str) -> str:
    return "false" if kind == "i1" else "poison"


def answers(reader: Reader, calls: Sequence[Call]) -> dict[Call, Taken]:
    """Return what a reader makes of each call."""
    found: dict[Call, Taken] = {}
    for begin in range(0, len(calls), _AT_ONCE):
        found |= _answers(reader, calls[begin : begin + _AT_ONCE])
    return found


def _answers(reader: Reader, calls: Sequence[Call]) -> dict[Call, Taken]:
    found: dict[Call, Taken] = {}
    left = list(calls)
    while left:
        answer = reader.print(_module(left).encode())
        if answer.is_read:
            names = {name for name, _ in _CALL.findall(answer.output.decode())}
            return found | {
                call: Taken.FUNCTION if _is_function(call, names, reader) else Taken.READ
                for call in left
            }
        rejected = _rejected(answer.message, left)
        if not rejected and len(left) > 1:
            # The reader crashed, or says nothing of the call.
            half = len(left) // 2
            return found | _answers(reader, left[:half]) | _answers(reader, left[half:])
        found |= dict.fromkeys(rejected or left, Taken.REJECTED)
        left = [call for call in left if call not in found]
    return found


def _is_function(call: Call, names: Iterable[str], reader: Reader) -> bool:
    is_known = call.name in reader.names and not call.suffix
    return f"{call.name}{call.suffix}" in names and not is_known


def _module(calls: Sequence[Call]) -> str:
    lines = [call.lines() for call in calls]
    declared, called = [line for line, _ in lines], [line for _, line in lines]
    return "\n".join([*declared, "define void @calls() {", *called, "  ret void", "}", ""])


def _rejected(message: str, calls: Sequence[Call]) -> list[Call]:
    """Return the calls that the parser or the verifier names."""
    parsed = _PARSED.search(message)
    if parsed is not None:
        line = int(parsed[1]) - 1
        place = line if line < len(calls) else line - len(calls) - 1
        return [calls[place]] if 0 <= place < len(calls) else []
    printed = _CALL.findall(message)
    return [
        call
        for call in calls
        if any(
            _is_of(call.name, name) and arguments == call.arguments for name, arguments in printed
        )
    ]


def _is_of(name: str, printed: str) -> bool:
    return printed == name or printed.startswith(f"{name}.")
