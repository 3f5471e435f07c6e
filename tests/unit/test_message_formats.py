"""A diagnostic in each machine-readable format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.sarif import SARIF_SUBSET

from mlir_offload.driver.message.diagnostic import (
    Diagnostic,
    error_class,
    failure_messages,
    tool_messages,
)
from mlir_offload.driver.message.github import render_github
from mlir_offload.driver.message.journal import ToolRun
from mlir_offload.driver.message.json import render_json, render_output, schema_text
from mlir_offload.driver.message.report import Color, wants_color
from mlir_offload.driver.message.sarif import render_sarif
from mlir_offload.toolchain import errors
from mlir_offload.toolchain.errors import SourceLocation, parse_source_location
from mlir_offload.toolchain.process import Command, Completed
from mlir_offload.translate.tool_message import Severity

FULL = Diagnostic(
    Severity.ERROR,
    "no such kernel, 100%",
    SourceLocation("a b/k.mlir", 3, 5, 9),
    "lower",
    "mlir-opt",
    "mlir-opt k.mlir",
    -11,
    "define it",
    ("line", "  ^"),
    "source",
    1,
    fix="kern",
)
BARE = Diagnostic(Severity.NOTE, "compiling for the CPU")
WARNING = Diagnostic(
    Severity.WARNING, "unused 'x' [-Wunused]", SourceLocation("/src/m.c", 1), tool="clang"
)
ALL = (FULL, BARE, WARNING)


@pytest.mark.parametrize("line", [*map(render_json, ALL), render_output("clang -c k.ll")])
def test_a_line_of_json_is_what_the_schema_says(line: str) -> None:
    schema = json.loads(schema_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "\n" not in line
    jsonschema.validate(json.loads(line), schema)


def test_json_says_all_that_is_known_and_nothing_else() -> None:
    assert json.loads(render_json(FULL)) == {
        "severity": "error",
        "message": "no such kernel, 100%",
        "file": "a b/k.mlir",
        "line": 3,
        "column": 5,
        "end_column": 9,
        "stage": "lower",
        "tool": "mlir-opt",
        "command": "mlir-opt k.mlir",
        "tool_status": -11,
        "details": ["line", "  ^"],
        "hint": "define it",
        "class": "source",
        "status": 1,
        "fix": "kern",
    }
    assert set(json.loads(render_json(BARE))) == {"severity", "message", "tool"}


def test_a_name_that_is_no_utf8_leaves_a_line_of_json() -> None:
    name = b"caf\xe9.mlir".decode("utf-8", "surrogateescape")
    line = render_json(Diagnostic(Severity.ERROR, name, SourceLocation(name, 1)))
    assert line.isascii()
    assert json.loads(line)["line"] == 1


def test_sarif_has_the_structure_that_its_specification_requires() -> None:
    document = json.loads(render_sarif(ALL, 1))
    jsonschema.validate(document, SARIF_SUBSET)
    run = document["runs"][0]
    assert [result["level"] for result in run["results"]] == ["error", "note", "warning"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert [rules[result["ruleIndex"]] for result in run["results"]] == rules
    assert rules == ["source-error", "mlir-offload/note", "clang/-Wunused"]


def test_names_in_sarif_are_references_as_the_user_gave_them() -> None:
    results: list[dict[str, Any]] = json.loads(render_sarif(ALL, 1))["runs"][0]["results"]
    assert results[0]["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "a%20b/k.mlir"},
        "region": {"startLine": 3, "startColumn": 5, "endColumn": 9},
    }
    (change,) = results[0]["fixes"][0]["artifactChanges"]
    assert change["replacements"][0]["insertedContent"] == {"text": "kern"}
    assert results[2]["locations"][0]["physicalLocation"]["artifactLocation"] == {
        "uri": "file:///src/m.c"
    }


def test_sarif_of_a_call_without_messages_has_no_results() -> None:
    document = json.loads(render_sarif((), 0))
    jsonschema.validate(document, SARIF_SUBSET)
    assert document["runs"][0]["results"] == []
    assert document["runs"][0]["invocations"] == [{"executionSuccessful": True, "exitCode": 0}]


def test_the_check_of_sarif_refuses_what_the_specification_forbids() -> None:
    document = json.loads(render_sarif(ALL, 1))
    document["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, SARIF_SUBSET)


def test_github_gets_one_line_with_its_own_escapes() -> None:
    assert render_github(FULL) == (
        "::error file=a b/k.mlir,line=3,col=5,endColumn=8,title=mlir-opt (lower)"
        "::no such kernel, 100%25%0Aline%0A  ^%0Ahint: define it"
    )
    assert render_github(BARE) == "::notice::compiling for the CPU"
    odd = Diagnostic(Severity.WARNING, "x", SourceLocation("a,b:c.mlir"))
    assert render_github(odd) == "::warning file=a%2Cb%3Ac.mlir::x"


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("k.mlir:3:5", SourceLocation("k.mlir", 3, 5)),
        ("k.mlir:3", SourceLocation("k.mlir", 3)),
        ("k.mlir", SourceLocation("k.mlir")),
        ("a:b.mlir:3:5", SourceLocation("a:b.mlir", 3, 5)),
        ("", None),
    ],
)
def test_a_place_is_read_as_compilers_print_it(location: str, place: SourceLocation | None) -> None:
    assert parse_source_location(location) == place
    assert place is None or str(place) == location


def test_each_class_of_error_has_its_word_in_the_schema() -> None:
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.MlirOffloadError)
    ]
    # Only Python programs get the runtime's error.
    unprinted = (errors.MlirOffloadError, errors.MlirOffloadRuntimeError)
    words = {error_class(one("")) for one in classes if one not in unprinted}
    assert words == set(json.loads(schema_text())["properties"]["class"]["enum"])


def _run(stderr: str, *argv: str, status: int = 1) -> ToolRun:
    work = Path("/work-of-a-call")
    return ToolRun(
        Completed(Command(argv, (("TMPDIR", "/work-of-a-call"),)), status, "", stderr),
        work,
        {work / "0": Path("k.mlir")},
    )


def test_a_place_in_an_intermediate_file_becomes_the_file_of_the_user() -> None:
    run = _run(
        "/work-of-a-call/0/host.ll:9:1: error: bad\n", "clang-22", "-c", "/work-of-a-call/0/host.ll"
    )
    (message,) = tool_messages(run)
    assert (message.place, message.stage) == (SourceLocation("k.mlir"), "compile")
    # Without TMPDIR, which no longer exists when a user runs the line again.
    assert message.command == "clang-22 -c /work-of-a-call/0/host.ll"


def test_the_words_of_a_tool_do_not_come_twice() -> None:
    run = _run("k.mlir:2:8: error: unknown\nk.mlir:4:1: warning: other\n", "mlir-opt", "k.mlir")
    error = errors.SourceError("condensed", hint="spell", location="k.mlir:2:8")
    first, second = failure_messages(error, run)
    assert (first.text, first.hint, first.tool, first.status) == (
        "condensed",
        "spell",
        "mlir-opt",
        1,
    )
    assert (second.text, second.place, second.status) == (
        "other",
        SourceLocation("k.mlir", 4, 1),
        None,
    )


@pytest.mark.parametrize(
    ("color", "environment", "terminal", "wanted"),
    [
        (Color.AUTO, {}, True, True),
        (Color.AUTO, {}, False, False),
        (Color.AUTO, {"NO_COLOR": "1"}, True, False),
        (Color.AUTO, {"NO_COLOR": ""}, True, True),
        (Color.AUTO, {"CLICOLOR_FORCE": "1"}, False, True),
        (Color.AUTO, {"CLICOLOR_FORCE": "0"}, False, False),
        (Color.AUTO, {"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, False, False),
        (Color.AUTO, {"TERM": "dumb"}, True, False),
        (Color.ALWAYS, {"NO_COLOR": "1"}, False, True),
        (Color.NEVER, {"CLICOLOR_FORCE": "1"}, True, False),
    ],
)
def test_colours_follow_the_option_then_the_environment_then_the_terminal(
    *, color: Color, environment: dict[str, str], terminal: bool, wanted: bool
) -> None:
    assert wants_color(color, environment, is_terminal=terminal) is wanted
