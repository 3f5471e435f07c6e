"""Every output for every target: whole, the same each time, and right after a build was killed.

The suite has a few of the pairs with few kernels; `make stress` has all of them with many.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
from support.output_table import (
    OUTPUTS,
    SOURCE,
    Cell,
    all_cells,
    diagonal,
    manifest_text,
    program_text,
)
from support.stress import FACTOR

pytestmark = [pytest.mark.llvm(22), pytest.mark.soak]
CELLS = all_cells() if FACTOR > 1 else diagonal()
KERNELS = 100 if FACTOR > 1 else 12
# The signal comes behind so many of the lines that -v prints.
LINES = (0, 1, 3, 6, 10, 15)
SIGNALS = (signal.SIGTERM, signal.SIGKILL)
READ_BY_INSPECT = (".o", ".so", ".mob", ".a", "")


class Workshop:
    """A directory in which a cell of the table is made."""

    def __init__(self, place: Path, cell: Cell, rocm: Path, seed: int) -> None:
        self.place = place
        self.output = OUTPUTS[cell.output]
        self.file = place / self.output.file
        self.temporary = place.with_name(f"{place.name}-temporary")
        self._archs = (f"--offload-arch={cell.target}", f"--rocm-path={rocm}")
        # Python's sets have another order in each place.
        self._environment = {
            **os.environ, "TMPDIR": str(self.temporary), "PYTHONHASHSEED": str(seed), "SOURCE_DATE_EPOCH": "1000000",
        }  # fmt: skip
        for folder in (self.temporary, place / "out"):
            folder.mkdir(parents=True)
        (place / SOURCE).write_text(program_text(KERNELS))
        (place / "offload.yaml").write_text(manifest_text(cell.target))

    def commands(self, driver: Sequence[str]) -> list[list[str]]:
        return [[*driver, *words, *self._options(words)] for words in self.output.commands]

    def _options(self, words: Sequence[str]) -> Sequence[str]:
        if words[0] in {"build", "inspect"}:
            return ()
        return self._archs[:1] if words[0] == "bundle" else self._archs

    def start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*command, "-v"] if "inspect" not in command else command,
            cwd=self.place,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def make(self, driver: Sequence[str]) -> bytes:
        for command in self.commands(driver):
            self.run(command)
        return self.file.read_bytes()

    def run(self, command: Sequence[str]) -> None:
        child = self.start(command)
        said = child.communicate(timeout=600)[1]
        assert child.returncode == 0, said

    def temporary_files(self) -> list[Path]:
        return [*self.temporary.iterdir(), *self.place.rglob("*.tmp")]

    def interrupt(self, driver: Sequence[str], line: int, number: signal.Signals) -> None:
        """Send a signal to the last command behind a line that it prints, with all that it started."""
        *before, last = self.commands(driver)
        for command in before:
            self.run(command)
        child = self.start(last)
        assert child.stderr is not None
        with child.stderr as printed:
            list(islice(printed, line))
            if number == signal.SIGKILL:
                os.killpg(child.pid, number)
            else:
                child.send_signal(number)
            said = printed.read()
        assert child.wait() in {0, 130, -number}, said


@pytest.mark.parametrize("cell", CELLS, ids="-".join)
def test_an_output_is_whole_the_same_each_time_and_right_after_a_signal(
    cell: Cell,
    tmp_path: Path,
    fresh_mlir_offload: list[str],
    mlir_offload: list[str],
    rocm_recorder: Path,
) -> None:
    at = all_cells().index(cell)
    line, number = LINES[at % len(LINES)], SIGNALS[at // 4 % 2]
    first = Workshop(tmp_path / "a", cell, rocm_recorder, 1)
    made = first.make(fresh_mlir_offload)
    found = contents(first.file, mlir_offload)
    assert [n for n in range(KERNELS) if first.output.names.format(n) not in found] == []

    other = Workshop(tmp_path / "a longer name", cell, rocm_recorder, 2)
    other.interrupt(fresh_mlir_offload, line, number)
    if number == signal.SIGTERM:
        assert other.temporary_files() == []
    # A file that has an output's name is that output.
    assert not other.file.exists() or other.file.read_bytes() == made
    assert other.make(fresh_mlir_offload) == made
    assert other.temporary_files() == []


def contents(file: Path, driver: Sequence[str]) -> str:
    """Return a text that names all there is in an output."""
    if file.suffix not in READ_BY_INSPECT:
        return file.read_text(encoding="utf-8", errors="replace")
    argv = [*driver, "inspect", "--json", str(file)]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_the_few_have_every_output_and_every_target() -> None:
    for field in range(2):
        assert {cell[field] for cell in diagonal()} == {cell[field] for cell in all_cells()}
