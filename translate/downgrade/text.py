"""Downgrade textual LLVM IR so that an older release of LLVM reads it correctly.

Each construct is a row of data/downgrade.yaml. A line is tokenized only if it contains a word of a
row for the release. Other lines are not changed, so text for its own release is never changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from itertools import takewhile

from mlir_offload.offload import ir_syntax
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.pattern import ir_any, ir_line, ir_pattern
from mlir_offload.toolchain.skew.fact import Consumer
from mlir_offload.toolchain.skew.identity import Severity
from mlir_offload.toolchain.skew.limits import load_limits
from mlir_offload.toolchain.skew.number import older_numbers
from mlir_offload.toolchain.skew.retained import older_retained_nodes
from mlir_offload.toolchain.skew.rule import load_rules
from mlir_offload.toolchain.skew.text import check_text
from mlir_offload.translate.cpu import extremum
from mlir_offload.translate.downgrade.attribute import (
    rewrite_memory,
    strip_attribute,
    take_result_range,
    write_out_target_memory,
)
from mlir_offload.translate.downgrade.call import (
    declaration_of,
    rewrite_call,
    rewrite_record,
    strip_value,
)
from mlir_offload.translate.downgrade.kernel import annotate_kernels, without_ptx_features
from mlir_offload.translate.downgrade.table import DowngradeRow, rows_for
from mlir_offload.translate.downgrade.value import (
    strip_attachment,
    strip_flags,
    strip_property,
    write_out_splat,
)
from mlir_offload.translate.ir_tokens import Token, TokenKind, remove, spell, tokenize

_Tokens = list[Token]
_FUNCTION = ir_line("define `head`@`name:name`(")
_DECLARED = ir_line("`declare|define` `head`@`name:name`(")
_GROUP = ir_line("attributes #`number:number` = {`attributes:rest`}")
_GROUP_USE = ir_pattern("#`number`")
_LAYOUT = ir_line('target datalayout = "`layout:string`"')
# Only x86 has numbers of this format; x86-32 never aligned i128 to 16 bytes.
_X86_LAYOUT = "f80:128"
_I128 = ir_pattern("i128")
_METADATA = "!"
_HINT = (
    "link with LLVM {since} or newer, or keep device code out of LLVM IR: --device-code=object, "
    "without -emit-llvm"
)


def downgrade(text: str, *, reader: int, location: str = "") -> str:
    """Return the module in a form that the release `reader` reads. Text that it already reads is not changed.

    Raises CompatibilityError for a construct that has no older form.
    """
    rows = rows_for(reader)
    if not rows:
        _check_reader(text, reader, location)
        return text
    _check_layout(text, rows, reader, location)
    if any(row.form == "number" for row in rows):
        text = older_numbers(text)
    if any(row.form == "atomic" for row in rows):
        text = extremum.without_atomic_extrema(text)
    if any(row.form == "extremum" for row in rows):
        text = extremum.without_extrema(text)
    text = older_retained_nodes(text, reader)
    work = _Module(rows, reader, location)
    lines = [work.line(line) for line in text.splitlines(keepends=True)]
    made = annotate_kernels("".join(lines), rows, work.refuse)
    made = _appended(_without_empty_groups(made, emptied=work.emptied), work)
    _check_reader(made, reader, location)
    return made


def _check_reader(text: str, reader: int, location: str) -> None:
    """Raise CompatibilityError for a construct without a row that the reader rejects or misreads."""
    for skew in check_text(text, Consumer(reader)):
        rule = load_rules()[skew.rule]
        if rule.severity is Severity.ERROR:
            place = f" in @{skew.function}" if skew.function else ""
            message = f"{rule.message.format(**skew.values)}{place} [{rule.name}]"
            raise CompatibilityError(message, hint=rule.hint, location=location)


def _check_layout(text: str, rows: tuple[DowngradeRow, ...], reader: int, location: str) -> None:
    """Raise CompatibilityError if the older release lays out a type of the module differently."""
    layout = _LAYOUT.search(text)
    for row in rows:
        if row.form != "layout" or layout is None or _X86_LAYOUT not in layout[1]:
            continue
        if row.names[0] in layout[1].split("-") and _I128.search(text, layout.end()):
            raise refused(row, row.what, "", reader, location)


def refused(
    row: DowngradeRow, name: str, function: str, reader: int, location: str
) -> CompatibilityError:
    """Return the error for a construct that has no older form."""
    place = f" in {function}" if function else ""
    return CompatibilityError(
        f"'{name}'{place} has no form that LLVM {reader} reads: {row.reason}",
        hint=_HINT.format(since=row.since),
        location=location,
    )


class _Module:
    """The state of the pass over the lines of a module."""

    def __init__(self, rows: tuple[DowngradeRow, ...], reader: int, location: str) -> None:
        self.declared: dict[str, None] = {}
        self.ranges: dict[str, str] = {}
        self.emptied: set[str] = set()
        self._rows = rows
        self._reader = reader
        self._location = location
        self._trigger = _trigger(reader)
        self._function = ""
        self._values = 0

    def refuse(self, row: DowngradeRow, name: str) -> CompatibilityError:
        """Return the error for a construct in the current function."""
        return refused(row, name, self._function, self._reader, self._location)

    def new_value(self) -> str:
        """Return an unused name for a value."""
        self._values += 1
        return f"%mo.older.{self._values}"

    def line(self, line: str) -> str:
        """Return the replacement of a line: zero or more lines."""
        if line.startswith("}"):
            self._function = ""
        elif line.startswith("define "):
            head = _FUNCTION.match(line)
            self._function = f"@{head[1]}" if head else ""
        if self._trigger.search(line) is None:
            return line
        tokens = tokenize(line)
        for row in self._rows:
            if row.form in {"intrinsic", "record"}:
                made = self._replaced(tokens, row)
                if made is not None:
                    # Other rows may apply to the new lines, for example to the attributes of an argument.
                    return "".join(self.line(each) for each in made)
            elif (change := _CHANGES.get(row.form)) is not None:
                change(self, tokens, row)
        made_line = spell(tokens)
        group = _GROUP.match(made_line)
        if group and not group[2].strip():
            self.emptied.add(f"#{group[1]}")
        return made_line

    def _replaced(self, tokens: _Tokens, row: DowngradeRow) -> list[str] | None:
        """Return the lines that replace a call or a debug record, None if the row does not apply."""
        rewrite = rewrite_call if row.form == "intrinsic" else rewrite_record
        made = rewrite(tokens, row, self.new_value)
        if made is None:
            return None
        if made.declaration:
            self.declared[made.declaration] = None
        return made.lines

    def is_metadata(self, tokens: _Tokens) -> bool:
        """Return whether a line is a metadata node, not an instruction."""
        return bool(tokens) and tokens[0].text.startswith(_METADATA)

    def attribute(self, tokens: _Tokens, row: DowngradeRow) -> None:
        """Strip, rename or rewrite an attribute."""
        if self.is_metadata(tokens):
            return
        if row.what == "target-memory":
            write_out_target_memory(tokens, row)
            return
        if row.names == ("memory",):
            rewrite_memory(tokens, has_words=row.what != "memory")
            return
        if row.to.startswith(_METADATA):
            bounds = take_result_range(tokens, row)
            if bounds:
                name = self.ranges.setdefault(bounds, f"!mo.range.{len(self.ranges)}")
                _attach(tokens, f", !range {name}")
        strip_attribute(tokens, row)

    def attachment(self, tokens: _Tokens, row: DowngradeRow) -> None:
        """Strip metadata from an instruction with a vector result."""
        # Tokenize again, because an attachment that another row added is a single token.
        tokens[:] = tokenize(spell(tokens))
        place = next((i for i, token in enumerate(tokens) if token.text in row.names), None)
        head = takewhile(lambda token: not token.text.startswith(("@", ",", "(")), tokens)
        if place is not None and any(token.text == "<" for token in head):
            strip_attachment(tokens, place)

    def flag(self, tokens: _Tokens, row: DowngradeRow) -> None:
        """Strip the flags of an instruction or of a constant expression."""
        if not self.is_metadata(tokens):
            strip_flags(tokens, row)

    def word(self, tokens: _Tokens, row: DowngradeRow) -> None:
        """Reject a bare word, or expand a splat."""
        if self.is_metadata(tokens) or tokens[0].is_word("target", "source_filename"):
            return
        for place, token in enumerate(tokens):
            opens = place + 1 < len(tokens) and tokens[place + 1].text != ":"
            if token.is_word(*row.names) and opens:
                if row.is_refused:
                    raise self.refuse(row, token.text)
                write_out_splat(tokens)
                return

    def opcode(self, tokens: _Tokens, row: DowngradeRow) -> None:
        """Rename an instruction."""
        if not self.is_metadata(tokens):
            _rename_words(tokens, row)

    def operation(self, tokens: _Tokens, row: DowngradeRow) -> None:
        """Reject a word after the name of an instruction."""
        start = next((i for i, token in enumerate(tokens) if token.is_word(*row.opcodes)), None)
        if start is None or self.is_metadata(tokens):
            return
        end = next((i for i, token in enumerate(tokens) if token.text == "!dbg"), len(tokens))
        for token in tokens[start:end]:
            if token.text in row.names:
                raise self.refuse(row, _operation_name(tokens[start:end], token))

    def global_property(self, tokens: _Tokens, row: DowngradeRow) -> None:
        """Strip a property of a global variable."""
        if tokens[0].text.startswith("@"):
            strip_property(tokens, row.names)

    def field(self, tokens: _Tokens, row: DowngradeRow) -> None:
        """Strip or rename a field of a debug information node."""
        if not self.is_metadata(tokens):
            return
        kinds = {f"!{name}" for name in row.opcodes}
        if kinds and not any(token.text in kinds for token in tokens):
            return
        labels = {f"{name}:" for name in row.names}
        if row.action == "rename":
            for place, token in enumerate(tokens):
                if token.text in labels:
                    tokens[place] = Token(TokenKind.LABEL, f"{row.to}:")
                elif token.text.startswith("DW_LNAME_"):
                    text = token.text.replace("DW_LNAME_", "DW_LANG_", 1)
                    tokens[place] = Token(TokenKind.WORD, text)
            return
        strip_property(tokens, tuple(labels))

    def node(self, tokens: _Tokens, row: DowngradeRow) -> None:
        """Reject a kind of debug information node, or strip the node and its attachments."""
        place = next((i for i, token in enumerate(tokens) if token.text in row.names), None)
        if place is None:
            return
        if row.is_refused:
            raise self.refuse(row, tokens[place].text[1:])
        if self.is_metadata(tokens):
            tokens[:] = [Token(TokenKind.SPACE, "\n")]
        else:
            strip_attachment(tokens, place)

    def expression(self, tokens: _Tokens, _: DowngradeRow) -> None:
        """Strip the value of a debug record if the release lacks an operation of its expression."""
        rows = load_limits().debug_operations.values()
        strip_value(tokens, [row.name for row in rows if row.since > self._reader])

    def flag_name(self, tokens: _Tokens, row: DowngradeRow) -> None:
        """Rename a flag of the module."""
        for place, token in enumerate(tokens):
            if token.text == f'!"{row.names[0]}"':
                tokens[place] = Token(token.kind, f'!"{row.to}"')

    def value(self, tokens: _Tokens, row: DowngradeRow) -> None:
        """Replace the value of a string attribute."""
        names = {f'"{name}"' for name in row.opcodes}
        values = {f'"{name}"' for name in row.names}
        for place, token in enumerate(tokens[:-2]):
            if token.text in names and tokens[place + 2].text in values:
                tokens[place + 2] = Token(TokenKind.STRING, f'"{row.to}"')

    def node_word(self, tokens: _Tokens, row: DowngradeRow) -> None:
        """Strip a word from a metadata node, with the comma after it."""
        words = {f'!"{name}"' for name in row.names}
        begins = [place for place, token in enumerate(tokens) if token.text in words]
        if self.is_metadata(tokens) and begins and f'!"{row.to}"' in {one.text for one in tokens}:
            end = begins[0] + 1
            while tokens[end].text == "," or tokens[end].kind is TokenKind.SPACE:
                end += 1
            del tokens[begins[0] : end]

    def undeclared(self, tokens: _Tokens, _: DowngradeRow) -> None:
        """Record the declaration of a called intrinsic, to be added unless the module already has it."""
        declaration = declaration_of(tokens)
        if declaration:
            self.declared[declaration] = None

    def feature(self, tokens: _Tokens, row: DowngradeRow) -> None:
        """Remove the PTX versions that the release does not support from the target features of a function."""
        for place, token in enumerate(tokens[:-2]):
            if token.text == f'"{row.names[0]}"':
                text = without_ptx_features(tokens[place + 2].text, self._reader)
                tokens[place + 2] = Token(TokenKind.STRING, text)
                if text == '""':
                    remove(tokens, place, place + 3)
                    return


_CHANGES: Mapping[str, Callable[[_Module, _Tokens, DowngradeRow], None]] = {
    "attribute": _Module.attribute,
    "attachment": _Module.attachment,
    "flag": _Module.flag,
    "word": _Module.word,
    "opcode": _Module.opcode,
    "operation": _Module.operation,
    "global": _Module.global_property,
    "field": _Module.field,
    "node": _Module.node,
    "expression": _Module.expression,
    "flag-name": _Module.flag_name,
    "node-word": _Module.node_word,
    "value": _Module.value,
    "undeclared": _Module.undeclared,
    "feature": _Module.feature,
}


@cache
def _trigger(reader: int) -> re.Pattern[str]:
    """Return a pattern that matches in each line that a row for the release may change."""
    words: set[str] = set()
    for row in rows_for(reader):
        is_behind = row.form in {"flag", "operation", "field"} and row.opcodes
        words.update(row.opcodes if is_behind else row.names)
    return ir_any(words)


def _rename_words(tokens: _Tokens, row: DowngradeRow) -> None:
    for place, token in enumerate(tokens):
        if token.is_word(*row.names):
            tokens[place] = Token(TokenKind.WORD, row.to)


def _operation_name(tokens: _Tokens, token: Token) -> str:
    """Return the name of an operation in messages: with its word, or as an operation on vectors."""
    name = tokens[0].text
    return f"{name} {token.text}" if token.kind is TokenKind.WORD else f"{name} of a vector"


def _attach(tokens: _Tokens, metadata: str) -> None:
    """Append metadata to an instruction."""
    end = len(tokens)
    while end and tokens[end - 1].kind in {TokenKind.SPACE, TokenKind.COMMENT}:
        end -= 1
    tokens.insert(end, Token(TokenKind.MARK, metadata))


def _without_empty_groups(text: str, *, emptied: set[str]) -> str:
    """Remove attribute groups that became empty, because no release reads an empty group."""
    if not emptied:
        return text
    lines = []
    for line in text.splitlines(keepends=True):
        group = _GROUP.match(line)
        if group and f"#{group[1]}" in emptied:
            continue
        if _GROUP_USE.search(line):
            tokens = tokenize(line)
            for place in reversed(range(len(tokens))):
                if tokens[place].kind is TokenKind.NAME and tokens[place].text in emptied:
                    del tokens[place]
                    if place and tokens[place - 1].kind is TokenKind.SPACE:
                        del tokens[place - 1]
            line = spell(tokens)  # noqa: PLW2901 (the same line, without the group)
        lines.append(line)
    return "".join(lines)


def _appended(text: str, work: _Module) -> str:
    """Append the declarations and the metadata that the new lines refer to."""
    if not work.declared and not work.ranges:
        return text
    present = set(_DECLARED.findall(text))
    lines = [
        f"declare {declaration}\n"
        for declaration in work.declared
        if declaration.partition("@")[2].partition("(")[0] not in present
    ]
    number = ir_syntax.next_metadata_number(text)
    for place, (bounds, mark) in enumerate(work.ranges.items(), number):
        text = ir_pattern(mark).sub(f"!{place}", text)
        lines.append(f"!{place} = !{{{bounds}}}\n")
    end = "" if text.endswith("\n") else "\n"
    return f"{text}{end}{''.join(lines)}"
