"""The checker of skew against the real tools of LLVM 15, 16, 19 and 22, on a corpus that they write.

The whole matrix is measured by `tests/bench/skew_matrix.py`; what is measured here is a part of it that has
every rule and every kind of result.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bitcode_corpus import RELEASES
from support.bitcode_identity import identity_differences, read_identity
from support.skew_corpus import Module, all_cases, make_module
from support.skew_figures import Standing, replace_figures, standing
from support.skew_matrix import GOLDEN, measure, quick_part, read_rows
from support.skew_verdict import Outcome

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "design" / "ir-compatibility.md"
ROWS = read_rows(GOLDEN)
ALL = [pytest.mark.llvm(release) for release in RELEASES]
QUICK = [
    pytest.param(case, release, marks=ALL, id=f"{case}-{release}")
    for case, release in quick_part(ROWS)
]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the modules that this process has made."""
    return tmp_path_factory.mktemp("corpus")


@pytest.mark.parametrize(("case", "release"), QUICK)
def test_tools_and_checker_judge_a_module_as_the_table_has_it(
    case: str, release: int, corpus: Path
) -> None:
    module = make_module(all_cases()[case], release, corpus)
    assert reading_differences(module) == []
    found = {(row.form, cell.consumer): str(cell) for row in measure(module) for cell in row.cells}
    assert found == {
        (row.form, cell.consumer): str(cell)
        for row in ROWS
        if (row.module, row.producer) == (case, release)
        for cell in row.cells
    }


def reading_differences(module: Module) -> list[str]:
    """Return where our reader finds another identity in the bitcode than llvm-bcanalyzer."""
    if "bc" not in module.case.forms:
        return []
    return identity_differences(module.form("bc"), module.release)


@pytest.mark.llvm(15)
@pytest.mark.llvm(22)
@pytest.mark.parametrize(("release", "summary"), [(15, 9), (22, 12)])
def test_the_summary_for_link_time_optimisation_tells_its_version(
    release: int, summary: int, corpus: Path
) -> None:
    module = make_module(all_cases()["clang-c-thin-loops"], release, corpus)
    assert read_identity(module.form("bc")).thin_summary == summary


def test_the_table_has_every_module_of_the_corpus() -> None:
    expected = {
        (case.name, release, form)
        for case in all_cases().values()
        for release in case.releases
        for form in case.forms
    }
    assert {(row.module, row.producer, row.form) for row in ROWS} == expected


def test_what_is_silently_wrong_or_refused_by_ptxas_or_the_linker_is_caught() -> None:
    assert exceptions(Standing.MISSED, Outcome.WRONG) == set()
    assert exceptions(Standing.MISSED, Outcome.LATER) == set()


def test_no_pair_that_is_right_is_flagged() -> None:
    for outcome in (Outcome.SAME, Outcome.DIFFERS, Outcome.OTHER_ABI):
        assert exceptions(Standing.FALSE_ALARM, outcome) == set()


def exceptions(how: Standing, outcome: Outcome) -> set[str]:
    """Return the files with pairs of that result on which the checker does so."""
    return {
        f"{row.module}.{row.form}"
        for row in ROWS
        for cell in row.cells
        if cell.outcome is outcome and standing(cell) is how
    }


def test_the_figures_in_the_document_are_those_of_the_table() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert replace_figures(text, ROWS) == text
