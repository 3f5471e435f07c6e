"""Messages about bitcode that the linking clang rereads, because no table knows its LLVM."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.link_inputs import LinkInputs

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.reread import reread_inputs
from mlir_offload.driver.option.compile_options import CompileOptions
from mlir_offload.driver.step.execute import Executor
from mlir_offload.driver.tools.releases import Releases
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.process import Command, Completed, ProcessRunner, Runner

MODULE = """\
target triple = "nvptx64-nvidia-cuda"
declare void @called()
define ptx_kernel void @first(ptr %p) {
  call void @called()
  ret void
}
"""


class Misreading:
    """A runner of clang that writes another module than the one that it read."""

    def __init__(self, written: bytes) -> None:
        self.written = written
        self.runner = ProcessRunner()

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        """Run clang, then write."""
        done = self.runner.run(command, input_text=input_text)
        Path(command.argv[-1]).write_bytes(self.written)
        return done

    def interrupt(self) -> None:
        """Interrupt the programs."""
        self.runner.interrupt()

    def stop(self) -> None:
        """Stop the programs."""
        self.runner.stop()


def bitcode(folder: Path, text: str, major: int = 22) -> Path:
    source = folder / f"{len(list(folder.iterdir()))}.ll"
    source.write_text(text)
    inputs = LinkInputs(major, folder)
    output = source.with_suffix(".bc")
    inputs.run(f"/usr/lib/llvm-{major}/bin/llvm-as", source, "-o", output)
    return output


def reread(folder: Path, path: Path, major: int, runner: Runner | None = None) -> None:
    llvm = LinkInputs(major, folder).llvm
    executor = Executor(runner or ProcessRunner(), print, folder)
    context = BuildContext(
        CompileOptions(), Releases(llvm, llvm, major), None, (), executor, folder, ""
    )
    reread_inputs(context, [path], ())


@pytest.mark.llvm(22)
def test_a_module_that_is_read_alike_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reread(tmp_path, bitcode(tmp_path, MODULE), 22)
    assert "it has read 1 module of bitcode" in capsys.readouterr().err


@pytest.mark.llvm(22)
def test_what_is_not_bitcode_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "a.o"
    text.write_bytes(b"\x7fELF")
    reread(tmp_path, text, 22)
    assert capsys.readouterr().err == ""


@pytest.mark.llvm(16)
@pytest.mark.llvm(22)
def test_a_module_that_clang_rejects_is_an_error_with_its_reason(tmp_path: Path) -> None:
    newer = "define range(i32 0, 4) i32 @called() {\n  ret i32 1\n}\n"
    with pytest.raises(
        CompatibilityError, match="does not read it: Invalid attribute group entry"
    ) as error:
        reread(tmp_path, bitcode(tmp_path, newer), 16)
    assert "compile it again with the linking LLVM" in error.value.hint


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("@first", "@other", "kernel 'first' is gone"),
        ("(ptr %p)", "(ptr %p, i32 %n)", "kernel 'first' is another one"),
        ("@called", "@elsewhere", "undefined: called, elsewhere"),
        ("declare", "define ptx_kernel void @more() {\n  ret void\n}\ndeclare", "there are more kernels"),
    ],
    ids=["gone", "other parameters", "other calls", "more"],
)  # fmt: skip
def test_a_module_that_is_written_again_as_another_is_an_error(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    given = bitcode(tmp_path, MODULE)
    other = bitcode(tmp_path, MODULE.replace(old, new))
    with pytest.raises(CompatibilityError, match=f"misreads it: {said}"):
        reread(tmp_path, given, 22, Misreading(other.read_bytes()))
