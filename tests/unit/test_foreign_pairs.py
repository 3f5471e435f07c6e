"""Judging pairs of real code: the comparison of two texts of a module, and the page of figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from foreign.constructs import load_examples
from foreign.module_text import differences, intrinsics
from foreign.pair_figures import Standing, is_within_bounds, read_pairs, render_page
from foreign.pair_verdict import Outcome

from mlir_offload.toolchain.skew.fact import Consumer
from mlir_offload.toolchain.skew.text import check_text, load_constructs

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "design" / "foreign-pairs.md"
PAIRS = read_pairs(ROOT / "tests" / "golden" / "skew" / "pairs.csv")
MODULE = """define i32 @f(i32 %x) #0 {
  %y = or disjoint i32 %x, 1, !dbg !1
  ret i32 %y
}
attributes #0 = { nounwind memory(read) }
!0 = !{!"a"}
!1 = !{!0, i32 1}
"""


@pytest.mark.parametrize(
    ("was", "now", "is_harmless"),
    [
        ("or disjoint", "or", True),
        ("or", "or disjoint", False),
        (", 1, !dbg", ", 2, !dbg", False),
        ("i32 1}", "i32 2}", False),
        ('"a"', '"b"', False),
        ("memory(read)", "memory(readwrite)", True),
        ("memory(read)", "memory(none)", False),
        ("nounwind memory", "memory", True),
        ("memory(read)", "memory(read) noreturn", False),
    ],
)
def test_less_that_is_promised_is_harmless_and_nothing_else(
    was: str, now: str, *, is_harmless: bool
) -> None:
    before = MODULE.replace("or disjoint", was) if was == "or" else MODULE
    found = differences(before, before.replace(was, now))
    assert found
    assert all(one.is_harmless for one in found) == is_harmless


def test_numbers_of_metadata_and_groups_and_text_about_the_module_do_not_count() -> None:
    numbered = MODULE.replace("!0", "!7").replace("!1", "!0").replace("#0", "#3")
    text = f'; ModuleID = "x"\ntarget triple = "y"\n{numbered}^0 = module: ()\n'
    assert differences(MODULE, text) == []


def test_the_intrinsics_that_are_called_have_a_declaration_without_attributes() -> None:
    text = (
        "declare noundef <4 x i32> @llvm.a.v4i32(<4 x i32> captures(none), ptr noalias %0) #1\n"
        "declare void @llvm.unused()\n"
        "define void @f() {\n  %x = call <4 x i32> @llvm.a.v4i32(<4 x i32> %y, ptr %z)\n}\n"
    )
    line = "declare <4 x i32> @llvm.a.v4i32(<4 x i32>, ptr)"
    assert list(intrinsics(text)) == [("llvm.a.v4i32", line)]


def test_the_page_has_the_figures_of_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(PAIRS)


def test_the_pairs_are_enough_and_the_checker_is_within_its_bounds() -> None:
    assert len(PAIRS) >= 2000
    assert {pair.read_by for pair in PAIRS} == set(range(14, 24))
    assert is_within_bounds(PAIRS)


def test_one_wrong_pair_that_is_missed_is_out_of_bounds_and_so_is_one_false_alarm() -> None:
    right = next(pair for pair in PAIRS if pair.standing is Standing.RIGHT)
    assert not is_within_bounds([*PAIRS, replace(right, outcome=Outcome.WRONG)])
    assert not is_within_bounds([*PAIRS, right.with_rules(("BC010",))])


def test_each_construct_of_text_has_an_example_in_which_it_is_found() -> None:
    examples = load_examples()
    assert list(examples) == [construct.name for construct in load_constructs()]
    for construct in load_constructs():
        release = construct.since - 1 if construct.since else construct.gone or 0
        found = {
            skew.values.get("construct")
            for skew in check_text(examples[construct.name], Consumer(release))
        }
        assert construct.name in found
