"""The page of `doctor --html` in a real browser: its matrix, its colours, and text that is an attack."""

from __future__ import annotations

import json
import re
from html import escape, unescape
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.browser import browse, console, needs_browser
from support.doctor import report

from mlir_offload.driver.doctor.html import render_html

ATTACK = "<script>document.title='owned'</script>\"'><img src=x onerror=\"document.title='owned'\">"
MEASURE = """<script>
const grid = document.querySelector("table.grid");
const cells = [...grid.tBodies[0].rows].map((row) => [...row.cells].slice(1).map((cell) => [
  cell.querySelector("a").textContent, getComputedStyle(cell).backgroundColor,
  document.querySelector(cell.querySelector("a").getAttribute("href")) !== null,
]));
location.hash = "trial1";
document.body.dataset.seen = JSON.stringify({
  cells, heads: [...grid.tHead.rows[0].cells].map((cell) => cell.textContent),
  target: document.querySelector("tr:target")?.id ?? "",
  wide: document.documentElement.scrollWidth, inner: window.innerWidth,
});
</script>"""

pytestmark = needs_browser


@pytest.mark.parametrize("size", ["1280,900", "500,900"], ids=["desk", "narrow"])
def test_the_matrix_shows_each_combination_with_its_colour(size: str, tmp_path: Path) -> None:
    # The page's policy lets no script run: this copy goes without.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", render_html(report()))
    page = text.replace("</body>", MEASURE + "</body>")
    done = browse(page, tmp_path, "--dump-dom", f"--window-size={size}")
    found = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert found, done.stderr[-2000:]
    said = json.loads(unescape(found[1]))
    assert said["heads"] == ["", "LLVM 22 links", "LLVM 19 links"]
    (right, _), (refused, _) = said["cells"]
    assert right[0] == "links ★"
    assert refused[0] == "refused"
    assert right[1] != refused[1]
    assert all(leads for row in said["cells"] for _, _, leads in row)
    assert said["target"] == "trial1"
    assert said["wide"] <= said["inner"]
    assert console(done) == []


def test_what_tools_say_stays_text(tmp_path: Path) -> None:
    text = render_html(report(ATTACK))
    assert ATTACK not in text
    assert "<script" not in text
    done = browse(text, tmp_path, "--dump-dom")
    assert "<title>owned" not in done.stdout
    assert "<img" not in done.stdout
    assert console(done) == []


def test_the_page_needs_nothing_but_itself() -> None:
    text = render_html(report(ATTACK)).replace(escape(ATTACK), "")
    outside = [
        link for link in re.findall(r'<[^>]*\b(?:src|href)="?([^" >]*)', text) if link[0] != "#"
    ]
    assert outside == ["data:,"]
    assert re.findall(r"@import|url\(", text) == []
    assert "default-src 'none'" in text


def test_a_page_without_any_combination_says_so() -> None:
    empty = replace(report(), cells=(), findings=(), to_install=(), exit_status=3)
    text = render_html(empty)
    assert "incomplete" in text
    assert "Nothing is missing." in text
    assert 'class="bad"' in text
