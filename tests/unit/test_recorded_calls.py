"""Complete invocations with recorded tools: every command line, without running any tool.

After an intended change, `RECORD_CALLS=1 python -m pytest tests/unit/test_recorded_calls.py`
writes the expected lines again.
"""

from __future__ import annotations

import gc
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from support.recorded import EVERY_KIND, PROGRAM, RECORDED, RecordedTools, record
from support.unpack import unpack

from mlir_offload import driver
from mlir_offload.driver import cli
from mlir_offload.toolchain.errors import CompatibilityError, UsageError

CALLS = {
    "every-kind": (EVERY_KIND, "-nogpulib", "-c", "-o", "scale.o"),
    "link-cuda": ("--offload-arch=sm_90", "-o", "scale", "-g", "-O3"),
    "link-cpu": ("--offload-arch=host", "-o", "scale", "-shared", "-fPIC"),
    "final-object": ("--offload-arch=sm_90", "-fno-gpu-rdc", "-c", "-o", "scale.o"),
    "llvm-ir": ("--offload-arch=gfx90a,host", "-nogpulib", "-S", "-emit-llvm", "-o", "scale.ll"),
    "older-consumer": ("--offload-arch=sm_90", "--for-clang=19", "-c", "-o", "scale.o"),
    "sanitizer": ("--offload-arch=host", "-fsanitize=address", "-c", "-o", "scale.o"),
    "ptx-alone": ("--offload-arch=sm_90", "--offload-device-only", "-S", "-o", "scale.ptx"),
    "header": ("--emit-header=scale.h", "-c", "--offload-arch=host", "-MD", "-o", "scale.o"),
    "cuda-cpp": ("launch.cu", "--offload-arch=sm_90,host", "-O1", "-g", "-o", "scale"),
    "hip-cpp": ("launch.hip", "--offload-arch=gfx90a", "-nogpulib", "-c"),
    "runtime-inside": ("--offload-arch=sm_90", "--embed-runtime", "-c", "-o", "scale.o"),
    "preprocessed": ("call.c", "--offload-arch=host", "-E"),
    "rule": ("call.c", "--offload-arch=host", "-M"),
    "checked": ("call.c", "-fsyntax-only"),
    "cpu-alone": ("--offload-arch=host,gfx90a", "-nogpulib", "--offload-device-only"),
    "finished-code": ("--offload-arch=sm_90", "-c", "--device-code=object", "-o", "scale.o"),
    "kept-ptx": ("--offload-arch=sm_80,sm_90", "--cuda-include-ptx=all", "-fno-gpu-rdc", "-c"),
    "relocatable": ("--offload-arch=sm_90", "-fno-gpu-rdc", "-S", "-emit-llvm", "-o", "scale.ll"),
    "gpu-rdc": ("--offload-arch=sm_90,host", "-fgpu-rdc", "-c", "-ffast-math", "--ftz=true"),
    "passed-on": ("--offload-arch=sm_90", "-Xptxas", "-v", "-Xdevice-opt", "-O1", "-L.", "-lm"),
    "race-detector": ("--offload-arch=host", "-fsanitize=thread", "-c", "-o", "scale.o"),
    "link-to-object": ("--offload-arch=sm_90", "-r", "-o", "all.o"),
    "launched": ("--launcher=launch", "-c", "--offload-arch=sm_90,host", "-O1", "-o", "scale.o"),
}


def call(tools: RecordedTools, *words: str) -> int:
    places = ("-j2", f"--llvm={tools.root}/llvm-22", f"--cuda-path={tools.root}/cuda")
    return cli._guarded((*words, *places, "scale.mlir"))


@pytest.mark.parametrize("name", CALLS)
def test_a_call_consists_of_these_commands(
    name: str, tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    status = call(tools, "-###", "-save-temps=temps", *CALLS[name])

    said = capsys.readouterr()
    assert status == 0, said.err
    lines = (said.out + said.err).replace(str(tools.root), "TOOLS")
    lines = lines.replace(str(Path(driver.__file__).parents[1]), "PACKAGE")
    lines = lines.replace(str(Path.cwd()), "HERE")
    lines = re.sub(r"--toolchain-id=\w+", "--toolchain-id=ID", lines)
    # Independent steps run in any order.
    shown = "".join(f"{line}\n" for line in sorted(lines.splitlines()))
    expected = RECORDED / f"{name}.txt"
    if "RECORD_CALLS" in os.environ:
        expected.write_text(shown, encoding="utf-8")
    assert shown == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "words",
    [
        ("-fgpu-rdc",),
        ("--device-code=object",),
        ("-Xoffload-linker", "-v"),
        ("-Xlinker", "--device-compiler=-O1"),
        ("--offload-arch=sm_90,host",),
        ("call.c",),
        ("launch.cu",),
        ("-nogpulib",),
    ],
)
def test_what_else_may_be_linked_to_device_code_leaves_its_link_to_the_wrapper(
    words: tuple[str, ...], tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    # The kernel calls a function of libdevice.
    assert call(tools, "-###", "--offload-arch=sm_90", *words, "-o", "scale") == 0
    lines = capsys.readouterr().err
    assert "--offload-link" in lines
    assert "--override-image" not in lines


@pytest.mark.llvm(22)
def test_the_tools_still_write_what_was_recorded(tmp_path: Path) -> None:
    record(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {name: (RECORDED / name).read_text() for name in made}


def test_a_call_makes_an_object_and_what_is_asked_for_besides(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    rules, entries, manifest = "scale.d", "commands.json", "manifest.json"
    words = ("-MD", "-MF", rules, "-MJ", entries, f"--manifest={manifest}", "-ftime-report")
    status = call(tools, "-c", "-o", "scale.o", "--offload-arch=sm_90", *words)

    said = capsys.readouterr()
    assert status == 0, said.err
    assert Path("scale.o").read_bytes().startswith(b"\x7fELF")
    assert Path(rules).read_text().startswith("scale.o: scale.mlir")
    (entry,) = json.loads(f"[{Path(entries).read_text().rstrip().rstrip(',')}]")
    assert (entry["file"], entry["output"]) == ("scale.mlir", "scale.o")
    subjects = json.loads(Path(manifest).read_text())["subject"]
    assert [subject["name"] for subject in subjects] == ["scale.o"]
    assert "step embed" in said.err


def test_a_call_is_packed_with_what_led_to_its_failure(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.fails = lambda command: "host.embedded.ll" in " ".join(command.argv)
    words = ("-c", "-o", "scale.o", "--offload-arch=sm_90", "--reproduce=call.tar")
    assert call(tools, *words) != 0
    assert "clang" in capsys.readouterr().err
    with tarfile.open("call.tar") as archive:
        unpack(archive, Path())
    packed = Path("reproduce")
    texts = {
        str(file.relative_to(packed)): file.read_text()
        for file in packed.rglob("*")
        if file.is_file()
    }
    steps = [line.split()[:3] for line in texts["steps"].splitlines()]
    names = [words[2] if words[1] == "step" else words[0] for words in steps]
    # Each step follows its prerequisites: the host code follows the images that it embeds.
    assert names.index("nvptx-ir") < names.index("package") < names.index("embed")
    assert names[-1] == "clang"
    # The README lists the omitted options, which contain paths.
    assert not [
        name for name, text in texts.items() if str(tools.root) in text and name != "README"
    ]
    assert texts["files/scale.mlir"] == PROGRAM.read_text()
    assert "step.sh" in texts


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--help",), 0, "usage: mlir-offload"),
        ((), 0, "usage: mlir-offload"),
        (("inspect", "--help"), 0, "usage: mlir-offload inspect"),
        (("help", "check"), 0, "usage: mlir-offload check"),
        (("help", "chekc"), 2, "did you mean 'check'?"),
        (("step", "--help"), 0, "amdgpu-check"),
        (("step", "unwrap", "--help"), 0, "--triple=TRIPLE"),
        (("step", "unwrap"), 2, "step unwrap needs FILE"),
        (("step", "detach", "none.o", "-o", "made.o"), 7, "none.o: No such file"),
        (("--split-step", "-c", "none.mlir"), 2, "one input and one output"),
        (("--cmake-dir",), 0, "toolchain/cmake"),
        (("--pkg-config-dir",), 0, "toolchain/pkgconfig"),
        (("--completion=bash",), 0, "complete"),
        (("--print-config", "--config=none.toml"), 7, "none.toml"),
        (("-c", "none.mlir"), 7, "none.mlir: no such file"),
        (("-c", "@none.rsp"), 7, "none.rsp"),
        (("-c", "scale.mlir", "--reproduce=scale.mlir"), 2, "scale.mlir"),
    ],
    ids=str,
)
def test_the_command_line_answers(
    words: tuple[str, ...],
    status: int,
    said: str,
    tools: RecordedTools,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli._guarded(words) == status
    told = capsys.readouterr()
    assert said in told.out + told.err
    assert tools.commands == []


def test_what_a_call_is_asked_of_its_tools_is_printed(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    llvm = f"--llvm={tools.root}/llvm-22"
    assert cli._guarded((llvm, "--toolchain-id", "--offload-arch=host")) == 0
    assert re.fullmatch(r"[0-9a-f]+\n", capsys.readouterr().out)
    assert cli._guarded((llvm, "--print-cache-key", "-c", "--offload-arch=host")) == 0
    assert re.fullmatch(r"[0-9a-f]+\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 7, "memory"),
        (OSError(28, "No space left on device", "k.o"), 7, "k.o: No space left on device"),
        (RuntimeError("can't start new thread"), 7, "thread"),
    ],
    ids=repr,
)
def test_what_the_system_refuses_is_no_traceback(
    error: BaseException,
    status: int,
    said: str,
    tools: RecordedTools,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(_: object) -> bool:
        raise error

    tools.fails = refuse
    assert call(tools, "-c", "--offload-arch=host") == status
    assert said in capsys.readouterr().err


def test_a_fault_of_ours_is_not_hidden(tools: RecordedTools) -> None:
    def refuse(_: object) -> bool:
        raise AssertionError(_)

    tools.fails = refuse
    with pytest.raises(AssertionError, match="mlir-opt"):
        call(tools, "-c", "--offload-arch=host")


def test_steps_that_a_cache_keeps_make_what_the_call_asks_for(tools: RecordedTools) -> None:
    assert call(tools, "-###", "-c", "--offload-arch=sm_90", "-save-temps=temps") == 0
    Path("device.i").write_bytes(Path("temps/0/split/device0.mlir").read_bytes())
    Path("host.i").write_bytes(Path("temps/0/split/host.mlir").read_bytes())
    places = (f"--llvm={tools.root}/llvm-22", f"--cuda-path={tools.root}/cuda")
    image = ("--offload-arch=sm_90", "--kernel=scale", "-MD", "-MF", "device.d")

    def step(name: str, source: str, *words: str) -> bytes:
        files = (f"--{name}-step", "-x", "cpp-output", "-c", source, "-o", "made.bin")
        assert cli._guarded((*files, *words, *places)) == 0
        return Path("made.bin").read_bytes()

    assert b'@"scale"(ptr' in step("image", "device.i", "--device-code=bitcode", *image)
    assert "libdevice" in Path("device.d").read_text()
    assert step("host", "host.i", "--async") == (RECORDED / "host.ll").read_bytes()
    assert step("object", "host.i", "-O1").startswith(b"\x7fELF")
    wrong = ("--host-step", "-x", "cpp-output", "-c", "host.i", "-o", "none", "--toolchain-id=0")
    assert cli._guarded((*wrong, *places)) == CompatibilityError.exit_status
    assert not Path("none").exists()


def test_steps_of_a_project_make_what_one_step_makes(tools: RecordedTools) -> None:
    places = (f"--llvm={tools.root}/llvm-22", f"--cuda-path={tools.root}/cuda")

    def step(name: str, source: str, output: str, *words: str) -> bytes:
        argv = (f"--{name}-step", "-c", source, "-o", output, *words, *places)
        assert cli._guarded(argv) == 0
        return Path(output).read_bytes()

    archs, of = "--offload-arch=sm_90,host", "--program=scale.mlir"
    images = ("--images=a/sm_90.images", "--images=a/host.images")
    step("split", "scale.mlir", "a/scale.host")
    for arch in ("sm_90", "host"):
        made = f"a/{arch}.images"
        step("device", "a/scale.device", made, f"--offload-arch={arch}", of)
    step("join", "a/scale.host", "a/scale.o", archs, "--device=a/scale.device", *images, of)
    whole = tuple(word.replace("a/", "b/") for word in images)
    step("module", "scale.mlir", "b/scale.o", archs, *whole)
    assert {path.name: path.read_bytes() for path in Path("b").iterdir()} == {
        path.name: path.read_bytes() for path in Path("a").iterdir()
    }
    step("source", "call.c", "call.o", "--depfile=call.d")
    step("archive", "call.o", "libcall.a", "--member=a/scale.o")
    wrong = ("--join-step", "-c", "a/scale.host", "-o", "c.o", "--device=a/scale.device", archs)
    assert cli._guarded((*wrong, *places)) == UsageError.exit_status


def test_the_call_behind_a_pipe_and_another_name_is_the_same(
    tools: RecordedTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("scale.txt").write_bytes(PROGRAM.read_bytes())
    words = ("-c", f"--llvm={tools.root}/llvm-22", "--offload-arch=host", "-o", "scale.o")
    assert cli._guarded((*words, "-x", "mlir", "scale.txt")) == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(PROGRAM.read_bytes())))
    assert cli._guarded((*words, "-")) == 0


def test_a_packed_call_has_all_that_it_read(tools: RecordedTools) -> None:
    Path("include").mkdir()
    Path("include/own.h").write_text("#include <none.h>\n")
    Path("call.c").write_text('#include "own.h"\n')
    Path("passes.yaml").write_text("host: [canonicalize]\n")
    Path("library.bc").write_bytes(b"BC\xc0\xde")
    Path("libmine.a").write_bytes(b"!<arch>\n")
    words = ("call.c", "-Iinclude", "-L.", "-lmine", "-I", "/none", "--pipeline=passes.yaml")
    packed = ("--device-lib=host=library.bc", "--reproduce=call.tar", "-o", "made/scale")
    assert call(tools, *words, *packed, "-j", "2", "--offload-arch=host") != 0
    with tarfile.open("call.tar") as archive:
        names = {name.removeprefix("reproduce/files/") for name in archive.getnames()}
    assert names >= {"call.c", "include/own.h", "passes.yaml", "library.bc", "libmine.a", "made"}


@pytest.mark.usefixtures("tools")
def test_the_program_ends_with_the_status_of_its_call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left: list[int] = []
    monkeypatch.setattr(cli, "_leave", left.append)
    cli.main(["--version"])
    cli.main(["-c", "none.mlir"])
    gc.enable()
    assert left == [0, 7]
    assert capsys.readouterr().out.startswith("mlir-offload ")


def test_a_call_that_succeeds_is_packed_on_request_and_not_before_it_runs(
    tools: RecordedTools,
) -> None:
    words = ("-c", "--offload-arch=host", "--reproduce=call.tar")
    assert call(tools, *words, "-###") == 0
    assert not Path("call.tar").exists()
    assert call(tools, *words) == 0
    with tarfile.open("call.tar") as archive:
        assert "reproduce/files/scale.mlir" in archive.getnames()


def test_a_configuration_file_is_one_word_or_two(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.toml").write_text('offload-arch = ["gfx90a"]\n')
    places = (f"--llvm={tools.root}/llvm-22", "-nogpulib", "-c", "scale.mlir", "-###")
    shown = []
    for words in (("--config=own.toml",), ("--config", "own.toml")):
        assert cli._guarded((*words, *places, "-save-temps=temps")) == 0
        shown.append(capsys.readouterr().err)
    assert shown[0] == shown[1]
    assert "-mcpu=gfx90a" in shown[0]
    # After -- it is an input.
    assert cli._guarded((*places, "--", "--config", "own.toml")) != 0
    assert "--config: no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "printed"),
    [(("-v",), "mlir-offload "), (("--verbose", "-v"), "mlir-offload ")],
    ids=str,
)
def test_verbose_alone_prints_the_version(
    words: tuple[str, ...], printed: str, tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._guarded(words) == 0
    assert capsys.readouterr().out.startswith(printed)
    assert all("--version" in one.argv for one in tools.commands)


def test_what_clang_prints_of_itself_comes_from_the_clang_that_links(tools: RecordedTools) -> None:
    assert cli._guarded(("-print-file-name=libm.so", f"--llvm={tools.root}/llvm-19")) == 0
    argv = tools.commands[-1].argv
    assert argv[0] == f"{tools.root}/llvm-19/bin/clang"
    assert "-print-file-name=libm.so" in argv
    assert not any(word.startswith("--llvm") for word in argv)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_closed_standard_stream_is_opened_before_a_file_gets_its_number(number: int) -> None:
    program = (
        "import os, sys; from mlir_offload.driver import cli\n"
        f"os.close({number}); cli._open_standard_streams()\n"
        f"sys.exit(os.readlink('/proc/self/fd/{number}') != '/dev/null')"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
