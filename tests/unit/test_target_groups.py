"""Targets that are linked together, compared with the linker wrappers of LLVM 18, 22 and 23."""

from __future__ import annotations

import pytest

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.link.grouping import group_targets

AMDGPU, NVPTX, HOST = "amdgcn-amd-amdhsa", "nvptx64-nvidia-cuda", "x86_64-pc-linux-gnu"
XNACK = ("gfx90a", "gfx90a:xnack+", "gfx90a:xnack-", "gfx90a:sramecc+")


@pytest.mark.parametrize(
    ("major", "triple", "archs", "groups"),
    [
        (18, AMDGPU, ("gfx90a", "gfx90a:xnack+"), [[0, 1], [1]]),
        (18, HOST, ("x86-64", "generic"), [[0], [1]]),
        (22, AMDGPU, XNACK, [[0, 1, 2, 3], [1, 3], [2, 3], [3]]),
        (22, HOST, ("", "generic"), [[0, 1], [1]]),
        (23, AMDGPU, XNACK, [[1, 0], [2, 0], [3, 0]]),
        (23, AMDGPU, ("gfx90a:sramecc+:xnack+", "gfx90a:xnack+", "gfx90a"), [[0, 1, 2]]),
        (23, AMDGPU, ("gfx90a:xnack+", "gfx90a:sramecc+"), [[0], [1]]),
        (23, AMDGPU, ("gfx9-generic", "gfx900"), [[0], [1]]),
        (23, NVPTX, ("sm_80", "sm_80", "sm_90", "generic"), [[0, 1], [2], [3]]),
        (23, HOST, ("", "generic", "all", "generic"), [[0], [1, 3], [2]]),
    ],
)
def test_targets_are_grouped_as_the_wrapper_of_the_release_groups_them(
    major: int, triple: str, archs: tuple[str, ...], groups: list[list[int]]
) -> None:
    found = group_targets([(triple, arch) for arch in archs], load_abi(major).target_groups)
    assert list(found.values()) == groups
