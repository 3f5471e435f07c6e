"""YAML as nodes with locations, parsed without recursion, because a manifest may come from anyone."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

import yaml
from msgspec import Struct, field

from mlir_offload.driver.option.row import value_hint
from mlir_offload.toolchain.errors import UsageError

# The loader in C is ten times as fast.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST = 16
_TOO_DEEP = "no manifest is nested so deeply"
# A short alias may expand to many nodes.
_MOST_NODES = 4_000_000
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class YamlNode(Struct):
    """A node and its location; line and column start at 1."""

    line: int
    column: int


class YamlScalar(YamlNode):
    """A scalar with its source text."""

    text: str
    is_null: bool


class YamlList(YamlNode):
    """A list."""

    items: list[YamlNode] = field(default_factory=list)


class YamlMapping(YamlNode):
    """A mapping: alternating keys and values."""

    items: list[YamlNode] = field(default_factory=list)


def compose(text: bytes, file: Path) -> YamlNode:
    """Return the root node of a document. Raises UsageError for invalid or too deeply nested YAML.

    PyYAML's own `compose` recurses in C, so that a file of brackets would crash the process.
    """
    try:
        nodes = _nodes(yaml.parse(text, Loader=_Loader), file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        msg = f"invalid YAML: {error.problem or error.context}"
        hint = _syntax_hint(text, error)
        raise UsageError(msg, hint=hint, location=f"{file}{place}") from error
    except (yaml.YAMLError, ValueError) as error:
        msg = f"invalid YAML: {str(error).splitlines()[0]}"
        raise UsageError(msg, location=str(file)) from error
    if not nodes:
        msg = "the manifest is empty"
        raise UsageError(msg, hint="name the modules: 'modules: [a.mlir]'", location=str(file))
    if _expanded(nodes[0], {}) > _MOST_NODES:
        NodeReader(file).fail(nodes[0], f"the manifest expands to more than {_MOST_NODES:,} values")
    return nodes[0]


def _expanded(node: YamlNode, known: dict[int, int]) -> int:
    """Return the number of values of a node with aliases expanded.

    An alias follows its anchor, so that the recursion is no deeper than the nesting of the text. A node that
    contains itself is counted once; it is rejected later, because no part of a manifest is recursive.
    """
    if not isinstance(node, YamlList | YamlMapping):
        return 1
    if id(node) not in known:
        known[id(node)] = 0
        known[id(node)] = 1 + sum(_expanded(item, known) for item in node.items)
    return known[id(node)]


def _syntax_hint(text: bytes, error: yaml.MarkedYAMLError) -> str:
    """Return a hint for a syntax error, because the parser reports a later position or no cause."""
    begin, end = error.context_mark, error.problem_mark
    # PyYAML 6.0.4 and newer, at 1000 levels.
    if "nesting depth" in (error.problem or ""):
        return _TOO_DEEP
    if end is not None and text.decode(errors="replace")[end.index : end.index + 1] == "\t":
        return "indent with spaces: YAML allows no tabs"
    if begin is not None and end is not None and begin.index + 1 < end.index:
        return (
            f"check what begins at {begin.line + 1}:{begin.column + 1}: close brackets and quotes"
        )
    return "put names and patterns with characters such as * & % @ in quotes"


def _nodes(events: Iterable[yaml.Event], file: Path) -> list[YamlNode]:
    """Return the root nodes of all documents."""
    found: list[YamlNode] = []
    anchors: dict[str, YamlNode] = {}
    siblings = [found]
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            siblings.pop()
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        node = _node(event)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                hint = "put names and patterns that begin with * in quotes"
                NodeReader(file).fail(node, f"nothing is anchored as '{event.anchor}'", hint)
            siblings[-1].append(anchors[event.anchor])
            continue
        siblings[-1].append(node)
        if event.anchor:
            anchors[event.anchor] = node
        if isinstance(node, YamlList | YamlMapping):
            siblings.append(node.items)
            if len(siblings) > _DEEPEST:
                NodeReader(file).fail(node, _TOO_DEEP)
    return found


def _node(event: yaml.NodeEvent) -> YamlNode:
    mark = event.start_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    if isinstance(event, yaml.SequenceStartEvent):
        return YamlList(line, column)
    if isinstance(event, yaml.MappingStartEvent):
        return YamlMapping(line, column)
    if isinstance(event, yaml.ScalarEvent):
        is_null = event.implicit[0] and event.value in _NULLS
        return YamlScalar(line, column, event.value, is_null)
    return YamlNode(line, column)


class NodeReader(Struct):
    """Reads nodes as the expected types. All errors have a location."""

    file: Path

    def fail(self, node: YamlNode, message: str, hint: str = "") -> NoReturn:
        """Raise UsageError with the location of the node."""
        raise UsageError(message, hint=hint, location=self.location(node))

    def location(self, node: YamlNode) -> str:
        """Return the location of a node as `file:line:column`."""
        return f"{self.file}:{node.line}:{node.column}"

    def mapping(
        self, node: YamlNode, what: str, known: Mapping[str, object] | None = None
    ) -> dict[str, YamlNode]:
        """Return the keys and values of a mapping. Raises UsageError for a key that is not in `known`."""
        if not isinstance(node, YamlMapping):
            hint = "write 'NAME: VALUE', one per line"
            self.fail(node, f"{what} must be a mapping of names to values", hint)
        found: dict[str, YamlNode] = {}
        for key, value in zip(node.items[::2], node.items[1::2], strict=True):
            name = self.text(key, "a key")
            if name in found:
                self.fail(key, f"'{name}' is listed twice", "remove one of them")
            if known is not None and name not in known:
                self.fail(key, f"{what} has no key '{name}'", value_hint(name, known))
            found[name] = value
        return found

    def items(self, node: YamlNode, what: str) -> list[YamlNode]:
        """Return the nodes of a list. Raises UsageError for another node."""
        if not isinstance(node, YamlList):
            self.fail(node, f"{what} must be a list", "write [a, b], or one per line after '- '")
        return node.items

    def text(self, node: YamlNode, what: str) -> str:
        """Return a non-empty string of one line. Raises UsageError for another node."""
        if not isinstance(node, YamlScalar) or node.is_null or not node.text:
            self.fail(node, f"{what} must be a string", "write a name, or a text in quotes")
        text = node.text
        if "\0" in text or "\n" in text:
            self.fail(node, f"{what} must be one line of text")
        return text

    def words(self, node: YamlNode, what: str) -> list[tuple[YamlNode, str]]:
        """Return the strings of a list, or the words of one string with the quoting of a shell."""
        if isinstance(node, YamlList):
            return [
                (item, self.text(item, f"an item of {what}")) for item in self.items(node, what)
            ]
        text = self.text(node, what)
        try:
            return [(node, word) for word in shlex.split(text)]
        except ValueError as error:
            self.fail(node, f"{what}: {error}", "close the quotes, or write a list: [-O3, -g]")
