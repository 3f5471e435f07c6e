"""Convert messages of the tools to one error with location, reason and hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlir_offload.toolchain.errors import (
    CompatibilityError,
    InputOutputError,
    MlirOffloadError,
    Note,
    SourceError,
    ToolchainError,
    ToolFailedError,
)
from mlir_offload.toolchain.process import Command, Completed, ProcessRunner
from mlir_offload.toolchain.tables import load_table
from mlir_offload.translate.diagnostics import condense
from mlir_offload.translate.input_pipeline import check_source

SOURCE = Path("dir/p.mlir")
DEVICE = "--pass-pipeline=builtin.module(gpu.module(convert-gpu-to-nvvm))"


def completed(
    stderr: str,
    *,
    status: int = 1,
    tool: str = "mlir-opt",
    source: str = str(SOURCE),
    option: str = "",
) -> Completed:
    argv = (f"/usr/bin/{tool}", option, source, "-o", "out.mlir")
    return Completed(Command(argv), status, "", stderr)


def diagnose(stderr: str, option: str = "") -> MlirOffloadError:
    return condense(completed(stderr, option=option), source=SOURCE)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("expected ':'", "expected ':'", ""),
        ("custom op 'arith.fancy' is unknown", "unknown operation 'arith.fancy'", "--llvm="),
        ("custom op 'func' is unknown (tried 'builtin.func' as well)", "before 2022", "func.func"),
        ("custom op 'gpu.kernel_module' is unknown", "2019", "gpu.module"),
        ("Dialect `foo' not found for custom op 'foo.bar' ", "no dialect 'foo'", "spelling"),
        (
            "'gpu.launch_func' op kernel function '@kernels::@incc' is undefined",
            "launch of kernel @kernels::@incc, which does not exist",
            "define it",
        ),
        (
            "'gpu.launch_func' op kernel container 'kernelz' is undefined",
            "gpu.module @kernelz, which does not exist",
            "define",
        ),
        (
            "'gpu.launch_func' op got 1 kernel operands but expected 2",
            "passes 1 arguments to a kernel that takes 2",
            "args(...)",
        ),
        (
            "'gpu.launch_func' op type of function argument 0 does not match",
            "parameter 0",
            "args(...)",
        ),
        (
            "'func.call' op 'f' does not reference a valid function",
            "call of function @f",
            "gpu.module",
        ),
        (
            "'gpu.launch_func' op expected the closest surrounding module to have the 'gpu.container_module' attribute",
            "container of GPU modules",
            "module attributes {gpu.container_module} {",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place_and_cure(text: str, message: str, hint: str) -> None:
    error = diagnose(f"dir/p.mlir:5:7: error: {text}\n  source line\n  ^\n")

    assert isinstance(error, SourceError)
    assert message in error.message
    assert hint in error.hint
    assert error.location == "dir/p.mlir:5:7"


@pytest.mark.parametrize(
    ("end", "is_early"), [("\n\n", True), ("  // }\n", True), ("\n}\n", False)]
)
def test_a_file_that_ends_inside_a_region_lacks_a_brace(
    tmp_path: Path,
    end: str,
    is_early: bool,  # noqa: FBT001
) -> None:
    source = tmp_path / "p.mlir"
    source.write_text(f"func.func @f() {{\n  return{end}")
    stderr = f"{source}:2:9: error: expected operation name in quotes\n  return\n        ^\n"
    error = condense(completed(stderr, source=str(source)), source=source)
    assert error.message.startswith("expected '}' before the end") is is_early
    assert error.notes == ((Note("to match this '{'", f"{source}:1:16"),) if is_early else ())


def test_the_block_that_lacks_its_brace_is_found_by_the_indentation(tmp_path: Path) -> None:
    source = tmp_path / "p.mlir"
    source.write_text("func.func @f(%a: i1) {\n  scf.if %a {\n    gpu.barrier\n  return\n}\n")
    stderr = f"{source}:4:3: error: Dialect `' not found for custom op 'return'\n"
    error = condense(completed(stderr, source=str(source)), source=source)
    assert error.message == "'return' is not the terminator of this region"
    assert error.notes == (Note("to match this '{'", f"{source}:2:13"),)


def test_text_after_an_operation_is_named(tmp_path: Path) -> None:
    source = tmp_path / "p.mlir"
    source.write_text("func.func @f() {\n  %c = arith.constant 0 i32\n}\n")
    stderr = f"{source}:2:24: error: expected operation name in quotes\n"
    error = condense(completed(stderr, source=str(source)), source=source)
    assert (error.message, error.location) == (
        "expected an operation, found 'i32'",
        f"{source}:2:25",
    )
    source.write_text("func.func @f() {\n}\n}\n")
    stderr = f"{source}:2:2: error: expected operation name in quotes\n"
    error = condense(completed(stderr, source=str(source)), source=source)
    assert (error.message, error.location) == ("extraneous closing brace ('}')", f"{source}:3:1")


def test_no_message_has_the_generic_form_of_an_operation() -> None:
    error = diagnose(
        'p.mlir:4:5: error: odd "gpu.barrier"() : () -> ()\n    gpu.barrier\n    ^\n'
        'p.mlir:4:5: note: see current operation: "gpu.barrier"() : () -> ()\n'
        "p.mlir:2:3: note: prior use here\n"
    )
    assert error.message == "odd 'gpu.barrier'"
    assert error.notes == (Note("prior use here", "p.mlir:2:3"),)


def test_a_call_of_device_code_from_the_host_is_explained() -> None:
    text = "p.mlir:9:20: error: custom op 'func.call' invalid kind of attribute specified\n"
    error = diagnose(f"{text}    %r = func.call @m::@helper(%c) : (f32) -> f32\n")
    assert error.message == "a function of a gpu.module cannot be called from host code"


def test_every_error_counts_once() -> None:
    first, second = "p.mlir:1:2: error: first\n x\n ^\n", "p.mlir:3:4: error: second\n"
    error = diagnose(first + second + second)

    assert [(one.message, one.location) for one in error.every] == [
        ("first", "p.mlir:1:2"),
        ("second", "p.mlir:3:4"),
    ]


def test_an_operation_of_an_unknown_dialect_is_named_from_the_line_shown() -> None:
    error = diagnose(
        "p.mlir:2:12: error: operation being parsed with an unregistered dialect. If this is\n"
        '  "foo.bar"() : () -> ()\n           ^\n'.replace("is\n", "is intended, ...\n")
    )

    assert "unknown operation 'foo.bar'" in error.message


def test_a_type_of_old_text_is_told_from_the_line_shown() -> None:
    error = diagnose(
        'p.mlir:1:24: error: expected valid keyword\nfunc.func @f(%a: !llvm<"float*">)\n       ^\n'
    )

    assert "before 2021" in error.message
    assert "!llvm.ptr" in error.hint


@pytest.mark.parametrize(("option", "place"), [(DEVICE, "a kernel"), ("", "host code")])
def test_an_operation_without_a_lowering_is_named_with_its_place(option: str, place: str) -> None:
    error = diagnose(
        "p.mlir:5:10: error: failed to legalize operation 'gpu.rotate' that was explicitly marked illegal\n",
        option,
    )

    assert error.message == f"gpu.rotate is not supported in {place} by this release of MLIR"


@pytest.mark.parametrize("status", [-11, -6, 134, 139])
def test_a_crash_is_no_fault_of_the_program(status: int) -> None:
    stderr = "p.mlir:3:1: error: x\nPLEASE submit a bug report to ...\n#0 0x0000\n"

    error = condense(completed(stderr, status=status), source=SOURCE)

    assert isinstance(error, ToolFailedError)
    assert error.message.startswith("internal crash of mlir-opt (")
    assert error.stderr == stderr
    assert "--llvm=" in error.hint


def test_an_intermediate_file_that_cannot_be_read_is_no_fault_of_the_program() -> None:
    failed = completed("work/host.mlir:9:1: error: bad\n", source="work/host.mlir")

    error = condense(failed, source=SOURCE)

    assert isinstance(error, ToolFailedError)
    assert "intermediate" in error.message


def test_a_missing_pass_is_a_matter_of_the_installation() -> None:
    error = diagnose(
        "<unknown>:0: error: MLIR Textual PassPipeline Parser:1:1: error: 'test-x' does not refer to a registered pass or pass pipeline\n"
    )

    assert isinstance(error, ToolchainError)
    assert "'test-x'" in error.message


def test_bytecode_of_another_release_is_told_with_its_producer() -> None:
    error = diagnose(
        "dir/p.mlir:0:0: error: has properties but missing BytecodeOpInterface for scf.for\n"
        "dir/p.mlir:0:0: note: in bytecode version 6 produced by: MLIR22.1.8\n"
    )

    assert isinstance(error, CompatibilityError)
    assert "MLIR22.1.8" in error.message


@pytest.mark.parametrize(
    "stderr",
    ["cannot open output file '/x/y.mlir': Read-only file system\n", "LLVM ERROR: IO failure: No space left on device\n"],
)  # fmt: skip
def test_a_file_that_cannot_be_written_is_told_as_such(stderr: str) -> None:
    assert isinstance(diagnose(stderr), InputOutputError)


def test_a_failure_without_a_known_text_keeps_all_that_was_said() -> None:
    error = diagnose("what?\n")

    assert isinstance(error, ToolFailedError)
    assert error.stderr == "what?\n"


def test_a_location_without_a_file_falls_back_to_the_source() -> None:
    assert diagnose("<stdin>:3:4: error: x\n").location == "dir/p.mlir"


@pytest.mark.parametrize(
    "content", [b"module {}\n", b"ML\xefR\x0d\x01\x00", "// é\n".encode(), b"// \xe9\n"]
)
def test_text_and_bytecode_are_accepted(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "p.mlir"
    path.write_bytes(content)

    assert check_source(path) == content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\x7fELF\x02\x01", "an ELF object"),
        (b"BC\xc0\xde\x35", "LLVM bitcode"),
        (b"!<arch>\n", "an archive"),
        (b"module {\x00}", "a binary file"),
    ],
)
def test_what_is_no_program_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "p.mlir"
    path.write_bytes(content)

    with pytest.raises(SourceError, match=message) as caught:
        check_source(path)

    assert caught.value.location == str(path)


PRETTY = b"%r = vector.multi_reduction <add>, %x, %acc "
GENERIC = b'%r = "vector.multi_reduction"(%x, %acc) <{kind = #vector.kind<add>, reduction_dims = '


# mlir-opt 19 and 22 fold them to %x.
@pytest.mark.parametrize("code", [PRETTY + b"[ ] : vector<2xi32>", GENERIC + b"array<i64>}>"])
def test_a_reduction_of_no_dimension_is_refused(tmp_path: Path, code: bytes) -> None:
    path = tmp_path / "p.mlir"
    path.write_bytes(b"// " + code + b"\n\n" + code)

    with pytest.raises(SourceError, match="mlir-opt drops the accumulator") as caught:
        check_source(path)

    assert caught.value.location == f"{path}:3"


@pytest.mark.parametrize("code", [PRETTY + b"[0] : vector<2xi32>", GENERIC + b"array<i64: 0>}>"])
def test_other_reductions_are_accepted(tmp_path: Path, code: bytes) -> None:
    path = tmp_path / "p.mlir"
    path.write_bytes(b"// " + PRETTY + b"[] none\n" + code + b"\n%s = f [] : i32\n")

    assert check_source(path).endswith(code + b"\n%s = f [] : i32\n")


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputOutputError, match="No such file"):
        check_source(tmp_path / "none.mlir")
    with pytest.raises(InputOutputError, match=r"[Ii]s a directory"):
        check_source(tmp_path)


def test_the_operation_that_a_misspelled_one_means_is_suggested() -> None:
    error = diagnose("p.mlir:3:10: error: custom op 'gpu.thread_idx' is unknown\n")
    assert (error.hint, error.fix) == ("did you mean 'gpu.thread_id'?", "gpu.thread_id")
    assert diagnose("p.mlir:3:10: error: custom op 'gpu.frobnicate' is unknown\n").fix == ""


def test_an_operation_of_another_release_is_not_suggested_for_itself() -> None:
    error = diagnose("p.mlir:3:10: error: custom op 'gpu.warp_execute_on_lane_0' is unknown\n")
    assert error.fix == ""
    assert "--llvm=" in error.hint


@pytest.mark.llvm(22)
def test_suggested_operations_are_those_of_mlir_opt(tmp_path: Path) -> None:
    table = load_table("mlir_offload.translate", "operations")["dialects"]
    names = [f"{dialect}.{name}" for dialect, own in table.items() for name in own]
    source = tmp_path / "all.mlir"
    # A bracket is not an operand of any operation: parsing ends after the name.
    source.write_text("\n// -----\n".join(f"{name} ]" for name in names))
    argv = ("/usr/lib/llvm-22/bin/mlir-opt", "--split-input-file", str(source), "-o", "/dev/null")
    done = ProcessRunner().run(Command(argv))
    assert done.stderr.count("error: ") >= len(names) > 400
    assert "is unknown" not in done.stderr


def test_an_operation_of_a_plugin_that_no_pass_lowered_is_named_in_the_source(
    tmp_path: Path,
) -> None:
    part = tmp_path / "device0.mlir"
    part.write_text(
        '"gpu.module"() ({\n  %12 = "answer.value"() : () -> i32 loc(#loc6)\n}) : () -> () loc(#loc4)\n'
        '#loc4 = loc("a.mlir":5:3)\n#loc6 = loc("a.mlir":7:15)\n'
    )
    stderr = (
        f"{part}:2:27: error: operation being parsed with an unregistered dialect.\n"
        '  %12 = "answer.value"() : () -> i32\n                          ^\n'
    )
    error = condense(completed(stderr, source=str(part)), source=SOURCE)
    assert isinstance(error, SourceError)
    assert error.location == "a.mlir:7:15"
    assert "'answer.value'" in error.message
    assert "--load-pass-plugin=" in error.hint


def test_a_plugin_that_mlir_opt_does_not_load_is_named() -> None:
    error = diagnose(
        "Failed to load passes from './p.so'. Request ignored.\n"
        "'lower-answer' does not refer to a registered pass\n"
    )
    assert "cannot load the plugin ./p.so" in error.message


def test_an_unknown_pass_has_a_hint_that_lists_passes() -> None:
    error = diagnose("'lower-answr' does not refer to a registered pass")
    assert "'/usr/bin/mlir-opt --help' lists the passes" in error.hint
