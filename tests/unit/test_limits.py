"""A limit that a program's text exceeds is an error with its line, before any tool runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.target import find_workgroup_limit, parse_offload_arch
from mlir_offload.translate.legalize.split import SplitOptions, SplitProgram, split_program

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """\
"builtin.module"() ({{
  "gpu.module"() <{{sym_name = "m"}}> ({{
    "memref.global"() <{{sym_name = "buf", sym_visibility = "private", type = {shared}}}> : () -> () loc("p.mlir":2:1)
    "gpu.func"() <{{function_type = (memref<?xf32>) -> ()}}> ({{
    ^bb0(%arg0: memref<?xf32> loc("p.mlir":3:1), %arg1: {workgroup} loc("p.mlir":3:2), %arg2: memref<90000xf32, 5> loc("p.mlir":3:3)):
      %6 = "memref.get_global"() <{{name = @buf}}> : () -> {shared} loc("p.mlir":4:1)
      %7 = "arith.constant"() <{{value = 0 : i32}}> : () -> i32 loc("p.mlir":4:2)
      "gpu.printf"({values}) <{{format = "{format}"}}> : ({kinds}) -> () loc("p.mlir":5:1)
      "gpu.return"() : () -> () loc("p.mlir":6:1)
    }}) {{gpu.kernel, sym_name = "k", workgroup_attributions = 1 : i64}} : () -> () loc("p.mlir":3:4)
  }}) : () -> () loc("p.mlir":1:1)
  "func.func"() <{{function_type = (index) -> (), sym_name = "run"}}> ({{
  ^bb0(%arg0: index loc("p.mlir":8:1)):
    %0 = "arith.constant"() <{{value = {dynamic} : i32}}> : () -> i32 loc("p.mlir":8:2)
    %1 = "arith.constant"() <{{value = 1 : index}}> : () -> index loc("p.mlir":8:3)
    %2 = "arith.constant"() <{{value = {width} : index}}> : () -> index loc("p.mlir":8:4)
    %3 = "memref.alloc"() <{{operandSegmentSizes = array<i32: 0, 0>}}> : () -> memref<16xf32> loc("p.mlir":8:5)
    %4 = "memref.cast"(%3) : (memref<16xf32>) -> memref<?xf32> loc("p.mlir":8:6)
    {before}
    "gpu.launch_func"(%1, %1, %1, {block}, %0, %4) <{{kernel = @m::@k, operandSegmentSizes = array<i32: 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0>}}> : (index, index, index, index, index, index, i32, memref<?xf32>) -> () loc("p.mlir":9:1)
    "func.return"() : () -> () loc("p.mlir":10:1)
  }}) : () -> () loc("p.mlir":7:1)
}}) {{gpu.container_module}} : () -> () loc("p.mlir":1:1)
"""
DEFAULTS = {
    "shared": "memref<4xf32, 3>",
    "workgroup": "memref<8xf32, #gpu.address_space<workgroup>>",
    "format": "%d%%",
    "values": "%7",
    "kinds": "i32",
    "dynamic": "0",
    "width": "256",
    "block": "%2, %1, %1",
    "before": '"test.nothing"() : () -> () loc("p.mlir":8:7)',
}


def split(archs: Sequence[str] = (), **parts: str) -> SplitProgram:
    return split_text(PROGRAM.format(**{**DEFAULTS, **parts}), archs)


def split_text(text: str, archs: Sequence[str]) -> SplitProgram:
    targets = [parse_offload_arch(name) for name in archs]
    return split_program(
        text, SplitOptions(source_text="", unit_id="p", llvm_major=22, targets=targets)
    )


@pytest.mark.parametrize(
    ("archs", "parts", "place", "message"),
    [
        ((), {"width": "1025"}, "9:1", "a launch with blocks of 1025 threads"),
        ((), {"width": "64", "block": "%2, %2, %arg0"}, "9:1", "blocks of 4096 threads"),
        ((), {"format": "%d %s"}, "5:1", "gpu.printf has 1 values, and its format has 2 conv"),
        ((), {"format": "%*.*f"}, "5:1", "has 1 values, and its format has 3 conversions"),
        ((), {"values": "", "kinds": ""}, "5:1", "has 0 values, and its format has 1 conv"),
        (
            ("host", "sm_90"),
            {"workgroup": "memref<12288xf32, 3>"},
            "3:4",
            "@k has 49168 bytes of workgroup memory, and sm_90 takes 49152",
        ),
        (
            ("sm_90",),
            {"shared": "memref<2x6145xf32, #gpu.address_space<workgroup>>"},
            "3:4",
            "@k has 49192 bytes of workgroup memory, and sm_90 takes 49152",
        ),
        (
            ("gfx90a:xnack-",),
            {"workgroup": "memref<65537xi8, 3>"},
            "3:4",
            "@k has 65553 bytes of workgroup memory, and gfx90a:xnack- takes 65536",
        ),
        (
            ("sm_90a", "sm_86"),
            {"dynamic": "101329"},
            "9:1",
            "a launch of @k with 101377 bytes of workgroup memory, and sm_86 takes 101376",
        ),
    ],
)
def test_what_is_beyond_a_limit_is_an_error_at_its_line(
    archs: tuple[str, ...], parts: dict[str, str], place: str, message: str
) -> None:
    with pytest.raises(SourceError, match=re.escape(message)) as caught:
        split(archs, **parts)
    assert caught.value.location == f"p.mlir:{place}"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("archs", "parts"),
    [
        ((), {"width": "1024"}),
        ((), {"width": "1025", "block": "%arg0, %arg0, %arg0"}),
        ((), {"format": "100%% of %-5ld"}),
        ((), {"format": "no values"}),
        (("host", "spirv64", "sm_999"), {"workgroup": "memref<900000xf32, 3>"}),
        (("sm_90",), {"workgroup": "memref<12284xf32, 3>"}),
        (("sm_90",), {"workgroup": "memref<?xf32, 3>"}),
        (("sm_90",), {"shared": "memref<900000xf32>"}),
        (("sm_90", "sm_86"), {"dynamic": "101328"}),
        (("gfx950",), {"workgroup": "memref<160000xi8, 3>"}),
    ],
)
def test_what_is_within_the_limits_or_not_known_is_accepted(
    archs: tuple[str, ...], parts: dict[str, str]
) -> None:
    split(archs, **parts)


CALL = '"func.call"(%4) <{callee = @fill}> : (memref<?xf32>) -> () loc("p.mlir":8:7)'
REGISTERED = (
    '%5 = "memref.cast"(%3) : (memref<16xf32>) -> memref<*xf32> loc("p.mlir":8:7)\n'
    '    "gpu.host_register"(%5) : (memref<*xf32>) -> () loc("p.mlir":8:8)'
)
OTHER = '%4 = "gpu.alloc"() : () -> memref<?xf32> loc("p.mlir":8:8)'


@pytest.mark.parametrize(
    ("archs", "before", "count"),
    [
        (("sm_90",), DEFAULTS["before"], 1),
        (("host", "gfx90a"), DEFAULTS["before"], 1),
        (("host",), DEFAULTS["before"], 0),
        (("sm_90",), REGISTERED, 0),
        (("sm_90",), CALL, 0),
        (("sm_90",), OTHER, 0),
    ],
)
def test_memory_of_the_host_that_is_not_registered_gets_a_warning(
    archs: tuple[str, ...], before: str, count: int
) -> None:
    warnings = split(archs, before=before).warnings
    assert [warning.location for warning in warnings] == ["p.mlir:9:1"] * count


@pytest.mark.parametrize(("archs", "count"), [(("sm_90", "host"), 1), (("host",), 0)])
def test_a_launch_with_an_unranked_memref_gets_a_warning(
    archs: tuple[str, ...], count: int
) -> None:
    text = PROGRAM.format(**DEFAULTS | {"before": OTHER}).replace("memref<?xf32>", "memref<*xf32>")
    found = split_text(text, archs).warnings
    assert [warning.location for warning in found] == ["p.mlir:9:1"] * count
    assert all("memref.cast it to a memref with a rank" in warning.message for warning in found)


def test_every_gpu_of_the_table_of_ptx_has_a_limit() -> None:
    """A new row of nvptx.yaml needs one of workgroup_memory.yaml."""
    table = yaml.safe_load((ROOT / "toolchain/data/workgroup_memory.yaml").read_text())
    listed = [arch for row in table["limits"] for arch in row["archs"]]
    assert len(set(listed)) == len(listed)
    nvptx = (ROOT / "toolchain/data/nvptx.yaml").read_text()
    known = {re.sub("[af]$", "", name) for name in re.findall(r"\bsm_\d+[af]?", nvptx)}
    lacking = {name for name in known if find_workgroup_limit(name) is None}
    # NVIDIA has not published limits of sm_107.
    assert {name for name in lacking if int(name[3:]) >= 50} == {"sm_107"}
