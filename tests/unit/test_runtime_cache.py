"""Cached runtime objects, and cached versions of programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.recorded import RecordedTools

from mlir_offload.driver.compile import runtime_cache
from mlir_offload.driver.compile.runtime_cache import (
    cached_runtime,
    compile_runtime_source,
    keep_runtime,
    take_runtime,
)
from mlir_offload.driver.step.execute import Executor
from mlir_offload.driver.system import processor
from mlir_offload.driver.system import tool_watch as stamps
from mlir_offload.driver.system.processor import processor_identity
from mlir_offload.driver.system.tool_watch import knowing_versions, program_stamp
from mlir_offload.toolchain.process import Command, ProcessRunner

SOURCE = Path("/elsewhere/runtime.c")


@pytest.fixture(autouse=True)
def _settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep facts in a directory of the test; what it writes counts as settled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(stamps, "_SETTLED_NS", -1)


def program(folder: Path) -> Path:
    made = folder / "bin" / "clang"
    made.parent.mkdir(exist_ok=True)
    made.write_bytes(Path(sys.executable).read_bytes())
    made.chmod(0o755)
    return made


def command(clang: Path, *words: str, output: str = "out.o") -> Command:
    return Command((str(clang), *words, "-c", str(SOURCE), "-o", output))


def place(clang: Path, *words: str, output: str = "out.o") -> Path | None:
    return cached_runtime(command(clang, *words, output=output), SOURCE, Path(output))


def test_an_object_is_kept_for_clang_and_options_and_not_for_a_place(tmp_path: Path) -> None:
    clang = program(tmp_path)

    first = place(clang, "-DA")
    assert first is not None
    assert place(clang, "-DA", output="elsewhere.o") == first
    assert place(clang, "-DB") != first


def test_another_clang_of_the_same_name_gives_another_object(tmp_path: Path) -> None:
    clang = program(tmp_path)
    first = place(clang)
    clang.unlink()
    assert place(program(tmp_path)) != first


def test_headers_that_the_environment_names_give_another_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clang = program(tmp_path)
    first = place(clang)
    monkeypatch.setenv("CPATH", "/opt/include")
    assert place(clang) != first


def test_another_state_of_the_sources_gives_another_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clang, sources = program(tmp_path), tmp_path / "sources"
    sources.mkdir()
    (sources / "runtime.c").write_text("int a;")
    monkeypatch.setattr(runtime_cache, "runtime_include_directory", lambda: sources)
    first = place(clang)
    assert place(clang) == first
    times = (sources / "runtime.c").stat().st_mtime_ns
    (sources / "runtime.c").write_text("int b;")
    os.utime(sources / "runtime.c", ns=(times, times))
    second = place(clang)
    assert second != first
    (sources / "more.h").write_text("")
    assert place(clang) not in {first, second}


def test_no_object_is_kept_for_sources_that_may_still_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_cache, "is_settled", lambda _: False)
    assert place(program(tmp_path)) is None


def test_a_kept_object_is_taken_as_it_was(tmp_path: Path) -> None:
    made, kept, taken = tmp_path / "made.o", tmp_path / "cache" / "a.o", tmp_path / "taken.o"
    made.write_bytes(b"\x7fELF object")

    assert not take_runtime(kept, taken)
    keep_runtime(made, kept)
    assert take_runtime(kept, taken)
    assert taken.read_bytes() == made.read_bytes()


def test_an_object_is_compiled_once_and_again_if_another_command_makes_it(tmp_path: Path) -> None:
    tools = RecordedTools(tmp_path)
    clang, output = program(tmp_path), tmp_path / "out.o"
    executor = Executor(tools, print, tmp_path)
    made = []
    for words in ((), (), ("-DA",)):
        tools.outputs = {"out.o": b"\x7fELF run %d" % len(tools.commands)}
        asked = command(clang, *words, output=str(output))
        compile_runtime_source(executor, asked, SOURCE, output)
        made.append(output.read_bytes())
    assert made == [b"\x7fELF run 0", b"\x7fELF run 0", b"\x7fELF run 1"]


def test_a_dry_run_takes_nothing_from_the_cache(tmp_path: Path) -> None:
    clang, output = program(tmp_path), tmp_path / "out.o"
    shown: list[str] = []
    asked = command(clang, output=str(output))
    compile_runtime_source(
        Executor(RecordedTools(tmp_path), print, tmp_path), asked, SOURCE, output
    )
    dry = Executor(RecordedTools(tmp_path), shown.append, tmp_path, dry_run=True)
    compile_runtime_source(dry, asked, SOURCE, output)
    assert [line.split()[0] for line in shown] == [str(clang)]


def test_a_damaged_object_is_not_taken(tmp_path: Path) -> None:
    made, kept, taken = tmp_path / "made.o", tmp_path / "cache" / "a", tmp_path / "taken.o"
    made.write_bytes(b"\x7fELF object")
    keep_runtime(made, kept)
    damaged = bytearray(kept.read_bytes())
    damaged[4] ^= 1
    for content in (bytes(damaged), kept.read_bytes()[:7], b""):
        kept.write_bytes(content)
        assert not take_runtime(kept, taken)
    assert not taken.exists()


def test_code_for_this_processor_is_not_taken_on_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clang = program(tmp_path)
    native, named = place(clang, "-march=native"), place(clang, "-march=x86-64")
    (tmp_path / "cpuinfo").write_text("model : 1\nflags : sse2\n")
    monkeypatch.setattr(processor, "_CPU_INFO", tmp_path / "cpuinfo")
    processor_identity.cache_clear()
    assert place(clang, "-march=native") != native
    assert place(clang, "-march=x86-64") == named
    processor_identity.cache_clear()


def test_the_oldest_objects_are_removed(tmp_path: Path) -> None:
    made, folder = tmp_path / "made.o", tmp_path / "cache"
    made.write_bytes(b"object")
    for number in range(70):
        keep_runtime(made, folder / f"{number}")
        os.utime(folder / f"{number}", (number, number))
    keep_runtime(made, folder / "last")

    names = {path.stem for path in folder.iterdir()}
    assert len(names) == 64
    assert {"69", "last"} <= names
    assert "0" not in names


def test_a_cache_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    made = tmp_path / "made.o"
    made.write_bytes(b"object")
    keep_runtime(made, made / "below" / "a.o")
    assert not take_runtime(made / "below" / "a.o", tmp_path / "taken.o")


def test_a_script_is_asked_for_its_version_each_time(tmp_path: Path) -> None:
    script, log = tmp_path / "tool", tmp_path / "log"
    script.write_text(f"#!/bin/sh\necho asked >> {log}\necho version 1\n")
    script.chmod(0o755)
    runner = knowing_versions(ProcessRunner())

    for _ in range(2):
        runner.run(Command((str(script), "--version")))
    assert log.read_text().count("asked") == 2
    assert not program_stamp(script)


def test_a_program_is_asked_for_its_version_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Command] = []
    run = ProcessRunner.run

    def noting(self: ProcessRunner, command: Command, **named: str | None) -> object:
        started.append(command)
        return run(self, command, **named)

    monkeypatch.setattr(ProcessRunner, "run", noting)
    tool = program(tmp_path)
    runner = knowing_versions(ProcessRunner())
    asked = Command((str(tool), "--version"))

    answers = {runner.run(asked).stdout for _ in range(3)}
    assert len(answers) == 1
    assert len(started) == 1
    runner.run(Command((str(tool), "-c", "pass")))
    assert len(started) == 2
