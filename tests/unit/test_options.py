from __future__ import annotations

from pathlib import Path

import pytest

from mlir_offload.driver.option.command_line import CompileOptions, Mode, parse_arguments
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.translate.sanitizer import Sanitizer


@pytest.mark.parametrize(
    ("arguments", "mode"),
    [
        (["k.mlir"], Mode.LINK),
        (["-c", "k.mlir"], Mode.OBJECT),
        (["-S", "k.mlir"], Mode.ASSEMBLY),
        (["-S", "-emit-llvm", "k.mlir"], Mode.LLVM_TEXT),
        (["-c", "-emit-llvm", "k.mlir"], Mode.LLVM_BITCODE),
        (["-emit-llvm", "k.mlir"], Mode.LLVM_BITCODE),
    ],
    ids=str,
)
def test_the_last_stage_is_the_one_that_clang_would_stop_at(
    arguments: list[str], mode: Mode
) -> None:
    assert parse_arguments(arguments).mode is mode


def test_archs_come_from_lists_and_from_repeated_options_once_each() -> None:
    options = parse_arguments(["--offload-arch=sm_80,sm_90", "--offload-arch=host,sm_80", "k.mlir"])
    assert options.offload_archs == ("sm_80", "sm_90", "host")


@pytest.mark.parametrize(
    "arguments", [["-o", "x", "k.mlir"], ["-ox", "k.mlir"]], ids=["separate", "joined"]
)
def test_a_value_may_be_joined_or_the_next_argument(arguments: list[str]) -> None:
    assert parse_arguments(arguments).output == Path("x")


def test_inputs_and_libraries_keep_their_order_for_the_linker() -> None:
    options = parse_arguments(["a.o", "-Llib", "-lx", "b.o", "-Wl,--as-needed", "-l", "m"])
    assert options.link_items == ("a.o", "-Llib", "-lx", "b.o", "-Wl,--as-needed", "-lm")


def test_the_linker_of_the_user_and_warnings_for_c_are_passed_on() -> None:
    options = parse_arguments(["-Wall", "-fuse-ld=mold", "-static-libgcc", "a.o", "-Wl,-z,now"])
    assert options.link_items == ("-fuse-ld=mold", "-static-libgcc", "a.o", "-Wl,-z,now")
    assert options.compiler_arguments == ("-Wall",)


def test_a_file_name_that_looks_like_an_option_stays_a_file() -> None:
    options = parse_arguments(["-c", "--", "-k.mlir"])
    assert options.inputs == (Path("-k.mlir"),)
    assert options.link_items == ("./-k.mlir",)


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ([], "no input files", "name at least one"),
        (["-zap", "k.mlir"], "unknown option '-zap'", "--help"),
        (["--offload-arhc=sm_90", "k.mlir"], "unknown option", "'--offload-arch'"),
        (["k.mlir", "-o"], "option '-o' needs a value", ""),
        (["-c", "a.mlir", "b.mlir", "-o", "x.o"], "-o names one file", "each input"),
        (["-c", "-shared", "a.mlir"], "-shared links", ""),
        (["--offload-arch=,", "k.mlir"], "expects an architecture", "sm_NN"),
        (["-j0", "k.mlir"], "-j needs a number", ""),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_bad_command_line_is_an_error_with_its_cure(
    arguments: list[str], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_arguments(arguments)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_the_default_is_optimised_code_without_debug_info() -> None:
    options = parse_arguments(["k.mlir"])
    assert (options.opt_level, options.debug) == (2, False)
    assert CompileOptions().jobs >= 1


def test_the_processor_of_kernels_for_the_cpu_is_that_of_the_machine_unless_named() -> None:
    assert parse_arguments(["k.mlir"]).march == "native"
    assert parse_arguments(["-march=x86-64-v3", "k.mlir"]).march == "x86-64-v3"


def test_nvccs_options_choose_the_form_of_device_code() -> None:
    endings = {
        words: parse_arguments([*words.split(), "k.mlir"]).device_ending
        for words in ("-ptx", "-cubin", "--genco", "-fatbin")
    }
    assert endings == {
        "-ptx": ".ptx",
        "-cubin": ".cubin",
        "--genco": ".hsaco",
        "-fatbin": ".fatbin",
    }
    assert parse_arguments(["-fatbin", "k.mlir"]).makes_fat_binary


@pytest.mark.parametrize("marks", ["{}", '"{}"', "[{}]"])
def test_a_list_of_gencode_may_be_in_quotes_or_brackets(marks: str) -> None:
    value = f"arch=compute_90,code={marks.format('sm_90,compute_90')}"
    assert parse_arguments(["-gencode", value, "k.mlir"]).offload_archs == ("sm_90",)


def test_checks_of_cpp_alone_are_passed_to_clang_and_instrument_no_kernel() -> None:
    options = parse_arguments(["-fsanitize=undefined,bounds", "k.mlir"])
    assert (options.sanitizer, options.compiler_arguments) == (
        None,
        ("-fsanitize=undefined,bounds",),
    )
    both = parse_arguments(["-fsanitize=address,undefined", "k.mlir"])
    assert both.sanitizer is Sanitizer.ADDRESS
    assert both.compiler_arguments == ("-fsanitize=undefined",)
    with pytest.raises(UsageError, match="is not supported for programs with kernels"):
        parse_arguments(["-fsanitize=address,thread", "k.mlir"])


@pytest.mark.parametrize("option", ["-m32", "-ccc-print-phases"])
def test_an_option_that_would_change_the_output_in_vain_is_rejected(option: str) -> None:
    with pytest.raises(UsageError, match="is not supported"):
        parse_arguments([option, "k.mlir"])


def test_options_that_distributions_set_are_accepted() -> None:
    options = parse_arguments(["-O4", "-specs=/usr/lib/rpm/redhat/cc1", "k.mlir"])
    assert options.opt_level == 3
    assert options.unused == ("-specs=/usr/lib/rpm/redhat/cc1",)


@pytest.mark.parametrize("spelled", ["./{}", ".//{}", "{}"])
def test_an_input_has_one_name_for_the_linker_however_it_is_spelled(spelled: str) -> None:
    names = [spelled.format(name) for name in ("lib/a.mlir", "b.o", "libc.a", "-d.o")]

    options = parse_arguments(["--", *names])

    # Objects replace the items of the sources and of kernels with duplicate names by these words.
    assert options.link_items == ("lib/a.mlir", "b.o", "libc.a", "./-d.o")


def test_the_linker_gets_a_shared_library_as_it_is_spelled() -> None:
    # Without a SONAME, the dynamic linker searches for exactly this name.
    assert parse_arguments(["a.o", "./libb.so", ".//libc.so.1"]).link_items == (
        "a.o",
        "./libb.so",
        ".//libc.so.1",
    )
