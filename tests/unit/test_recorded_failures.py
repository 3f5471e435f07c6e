"""Errors for failing tools, and for programs that do not suit the targets, with recorded tools."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.recorded import RECORDED, RecordedTools

from mlir_offload.driver import cli
from mlir_offload.driver.compile import device
from mlir_offload.toolchain.errors import ToolFailedError, UsageError


def compiled(tools: RecordedTools, *words: str, major: int = 22) -> int:
    places = (f"--llvm={tools.root}/llvm-{major}", f"--cuda-path={tools.root}/cuda", "-nogpulib")
    return cli._guarded(("-j2", "-c", *places, *words))


@pytest.mark.parametrize(
    ("source", "printed", "status", "said"),
    [
        ("call.c", "call.c:1:5: error: unknown type name 'x'", 1, "call.c:1:5: error: unknown type"),
        ("call.c", "clang: error: unknown argument: '-fnone'", 2, "clang: error: unknown argument: '-fnone'\n"),
        ("call.c", "error: unknown target CPU 'x'\nnote: valid", 2, "error: unknown target CPU 'x'\nnote: valid"),
        ("call.c", "fatal error: error in backend: cannot do it", 5, "cannot do it"),
        (
            "launch.cu",
            "__clang_cuda_runtime_wrapper.h:47:10: fatal error: 'curand.h' file not found",
            3,
            "includes curand.h, which this CUDA 13.0.88 lacks",
        ),
        ("launch.hip", "use of undeclared identifier '__AMDGCN_WAVEFRONT_SIZE'", 3, "ROCm 6 or newer"),
        ("launch.hip", "error: cannot find HIP runtime; provide it", 3, "finds no complete HIP"),
        ("launch.hip", "launch.hip:1:1: error: expected ';'", 1, "launch.hip:1:1: error: expected"),
    ],
    ids=str,
)  # fmt: skip
def test_what_clang_says_of_a_source_becomes_an_error_of_its_class(
    source: str,
    printed: str,
    status: int,
    said: str,
    tools: RecordedTools,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tools.fails, tools.said = lambda command: source in command.argv, f"{printed}\n"
    assert compiled(tools, source, "--offload-arch=sm_90,gfx90a") == status
    assert said in capsys.readouterr().err


def test_cuda_cpp_without_a_gpu_of_nvidia_is_rejected(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compiled(tools, "launch.cu", "--offload-arch=gfx90a") == 2
    assert "launch.cu: error: CUDA C++ is compiled for" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("fatal error: error in backend: Cannot select: intrinsic %llvm.nvvm.setmaxnreg", "has no instruction for llvm.nvvm.setmaxnreg"),
        ("device0.ll:3:1: error: expected type", "LLVM 19 rejects the output of LLVM 22 for this file: expected type"),
    ],
    ids=["an instruction", "a type"],
)  # fmt: skip
def test_what_an_older_release_does_not_take_says_so(
    printed: str, said: str, tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.said = f"{printed}\n"
    tools.fails = lambda command: "--target=nvptx64-nvidia-cuda" in command.argv
    assert compiled(tools, "scale.mlir", "--offload-arch=sm_90", "--for-clang=19") != 0
    assert said in capsys.readouterr().err


def test_a_module_for_another_gpu_is_not_compiled(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (RECORDED / "normal.mlir").read_text()
    attached = 'targets = [#nvvm.target<chip = "sm_80">]'
    tools.outputs["normal.mlir"] = text.replace(
        '"gpu.module"() <{', f'"gpu.module"() <{{{attached}, ', 1
    ).encode()
    assert compiled(tools, "scale.mlir", "--offload-arch=sm_90") == 1
    said = capsys.readouterr().err
    assert "is attached to sm_80, not sm_90" in said
    assert "hint: attach sm_90 too" in said
    assert compiled(tools, "scale.mlir", "--offload-arch=sm_80", "-o", "scale.o", "-###") == 0


def test_parts_that_cannot_be_lowered_together_are_lowered_one_by_one(
    tools: RecordedTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "_MOST_BYTES", 1 << 20)
    tools.outputs["joint.low.mlir"] = b"not what mlir-opt prints"
    assert compiled(tools, "scale.mlir", "--offload-arch=sm_90", "-o", "scale.o") == 0
    lowered = [one.argv[-1] for one in tools.commands if one.program == "mlir-opt"]
    assert [Path(name).name for name in lowered if "joint" in name] == ["joint.low.mlir"]
    assert any(name.endswith("host.low.mlir") for name in lowered)


def test_a_launcher_is_not_used_for_objects_that_are_linked_at_once(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("scale.mlir", "--offload-arch=sm_90", "--launcher=launch", "-fno-gpu-rdc", "-###")
    assert compiled(tools, *words, "-o", "scale.o") == 0
    assert "compiled without launch: with -fno-gpu-rdc" in capsys.readouterr().err


def test_a_step_that_fails_under_the_launcher_only_is_the_launchers_fault(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.fails = lambda command: command.program == "launch"
    words = ("scale.mlir", "--offload-arch=sm_90", "--launcher=launch", "-o", "scale.o")
    assert compiled(tools, *words) != 0
    said = capsys.readouterr().err
    assert "a step fails under the launcher 'launch' only: " in said
    assert "hint: look at the launcher's own setting" in said
    assert not Path("scale.o").exists()


def test_a_plugin_that_is_not_there_is_named(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("scale.mlir", "--offload-arch=sm_90", "--load-dialect-plugin=none.so")
    assert compiled(tools, *words) != 0
    assert "cannot read the plugin none.so: no such file" in capsys.readouterr().err
    assert not any(one.program == "mlir-opt" and "-o" in one.argv for one in tools.commands)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("func.func @f(%t: tensor<4xf32>) {\n  return\n}\n", "works on tensors: lowering it with --pipeline="),
        ("func.func @f() {\n  scf.parallel (%i) = (%a) to (%b) step (%c) {\n  }\n}\n", "has no GPU code: scf.parallel runs on the host"),
    ],
    ids=["tensors", "loops"],
)  # fmt: skip
def test_the_pipeline_of_a_source_without_gpu_code_is_noted(
    text: str, said: str, tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("loops.mlir").write_text(text)
    assert compiled(tools, "loops.mlir", "--offload-arch=sm_90", "-o", "loops.o", "-###") == 0
    assert f"note: loops.mlir {said}" in capsys.readouterr().err


def test_the_runtime_inside_of_llvm_ir_requires_the_clang_that_reads_it(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "scale.mlir",
        "--offload-arch=sm_90",
        "--embed-runtime",
        "-S",
        "-emit-llvm",
        "--for-clang=21",
    )
    assert compiled(tools, *words) == 4
    assert "--embed-runtime: LLVM IR for LLVM 21 requires its clang" in capsys.readouterr().err


def test_files_that_clang_writes_besides_the_object_lie_next_to_the_output(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("out").mkdir()
    words = ("call.c", "--offload-arch=host", "-gsplit-dwarf", "-o", "out/made.o", "-###")
    assert compiled(tools, *words) == 0
    assert "-dumpdir out/made-" in capsys.readouterr().err
    tools.install(16)
    assert compiled(tools, *words, f"--llvm={tools.root}/llvm-16", "--for-clang=16", major=16) == 4
    assert "clang 16 cannot write the files of -gsplit-dwarf" in capsys.readouterr().err


def test_ptx_of_several_modules_is_linked_to_one_for_each_architecture(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (RECORDED / "normal.mlir").read_text()
    start = text.index('"gpu.module"() <{')
    start = text.rindex("\n", 0, start) + 1
    end = text.index("\n  }) ", text.index('"gpu.module"() <{'))
    end = text.index("\n", end + 1) + 1
    module = text[start:end]
    second = module.replace('sym_name = "', 'sym_name = "second_')
    tools.outputs["normal.mlir"] = (text[:end] + second + text[end:]).encode()
    for kind in (".low.mlir", ".ll"):
        tools.outputs[f"device1{kind}"] = (RECORDED / f"device0{kind}").read_bytes()
    words = ("scale.mlir", "--offload-arch=sm_80,sm_90", "--cuda-include-ptx=all", "-fno-gpu-rdc")
    assert compiled(tools, *words, "-o", "scale.o", "-###") == 0
    lines = capsys.readouterr().err.splitlines()
    linked = [line for line in lines if "/llvm-link" in line]
    assert [arch for arch in ("sm_80", "sm_90") for line in linked if f"all.{arch}.ll" in line] == [
        "sm_80",
        "sm_90",
    ]


def test_a_crash_of_clang_is_its_failure_whatever_it_printed(tools: RecordedTools) -> None:
    tools.fails = lambda command: "call.c" in command.argv
    tools.said = "call.c:1:5: error: unknown type name 'x'\nPLEASE submit a bug report to LLVM\n"
    assert compiled(tools, "call.c", "-fno-crash-diagnostics") == ToolFailedError.exit_status


def test_an_error_about_llvm_ir_without_a_place_is_none_about_arguments(
    tools: RecordedTools,
) -> None:
    tools.said = "error: Invalid record\n"
    tools.fails = lambda command: command.argv[-1].endswith((".o", ".c"))
    Path("code.ll").write_text("define void @f() {\n  ret void\n}\n")
    assert compiled(tools, "code.ll", "--offload-arch=host") == ToolFailedError.exit_status
    assert (
        compiled(tools, "call.c", "--offload-arch=host", "-o", "code.o") == UsageError.exit_status
    )


def test_a_step_that_fails_with_and_without_the_launcher_has_its_own_error(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.fails = lambda command: command.program in {"launch", "mlir-translate"}
    tools.said = "scale.mlir:7:5: error: failed to legalize operation 'gpu.wait'\n"
    words = ("scale.mlir", "--offload-arch=sm_90", "--launcher=launch", "-o", "scale.o")
    assert compiled(tools, *words) != 0
    said = capsys.readouterr().err
    assert "under the launcher" not in said
    assert "gpu.wait" in said


def test_a_step_that_fails_under_ccache_only_is_the_setting_of_ccache(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tools.root / "bin" / "ccache"
    program.write_bytes((tools.root / "bin" / "launch").read_bytes())
    program.chmod(0o755)
    tools.fails = lambda command: command.program == "ccache"
    assert compiled(tools, "scale.mlir", "--offload-arch=sm_90", "--cache", "-o", "scale.o") != 0
    said = capsys.readouterr().err
    assert "a step fails under the launcher 'ccache' only: " in said
    assert "hint: look at ccache's setting, such as CCACHE_DIR" in said
