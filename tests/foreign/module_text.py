"""Compare two texts of one module, to find what a reader dropped or misinterpreted.

One release prints both. A missing optimization hint is harmless. Numbers of metadata nodes and attribute
groups are not compared, but their contents are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

# Instruction flags that are optimization hints; the instruction does the same without them.
_PROMISES = frozenset(
    (
        *("nuw", "nsw", "nusw", "exact", "inbounds", "disjoint", "nneg", "samesign"),
        *("nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc", "fast"),
    )
)
# The same applies to properties, branch weights, and memory kinds that only the newest release distinguishes.
_PROPERTIES = re.compile(
    r', code_model "\w+"|inrange\([^)]*\) |, !prof !\d+|, target_mem\d?: \w+|; Function Attrs:.*'
)
_GROUP = re.compile(r"^attributes #(\d+) = \{ ?(.*?) ?\}$")
# A type with an identifier is the same in all modules of a program, whether it is distinct or not.
_NODE = re.compile(r"^!(\d+) = (?:distinct (?=!DICompositeType\(.*, identifier: ))?(.*)$")
_REFERENCE = re.compile(r"!(\d+)\b")
_GROUP_USE = re.compile(r" #(\d+)(?=[ ,]|$)")
_ATTRIBUTE = re.compile(r'"[^"]*"(?:="[^"]*")?|[\w]+(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?(?:=\w+)?')
_MEMORY = re.compile(r"memory\(([^()]*)\)")
# Lines that depend on the file or the reader. ThinLTO summaries, in lines that begin with ^, are not
# preserved by all readers.
_IGNORED = ("; ModuleID", "source_filename", "target datalayout", "target triple", "^")
_INTRINSIC = re.compile(r"^declare .*@llvm\.")
_PRINTED_COMMENT = re.compile(r"\s*; (?:preds|No predecessors|Unknown intrinsic|\[#uses).*$")
# A type at the start of a parameter, followed by attributes.
_TYPE = re.compile(r"\.\.\.|\{[^}]*\}|\[[^\]]*\]|<[^>]*>|[\w.%]+(?:\([^)]*\)| addrspace\(\d+\))?")
_ROUNDS = 3
_ACCESS = {"none": 0, "read": 1, "write": 2, "readwrite": 3}


@dataclass(frozen=True)
class Difference:
    """A line before and after reading; `is_harmless` if only optimization hints are missing."""

    before: str
    after: str
    is_harmless: bool


@dataclass(frozen=True)
class _Text:
    lines: tuple[str, ...]
    groups: Mapping[str, frozenset[str]]
    nodes: Counter[str]


def differences(before: str, after: str) -> list[Difference]:
    """Return the changes by the reader."""
    was, now = _parse(before), _parse(after)
    if len(was.lines) != len(now.lines):
        lost = list((Counter(was.lines) - Counter(now.lines)).elements())
        came = list((Counter(now.lines) - Counter(was.lines)).elements())
        return [Difference("; ".join(lost[:2]), "; ".join(came[:2]), is_harmless=False)]
    found = [
        Difference(one, other, is_harmless=_is_less(one, other, was, now))
        for one, other in zip(was.lines, now.lines, strict=True)
        if not _is_same(one, other, was, now)
    ]
    if was.nodes != now.nodes:
        gone, new = (was.nodes - now.nodes), (now.nodes - was.nodes)
        # A node that no line refers to, such as branch weights, may be missing.
        words = (f"{len(gone)} nodes", f"{len(new)} nodes")
        found.append(Difference(*words, is_harmless=not new))
    return found


def _parse(text: str) -> _Text:
    groups: dict[str, frozenset[str]] = {}
    nodes: dict[str, str] = {}
    lines = []
    for line in text.splitlines():
        if group := _GROUP.match(_PROPERTIES.sub("", line)):
            groups[group[1]] = frozenset(_ATTRIBUTE.findall(group[2]))
        elif node := _NODE.match(line):
            nodes[node[1]] = node[2]
        elif not line.startswith(_IGNORED) and not _INTRINSIC.match(line):
            lines.append(_PROPERTIES.sub("", _PRINTED_COMMENT.sub("", line)))
    spelled = _spell_nodes(nodes)
    spell = partial(_spell_reference, spelled)
    # The order of declarations does not matter, and leaves comments behind.
    resolved = tuple(_REFERENCE.sub(spell, line) for line in lines if line)
    return _Text(resolved, groups, Counter(spelled.values()))


def _spell_nodes(nodes: Mapping[str, str]) -> dict[str, str]:
    """Return, for each node, a word that identifies its content, a few levels deep."""
    words = dict.fromkeys(nodes, "!")
    for _ in range(_ROUNDS):
        spell = partial(_spell_reference, words)
        spelled = {number: _REFERENCE.sub(spell, text) for number, text in nodes.items()}
        words = {
            number: f"!<{blake2b(text.encode(), digest_size=8).hexdigest()}>"
            for number, text in spelled.items()
        }
    return words


def _spell_reference(words: Mapping[str, str], reference: re.Match[str]) -> str:
    return words.get(reference[1], "!")


def _is_same(one: str, other: str, was: _Text, now: _Text) -> bool:
    if one == other and "#" not in one:
        return True
    return _GROUP_USE.sub("", one) == _GROUP_USE.sub("", other) and _groups(one, was) == _groups(
        other, now
    )


def _groups(line: str, text: _Text) -> frozenset[str]:
    numbers = _GROUP_USE.findall(line)
    return frozenset().union(*(text.groups.get(number, frozenset()) for number in numbers))


def _is_less(one: str, other: str, was: _Text, now: _Text) -> bool:
    """Return whether the second line equals the first one with fewer optimization hints."""
    promised, kept = _groups(one, was), _groups(other, now)
    if not (_without_memory(kept) <= _without_memory(promised) and _allows(kept, promised)):
        return False
    return _without_promises(_GROUP_USE.sub("", one)) == _without_promises(
        _GROUP_USE.sub("", other)
    ) and not (_promises(other) - _promises(one))


def _without_promises(line: str) -> list[str]:
    return [word for word in line.split() if word not in _PROMISES]


def _promises(line: str) -> Counter[str]:
    return Counter(word for word in line.split() if word in _PROMISES)


def _without_memory(attributes: frozenset[str]) -> frozenset[str]:
    return frozenset(one for one in attributes if not one.startswith("memory("))


def _allows(kept: frozenset[str], promised: frozenset[str]) -> bool:
    """Return whether all accesses that were allowed still are."""
    now, was = _memory(kept), _memory(promised)
    places = set(now) | set(was)
    return all(
        now.get(place, now[""]) | was.get(place, was[""]) == now.get(place, now[""])
        for place in places
    )


def _memory(attributes: Sequence[str] | frozenset[str]) -> dict[str, int]:
    """Return the accesses that memory(...) allows by location; the empty name is for all others."""
    word = next((found[1] for one in attributes if (found := _MEMORY.fullmatch(one))), "readwrite")
    allowed = {"": 0}
    for part in word.split(", "):
        place, _, access = part.rpartition(": ")
        allowed[place] = _ACCESS[access]
    return allowed


def intrinsics(text: str) -> Iterator[tuple[str, str]]:
    """Yield the intrinsics that a module calls, with a declaration of each without attributes."""
    for line in text.splitlines():
        if _INTRINSIC.match(line):
            head, _, tail = line.partition("@llvm.")
            name, _, rest = tail.partition("(")
            if f"@llvm.{name}(" in text.replace(line, "", 1):
                types = (_TYPE.match(one.strip()) for one in _split(rest))
                result = _split_words(head.removeprefix("declare "))[-1]
                parameters = ", ".join(one[0] for one in types if one)
                yield f"llvm.{name}", f"declare {result} @llvm.{name}({parameters})"


def _split(text: str) -> Iterator[str]:
    """Yield the parameters up to the end of a declaration's list."""
    depth, begin = 0, 0
    for place, character in enumerate(text):
        if character in ",)" and depth == 0:
            yield text[begin:place]
            begin = place + 1
            if character == ")":
                return
        depth += (character in "([{<") - (character in ")]}>")


def _split_words(text: str) -> list[str]:
    return re.findall(r"(?:\[[^\]]*\]|<[^>]*>|\{[^}]*\}|[^\s()]+(?:\([^)]*\))?)", text)
