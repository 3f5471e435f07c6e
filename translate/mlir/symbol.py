"""Where a symbol is in the text of a program."""

from __future__ import annotations

import re

from mlir_offload.translate.mlir.syntax import MLIR

_DEFINITION = re.compile(r"\.(?:func|global)\b[^\n@]*$")


def find_symbol(text: str, name: str, *, is_definition: bool) -> tuple[int, int] | None:
    """Return the line and the column of a definition of a symbol, or of a use; None without one.

    A symbol without a use is at its declaration.
    """
    code = MLIR.blanked(text)
    found = [match.start() for match in re.finditer(rf"@{re.escape(name)}(?![\w$.-])", code)]
    wanted = [place for place in found if _defines(code, place) is is_definition]
    place = next(iter((*wanted, *found)), None)
    if place is None:
        return None
    return code.count("\n", 0, place) + 1, place - code.rfind("\n", 0, place)


def _defines(code: str, place: int) -> bool:
    return _DEFINITION.search(code[code.rfind("\n", 0, place) + 1 : place]) is not None
