"""The timeline of a build as a page, in a real browser: bars where the steps were, attacks as text."""

from __future__ import annotations

import json
import re
from html import escape, unescape
from pathlib import Path, PurePosixPath

import pytest
from support.browser import browse, console, needs_browser

from mlir_offload.driver.project.page import render_page
from mlir_offload.driver.project.planned_step import ProjectStep
from mlir_offload.driver.project.report import BuildRecord
from mlir_offload.driver.project.run import StepOutcome, StepResult
from mlir_offload.driver.step.action import Action

ATTACK = "<script>document.title='owned'</script>\"'><img src=x onerror=\"document.title='owned'\">"
OPTIONS = ("--window-size=1280,900", "--dump-dom")
MEASURE = """<script>
const time = document.getElementById("time"), zoom = document.getElementById("zoom");
const place = (node) => {
  const box = node.getBoundingClientRect(), all = time.getBoundingClientRect();
  return [(box.left - all.left) / all.width, box.width / all.width, box.top - all.top];
};
const bars = [...document.querySelectorAll(".s")];
const before = bars.map(place);
const rows = () => [...document.querySelectorAll("#steps tbody tr")].filter((row) => !row.hidden);
const times = () => rows().map((row) => row.cells[3].textContent);
document.querySelectorAll("#steps th button")[3].click();
const sorted = times();
bars[1].click();
const chosen = document.querySelector("tr.chosen").cells[0].textContent;
const filter = document.getElementById("filter");
filter.value = "SM_90";
filter.dispatchEvent(new Event("input"));
const filtered = rows().length;
zoom.value = 2;
zoom.dispatchEvent(new Event("input"));
document.body.dataset.seen = JSON.stringify({
  before, sorted, chosen, filtered, wide: time.clientWidth / document.getElementById("view").clientWidth,
  fits: document.documentElement.scrollWidth <= window.innerWidth,
});
</script>"""

pytestmark = needs_browser


def result(kind: str, start: float, duration: float, lane: int, name: str = "a.mlir") -> StepResult:
    path = PurePosixPath(name)
    action = Action((), (path,), (path,), "id")
    step = ProjectStep(kind, path, "default", action, arch="sm_90" * (kind == "device"))
    return StepResult(step, StepOutcome.BUILT, start, duration, lane)


def page() -> str:
    failed = StepResult(
        result("join", 0, 0, 0, ATTACK).step, StepOutcome.FAILED, 3.0, 0.5, 1, 5, ATTACK
    )
    skipped = StepResult(result("link", 0, 0, 0, "app").step, StepOutcome.SKIPPED)
    steps = (result("split", 0, 1, 0), result("device", 1, 2, 1), failed, skipped)
    return render_page(BuildRecord(Path(ATTACK), 0.0, 4.0, 2, steps))


def test_bars_lie_where_the_steps_were_and_the_page_works(tmp_path: Path) -> None:
    # The page's policy lets no other script run: this copy goes without.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page())
    done = browse(text.replace("</body>", MEASURE + "</body>"), tmp_path, *OPTIONS)
    found = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert found, done.stderr[-2000:]
    seen = json.loads(unescape(found[1]))
    expected = [(0.0, 0.25, 2), (0.25, 0.5, 28), (0.75, 0.125, 28)]
    assert len(seen["before"]) == len(expected)
    for bar, (left, width, top) in zip(seen["before"], expected, strict=True):
        assert bar == [pytest.approx(left, abs=0.002), pytest.approx(width, abs=0.002), top]
    assert seen["sorted"] == ["", "0.500", "1.000", "2.000"]
    assert seen["chosen"] == "device sm_90 a.mlir [default]"
    assert (seen["filtered"], seen["wide"]) == (1, pytest.approx(4, rel=0.01))
    assert seen["fits"]
    assert console(done) == []


def test_names_and_messages_that_are_attacks_stay_text(tmp_path: Path) -> None:
    text = page()
    assert ATTACK not in text
    assert text.count("<script") == 1
    done = browse(text, tmp_path, *OPTIONS)
    assert "<title>owned" not in done.stdout
    assert "<img" not in done.stdout
    assert console(done) == []
    rest = text.replace(escape(ATTACK), "")
    assert re.findall(r'<[^>]*\b(?:src|href)="?([^" >]*)', rest) == ["data:,"]
