from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mlir_offload.driver.step.execute import Executor
from mlir_offload.driver.step.object_file import Members
from mlir_offload.driver.system.parallel import parallel_map, run_concurrently
from mlir_offload.toolchain.errors import InputOutputError, ToolFailedError
from mlir_offload.toolchain.process import Command, Completed


@dataclass
class RecordingRunner:
    """Records commands instead of running them; writes what the test wants written."""

    content: bytes | None = b"text"
    returncode: int = 0
    stderr: str = ""
    commands: list[Command] = field(default_factory=list)

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        assert input_text is None
        self.commands.append(command)
        if self.content is not None:
            Path(command.argv[-1]).write_bytes(self.content)
        return Completed(command, self.returncode, "", self.stderr)


def executor(
    runner: RecordingRunner, place: Path, *, dry_run: bool = False
) -> tuple[Executor, list[str]]:
    shown: list[str] = []
    return Executor(runner, shown.append, place, dry_run=dry_run), shown


def test_a_tool_works_in_a_private_directory_for_temporary_files(tmp_path: Path) -> None:
    runner = RecordingRunner()
    executor(runner, tmp_path)[0].tool(Command(("t", str(tmp_path / "o"))), tmp_path / "o")
    assert runner.commands[0].environment == (("TMPDIR", str(tmp_path)),)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("o.bc", None, "wrote no o.bc"),
        ("o.bc", b"", "o.bc is empty"),
        ("o.o", b"BC\xc0\xde", "of another kind"),
    ],
    ids=["absent", "empty", "kind"],
)
def test_exit_status_0_without_the_right_output_is_a_failure(
    tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    runner = RecordingRunner(content)
    with pytest.raises(ToolFailedError, match=reason):
        executor(runner, tmp_path)[0].tool(Command(("t", str(tmp_path / name))), tmp_path / name)


def test_options_with_which_clang_prints_instead_are_named(tmp_path: Path) -> None:
    words = ("-Xclang", "-ast-dump", "-mllvm", "-help", "-Xclang", "-ast-dump")
    with pytest.raises(ToolFailedError) as caught:
        executor(RecordingRunner(None), tmp_path)[0].tool(
            Command(("clang", *words, str(tmp_path / "a.o"))), tmp_path / "a.o"
        )
    assert "leave out '-Xclang -ast-dump' and '-mllvm -help'" in caught.value.hint


def test_a_full_disk_is_not_the_fault_of_the_program(tmp_path: Path) -> None:
    runner = RecordingRunner(
        None, 1, "error: unable to open output file: 'No space left on device'"
    )
    with pytest.raises(InputOutputError, match="No space left on device"):
        executor(runner, tmp_path)[0].tool(Command(("t", "o")), tmp_path / "o")


@pytest.mark.parametrize("status", [-25, 153], ids=["by itself", "below a shell"])
def test_a_limit_of_file_sizes_is_not_the_fault_of_the_program(tmp_path: Path, status: int) -> None:
    runner = RecordingRunner(None, status, "PLEASE submit a bug report")
    with pytest.raises(InputOutputError, match="grew over the limit") as caught:
        executor(runner, tmp_path)[0].tool(Command(("t", "o")), tmp_path / "o")
    assert caught.value.hint == "raise the limit: ulimit -f unlimited"


def test_a_dry_run_shows_all_and_runs_only_what_decides(tmp_path: Path) -> None:
    runner = RecordingRunner()
    subject, shown = executor(runner, tmp_path, dry_run=True)
    subject.tool(Command(("first", str(tmp_path / "a"))), tmp_path / "a", decides=True)
    subject.tool(Command(("second", "it's", "b")), tmp_path / "b")
    subject.step(Members(source=Path("liba.a"), output=Path("it")))
    assert [command.program for command in runner.commands] == ["first"]
    assert shown[1:] == ["second 'it'\"'\"'s' b", "mlir-offload step members liba.a -o it"]


def test_work_that_parts_share_is_done_once(tmp_path: Path) -> None:
    subject, _ = executor(RecordingRunner(), tmp_path)
    calls: list[int] = []
    tasks = [lambda: subject.once(tmp_path / "shared", lambda: calls.append(1))] * 8
    assert parallel_map(tasks) == [tmp_path / "shared"] * 8
    assert calls == [1]


def test_results_come_in_order_and_the_first_error_wins() -> None:
    later = threading.Event()

    def first() -> int:
        later.wait(10)
        return 1

    def second() -> int:
        later.set()
        return 2

    assert parallel_map([first, second]) == [1, 2]
    assert run_concurrently(lambda: "a", lambda: 2) == ("a", 2)
    with pytest.raises(ZeroDivisionError):
        parallel_map([lambda: 1 // 0, lambda: int("x")])


def test_no_work_is_done_in_no_time() -> None:
    assert parallel_map([]) == []
