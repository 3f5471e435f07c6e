"""The tokens, attributes and types of MLIR text.

Text in strings and comments is never treated as code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from mlir_offload.toolchain.pattern import Syntax, pattern

_STRING = r'"(?:[^"\\\n]++|\\.)*+"'
_COMMENT = r"//[^\n\0]*"  # in bytecode texts end with NUL
_SUFFIX_ID = r"[\w$.-]+"
_TOKEN = pattern(
    rf"{_STRING}|{_COMMENT}|@{_STRING}|[@%^]{_SUFFIX_ID}(?:#\d+)?|[#!]?[A-Za-z_][\w$.]*"
    r"|\d[\w.]*|->|::|[^\s]"
)
_ESCAPE = pattern(rb"\\(?:([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_BARE_NAME = pattern(r"[A-Za-z_][\w$.-]*")
_VALUE = pattern(r"%[\w$.-]+(?:#\d+)?")
# Names of operations are strings too. An attribute of a dialect, not an alias, continues with . or <.
_NAME = pattern(rf"{_STRING}|[%^]{_SUFFIX_ID}|[#!][A-Za-z_]\w*(?![\w$.<])")
_PRINTABLE = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')

MLIR = Syntax(rf"{_STRING}|//[^\n]*", operators="->|[<>]=")
"""Brackets and lists of MLIR text."""
_OPENING, _CLOSING = frozenset("([{<"), frozenset(")]}>")
_BOOLEANS = {"true": 1, "false": 0}
_MEMREF = pattern(r"\bmemref<")
_SHAPE = pattern(r"((?:(?:\?|\d+|\[\d+\])x)*)(.*)", re.DOTALL)
_DIALECT_TYPE = pattern(r"![a-z]\w*\.[\w.]+")
_INTEGER = pattern(r"[su]?i(\d+)")
_FLOAT = pattern(r"b?f(\d+)|tf(\d+)")


def tokens(text: str) -> list[str]:
    """Return the tokens of any MLIR text without spaces and comments.

    The first character of a token determines its kind: `"` a string, `%` a value, `@` a symbol, `^` a
    block, `#` and `!` an alias or the name of a dialect's attribute or type.
    """
    found: list[str] = _TOKEN.findall(text)
    return [token for token in found if token[:2] != "//"] if "//" in text else found


def unescape_bytes(text: str) -> bytes:
    """Decode the bytes of a string that MLIR prints as `text` in quotes."""
    raw = text.encode("utf-8", errors="surrogateescape")
    return _ESCAPE.sub(lambda m: bytes.fromhex(m[1].decode()) if m[1] else m[2], raw)


def unescape(text: str) -> str:
    """Decode a string that MLIR prints as `text` in quotes."""
    return unescape_bytes(text).decode("utf-8", errors="replace") if "\\" in text else text


def escape(text: str) -> str:
    """Return the string as MLIR prints it in quotes."""
    encoded = text.encode("utf-8", errors="surrogateescape")
    return "".join(chr(byte) if byte in _PRINTABLE else f"\\{byte:02X}" for byte in encoded)


def render_symbol(name: str) -> str:
    """Return a reference to a symbol, with quotes only if necessary."""
    return f"@{name}" if _BARE_NAME.fullmatch(name) else f'@"{escape(name)}"'


def parse_symbol(token: str) -> str:
    """Return the name in a reference to a symbol."""
    return unescape(token[2:-1]) if token.startswith('@"') else token[1:]


def rename_values(text: str, names: Mapping[str, str]) -> str:
    """Rename values in a text."""
    return MLIR.replace(_VALUE, lambda match: names.get(match[0], match[0]), text)


def replace_names(text: str, made: Callable[[str], str]) -> str:
    """Rename the values, blocks and aliases in a text."""
    return _NAME.sub(lambda match: match[0] if match[0][0] == '"' else made(match[0]), text)


class Attribute(str):
    """The text of an attribute. A unit attribute in a dictionary is empty."""

    __slots__ = ()

    @property
    def string(self) -> str:
        """Return the value of a string attribute, an empty string for another attribute."""
        return unescape(self[1:-1]) if self.startswith('"') else ""

    @property
    def content(self) -> bytes:
        """Return the bytes of a string attribute, none for another attribute."""
        return unescape_bytes(self[1:-1]) if self.startswith('"') else b""

    @property
    def integer(self) -> int | None:
        """Return the number of `3 : i32`, None for another attribute."""
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
        """Return the elements of an array attribute, none for another attribute."""
        return parse_list(MLIR.inside(self, 0)) if self.startswith("[") else ()

    @property
    def entries(self) -> dict[str, Attribute]:
        """Return the entries of a dictionary attribute, none for another attribute."""
        return parse_dictionary(MLIR.inside(self, 0)) if self.startswith("{") else {}

    @property
    def name(self) -> str:
        """Return the name before `<`: `#nvvm.target` of `#nvvm.target<...>`, `memref` of `memref<...>`."""
        return self.partition("<")[0]

    @property
    def body(self) -> str:
        """Return the text in the brackets after the name, an empty string if there is none."""
        start = self.find("<")
        return MLIR.inside(self, start) if start >= 0 and '"' not in self[:start] else ""

    @property
    def body_elements(self) -> tuple[Attribute, ...]:
        """Return the elements of the list in the brackets."""
        return parse_list(self.body)

    @property
    def enumerator(self) -> str:
        """Return the last word in the brackets: `x` of `#gpu<dim x>`."""
        return self.body.rpartition(" ")[2]

    @property
    def parameters(self) -> dict[str, Attribute]:
        """Return the named parameters in the brackets: `chip` of `#nvvm.target<chip = "sm_90">`."""
        return parse_dictionary(self.body)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Return the names in a symbol reference, the outermost first."""
        return tuple(parse_symbol(token) for token in tokens(self) if token[0] == "@")


def parse_list(text: str) -> tuple[Attribute, ...]:
    """Return the attributes of a list."""
    return tuple(map(Attribute, MLIR.split_list(text)))


def parse_dictionary(text: str) -> dict[str, Attribute]:
    """Parse `name = value, unit, ...`. Quoted names keep their quotes."""
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
    """Return a string attribute."""
    return Attribute(f'"{escape(text)}"')


def attributes_in(text: str, names: Container[str]) -> Iterator[Attribute]:
    """Yield the attributes with these names in any MLIR text, even in custom form or truncated."""
    found = tokens(text)
    for start, name in enumerate(found):
        if name in names and found[start + 1 : start + 2] == ["<"]:
            yield Attribute("".join(found[start : _group_end(found, start + 1)]))


def _group_end(found: Sequence[str], start: int) -> int:
    """Return the index after the bracket that closes the one at `start`, or `start` if there is none."""
    depth = 0
    for place in range(start, len(found)):
        depth += (found[place] in _OPENING) - (found[place] in _CLOSING)
        if depth == 0:
            return place + 1
    return start


# Unregistered operations may have an empty dictionary of properties, which is printed.
_NO_PROPERTIES = {"": Attribute("")}


class Signature(Struct, gc=False):
    """The parts of an operation after its operands, except its regions."""

    successors: list[str] = []
    properties: dict[str, Attribute] = {}
    attributes: dict[str, Attribute] = {}
    operand_types: list[str] = []
    result_types: list[str] = []
    location: str = ""


def split_types(text: str) -> list[str]:
    """Return the types of `(a, b)`, or a single type without parentheses."""
    return MLIR.split_list(MLIR.inside(text, 0) if text.startswith("(") else text)


def parse_signature(head: str, end: str | None) -> Signature:
    """Parse the text after the operands (`head`) and after the regions (`end`, None without regions)."""
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
    """Return the types after the arrow, and the position of their end."""
    if text.startswith("(", start):
        stop = MLIR.closing(text, start)
        return MLIR.split_list(text[start + 1 : stop]), stop + 1
    stop = text.find(" loc(", start)
    stop = len(text) if stop < 0 else stop
    return [text[start:stop]], stop


def render_signature(signature: Signature, *, has_regions: bool) -> tuple[str, str]:
    """Return the text before and after the regions."""
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


class Shaped(Struct, frozen=True):
    """A vector or memref type: its sizes (None if dynamic), its element type and further parameters."""

    sizes: tuple[int | None, ...]
    element: str
    parameters: tuple[str, ...] = ()


def integer_width(kind: str) -> int:
    """Return the width of an integer type in bits, 0 for another type."""
    match = _INTEGER.fullmatch(kind)
    return int(match[1]) if match else 0


def float_width(kind: str) -> int:
    """Return the number in the name of a floating-point type, 0 for another type."""
    match = _FLOAT.match(kind)
    return int(match[1] or match[2]) if match else 0


def parse_shaped(kind: str, name: str) -> Shaped | None:
    """Parse `vector<...>` or `memref<...>`. Return None for other and for unranked types."""
    if not kind.startswith(f"{name}<") or kind.startswith(f"{name}<*x"):
        return None
    first, *others = MLIR.split_list(Attribute(kind).body)
    match = _SHAPE.fullmatch(first)
    if match is None:
        return None
    sizes = (int(size) if size.isdigit() else None for size in match[1].split("x")[:-1])
    return Shaped(tuple(sizes), match[2], tuple(others))


def is_layout(parameter: str) -> bool:
    """Return whether a parameter of a memref type is its layout, not its memory space."""
    is_alias = parameter.startswith("#") and not parameter.startswith("#gpu.")
    return is_alias or parameter.startswith(("strided<", "affine_map<"))


def has_layout(kind: str) -> bool:
    """Return whether a type is a memref with a layout."""
    memref = parse_shaped(kind, "memref")
    return memref is not None and any(map(is_layout, memref.parameters))


def with_memref_space(text: str, spaces: Collection[str], other: str) -> str:
    """Change the memory space of every memref type in one of `spaces` to `other`, "" for the default.

    The space is spelled as mlir-opt prints it.
    """
    if "memref<" not in text or not any(f", {space}>" in text for space in spaces):
        return text
    for start in reversed([match.start() for match in _MEMREF.finditer(MLIR.blanked(text))]):
        opening = start + len("memref")
        end = MLIR.closing(text, opening)
        *parts, space = MLIR.split_list(text[opening + 1 : end])
        if parts and space in spaces:
            inner = text[opening + 1 : end].removesuffix(f", {space}")
            text = f"{text[: opening + 1]}{inner}{f', {other}' if other else ''}{text[end:]}"
    return text


def with_dialect_types(text: str, dialect: str, made: Callable[[Attribute], str]) -> str:
    """Replace the types of a dialect by the results of `made`. An empty result keeps the type."""
    mark = f"!{dialect}."
    if mark not in text:
        return text
    blanked = MLIR.blanked(text)
    for match in reversed(list(_DIALECT_TYPE.finditer(blanked))):
        start, end = match.span()
        if not match[0].startswith(mark):
            continue
        end = MLIR.closing(text, end) + 1 if text.startswith("<", end) else end
        text = f"{text[:start]}{made(Attribute(text[start:end])) or text[start:end]}{text[end:]}"
    return text
