"""Every clang option is passed on, handled, ignored or rejected, according to the table."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from mlir_offload.driver.option.clang_option import ClangOption, judge, known_options, own_row
from mlir_offload.driver.option.command_line import CompileOptions, read_arguments
from mlir_offload.driver.option.row import Option
from mlir_offload.toolchain.errors import UsageError

CLANG = Path("/usr/lib/llvm-22/bin/clang")
LABEL = re.compile(r"[-/][^\s<]+(?:<[^>]*(?:>|$)\S*)*(?: <[^>]*>(?:=<[^>]*>)?)*")
# Options that the command line handles before the compiler runs.
PRINTS = re.compile(
    r"--?print-|-f(no-)?(diagnostics-color|color-diagnostics)|-fno-crash-diagnostics"
)
# Valid values for options whose value is checked.
VALUES = {
    "--cuda-include-ptx": "sm_90",
    "--target": "x86_64-linux-gnu",
    "-fdebug-prefix-map": "a=b",
    "-ffile-prefix-map": "a=b",
    "-fsanitize": "address",
    "-x": "c",
}
# A word that begins with a slash is a file name on Linux.
EVERY = [one for one in (*known_options(), *known_options("more")) if one.label[0] == "-"]
# Groups, because one test per option would take longer than its work.
GROUPS = [EVERY[start : start + 50] for start in range(0, len(EVERY), 50)]


def given(one: ClangOption) -> list[str]:
    """Return an option as a user gives it, with a value where it takes one."""
    value = VALUES.get(one.name.rstrip("="), "1")
    if one.is_separate:
        return [one.name, value]
    return [f"{one.name}{value}" if "<" in one.label else one.name]


def outcome(words: list[str]) -> CompileOptions | str:
    try:
        return read_arguments(words)
    except UsageError as error:
        return f"{error.message} {error.hint}"


def check_taken(options: CompileOptions, words: list[str], one: ClangOption) -> None:
    verdict = judge(one.label)
    if verdict.verdict == "ignored":
        assert options.unused == (" ".join(words),), one
        return
    taken = {
        "c": options.compiler_arguments,
        "code": options.code_arguments,
        "link": options.link_items,
    }
    for part, arguments in taken.items():
        is_taken = part in verdict.to or (part == "c" and "code" in verdict.to)
        assert ("".join(words) in "".join(arguments)) == is_taken, (one, part)


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group[0].label)
def test_an_option_of_clang_is_taken_as_the_table_says(group: list[ClangOption]) -> None:
    for one in group:
        check_option(one)


def check_option(one: ClangOption) -> None:
    words = given(one)
    found = outcome(words)
    if own_row(one.label) is not None:
        assert not str(found).startswith("unknown option") or _is_action(one), one
    elif judge(one.label).verdict == "rejected":
        assert judge(one.label).reason in str(found), one
    else:
        assert isinstance(found, CompileOptions), (one, found)
        # An option that begins with the name of another one is handled by that: `-Wa,x` by `-W`.
        if own_row(words[0]) is None and found.compiler_arguments != tuple(words):
            check_taken(found, words, one)


def _is_action(one: ClangOption) -> bool:
    """Return whether the command line acts on it before the compiler is called."""
    row = own_row(one.label)
    return isinstance(row, Option) and row.does is None


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group[0].label)
def test_what_was_passed_on_can_be_given_again_as_one_word(group: list[ClangOption]) -> None:
    for one in group:
        options = outcome(given(one))
        if isinstance(options, CompileOptions) and not options.inputs:
            again = read_arguments([f"{name}{value}" for name, value in options.spelled])
            assert again.compiler_arguments == options.compiler_arguments, one
            assert again.link_items == options.link_items, one


@pytest.mark.llvm(22)
def test_the_table_has_what_clang_lists() -> None:
    listed = subprocess.run([CLANG, "--help"], capture_output=True, text=True, check=True).stdout
    labels = set()
    for line in listed.splitlines():
        if re.match(r"  [-/]\S", line):
            found = LABEL.match(re.split(r"\s{2,}", line.strip())[0])
            assert found is not None
            labels.add(found[0])
    assert {one.label for one in known_options()} == labels


@pytest.mark.llvm(22)
def test_no_word_that_clang_takes_is_unknown() -> None:
    unknown = []
    for prefix in (
        "-fd",
        "-fno-g",
        "-fno-o",
        "-fno-p",
        "-fno-r",
        "-mno-s",
        "-mt",
        "-st",
        "--st",
        "--p",
    ):
        command = [str(CLANG), f"--autocomplete={prefix}"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        words = [line.split()[0] for line in listed.splitlines() if line.strip()]
        for word in words:
            found = outcome([f"{word}1" if word.endswith("=") else word, "1"])
            if str(found).startswith("unknown option") and not PRINTS.match(word):
                unknown.append(word)
    # These are for other systems, or are GCC's.
    assert set(unknown) <= {"-startfiles", "-static-libgfortran", "-stdlib"}


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        ("--offload-arhc=sm_90", "--offload-arch"),
        ("-fgpu-rdx", "-fgpu-rdc"),
        ("-fno-gpu-rcd", "-fno-gpu-rdc"),
        ("-emit-lvm", "-emit-llvm"),
        ("--mlir-otp=x", "--mlir-opt"),
        ("-fsyntax-olny", "-fsyntax-only"),
    ],
)
def test_a_mistyped_option_is_refused_with_the_one_that_was_meant(argument: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_arguments([argument])
    assert caught.value.hint == f"did you mean '{hint}'?"


def test_an_option_that_clang_does_not_list_is_left_to_clang() -> None:
    assert read_arguments(["-fno-such-thing"]).compiler_arguments == ("-fno-such-thing",)
    with pytest.raises(UsageError, match="unknown option '--frobnicate'"):
        read_arguments(["--frobnicate"])
