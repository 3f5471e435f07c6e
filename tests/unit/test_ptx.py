"""PTX ISA versions and architectures for pairs of LLVM and CUDA releases."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from mlir_offload.toolchain.cuda import CudaToolkit
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.ptx import (
    load_nvptx_table,
    parse_nvptx_table,
    ptx_isa_for,
    supported_archs,
)
from mlir_offload.toolchain.tables import load_table
from mlir_offload.toolchain.tool import ToolVersion

PTXAS = Path("/cuda/bin/ptxas")


def cuda(release: str) -> CudaToolkit:
    major, minor = release.split(".")
    return CudaToolkit(Path("/cuda"), ToolVersion(int(major), int(minor)), ptxas=PTXAS)


@pytest.mark.parametrize(
    ("arch", "llvm", "toolkit", "isa"),
    [
        ("sm_90", 22, "13.0", 90),
        ("sm_90", 19, "13.0", 85),
        ("sm_90", 22, "12.6", 85),
        ("sm_80", 16, "12.9", 78),
        ("sm_70", 22, "12.8", 87),
        ("sm_90a", 18, "13.5", 83),
        ("sm_110", 22, "13.5", 90),
        ("sm_75", 19, "11.8", 78),
        ("sm_121a", 23, "14.0", 93),
        ("sm_120", 21, "12.9", 88),
    ],
)
def test_the_newest_version_that_both_know_is_taken(
    arch: str, llvm: int, toolkit: str, isa: int
) -> None:
    assert ptx_isa_for(arch, llvm, cuda(toolkit)) == isa


@pytest.mark.parametrize(
    ("arch", "isa"), [("sm_75", 63), ("sm_80", 70), ("sm_90", 78), ("sm_100", 86)]
)
def test_without_a_toolkit_the_oldest_version_that_has_the_architecture_is_taken(
    arch: str, isa: int
) -> None:
    assert ptx_isa_for(arch, 22, None) == isa


def test_an_architecture_that_this_llvm_does_not_know_is_refused_with_the_release_that_does() -> (
    None
):
    with pytest.raises(CompatibilityError) as caught:
        ptx_isa_for("sm_100", 19, cuda("13.0"))
    assert caught.value.message == "LLVM 19 does not know sm_100"
    assert caught.value.hint == "use LLVM 20 or newer (--llvm=)"


def test_an_architecture_that_no_llvm_knows_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(CompatibilityError) as caught:
        ptx_isa_for("sm_107f", 22, cuda("13.4"))
    assert caught.value.hint == "use sm_103"


def test_an_architecture_that_this_ptxas_does_not_know_is_refused_with_the_toolkits_that_do() -> (
    None
):
    with pytest.raises(CompatibilityError) as caught:
        ptx_isa_for("sm_70", 22, cuda("13.0"))
    assert f"the ptxas of CUDA 13.0 ({PTXAS}) does not know sm_70" in caught.value.message
    assert caught.value.hint == "use CUDA 11.8 to 12.9 (--cuda-path=)"
    with pytest.raises(CompatibilityError) as caught:
        ptx_isa_for("sm_120", 22, cuda("12.6"))
    assert caught.value.hint == "use CUDA 12.8 or newer (--cuda-path=)"


def test_bitcode_may_be_for_an_architecture_that_this_ptxas_does_not_know() -> None:
    assert ptx_isa_for("sm_70", 22, cuda("13.0"), is_assembled=False) == 60
    assert ptx_isa_for("sm_90", 22, cuda("13.0"), is_assembled=False) == 90
    with pytest.raises(CompatibilityError, match="LLVM 16 does not know sm_120"):
        ptx_isa_for("sm_120", 16, None, is_assembled=False)


@pytest.mark.parametrize(("arch", "toolkit"), [("sm_101", "13.0"), ("sm_110", "12.9")])
def test_an_architecture_that_was_renamed_tells_its_other_name(arch: str, toolkit: str) -> None:
    with pytest.raises(CompatibilityError) as caught:
        ptx_isa_for(arch, 22, cuda(toolkit))
    assert "sm_101 and sm_110 are one architecture" in caught.value.hint


@pytest.mark.parametrize(
    ("llvm", "toolkit", "message"),
    [
        (14, "13.0", "LLVM 14.0 is too old: 15 is the oldest"),
        (22, "11.7", "CUDA 11.7 is too old: 11.8 is the"),
    ],
)
def test_a_release_older_than_the_table_is_refused(llvm: int, toolkit: str, message: str) -> None:
    with pytest.raises(CompatibilityError, match=message):
        ptx_isa_for("sm_80", llvm, cuda(toolkit))


def test_no_version_in_common_is_refused_with_the_releases_that_have_one() -> None:
    table = parse_nvptx_table(
        {
            "llvm": [{"release": 19, "isa": [70, 85], "arch": ["sm_80", "sm_90"]}],
            "cuda": [
                {"release": "11.0", "isa": 78, "arch": ["sm_90"]},
                {"release": "12.0", "isa": 85},
            ],
            "oldest_isa": {"sm_80": 70, "sm_90": 80},
        }
    )
    with pytest.raises(CompatibilityError) as caught:
        ptx_isa_for("sm_90", 19, cuda("11.0"), table=table)
    assert "sm_90 needs PTX ISA 8.0" in caught.value.message
    assert "no version above 7.0 in common" in caught.value.message
    assert caught.value.hint == "sm_90 needs LLVM 19 or newer and CUDA 12.0 or newer"


def test_the_supported_architectures_are_those_of_both_in_order() -> None:
    assert supported_archs(19, cuda("13.0")) == (
        "sm_75",
        "sm_80",
        "sm_86",
        "sm_87",
        "sm_89",
        "sm_90",
        "sm_90a",
    )
    assert supported_archs(22, None)[-1] == "sm_121a"


def test_every_supported_pair_has_a_version() -> None:
    table = load_nvptx_table()
    for llvm in table.llvm:
        for ptxas in table.cuda:
            toolkit = CudaToolkit(Path("/cuda"), ToolVersion(*ptxas.release))
            for arch in supported_archs(llvm.release[0], toolkit):
                isa = ptx_isa_for(arch, llvm.release[0], toolkit)
                assert isa in llvm.isa
                assert isa <= ptxas.isa[-1]


def broken(**changes: Any) -> dict[str, Any]:
    table = copy.deepcopy(load_table("mlir_offload.toolchain", "nvptx"))
    for path, value in changes.items():
        *parents, last = path.split("__")
        place: Any = table
        for key in parents:
            place = place[int(key) if key.isdecimal() else key]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return table


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"oldest_isa__sm_90": None}, "sm_90 has no oldest_isa"),
        ({"oldest_isa__sm_90": 99}, "llvm 16 has sm_90 but not its PTX ISA 99"),
        ({"llvm__1__release": 15}, "llvm: releases must ascend"),
        ({"cuda__2__release": "13.9"}, "cuda: releases must ascend"),
        ({"cuda__3__isa": 79}, "cuda: isa of .* descends"),
        ({"cuda__1__drops": ["sm_10"]}, "cuda 12.0: drops .'sm_10'., which no row before it has"),
        ({"cuda__1__arch": ["sm_90"]}, "cuda 12.0: adds .'sm_90'. again"),
        ({"llvm__1__sm": ["sm_90a"]}, "llvm 16: unknown keys .'sm'."),
        ({"llvm__2__arch": ["gfx90a"]}, "not an NVIDIA architecture"),
    ],
)
def test_a_broken_table_is_refused_with_the_row(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_nvptx_table(broken(**changes))
