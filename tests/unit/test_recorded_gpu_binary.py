"""The processing of each object of a gpu.binary into a device image, with recorded tools."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.recorded import RecordedTools

from mlir_offload.driver import cli
from mlir_offload.translate.mlir.syntax import escape

GOLDEN = Path(__file__).parents[1] / "golden"
PTX = """\
.version 7.8
.target {arch}
.address_size 64
.visible .entry {name}(.param .u64 p) {{ ret; }}
"""
AMD = '.amdgcn_target "amdgcn-amd-amdhsa--gfx90a"\n.amdhsa_kernel k\n'
BITCODE = """\
target triple = "{triple}"
define {convention} void @k(ptr %p) {{
  ret void
}}
"""


def gpu_object(target: str, word: str, content: str | bytes) -> str:
    data = content if isinstance(content, str) else content.decode("latin-1")
    text = "".join(
        f"\\{ord(one):02X}" if one in '"\\' or not " " <= one <= "~" else one for one in data
    )
    return f'#gpu.object<{target}, {word} = "{text}">'


def ptx(arch: str, name: str = "k") -> str:
    chip = f'<chip = "{arch}">'
    return (
        f'#gpu.object<#nvvm.target{chip}, assembly = "{escape(PTX.format(arch=arch, name=name))}">'
    )


def cubin(name: str) -> str:
    return gpu_object("#nvvm.target", "bin", (GOLDEN / "cubin" / name).read_bytes())


def bitcode(folder: Path, target: str, triple: str, convention: str) -> str:
    source = folder / "module.ll"
    source.write_text(BITCODE.format(triple=triple, convention=convention))
    output = source.with_suffix(".bc")
    subprocess.run(["/usr/lib/llvm-22/bin/llvm-as", source, "-o", output], check=True)
    return gpu_object(target, "offload", output.read_bytes())


def made(tools: RecordedTools, archs: str, *objects: str, major: int = 22) -> int:
    binary = f'  "gpu.binary"() <{{objects = [{", ".join(objects)}], sym_name = "b"}}>'
    tools.outputs["normal.mlir"] = (
        '#loc = loc("scale.mlir":3:4)\n'
        f'"builtin.module"() ({{\n{binary} : () -> () loc(#loc)\n}}) : () -> () loc(#loc)\n'
    ).encode()
    places = (f"--llvm={tools.root}/llvm-{major}", f"--cuda-path={tools.root}/cuda", "-nogpulib")
    words = ("-c", *places, "scale.mlir", f"--offload-arch={archs}", "-o", "scale.o", "-###")
    return cli._guarded(words)


def lines_with(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if all(word in line for word in words)]


def test_ptx_is_assembled_for_each_gpu_the_newest_that_it_runs(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made(tools, "sm_80,sm_90", ptx("sm_70"), ptx("sm_80")) == 0
    said = capsys.readouterr().err
    for arch in ("sm_80", "sm_90"):
        (line,) = lines_with(said, "/ptxas", f"-arch={arch} ")
        assert "binary0.object1." in line


def test_assembly_for_amd_gpus_is_assembled_by_clang(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made(tools, "gfx90a", gpu_object("#rocdl.target", "assembly", AMD)) == 0
    assert lines_with(capsys.readouterr().err, "/clang", "amdgcn-amd-amdhsa", "-mcpu=gfx90a")


@pytest.mark.llvm(22)
def test_bitcode_becomes_text_once_and_an_image_for_each_gpu(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = bitcode(tmp_path, "#nvvm.target", "nvptx64-nvidia-cuda", "ptx_kernel")
    assert made(tools, "sm_80,sm_90", given) == 0
    said = capsys.readouterr().err
    assert len(lines_with(said, "/llvm-dis")) == 1
    assert len(lines_with(said, "/clang", "-march=sm_80")) == 1
    assert len(lines_with(said, "/clang", "-march=sm_90")) == 1


@pytest.mark.llvm(22)
def test_bitcode_of_a_newer_release_than_the_lowering_llvm_is_rejected(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = bitcode(tmp_path, "#nvvm.target", "nvptx64-nvidia-cuda", "ptx_kernel")
    assert made(tools, "sm_80", given, major=19) == 4
    said = capsys.readouterr().err
    assert "gpu.binary @b holds bitcode of LLVM 22, which LLVM 19 may misread" in said
    assert "build with --llvm=22" in said


@pytest.mark.llvm(22)
def test_bitcode_that_was_lowered_for_gpus_of_another_vendor_is_rejected(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = bitcode(tmp_path, "#rocdl.target", "amdgcn-amd-amdhsa", "amdgpu_kernel")
    tools.outputs["binary0.object0.bc.ll"] = b"declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
    assert made(tools, "gfx90a", given) == 1
    assert "that was lowered for NVIDIA GPUs" in capsys.readouterr().err


def test_a_linked_cubin_is_packed_into_a_fat_binary(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made(tools, "sm_90", cubin("sm_90.11.8.cubin")) == 0
    (line,) = lines_with(capsys.readouterr().err, "/fatbinary", "--create=")
    assert "kind=elf,sm=90,file=" in line


def test_linked_code_and_code_to_be_linked_do_not_mix(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    other = ptx("sm_70", "kernel")
    assert made(tools, "sm_80,sm_90", cubin("sm_90.11.8.cubin"), other) == 1
    said = capsys.readouterr().err
    assert "holds linked code for some GPUs, and code to be linked for others" in said
    assert "hint: make all objects in one form" in said
