"""Regular expressions that are compiled when they are first used."""

from __future__ import annotations

import re

import pytest

from mlir_offload.toolchain.pattern import pattern, pattern_of


def test_a_pattern_is_compiled_once_with_its_first_use() -> None:
    made: list[re.Pattern[str]] = []

    def compile_it() -> re.Pattern[str]:
        made.append(re.compile("a+"))
        return made[-1]

    lazy = pattern_of(compile_it)
    assert made == []
    assert [found[0] for found in lazy.finditer("baab a")] == ["aa", "a"]
    assert lazy.sub("-", "baab") == "b-b"
    assert lazy.pattern == "a+"
    assert lazy.groups == 0
    assert len(made) == 1


def test_flags_and_bytes_are_those_of_re() -> None:
    assert pattern("^b", re.MULTILINE).search("a\nb")
    assert pattern(rb"\d").findall(b"a1b2") == [b"1", b"2"]
    assert pattern("a").flags == re.compile("a").flags


def test_a_wrong_pattern_is_an_error_of_re() -> None:
    with pytest.raises(re.error, match="unterminated"):
        pattern("(").match("")
