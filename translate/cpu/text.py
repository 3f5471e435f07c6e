"""A line-based model of LLVM IR text: functions, globals, metadata, operands.

The text has the form that mlir-translate and opt print: one instruction or one label per line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.offload.ir_syntax import (
    LLVM_IR,
    concealed,
    encoded,
    name_of,
    next_metadata_number,
    string_of,
)
from mlir_offload.offload.ir_syntax import reference as spelled
from mlir_offload.toolchain.pattern import ir_line, ir_pattern

_DEFINE = ir_line("define `head`@`name:bare`(")
_DECLARE = ir_line("declare `head`@`name:bare`(")
_GLOBAL = ir_line("@`name:bare` = ")
_REFERENCE = ir_pattern("@`bare`")
_LOCAL = ir_pattern("%`bare`")
_STRUCTURE = ir_line("`name:(`%`bare``)` = type `body:(``{|<{``some``)``end`")
_LABEL = ir_line("`label:bare`:")
CALL = ir_line(
    "`head:(``indent``result``tail |musttail |notail ?`call `type:some``)``callee:callee`(`rest:rest`"
)
_TYPE_NAME = ir_pattern("`type_name`")
_NUMBERED = ir_pattern("%`number:number`")
_LOCATION = ir_pattern("!dbg !`number` ")
_NUMBERED_LABEL = ir_line("`number:number`:")
_LOCATED = ir_pattern("!dbg `node:node`")
_PLACE = ir_pattern("line: `line:number``(`, column: `column:number``)?``some`scope: `scope:node`")
_FILE = ir_pattern("file: `file:node`")
_NAME_OF_FILE = ir_pattern('filename: "`name:string`"')


class Function(Struct, frozen=True):
    """A function definition: its symbol, first line without the brace, and the lines inside."""

    name: str
    head: str
    body: tuple[str, ...]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the parameters as written in the head, with attributes and names."""
        start, end = _parameter_span(self.head)
        return tuple(LLVM_IR.split_list(self.head[start:end]))

    @property
    def result(self) -> str:
        """Return the result type."""
        before = self.head[: self.head.index("@")].split()
        return before[-1]

    def with_parameters(self, parameters: tuple[str, ...]) -> Function:
        """Return the function with another parameter list."""
        start, end = _parameter_span(self.head)
        head = self.head[:start] + ", ".join(parameters) + self.head[end:]
        return replace(self, head=head)

    def with_attributes(self, attributes: Iterable[str]) -> Function:
        """Return the function with further attributes, which precede its section, comdat and alignment."""
        end = _parameter_span(self.head)[1] + 1
        head = " ".join((self.head[:end], *attributes)) + self.head[end:]
        return replace(self, head=head)

    def render(self) -> str:
        """Return the definition as text."""
        return "\n".join((f"{self.head} {{", *self.body, "}"))


class DeviceModule(Struct, frozen=True):
    """The parts of a module in printing order within each kind."""

    types: tuple[str, ...]
    globals: tuple[tuple[str, str], ...]
    declarations: tuple[tuple[str, str], ...]
    functions: tuple[Function, ...]
    tail: tuple[str, ...]

    def next_metadata_id(self) -> int:
        """Return the first unused metadata number."""
        return next_metadata_number("\n".join(self.tail))


def parse_device_module(text: str) -> DeviceModule:
    """Split the text of a module into its parts; target and comment lines are dropped.

    The parts are concealed: see `mlir_offload.offload.ir_syntax`.
    """
    types: list[str] = []
    global_lines: list[tuple[str, str]] = []
    declarations: list[tuple[str, str]] = []
    functions: list[Function] = []
    tail: list[str] = []
    lines = iter(_with_literal_types(concealed(text).splitlines()))
    for line in lines:
        if match := _DEFINE.match(line):
            functions.append(_parse_function(name_of(match["name"]), line, lines))
        elif match := _DECLARE.match(line):
            declarations.append((name_of(match["name"]), line))
        elif match := _GLOBAL.match(line):
            global_lines.append((name_of(match["name"]), line))
        elif line.startswith("%"):
            types.append(line)
        elif line.startswith(("!", "attributes ", "$", "module asm ")):
            tail.append(line)
    return DeviceModule(
        tuple(types), tuple(global_lines), tuple(declarations), tuple(functions), tuple(tail)
    )


def _with_literal_types(lines: list[str]) -> list[str]:
    """Replace the names of structure types by their bodies, so that each line contains the sizes of its types.

    Numbered types are not replaced, because a value may have the same name.
    """
    bodies = {
        match["name"]: match["body"]
        for line in lines
        if (match := _STRUCTURE.match(line)) and not match["name"][1:].isdigit()
    }
    if not bodies:
        return lines

    def literal(match: re.Match[str]) -> str:
        body = bodies.get(match[0])
        return match[0] if body is None else _LOCAL.sub(literal, body)

    return [
        _LOCAL.sub(literal, line)
        for line in lines
        if not ((match := _STRUCTURE.match(line)) and match["name"] in bodies)
    ]


def _parse_function(name: str, first: str, lines: Iterator[str]) -> Function:
    """Parse a definition. Numbered values and labels get names, so that others can be inserted between them."""
    body: list[str] = []
    for line in lines:
        if line == "}":
            break
        if line.strip():
            body.append(_without_label_comment(line))
    head = first.rstrip().removesuffix("{").rstrip()
    numbers = [int(number) for number in _NUMBERED.findall(head)]
    if body and label_of(body[0]) is None:
        body.insert(0, f"{max(numbers, default=-1) + 1}:")
    named = (_NUMBERED_LABEL.sub(r"v\1:", _NUMBERED.sub(r"%v\1", line)) for line in body)
    return Function(name, _NUMBERED.sub(r"%v\1", head), _join_lines(list(named)))


def _join_lines(body: list[str]) -> tuple[str, ...]:
    """Join the lines of an instruction that is printed on several (switch)."""
    joined: list[str] = []
    depth = 0
    for line in body:
        if depth > 0:
            joined[-1] += " " + line.strip()
        else:
            joined.append(line)
        if "switch " in line or depth > 0:
            depth += line.count("[") - line.count("]")
    return tuple(joined)


def _without_label_comment(line: str) -> str:
    return line.split(";", 1)[0].rstrip() if _LABEL.match(line) else line


def _parameter_span(head: str) -> tuple[int, int]:
    match = _DEFINE.match(head)
    if match is None:
        msg = f"not a function definition: {head}"
        raise ValueError(msg)
    return match.end(), LLVM_IR.closing(head, match.end() - 1)


def label_of(line: str) -> str | None:
    """Return the label that the line defines, as written after `%`; None if it defines none."""
    match = _LABEL.match(line)
    return match[1] if match else None


def symbol(name: str) -> str:
    """Return the name as a reference to a global value."""
    return f"@{spelled(name)}"


def c_string(text: str) -> str:
    """Return a C string constant, type and bytes. All bytes are escaped, so that the content has no quotes."""
    content = encoded(text)
    spelled = "".join(f"\\{byte:02X}" for byte in content)
    return f'[{len(content) + 1} x i8] c"{spelled}\\00"'


def references(lines: Iterable[str]) -> frozenset[str]:
    """Return the global values that lines refer to, each as `@name`."""
    return frozenset(found for line in lines for found in _REFERENCE.findall(line))


def callee_name(reference: str) -> str:
    """Return the symbol name in `@name`."""
    return name_of(reference[1:])


def location_of(module: DeviceModule, line: str) -> str:
    """Return file:line:column of an instruction; empty without debug information."""
    reference = _LOCATED.search(line)
    if reference is None:
        return ""
    nodes = {
        key: text
        for entry in module.tail
        if entry.startswith("!")
        for key, text in [entry.split(" = ", 1)]
    }
    node = nodes.get(reference[1], "")
    place = _PLACE.search(node)
    if place is None:
        return ""
    file = _FILE.search(nodes.get(place[3], ""))
    name = _NAME_OF_FILE.search(nodes.get(file[1], "") if file else "")
    return ":".join(
        part for part in (string_of(name[1]) if name else "", place[1], place[2]) if part
    )


def without_location(head: str) -> str:
    """Return the head of a declaration without its `!dbg` attachment."""
    return _LOCATION.sub("", head)


def type_end(text: str, start: int = 0) -> int:
    """Return the end of the type that begins at `start`."""
    if text[start] in "{[<":
        return LLVM_IR.closing(text, start) + 1
    match = _TYPE_NAME.match(text, start)
    if match is None:
        msg = f"no type at {start}: {text}"
        raise ValueError(msg)
    return match.end()


def first_type(text: str) -> str:
    """Return the type at the start of `text`."""
    return text[: type_end(text)]
