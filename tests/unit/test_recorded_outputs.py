"""What complete invocations with recorded tools write besides objects, and what they leave after an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.recorded import RECORDED, RecordedTools
from support.recorded_link import calling, make_object

from mlir_offload.driver import cli
from mlir_offload.toolchain.errors import InputOutputError, SourceError
from mlir_offload.toolchain.process import Command


def call(tools: RecordedTools, *words: str) -> int:
    places = (f"--llvm={tools.root}/llvm-22", f"--cuda-path={tools.root}/cuda", "-nogpulib", "-j2")
    return cli._guarded((*places, *words))


def shown(tools: RecordedTools, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """Return the lines of an invocation that runs no tool, with its intermediate files in temps."""
    status = call(tools, "-###", "-save-temps=temps", *words)
    said = capsys.readouterr().err
    assert status == 0, said
    return said.replace(f"{Path.cwd()}/", "").replace(f"{tools.root}/", "").splitlines()


def writing_rules(*headers: str) -> Callable[[Command], bool]:
    """Let clang write dependency files, as it does for C and C++."""

    def write(command: Command) -> bool:
        words = [word for word in command.argv if word != "-Xclang"]
        for option in {"-MF", "-dependency-file"}.intersection(words):
            rule = words[words.index(option) + 1]
            source = next(word for word in words if word.endswith((".c", ".cu")))
            Path(rule).write_text(f"object: {' '.join((source, *headers))}\n")
        return False

    return write


def test_compile_commands_say_how_each_language_is_compiled_alone(tools: RecordedTools) -> None:
    tools.fails = writing_rules()
    sources = ("scale.mlir", "launch.cu", "call.c")
    words = (
        "-MJ",
        "entries.json",
        "--offload-arch=sm_90",
        "-O1",
        "-MD",
        "-march=x86-64",
        "-fno-plt",
    )
    assert call(tools, "-c", *sources, *words) == 0
    entries = json.loads(f"[{Path('entries.json').read_text().rstrip().rstrip(',')}]")
    assert [(one["file"], one["output"]) for one in entries] == [
        ("scale.mlir", "scale.o"),
        ("launch.cu", "launch.o"),
        ("call.c", "call.o"),
    ]
    mlir, cuda, c = (one["arguments"] for one in entries)
    assert Path(mlir[0]).name == "mlir-offload"
    assert {"-fno-plt", "-O1", "-march=x86-64", "--offload-arch=sm_90"} <= {*mlir}
    assert [Path(one[0]).name for one in (cuda, c)] == ["clang", "clang"]
    assert "--offload-arch=sm_90" in cuda
    assert "--offload-arch=sm_90" not in c
    # Dependency files are not part of a compilation.
    assert not any("-MD" in one for one in (mlir, cuda, c))


def test_rules_go_to_standard_output(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("-c", "scale.mlir", "--offload-arch=host", "-MD", "-MF", "-")
    assert call(tools, *words) == 0
    assert capsys.readouterr().out == "scale.o: scale.mlir\n"


def test_what_clang_read_of_a_source_is_in_the_rule_and_the_statement(tools: RecordedTools) -> None:
    Path("own.h").touch()
    tools.fails = writing_rules("own.h")
    words = ("-c", "call.c", "--offload-arch=host", "-MD", "--manifest=made.json")
    assert call(tools, *words) == 0
    assert Path("call.d").read_text().split() == ["call.o:", "call.c", "own.h"]
    assert '"own.h"' in Path("made.json").read_text()


@pytest.mark.parametrize(
    ("words", "rules"),
    [
        (("-fsyntax-only", "call.c", "scale.mlir"), {"call.d": "call.o: call.c own.h", "scale.d": "scale.o: scale.mlir"}),
        (("-fsyntax-only", "scale.mlir", "-o", "made.x"), {"made.d": "made.x: scale.mlir"}),
        (("-E", "call.c"), {"call.d": "call.o: call.c own.h"}),
        (("-E", "call.c", "-o", "made.i"), {"made.d": "made.i: call.c own.h"}),
        (("-M", "call.c"), {}),
        (("--offload-device-only", "-c", "scale.mlir"), {"scale.d": "scale.o: scale.mlir"}),
        (("--offload-device-only", "-c", "launch.cu"), {"launch.d": "launch.o: launch.cu own.h"}),
        (("--offload-device-only", "-S", "scale.mlir", "-o", "made.ptx"), {"made.d": "made.ptx: scale.mlir"}),
    ],
    ids=str,
)  # fmt: skip
def test_a_rule_without_an_object_is_for_the_output_or_the_object_of_the_source(
    words: tuple[str, ...], rules: dict[str, str], tools: RecordedTools
) -> None:
    Path("own.h").touch()
    tools.fails = writing_rules("own.h")
    assert call(tools, *words, "--offload-arch=sm_90", "-MD") == 0
    assert {str(one): one.read_text().strip() for one in Path().glob("*.d")} == rules


@pytest.mark.parametrize("dry", [(), ("-###",)], ids=["made", "shown"])
def test_a_file_of_rules_has_the_rule_of_each_source(
    dry: tuple[str, ...], tools: RecordedTools
) -> None:
    tools.outputs["call.d"] = b"call.o: call.c own.h\n"
    words = ("-M", "call.c", "scale.mlir", "-MF", "rules.d", "--offload-arch=host", *dry)
    assert call(tools, *words) == 0
    if dry:
        assert not Path("rules.d").exists()
    else:
        rules = "call.o: call.c own.h\nscale.o: scale.mlir\n"
        assert Path("rules.d").read_text() == rules


def test_the_rule_of_a_header_alone_is_for_the_header(tools: RecordedTools) -> None:
    text = (RECORDED / "normal.mlir").read_text().replace('"main"', '"run"')
    public = text.replace(
        "}) : () -> () loc(#loc1)", "}) {llvm.emit_c_interface} : () -> () loc(#loc1)"
    )
    tools.outputs["normal.mlir"] = public.encode()
    words = ("--emit-header=scale.h", "-MD", "-MF", "scale.d", "scale.mlir")
    assert call(tools, *words, "--offload-arch=host") == 0
    assert "_mlir_ciface_run(" in Path("scale.h").read_text()
    assert Path("scale.d").read_text() == "scale.h: scale.mlir\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-c", "-fsave-optimization-record"), "-foptimization-record-file=out/made-call.opt.yaml"),
        (("-c", "-fstack-usage"), "-Xclang -stack-usage-file -Xclang out/made-call.su"),
        (("-fsave-optimization-record",), "-foptimization-record-file=call.opt.yaml"),
        (("-c", "-fsave-optimization-record", "-foptimization-record-file=own.yaml"), ""),
    ],
    ids=" ".join,
)
def test_records_of_clang_are_written_next_to_the_output(
    words: tuple[str, ...],
    said: str,
    tools: RecordedTools,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("out").mkdir()
    given = ("call.c", "--offload-arch=host", "-o", "out/made.o", *words)
    (line,) = [one for one in shown(tools, capsys, *given) if " call.c " in one]
    assert said in line
    assert bool(said) == (".opt.yaml" in line or ".su" in line)


def test_a_non_rdc_object_of_host_code_has_the_memref_copy_that_it_calls(
    tools: RecordedTools,
) -> None:
    text = (RECORDED / "normal.mlir").read_text()
    start, end = text.index('    "gpu.launch_func"'), text.index('    "func.return"')
    module, last = text.index('  "gpu.module"'), text.index("}) {gpu.container_module}")
    tools.outputs["normal.mlir"] = (text[:start] + text[end:module] + text[last:]).encode()
    tools.outputs["host.ll"] = b"define i32 @main() {\n  ret i32 0\n}\n"
    words = ("-c", "scale.mlir", "--offload-arch=sm_90", "-fno-gpu-rdc", "-o", "made.o")
    for function, is_added in (("memrefCopy", True), ("other", False)):
        host = Path(make_object("host.o", [], more=calling(function))).read_bytes()
        tools.outputs |= {"host.o": host, "scale.o": b"\x7fELF with the copy"}
        tools.commands.clear()
        assert call(tools, *words) == 0
        linked = [one.argv for one in tools.commands if "-r" in one.argv]
        assert [any("memref_copy.o" in word for word in argv) for argv in linked] == [
            True
        ] * is_added
        assert Path("made.o").read_bytes() == (b"\x7fELF with the copy" if is_added else host)


def test_an_older_object_is_removed_if_the_build_fails(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("scale.o").write_text("an older object")
    tools.fails = lambda command: command.argv[-1].endswith("host.low.mlir")
    words = ("-c", "scale.mlir", "--offload-arch=host")
    assert call(tools, *words, "-###") == 0
    assert Path("scale.o").exists()
    assert call(tools, *words) != 0
    assert not Path("scale.o").exists()
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "stage"),
    [
        (("-c",), "--offload-device-only -c"),
        (("-S",), "--offload-device-only -S"),
        (("-S", "-emit-llvm"), "--offload-device-only -S -emit-llvm"),
    ],
    ids=" ".join,
)
def test_cuda_cpp_is_compiled_for_the_device_alone(
    words: tuple[str, ...],
    stage: str,
    tools: RecordedTools,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ("launch.cu", "--offload-arch=sm_90", "--offload-device-only", *words, "-o", "made")
    (line,) = [one for one in shown(tools, capsys, *given) if " launch.cu " in one]
    assert f"/clang {stage} -O2 " in line


def test_passes_of_a_file_run_first_and_the_file_is_a_dependency(tools: RecordedTools) -> None:
    Path("passes.yaml").write_text("passes: [canonicalize]\nplugins: [mine.so]\n")
    words = ("-c", "scale.mlir", "--offload-arch=host", "--pipeline=passes.yaml", "-MD")
    assert call(tools, *words) == InputOutputError.exit_status
    Path("mine.so").touch()
    assert call(tools, *words) == 0
    assert Path("scale.d").read_text().split() == [
        *("scale.o:", "scale.mlir", "mine.so", "passes.yaml")
    ]
    (run,) = [one.argv for one in tools.commands if one.argv[-1].endswith("normal.mlir")]
    (passes,) = [word for word in run if word.startswith("--pass-pipeline")]
    assert passes.startswith("--pass-pipeline=builtin.module(canonicalize,")


def test_every_invalid_function_of_a_source_is_reported(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("scale.mlir").write_text(
        "func.func @f() {\n  wrong\n}\nfunc.func @g() {\n  wrong\n}\nfunc.func @h() {\n  return\n}\n"
    )

    def fails(command: Command) -> bool:
        texts = [Path(word) for word in command.argv if word.endswith(".mlir")]
        line = 2 if "@f" in texts[0].read_text() else 5
        tools.said = f"{texts[0]}:{line}:3: error: custom op 'wrong' is unknown\n"
        return command.program == "mlir-opt" and "wrong" in texts[0].read_text()

    tools.fails = fails
    assert call(tools, "-c", "scale.mlir", "--offload-arch=host") == SourceError.exit_status
    said = capsys.readouterr().err
    assert "scale.mlir:2:3: error: unknown operation 'wrong'" in said
    assert "scale.mlir:5:3: error: unknown operation 'wrong'" in said
    assert "rest.mlir" not in said


def test_the_runtime_inside_has_the_sparse_functions_that_the_program_calls(
    tools: RecordedTools,
) -> None:
    host = (RECORDED / "host.ll").read_bytes()
    words = ("-c", "scale.mlir", "--offload-arch=sm_90", "--embed-runtime")

    def compiled() -> list[list[str]]:
        tools.commands.clear()
        assert call(tools, *words) == 0
        return [[Path(word).name for word in one.argv] for one in tools.commands]

    assert not any("sparse.bc" in argv for argv in compiled())
    tools.outputs["host.ll"] = host + b"declare void @mgpuCreateSparseEnv()\n"
    sparse, whole = [argv for argv in compiled() if "sparse.bc" in argv]
    assert "sparse.c" in sparse
    assert whole[-1] == "host.whole.ll"
