"""What a call says of a tool that fails, and of programs that its targets do not suit, with recorded tools."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.recorded import RECORDED, RecordedTools

from mlir_offload.driver import cli
from mlir_offload.driver.compile import device


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
        ("device0.ll:3:1: error: expected type", "LLVM 19 does not take what LLVM 22 made of this file: expected type"),
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
