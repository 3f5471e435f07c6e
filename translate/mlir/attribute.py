"""Attributes, and the successors, attributes, types and location that follow the operands of an operation."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from mlir_offload.translate.mlir.syntax import (
    MLIR,
    escape,
    parse_symbol,
    tokens,
    unescape,
    unescape_bytes,
)

_OPENING, _CLOSING = frozenset("([{<"), frozenset(")]}>")
_BOOLEANS = {"true": 1, "false": 0}


class Attribute(str):
    """The text of an attribute; that of a unit attribute in a dictionary is empty."""

    __slots__ = ()

    @property
    def string(self) -> str:
        """Return the string that it is; empty for another attribute."""
        return unescape(self[1:-1]) if self.startswith('"') else ""

    @property
    def content(self) -> bytes:
        """Return the bytes of the string that it is; none for another attribute."""
        return unescape_bytes(self[1:-1]) if self.startswith('"') else b""

    @property
    def integer(self) -> int | None:
        """Return the number of `3 : i32`; None for another attribute."""
        number = self.partition(" ")[0]
        if number in _BOOLEANS:
            return _BOOLEANS[number]
        return int(number) if number.removeprefix("-").isdigit() else None

    @property
    def integers(self) -> tuple[int, ...]:
        """Return the numbers of `array<i32: 1, 2>`."""
        if not self.startswith("array<"):
            return ()
        listed = MLIR.split_list(self.body.partition(":")[2])
        return tuple(number for item in listed if (number := Attribute(item).integer) is not None)

    @property
    def elements(self) -> tuple[Attribute, ...]:
        """Return the attributes of the array that it is."""
        return parse_list(MLIR.inside(self, 0)) if self.startswith("[") else ()

    @property
    def entries(self) -> dict[str, Attribute]:
        """Return the attributes of the dictionary that it is."""
        return parse_dictionary(MLIR.inside(self, 0)) if self.startswith("{") else {}

    @property
    def name(self) -> str:
        """Return `#nvvm.target` of `#nvvm.target<...>`, as of a type `memref` of `memref<...>`."""
        return self.partition("<")[0]

    @property
    def body(self) -> str:
        """Return what is between the brackets behind the name; empty where there is nothing."""
        start = self.find("<")
        return MLIR.inside(self, start) if start >= 0 and '"' not in self[:start] else ""

    @property
    def body_elements(self) -> tuple[Attribute, ...]:
        """Return the parts of the list between the brackets."""
        return parse_list(self.body)

    @property
    def enumerator(self) -> str:
        """Return the last word between the brackets: `x` of `#gpu<dim x>`."""
        return self.body.rpartition(" ")[2]

    @property
    def parameters(self) -> dict[str, Attribute]:
        """Return the named parameters between the brackets: `chip` of `#nvvm.target<chip = "sm_90">`."""
        return parse_dictionary(self.body)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Return the names of the reference to a symbol that it is, the outermost first."""
        return tuple(parse_symbol(token) for token in tokens(self) if token[0] == "@")


def parse_list(text: str) -> tuple[Attribute, ...]:
    """Return the attributes of a list."""
    return tuple(map(Attribute, MLIR.split_list(text)))


def parse_dictionary(text: str) -> dict[str, Attribute]:
    """Return the attributes of `name = value, unit, ...`, names as they are spelled."""
    found: dict[str, Attribute] = {}
    for item in MLIR.split_list(text):
        if item.startswith('"'):
            end = item.index('"', 1) + 1  # such names have no escapes
            name, value = item[:end], item[end:].removeprefix(" = ")
        else:
            name, _, value = item.partition("=")
        found[name.rstrip()] = Attribute(value.lstrip())
    return found


def render_dictionary(entries: Mapping[str, str]) -> str:
    """Return the text of a dictionary, without its brackets."""
    return ", ".join(f"{name} = {value}" if value else name for name, value in entries.items())


def integer_array(kind: str, numbers: Iterable[int]) -> Attribute:
    """Return `array<kind: numbers>`."""
    return Attribute(f"array<{kind}: {', '.join(map(str, numbers))}>")


def quoted(text: str) -> Attribute:
    """Return the attribute that is a string."""
    return Attribute(f'"{escape(text)}"')


def attributes_in(text: str, names: Container[str]) -> Iterator[Attribute]:
    """Yield the attributes of some names in any MLIR text, be it in custom form or cut off."""
    found = tokens(text)
    for start, name in enumerate(found):
        if name in names and found[start + 1 : start + 2] == ["<"]:
            yield Attribute("".join(found[start : _group_end(found, start + 1)]))


def _group_end(found: Sequence[str], start: int) -> int:
    """Return the place behind the bracket that closes the one at `start`; the end if none does."""
    depth = 0
    for place in range(start, len(found)):
        depth += (found[place] in _OPENING) - (found[place] in _CLOSING)
        if depth == 0:
            return place + 1
    return start


# Unregistered operations may have a dictionary of no properties, which is printed.
_NO_PROPERTIES = {"": Attribute("")}


class Signature(Struct, gc=False):
    """What follows the operands of an operation, besides its regions."""

    successors: list[str] = []
    properties: dict[str, Attribute] = {}
    attributes: dict[str, Attribute] = {}
    operand_types: list[str] = []
    result_types: list[str] = []
    location: str = ""


def split_types(text: str) -> list[str]:
    """Return the types of `(a, b)`, or the one type that the text is."""
    return MLIR.split_list(MLIR.inside(text, 0) if text.startswith("(") else text)


def parse_signature(head: str, end: str | None) -> Signature:
    """Read what follows the operands: before the regions, and behind them if there are any."""
    found = Signature()
    text, place = head, 0
    if text.startswith("["):
        stop = MLIR.closing(text, 0)
        found.successors = MLIR.split_list(text[1:stop])
        place = stop + 1
    if text.startswith(" <{", place):
        stop = MLIR.closing(text, place + 1)
        found.properties = parse_dictionary(text[place + 3 : stop - 1]) or dict(_NO_PROPERTIES)
        place = stop + 1
    if end is not None:
        text, place = end, 0
    if text.startswith(" {", place):
        stop = MLIR.closing(text, place + 1)
        found.attributes = parse_dictionary(text[place + 2 : stop])
        place = stop + 1
    if text.startswith(" : (", place):
        stop = MLIR.closing(text, place + 3)
        found.operand_types = MLIR.split_list(text[place + 4 : stop])
        place = stop + len(" -> ") + 1
        results, place = _result_types(text, place)
        found.result_types = results
    found.location = text[place + 1 :]
    return found


def _result_types(text: str, start: int) -> tuple[list[str], int]:
    """Return the types behind the arrow, and where they end."""
    if text.startswith("(", start):
        stop = MLIR.closing(text, start)
        return MLIR.split_list(text[start + 1 : stop]), stop + 1
    stop = text.find(" loc(", start)
    stop = len(text) if stop < 0 else stop
    return [text[start:stop]], stop


def render_signature(signature: Signature, *, has_regions: bool) -> tuple[str, str]:
    """Return the text before the regions, and that behind them."""
    head = f"[{', '.join(signature.successors)}]" if signature.successors else ""
    if signature.properties:
        head += f" <{{{render_dictionary(signature.properties)}}}>"
    end = f" {{{render_dictionary(signature.attributes)}}}" if signature.attributes else ""
    given = signature.result_types
    single = len(given) == 1 and not given[0].startswith("(")
    results = given[0] if single else f"({', '.join(given)})"
    location = f" {signature.location}" if signature.location else ""
    end += f" : ({', '.join(signature.operand_types)}) -> {results}{location}"
    return (head, end) if has_regions else (head + end, "")
