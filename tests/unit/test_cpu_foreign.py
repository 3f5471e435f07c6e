"""External device functions on the CPU."""

from __future__ import annotations

import re

import pytest

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.cpu.module import KernelMode, cpu_device_ir

LIBRARY = """\
@tile = internal addrspace(3) global [4 x float] undef
define float @plain(float %0) {
  ret float %0
}
define float @waits(float %0) {
  call void @llvm.nvvm.barrier0()
  ret float %0
}
define float @waits_below(float %0) {
  %2 = call float @waits(float %0)
  ret float %2
}
define float @shares(float %0) {
  store float %0, ptr addrspace(3) @tile
  ret float %0
}
define float @shares_below(float %0) {
  %2 = call float @shares(float %0)
  ret float %2
}
define internal float @hidden(float %0) {
  ret float %0
}
"""
CALLER = """\
declare float @other(float)ATTRIBUTES
define ptx_kernel void @k(ptr %0, float %1) {
  %3 = call float @other(float %1)
  store float %3, ptr %0
  ret void
}
"""


def caller(attributes: str, tail: str = "", *, rdc: bool = True) -> tuple[str, KernelMode]:
    text = CALLER.replace("ATTRIBUTES", attributes) + tail
    made = cpu_device_ir(text, kernels=("k",), keeps_functions=rdc)
    return made.text, made.kernels[0].mode


def test_functions_are_found_by_a_name_that_says_whether_they_wait() -> None:
    text = cpu_device_ir(LIBRARY, kernels=(), keeps_functions=True).text
    aliases = re.findall(r"^@(mo\.device\.\S+) = alias i8, ptr @(\w+)$", text, re.MULTILINE)
    assert aliases == [
        ("mo.device.convergent.plain", "plain"),
        ("mo.device.plain", "plain"),
        ("mo.device.convergent.waits", "waits"),
        ("mo.device.convergent.waits_below", "waits_below"),
    ]


def test_without_rdc_nothing_is_exported() -> None:
    assert "mo.device." not in cpu_device_ir(LIBRARY, kernels=()).text


@pytest.mark.parametrize(
    ("attributes", "tail", "name", "mode"),
    [
        ("", "", "mo.device.other", KernelMode.LOOPS),
        (" #1", "attributes #1 = { nounwind }\n", "mo.device.other", KernelMode.LOOPS),
        (" convergent", "", "mo.device.convergent.other", KernelMode.FIBERS),
        (
            " #1",
            "attributes #1 = { convergent nounwind }\n",
            "mo.device.convergent.other",
            KernelMode.FIBERS,
        ),
    ],
)
def test_a_kernel_runs_on_stacks_where_a_function_elsewhere_may_wait(
    attributes: str, tail: str, name: str, mode: KernelMode
) -> None:
    text, found = caller(attributes, tail)
    assert f"declare float @{name}(ptr, float)\n" in text
    assert f"call float @{name}(ptr %mo.c, float " in text
    assert found is mode


def test_without_rdc_a_declared_function_is_an_error_with_its_cures() -> None:
    with pytest.raises(SourceError, match="@other is not defined for the CPU") as caught:
        caller("", rdc=False)
    assert "-fgpu-rdc" in (caught.value.hint or "")


def test_shuffles_of_two_files_are_told_apart() -> None:
    shuffle = (
        "declare float @llvm.nvvm.shfl.sync.bfly.f32(i32, float, i32, i32)\n"
        "define float @NAME(float %0) {\n"
        "  %2 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %0, i32 1, i32 31)\n"
        "  ret float %2\n}\n"
    )
    sites = {
        re.findall(r"ptr %mo\.c, i32 (\d+), ", cpu_device_ir(text, kernels=(), keeps_functions=True).text)[0]
        for text in (shuffle.replace("NAME", "one"), shuffle.replace("NAME", "two"))
    }  # fmt: skip
    assert len(sites) == 2


def test_no_other_file_defines_an_intrinsic() -> None:
    text = (
        "declare void @llvm.nvvm.tcgen05.fence()\n"
        "define void @f() {\n  call void @llvm.nvvm.tcgen05.fence()\n  ret void\n}\n"
    )
    with pytest.raises(SourceError, match="is not supported on the CPU"):
        cpu_device_ir(text, kernels=(), keeps_functions=True)
