"""What the user may have meant by a word that nothing knows."""

from __future__ import annotations

from collections.abc import Iterable

from mlir_offload.driver.option.row import Subcommand

_LIKE_OPTION, _LIKE_WORD = 0.8, 0.7
_SHORT = len("-fx")


def nearest(word: str, known: Iterable[str], cutoff: float = _LIKE_WORD) -> str:
    """Return the known word that is most like another; empty where none is."""
    import difflib

    found = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return found[0] if found else ""


def value_hint(word: str, known: Iterable[str]) -> str:
    """Return the hint for a value that is none of those to choose from."""
    names = list(known)
    near = nearest(word, names)
    return f"did you mean '{near}'?" if near else f"use one of {', '.join(names)}"


def option_hint(argument: str, described: Subcommand) -> str:
    """Return the hint for an option that a subcommand, or the compiler, does not have."""
    own = (name for row in described.rows for name in row.names)
    plain = {name.rstrip("=,"): name for name in own}
    word = argument.partition("=")[0]
    near = nearest(word, plain, _LIKE_OPTION) if len(word) > _SHORT else ""
    if near:
        return f"did you mean '{near}'?"
    return f"see 'mlir-offload {described.name} --help'".replace("  ", " ")
