"""Response files, as clang and GCC read them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlir_offload.driver.option.response_file import expand_arguments, fit, quote_word, split_words
from mlir_offload.toolchain.errors import InputOutputError, MlirOffloadError, UsageError
from mlir_offload.toolchain.process import Command, ProcessRunner

# A tab precedes `tab`, and the last backslash escapes nothing.
_QUOTED = """-c 'a b.c' "c d.c" e\\ f.c g\\h "q\\"r" 'x\\y' a"b "c'd 'e # f\n\ttab "" '\\"""
_WORDS = ["-c", "a b.c", "c d.c", "e f.c", "gh", 'q"r', "xy", "ab cd e", "#", "f", "tab", "", "\\"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \n\t\r\n", []),
        (_QUOTED, _WORDS),
        ('"open a', ["open a"]),
        ("a\\\nb", ["a\nb"]),
        ("end\\", ["end\\"]),
        ("'it'\\''s'", ["it's"]),
    ],
)
def test_words_are_cut_as_gcc_and_clang_cut_them(text: str, words: list[str]) -> None:
    assert split_words(text) == words


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
def test_what_is_quoted_is_read_back(words: list[str]) -> None:
    assert split_words("\n".join(map(quote_word, words))) == words


@given(st.text("ab \\\"'\n", max_size=40))
def test_no_text_is_too_odd_to_be_read(text: str) -> None:
    assert "".join(split_words(text)).count("a") == text.count("a")


@pytest.mark.llvm(22)
def test_clang_reads_the_same_words(tmp_path: Path) -> None:
    # clang drops empty words, and GCC keeps them.
    (tmp_path / "r").write_text(_QUOTED)
    clang = ["/usr/lib/llvm-22/bin/clang", "@r"]
    result = subprocess.run(clang, cwd=tmp_path, capture_output=True, text=True, check=False)
    files = [word for word in _WORDS if word and not word.startswith("-")]
    assert re.findall(r"no such file or directory: '(.*)'", result.stderr) == files


def test_files_for_the_linker_are_expanded_to_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r").write_text("a.o --defsym=a,b @s")
    (tmp_path / "s").write_text("'b c.o'")
    words = ("-Wl,a.o", "-Xlinker", "--defsym=a,b", "-Wl,b c.o", "-c")
    assert expand_arguments(["-Wl,@r", "-c"]) == (words, (Path("r"), Path("s")))


def test_files_are_expanded_in_place_and_in_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "outer").write_text("-a @inner -- @inner")
    (tmp_path / "inner").write_bytes(b"\xef\xbb\xbf-b '\xff'")
    (tmp_path / "wide").write_bytes("-w é".encode("utf-16"))
    got, files = expand_arguments(["@", "@sub/outer", "@wide", "@inner", "--", "@none"])
    inner = ("-b", os.fsdecode(b"\xff"))
    assert list(map(str, files)) == ["sub/outer", "inner", "inner", "wide", "inner"]
    assert got == ("@", "-a", *inner, "--", *inner, "-w", "é", *inner, "--", "@none")


def _chain(place: Path, length: int) -> None:
    for number in range(length):
        (place / f"c{number}").write_text(f"@c{number + 1}")
    (place / f"c{length}").write_text("end")


@pytest.mark.parametrize(
    ("argument", "error", "message"),
    [
        ("@missing", InputOutputError, "@missing: cannot read this response file: No such file"),
        ("@.", InputOutputError, "Is a directory"),
        ("@nul", InputOutputError, "character 1 is a NUL"),
        ("@self", UsageError, "@self: this response file names itself"),
        ("@./one", UsageError, "names itself"),
        ("@twice0", UsageError, "more than 2000"),
        ("@c0", UsageError, "more than 2000"),
        ("@/dev/zero", InputOutputError, "more than"),
    ],
)
def test_a_bad_response_file_is_an_error_that_names_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    argument: str,
    error: type[MlirOffloadError],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mlir_offload.driver.option.response_file._MAX_BYTES", 1 << 12)
    (tmp_path / "self").write_text("-c @self")
    (tmp_path / "nul").write_bytes(b"a\0")
    (tmp_path / "one").write_text("@two")
    (tmp_path / "two").write_text("@one")
    for number in range(20):
        (tmp_path / f"twice{number}").write_text(f"@twice{number + 1} @twice{number + 1}")
    (tmp_path / "twice20").touch()
    if argument == "@c0":
        _chain(tmp_path, 2001)
    with pytest.raises(error, match=message):
        expand_arguments([argument])


def test_a_chain_as_long_as_gcc_allows_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _chain(tmp_path, 1999)
    assert expand_arguments(["@c0"])[0] == ("end",)


def test_a_short_command_is_left_as_it_is(tmp_path: Path) -> None:
    command = Command(("clang", "a.o"))
    assert fit(command, tmp_path / "r") is command
    assert not (tmp_path / "r").exists()


@pytest.mark.llvm(22)
@pytest.mark.parametrize(("count", "length"), [(30_000, 100), (1, 200_000)], ids=["many", "long"])
def test_a_command_too_long_for_the_system_is_run_through_a_file(
    tmp_path: Path, count: int, length: int
) -> None:
    (tmp_path / "a.c").write_text("int a;")
    # Each macro has another name, because a macro can be redefined only with the same value.
    macros = (f"-DM{number}={'x' * length}" for number in range(count))
    output = tmp_path / "a b.o"
    argv = ("/usr/lib/llvm-22/bin/clang", *macros, "-c", str(tmp_path / "a.c"), "-o", str(output))
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(argv, check=False)
    completed = ProcessRunner().run(fit(Command(argv), tmp_path / "arguments"))
    assert completed.returncode == 0, completed.stderr
    assert output.exists()
