from __future__ import annotations

from pathlib import Path

import pytest

from mlir_offload.driver.message.excerpt import excerpt, with_range
from mlir_offload.driver.message.journal import StepTime
from mlir_offload.driver.message.report import MessageOptions, report, show, show_error
from mlir_offload.driver.message.text import render_times
from mlir_offload.toolchain.errors import (
    MlirOffloadError,
    Note,
    SourceError,
    SourceLocation,
    ToolFailedError,
    joined,
)

PROGRAM = "func.func @f() {\n  %0 = arith.addd %a, %a : f32\n}\n"


def shown(error: MlirOffloadError, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    report().start(MessageOptions(verbose="-v" in words), {})
    report().words = frozenset(words)
    show_error(error)
    return capsys.readouterr().err


def test_an_error_has_its_location_first_then_the_line_and_the_notes_and_the_hint_last(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("k.mlir").write_text(PROGRAM)
    error = SourceError("unknown operation", hint="define it", location="k.mlir:2:8")
    error.notes = (Note("in this function", "k.mlir:1:11"),)
    error.fix = "arith.addf"
    assert shown(error, capsys, "k.mlir") == (
        "k.mlir:2:8: error: unknown operation\n"
        "    2 |   %0 = arith.addd %a, %a : f32\n"
        "      |        ^~~~~~~~~~\n"
        "      |        arith.addf\n"
        "k.mlir:1:11: note: in this function\n"
        "    1 | func.func @f() {\n"
        "      |           ^~\n"
        "  hint: define it\n"
    )
    # Source lines are shown only for files on the command line.
    error.notes = ()
    assert shown(error, capsys) == "k.mlir:2:8: error: unknown operation\n  hint: define it\n"


def test_all_errors_are_shown_and_those_of_one_place_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    errors = [
        SourceError(text, location=at)
        for text, at in (("a", "p:1:1"), ("b", "p:1:1"), ("c", "q:1:1"))
    ]
    text = shown(joined([*errors, errors[0]]), capsys)
    assert text == "p:1:1: error: a\nq:1:1: error: c\n"


def test_a_long_line_is_shown_around_its_column(tmp_path: Path) -> None:
    path = tmp_path / "k.mlir"
    path.write_text(f"{'x' * 500} @here {'y' * 500}\n")
    line, mark = excerpt(with_range(SourceLocation(str(path), 1, 502)))
    assert len(line) < 200
    assert line[mark.index("^") :].startswith("@here ")
    assert mark.endswith("^~~~~")


def test_what_a_tool_said_is_shown_on_request_only(capsys: pytest.CaptureFixture[str]) -> None:
    error = ToolFailedError("clang failed", command="clang x", stderr="page\nlong\n")
    assert shown(error, capsys) == "mlir-offload: error: clang failed\n"
    assert shown(error, capsys, "-v").splitlines()[1:] == ["  command: clang x", "page", "long"]


def test_a_path_that_is_no_utf8_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show(b"caf\xe9".decode("utf-8", "surrogateescape"))
    assert capsys.readouterr().err == "caf\\xe9\n"


def test_times_are_listed_in_the_order_of_their_beginning() -> None:
    lines = render_times([StepTime("b", 0.2, 0.1), StepTime("a", 0.1, 0.05)]).splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["a", "b"]
