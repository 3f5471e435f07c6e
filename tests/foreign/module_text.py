"""Two texts of one module compared: what a reader lost of it, or took for something else.

Both are printed by one release. What only says less is harmless: a promise to the optimizer that is gone.
Numbers of metadata and of attribute groups are not compared, what they stand for is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

# Flags of instructions that promise something; without them the instruction does the same.
_PROMISES = frozenset(
    (
        *("nuw", "nsw", "nusw", "exact", "inbounds", "disjoint", "nneg", "samesign"),
        *("nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc", "fast"),
    )
)
# So do properties, weights of branches, and what the newest release alone tells apart from other memory.
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
# What tells the module from another file of the same content, and what each reader puts in its place.
# The summary for ThinLTO, in lines that begin with ^, is not carried along by all readers.
_IGNORED = ("; ModuleID", "source_filename", "target datalayout", "target triple", "^")
_INTRINSIC = re.compile(r"^declare .*@llvm\.")
_PRINTED_COMMENT = re.compile(r"\s*; (?:preds|No predecessors|Unknown intrinsic|\[#uses).*$")
# A type at the begin of a parameter, which its attributes follow.
_TYPE = re.compile(r"\.\.\.|\{[^}]*\}|\[[^\]]*\]|<[^>]*>|[\w.%]+(?:\([^)]*\)| addrspace\(\d+\))?")
_ROUNDS = 3
_ACCESS = {"none": 0, "read": 1, "write": 2, "readwrite": 3}


@dataclass(frozen=True)
class Difference:
    """A line as it was and as the reader has it; `is_harmless` if less is promised, and nothing else."""

    before: str
    after: str
    is_harmless: bool


@dataclass(frozen=True)
class _Text:
    lines: tuple[str, ...]
    groups: Mapping[str, frozenset[str]]
    nodes: Counter[str]


def differences(before: str, after: str) -> list[Difference]:
    """Return what the reader changed."""
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
        # What no line refers to is only gone: the weights of a branch, say.
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
    # Declarations, whose order counts for nothing, leave comments behind.
    resolved = tuple(_REFERENCE.sub(spell, line) for line in lines if line)
    return _Text(resolved, groups, Counter(spelled.values()))


def _spell_nodes(nodes: Mapping[str, str]) -> dict[str, str]:
    """Return for each node a word that tells it from nodes with other content, a few steps deep."""
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
    """Return whether the second line says the first, with fewer promises."""
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
    """Return what memory(...) allows by place; the empty name is for all others."""
    word = next((found[1] for one in attributes if (found := _MEMORY.fullmatch(one))), "readwrite")
    allowed = {"": 0}
    for part in word.split(", "):
        place, _, access = part.rpartition(": ")
        allowed[place] = _ACCESS[access]
    return allowed


def intrinsics(text: str) -> Iterator[tuple[str, str]]:
    """Return the intrinsics that a module calls, with a declaration of each without attributes."""
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
    """Return the parameters up to the end of a declaration's list."""
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
