"""LLVM IR for the SPIR-V back end, generated from IR that was lowered for NVIDIA GPUs."""

from __future__ import annotations

import pytest

from mlir_offload.offload.device.spirv_image import check_spirv_kernels
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import CompatibilityError, SourceError, VerificationError
from mlir_offload.toolchain.target import Kind, Target, parse_offload_arch
from mlir_offload.translate.spirv.module import spirv_device_ir

HEAD = """\
source_filename = "LLVMDialectModule"
target triple = "nvptx64-nvidia-cuda"
@fmt = internal constant [8 x i8] c"%lld%%\\0A\\00"
@table = internal constant [2 x float] [float 1.0, float 2.0]
@__dynamic_shmem__0 = internal addrspace(3) global [0 x i8] undef, align 16
@tile = internal addrspace(3) global [4 x float] undef
declare i32 @vprintf(ptr, ptr)
declare float @__nv_expf(float)
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare float @llvm.nvvm.shfl.sync.bfly.f32(i32, float, i32, i32)
"""


def made(body: str, parameters: str = "ptr %0, i1 %1", *, rest: str = "", rdc: bool = False) -> str:
    text = f"{HEAD}define ptx_kernel void @k({parameters}) {{\n{body}\n  ret void\n}}\n{rest}"
    return spirv_device_ir(text, kernels=["k"], llvm_major=22, keeps_functions=rdc)


def kernel(body: str, parameters: str = "ptr %0, i1 %1") -> str:
    text = made(body, parameters)
    start = text.index("define spir_kernel")
    return text[start : text.index("\n}", start)]


def test_the_arch_is_a_target_of_kind_sycl() -> None:
    assert parse_offload_arch("spirv64") == Target(Kind.SYCL, "spirv64-unknown-unknown", "spirv64")


def test_kernels_take_global_pointers_and_bytes_and_use_generic_pointers() -> None:
    text = kernel("  %2 = load float, ptr %0, align 4")
    assert text.startswith(
        "define spir_kernel void @k(ptr addrspace(1) %mo.given.v0, i8 %mo.given.v1)"
    )
    assert "%v0 = addrspacecast ptr addrspace(1) %mo.given.v0 to ptr addrspace(4)" in text
    assert "%v1 = trunc i8 %mo.given.v1 to i1" in text
    assert "%v2 = load float, ptr addrspace(4) %v0, align 4" in text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%2 = call float @__nv_expf(float 1.0)", "call spir_func float @_Z3expf(float 1.0)"),
        ("%2 = call fast float @__nv_expf(float 1.0)", "call fast spir_func float @_Z3expf("),
        (
            "%2 = call range(i32 0, 4) i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
            "call spir_func range(i32 0, 4) i32 @mo.read.ptx.sreg.tid.x()",
        ),
        (
            "%2 = atomicrmw fadd ptr %0, float 1.0 acq_rel, align 4",
            "call spir_func float @mo.atomic.fadd.f32(ptr addrspace(4) %v0, float 1.0)",
        ),
        (
            "%2 = atomicrmw add ptr %0, i32 1 acq_rel, align 4",
            "atomicrmw add ptr addrspace(4) %v0, i32 1 acq_rel, align 4",
        ),
        (
            "%2 = load float, ptr @table",
            "load float, ptr addrspace(4) addrspacecast (ptr addrspace(1) @table to ptr addrspace(4))",
        ),
        (
            "%2 = load float, ptr addrspace(3) @tile",
            "load float, ptr addrspace(3) @tile",
        ),
        ("%2 = sitofp i1 %1 to float", "%v2 = select i1 %v1, float -1.0, float 0.0"),
        (
            "%2 = sitofp <4 x i32> %1 to <4 x float>",
            "%v2 = call spir_func <4 x float> @_Z14convert_float4Dv4_i(<4 x i32> %v1)",
        ),
        ("%2 = sitofp i16 %1 to half", "%v2 = fptrunc float %mo.float.v2 to half"),
        ("%2 = sitofp i64 %1 to double", "%v2 = call spir_func double @mo.sitofp.l(i64 %v1)"),
        ("%2 = load bfloat, ptr %0", "%v2 = load i16, ptr addrspace(4) %v0"),
        ("store bfloat 0xR3FC0, ptr %0", "store i16 16320, ptr addrspace(4) %v0"),
        (
            "%2 = phi bfloat [ %1, %a ], [ 0xR3FC0, %b ]",
            "%v2 = phi i16 [ %v1, %a ], [ 16320, %b ]",
        ),
        (
            'call void @"ptr x"(ptr %0)',
            'call spir_func void @"ptr x"(ptr addrspace(4) %v0)',
        ),
    ],
)
def test_an_instruction_becomes_what_the_back_end_knows(line: str, expected: str) -> None:
    assert expected in kernel(f"  {line}")


def test_a_module_declares_and_defines_no_more_than_it_calls() -> None:
    text = made("  %2 = call float @__nv_expf(float 1.0)")
    assert "declare spir_func float @_Z3expf(float) nounwind willreturn memory(none)" in text
    assert "mo." not in text.partition("define spir_kernel")[0]
    assert "vprintf" not in text


def test_stack_variables_stand_at_the_entry() -> None:
    body = "  br label %2\n\n2:\n  %3 = alloca float, i64 4, align 4\n  store float 0.0, ptr %3"
    lines = kernel(body).splitlines()
    assert lines.index("  %mo.stack.v3 = alloca [4 x float], align 4") < lines.index(
        "  br label %v2"
    )
    assert "  %v3 = addrspacecast ptr %mo.stack.v3 to ptr addrspace(4)" in lines


def test_dynamic_shared_memory_is_the_last_parameter() -> None:
    body = "  store i8 1, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @__dynamic_shmem__0, i64 4)"
    text = kernel(body)
    assert text.splitlines()[0].endswith("ptr addrspace(3) %mo.dynamic) convergent {")
    assert "= getelementptr i8, ptr addrspace(3) %mo.e0, i64 4" in text
    assert "__dynamic_shmem__" not in made(body)


def test_printf_takes_its_arguments_one_by_one_and_the_lengths_of_opencl() -> None:
    body = (
        "  %2 = alloca { i64 }, i64 1, align 8\n"
        "  %3 = getelementptr { i64 }, ptr %2, i32 0, i32 0\n"
        "  store i64 7, ptr %3, align 4\n"
        "  %4 = call i32 @vprintf(ptr @fmt, ptr %2)"
    )
    text = made(body)
    assert 'addrspace(2) constant [7 x i8] c"%ld%%\\0A\\00"' in text
    assert (
        "(ptr addrspace(2), ...) @_Z6printfPU3AS2Kcz(ptr addrspace(2) @mo.format.0, i64 %mo" in text
    )


@pytest.mark.parametrize(
    ("body", "rdc", "marked"),
    [
        ("", False, False),
        ("", True, True),
        (
            "  %2 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float 0.0, i32 1, i32 31)",
            False,
            True,
        ),
    ],
)
def test_the_size_of_subgroups_is_told_where_it_counts(body: str, rdc: bool, marked: bool) -> None:  # noqa: FBT001
    text = made(body, rdc=rdc)
    assert ("!intel_reqd_sub_group_size !0" in text) == marked
    assert ("!0 = !{i32 32}" in text) == marked


def test_functions_are_kept_for_other_files_on_request_only() -> None:
    rest = "define float @f(ptr %0) {\n  ret float 0.0\n}\n"
    assert "define internal spir_func float @f(ptr addrspace(4) %v0)" in made("", rest=rest)
    assert "define spir_func float @f(ptr addrspace(4) %v0) convergent {" in made(
        "", rest=rest, rdc=True
    )


@pytest.mark.parametrize(
    ("body", "parameters", "message"),
    [
        ("  call void @llvm.trap()", "ptr %0", "a call of llvm.trap is not supported"),
        ("  call void %0()", "ptr %0", "a function whose name is not known"),
        ('  call void asm "nop", ""()', "ptr %0", "inline assembly is not supported"),
        ("  %2 = call i32 @llvm.nvvm.match()", "ptr %0", "a call of llvm.nvvm.match is not"),
        ("  %2 = call float @__nv_j0f(float 1.0)", "ptr %0", "a call of __nv_j0f is not"),
        ("  %2 = alloca i8, i64 %0", "i64 %0", "of a size that is not known"),
        ("  %2 = fadd bfloat %0, %0", "bfloat %0", "an operation on bf16 is not supported"),
        ("  %2 = atomicrmw fadd ptr %0, half 1.0 acq_rel", "ptr %0", "atomicrmw fadd of this type"),
        ("", "{ i32, i32 } %0", "has a parameter of type { i32, i32 }"),
        ("", "i24 %0", "has a parameter of type i24"),
        ("", "fp128 %0", "has a parameter of type fp128"),
        ("", "<{ i8, i64 }> %0", "has a parameter of type <{ i8, i64 }>"),
        ("", "<3 x i24> %0", "has a parameter of type <3 x i24>"),
        ("  %2 = call i32 @vprintf(ptr %0, ptr null)", "ptr %0", "the format of printf is not"),
    ],
)
def test_what_spirv_has_not_is_refused(body: str, parameters: str, message: str) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        made(body, parameters)
    assert caught.value.hint


@pytest.mark.parametrize("expected", [{"k": ("ptr",)}, {"other": ()}])
def test_code_without_the_kernels_is_refused(expected: dict[str, tuple[str, ...]]) -> None:
    words = (0x07230203, 0x00010400, 43 << 16 | 22, 8, 0, 3 << 16 | 14, 2, 2)
    content = memory_view(b"".join(word.to_bytes(4, "little") for word in words))
    with pytest.raises(VerificationError, match="is missing in the generated SPIR-V"):
        check_spirv_kernels(content, expected)


def test_no_release_before_22_links_it() -> None:
    from mlir_offload.offload.link.dropped_image import check_device_link

    target = parse_offload_arch("spirv64")
    check_device_link(target, 22)
    with pytest.raises(CompatibilityError, match="LLVM 21 links no code for spirv"):
        check_device_link(target, 21)


MARK = "call void @mo.assertion_failed()"
ASSERTING = f"""\
  br i1 %1, label %3, label %2
2:
  {MARK}
  br label %3
3:
  %4 = phi i32 [ 0, %entry ], [ 1, %2 ]"""


def test_a_thread_that_fails_an_assertion_sets_the_flag_and_leaves_the_kernel() -> None:
    text = kernel(f"entry:\n{ASSERTING}")
    assert "i8 %mo.given.v1, ptr addrspace(1) %mo.failures)" in text
    left = (
        "v2:\n  store i32 1, ptr addrspace(1) %mo.failures\n  ret void\nv2.dead1:\n  br label %v3"
    )
    assert left in text
    assert "[ 1, %v2.dead1 ]" in text


def test_in_functions_and_between_barriers_the_thread_goes_on() -> None:
    rest = f"define internal void @helper(i32 %0) {{\n  {MARK}\n  ret void\n}}\n"
    text = made("  call void @helper(i32 7)", rest=rest)
    assert "call spir_func void @helper(i32 7, ptr addrspace(1) %mo.failures)" in text
    assert "@helper(i32 %v0, ptr addrspace(1) %mo.failures)" in text
    waiting = made(f"entry:\n  call void @llvm.nvvm.barrier0()\n{ASSERTING}")
    assert "store i32 1, ptr addrspace(1) %mo.failures\n  br label %v3" in waiting


def test_a_function_of_other_files_keeps_its_parameters_and_only_prints() -> None:
    rest = f"define void @shared(i32 %0) {{\n  {MARK}\n  ret void\n}}\n"
    text = made("  call void @shared(i32 7)", rest=rest, rdc=True)
    assert "mo.failures" not in text
    assert "assertion_failed" not in text


def test_intrinsics_are_named_after_the_memory_that_they_have() -> None:
    name = "@llvm.masked.gather.v4f32.v4p0"
    zero = "zeroinitializer"
    body = f"""  %2 = getelementptr float, ptr %0, <4 x i64> {zero}
  %3 = call <4 x float> {name}(<4 x ptr> %2, <4 x i1> {zero}, <4 x float> {zero})"""
    declared = f"declare <4 x float> {name}(<4 x ptr>, <4 x i1>, <4 x float>)\n"
    text = made(body, rest=declared)
    assert "@llvm.masked.gather.v4f32.v4p4(<4 x ptr addrspace(4)>" in text
    assert "v4p0" not in text


def test_an_intrinsic_for_one_kind_of_memory_is_refused() -> None:
    name = "@llvm.masked.compressstore.v4f32"
    call = f"  call void {name}(<4 x float> zeroinitializer, ptr %0, <4 x i1> zeroinitializer)"
    declared = f"declare void {name}(<4 x float>, ptr, <4 x i1>)\n"
    with pytest.raises(SourceError, match=r"masked\.compressstore\.v4f32 is not supported"):
        made(call, rest=declared)
