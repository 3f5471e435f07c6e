from __future__ import annotations

from pathlib import Path

import pytest

from mlir_offload.driver.option.link_line import parse_link_line


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("a.o", "l/libboth.so", "l/libboth.a", "m/libboth.a", "m/libk.a", "m/odd.a"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return tmp_path


@pytest.mark.parametrize(
    ("line", "files"),
    [
        (["-lk", "-Ll", "-Lm"], ["m/libk.a"]),
        (["-Ll", "-Lm", "-lboth"], ["l/libboth.so"]),
        (["-Lm", "-Ll", "-lboth"], ["m/libboth.a"]),
        (["-static", "-Ll", "-lboth"], ["l/libboth.a"]),
        (
            ["-Ll", "-Wl,-Bstatic", "-lboth", "-Wl,-Bdynamic", "-lboth"],
            ["l/libboth.a", "l/libboth.so"],
        ),
        (
            ["-Ll", "-Wl,--push-state,-Bstatic,-lboth,--pop-state", "-lboth"],
            ["l/libboth.a", "l/libboth.so"],
        ),
        (["-Lm", "-l:odd.a"], ["m/odd.a"]),
        (["-Wl,-Lm", "-lk"], ["m/libk.a"]),
        (["-lk", "-Wl,-L,m,--no-undefined"], ["m/libk.a"]),
        (
            ["-Wl,--library-path=m", "-lk", "-Wl,-library-path,l", "-lboth"],
            ["m/libk.a", "m/libboth.a"],
        ),
        (["-Wl,-u,k,a.o,-rpath,l"], ["a.o"]),
        (["-lm", "-Lm", "-lnone"], []),
    ],
)
@pytest.mark.usefixtures("libraries")
def test_the_files_of_a_line_are_those_that_the_linker_takes(
    line: list[str], files: list[str]
) -> None:
    assert [str(item.path) for item in parse_link_line(line) if item.path] == files


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        (["-Wl,--whole-archive", "m/libk.a", "-Wl,--no-whole-archive", "m/odd.a"], ["m/libk.a"]),
        (["-Wl,-whole-archive,m/libk.a,-no-whole-archive,m/odd.a"], ["m/libk.a"]),
        (
            ["-Wl,--push-state", "-Wl,--whole-archive,m/odd.a", "-Wl,--pop-state", "m/libk.a"],
            ["m/odd.a"],
        ),
        (["m/libk.a", "-Wl,--pop-state", "m/odd.a"], []),
    ],
)
@pytest.mark.usefixtures("libraries")
def test_libraries_that_are_taken_as_a_whole_are_told(line: list[str], whole: list[str]) -> None:
    assert [str(item.path) for item in parse_link_line(line) if item.is_whole] == whole


@pytest.mark.usefixtures("libraries")
def test_a_parsed_line_says_what_it_said() -> None:
    line = ["-Wl,--whole-archive,m/libk.a", "-lm", "a.o", "-Wl,-u,k"]
    texts = [item.text for item in parse_link_line(line)]
    assert texts == ["-Wl,--whole-archive", "-Wl,m/libk.a", "-lm", "a.o", "-Wl,-u", "-Wl,k"]
