"""The processing of each object of a gpu.binary into a device image, with recorded tools."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest
from support.recorded import RecordedTools

from mlir_offload.driver import cli
from mlir_offload.driver.compile import device
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


def fat_binary(content: bytes, *, arch: int) -> str:
    """Return an object with a fat binary that contains a cubin."""
    padded = content.ljust(-(-len(content) // 8) * 8, b"\0")
    fields = (2, 0x101, 64, len(padded), 0, 0, 8, 1, arch, 0, 0, 1, 0, 0)
    entry = struct.pack("<HHIQIIHHIIIQQQ", *fields) + padded
    head = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry))
    return gpu_object("#nvvm.target", "fatbin", head + entry)


def bitcode(folder: Path, target: str, triple: str, convention: str) -> str:
    source = folder / "module.ll"
    source.write_text(BITCODE.format(triple=triple, convention=convention))
    output = source.with_suffix(".bc")
    subprocess.run(["/usr/lib/llvm-22/bin/llvm-as", source, "-o", output], check=True)
    return gpu_object(target, "offload", output.read_bytes())


def binary(name: str, *objects: str) -> str:
    held = ", ".join(objects)
    return f'  "gpu.binary"() <{{objects = [{held}], sym_name = "{name}"}}> : () -> () loc(#loc)\n'


def built(tools: RecordedTools, binaries: str, *words: str, major: int = 22) -> int:
    tools.outputs["normal.mlir"] = (
        f'#loc = loc("scale.mlir":3:4)\n"builtin.module"() ({{\n{binaries}}}) : () -> () loc(#loc)\n'
    ).encode()
    places = (f"--llvm={tools.root}/llvm-{major}", f"--cuda-path={tools.root}/cuda", "-nogpulib")
    return cli._guarded(("-c", *places, "scale.mlir", "-o", "scale.o", "-###", *words))


def made(tools: RecordedTools, archs: str, *objects: str, major: int = 22) -> int:
    return built(tools, binary("b", *objects), f"--offload-arch={archs}", major=major)


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


def test_a_relocatable_cubin_is_an_image_as_it_is(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    content = bytearray((GOLDEN / "cubin" / "sm_90.11.8.cubin").read_bytes())
    # The field e_type becomes ET_REL.
    content[16] = 1
    assert made(tools, "sm_90", gpu_object("#nvvm.target", "bin", bytes(content))) == 0
    said = capsys.readouterr().err
    assert not lines_with(said, "/ptxas")
    assert not lines_with(said, "/fatbinary")
    (package,) = lines_with(said, "step package")
    assert "binary0.object0.o,triple=nvptx64-nvidia-cuda,arch=sm_90" in package


def test_a_fat_binary_is_embedded_unchanged_and_no_second_one(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    content = (GOLDEN / "cubin" / "sm_90.11.8.cubin").read_bytes()
    old, new = (fat_binary(content, arch=arch) for arch in (80, 90))
    assert made(tools, "sm_90", new) == 0
    said = capsys.readouterr().err
    assert not lines_with(said, "/fatbinary")
    (embed,) = lines_with(said, "step embed")
    assert "split/binary0.object0." in embed
    assert made(tools, "sm_80,sm_90", old, new) == 1
    said = capsys.readouterr().err
    assert "gpu.binary @b contains several fat binaries, but a program registers only one" in said
    assert "hint: make one for all GPUs" in said


def test_host_code_alone_takes_the_types_of_kernels_from_an_object(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--offload-arch=sm_90", "--offload-host-only")
    assert built(tools, binary("b", ptx("sm_90")), *words) == 0
    said = capsys.readouterr().err
    assert not lines_with(said, "/ptxas")
    (embed,) = lines_with(said, "step embed")
    assert "/split/binary0.kernels.ll" in embed


def test_a_program_without_a_gpu_module_has_nothing_to_lower_together(
    tools: RecordedTools, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device, "_MOST_BYTES", 1 << 20)
    assert made(tools, "sm_90", ptx("sm_90")) == 0
    assert "joint" not in capsys.readouterr().err


def test_kernels_without_code_for_a_target_are_rejected(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    for arch, named in (("gfx90a", "gfx90a"), ("host", "the CPU")):
        assert made(tools, f"sm_90,{arch}", ptx("sm_90")) == 1
        said = capsys.readouterr().err
        assert "scale.mlir: error: gpu.binary @b with kernel @k holds code for" in said
        assert f", none for {named}\n" in said


def test_a_target_attribute_is_compiled_without_the_launcher(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--offload-arch=sm_90", "--launcher=launch")
    assert built(tools, binary("b", ptx("sm_90")), *words) == 0
    said = capsys.readouterr().err
    assert "compiled without launch: targets or objects are attached to it" in said
    assert lines_with(said, "/ptxas")


def test_ptx_of_several_binaries_cannot_be_kept_in_one_file(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--offload-arch=sm_90", "-fno-gpu-rdc", "--cuda-include-ptx=all")
    both = binary("b", ptx("sm_90")) + binary("c", ptx("sm_90", "other"))
    assert built(tools, both, *words) == 4
    said = capsys.readouterr().err
    assert "scale.mlir: error: PTX for sm_90 cannot be kept: a gpu.binary contains PTX" in said
    assert built(tools, both, *words[:2], "--cuda-include-ptx=none") == 0
    assert built(tools, binary("b", ptx("sm_90")), *words) == 0
