"""YAML as nodes that know their places, read without recursion: a manifest may come from anyone."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import yaml

from mlir_offload.toolchain.errors import UsageError

# The one that is written in C is ten times as fast.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST = 16
# An alias costs a few bytes and may stand for many nodes.
_MOST_NODES = 4_000_000
_STRING, _NULL = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null"
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


def compose(text: bytes, file: Path) -> yaml.Node:
    """Return the node of a document. Raises UsageError where it is no YAML, or nested too deeply.

    PyYAML's own `compose` recurses in C, and a file of brackets ends the process.
    """
    try:
        nodes = _nodes(yaml.parse(text, Loader=_Loader), file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        msg = f"no YAML: {error.problem or error.context}"
        raise UsageError(msg, location=f"{file}{place}") from error
    except (yaml.YAMLError, ValueError) as error:
        msg = f"no YAML: {str(error).splitlines()[0]}"
        raise UsageError(msg, location=str(file)) from error
    if not nodes:
        msg = "the manifest is empty"
        raise UsageError(msg, hint="name the modules: 'modules: [a.mlir]'", location=str(file))
    return nodes[0]


def _nodes(events: Iterable[yaml.Event], file: Path) -> list[yaml.Node]:
    """Return the nodes of all documents."""
    found: list[yaml.Node] = []
    anchors: dict[str, yaml.Node] = {}
    open_nodes: list[list[yaml.Node]] = [found]
    kinds: list[type[yaml.Node]] = []
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            is_list = isinstance(event, yaml.SequenceStartEvent)
            kinds.append(yaml.SequenceNode if is_list else yaml.MappingNode)
            node = kinds[-1](event.tag or "", [], event.start_mark)
            _add(node, event, open_nodes[-1], anchors)
            open_nodes.append(node.value)
            if len(open_nodes) > _DEEPEST:
                NodeReader(file).fail(node, "no manifest is nested so deeply")
        elif isinstance(event, yaml.CollectionEndEvent):
            children = open_nodes.pop()
            if kinds.pop() is yaml.MappingNode:
                children[:] = zip(children[::2], children[1::2], strict=True)
        elif isinstance(event, yaml.ScalarEvent):
            is_null = event.implicit[0] and event.value in _NULLS
            tag = _NULL if is_null else _STRING
            _add(
                yaml.ScalarNode(tag, event.value, event.start_mark), event, open_nodes[-1], anchors
            )
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                node = yaml.ScalarNode(_STRING, event.anchor, event.start_mark)
                NodeReader(file).fail(node, f"nothing is anchored as '{event.anchor}'")
            open_nodes[-1].append(anchors[event.anchor])
    return found


def _add(
    node: yaml.Node, event: yaml.NodeEvent, siblings: list[yaml.Node], anchors: dict[str, yaml.Node]
) -> None:
    siblings.append(node)
    if event.anchor:
        anchors[event.anchor] = node


@dataclass(slots=True)
class NodeReader:
    """Reads nodes of YAML as what they must be; whatever is wrong has a place."""

    file: Path
    _nodes_left: int = _MOST_NODES

    def fail(self, node: yaml.Node, message: str, hint: str = "") -> NoReturn:
        """Raise UsageError with the place of the node."""
        mark = node.start_mark
        raise UsageError(
            message, hint=hint, location=f"{self.file}:{mark.line + 1}:{mark.column + 1}"
        )

    def mapping(
        self, node: yaml.Node, what: str, known: Mapping[str, object] | None = None
    ) -> dict[str, yaml.Node]:
        """Return the keys and values of a mapping; `known` are the keys that it may have."""
        if not isinstance(node, yaml.MappingNode):
            self.fail(node, f"{what} must be a mapping of names to values")
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = self.text(key, "a key")
            if name in found:
                self.fail(key, f"'{name}' stands there twice")
            if known is not None and name not in known:
                self.fail(key, f"{what} has no key '{name}'", f"known are {', '.join(known)}")
            found[name] = value
        return found

    def items(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        """Return the nodes of a list."""
        self._count(node)
        if not isinstance(node, yaml.SequenceNode):
            self.fail(node, f"{what} must be a list", "write [a, b], or one per line after '- '")
        return list(node.value)

    def text(self, node: yaml.Node, what: str) -> str:
        """Return a string as it is written."""
        self._count(node)
        if not isinstance(node, yaml.ScalarNode) or node.tag == _NULL or not node.value:
            self.fail(node, f"{what} must be a string")
        text = str(node.value)
        if "\0" in text or "\n" in text:
            self.fail(node, f"{what} must be one line of text")
        return text

    def words(self, node: yaml.Node, what: str) -> list[tuple[yaml.Node, str]]:
        """Return the strings of a list, or the words of one string as a shell takes it apart."""
        if isinstance(node, yaml.SequenceNode):
            return [
                (item, self.text(item, f"an item of {what}")) for item in self.items(node, what)
            ]
        text = self.text(node, what)
        try:
            return [(node, word) for word in shlex.split(text)]
        except ValueError as error:
            self.fail(node, f"{what}: {error}")

    def _count(self, node: yaml.Node) -> None:
        self._nodes_left -= 1
        if self._nodes_left < 0:
            self.fail(node, f"the manifest stands for more than {_MOST_NODES:,} values")
