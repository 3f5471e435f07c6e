"""CUTLASS layouts, parsed from its headers: `Layout<Shape<...>, Stride<...>>` maps coordinates to an index."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod

Tree = int | tuple["Tree", ...]
_TOKEN = re.compile(r"\s*(Layout|Shape|Stride|Int|[<>,]|_?\d+|\w+)")
_USING = re.compile(r"using\s+(\w+)\s*=\s*(Layout\s*<.*?>|\w+)\s*;", re.DOTALL)
_TRAITS = re.compile(
    r"struct (?:MMA|Copy)_Traits<(\w+)>\s*(?::\s*MMA_Traits<(\w+)>)?\s*\{(.*?)\};", re.DOTALL
)
_COMMENT = re.compile(r"//[^\n]*")


class Layout:
    """The sizes and strides of a tree of coordinates; the first coordinate varies fastest."""

    def __init__(self, text: str) -> None:
        tokens = iter(_TOKEN.findall(text))
        assert next(tokens) == "Layout"
        shape, *rest = _parse_list(tokens)
        self.shape = shape if isinstance(shape, tuple) else (shape,)
        strides = rest[0] if rest else None
        given = strides if isinstance(strides, tuple) or strides is None else (strides,)
        self.strides = given if given is not None else _compact(self.shape)

    def index(self, *coordinates: int) -> int:
        """Return the index of coordinates, one for each top-level size."""
        triples = zip(coordinates, self.shape, self.strides, strict=True)
        return sum(_at(coordinate, shape, stride) for coordinate, shape, stride in triples)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the sizes at the top level."""
        return tuple(map(_size, self.shape))


def _parse_list(tokens: Iterator[str]) -> list[Tree]:
    """Parse `<a, b, ...>`."""
    assert next(tokens) == "<"
    found: list[Tree] = []
    for word in tokens:
        if word == ">":
            return found
        if word in {"Shape", "Stride"}:
            found.append(tuple(_parse_list(tokens)))
        elif word == "Int":
            found.append(_parse_list(tokens)[0])
        elif word != ",":
            found.append(int(word.removeprefix("_")))
    msg = "a layout without an end"
    raise ValueError(msg)


def _size(shape: Tree) -> int:
    return prod(map(_size, shape)) if isinstance(shape, tuple) else shape


def _compact(shape: Sequence[Tree]) -> tuple[Tree, ...]:
    strides, step = [], 1
    for size in shape:
        assert isinstance(size, int)
        strides.append(step)
        step *= size
    return tuple(strides)


def _at(coordinate: int, shape: Tree, stride: Tree) -> int:
    if isinstance(shape, int):
        assert isinstance(stride, int)
        return coordinate % shape * stride
    assert isinstance(stride, tuple)
    total = 0
    for size, step in zip(shape, stride, strict=True):
        total += _at(coordinate % _size(size), size, step)
        coordinate //= _size(size)
    return total


def read_traits(text: str) -> Mapping[str, Mapping[str, Layout]]:
    """Return the layouts of each operation in a header, except those of templates with parameters."""
    text = _COMMENT.sub("", text)
    aliases = {name: value for name, value in _USING.findall(text) if "Layout" in value}
    found: dict[str, dict[str, Layout]] = {}
    for name, base, body in _TRAITS.findall(text):
        own = {
            alias: Layout(aliases.get(value, value))
            for alias, value in _USING.findall(body)
            if aliases.get(value, value).startswith("Layout")
        }
        found[name] = {**found.get(base, {}), **own}
    return found


def read_aliases(text: str, pattern: str) -> Mapping[str, Layout]:
    """Return the layouts outside of operations whose names match a pattern."""
    names = _USING.findall(_COMMENT.sub("", text))
    return {name: Layout(value) for name, value in names if re.fullmatch(pattern, name)}
