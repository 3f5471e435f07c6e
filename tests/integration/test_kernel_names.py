"""Files whose kernels bear one name, linked in every way: each launch runs the kernel of its file."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlir_offload.offload.container.fatbin import read_fatbins
from mlir_offload.offload.elf import read_elf
from mlir_offload.offload.link.objects import read_objects
from mlir_offload.toolchain.byte_view import memory_view

INPUTS = Path(__file__).parent / "inputs"
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
HOST = "--offload-arch=host"
PROGRAM = """\
module attributes {{gpu.container_module}} {{
  gpu.module @kernels {{
    {declared}
    gpu.func @k(%p: !llvm.ptr, %v: i32) kernel {{
      %c = arith.constant {constant} : i32
      %s = {operation}
      llvm.store %s, %p : i32, !llvm.ptr
      gpu.return
    }}
  }}
  func.func @{function}(%p: !llvm.ptr, %v: i32) {{
    %one = arith.constant 1 : index
    gpu.launch_func @kernels::@k blocks in (%one, %one, %one) threads in (%one, %one, %one) args(%p : !llvm.ptr, %v : i32)
    return
  }}
}}
"""
ADD = PROGRAM.format(declared="", constant=100, function="add", operation="arith.addi %v, %c : i32")
MULTIPLY = PROGRAM.format(
    declared="", constant=3, function="multiply", operation="arith.muli %v, %c : i32"
)
NEEDY = PROGRAM.format(
    declared="llvm.func @helper(i32) -> i32",
    constant=0,
    function="help",
    operation="llvm.call @helper(%v) : (i32) -> i32",
)
CALLER = """\
module attributes {gpu.container_module} {
  gpu.module @elsewhere {
    llvm.func @k(!llvm.ptr, i32) attributes {gpu.kernel}
  }
  func.func @multiply(%p: !llvm.ptr, %v: i32) {
    %one = arith.constant 1 : index
    gpu.launch_func @elsewhere::@k blocks in (%one, %one, %one) threads in (%one, %one, %one) args(%p : !llvm.ptr, %v : i32)
    return
  }
}
"""
MAIN = """\
#include <stdio.h>
void add(int *, int);
void multiply(int *, int);
int main(void) {
  int x = 0, y = 0, z = 0;
  add(&x, 7), multiply(&y, 7), add(&z, 8);
  printf("%d %d %d\\n", x, y, z);
}
"""
# Launches before main; nothing of it is seen by another file.
HIDDEN = """\
module {
  llvm.func @next_cell() -> !llvm.ptr
  llvm.func internal @run() {
    %one = arith.constant 1 : index
    %v = arith.constant 42 : i32
    %p = llvm.call @next_cell() : () -> !llvm.ptr
    gpu.launch blocks(%a, %b, %c) in (%d = %one, %e = %one, %f = %one) threads(%g, %h, %i) in (%j = %one, %k = %one, %l = %one) {
      llvm.store %v, %p : i32, !llvm.ptr
      gpu.terminator
    }
    llvm.return
  }
  llvm.mlir.global_ctors CTORS
}
"""
CONSTRUCTORS = {
    19: "{ctors = [@run], priorities = [65535 : i32]}",
    22: "ctors = [@run], priorities = [65535 : i32], data = [#llvm.zero]",
}
CELLS = """\
#include <stdio.h>
static int cells[2], next;
int *next_cell(void) { return &cells[next++]; }
int main(void) { printf("%d: %d %d\\n", next, cells[0], cells[1]); }
"""
OWN_RESULTS = "107 21 108\n"


@dataclass(frozen=True, slots=True)
class Compiler:
    """The compiler with one release, run in a directory."""

    command: tuple[str, ...]
    directory: Path

    def __call__(self, *arguments: str | Path, status: int = 0) -> str:
        """Return what it says; its exit status is checked."""
        argv = [*self.command, *map(str, arguments)]
        result = subprocess.run(
            argv, cwd=self.directory, capture_output=True, text=True, check=False
        )
        assert result.returncode == status, result.stderr
        return result.stderr

    def output(self, program: str = "app", **environment: str) -> str:
        """Return what a program prints."""
        return subprocess.run(
            [self.directory / program],
            cwd=self.directory,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=True,
        ).stdout


@pytest.fixture(scope="module")
def compile_both(
    mlir_offload: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], Compiler]:
    """Return a compiler whose directory has two objects of one kernel name, made once a release."""
    made: dict[int, Compiler] = {}

    def compiler(major: int) -> Compiler:
        if major not in made:
            directory = tmp_path_factory.mktemp(f"llvm{major}")
            made[major] = Compiler((*mlir_offload, f"--llvm={major}"), directory)
            for name, text in (("add", ADD), ("multiply", MULTIPLY)):
                (directory / f"{name}.mlir").write_text(text)
                made[major]("-c", "-fPIC", HOST, f"{name}.mlir")
            (directory / "caller.mlir").write_text(CALLER)
            (directory / "main.c").write_text(MAIN)
            _make_libraries(directory)
        return made[major]

    return compiler


def _make_libraries(directory: Path) -> None:
    for kind, name, members in (
        ("rcs", "libadd.a", ("add.o",)),
        ("rcs", "libmultiply.a", ("multiply.o",)),
        ("rcs", "libboth.a", ("add.o", "multiply.o")),
        ("rcsT", "libthin.a", ("add.o", "multiply.o")),
    ):
        subprocess.run(["ar", kind, name, *members], cwd=directory, check=True)


@pytest.mark.parametrize(
    ("major", "line"),
    [
        pytest.param(19, "add.o multiply.o main.c", marks=pytest.mark.llvm(19)),
        pytest.param(19, "main.c libboth.a", marks=pytest.mark.llvm(19)),
        *(
            pytest.param(22, line, marks=pytest.mark.llvm(22))
            for line in (
                "-Wl,--gc-sections main.c multiply.o add.o",
                "main.c -L. -lmultiply -ladd",
                "libadd.a main.c multiply.o libadd.a",
                "main.c libboth.a",
                "main.c libthin.a",
            )
        ),
    ],
)
def test_each_launch_runs_the_kernel_of_its_own_file(
    compile_both: Callable[[int], Compiler], major: int, line: str
) -> None:
    compiler = compile_both(major)
    compiler(*line.split(), "-o", "app")
    assert compiler.output() == OWN_RESULTS


@pytest.mark.parametrize("major", RELEASES)
def test_so_it_does_in_one_call_and_in_a_shared_library(
    compile_both: Callable[[int], Compiler], major: int
) -> None:
    compiler = compile_both(major)
    compiler(HOST, "multiply.mlir", "add.mlir", "main.c", "-o", "app")
    assert compiler.output() == OWN_RESULTS
    compiler("-shared", "add.o", "multiply.o", "-o", "libshared.so")
    compiler("main.c", "./libshared.so", "-o", "dynamic")
    assert compiler.output("dynamic") == OWN_RESULTS


@pytest.mark.llvm(22)
def test_a_link_with_kernels_of_one_name_gives_the_same_bytes_each_time(
    compile_both: Callable[[int], Compiler],
) -> None:
    compiler = compile_both(22)
    for name in ("one", "two"):
        compiler("add.o", "multiply.o", "main.c", "-o", name)
    one, two = ((compiler.directory / name).read_bytes() for name in ("one", "two"))
    assert one == two


@pytest.mark.parametrize("major", RELEASES)
def test_equal_files_outlined_to_equal_names_link_and_run(
    mlir_offload: list[str], tmp_path: Path, major: int
) -> None:
    compiler = Compiler((*mlir_offload, f"--llvm={major}"), tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        text = HIDDEN.replace("CTORS", CONSTRUCTORS[major])
        (tmp_path / folder / "k.mlir").write_text(text)
    (tmp_path / "main.c").write_text(CELLS)
    compiler("--offload-arch=sm_90,host", "a/k.mlir", "b/k.mlir", "main.c", "-o", "app")
    assert compiler.output(MLIR_OFFLOAD_DEVICE="host") == "2: 42 42\n"


@pytest.mark.parametrize("major", RELEASES)
def test_a_declared_kernel_is_that_of_another_file(
    compile_both: Callable[[int], Compiler], major: int
) -> None:
    compiler = compile_both(major)
    compiler(HOST, "add.o", "caller.mlir", "main.c", "-o", "app")
    assert compiler.output() == "107 107 108\n"


@pytest.mark.llvm(22)
def test_a_declared_kernel_that_several_files_define_is_refused(
    compile_both: Callable[[int], Compiler],
) -> None:
    compiler = compile_both(22)
    stderr = compiler(HOST, "caller.mlir", "add.o", "multiply.o", "-shared", "-o", "x", status=1)
    assert (
        "caller.mlir:7:33: error: kernel 'k' is launched here, and defined by add.o and by"
        in stderr
    )
    assert "hint: rename one of the kernels" in stderr
    assert not (compiler.directory / "x").exists()


@pytest.mark.llvm(22)
def test_a_declared_kernel_that_no_file_defines_is_named_with_the_cure(
    compile_both: Callable[[int], Compiler],
) -> None:
    compiler = compile_both(22)
    text = "void multiply(int *, int);\nint main(void) { multiply(0, 0); }\n"
    (compiler.directory / "lone.c").write_text(text)
    stderr = compiler(HOST, "caller.mlir", "lone.c", "-o", "x", status=1)
    assert "__device_stub__k" in stderr
    assert "hint: name the object that defines the kernel on the link line" in stderr
    compiler(HOST, "caller.mlir", "lone.c", "add.o", "-o", "x")


@pytest.mark.llvm(22)
def test_an_object_that_cannot_be_linked_apart_is_named_with_the_reason(
    compile_both: Callable[[int], Compiler],
) -> None:
    compiler = compile_both(22)
    (compiler.directory / "needy.mlir").write_text(NEEDY)
    options = ("--offload-arch=sm_90", "-shared", "-o", "x")
    stderr = compiler("add.mlir", "needy.mlir", *options, status=1)
    assert (
        "needy.mlir:4:14: error: kernel 'k' is defined here and in add.mlir, so the device code of this "
        "file must be device-linked separately, which failed" in stderr
    )
    assert "helper" in stderr
    assert "hint: rename one of the kernels, or define in this file all that" in stderr
    body = "llvm.func @helper(%x: i32) -> i32 { llvm.return %x : i32 }"
    text = NEEDY.replace("llvm.func @helper(i32) -> i32", body)
    (compiler.directory / "needy.mlir").write_text(text)
    compiler("add.mlir", "needy.mlir", *options)


@pytest.mark.llvm(22)
def test_kernels_of_one_name_for_different_devices_are_refused(
    compile_both: Callable[[int], Compiler],
) -> None:
    compiler = compile_both(22)
    compiler("-c", f"{HOST},sm_90", "add.mlir", "-o", "more.o")
    compiler("-c", "--offload-arch=sm_80", "multiply.mlir", "-o", "other.o")
    stderr = compiler("more.o", "other.o", "-shared", "-o", "x", status=1)
    assert "more.o: error: kernel 'k' is made for sm_90 here, and for sm_80 in other.o" in stderr


@pytest.mark.llvm(16)
@pytest.mark.llvm(22)
def test_a_release_whose_wrapper_links_programs_only_keeps_them_apart(
    compile_both: Callable[[int], Compiler], mlir_offload: list[str]
) -> None:
    compiler = compile_both(22)
    for name in ("add", "multiply"):
        compiler("-c", "--for-clang=any", HOST, f"{name}.mlir", "-o", f"{name}.any.o")
    old = Compiler((*mlir_offload, "--llvm=16"), compiler.directory)
    old("add.any.o", "multiply.any.o", "main.c", "-o", "app")
    assert old.output() == OWN_RESULTS


def _kernel_code(fatbin: bytes) -> dict[str, bytes]:
    """Return the machine code of kernel `k` for each architecture."""
    found = {}
    for image in read_fatbins(memory_view(fatbin, location="fatbin")):
        elf = read_elf(image.content)
        (section,) = elf.named(".text.k")
        found[image.arch] = elf.content(section).whole()
    return found


@pytest.mark.parametrize("major", RELEASES)
def test_each_stub_is_registered_with_a_fat_binary_that_holds_its_kernel(
    mlir_offload: list[str], cuda_recorder: Path, tmp_path: Path, major: int
) -> None:
    compiler = Compiler(
        (*mlir_offload, f"--llvm={major}", f"--cuda-path={cuda_recorder}"), tmp_path
    )
    (tmp_path / "add.mlir").write_text(ADD)
    (tmp_path / "multiply.mlir").write_text(MULTIPLY)
    (tmp_path / "main.c").write_text(MAIN)
    alone = {}
    for name in ("add", "multiply"):
        compiler("-c", "-fPIC", "--offload-arch=sm_80,sm_90", f"{name}.mlir")
        compiler("-shared", f"{name}.o", "-o", f"{name}.so")
        (contents,) = read_objects(tmp_path / f"{name}.so")
        alone[name] = _kernel_code(contents.fatbins[0].whole())
    compiler("multiply.o", "add.o", "main.c", "-o", "app")
    launches = compiler.output(RECORD_FATBINS=str(tmp_path)).splitlines()
    numbers = [line.split(":")[0].removeprefix("k of ") for line in launches if " of " in line]
    # `add`, `multiply`, and `add` again are launched.
    assert len(numbers) == 3
    assert numbers[0] == numbers[2] != numbers[1]
    for name, number in zip(("add", "multiply"), numbers, strict=False):
        code = _kernel_code((tmp_path / f"{number}.fatbin").read_bytes())
        assert code.keys() == {"sm_80", "sm_90"}
        assert code == alone[name]
