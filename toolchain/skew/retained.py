"""Find and remove retainedNodes of textual IR that a release of LLVM rejects."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mlir_offload.toolchain.pattern import ir_line, ir_pattern
from mlir_offload.toolchain.skew.limits import RetainedNode, load_limits

_FIELD = ir_pattern("retainedNodes: !`list:number?``(`{`inline:some`}`)?`")
_LIST = ir_line("!`number:number` = `distinct ?`!{`nodes:some`}")
_NODE = ir_line("!`number:number` = `distinct ?`!`kind:word`(")


def unread_node(text: str, release: int) -> tuple[RetainedNode, int] | None:
    """Return the first retained node that a release rejects, and the position of its list in the text."""
    lists = _unread_lists(text, release)
    for match in _FIELD.finditer(text) if lists else ():
        row = next(filter(None, lists.get(_key(match), {}).values()), None)
        if row is not None:
            return row, match.start()
    return None


def older_retained_nodes(text: str, release: int) -> str:
    """Remove the retained nodes that a release rejects from a module.

    The lists themselves are kept, because another node may share them, such as a compile unit for its globals.
    """
    lists = _unread_lists(text, release)

    def field(match: re.Match[str]) -> str:
        nodes = lists.get(_key(match))
        if nodes is None:
            return match[0]
        return (
            f"retainedNodes: !{{{', '.join(node for node, row in nodes.items() if row is None)}}}"
        )

    return _FIELD.sub(field, text) if lists else text


def _unread_lists(text: str, release: int) -> Mapping[str, Mapping[str, RetainedNode | None]]:
    """Return the lists that a release rejects: for each node its row, None for accepted nodes."""
    newer = {row.node: row for row in load_limits().retained_nodes.values() if row.since > release}
    used = {_key(match) for match in _FIELD.finditer(text)} if newer else set()
    if not used:
        return {}
    spelled = {match["number"]: match["nodes"] for match in _LIST.finditer(text)}
    lists = {key: spelled.get(key, key).split(", ") for key in used}
    wanted = {node for nodes in lists.values() for node in nodes}
    rows = {
        node: newer.get(match["kind"])
        for match in _NODE.finditer(text)
        if (node := f"!{match['number']}") in wanted
    }
    found = {key: {node: rows.get(node) for node in nodes} for key, nodes in lists.items()}
    return {key: nodes for key, nodes in found.items() if any(nodes.values())}


def _key(match: re.Match[str]) -> str:
    """Return the number of a list, or the nodes of an inline list."""
    return match["list"] or match["inline"] or ""
