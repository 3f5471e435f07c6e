from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mlir_offload.driver.system.file_identity import content_identity, program_identities
from mlir_offload.driver.system.memo import Memo
from mlir_offload.driver.system.workspace import user_cache
from mlir_offload.driver.tools.toolchain_id import RememberingRunner, ToolchainIdentity, own_sources
from mlir_offload.toolchain.errors import InputOutputError, ToolchainError
from mlir_offload.toolchain.process import Command, Completed

LLVM = Path("/usr/lib/llvm-22/bin")


ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def memo(tmp_path: Path) -> Memo:
    return Memo(tmp_path / "facts")


@pytest.mark.llvm(22)
@pytest.mark.parametrize("tool", ["clang", "mlir-opt", "mlir-translate", "opt"])
def test_a_program_is_named_by_its_build_id(tool: str, memo: Memo) -> None:
    notes = subprocess.run(
        ["readelf", "-n", LLVM / tool], capture_output=True, text=True, check=True
    ).stdout
    build_id = re.findall(r"Build ID: (\w+)", notes)

    assert [content_identity(LLVM / tool, memo)] == [f"build-id:{text}" for text in build_id]


@pytest.mark.llvm(22)
def test_the_libraries_of_a_program_belong_to_it(memo: Memo) -> None:
    names = {file.name for file in program_identities([("mlir-opt", LLVM / "mlir-opt")], (), memo)}

    assert names == {"mlir-opt", "libMLIR.so.22.1", "libLLVM.so.22.1"}


@pytest.mark.llvm(22)
def test_a_library_that_is_not_found_is_an_error(tmp_path: Path, memo: Memo) -> None:
    program = tmp_path / "bin" / "clang"
    program.parent.mkdir()
    content = (LLVM / "clang").read_bytes()
    program.write_bytes(content.replace(b"libclang-cpp.so", b"libclang-xyz.so"))

    with pytest.raises(ToolchainError, match=r"needs libclang-xyz\.so"):
        program_identities([("clang", program)], (), memo)


def test_what_has_no_build_id_is_named_by_its_bytes(tmp_path: Path, memo: Memo) -> None:
    script, copy = tmp_path / "tool", tmp_path / "copy"
    script.write_text("#!/bin/sh\n")
    shutil.copy(script, copy)
    before = content_identity(script, memo)
    assert before == content_identity(copy, memo)
    assert before.startswith("sha256:")

    script.write_text("#!/bin/ksh\n")

    assert content_identity(script, memo) != before
    with pytest.raises(InputOutputError):
        content_identity(tmp_path / "none", memo)


def test_a_file_with_old_times_and_new_bytes_is_another(tmp_path: Path, memo: Memo) -> None:
    file = tmp_path / "ptxas"
    file.write_bytes(b"one")
    first = content_identity(file, memo)
    status = file.stat()

    file.write_bytes(b"two")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert content_identity(file, memo) != first


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[1, 2]", b'["s", "t", 5]', b"[" * 100_000], ids=range(6)
)
def test_a_damaged_fact_counts_as_none(tmp_path: Path, memo: Memo, content: bytes) -> None:
    memo.keep("s", "t", "fact")
    assert memo.find("s", "t") == "fact"
    assert memo.find("s", "other") is None

    (file,) = (tmp_path / "facts").iterdir()
    file.write_bytes(content)

    assert memo.find("s", "t") is None


def test_where_nothing_can_be_kept_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    memo = Memo(tmp_path / "file" / "facts")

    memo.keep("s", "t", "fact")

    assert memo.find("s", "t") is None
    assert user_cache({"HOME": "/h"}) == Path("/h/.cache/mlir-offload")
    assert user_cache({"HOME": "/h", "XDG_CACHE_HOME": "/x"}) == Path("/x/mlir-offload")
    assert not user_cache({}).parent.is_dir()


@dataclass
class CountingRunner:
    """Answers every call and counts them."""

    calls: list[Command] = field(default_factory=list)

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        assert input_text is None
        self.calls.append(command)
        return Completed(command, 0, "tool 1.2.3", "")


def test_a_tool_is_asked_for_its_version_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tool = tmp_path / "tool"
    tool.write_text("one")
    counting = CountingRunner()
    runner = RememberingRunner(counting)
    asked = Command((str(tool), "--version"))

    answers = [runner.run(asked).stdout for _ in range(3)]
    assert answers == ["tool 1.2.3"] * 3
    assert len(counting.calls) == 1

    tool.write_text("two")
    runner.run(asked)
    assert len(counting.calls) == 2
    runner.run(Command((str(tool), "x")))
    runner.run(Command((str(tool), "x")))
    assert len(counting.calls) == 4


def test_an_identity_depends_on_every_file(tmp_path: Path, memo: Memo) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)

    def identity() -> str:
        files = program_identities([(name, tmp_path / name) for name in ("a", "b")], (), memo)
        return str(ToolchainIdentity(files))

    before = identity()
    assert re.fullmatch(r"[0-9a-f]{32}", before)
    (tmp_path / "b").write_text("c")
    assert identity() != before


def test_every_source_of_ours_belongs_to_the_toolchain() -> None:
    kinds = {".py", ".yaml", ".c", ".h"}
    sources = {
        str(path.relative_to(ROOT))
        for folder in ("driver", "offload", "toolchain", "translate")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in kinds and "__pycache__" not in path.parts
    }
    assert sorted(own_sources(str(ROOT))) == sorted(sources)
