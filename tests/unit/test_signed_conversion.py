"""Conversions of signed integers for the releases that get those of i1 wrong."""

from __future__ import annotations

import pytest

from mlir_offload.translate.kind.cuda import nvptx_device_ir
from mlir_offload.translate.signed_conversion import with_known_conversions

KERNEL = """\
define void @k(ptr %0, ptr %1) {
  %3 = load i1, ptr %0, align 1
  %4 = sext i1 %3 to i32
  %5 = sitofp i32 %4 to float, !dbg !7
  store float %5, ptr %1, align 4
  ret void
}
"""


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("  %5 = sitofp i32 %4 to float, !dbg !7", ["  %5 = call float @llvm.nvvm.i2f.rn(i32 %4), !dbg !7"]),
        ("  %x = sitofp i64 %y to double", ["  %x = call double @llvm.nvvm.ll2d.rn(i64 %y)"]),
        (
            "  %5 = sitofp i8 -1 to half",
            [
                "  %mo.5.wide = sext i8 -1 to i32",
                "  %mo.5.float = call float @llvm.nvvm.i2f.rn(i32 %mo.5.wide)",
                "  %5 = fptrunc float %mo.5.float to half",
            ],
        ),
        (
            "  %5 = sitofp <2 x i32> %4 to <2 x float>",
            [
                "  %mo.5.0 = extractelement <2 x i32> %4, i64 0",
                "  %mo.5.0.to = call float @llvm.nvvm.i2f.rn(i32 %mo.5.0)",
                "  %mo.5.0.in = insertelement <2 x float> poison, float %mo.5.0.to, i64 0",
                "  %mo.5.1 = extractelement <2 x i32> %4, i64 1",
                "  %mo.5.1.to = call float @llvm.nvvm.i2f.rn(i32 %mo.5.1)",
                "  %5 = insertelement <2 x float> %mo.5.0.in, float %mo.5.1.to, i64 1",
            ],
        ),
        ("  %5 = sitofp i128 %4 to float", ["  %5 = sitofp i128 %4 to float"]),
        ("  %5 = uitofp i32 %4 to float", ["  %5 = uitofp i32 %4 to float"]),
    ],
)  # fmt: skip
def test_they_become_intrinsics(line: str, lines: list[str]) -> None:
    assert with_known_conversions(line).split("\n") == lines


def test_only_for_the_releases_with_the_fault() -> None:
    for major, is_changed in ((16, True), (19, True), (22, False)):
        text = nvptx_device_ir(KERNEL, kernels=("k",), llvm_major=major)
        assert ("llvm.nvvm.i2f.rn" in text) is is_changed
