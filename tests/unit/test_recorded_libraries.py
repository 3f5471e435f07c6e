"""Libraries in complete links with recorded tools, named by the user or added by the driver."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.recorded import RecordedTools
from support.recorded_link import CPU, calling, last_link, link, make_library, make_object, shown

from mlir_offload.toolchain.errors import ToolchainError


def test_a_call_of_sparse_matrices_is_linked_with_the_library_of_the_toolkit(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    given = make_object("a.o", ["scale"], more=calling("mgpuCreateSparseEnv"))
    library = tools.root / "cuda" / "lib64" / "libcusparse.so"
    library.touch()
    said = shown(tools, capsys, given)
    assert "runtime/sparse.c -o temps/sparse.o" in said
    assert " temps/sparse.o cuda/lib64/libcusparse.so -Wl,-rpath,cuda/lib64 " in said
    library.unlink()
    assert link(tools, given, "-o", "program", "-###") == ToolchainError.exit_status
    assert "cuda has no libcusparse.so" in capsys.readouterr().err
    assert "sparse" not in shown(tools, capsys, make_object("b.o", ["scale"]))


def test_the_memref_copy_that_an_object_calls_is_checked_as_the_program_is(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    given = make_object("a.o", ["scale"], more=calling("memrefCopy"))
    library = tools.root / "llvm-22" / "lib" / f"libclang_rt.asan-{os.uname().machine}.so"
    library.touch()
    said = shown(tools, capsys, given, "-fsanitize=address")
    (made,) = [line for line in said.splitlines() if "memref_copy.c" in line]
    assert " -fsanitize=address -c " in made
    last = last_link(said)
    # The library replaces malloc, so it comes before all else.
    assert (
        f"--offload-link llvm-22/lib/{library.name} -Wl,-rpath,llvm-22/lib -fuse-ld=lld a.o "
        in last
    )
    assert " temps/memref_copy.o " in last


def test_a_program_with_checks_is_linked_with_the_shared_library_of_them(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    given = make_object("a.o", ["scale"])
    assert link(tools, given, "-fsanitize=undefined", "-o", "program", "-###") != 0
    assert "the library of -fsanitize=undefined was not found" in capsys.readouterr().err
    name = f"libclang_rt.ubsan_standalone-{os.uname().machine}.so"
    (tools.root / "llvm-22" / "lib" / name).touch()
    last = last_link(shown(tools, capsys, given, "-fsanitize=undefined"))
    assert f" llvm-22/lib/{name} -Wl,-rpath,llvm-22/lib " in last
    assert "ubsan" not in shown(tools, capsys, given)
    # The library of a sanitizer has the functions of these checks.
    (tools.root / "llvm-22" / "lib" / name.replace("ubsan_standalone", "asan")).touch()
    assert "ubsan" not in shown(tools, capsys, given, "-fsanitize=address,undefined")


def test_a_library_of_mlir_that_is_found_is_linked_after_all_others(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    given = make_object("a.o", ["scale"], more=calling("printMemrefF32"))
    assert "mlir_runner_utils" not in shown(tools, capsys, given)
    Path("lib").mkdir()
    Path("lib/libmlir_runner_utils.so.22.1").touch()
    last = last_link(shown(tools, capsys, given, "-Llib"))
    library = "lib/libmlir_runner_utils.so.22.1"
    assert f" -Wl,--push-state,--as-needed {library} -Wl,--pop-state -Wl,-rpath,lib " in last
    assert last.index("runtime.o") < last.index(library)


@pytest.mark.llvm(22)
def test_a_function_that_only_the_c_interface_calls_is_to_be_declared_so(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.fails = lambda command: "--offload-link" in command.argv
    words = (make_object("a.o", ["scale"]), "-L/usr/lib/llvm-22/lib", "-o", "program")
    for function, is_said in (("printMemrefBF16", True), ("rtclock", False)):
        tools.said = f"ld.lld: error: undefined symbol: {function}\n"
        assert link(tools, *words) != 0
        said = capsys.readouterr().err
        assert (f"defines {function} only for calls by the C interface" in said) == is_said
        assert (
            f"declare {function} with `attributes {{llvm.emit_c_interface}}`" in said
        ) == is_said


def test_a_function_of_mlirs_library_that_is_missing_names_the_package(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.fails = lambda command: "--offload-link" in command.argv
    tools.said = "ld.lld: error: undefined symbol: printMemrefF32\n"
    assert link(tools, make_object("one.o", ["one"]), "-o", "program") != 0
    said = capsys.readouterr().err
    assert "printMemrefF32 is in libmlir_runner_utils.so of LLVM 22, which was not found" in said
    assert "apt install" in said


def test_whole_libraries_are_linked_as_their_members_in_a_program_with_code_for_the_cpu(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    given = make_object("a.o", ["scale"], target=CPU, calls="other")
    make_library("libb.a", make_object("b.o", ["add"], target=CPU, calls="other"))
    Path("libshared.so").write_text("a script of the linker")
    whole = ("-Wl,--whole-archive", "libb.a", "libshared.so", "-Wl,--no-whole-archive", "-lm")
    said = shown(tools, capsys, given, *whole)
    assert "step members libb.a -o temps/members2\n" in said
    assert " a.o temps/members2/0/b.o libshared.so -lm " in last_link(said)
    # A system library needs the option, which the driver does not search.
    said = shown(
        tools, capsys, given, "-Wl,--whole-archive", "libb.a", "-lm", "-Wl,--no-whole-archive"
    )
    assert " a.o -Wl,--whole-archive temps/members2/0/b.o -lm -Wl,--no-whole-archive " in said
    said = shown(tools, capsys, given, "libb.a", "-Wl,-whole-archive", "libshared.so")
    assert "step members" not in said
    assert " a.o libb.a libshared.so " in last_link(said)


def test_lld_keeps_the_entries_if_it_removes_unused_sections(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    given, option = make_object("a.o", ["scale"]), " -Wl,-z,nostart-stop-gc "
    removing = "-Wl,--gc-sections"
    assert option in last_link(shown(tools, capsys, given, removing))
    assert option not in last_link(shown(tools, capsys, given))
    assert option not in last_link(shown(tools, capsys, given, removing, "-fuse-ld=gold"))


def test_a_program_with_cpp_is_linked_with_its_library(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("call.cpp").touch()
    given = make_object("a.o", ["scale"])
    assert " -lm -lstdc++ " in last_link(shown(tools, capsys, given, "call.cpp"))
    assert "-lstdc++" not in last_link(shown(tools, capsys, given, "call.c"))


def test_whole_libraries_stay_libraries_in_a_program_without_code_for_the_cpu(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    make_library("libb.a", make_object("b.o", ["add"]))
    whole = ("-Wl,--whole-archive", "libb.a", "-Wl,--no-whole-archive")
    said = shown(tools, capsys, make_object("a.o", ["scale"]), *whole)
    assert f" a.o {' '.join(whole)} " in last_link(said)


def test_device_code_in_libraries_only_gets_an_object_in_front_of_them(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    make_library("libk.a", make_object("k.o", ["scale"]))
    said = shown(tools, capsys, "libk.a", "-Wl,--whole-archive", "-L.", "-lk")
    assert "step dummy-image temps/dummy/dummy.offload -o temps/dummy/dummy.ll" in said
    assert "-fuse-ld=lld temps/dummy/dummy.o libk.a " in said


def test_an_older_release_links_no_library_to_one_object(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.install(16)
    library = make_library("libkernels.a", make_object("one.o", ["one"], major=16))
    assert link(tools, "-r", library, "-o", "all.o", major=16) == 4
    said = capsys.readouterr().err
    assert "-r: LLVM 16 links objects (.o) to one, not libkernels.a" in said
