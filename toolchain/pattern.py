"""Regular expressions that are compiled when they are first used: a call needs few of all that there are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import AnyStr, cast


class _LazyPattern:
    """Stands for a compiled pattern, whose members it takes over with the first use."""

    def __init__(self, compile_it: Callable[[], re.Pattern[str] | re.Pattern[bytes]]) -> None:
        self.__compile = compile_it

    def __getattr__(self, name: str) -> object:
        compiled = self.__compile()
        for member in (
            "match",
            "search",
            "fullmatch",
            "sub",
            "subn",
            "split",
            "findall",
            "finditer",
        ):
            setattr(self, member, getattr(compiled, member))
        self.__compile = lambda: compiled
        return getattr(compiled, name)


def pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a regular expression that is compiled when it is first used."""
    return pattern_of(lambda: re.compile(source, flags))


def pattern_of(compile_it: Callable[[], re.Pattern[AnyStr]]) -> re.Pattern[AnyStr]:
    """Return a regular expression that the function makes when it is first used."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(compile_it))
