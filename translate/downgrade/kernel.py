"""Downgrade attributes of NVPTX kernels to `!nvvm.annotations`, which older releases of LLVM read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from mlir_offload.offload.ir_syntax import next_metadata_number, symbol_of
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.pattern import ir_line, ir_pattern
from mlir_offload.toolchain.ptx import load_nvptx_table
from mlir_offload.toolchain.skew.parameter import has_copied_parameter
from mlir_offload.translate.downgrade.table import DowngradeRow
from mlir_offload.translate.ir_tokens import (
    Token,
    TokenKind,
    group_end,
    operands,
    spell,
    tokenize,
)

_GROUP = ir_line("attributes #`number:number` = {`attributes:rest`}")
_DEFINE = ir_line("define `rest`")
_BODY = ir_pattern("`lines`")
_LIST = ir_line("!nvvm.annotations = !{`nodes:members`}`\n?`")
_PTX_FEATURE = ir_pattern("`+|-`ptx`isa:number`")
_BOUNDS = ("maxntid", "reqntid", "minctasm", "maxnreg")
_ANNOTATION = ir_line("!`number` = !{ptr @`name:name`, `pairs:rest`}")
_PAIR = ir_pattern('!"`name:string`", i32 `value:number`')
_Values = Mapping[str, str]
Refuse = Callable[[DowngradeRow, str], CompatibilityError]


def annotate_kernels(text: str, rows: Sequence[DowngradeRow], refuse: Refuse) -> str:
    """Add annotations for the attributes of kernels.

    The attributes stay, because older releases ignore them. `refuse` returns the error for a bound
    without an equivalent annotation.
    """
    bounds = [row for row in rows if row.form == "bound"]
    parameters = [row for row in rows if row.form == "parameter"]
    names = {name for row in (*bounds, *parameters) for name in row.names}
    if not any(f'"{name}"' in text for name in names):
        return text
    groups = {f"#{match[1]}": _values(tokenize(match[2])) for match in _GROUP.finditer(text)}
    nodes: list[str] = []
    number = next_metadata_number(text)
    for match in _DEFINE.finditer(text):
        function, head, tail = _parts(tokenize(match[0]))
        found = _annotations(bounds, _all_values(tail, groups), refuse)
        nodes.extend(f"!{{ptr {function}, {pairs}}}" for pairs in found)
        for row in parameters:
            marked = _marked_parameters(head, row.names[0])
            if not marked:
                continue
            if row.is_refused:
                # Parameters that are only loaded need no annotation, which would crash the back ends of these releases.
                if _is_copied(match[0], text[match.end() + 1 :], row.names[0]):
                    raise refuse(row, row.names[0])
                break
            listed = ", ".join(f"i32 {place}" for place in marked)
            nodes.append(f'!{{ptr {function}, !"{row.to}", !{{{listed}}}}}')
    return _with_annotations(text, nodes, number)


def without_ptx_features(text: str, reader: int) -> str:
    """Remove the PTX versions that are too new from a quoted list of target features."""
    known = {isa for row in load_nvptx_table().llvm if row.release[0] <= reader for isa in row.isa}
    kept = [
        word
        for word in text.strip('"').split(",")
        if not (match := _PTX_FEATURE.fullmatch(word)) or int(match[1]) in known
    ]
    return f'"{",".join(kept)}"'


def _parts(tokens: list[Token]) -> tuple[str, list[list[Token]], list[Token]]:
    """Return the name of a function, its parameters, and the tokens after them."""
    place = next(
        i
        for i, token in enumerate(tokens)
        if token.text.startswith("@") and tokens[i + 1].text == "("
    )
    end = group_end(tokens, place + 1)
    return tokens[place].text, operands(tokens, place + 1), tokens[end:]


def _all_values(tail: list[Token], groups: Mapping[str, _Values]) -> _Values:
    """Return the string attributes of a function, including those of its attribute groups."""
    values = dict(_values(tail))
    for token in tail:
        values |= groups.get(token.text, {})
    return values


def _values(tokens: list[Token]) -> _Values:
    """Return the string attributes in a list of tokens: "name"="value", or "name" with an empty value."""
    found = {}
    for place, token in enumerate(tokens):
        if token.kind is TokenKind.STRING and [t.text for t in tokens[place + 1 : place + 2]] == [
            "="
        ]:
            found[token.text.strip('"')] = tokens[place + 2].text.strip('"')
        elif token.kind is TokenKind.STRING:
            found.setdefault(token.text.strip('"'), "")
    return found


def _annotations(rows: Sequence[DowngradeRow], values: _Values, refuse: Refuse) -> Iterator[str]:
    """Yield the operands of an annotation, name and number, for each launch bound of a kernel."""
    for row in rows:
        for name in row.names:
            if name not in values:
                continue
            if row.is_refused:
                raise refuse(row, name)
            numbers = values[name].split(",")
            yield ", ".join(
                f'!"{row.names_to[str(place)]}", i32 {number.strip()}'
                for place, number in enumerate(numbers)
            )


def _marked_parameters(parameters: list[list[Token]], name: str) -> list[int]:
    """Return the numbers of the parameters with an attribute, starting at 1."""
    return [number for number, part in enumerate(parameters, 1) if f'"{name}"' in spell(part)]


def _is_copied(head: str, following: str, name: str) -> bool:
    body = _BODY.match(following)
    return has_copied_parameter(head, body[0] if body else "", name)


def _with_annotations(text: str, nodes: Sequence[str], number: int) -> str:
    if not nodes:
        return text
    listed = [f"!{number + place}" for place in range(len(nodes))]
    known = _LIST.search(text)
    if known is not None:
        text = text[: known.start()] + text[known.end() :]
        listed = [*filter(None, [known[1]]), *listed]
    lines = [f"!nvvm.annotations = !{{{', '.join(listed)}}}"]
    lines += [f"!{number + place} = {node}" for place, node in enumerate(nodes)]
    end = "" if text.endswith("\n") else "\n"
    return text + end + "\n".join(lines) + "\n"


def read_bounds(text: str) -> dict[str, dict[str, list[int]]]:
    """Return the launch bounds of each kernel, by their names in PTX.

    They are in attributes or, before LLVM 21, in `!nvvm.annotations`.
    """
    found: dict[str, dict[str, list[int]]] = {}
    groups = {f"#{match[1]}": _values(tokenize(match[2])) for match in _GROUP.finditer(text)}
    for match in _DEFINE.finditer(text):
        function, _, tail = _parts(tokenize(match[0]))
        values = _all_values(tail, groups)
        found[symbol_of(function[1:])] = {
            name: [int(number) for number in values[f"nvvm.{name}"].split(",")]
            for name in _BOUNDS
            if f"nvvm.{name}" in values
        }
    for match in _ANNOTATION.finditer(text):
        bounds = found.setdefault(symbol_of(match[1]), {})
        for name, number in _PAIR.findall(match[2]):
            # Each dimension has a separate annotation: maxntidx, maxntidy.
            known = name if name in _BOUNDS else name[:-1]
            if known in _BOUNDS:
                bounds.setdefault(known, []).append(int(number))
    return found
