"""The order of steps, rebuilds, and recovery from a kill at any time.

The steps in these tests copy files; the build log and the files are real.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import pytest
from msgspec.structs import replace

from mlir_offload.driver.project import stamp
from mlir_offload.driver.project.file import Project, Setting
from mlir_offload.driver.project.graph import ProjectGraph
from mlir_offload.driver.project.planned_step import ProjectStep
from mlir_offload.driver.project.run import ProjectRun, StepEnd, StepOutcome, StepResult
from mlir_offload.driver.project.stamp import FileStamps
from mlir_offload.driver.project.state import ProjectState, open_state
from mlir_offload.driver.step.action import Action
from mlir_offload.driver.system.workspace import open_output

MODULES = 3
_YEAR_3000_NS = 32_503_680_000 * 10**9


class KilledError(Exception):
    """Stands for SIGKILL: nothing that follows happens."""


@dataclass(slots=True)
class CopyEngine:
    """Writes the contents of a step's inputs, one behind the other, into its output."""

    root: Path
    lanes: int = 1
    splits_modules: bool = False
    failing: frozenset[str] = frozenset()
    moments: int = -1
    ran: list[str] = field(default_factory=list)

    def cancel(self) -> None:
        pass

    def run(self, step: ProjectStep, jobs: int = 1) -> StepEnd:
        del jobs
        self.moment()
        self.ran.append(str(step.action.outputs[0]))
        if str(step.action.outputs[0]) in self.failing:
            return StepEnd(5, "it failed")
        content = b"".join((self.root / path).read_bytes() for path in step.action.inputs)
        with open_output(self.root / step.action.outputs[0]) as descriptor:
            os.write(descriptor, content + b".")
        self.moment()
        return StepEnd(0)

    def moment(self) -> None:
        self.moments -= 1
        if self.moments == -1:
            raise KilledError


def step(output: str, *inputs: str, flag: str = "") -> ProjectStep:
    paths = tuple(map(PurePosixPath, inputs))
    action = Action((flag,), paths, (PurePosixPath(output),), "id")
    return ProjectStep("join", paths[0], "default", action)


def graph_in(root: Path, flag: str = "") -> ProjectGraph:
    project = Project(root / "offload.yaml", root, PurePosixPath("out"), Setting(), (), (), ())
    steps = []
    for number in range(MODULES):
        steps.append(step(f"out/{number}.a", f"{number}.in"))
        steps.append(step(f"out/{number}.o", f"out/{number}.a", flag=flag))
    objects = [f"out/{number}.o" for number in range(MODULES)]
    return ProjectGraph(project, (*steps, step("out/all", *objects)))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    for number in range(MODULES):
        (tmp_path / f"{number}.in").write_text(f"input {number}")
    return tmp_path


def build(
    root: Path,
    engine: CopyEngine | None = None,
    *,
    keeps_going: bool = False,
    graph: ProjectGraph | None = None,
) -> tuple[list[str], list[StepResult]]:
    """Return the outputs of the steps that ran, in order, and all results."""
    engine = engine or CopyEngine(root)
    with open_state(root, root / "out") as state:
        run = ProjectRun(
            graph or graph_in(root), state, engine, lambda _: None, lambda _: None, keeps_going
        )
        return engine.ran, run.run()


def outputs(root: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted((root / "out").iterdir())
        if not path.name.startswith(".")
    }


def test_every_step_runs_once_behind_those_it_needs(root: Path) -> None:
    ran, results = build(root, CopyEngine(root, lanes=3))
    assert sorted(ran) == sorted(str(item.action.outputs[0]) for item in graph_in(root).steps)
    assert {result.outcome for result in results} == {StepOutcome.BUILT}
    assert (root / "out" / "all").read_bytes() == b"input 0..input 1..input 2..."
    assert build(root)[0] == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda root: (root / "1.in").write_text("another"), ["out/1.a", "out/1.o", "out/all"]),
        (lambda root: (root / "1.in").write_text("INPUT 1"), ["out/1.a", "out/1.o", "out/all"]),
        (lambda root: os.utime(root / "1.in"), []),
        (lambda root: os.utime(root / "1.in", ns=(1, 1)), []),
        (lambda root: os.utime(root / "out" / "1.a", ns=(1 << 62, 1 << 62)), []),
        # A lost output is made again with the same content, so that dependent steps are not repeated.
        (lambda root: (root / "out" / "1.a").unlink(), ["out/1.a"]),
        (lambda root: (root / "out" / "1.o").write_text("damaged"), ["out/1.o"]),
        (lambda root: (root / "out" / ".mlir-offload-state").write_bytes(b"\xff\n{"), None),
        (lambda root: (root / "out" / ".mlir-offload-state").unlink(), None),
    ],
    ids=["input", "input of one size", "touched", "clock back", "output of the future", "output lost",
         "output damaged", "journal damaged", "journal lost"],
)  # fmt: skip
def test_only_what_changed_is_built_again(
    change: object, expected: list[str] | None, root: Path
) -> None:
    assert callable(change)
    every, _ = build(root)
    change(root)
    ran, _ = build(root)
    assert ran == (every if expected is None else expected)
    assert build(root)[0] == []


@pytest.mark.parametrize("time_ns", [1, None], ids=["an older time", "the very same time"])
def test_a_change_of_content_is_seen_whatever_the_time_of_the_file(
    time_ns: int | None, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long after the files were written, so that from now on only their times are compared.
    monkeypatch.setattr(time, "time_ns", lambda: _YEAR_3000_NS)
    every, _ = build(root)
    assert build(root)[0] == []
    before = (root / "1.in").stat().st_mtime_ns if time_ns is None else time_ns
    (root / "1.in").write_text("INPUT 1")
    os.utime(root / "1.in", ns=(before, before))
    assert build(root)[0] == [name for name in every if name in {"out/1.a", "out/1.o", "out/all"}]


def test_a_flag_that_changed_repeats_its_steps_only(root: Path) -> None:
    build(root)
    ran, _ = build(root, graph=graph_in(root, flag="-O3"))
    # Their outputs are unchanged, so that dependent steps do not run.
    assert ran == ["out/0.o", "out/1.o", "out/2.o"]


def test_after_a_failure_nothing_new_starts(root: Path) -> None:
    ran, results = build(root, CopyEngine(root, failing=frozenset({"out/0.a"})))
    assert ran == ["out/0.a"]
    assert results[0].exit_status == 5
    assert {result.outcome for result in results[1:]} == {StepOutcome.SKIPPED}


def test_keep_going_does_all_that_does_not_need_what_failed(root: Path) -> None:
    engine = CopyEngine(root, failing=frozenset({"out/0.a"}))
    ran, results = build(root, engine, keeps_going=True)
    assert sorted(ran) == ["out/0.a", "out/1.a", "out/1.o", "out/2.a", "out/2.o"]
    skipped = [str(r.step.action.outputs[0]) for r in results if r.outcome is StepOutcome.SKIPPED]
    assert skipped == ["out/0.o", "out/all"]
    assert build(root)[0] == ["out/0.a", "out/0.o", "out/all"]


@pytest.mark.parametrize("moment", range(2 * (2 * MODULES + 1)))
def test_a_build_killed_between_any_two_steps_goes_on_from_there(moment: int, root: Path) -> None:
    build(root)
    whole = outputs(root)
    for path in (root / "out").iterdir():
        path.unlink()
    first = CopyEngine(root, moments=moment)
    with pytest.raises(KilledError):
        build(root, first)
    again, _ = build(root)
    assert outputs(root) == whole
    # At most the step that ran at the time of the kill is repeated.
    assert len(set(first.ran) & set(again)) <= 1
    assert set(first.ran) | set(again) == {f"out/{name}" for name in whole}


def test_a_journal_cut_off_anywhere_costs_no_more_than_a_step(root: Path) -> None:
    build(root)
    whole, journal = outputs(root), root / "out" / ".mlir-offload-state"
    text = journal.read_bytes()
    lines = text.count(b"\n")
    seeded = random.Random(6)  # noqa: S311 (the same places each time)
    for length in sorted({0, 1, len(text) - 1, *seeded.sample(range(len(text)), 60)}):
        journal.write_bytes(text[:length])
        ran, _ = build(root)
        assert outputs(root) == whole
        assert len(ran) <= lines - text[:length].count(b"\n")
        assert build(root)[0] == []


def test_the_journal_does_not_grow_for_ever(root: Path) -> None:
    journal = root / "out" / ".mlir-offload-state"
    build(root)
    record = journal.read_text().splitlines(keepends=True)[-1]
    with journal.open("a") as stream:
        stream.write(record * 2000)
    assert build(root)[0] == []
    assert len(journal.read_text().splitlines()) < 400


def test_an_input_changed_while_its_step_runs_is_compiled_again(root: Path) -> None:
    @dataclass(slots=True)
    class Editor(CopyEngine):
        def run(self, step: ProjectStep, jobs: int = 1) -> StepEnd:
            end = CopyEngine.run(self, step, jobs)
            if str(step.action.outputs[0]) == "out/0.a":
                (self.root / "0.in").write_text("edited!")
            return end

    build(root, Editor(root))
    assert build(root)[0] == ["out/0.a", "out/0.o", "out/all"]
    assert (root / "out" / "all").read_bytes().startswith(b"edited!..")


def test_files_named_by_a_depfile_are_inputs(root: Path) -> None:
    header = root / "a header.h"
    header.write_text("one")
    os.utime(header, ns=(1, 1))
    (root / "out" / "d").write_text("out/0.a: 0.in \\\n  a\\ header.h\na\\ header.h:\n")
    base = graph_in(root)
    action = replace(base.steps[0].action, depfile=PurePosixPath("out/d"))
    noting = replace(base.steps[0], action=action)
    graph = ProjectGraph(base.project, (noting, *base.steps[1:]))
    build(root, graph=graph)
    assert build(root, graph=graph)[0] == []
    header.write_text("two")
    assert build(root, graph=graph)[0] == ["out/0.a"]


@pytest.mark.parametrize(
    ("found", "new", "runs"),
    [
        ("inc/sys/v.h", "first/sys/v.h", True),
        ("inc/sys/v.h", "first/v.h", True),
        ("inc/v.h", "v.h", True),
        ("inc/v.h", "inc/deep/v.h", False),
        ("inc/v.h", "first/w.h", False),
        ("inc/libq.a", "inc/libq.so", True),
    ],
)
def test_a_new_file_that_a_search_may_find_first_is_an_input(
    found: str, new: str, root: Path, monkeypatch: pytest.MonkeyPatch, *, runs: bool
) -> None:
    monkeypatch.setattr(stamp, "_SETTLED_NS", -(1 << 62))
    for path in (found, new):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / found).write_text("one")
    os.utime(root / found, ns=(1, 1))
    (root / "out" / "d").write_text(f"out/0.a: 0.in {found}\n")
    base = graph_in(root)
    folders = (PurePosixPath(), PurePosixPath("first"), PurePosixPath("inc"))
    action = replace(base.steps[0].action, depfile=PurePosixPath("out/d"), folders=folders)
    graph = ProjectGraph(base.project, (replace(base.steps[0], action=action), *base.steps[1:]))
    build(root, graph=graph)
    with open_state(root, root / "out") as state:
        looked_at = state.settled(graph.steps)
    # A build with nothing to do compares only these.
    assert looked_at is not None
    assert not runs or str(PurePosixPath(new).parent) in looked_at
    assert build(root, graph=graph)[0] == []
    (root / new).write_text("two")
    assert build(root, graph=graph)[0] == (["out/0.a"] if runs else [])


def test_a_second_build_waits_for_the_first(root: Path) -> None:
    import fcntl

    with (
        open_state(root, root / "out"),
        (root / "out" / ".mlir-offload-lock").open("rb") as lock,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_record_of_another_form_counts_for_nothing(root: Path) -> None:
    journal = root / "out" / ".mlir-offload-state"
    rows = [
        "[]",
        "1",
        '["out/0.a", 1, {}, []]',
        '["out/0.a", "s", {"f": [1]}, []]',
        "[" * 100_000,
        '{"a":',
    ]
    journal.write_text("\n".join(["mlir-offload state 3", *rows, ""]))
    state = ProjectState(root / "out", FileStamps(root))
    state.load()
    assert not any(state.is_current(item) for item in graph_in(root).steps)
