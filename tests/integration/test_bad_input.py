"""Each wrong input gets one clear error, the exit status of its class, and leaves nothing behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.llvm(22)

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
LAUNCH = """\
module attributes {{gpu.container_module}} {{
  gpu.module @m {{ gpu.func @k() kernel {{ gpu.return }} }}
  func.func @main() -> i32 {{
    %one = arith.constant 1 : index
    gpu.launch_func {launch}
    %status = arith.constant 0 : i32
    return %status : i32
  }}
}}
"""
SHAPE = "blocks in (%one, %one, %one) threads in (%one, %one, %one)"


class Sandbox:
    """A directory to compile in, with a TMPDIR of its own that must be empty afterwards."""

    def __init__(self, command: list[str], path: Path) -> None:
        self.command = command
        self.work = path / "work"
        self.temporary = path / "tmp"
        self.work.mkdir()
        self.temporary.mkdir()

    def environment(self, **changes: str) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self.temporary), **changes}

    def fails(self, *arguments: str, status: int, **environment: str) -> str:
        """Compile, and return the error; check that nothing else happened."""
        before = sorted(self.work.rglob("*"))
        result = subprocess.run(
            [*self.command, *arguments],
            cwd=self.work,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == status, result.stderr
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        assert result.stderr.count("error:") == 1, result.stderr
        assert len(result.stderr.splitlines()) <= 5, result.stderr
        assert sorted(self.work.rglob("*")) == before
        assert list(self.temporary.iterdir()) == []
        return result.stderr


@pytest.fixture
def sandbox(mlir_offload: list[str], tmp_path: Path) -> Sandbox:
    return Sandbox(mlir_offload, tmp_path)


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("func.func @f() {\n  %c = arith.constant 0 i32\n}\n", "p.mlir:2:", "expected"),
        ("func.func @f() {\n  foo.bar\n}\n", "p.mlir:2:3:", "no dialect 'foo'"),
        ("func.func @f() {\n  arith.nothing\n}\n", "p.mlir:2:3:", "arith.nothing"),
        (
            LAUNCH.format(launch=f"@m::@absent {SHAPE}"),
            "p.mlir:5:5:",
            "@m::@absent, which does not exist",
        ),
        (
            LAUNCH.format(launch=f"@m::@k {SHAPE} args(%one : index)"),
            "p.mlir:5:5:",
            "passes 1 arguments to a kernel that takes 0",
        ),
        (
            LAUNCH.format(launch=f"@m::@k {SHAPE}").replace("@k()", "@other()"),
            "p.mlir:5:5:",
            "@m::@k, which does not exist",
        ),
        (
            LAUNCH.format(launch=f"@m::@k {SHAPE}").replace("constant 1", "constant 11"),
            "p.mlir:5:5:",
            "a launch with blocks of 1331 threads",
        ),
        ("", "p.mlir:", "is empty"),
        ("\ufeffmodule {}", "p.mlir:1:1:", "begins with a byte order mark (UTF-8)"),
    ],
    ids=[
        "syntax",
        "dialect",
        "operation",
        "kernel",
        "arguments",
        "renamed kernel",
        "large block",
        "empty file",
        "byte order mark",
    ],
)
def test_a_wrong_program_is_an_error_with_its_place_and_reason(
    sandbox: Sandbox, text: str, place: str, reason: str
) -> None:
    (sandbox.work / "p.mlir").write_text(text)
    error = sandbox.fails("--offload-arch=host", "p.mlir", "-o", "p", status=1)
    assert error.startswith(place)
    assert reason in error
    assert "\n  hint: " in error


def test_a_binary_file_is_named_as_what_it_is(sandbox: Sandbox) -> None:
    (sandbox.work / "p.mlir").write_bytes(b"\x7fELF" + bytes(300))
    assert "not an MLIR program but an ELF object" in sandbox.fails(
        "--offload-arch=host", "p.mlir", status=1
    )


@pytest.mark.parametrize(
    ("arguments", "status", "reason", "hint"),
    [
        (["--offload-arch=sm_999", "p.mlir"], 4, "does not know sm_999", "hint:"),
        (["--offload-arch=sm_50", "p.mlir"], 4, "does not know sm_50", "CUDA 11.8 to 12.9"),
        (["--offload-arch=gfx999", "p.mlir"], 4, "does not know gfx999", "hint:"),
        (["--offload-arch=volta", "p.mlir"], 2, "unknown offload architecture 'volta'", "sm_NN"),
        (["--llvm=18", "p.mlir"], 3, "LLVM 18 is not installed", "apt install mlir-18-tools"),
        (["--llvm=/nowhere", "p.mlir"], 3, "no LLVM installation there", "apt install"),
        (
            ["--cuda-path=/nowhere", "--offload-arch=sm_90", "p.mlir"],
            3,
            "no CUDA toolkit there",
            "pip install",
        ),
        (["--offload-arch=host", "absent.mlir"], 7, "no such file", "check the name"),
        (["-j", "x", "p.mlir"], 2, "-j needs a number from 1, not 'x'", "write -j4"),
        (["new"], 2, "error: missing argument 'DIRECTORY'\n", "mlir-offload new --help"),
        (["-c", "--emit-header=k.h", "p.c"], 2, "needs a .mlir file", "--emit-header=FILE.h FILE"),
        (["--offload-arch=host", "p.mlir", "-o", "."], 7, "is a directory", "name a file"),
        (["--offload-arch=host", "p.mlir", "-o", "no/where"], 7, "no directory no", "mkdir -p no"),
        (["--offload-arch=host", "."], 7, "is a directory", "name the files"),
        (["p.mlir", "--frobnicate"], 2, "unknown option '--frobnicate'", "--help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_command_line_says_what_to_do(
    sandbox: Sandbox, arguments: list[str], status: int, reason: str, hint: str
) -> None:
    (sandbox.work / "p.mlir").write_bytes((EXAMPLES / "saxpy.mlir").read_bytes())
    error = sandbox.fails(*arguments, status=status)
    assert reason in error
    assert hint in error


def test_a_tool_that_crashes_is_named(sandbox: Sandbox, tmp_path: Path) -> None:
    prefix = _prefix_with(tmp_path / "llvm", **{"mlir-translate": "kill -SEGV $$"})
    (sandbox.work / "p.mlir").write_bytes((EXAMPLES / "saxpy.mlir").read_bytes())
    error = sandbox.fails(
        f"--llvm={prefix}", "-fno-crash-diagnostics", "--offload-arch=host", "p.mlir", status=5
    )
    assert error.startswith("p.mlir: error: internal crash of mlir-translate (")


def test_a_tool_that_claims_success_without_a_result_is_caught(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    prefix = _prefix_with(tmp_path / "llvm", **{"mlir-translate": "exit 0"})
    (sandbox.work / "p.mlir").write_bytes((EXAMPLES / "saxpy.mlir").read_bytes())
    error = sandbox.fails(f"--llvm={prefix}", "--offload-arch=host", "p.mlir", status=5)
    assert "mlir-translate exited with status 0 but wrote no" in error


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("llvm-22", "apt install clang-tools-22", id="of a distribution"),
        pytest.param("own", 'build LLVM 22 with -DLLVM_ENABLE_PROJECTS="clang"', id="of one's own"),
    ],
)
def test_a_missing_tool_names_the_package_or_what_builds_it(
    sandbox: Sandbox, tmp_path: Path, name: str, hint: str
) -> None:
    prefix = _prefix_with(tmp_path / name, **{"clang-linker-wrapper": ""})
    (prefix / "bin" / "clang-linker-wrapper").unlink()
    (sandbox.work / "p.mlir").write_bytes((EXAMPLES / "saxpy.mlir").read_bytes())
    error = sandbox.fails(f"--llvm={prefix}", "--offload-arch=host", "p.mlir", status=3)
    assert "has no clang-linker-wrapper" in error
    assert hint in error


def _prefix_with(prefix: Path, **scripts: str) -> Path:
    """Return an installation of LLVM 22 in which these tools are scripts."""
    real = Path("/usr/lib/llvm-22")
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib").symlink_to(real / "lib")
    for tool in (real / "bin").iterdir():
        path = prefix / "bin" / tool.name
        if tool.name in scripts:
            path.write_text(
                f'#!/bin/sh\n[ "$1" = --version ] && exec {tool} --version\n{scripts[tool.name]}\n'
            )
            path.chmod(0o755)
        else:
            path.symlink_to(tool)
    return prefix


@pytest.mark.parametrize("language", [(), ("-x", "mlir")], ids=["by suffix", "by -x"])
def test_what_is_no_file_is_told_as_what_it_is(sandbox: Sandbox, language: tuple[str, ...]) -> None:
    (sandbox.work / "loop.mlir").symlink_to("loop.mlir")
    (sandbox.work / "dangles.mlir").symlink_to("gone.mlir")
    (sandbox.work / "folder.mlir").mkdir()
    os.mkfifo(sandbox.work / "pipe.mlir")
    for name, reason in (
        ("loop.mlir", "loop.mlir: Too many levels of symbolic links"),
        ("dangles.mlir", "hint: it is a link to 'gone.mlir'"),
        ("folder.mlir", "folder.mlir: is a directory"),
        ("pipe.mlir", "pipe.mlir: not a regular file"),
    ):
        assert reason in sandbox.fails("-c", *language, name, status=7)
    assert "an argument is empty" in sandbox.fails("-c", *language, "", status=2)


def test_the_null_device_is_an_empty_file(sandbox: Sandbox) -> None:
    command = [*sandbox.command, "-dM", "-E", "-x", "c", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "#define __clang_major__" in done.stdout
    assert done.stderr == ""
    assert "is empty" in sandbox.fails("-c", "-x", "mlir", os.devnull, status=1)


def test_a_full_disk_is_an_error_and_leaves_no_part_of_a_file(sandbox: Sandbox) -> None:
    (sandbox.work / "p.mlir").write_bytes((EXAMPLES / "saxpy.mlir").read_bytes())
    error = sandbox.fails("-c", "--offload-arch=host", "p.mlir", "-o", "/dev/full", status=7)
    assert "No space left on device" in error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_an_interrupt_ends_the_children_and_removes_the_temporary_files(
    sandbox: Sandbox, tmp_path: Path, number: signal.Signals
) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    # The child holds the pipe open as long as it lives.
    script = f"exec 3>{alive}; echo up >&3; exec sleep 6000"
    prefix = _prefix_with(tmp_path / "llvm", **{"mlir-translate": script})
    (sandbox.work / "p.mlir").write_bytes((EXAMPLES / "saxpy.mlir").read_bytes())
    driver = subprocess.Popen(
        [*sandbox.command, f"--llvm={prefix}", "--offload-arch=host", "-j1", "p.mlir"],
        cwd=sandbox.work,
        env=sandbox.environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    # Opened without waiting for a writer, so that a compiler that fails early fails the test.
    with os.fdopen(os.open(alive, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as pipe:
        assert select.select([pipe], [], [], 600)[0], "the tool was never started"
        assert pipe.read(3) == b"up\n"
        driver.send_signal(number)
        _, stderr = driver.communicate(timeout=600)
        assert select.select([pipe], [], [], 600)[0], "the tool still runs"
        assert pipe.read(1) == b""
    assert driver.returncode == 130
    assert stderr.strip() == "mlir-offload: interrupted"
    assert list(sandbox.temporary.iterdir()) == []


def test_an_interrupt_while_modules_are_loaded_ends_the_process_without_a_traceback() -> None:
    program = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, *_):
        if name == "mlir_offload.driver.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
from mlir_offload.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "--version"], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_a_directory_that_was_removed_is_named(mlir_offload: list[str], tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    words = ["sh", "-c", 'rmdir ../gone && exec "$@"', "sh", *mlir_offload, "-c", "../k.mlir"]
    done = subprocess.run(words, cwd=gone, capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert "error: the current directory does not exist any more\n" in done.stderr
    assert "hint: " in done.stderr


@pytest.mark.llvm(22)
def test_an_unknown_processor_is_an_error_of_usage(mlir_offload: list[str], tmp_path: Path) -> None:
    source = tmp_path / "k.mlir"
    source.write_text("gpu.module @m { gpu.func @k() kernel { gpu.return } }\n")
    words = (
        "-march=znver99",
        "--offload-arch=host",
        "-c",
        str(source),
        "-o",
        str(tmp_path / "k.o"),
    )
    done = subprocess.run([*mlir_offload, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        "does not know the processor 'znver99'\n  hint: clang-22 --print-supported" in done.stderr
    )
