"""Test calls of intrinsics with given types: a reader accepts or rejects them, or treats them as function calls."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from foreign.intrinsics import known_names, prefixes
from foreign.reader import Reader
from foreign.signature_probe import PARAMETERS

from mlir_offload.toolchain.skew.signature import split_spelled

_CALL = re.compile(r"call [^@\n]*@(llvm\.[\w.]+)\(")
_NAME = re.compile(r"@(llvm\.[\w.]+)")
_FUNCTION = re.compile(r"^define [^\n]*@c(\d+)\([^\n]*\n(.*?)^}", re.MULTILINE | re.DOTALL)
_PARSED = re.compile(r"^(?:\S+ )?(?:error: )?[^\s:]*:(\d+):\d+: error:", re.MULTILINE)
_AT_ONCE = 200
# The number of lines of a call in a module.
_LINES = 5
# Types that a function parameter cannot have, and the arguments used instead: constants, or a value computed
# from one.
_CONSTANTS = {"token": "none", "metadata": "!{}", "x86_amx": "%tile"}
_TILE = "%tile = freeze x86_amx poison "
# The metadata of a function whose calls describe variables, and of a module of such functions.
_SCOPE = (
    "distinct !DISubprogram(file: !0, type: !3, unit: !1, spFlags: DISPFlagDefinition)",
    "!DILocalVariable(scope: SCOPE)",
    "!DILocation(scope: SCOPE)",
)
_UNIT = """
!0 = !DIFile(filename: "c", directory: "/")
!1 = distinct !DICompileUnit(language: DW_LANG_C, file: !0, emissionKind: FullDebug)
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !DISubroutineType(types: !{})
!llvm.dbg.cu = !{!1}
!llvm.module.flags = !{!2}"""
_NO_RESULTS = ("void", "token", "x86_amx", "metadata")


class Taken(StrEnum):
    """The result of reading a call."""

    READ = "read"
    REJECTED = "rejected"
    FUNCTION = "function"


@dataclass(frozen=True)
class Call:
    """A call of an intrinsic; `suffix` is that of the overload, as the defining release spells it.

    `passed` is a number for parameters of integer type, or PARAMETERS to pass those of the calling function.
    """

    name: str
    signature: str
    suffix: str = ""
    passed: str = PARAMETERS

    def lines(self, place: int) -> tuple[str, ...]:
        """Return the declaration, and a function that calls it and returns its result."""
        result, parameters = split_spelled(self.signature)
        kind = f"{result} ({', '.join(parameters)})" if "..." in parameters else result
        name = f"{self.name}{self.suffix}"
        values = [(one, self._value(one, n)) for n, one in enumerate(parameters) if one != "..."]
        arguments = ", ".join(f"{one} {value}" for one, value in values)
        own = ", ".join(f"{one} {value}" for one, value in values if value.startswith("%a"))
        tile = _TILE if "x86_amx" in parameters else ""
        has_result = result not in _NO_RESULTS
        return (
            f"declare {result} @{name}({', '.join(parameters)})",
            f"define {result if has_result else 'void'} @c{place}({own}) {{",
            f"  {tile}{'%r = ' if has_result else ''}call {kind} @{name}({arguments})",
            f"  ret {result} %r" if has_result else "  ret void",
            "}",
        )

    def _value(self, kind: str, place: int) -> str:
        """Return a parameter or a constant; some parameters of intrinsics must be constants."""
        if self.passed != PARAMETERS and re.fullmatch(r"i\d+", kind):
            return str(int(self.passed)) if kind != "i1" else ("false", "true")[int(self.passed)]
        return _CONSTANTS.get(kind, f"%a{place}")


class DebugCall(Call):
    """A call that describes a variable; it requires a function with debug information."""

    def lines(self, place: int) -> tuple[str, ...]:
        """Return the same lines as other calls, with the metadata in the last one."""
        first = _UNIT.count("\n") + len(_SCOPE) * place
        scope, variable, location = (f"!{first + number}" for number in range(len(_SCOPE)))
        metadata = (f"!{first + number} = {text}" for number, text in enumerate(_SCOPE))
        return (
            f"declare void @{self.name}(metadata, metadata, metadata)",
            f"define void @c{place}() !dbg {scope} {{",
            f"  call void @{self.name}(metadata i32 0, metadata {variable}, metadata !DIExpression()), !dbg {location}",
            "  ret void",
            "} " + " ".join(metadata).replace("SCOPE", scope),
        )


def answers(
    reader: Reader, calls: Sequence[Call], writer: Reader | None = None
) -> dict[Call, Taken]:
    """Return the result of reading each call, from text, or from bitcode of a writer that accepts all of them."""
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
            # The reader crashed, or its message does not identify the call.
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
    """Yield the calls that a reader treats as calls of an unknown function."""
    called = {
        calls[int(place)]: frozenset(_CALL.findall(body))
        for place, body in _FUNCTION.findall(printed)
    }
    # A reader may replace a name without overloads by an overload. It may derive its suffix from the types of
    # the call.
    overloads = frozenset().union(*called.values()) - reader.names
    known = known_names(reader, sorted(overloads)) if overloads else frozenset()
    bases = {_base(name, reader.names) for name in known}
    unknown = {name for name in overloads if _base(name, reader.names) not in bases}
    yield from (call for call, names in called.items() if names & unknown)


def _module(calls: Sequence[Call]) -> bytes:
    lines = [line for place, call in enumerate(calls) for line in call.lines(place)]
    unit = _UNIT if any(isinstance(call, DebugCall) for call in calls) else ""
    return "\n".join([*lines, unit, ""]).encode()


def _rejected(message: str, calls: Sequence[Call], *, is_text: bool) -> list[Call]:
    """Return the calls that the message of the parser or the verifier names."""
    parsed = _PARSED.search(message) if is_text else None
    if parsed is not None:
        return [calls[(int(parsed[1]) - 1) // _LINES]]
    # A module has one call per name, whose types the reader may have replaced.
    own = {call.name for call in calls}
    names = {_base(name, own) for name in _NAME.findall(message)}
    return [call for call in calls if call.name in names]


def _base(printed: str, names: Collection[str]) -> str:
    """Return the longest of some names that is equal to a name or a prefix of it; empty if there is none."""
    return next((name for name in (printed, *prefixes(printed)) if name in names), "")
