"""Intrinsics whose types changed between releases, or which a release removed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.tables import load_table

OPEN = "?"
"""The first character of an overloaded type. Each `?0` is the same type, `?` is derived from another type."""

_PREFIX = "llvm."


class Signature(Struct, frozen=True):
    """The type of an intrinsic from a release on."""

    since: int
    result: str
    parameters: tuple[str, ...]

    def fits(self, result: str, parameters: tuple[str, ...]) -> bool:
        """Return whether a function type matches this signature."""
        if len(self.parameters) != len(parameters):
            return False
        chosen: dict[str, str] = {}
        pairs = zip((self.result, *self.parameters), (result, *parameters), strict=True)
        return all(
            one == OPEN or other == (chosen.setdefault(one, other) if one[0] == OPEN else one)
            for one, other in pairs
        )

    @property
    def is_overload(self) -> bool:
        """Return whether the intrinsic is overloaded, that is, has a type suffix."""
        return any(one[0] == OPEN for one in (self.result, *self.parameters))

    def __str__(self) -> str:
        """Return the function type in LLVM's syntax."""
        return f"{self.result} ({', '.join(self.parameters)})"


class SignatureTable(Struct, frozen=True):
    """The changes. `gone` is the first release without a name, `unread` the releases that reject an older type.

    `unmeasured` is the release from which on the treatment of an older type was not tested. `unchanged` are
    intrinsics that did not change although their names begin with that of a changed one.
    """

    changed: Mapping[str, tuple[Signature, ...]]
    gone: Mapping[str, int]
    unread: Mapping[str, tuple[int, ...]]
    unmeasured: Mapping[str, int]
    unchanged: frozenset[str]

    def base_name(self, name: str) -> str:
        """Return the longest name in the table that is equal to or a prefix of a name, an empty string for none."""
        while len(name) > len(_PREFIX):
            if name in self.unchanged:
                return ""
            if name in self.changed or name in self.gone or name in self.unmeasured:
                return name
            name = name.rpartition(".")[0]
        return ""

    def expected(self, base: str, release: int) -> Signature | None:
        """Return the type in a release, None if the type never changed."""
        known = [one for one in self.changed.get(base, ()) if one.since <= release]
        return known[-1] if known else None

    def is_read(self, base: str, text: str, release: int, name: str = "") -> bool:
        """Return whether a release reads an intrinsic with this type, or upgrades it.

        `name` is the full name, if it is known: if the intrinsic is no longer overloaded, a type suffix is an error.
        """
        result, parameters = split_signature(text)
        known = [one for one in self.changed.get(base, ()) if one.since <= release]
        fitting = [one for one in known if one.fits(result, parameters)]
        if name not in {"", base} and any(one.is_overload for one in known):
            fitting = [one for one in fitting if one.is_overload]
        if not known or known[-1] in fitting:
            return True
        rejecting = [since for since in self.unread.get(base, ()) if since <= release]
        return any(one.since >= max(rejecting, default=0) for one in fitting)

    def is_unknown(self, base: str, text: str, release: int) -> bool:
        """Return whether the treatment of an intrinsic with this type in a release was not tested."""
        since = self.unmeasured.get(base)
        if since is None or since > release:
            return False
        result, parameters = split_signature(text)
        newer = [one for one in self.changed.get(base, ()) if since <= one.since]
        return not any(one.fits(result, parameters) for one in newer)


def split_signature(text: str) -> tuple[str, tuple[str, ...]]:
    """Split a function type in LLVM's syntax into result and parameters, with opaque pointers."""
    result, parameters = split_spelled(text)
    return _opaque(result), tuple(map(_opaque, parameters))


def split_spelled(text: str) -> tuple[str, list[str]]:
    """Split a function type in LLVM's syntax into result and parameters, as written."""
    begin = text.rindex(" (")
    return text[:begin], _parts(text[begin + 2 : -1])


def _opaque(word: str) -> str:
    """Replace the typed pointers of a type, which LLVM 14 and older write, by opaque pointers."""
    if "*" not in word:
        return word
    if word.endswith("*"):
        _, space, number = word[:-1].rpartition(" addrspace(")
        return f"ptr{space}{number}" if space and number[:-1].isdigit() else "ptr"
    if word.startswith("{"):
        return f"{{ {', '.join(map(_opaque, _parts(word[1:-1])))} }}"
    head, cross, element = word[:-1].rpartition(" x ")
    return f"{head}{cross}{_opaque(element)}{word[-1]}"


def _parts(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth, begin = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and not depth:
            parts.append(text[begin:place].strip())
            begin = place + 1
    last = text[begin:].strip()
    return [*parts, last] if last else parts


@cache
def load_signatures() -> SignatureTable:
    """Return the table that ships with the package."""
    return parse_signatures(load_table("mlir_offload.toolchain", "intrinsic_signatures"))


def parse_signatures(table: Mapping[str, Any]) -> SignatureTable:
    """Parse and check the table. Raises ValueError with the reason if it is invalid."""
    changed: dict[str, list[Signature]] = {}
    for release, text in table["changed"].items():
        for line in text.splitlines():
            name, _, signature = line.partition(" ")
            rows = changed.setdefault(_checked(name), [])
            if rows and rows[-1].since >= release:
                msg = f"intrinsic_signatures: the releases of {name} do not ascend"
                raise ValueError(msg)
            rows.append(Signature(release, *split_signature(signature)))
    unread: dict[str, list[int]] = {}
    for release, text in table["unread"].items():
        for name in text.split():
            unread.setdefault(_checked(name), []).append(release)
    return SignatureTable(
        changed={name: tuple(rows) for name, rows in changed.items()},
        gone=_releases(table["gone"]),
        unread={name: tuple(rows) for name, rows in unread.items()},
        unmeasured=_releases(table["unmeasured"]),
        unchanged=frozenset(table["unchanged"].split()),
    )


def _releases(rows: Mapping[int, str]) -> dict[str, int]:
    return {_checked(name): release for release, text in rows.items() for name in text.split()}


def _checked(name: str) -> str:
    if not name.startswith(_PREFIX):
        msg = f"intrinsic_signatures: {name} does not begin with {_PREFIX}"
        raise ValueError(msg)
    return name
