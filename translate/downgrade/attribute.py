"""Downgrade attributes of functions, parameters and results."""

from __future__ import annotations

from mlir_offload.translate.downgrade.table import DowngradeRow
from mlir_offload.translate.ir_tokens import (
    Token,
    TokenKind,
    group_end,
    operands,
    remove,
    spell,
    tokenize,
)

_READ, _WRITE = 1, 2
_ACCESS = {"none": 0, "read": _READ, "write": _WRITE, "readwrite": _READ | _WRITE}
_SPELLED = {access: word for word, access in _ACCESS.items()}
_OTHER, _ARGUMENT, _INACCESSIBLE = "other", "argmem", "inaccessiblemem"
# The locations of older releases that included each new location.
_PART_OF = {
    "errnomem": (_OTHER,),
    "target_mem0": (_OTHER, _INACCESSIBLE),
    "target_mem1": (_OTHER, _INACCESSIBLE),
}
# The attributes of LLVM 15 for functions that access only argument memory, only inaccessible memory, or both.
_WHERE = {
    (True, False): "argmemonly",
    (False, True): "inaccessiblememonly",
    (True, True): "inaccessiblemem_or_argmemonly",
}


def strip_attribute(tokens: list[Token], row: DowngradeRow) -> None:
    """Remove or rename the attributes of a row, including their arguments."""
    for place in reversed(range(len(tokens))):
        # The list may have become shorter, because `remove` also removes a space.
        if place >= len(tokens) or not tokens[place].is_word(*row.names):
            continue
        end = _argument_end(tokens, place)
        argument = spell(tokens[place + 2 : end - 1]).strip()
        wanted = argument if row.argument == "any" and argument else row.argument
        if wanted not in {None, argument}:
            continue
        if row.action == "rename":
            tokens[place:end] = [Token(TokenKind.WORD, row.to)]
        else:
            remove(tokens, place, end)


def take_result_range(tokens: list[Token], row: DowngradeRow) -> str:
    """Remove the `range` attribute of a call's result, and return its bounds in the form of !range metadata."""
    start = next((i for i, token in enumerate(tokens) if token.is_word("call")), None)
    if start is None or any(token.text == "!range" for token in tokens):
        return ""
    for place in range(start, len(tokens)):
        if tokens[place].text.startswith(("@", "(")):
            return ""
        if tokens[place].is_word(*row.names):
            end = _argument_end(tokens, place)
            low, high = operands(tokens, place + 1)
            kind = low[0].text
            remove(tokens, place, end)
            return f"{spell(low)}, {kind} {spell(high)}"
        if tokens[place].text == "(":
            return ""
    return ""


def rewrite_memory(tokens: list[Token], *, has_words: bool) -> None:
    """Rewrite `memory(...)` with the locations of older releases.

    If not `has_words`, the release does not have `memory(...)`; it is then replaced by the attributes of LLVM 15.
    """
    for place in reversed(range(len(tokens))):
        if not tokens[place].is_word("memory") or tokens[place + 1].text != "(":
            continue
        end = group_end(tokens, place + 1)
        effects = _effects([spell(part) for part in operands(tokens, place + 1)])
        if has_words and not _is_known(tokens[place:end]):
            tokens[place:end] = tokenize(_spell_effects(effects))
        elif not has_words:
            text = _old_words(effects)
            tokens[place:end] = [Token(TokenKind.WORD, text)] if text else []
            if not text:
                remove(tokens, place, place)


def write_out_target_memory(tokens: list[Token], row: DowngradeRow) -> None:
    """Replace the location for all target memory by the two locations that it includes."""
    (name,) = row.names
    for place in reversed(range(len(tokens) - 2)):
        if tokens[place].text == f"{name}:":
            access = spell(tokens[place + 1 : place + 3])
            tokens[place : place + 3] = tokenize(f"{name}0:{access}, {name}1:{access}")


def _argument_end(tokens: list[Token], place: int) -> int:
    has_argument = place + 1 < len(tokens) and tokens[place + 1].text == "("
    return group_end(tokens, place + 1) if has_argument else place + 1


def _is_known(tokens: list[Token]) -> bool:
    """Return whether older releases have all of the locations."""
    return not any(token.text.rstrip(":") in _PART_OF for token in tokens)


def _effects(parts: list[str]) -> dict[str, int]:
    """Return the access of each of the three locations that every release has."""
    default = next((_ACCESS[part] for part in parts if part in _ACCESS), 0)
    named = {
        location.strip(): _ACCESS[access.strip()]
        for location, found, access in (part.partition(":") for part in parts)
        if found
    }
    effects = {place: named.get(place, default) for place in (_ARGUMENT, _INACCESSIBLE)}
    effects[_OTHER] = default
    for location, owners in _PART_OF.items():
        for owner in owners:
            effects[owner] |= named.get(location, default if owner == _OTHER else 0)
    return effects


def _spell_effects(effects: dict[str, int]) -> str:
    default = effects[_OTHER]
    named = [
        f"{place}: {_SPELLED[effects[place]]}"
        for place in (_ARGUMENT, _INACCESSIBLE)
        if effects[place] != default
    ]
    words = [_SPELLED[default]] if default or not named else []
    return f"memory({', '.join((*words, *named))})"


def _old_words(effects: dict[str, int]) -> str:
    """Return the attributes of LLVM 15 for the effects, an empty string if there are none."""
    union = effects[_OTHER] | effects[_ARGUMENT] | effects[_INACCESSIBLE]
    if not union:
        return "readnone"
    words = [{_READ: "readonly", _WRITE: "writeonly"}.get(union, "")]
    if not effects[_OTHER]:
        where = (bool(effects[_ARGUMENT]), bool(effects[_INACCESSIBLE]))
        words.append(_WHERE[where])
    return " ".join(filter(None, words))
