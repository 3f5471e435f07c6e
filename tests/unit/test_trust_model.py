"""The page on trust: the tests that its claims name exist; tests that fit no other file are here."""

from __future__ import annotations

import contextlib
import re
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlir_offload.driver.bundle.link import link_bundles
from mlir_offload.driver.message.journal import Journal
from mlir_offload.driver.project.state import open_state
from mlir_offload.driver.reproduce import reproducer
from mlir_offload.offload.container import mob_archive
from mlir_offload.offload.container.mob_archive import MobMember, read_archive, serialize_archive
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import InputOutputError, MlirOffloadError, VerificationError
from mlir_offload.toolchain.process import Command, Completed

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "design" / "trust.md"


def test_each_claim_has_its_test() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    claims = [row for row in rows if not row.startswith("| claim")]
    assert len(claims) > 20
    for claim in claims:
        named = re.search(r"\| `(?P<file>\w+\.py)::(?P<test>\w+)` \|$", claim)
        assert named is not None, claim
        (file,) = (ROOT / "tests").rglob(named["file"])
        assert f"def {named['test']}(" in file.read_text(), claim


class Recorder:
    """Remembers what would have been run."""

    def __init__(self) -> None:
        self.programs: list[str] = []

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        del input_text
        self.programs.append(command.argv[0])
        return Completed(command, 1, "", "")


def test_linking_a_bundle_runs_no_program_of_it(tmp_path: Path) -> None:
    members = {"link.sh": MobMember(b"#!/bin/sh\ntouch /tmp/ran\n", is_program=True)}
    bundle = tmp_path / "b.mob"
    bundle.write_bytes(serialize_archive("b", members))
    runner = Recorder()
    with pytest.raises(MlirOffloadError):
        link_bundles([str(bundle), "-o", str(tmp_path / "out")], runner)
    assert runner.programs == []


def test_a_bundle_has_a_bounded_number_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mob_archive, "_MOST_MEMBERS", 3)
    four = {f"file{number}": MobMember(b"") for number in range(4)}
    with pytest.raises(VerificationError, match="too many files"):
        read_archive(memory_view(serialize_archive("b", four)))


@given(st.text(alphabet="ab./-~", min_size=1, max_size=12))
def test_a_reproducer_unpacks_below_its_directory(name: str) -> None:
    content = reproducer(["-c", f"{name}.mlir"], Journal(), Recorder(), {})
    import io

    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            assert member.isreg() or member.isdir()
            path = Path("/", member.name)
            assert member.name.startswith("reproduce")
            assert ".." not in path.parts


@pytest.mark.parametrize("name", [".mlir-offload-state", ".mlir-offload-lock"])
def test_the_state_of_a_project_is_not_written_through_a_link(name: str, tmp_path: Path) -> None:
    build, elsewhere = tmp_path / "build", tmp_path / "elsewhere"
    build.mkdir()
    elsewhere.write_text("kept\n")
    (build / name).symlink_to(elsewhere)
    with contextlib.suppress(InputOutputError), open_state(tmp_path, build) as state:
        state._append("a line\n")
    assert elsewhere.read_text() == "kept\n"
