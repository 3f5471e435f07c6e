"""Every form of input reaches LLVM IR, with every release that can lower."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.process import Command, ProcessRunner, run_checked

Lower = Callable[..., Any]

SAXPY = """\
func.func @saxpy(%a: f32, %x: memref<?xf32>, %y: memref<?xf32>, %n: index)
    attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 256 : index
  %blocks = arith.ceildivui %n, %c256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %blocks, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    %start = arith.muli %bx, %sx : index
    %i = arith.addi %start, %tx : index
    %inside = arith.cmpi ult, %i, %n : index
    scf.if %inside {
      %xi = memref.load %x[%i] : memref<?xf32>
      %e = math.exp %xi : f32
      %yi = memref.load %y[%i] : memref<?xf32>
      %m = math.fma %a, %e, %yi : f32
      memref.store %m, %y[%i] : memref<?xf32>
    }
    gpu.terminator
  }
  return
}
"""


def is_kernel(text: str, name: str) -> bool:
    return bool(
        re.search(rf"define ptx_kernel void @{name}\(", text)
        or re.search(rf'!{{ptr @{name}, !"kernel", i32 1}}', text)
    )


def test_a_launch_is_outlined_and_both_halves_lowered(lower: Lower) -> None:
    result = lower(SAXPY)

    (kernel,) = result.program.modules[0].kernels
    assert is_kernel(result.devices[0], kernel.symbol)
    assert "__nv_expf" in result.devices[0]
    assert 'target triple = "nvptx64-nvidia-cuda"' in result.devices[0]
    assert f'c"{kernel.symbol}\\00"' in result.host
    assert 'c"saxpy_kernel"' in result.host
    assert "@mgpuLaunchKernel(" in result.host


def test_a_function_for_callers_in_c_is_exported(lower: Lower) -> None:
    assert re.search(r"define void @_mlir_ciface_saxpy\(", lower(SAXPY).host)


def test_lowered_input_keeps_its_own_streams(lower: Lower) -> None:
    result = lower(Path("lowered.mlir"))

    assert is_kernel(result.devices[0], "fill")
    assert "llvm.nvvm.read.ptx.sreg.tid.x" in result.devices[0]
    launch = re.search(r"@mgpuLaunchKernel\((.*)\)", result.function("run"))
    stream = re.search(r"(%\d+) = call ptr @mgpuStreamCreate", result.function("run"))
    assert launch is not None
    assert stream is not None
    assert f"ptr {stream[1]}," in launch[1]
    assert result.host.count("call ptr @mgpuStreamCreate") == 1


def test_a_program_without_gpu_code_is_plain_llvm_ir(lower: Lower) -> None:
    result = lower(Path("plain_host.mlir"))

    assert not result.program.has_gpu
    assert "mgpu" not in result.host
    assert "define i32 @main()" in result.host
    assert "define float @_mlir_ciface_sum(" in result.host
    assert "call i32 (ptr, ...) @printf" in result.host


def test_bytecode_lowers_as_its_text_does(
    lower: Lower, llvm: LlvmToolchain, tmp_path: Path
) -> None:
    text, bytecode = tmp_path / "program.mlir", tmp_path / "program.mlirbc"
    text.write_text(SAXPY, encoding="utf-8")
    argv = (str(llvm.tool("mlir-opt")), "--emit-bytecode", str(text), "-o", str(bytecode))
    run_checked(ProcessRunner(), Command(argv))

    result = lower(bytecode)

    assert result.program.modules[0].kernels[0].symbol.startswith("__mo_")
    assert "@mgpuLaunchKernel(" in result.host


def test_debug_information_names_the_source(lower: Lower, tmp_path: Path) -> None:
    folder = tmp_path / "a folder é"
    folder.mkdir()
    source = folder / "saxpy 'x'.mlir"
    source.write_text(SAXPY, encoding="utf-8")

    result = lower(source, debug=True)

    for text in (result.host, result.devices[0]):
        assert "emissionKind: LineTablesOnly" in text
        assert """!DIFile(filename: "saxpy 'x'.mlir\"""" in text
    assert re.search(r"!DILocation\(line: 15, column: \d+", result.devices[0])
    assert not re.search(r"!DILocation\(line: 15,", result.host)


def test_without_debug_there_are_no_line_tables(lower: Lower) -> None:
    assert "DILocation" not in lower(SAXPY).host


@pytest.mark.parametrize(
    ("arch", "instruction"),
    [("sm_90", "redux.sync"), ("sm_75", "shfl.sync"), ("host", "shfl.sync")],
)
def test_a_uniform_reduction_is_one_instruction_from_sm_80_on(
    lower: Lower, arch: str, instruction: str
) -> None:
    _, uniform = lower(Path("subgroups.mlir"), arch=arch).devices

    assert f"@llvm.nvvm.{instruction}" in uniform
    assert uniform.count("@llvm.nvvm.redux") == (2 if "redux" in instruction else 0)


def test_operations_on_subgroups_are_lowered(lower: Lower) -> None:
    ids, _ = lower(Path("subgroups.mlir")).devices

    for register in ("tid.z", "ntid.y", "ctaid.x"):
        assert f"llvm.nvvm.read.ptx.sreg.{register}" in ids
    assert "llvm.nvvm.shfl.sync.bfly.f32" in ids


def test_a_tensor_map_is_made_on_the_host_and_passed_on(lower: Lower) -> None:
    result = lower(Path("tma_descriptor.mlir"))

    assert "@mgpuTensorMapEncodeTiledMemref(" in result.host
    assert "prefetch.tensormap" in result.devices[0]


def test_division_that_rounds_up_is_lowered_in_kernels(lower: Lower) -> None:
    program = """
      gpu.module @m {
        gpu.func @k(%a: index, %b: index, %out: memref<?xindex>) kernel {
          %up = arith.ceildivui %a, %b : index
          %down = arith.floordivsi %a, %b : index
          memref.store %up, %out[%a] : memref<?xindex>
          memref.store %down, %out[%b] : memref<?xindex>
          gpu.return
        }
      }
    """

    assert "udiv i64" in lower(program).devices[0]


def test_maxima_are_lowered_to_the_intrinsic_beside_the_number_of_subgroups(lower: Lower) -> None:
    program = """
      gpu.module @m {
        gpu.func @k(%a: f32, %b: f32, %out: memref<?xf32>) kernel {
          %count = gpu.num_subgroups : index
          %maximum = arith.maximumf %a, %b : f32
          memref.store %maximum, %out[%count] : memref<?xf32>
          gpu.return
        }
      }
    """

    assert "@llvm.maximum.f32" in lower(program).devices[0]
