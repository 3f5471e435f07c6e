"""Micro programs: their results for an LLVM build, and which of them a source needs."""

from __future__ import annotations

import pytest

from mlir_offload.driver.tools.calibration import check_programs
from mlir_offload.driver.tools.family import kind_programs
from mlir_offload.driver.tools.micro_program import LOWERING, RESULTS, micro_programs, needed_parts
from mlir_offload.driver.tools.releases import kinds_of
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.learned_row import (
    AsyncProgramRow,
    Bf16ProgramRow,
    CpuProgramRow,
    NvgpuProgramRow,
    NvptxProgramRow,
    ProgramsRow,
    SubgroupReduceProgramRow,
)
from mlir_offload.toolchain.tables import LearnedRelease


def _check(row: ProgramsRow, arch: str) -> None:
    release = LearnedRelease("24.0.0git", 24, 22, "identity", (row,))
    check_programs(release, kind_programs(kinds_of([arch])))


@pytest.mark.parametrize(
    ("row", "others"),
    [
        (CpuProgramRow({LOWERING: "clang fails"}), ("sm_80", "gfx90a", "spirv64")),
        (NvptxProgramRow({LOWERING: "clang fails"}), ("host", "gfx90a", "spirv64")),
    ],
    ids=["the CPU", "NVIDIA GPUs"],
)
def test_a_kind_that_is_not_lowered_leaves_the_others_usable(
    row: ProgramsRow, others: tuple[str, ...]
) -> None:
    for arch in others:
        _check(row, arch)
    own = "host" if isinstance(row, CpuProgramRow) else "sm_80"
    with pytest.raises(CompatibilityError, match=r"micro program .*: clang fails"):
        _check(row, own)


@pytest.mark.parametrize("arch", ["host", "sm_80", "gfx90a", "spirv64"])
def test_a_wrong_result_on_the_cpu_rejects_every_kind(arch: str) -> None:
    with pytest.raises(CompatibilityError, match="its result 0 is 1"):
        _check(CpuProgramRow({RESULTS: "its result 0 is 1"}), arch)


@pytest.mark.parametrize(
    ("text", "arch", "rows"),
    [
        (b"gpu.subgroup_reduce", "sm_80", {SubgroupReduceProgramRow}),
        (b"nvgpu.ldmatrix", "sm_80", {NvgpuProgramRow}),
        (b"nvgpu.ldmatrix", "gfx90a", set()),
        (b"memref<4xbf16>", "spirv64", {Bf16ProgramRow}),
        (b"memref<4xbf16>", "sm_80", set()),
        (b"async.execute gpu.subgroup_reduce", "host", {AsyncProgramRow, SubgroupReduceProgramRow}),
        (b"arith.addi", "host", set()),
    ],
)
def test_parts_are_tried_that_a_source_may_need(
    text: bytes, arch: str, rows: set[type[ProgramsRow]]
) -> None:
    assert needed_parts([b"", text], kinds_of([arch])) == rows


def test_every_micro_program_is_in_the_package() -> None:
    assert [path for path in micro_programs() if not path.is_file()] == []
