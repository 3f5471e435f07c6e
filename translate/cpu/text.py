"""LLVM IR text as the rewriting for the CPU sees it: functions, globals, metadata, operands.

The text is what mlir-translate and opt print: one instruction or one label a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

_OPEN = "([{<"
_CLOSE = ")]}>"
_SYMBOL = r'@(?:"(?P<quoted>[^"]*)"|(?P<plain>[-\w.$]+))'
_DEFINE = re.compile(rf"^define\b[^@]*{_SYMBOL}\(")
_DECLARE = re.compile(rf"^declare\b[^@]*{_SYMBOL}\(")
_GLOBAL = re.compile(rf"^{_SYMBOL} = ")
_LABEL = re.compile(r'^("[^"]*"|[-\w.$]+):')
CALL = re.compile(
    r"^(?P<head>\s*(?:%\S+ = )?(?:(?:tail|musttail|notail) )?call (?P<type>.*?))"
    r'(?P<callee>@(?:"[^"]*"|[-\w.$]+)|%[-\w.$]+)\((?P<rest>.*)$'
)
_NUMBERED = re.compile(r"%(\d+)\b")
_NUMBERED_LABEL = re.compile(r"^(\d+):")
_METADATA_ID = re.compile(r"^!(\d+) = ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Function:
    """A function definition: its symbol, first line without the brace, and the lines inside."""

    name: str
    head: str
    body: tuple[str, ...]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the parameters as they stand in the head, attributes and names included."""
        start, end = _parameter_span(self.head)
        return split_list(self.head[start:end])

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

    def render(self) -> str:
        """Return the definition as text."""
        return "\n".join((f"{self.head} {{", *self.body, "}"))


@dataclass(frozen=True, slots=True)
class DeviceModule:
    """The parts of a module in printing order within each kind."""

    types: tuple[str, ...]
    globals: tuple[tuple[str, str], ...]
    declarations: tuple[tuple[str, str], ...]
    functions: tuple[Function, ...]
    tail: tuple[str, ...]

    def next_metadata_id(self) -> int:
        """Return the first metadata number that is free."""
        numbers = [int(number) for number in _METADATA_ID.findall("\n".join(self.tail))]
        return max(numbers, default=-1) + 1


def parse_device_module(text: str) -> DeviceModule:
    """Split the text of a module into its parts; target and comment lines are dropped."""
    types: list[str] = []
    global_lines: list[tuple[str, str]] = []
    declarations: list[tuple[str, str]] = []
    functions: list[Function] = []
    tail: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if match := _DEFINE.match(line):
            functions.append(_parse_function(_symbol(match), line, lines))
        elif match := _DECLARE.match(line):
            declarations.append((_symbol(match), line))
        elif match := _GLOBAL.match(line):
            global_lines.append((_symbol(match), line))
        elif line.startswith("%"):
            types.append(line)
        elif line.startswith(("!", "attributes ", "$", "module asm ")):
            tail.append(line)
    return DeviceModule(
        tuple(types), tuple(global_lines), tuple(declarations), tuple(functions), tuple(tail)
    )


def _parse_function(name: str, first: str, lines: Iterator[str]) -> Function:
    """Read a definition; numbered values and labels get names, so that others can stand between."""
    body: list[str] = []
    for line in lines:
        if line == "}":
            break
        if line.strip():
            body.append(_without_label_comment(line))
    head = first.rstrip().removesuffix("{").rstrip()
    numbers = [int(number) for number in re.findall(r"%(\d+)", head)]
    if body and label_of(body[0]) is None:
        body.insert(0, f"{max(numbers, default=-1) + 1}:")
    named = (_NUMBERED_LABEL.sub(r"v\1:", _NUMBERED.sub(r"%v\1", line)) for line in body)
    return Function(name, _NUMBERED.sub(r"%v\1", head), _join_lines(list(named)))


def _join_lines(body: list[str]) -> tuple[str, ...]:
    """Put an instruction that is printed on several lines (switch) on one."""
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


def _symbol(match: re.Match[str]) -> str:
    quoted: str | None = match["quoted"]
    return quoted if quoted is not None else match["plain"]


def _parameter_span(head: str) -> tuple[int, int]:
    match = _DEFINE.match(head)
    if match is None:
        msg = f"not a function definition: {head}"
        raise ValueError(msg)
    return match.end(), closing(head, match.end() - 1)


def label_of(line: str) -> str | None:
    """Return the label that the line defines, as it is written after `%`."""
    match = _LABEL.match(line)
    return match[1] if match else None


def symbol(name: str) -> str:
    """Return the name as a reference to a global value."""
    return f"@{name}" if re.fullmatch(r"[-A-Za-z$._][-\w.$]*", name) else f'@"{name}"'


def callee_name(reference: str) -> str:
    """Return the name behind `@name` or `@"name"`."""
    return reference[1:].strip('"')


def closing(text: str, start: int) -> int:
    """Return the index of the bracket that closes the one at `start`; strings are skipped."""
    depth = 0
    quoted = False
    for index in range(start, len(text)):
        char = text[index]
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
            if depth == 0:
                return index
    msg = f"unbalanced brackets: {text}"
    raise ValueError(msg)


def split_list(text: str) -> tuple[str, ...]:
    """Split at the commas outside brackets and strings."""
    parts: list[str] = []
    start = depth = 0
    quoted = False
    for index, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    last = text[start:].strip()
    return (*parts, last) if last else tuple(parts)


def type_end(text: str, start: int = 0) -> int:
    """Return the end of the type that begins at `start`."""
    if text[start] in "{[<":
        return closing(text, start) + 1
    match = re.compile(r'%"[^"]*"|%[-\w.$]+|\w+').match(text, start)
    if match is None:
        msg = f"no type at {start}: {text}"
        raise ValueError(msg)
    return match.end()


def first_type(text: str) -> str:
    """Return the type at the start of `text`."""
    return text[: type_end(text)]
