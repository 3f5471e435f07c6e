from __future__ import annotations

import pytest

from mlir_offload.driver.message.journal import StepTime
from mlir_offload.driver.message.report import render_error, render_times, show
from mlir_offload.toolchain.errors import SourceError, ToolFailedError


def test_an_error_begins_with_its_place_and_ends_with_its_cure() -> None:
    error = SourceError("no such kernel", hint="define it", location="k.mlir:3:5")
    assert render_error(error) == "k.mlir:3:5: error: no such kernel\n  hint: define it"


def test_what_a_tool_said_is_shown_on_request_only() -> None:
    error = ToolFailedError("clang failed", command="clang x", stderr="page\nlong\n")
    assert render_error(error) == "mlir-offload: error: clang failed"
    assert render_error(error, verbose=True).splitlines()[1:] == [
        "  command: clang x",
        "page",
        "long",
    ]


def test_a_path_that_is_no_utf8_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show(b"caf\xe9".decode("utf-8", "surrogateescape"))
    assert capsys.readouterr().err == "caf\\xe9\n"


def test_times_are_listed_in_the_order_of_their_beginning() -> None:
    lines = render_times([StepTime("b", 0.2, 0.1), StepTime("a", 0.1, 0.05)]).splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["a", "b"]
