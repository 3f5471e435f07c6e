"""Regular expressions that are compiled on first use, and cached for the next invocation."""

from __future__ import annotations

import marshal
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlir_offload.toolchain.byte_view import sha256
from mlir_offload.toolchain.pattern import PatternStore, ir_line, ir_pattern, pattern, pattern_of

_PATTERNS: dict[str, tuple[Any, int]] = {
    "named groups": (r"^(?P<name>\w+)\s*=(?P<value>[^#\n]*?)(?:#.*)?$", re.MULTILINE),
    "possessive": (r'"(?:[^"\\\n]++|\\.)*+"|//[^\n]*', 0),
    "bytes": (rb"\b(?:gpu|func)\.\w+(?!x)", re.IGNORECASE),
    "inline flags": (r"(?s:a.*?)\Z|(?<=b)c|(?P<q>['\"]).*?(?P=q)", 0),
    "characters": (r"[\W\dä-ü\U0001F600]{2,5}", re.VERBOSE | re.ASCII),
}
_TEXTS = (
    "a = 1 # x\nb=2",
    r'"a\"b" // c',
    "GPU.launch func.callx",
    "a\nb c 'q'",
    "äü12 \U0001f600",
)


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


@pytest.mark.parametrize(
    ("template", "text", "found"),
    [
        ("call @f(`last:rest`", "call @f(1)\nxcall @f(2)\n %call @f(3)\n call @f(4)", ["1)", "4)"]),
        ("i1 `last:rest`", "i1 a\n-i1 b\n(i1 c", ["a", "c"]),
    ],
    ids=["words", "a short word"],
)
def test_an_ir_pattern_begins_with_a_whole_word(template: str, text: str, found: list[str]) -> None:
    assert [match["last"] for match in ir_pattern(template).finditer(text)] == found


@pytest.mark.parametrize(
    "template",
    ["`name:global` = `rest`", "@`name` = `rest`", "`words`@`name` = `rest`"],
    ids=["a hole", "a character", "an optional hole"],
)
def test_an_ir_line_begins_where_a_line_does(template: str) -> None:
    text = '@a = 1\n @b = 2\nx @"c d" = 3\n@"e f" = 4'
    expected = ["@a = 1", '@"e f" = 4']
    if template.startswith("`words`"):
        expected[1:1] = ['x @"c d" = 3']

    assert [match[0] for match in ir_line(template).finditer(text)] == expected


def _loaded(content: bytes) -> Any:
    return marshal.loads(content)  # noqa: S302 (our own file)


def _matches(found: re.Pattern[Any], source: Any) -> object:
    texts = [text.encode() if isinstance(source, bytes) else text for text in _TEXTS]
    return [(match.span(), match.groupdict()) for text in texts for match in found.finditer(text)]


@pytest.mark.parametrize(("source", "flags"), _PATTERNS.values(), ids=_PATTERNS)
def test_a_kept_pattern_equals_the_compiled_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Any, flags: int
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file, expected = tmp_path / "kept", re.compile(source, flags)
    first = PatternStore(file)
    made = first.compiled(source, int(flags))
    first.save()
    assert (source, int(flags)) in _loaded(file.read_bytes())[1]
    kept = PatternStore(file).compiled(source, int(flags))
    for found in (made, kept):
        # Patterns are equal if their source, flags and code are equal.
        assert found == expected
        assert found.groupindex == expected.groupindex
        assert _matches(found, source) == _matches(expected, source)


def _of_another_python(content: bytes) -> bytes:
    (version, *others), parts, translations = _loaded(content)
    return marshal.dumps(((version + 1, *others), dict.fromkeys(parts, b""), translations))


@pytest.mark.parametrize(
    "change",
    [
        lambda _: b"",
        lambda content: content[: len(content) // 2],
        lambda _: marshal.dumps(7),
        lambda content: marshal.dumps((_loaded(content)[0], {("a(b)?", 0): b"\x00"}, {})),
        lambda content: marshal.dumps(
            (_loaded(content)[0], {("a(b)?", 0): marshal.dumps((0, [9999], 1, {}, ()))}, {})
        ),
        _of_another_python,
    ],
    ids=["empty", "truncated", "a number", "no parts", "no code", "another Python"],
)
def test_a_file_that_holds_no_patterns_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "kept"
    store = PatternStore(file)
    store.compiled("a(b)?", 0)
    store.save()
    file.write_bytes(change(file.read_bytes()))
    assert PatternStore(file).compiled("a(b)?", 0) == re.compile("a(b)?")


def test_a_translation_is_kept_until_the_translator_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "kept"
    store = PatternStore(file)
    made = store.translated("call void @f(`address:local`)")
    store.save()
    monkeypatch.setattr("mlir_offload.toolchain.pattern._translated", lambda *_, **__: "new")
    assert PatternStore(file).translated("call void @f(`address:local`)") == made
    assert PatternStore(file).translated("call void @f(`address:local`)", is_line=True) == "new"

    (tmp_path / "pattern.py").write_text("another translator", encoding="utf-8")
    monkeypatch.setattr("mlir_offload.toolchain.pattern.__file__", str(tmp_path / "pattern.py"))
    assert PatternStore(file).translated("call void @f(`address:local`)") == "new"


def test_nothing_is_written_if_no_pattern_is_new_or_python_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kept"
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    PatternStore(file).save()
    assert not file.exists()
    store = PatternStore(file)
    store.compiled("a", 0)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    store.save()
    assert list(tmp_path.iterdir()) == []


def test_the_hash_is_that_of_hashlib() -> None:
    assert sha256(b"abc").hexdigest().startswith("ba7816bf8f01cfea414140de5dae2223")
