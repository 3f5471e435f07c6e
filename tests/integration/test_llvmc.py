"""LLVM's C API of each release, as the passes use it; and what happens without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.llvm import find_llvm_library
from mlir_offload.toolchain.llvmc.builder import Builder
from mlir_offload.toolchain.llvmc.code import Opcode, Predicate
from mlir_offload.toolchain.llvmc.ir import Context
from mlir_offload.toolchain.llvmc.library import LlvmError, LlvmLibrary
from mlir_offload.toolchain.llvmc.module import Module, parse_module
from mlir_offload.toolchain.llvmc.target import TargetMachine, run_passes

RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
TRIPLE = "x86_64-pc-linux-gnu"
ADDS_ON_THE_STACK = """\
define i32 @f(i32 %x) {
  %place = alloca i32
  store i32 %x, ptr %place
  %loaded = load i32, ptr %place
  %sum = add nsw i32 %loaded, -3
  ret i32 %sum
}
"""


@pytest.fixture(params=RELEASES)
def library(request: pytest.FixtureRequest) -> LlvmLibrary:
    return LlvmLibrary(_path(request.param))


def _path(major: int) -> Path:
    found = find_llvm_library(Path(f"/usr/lib/llvm-{major}"), major)
    assert found is not None
    return found


def test_passes_change_what_is_read_of_a_module(library: LlvmLibrary) -> None:
    with Context(library) as context:
        module = parse_module(context, ADDS_ON_THE_STACK, "sum.ll")
        run_passes(module, "function(sroa)")
        function = module.function("f")
        assert function is not None
        (block,) = function.blocks
        add, ret = block.instructions
        assert (add.opcode, ret.opcode) == (Opcode.ADD, Opcode.RET)
        assert [operand.number for operand in add.operands] == [None, -3]
        assert add.flag("NSW")
        assert ret.operands == (add,)


FLAGGED = """\
define ptr @f(ptr %p, i32 %x) {
  %sum = add nuw nsw i32 %x, 1
  %shifted = lshr exact i32 %sum, 2
  %joined = or disjoint i32 %shifted, 1
  %wide = zext nneg i32 %joined to i64
  %narrow = trunc nuw i64 %wide to i16
  %place = getelementptr inbounds nuw i8, ptr %p, i16 %narrow
  ret ptr %place
}
"""


def test_a_copy_without_flags_is_never_poison(library: LlvmLibrary) -> None:
    with Context(library) as context, Builder(context) as b:
        module = parse_module(context, FLAGGED, "flagged.ll")
        function = module.function("f")
        assert function is not None
        (block,) = function.blocks
        copied = function.append_block("copied")
        b.go(copied)
        flags = {"inbounds", "nuw", "nsw", "exact", "disjoint", "nneg"}
        for instruction in list(block.instructions)[:-1]:
            assert flags & set(str(instruction).split())
            b.clone_without_flags(instruction, instruction.operands)
        assert all(not flags & set(str(i).split()) for i in copied.instructions)
        assert len(list(copied.instructions)) == 6


def test_values_of_before_a_pass_are_unusable(library: LlvmLibrary) -> None:
    with Context(library) as context:
        module = parse_module(context, ADDS_ON_THE_STACK, "sum.ll")
        function = module.function("f")
        assert function is not None
        before = [i for block in function.blocks for i in block.instructions]
        run_passes(module, "function(sroa)")
        assert {value.handle for value in before} == {0}


def test_a_function_is_built_verified_and_made_code(library: LlvmLibrary) -> None:
    with Context(library) as context, Builder(context) as b:
        module = parse_module(context, "", "empty.ll")
        i32 = context.integer(32)
        function = module.declare("pick", context.function_type(context.void, [context.pointer]))
        (address,) = function.parameters
        b.go(function.append_block("entry"))
        loaded = b.load(i32, address)
        is_negative = b.compare(Predicate.SLT, loaded, context.constant(i32, 0))
        b.store(b.select(is_negative, context.constant(i32, -7), loaded), address)
        b.ret()
        module.verify()
        with TargetMachine(library, TRIPLE, "", "") as machine:
            assert machine.data_layout.startswith("e-m:e-")
            assert "pick:" in machine.assembly(module)


def test_what_llvm_refuses_is_an_error_with_its_words(library: LlvmLibrary) -> None:
    with Context(library) as context:
        with pytest.raises(LlvmError, match=r"bad\.ll:1:8: error: expected type"):
            parse_module(context, "define nothing", "bad.ll")
        module = parse_module(context, "declare void @f()", "good.ll")
        with pytest.raises(LlvmError, match="unknown pass name 'polish'"):
            run_passes(module, "polish")
        _build_an_unfinished_block(module)
        with pytest.raises(LlvmError, match="does not have terminator"):
            module.verify()


def _build_an_unfinished_block(module: Module) -> None:
    function = module.function("f")
    assert function is not None
    function.append_block("open")


def test_modules_are_linked(library: LlvmLibrary) -> None:
    with Context(library) as context:
        module = parse_module(context, "declare i32 @f(i32)", "caller.ll")
        module.link(parse_module(context, ADDS_ON_THE_STACK, "sum.ll"))
        found = module.function("f")
        assert found is not None
        assert not found.is_declaration
        assert module.bitcode()[:2] == b"BC"


@pytest.mark.parametrize("release", RELEASES)
def test_what_llvm_refuses_is_a_diagnostic_of_the_process_that_collapses(
    release: int, tmp_path: Path
) -> None:
    source = tmp_path / "broken.ll"
    source.write_text("define void @k.item(ptr %c) {\n  ret i32 0\n}\n")
    command = [sys.executable, "-m", "mlir_offload.translate.cpu.collapse", source]
    options = ["-o", tmp_path / "out.ll", "--library", _path(release), "--kernel", "k"]
    done = subprocess.run(
        [*map(str, [*command, *options])], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"{source}: error: broken.ll:2:7: error: value doesn't match function result type 'void'\n"
    )
    assert not (tmp_path / "out.ll").exists()


def test_a_file_that_is_no_library_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "libLLVM.so.22.1"
    wrong.write_bytes(b"text")
    with pytest.raises(ToolchainError, match=r"cannot use \S*/libLLVM.so.22.1 as LLVM's C API"):
        LlvmLibrary(wrong)


def test_a_release_without_a_library_has_none(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libLLVM.so.97.1").touch()
    assert find_llvm_library(tmp_path, 98) is None
    assert find_llvm_library(tmp_path, 97) == tmp_path / "lib" / "libLLVM.so.97.1"
    assert find_llvm_library(tmp_path, 18) is None
