"""MLIR text in generic form as mlir-opt prints it: operations as line ranges.

mlir-opt prints one operation per line, the regions of an operation indented by two, all attributes
on its first and last line, and strings with their line ends escaped. What is read here is only ever
the output of `--mlir-print-op-generic --mlir-print-debuginfo`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from mlir_offload.toolchain.errors import ToolFailedError
from mlir_offload.translate.mlir_syntax import MLIR

_OPERATION = re.compile(r'( *)(?:(%[^"]*?) = )?"([\w.$-]+)"\(([^)]*)\)')
_ESCAPE = re.compile(r"\\(?:\\|([0-9A-Fa-f]{2}))")
_BARE_NAME = re.compile(r"[A-Za-z_][\w$.-]*")
_LOCATION_ALIAS = re.compile(r"#(\w+) = loc\((.*)\)")
_FILE_LOCATION = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_NAMED_LOCATION = re.compile(r'"((?:[^"\\]|\\.)*)"\(')
_ALIAS_USE = re.compile(r"[#!][A-Za-z_]\w*")
_RESOURCE_USE = "dense_resource"
_LOCATION_NAME = re.compile(r"#(\w+)")
_FUNCTION_TYPE = re.compile(r"\bfunction_type = (?:\(|!llvm\.func<)")
_LLVM_TYPE = re.compile(r"(?:ptr|struct|array|vec|target|x86_amx|ppc_fp128|x86_fp80)\b")
_STRING = r'"((?:[^"\\]|\\.)*)"'

_DEPTH_LIMIT = 20
_PRINTABLE = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')

SYMBOL = r'@(?:"((?:[^"\\]|\\.)*)"|([A-Za-z_][\w$.-]*))'
"""Pattern of a symbol reference: group 1 is a quoted name, group 2 a bare one."""


class Operation(Struct, frozen=True):
    """The parts of the first line of an operation in generic form."""

    indent: int
    results: str
    name: str
    operands: tuple[str, ...]
    rest: str


class OperationText(Struct, frozen=True):
    """An operation of a module's body with all lines of its regions."""

    name: str
    lines: tuple[str, ...]

    @property
    def attributes(self) -> str:
        """Return the text that holds its properties, attributes, types and location."""
        return self.lines[0] if len(self.lines) == 1 else f"{self.lines[0]} {self.lines[-1]}"

    @property
    def is_declaration(self) -> bool:
        """Say whether its only region holds nothing: that of a function that is defined elsewhere."""
        return not any(line.strip() for line in self.lines[1:-1])

    @property
    def body(self) -> tuple[OperationText, ...]:
        """Return the operations of its only region, which has one block."""
        return tuple(cut_operations(self.lines[1:-1]))


class ModuleText(Struct, frozen=True):
    """A printed `builtin.module`, cut into its operations.

    `aliases` and `tail` are alias definitions and resources: each part that is made of the module
    gets those that it uses.
    """

    aliases: tuple[str, ...]
    head: str
    operations: tuple[OperationText, ...]
    foot: str
    tail: tuple[str, ...]
    _definitions: Mapping[str, str] = field(default_factory=dict)
    _positions: Mapping[str, int] = field(default_factory=dict)
    _resources: tuple[str, ...] = ()

    def render(self, body: Iterable[str]) -> str:
        """Return the text of a module with these lines as its body, and the aliases that they use."""
        # A region has a block, even one without operations.
        lines = (self.head, *(tuple(body) or ("^bb0:",)), self.foot)
        names = self._used(lines)
        first = [self._definitions[name] for name in names if not self._is_in_tail(name)]
        last = [self._definitions[name] for name in names if self._is_in_tail(name)]
        if self._resources and any(_RESOURCE_USE in line for line in (*first, *lines)):
            last += self._resources
        return "\n".join((*first, *lines, *last)) + "\n"

    def _is_in_tail(self, alias: str) -> bool:
        return self._positions[alias] >= len(self.aliases)

    def _used(self, lines: Iterable[str]) -> list[str]:
        """Return the names of the aliases that lines use, in the order of their definitions."""
        pending = _ALIAS_USE.findall("\n".join(lines))
        used: set[str] = set()
        while pending:
            name = pending.pop()
            if name in self._definitions and name not in used:
                used.add(name)
                pending += _ALIAS_USE.findall(self._definitions[name], len(name))
        return sorted(used, key=self._positions.__getitem__)


class Locations(Struct, frozen=True):
    """The source locations behind the `#loc` aliases of a text."""

    aliases: dict[str, str] = field(default_factory=dict)

    def of(self, line: str) -> str:
        """Return `file:line:column` of the operation that ends on this line, or an empty string."""
        start = MLIR.blanked(line).rfind(" loc(")
        return self._resolve(line[start + 5 :], depth=0) if start >= 0 else ""

    def function_of(self, line: str) -> str:
        """Return the name that the location of an operation has, that of a function; empty without one.

        Of a call that was inlined the callee counts, as where MLIR itself names a function.
        """
        start = MLIR.blanked(line).rfind(" loc(")
        text = line[start + 5 :] if start >= 0 else ""
        for _ in range(_DEPTH_LIMIT):
            text = text.removeprefix("callsite(")
            if named := _NAMED_LOCATION.match(text):
                return unescape(named[1])
            if not (alias := _LOCATION_NAME.match(text)):
                break
            text = self.aliases.get(alias[1], "")
        return ""

    def _resolve(self, text: str, depth: int) -> str:
        direct = _FILE_LOCATION.search(text)
        if direct:
            return f"{unescape(direct[1])}:{direct[2]}:{direct[3]}"
        if depth > _DEPTH_LIMIT:
            return ""
        found = (
            self._resolve(self.aliases.get(name, ""), depth + 1)
            for name in _LOCATION_NAME.findall(text)
        )
        return next((location for location in found if location), "")


def parse_module(text: str) -> ModuleText:
    """Cut the printed module into aliases, operations and tail.

    Raises ToolFailedError where the text is not what mlir-opt prints.
    """
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"builtin.module"(')), None)
    if begin is None:
        msg = "no module in it"
        raise _unexpected(msg)
    end = next((i for i in range(begin + 1, len(lines)) if lines[i].startswith("})")), None)
    if end is None:
        msg = "the module does not end"
        raise _unexpected(msg)
    aliases = tuple(line for line in lines[:begin] if line)
    tail = tuple(line for line in lines[end + 1 :] if line)
    body = tuple(cut_operations(lines[begin + 1 : end]))
    # An alias definition is a line; resources are a section of their own at the end.
    of_aliases = [line for line in (*aliases, *tail) if _ALIAS_USE.match(line)]
    definitions = {line.partition(" ")[0]: line for line in of_aliases}
    positions = {name: number for number, name in enumerate(definitions)}
    rest = tuple(line for line in tail if not _ALIAS_USE.match(line))
    return ModuleText(aliases, lines[begin], body, lines[end], tail, definitions, positions, rest)


def cut_operations(lines: Sequence[str]) -> Iterator[OperationText]:
    """Cut the lines of one block into operations, each with its regions.

    Raises ToolFailedError where a line begins no operation.
    """
    start = 0
    while start < len(lines):
        end = start
        operation = parse_operation(lines[start])
        if operation is not None and lines[start].endswith("({"):
            close = " " * operation.indent + "})"
            end = start + 1
            while end < len(lines) and not lines[end].startswith(close):
                end += 1
        if operation is not None:
            yield OperationText(operation.name, tuple(lines[start : end + 1]))
        elif lines[start].strip() not in {"", "^bb0:"}:
            msg = f"this line: {lines[start].strip()[:80]}"
            raise _unexpected(msg)
        start = end + 1


def parse_operation(line: str) -> Operation | None:
    """Return the operation that begins on this line, or None for a label or a closing line."""
    match = _OPERATION.match(line)
    if match is None:
        return None
    operands = tuple(operand for operand in match[4].split(", ") if operand)
    return Operation(len(match[1]), match[2] or "", match[3], operands, line[match.end() :])


def read_locations(lines: Iterable[str]) -> Locations:
    """Collect the location aliases of the lines."""
    matches = (_LOCATION_ALIAS.match(line) for line in lines if line.startswith("#"))
    return Locations({match[1]: match[2] for match in matches if match})


def split_signature(rest: str) -> tuple[str, list[str], list[str], str]:
    """Split `<attributes> : (types) -> types loc(...)` into its four parts.

    The location keeps its `loc(`; it is empty where the line has none.
    """
    code = MLIR.blanked(rest)
    end = code.rfind(" loc(")
    end = len(rest) if end < 0 else end
    start = code.rfind(" : (", 0, end)
    if start < 0:
        return "", [], [], rest[end + 1 :]
    operands, results = _split_arrow(rest[start + 3 : end])
    return rest[:start], operands, results, rest[end + 1 :]


def function_type(operation: OperationText) -> tuple[list[str], list[str]]:
    """Return the types that a function takes, and those that it gives; nothing of another operation."""
    line = operation.lines[0]
    found = MLIR.search(_FUNCTION_TYPE, line)
    if found is None:
        return [], []
    text = line[found.end() - 1 :]
    if text[0] == "(":
        return _split_arrow(text)
    text = MLIR.inside(text, 0)
    start = MLIR.enclosing(text, len(text) - 1)[-1]
    result = text[:start].strip()
    takes = MLIR.split_list(text[start + 1 : -1])
    return [_spelled(kind) for kind in takes], [] if result == "void" else [_spelled(result)]


def _spelled(kind: str) -> str:
    """Return a type of the LLVM dialect as it is spelled outside of its own types."""
    return f"!llvm.{kind}" if _LLVM_TYPE.match(kind) else kind


def _split_arrow(signature: str) -> tuple[list[str], list[str]]:
    """Split `(types) -> types`; what follows, behind a comma, is left out."""
    end = MLIR.closing(signature, 0)
    results = signature[end + 1 :].removeprefix(" -> ")
    # A sole result of function type would begin with a parenthesis too; no operation of
    # the GPU dialect has one.
    several = results.startswith("(")
    given = MLIR.split_list(MLIR.inside(results, 0)) if several else MLIR.split_list(results)[:1]
    return MLIR.split_list(signature[1:end]), given


def string_attribute(text: str, name: str) -> str | None:
    """Return the value of `name = "..."`, unescaped, or None where there is none."""
    match = re.search(rf"\b{name} = {_STRING}", text)
    return unescape(match[1]) if match else None


def symbol_name(operation: OperationText) -> str:
    """Return the name that the operation defines. Raises ToolFailedError where it defines none."""
    name = string_attribute(operation.attributes, "sym_name")
    if name is None:
        msg = f"{operation.name} without a name"
        raise _unexpected(msg)
    return name


def unescape(text: str) -> str:
    """Return the string that MLIR prints as `text` between quotes."""
    if "\\" not in text:
        return text
    raw = _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else "\\", text)
    return raw.encode("latin-1", errors="replace").decode("utf-8", errors="replace")


def escape(text: str) -> str:
    """Return the string as MLIR writes it between quotes."""
    encoded = text.encode("utf-8", errors="surrogateescape")
    return "".join(chr(byte) if byte in _PRINTABLE else f"\\{byte:02X}" for byte in encoded)


def render_symbol(name: str) -> str:
    """Return the reference to a symbol, quoted only where it must be."""
    return f"@{name}" if _BARE_NAME.fullmatch(name) else f'@"{escape(name)}"'


def _unexpected(what: str) -> ToolFailedError:
    return ToolFailedError(
        f"mlir-opt printed a module that cannot be read: {what}",
        hint="report this with the input and the output of 'mlir-opt --version'",
    )
