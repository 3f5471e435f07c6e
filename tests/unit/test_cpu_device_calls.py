"""Calls in device code for the CPU: their replacements, and unsupported ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlir_offload.driver.step.cpu import CpuIr
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.cpu.intrinsics import find_replacement
from mlir_offload.translate.cpu.module import KernelMode, cpu_device_ir
from mlir_offload.translate.cpu.replacement import Sync


def module(call: str, *, declaration: str = "", tail: str = "") -> str:
    return "\n".join(
        (
            'target triple = "nvptx64-nvidia-cuda"',
            declaration,
            "define ptx_kernel void @k(ptr %0, float %1, i32 %2) {",
            f"  {call}",
            "  ret void",
            "}",
            tail,
        )
    )


def kernel_text(call: str, **more: str) -> str:
    return cpu_device_ir(module(call, **more), kernels=("k",)).text


@pytest.mark.parametrize(
    ("called", "sync"),
    [
        ("llvm.nvvm.read.ptx.sreg.tid.x", Sync.NONE),
        ("llvm.nvvm.read.ptx.sreg.laneid", Sync.NONE),
        ("llvm.nvvm.barrier0", Sync.BLOCK),
        ("llvm.nvvm.barrier.cta.sync.aligned.all", Sync.BLOCK),
        ("llvm.nvvm.barrier0.popc", Sync.WARP),
        ("llvm.nvvm.shfl.sync.bfly.f32p", Sync.WARP),
        ("llvm.nvvm.redux.sync.umax", Sync.WARP),
        ("llvm.nvvm.vote.ballot.sync", Sync.WARP),
        ("llvm.nvvm.match.all.sync.i64p", Sync.WARP),
        ("llvm.nvvm.membar.gl", Sync.NONE),
        ("llvm.nvvm.rcp.approx.ftz.f", Sync.NONE),
    ],
)
def test_intrinsics_say_whom_they_wait_for(called: str, sync: Sync) -> None:
    replacement = find_replacement(called)
    assert replacement is not None
    assert replacement.sync is sync


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("__nv_expf", "expf"),
        ("__nv_pow", "pow"),
        ("__nv_fast_sinf", "sinf"),
        ("__nv_rsqrtf", "mo.__nv_rsqrtf"),
        ("__nv_isnand", "mo.__nv_isnand"),
        ("__nv_powif", "mo.__nv_powif"),
        ("__nv_sincos", "mo.__nv_sincos"),
        ("hypotf", "hypotf"),
        ("malloc", "malloc"),
    ],
)
def test_libraries_of_the_device_become_those_of_the_cpu(called: str, name: str) -> None:
    replacement = find_replacement(called)
    assert replacement is not None
    assert replacement.name == name


def test_math_can_be_vectorised_under_a_mask() -> None:
    text = kernel_text(
        "%4 = call float @__nv_expf(float %1)", declaration="declare float @__nv_expf(float)"
    )
    assert "speculatable willreturn memory(none)" in text
    assert "call float @expf(float %v1)" in text
    assert "__nv_" not in text


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ("call void @llvm.nvvm.mma.sp.m16n8k16.row.col.f16.f16()", "nvvm.mma.sp.sync"),
        ("call void @llvm.nvvm.mma.block.scale.m16n8k32.f32()", "nvvm.mma.block_scale"),
        ("call void @llvm.nvvm.ldmatrix.sync.aligned.m16n16.x1.trans.b8.p0()", "nvvm.ldmatrix"),
        ("call void @llvm.nvvm.cp.async.bulk.tensor.reduce.add.tile.1d(ptr %0)", "TMA"),
        ("call void @llvm.nvvm.barrier.cluster.arrive()", "nvvm.cluster.arrive"),
        ("call void @llvm.nvvm.mapa.shared.cluster()", "nvvm.mapa"),
        ("call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 1, i32 64)", "part of the block"),
        ('%4 = call i32 asm "mov.u32 $0, %smid;", "=r"()', "inline PTX"),
        ("call void @of_another_file(ptr %0)", "of_another_file"),
    ],
)
def test_what_the_cpu_cannot_do_is_refused_by_its_name(call: str, named: str) -> None:
    with pytest.raises(SourceError, match="is not supported on the CPU") as caught:
        kernel_text(call)
    assert named in caught.value.message
    assert caught.value.hint


def test_products_and_sums_of_16_bits_are_rounded_once() -> None:
    for name, kind, function in (
        ("llvm.fma.v2bf16", "<2 x bfloat>", "<2 x i16> @mo.llvm.fma.v2bf16(ptr %mo.c, "),
        ("llvm.fma.f16", "half", "half @mo.llvm.fma.f16(ptr %mo.c, "),
        ("llvm.fma.v2f32", "<2 x float>", "<2 x float> @llvm.fma.v2f32("),
    ):
        call = f"%4 = call {kind} @{name}({kind} undef, {kind} undef, {kind} undef)"
        assert f"call {function}" in kernel_text(call)


def test_the_maximum_of_f16_is_computed_in_f32() -> None:
    for name, kind, function in (
        ("llvm.maximum.f16", "half", "half @mo.llvm.maximum.f16(ptr %mo.c, "),
        ("llvm.minimum.v2f16", "<2 x half>", "<2 x half> @mo.llvm.minimum.v2f16(ptr %mo.c, "),
        ("llvm.maximum.f32", "float", "float @llvm.maximum.f32("),
    ):
        call = f"%4 = call {kind} @{name}({kind} undef, {kind} undef)"
        assert f"call {function}" in kernel_text(call)


@pytest.mark.parametrize(
    "call",
    [
        "@llvm.nvvm.fence.proxy.tensormap_generic.acquire.sys(ptr %0, i32 128)",
        'asm sideeffect "fence.proxy.async.shared::cta;", ""()',
        'asm sideeffect "fence.mbarrier_init.release.cluster;", ""()',
    ],
)
def test_a_fence_between_proxies_orders_all_memory(call: str) -> None:
    assert "fence seq_cst" in kernel_text(f"call void {call}")


def test_refusal_points_into_the_source() -> None:
    tail = (
        '!1 = !DIFile(filename: "k.mlir", directory: "/d")\n'
        '!2 = distinct !DISubprogram(name: "k", file: !1, line: 2)\n'
        "!3 = !DILocation(line: 12, column: 7, scope: !2)"
    )
    with pytest.raises(SourceError) as caught:
        kernel_text("call void @llvm.nvvm.tcgen05.fence(), !dbg !3", tail=tail)
    assert caught.value.location == "k.mlir:12:7"


def test_kernel_that_is_not_defined_is_refused() -> None:
    with pytest.raises(SourceError, match="defines no kernel 'other'"):
        cpu_device_ir(module("fence seq_cst"), kernels=("other",))


def test_global_of_another_module_is_refused() -> None:
    with pytest.raises(SourceError, match="'g' is declared but not defined"):
        kernel_text("store i32 1, ptr @g", declaration="@g = external global i32")


def test_annotations_and_targets_of_the_gpu_are_dropped() -> None:
    text = kernel_text(
        "call void @callee()",
        declaration="define void @callee() #0 {\n  ret void\n}\n",
        tail='attributes #0 = { noinline "target-cpu"="sm_90" }\n!nvvm.annotations = !{!5}\n'
        '!5 = !{ptr @k, !"kernel", i32 1}',
    )
    for word in ("nvvm.annotations", "sm_90", "noinline", "ptx_kernel", "nvptx64", "!5 ="):
        assert word not in text


def test_only_kernels_are_visible_outside() -> None:
    text = kernel_text("call void @callee()", declaration="define void @callee() {\n  ret void\n}")
    visible = [
        line for line in text.splitlines() if line.startswith("define ") and "internal" not in line
    ]
    assert visible == ["define void @k(ptr %launch, ptr %params) nounwind {"]


def test_attributes_precede_what_else_follows_the_parameters() -> None:
    method = '$m = comdat any\ndefine linkonce_odr void @m(ptr align 4 %0) section ".text" comdat align 2 {\n  ret void\n}\n'
    text = kernel_text("call void @m(ptr %0)", declaration=method)
    assert '%v0) alwaysinline nounwind section ".text" comdat align 2 {' in text


def test_structures_with_a_name_have_a_size() -> None:
    shared = "@s = internal addrspace(3) global [4 x %pair] undef\n%pair = type { %inner, i8 }\n%inner = type { double, i32 }"
    text = kernel_text("store i8 1, ptr addrspace(3) @s", declaration=shared)
    assert (
        cpu_device_ir(module("fence seq_cst", declaration=shared), kernels=("k",)).shared_bytes
        == 128
    )
    assert "%pair" not in text


def test_waiting_is_found_through_calls() -> None:
    text = "define void @inner() {\n  call void @llvm.nvvm.barrier0()\n  ret void\n}\ndefine void @k() {\n  call void @inner()\n  ret void\n}\ndefine void @alone() {\n  ret void\n}"
    for collapses in (False, True):
        source = cpu_device_ir(text, kernels=("k", "alone"), for_collapse=collapses)
        assert [kernel.mode for kernel in source.kernels] == [KernelMode.FIBERS, KernelMode.LOOPS]
        assert source.needs_collapse is collapses


def test_calls_of_unknown_functions_through_pointers_need_fibers() -> None:
    source = cpu_device_ir(module("call void %0(float %1)"), kernels=("k",))
    assert source.kernels[0].mode is KernelMode.FIBERS
    assert "call void %v0(ptr %mo.c, float %v1)" in source.text


def test_a_kernel_that_is_not_collapsed_leaves_no_text_of_an_earlier_one(tmp_path: Path) -> None:
    lowered, made = tmp_path / "k.ll", tmp_path / "k.host.ll"
    step = CpuIr(source=lowered, kernels=("k",), collapse=True, output=made)
    barrier = "declare void @llvm.nvvm.barrier0()"
    lowered.write_text(module("call void @llvm.nvvm.barrier0()", declaration=barrier))
    step.run()
    assert step.uncollapsed.exists()

    lowered.write_text(module("store float %1, ptr %0, align 4"))
    step.run()

    assert not step.uncollapsed.exists()
    assert "@k.item" in made.read_text()


@pytest.mark.parametrize(
    ("kernel", "call"),
    [
        ("expf", "%v = call float @__nv_expf(float %1)"),
        ("sinf", "%v = call float @llvm.sin.f32(float %1)"),
        ("sin", "%v = call <2 x double> @llvm.sin.v2f64(<2 x double> zeroinitializer)"),
        ("exp2f", "%v = call float @llvm.nvvm.ex2.approx.f(float %1)"),
        ("free", "fence seq_cst"),
    ],
)
def test_a_kernel_cannot_have_the_name_of_a_function_that_it_calls(kernel: str, call: str) -> None:
    text = module(call).replace("@k(", f"@{kernel}(")
    with pytest.raises(SourceError, match=f"@{kernel}.* C function"):
        cpu_device_ir(text, kernels=(kernel,))


@pytest.mark.parametrize(
    ("kernel", "call"),
    [
        ("exp", "%v = call float @__nv_expf(float %1)"),
        ("sqrtf", "%v = call float @llvm.sqrt.f32(float %1)"),
    ],
)
def test_a_kernel_can_have_the_name_of_a_function_that_it_does_not_call(
    kernel: str, call: str
) -> None:
    text = module(call).replace("@k(", f"@{kernel}(")
    assert cpu_device_ir(text, kernels=(kernel,)).kernels
