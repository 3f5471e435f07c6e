"""The pages: their links are valid, and the source files that they mention exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)\s#]*)(?:#([^)\s]+))?\)")
SOURCE = re.compile(r"`((?:toolchain|offload|translate|driver|docs|tests)/[\w./]+\.\w+)`")


def anchors(page: Path) -> set[str]:
    """Return the names of a page's headings as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    for name, anchor in LINK.findall(page.read_text()):
        target = page.parent / name if name else page
        assert target.exists(), name
        assert not anchor or anchor in anchors(target), (name, anchor)


def test_the_files_that_a_contributor_changes_exist() -> None:
    named = SOURCE.findall((ROOT / "docs" / "contributing.md").read_text())
    placeholders = re.compile(r"KIND|NAME")
    missing = {one for one in named if not placeholders.search(one) and not (ROOT / one).is_file()}
    assert len(named) > 40
    assert not missing


def test_the_readme_fits_two_screens_and_names_both_commands_of_a_fresh_machine() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 100
    commands = [line.split("#")[0].strip() for line in lines if line.startswith("    sh ")]
    assert commands == ["sh docs/try.sh", "sh tests/run.sh"]
    assert all((ROOT / command.split()[1]).is_file() for command in commands)
