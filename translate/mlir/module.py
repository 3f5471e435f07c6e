"""Parse and print a module in generic form: aliases, operations, resources and locations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from mlir_offload.toolchain.errors import ToolFailedError
from mlir_offload.toolchain.pattern import pattern
from mlir_offload.translate.mlir.operation import Block, CustomOperation, Operation, Region
from mlir_offload.translate.mlir.syntax import MLIR, escape, unescape

# Each line begins an operation, is a label, or ends a region, because line ends in strings are escaped.
_OPERATION = pattern(r' *(?:(%[^"]*?) = )?"([^"]+)"\(([^)]*)\)')
_CUSTOM = pattern(r"(?:(%[^\"=]*?) = )?([a-z]\w*\.[\w.]+ .*)", re.DOTALL)
_ALIAS_USE = pattern(r"[#!][A-Za-z_]\w*")
_RESOURCE_USE = "dense_resource"
_OPENING, _NEXT_REGION = " ({", "}, {"


class Module:
    """A printed `builtin.module`, with the lines before and after it.

    These lines define aliases and resources. Each part that is split off gets those that it uses.
    """

    __slots__ = ("_definitions", "_first_of_tail", "head", "operation", "tail")

    def __init__(self, head: Sequence[str], operation: Operation, tail: Sequence[str]) -> None:
        """Take the lines before the operation, the operation, and the lines after it."""
        self.head = head
        self.operation = operation
        self.tail = tail
        self._definitions = _alias_lines(head)
        self._first_of_tail = len(self._definitions)
        self._definitions |= _alias_lines(tail)

    @property
    def operations(self) -> list[Operation]:
        """Return the operations of its body."""
        return self.operation.operations

    @property
    def aliases(self) -> dict[str, str]:
        """Return the definition of each alias."""
        return {name: line.partition(" = ")[2] for name, line in self._definitions.items()}

    @property
    def resources(self) -> list[str]:
        """Return the lines of the section of resources."""
        start = next((i for i, line in enumerate(self.tail) if line == "{-#"), len(self.tail))
        return list(self.tail[start:])

    def render(self) -> str:
        """Return the text of the module. It equals the parsed text, except for changes of operations."""
        return "\n".join((*self.head, *self.operation.lines(), *self.tail, ""))

    def render_part(self, body: Iterable[Operation]) -> str:
        """Return the text of a module with these operations, and with the aliases and resources that they use."""
        # The region must have a block, even without operations.
        block = Block(operations=list(body))
        if not block.operations:
            block.label = "^bb0:"
        lines = self._with_block(block).lines()
        order = {name: number for number, name in enumerate(self._definitions)}
        used = sorted(self._used(lines), key=order.__getitem__)
        first = [self._definitions[name] for name in used if order[name] < self._first_of_tail]
        last = [self._definitions[name] for name in used if order[name] >= self._first_of_tail]
        if any(_RESOURCE_USE in line for line in (*first, *lines)):
            last += [line for line in self.tail if line and not _ALIAS_USE.match(line)]
        return "\n".join((*first, *lines, *last, ""))

    def _with_block(self, block: Block) -> Operation:
        operation = self.operation.copy_without_regions()
        operation.regions = [Region([block])]
        return operation

    def _used(self, lines: Iterable[str]) -> set[str]:
        """Return the names of the aliases that lines use."""
        pending = _ALIAS_USE.findall("\n".join(lines))
        used: set[str] = set()
        while pending:
            name = pending.pop()
            if name in self._definitions and name not in used:
                used.add(name)
                pending += _ALIAS_USE.findall(self._definitions[name], len(name))
        return used


def _alias_lines(lines: Iterable[str]) -> dict[str, str]:
    """Return the lines that define aliases, by name."""
    return {line.partition(" ")[0]: line for line in lines if _ALIAS_USE.match(line)}


def parse_module(text: str) -> Module:
    """Parse the output of mlir-opt. Raises ToolFailedError if the text has another form."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"builtin.module"(')), None)
    if begin is None:
        msg = "no module in it"
        raise _unexpected(msg)
    end = next((i for i in range(begin + 1, len(lines)) if lines[i].startswith("})")), None)
    if end is None:
        msg = "the module does not end"
        raise _unexpected(msg)
    (operation,) = parse_operations(lines[begin : end + 1])
    return Module(lines[:begin], operation, lines[end + 1 :])


def parse_operations(lines: Sequence[str]) -> list[Operation]:
    """Parse the lines of operations. Raises ToolFailedError if a line does not begin an operation."""
    blocks = parse_blocks(lines)
    return blocks[0].operations if blocks else []


def parse_blocks(lines: Sequence[str]) -> list[Block]:
    """Parse the lines of blocks. Raises ToolFailedError if a line has another form."""
    try:
        return _parse_lines(lines)
    except ToolFailedError:
        return _parse_lines(_joined(lines))


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines. Lines with unclosed brackets, from a type printed on several lines, are joined."""
    held = ""
    for line in lines:
        held = f"{held}\n{line}" if held else line
        text = held.strip().removeprefix("})").removesuffix("({")
        if text == _NEXT_REGION or not MLIR.enclosing(text, len(text)):
            yield held
            held = ""


def _parse_lines(lines: Iterable[str]) -> list[Block]:
    reader = _Reader()
    for line in lines:
        match = _OPERATION.match(line)
        if match is None:
            reader.read_other(line.lstrip(" "))
            continue
        results, name, operands = match.groups("")
        rest = line[match.end() :]
        if rest.endswith(_OPENING):
            operation = Operation(name, results, operands, rest.removesuffix(_OPENING))
            reader.block().append(operation)
            reader.enter(operation)
        else:
            reader.block().append(Operation(name, results, operands, rest))
    return reader.finish()


class _Reader:
    """The state of the parser: the current region and block, and the enclosing operations."""

    def __init__(self) -> None:
        self._region = Region()
        self._operations: list[Operation] | None = None
        self._around: list[tuple[Operation, Region, list[Operation]]] = []

    def block(self) -> list[Operation]:
        """Return the operations of the current block; begin the entry block if there is none."""
        if self._operations is None:
            self._operations = []
            self._region.blocks.append(Block("", self._operations))
        return self._operations

    def enter(self, operation: Operation) -> None:
        """Begin the first region of an operation in the current block."""
        self._around.append((operation, self._region, self.block()))
        self._begin_region()

    def read_other(self, text: str) -> None:
        """Parse a line, without indentation, that does not begin an operation in generic form."""
        if text.startswith("})") and self._around:
            operation, self._region, self._operations = self._around.pop()
            operation.end = text[2:]
        elif text == _NEXT_REGION and self._around:
            self._begin_region()
        elif text.startswith("^"):
            self._operations = []
            self._region.blocks.append(Block(text, self._operations))
        elif custom := _CUSTOM.fullmatch(text):
            self.block().append(CustomOperation.parse(custom[1] or "", custom[2]))
        elif text:
            msg = f"this line: {text[:80]}"
            raise _unexpected(msg)

    def finish(self) -> list[Block]:
        """Return the parsed blocks."""
        if self._around:
            msg = f"{self._around[-1][0].name} does not end"
            raise _unexpected(msg)
        return self._region.blocks

    def _begin_region(self) -> None:
        self._region, self._operations = Region(), None
        self._around[-1][0].regions.append(self._region)


def _unexpected(what: str) -> ToolFailedError:
    return ToolFailedError(
        f"mlir-opt printed a module that cannot be read: {what}",
        hint="report this with the input and the output of 'mlir-opt --version'",
    )


_FILE = pattern(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_NAMED = pattern(r'"((?:[^"\\]|\\.)*)"\(')
_ALIAS = pattern(r"#\w+")
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
# File names in MLIR: locations, and the file of existing debug information.
_LOCATION = pattern(rf"(?<=[(\[ ]){_QUOTED}(?=:\d)")
_DEBUG_FILE = pattern(rf"(?<=#llvm\.di_file<){_QUOTED} in {_QUOTED}(?=>)")
_DEPTH_LIMIT = 20


class Locations(Struct, frozen=True):
    """Resolves locations. `aliases` are the definitions of `#loc` aliases by name."""

    aliases: Mapping[str, str] = {}

    def of(self, operation: Operation) -> str:
        """Return `file:line:column` of an operation, an empty string if it is unknown."""
        return self.resolve(operation.location)

    def resolve(self, location: str, depth: int = 0) -> str:
        """Return `file:line:column` of a location, an empty string if it is unknown."""
        direct = _FILE.search(location)
        if direct:
            return f"{unescape(direct[1])}:{direct[2]}:{direct[3]}"
        if depth > _DEPTH_LIMIT:
            return ""
        found = (
            self.resolve(self.aliases.get(name, ""), depth + 1) for name in _ALIAS.findall(location)
        )
        return next((place for place in found if place), "")

    def function_of(self, location: str) -> str:
        """Return the function name in a location, an empty string if there is none.

        For an inlined call, this is the callee, as in MLIR's own messages.
        """
        for _ in range(_DEPTH_LIMIT):
            location = location.removeprefix("loc(").removeprefix("callsite(")
            if named := _NAMED.match(location):
                return unescape(named[1])
            if not (alias := _ALIAS.match(location)):
                break
            location = self.aliases.get(alias[0], "")
        return ""


def location_of_line(text: str, number: int) -> str:
    """Return `file:line:column` of the operation in a line of a printed module, an empty string for none."""
    lines = text.splitlines()
    if not 0 < number <= len(lines):
        return ""
    definitions = (line.partition(" = ") for line in lines if line.startswith("#loc"))
    aliases = {name: value for name, _, value in definitions}
    return Locations(aliases).resolve(lines[number - 1].rpartition("loc(")[2])


def map_files(text: str, made: Callable[[str], str]) -> str:
    """Replace the names of source files in a module in generic form."""

    def mapped(printed: str) -> str:
        name = unescape(printed)
        # Keep an unchanged name as printed, because escaping a name that is not UTF-8 would change it.
        return escape(new) if (new := made(name)) != name else printed

    def located(match: re.Match[str]) -> str:
        return f'"{mapped(match[1])}"'

    def debug_file(match: re.Match[str]) -> str:
        return f'"{mapped(match[1])}" in "{mapped(match[2])}"'

    return _DEBUG_FILE.sub(debug_file, _LOCATION.sub(located, text))
