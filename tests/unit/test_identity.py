"""The versions that tools report and those in their output: findings if they differ."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest

from mlir_offload.toolchain.skew.identity import (
    Signature,
    ToolIdentity,
    llvm_findings,
    parse_signature,
    problem_findings,
)
from mlir_offload.toolchain.skew.ir_feature import (
    expected_ir_features,
    load_ir_features,
    parse_ir_features,
)
from mlir_offload.toolchain.tables import load_table


def identity(name: str, said: str, written: str, problem: str = "") -> ToolIdentity:
    return ToolIdentity(
        "LLVM in /llvm", name, Path(f"/llvm/bin/{name}"), said, written, (), problem
    )


@pytest.mark.parametrize(
    "signature",
    [
        Signature("LLVM22.1.8", 22, "22.1.8", "", is_development=False),
        Signature("LLVM 22.1.8", 22, "22.1.8", "", is_development=False),
        Signature("LLVM3.8.0", 3, "3.8.0", "", is_development=False),
        Signature("LLVM19.1", 19, "19.1.0", "", is_development=False),
        Signature("MLIR19.1.7", 19, "19.1.7", "", is_development=False),
        Signature("LLD 16.0.6", 16, "16.0.6", "", is_development=False),
        Signature("LLVM13.0.0git", 13, "13.0.0", "", is_development=True),
        Signature("LLVM20.1.0-rc2", 20, "20.1.0", "", is_development=True),
        Signature(
            "LLVM22.1.2-rust-1.95.0-stable",
            22,
            "22.1.2",
            "rust-1.95.0-stable",
            is_development=False,
        ),
        Signature("APPLE_1_1500.1.0.2.5_0", None, "", "APPLE", is_development=False),
        Signature("", None, "", "", is_development=False),
    ],
    ids=lambda signature: signature.text or "nothing",
)
def test_a_signature_tells_who_wrote(signature: Signature) -> None:
    assert parse_signature(signature.text) == signature


def test_tools_of_one_release_that_are_what_they_say_have_no_findings() -> None:
    tools = [
        identity("clang", "22.1.8", "LLVM22.1.8"),
        identity("mlir-opt", "22.1.8", "MLIR22.1.8"),
        identity("mlir-translate", "22.1.8", ""),
        identity("ld.lld", "22.1.8", "LLD 22.1.8"),
    ]
    assert llvm_findings(tools) == ()
    assert problem_findings(tools) == ()


@pytest.mark.parametrize(
    ("tool", "rule", "words"),
    [
        (
            identity("clang", "22.1.8", "LLVM19.1.7"),
            "TOOL006",
            "says that it is 22.1.8, but writes",
        ),
        (identity("clang", "22.1.2", "LLVM22.1.2-rust-1.95.0-stable"), "TOOL002", "a fork"),
        (identity("clang", "15.0.0", "APPLE_1_1500.1.0.2.5_0"), "TOOL002", "a fork"),
        (identity("clang", "23.0.0", "LLVM23.0.0git"), "TOOL002", "a development build"),
    ],
    ids=["lie", "rust", "apple", "git"],
)
def test_a_tool_that_is_not_what_it_says_is_found(
    tool: ToolIdentity, rule: str, words: str
) -> None:
    (finding,) = llvm_findings([tool])
    assert finding.rule == rule
    assert words in finding.message
    assert finding.hint
    assert finding.location == "/llvm/bin/clang"


def test_programs_of_two_releases_in_one_installation_are_found() -> None:
    tools = [identity("clang", "22.1.8", "LLVM22.1.8"), identity("opt", "19.1.7", "LLVM19.1.7")]
    (finding,) = llvm_findings(tools)
    assert finding.rule == "TOOL003"
    assert "clang (LLVM22.1.8) and opt (LLVM19.1.7)" in finding.message


def test_a_tool_that_cannot_be_asked_is_found_with_the_reason() -> None:
    (finding,) = problem_findings([identity("opt", "", "", "killed by SIGSEGV")])
    assert finding.rule == "TOOL001"
    assert "killed by SIGSEGV" in finding.message


def test_each_release_reads_more_constructs_than_the_one_before() -> None:
    counts = [len(expected_ir_features(major)) for major in range(15, 23)]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] == len(load_ir_features())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"since": 99}, "releases must ascend"),
        ({"since": 17}, "releases must ascend"),
        ({"until": 18}, "must have"),
    ],
)
def test_a_broken_table_of_constructs_is_refused(change: dict[str, int], message: str) -> None:
    table = copy.deepcopy(dict(load_table("mlir_offload.toolchain", "ir_features")))
    table["features"][0].update(change)
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_ir_features(table)
