"""GPU code has no more instructions in its loops than clang's of the same kernels in C++."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cuda_emulator import CudaEmulator, run_program
from support.cuda_tools import cuda_tool
from support.gpu_comparison import LOOPS, Case, Tools, nvdisasm

GRID_LOOP = Path(__file__).parent / "inputs" / "grid_loop.mlir"
# LLVM's choice differs by some instructions where it knows the size of a block, and ptxas's by release.
TOLERANCE = 1.1
WIDE, NARROW = Case("sm_90"), Case("sm_90", bits=32)
GUARD = """
gpu.module @kernels {
  gpu.func @k(%x: memref<?xf32>, %a: f32) kernel attributes {known_block_size = array<i32: 64, 1, 1>} {
    %thread = gpu.thread_id x
    %size = arith.constant 64 : index
    %is_inside = arith.cmpi slt, %thread, %size : index
    scf.if %is_inside {
      memref.store %a, %x[%thread] : memref<?xf32>
    }
    gpu.return
  }
}
"""
Counts = Callable[[str, Case], dict[str, float]]


@pytest.fixture(scope="module")
def tools(mlir_offload: list[str]) -> Tools:
    disassembler = nvdisasm() or pytest.skip("no nvdisasm: it is a wheel of the extra 'dev'")
    return Tools(
        (*mlir_offload, "--llvm=22"),
        Path("/usr/lib/llvm-22/bin/clang++"),
        Path(cuda_tool("ptxas")),
        Path(cuda_tool("libdevice")),
        disassembler,
    )


@pytest.fixture(scope="module")
def counts(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Counts:
    """Return the instructions of each loop for one element, of what a compiler makes of a case."""
    made = {"own": tools.own, "clang": tools.by_clang}

    @functools.cache
    def count(compiler: str, case: Case) -> dict[str, float]:
        kernels = tools.read(made[compiler](case, tmp_path_factory.mktemp(compiler)))
        return {name: loop.per_element(kernels, case.vendor) for name, loop in LOOPS.items()}

    return count


def more(counts: dict[str, float], others: dict[str, float]) -> dict[str, tuple[float, float]]:
    """Return the loops that have more instructions than in the other code."""
    pairs = {name: (count, others[name]) for name, count in counts.items()}
    return {name: pair for name, pair in pairs.items() if pair[0] > pair[1] * TOLERANCE}


@pytest.mark.parametrize(
    "case",
    [WIDE, Case("gfx1100", "off"), NARROW],
    ids=["NVIDIA", "AMD", "narrow indices"],
)
@pytest.mark.llvm(22)
def test_loops_have_no_more_instructions_than_by_clang(counts: Counts, case: Case) -> None:
    own, clang = counts("own", case), counts("clang", case)
    assert more(own, clang) == {}
    assert sum(own.values()) <= sum(clang.values())


@pytest.mark.parametrize(
    ("case", "loop"),
    [
        (Case("gfx90a"), "matmul"),
        (Case("gfx1100"), "matmul"),
        (Case("gfx1100"), "transpose"),
        (NARROW, "transpose"),
    ],
    ids=["gfx90a", "gfx1100", "blocks", "narrow indices"],
)
@pytest.mark.llvm(22)
def test_a_known_size_of_a_block_costs_no_instruction(
    counts: Counts, case: Case, loop: str
) -> None:
    assert counts("own", case)[loop] <= counts("clang", case)[loop]


@pytest.mark.llvm(22)
def test_addresses_of_a_loop_do_not_step_each_on_its_own(counts: Counts) -> None:
    case = Case("gfx90a")
    assert counts("own", case)["stencil"] < 0.7 * counts("clang", case)["stencil"]


@pytest.mark.llvm(22)
def test_an_unrolled_loop_steps_one_pointer_for_each_array(counts: Counts) -> None:
    case = Case("sm_90", "off")
    assert counts("own", case)["saxpy"] < 0.75 * counts("clang", case)["saxpy"]
    assert counts("own", case)["reduction"] < 0.5 * counts("clang", case)["reduction"]


@pytest.mark.llvm(22)
def test_a_known_size_of_a_block_decides_comparisons(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source, output = tmp_path / "guard.mlir", tmp_path / "guard.s"
    source.write_text(GUARD, encoding="utf-8")
    options = ("--llvm=22", "--offload-arch=gfx90a", "--offload-device-only", "-S")
    subprocess.run([*mlir_offload, *options, str(source), "-o", str(output)], check=True)
    code = output.read_text(encoding="utf-8")
    assert "global_store_dword" in code
    assert "v_cmp" not in code


@pytest.mark.llvm(22)
def test_loops_have_no_more_instructions_with_narrow_indices(counts: Counts) -> None:
    assert more(counts("own", NARROW), counts("own", WIDE)) == {}


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100"])
@pytest.mark.llvm(22)
def test_products_are_fused_as_asked(tools: Tools, tmp_path: Path, arch: str) -> None:
    matmul = LOOPS["matmul"]
    fused = {}
    for contraction in ("off", "on", "fast"):
        case = Case(arch, contraction)
        body = matmul.find(tools.read(tools.own(case, tmp_path)), case.vendor)
        fused[contraction] = len(body.operations(case.vendor.fused))
    assert fused == {"off": 0, "on": 16, "fast": 16}


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.llvm(22)
def test_a_loop_over_the_grid_runs_as_ptx(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path, bits: int
) -> None:
    program = tmp_path / "program"
    options = ("--llvm=22", "--offload-arch=sm_90", *cuda_emulator.options(is_kept=False))
    flags = (f"--index-bits={bits}", "-o", str(program))
    subprocess.run([*mlir_offload, *options, *flags, str(GRID_LOOP)], check=True)
    result = run_program(program, seed=1)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("release", "options"),
    [
        pytest.param(19, ["-ffp-contract=fast"], marks=pytest.mark.llvm(19), id="19"),
        pytest.param(22, ["--index-bits=32"], marks=pytest.mark.llvm(22), id="22"),
    ],
)
def test_a_loop_over_the_grid_runs_on_the_cpu(
    mlir_offload: list[str], tmp_path: Path, release: int, options: list[str]
) -> None:
    program = tmp_path / "program"
    flags = (f"--llvm={release}", "--offload-arch=host", "-o", str(program))
    subprocess.run([*mlir_offload, *flags, *options, str(GRID_LOOP)], check=True)
    assert subprocess.run([program], check=False).returncode == 0
