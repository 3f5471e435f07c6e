from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlir_offload.toolchain.cuda import CudaToolkit
from mlir_offload.toolchain.errors import SourceError, ToolchainError
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.tool import ToolVersion
from mlir_offload.translate.kind.cuda import (
    DeviceCodegen,
    cubin_command,
    needs_libdevice,
    nvptx_assembly_command,
    nvptx_bitcode_command,
    nvptx_device_ir,
    nvptx_object_command,
)
from mlir_offload.translate.kind.hip import AmdgpuCodegen, amdgpu_image_command

LOWERED = Path(__file__).parent.parent / "golden" / "lowered"
CLANG = Path("/llvm/bin/clang")
CODEGEN = DeviceCodegen("sm_90", 83, 2)


def lowered(name: str, major: int) -> str:
    return (LOWERED / f"{name}.{major}.ll").read_text(encoding="utf-8")


def llvm(major: int) -> LlvmToolchain:
    return LlvmToolchain(Path("/llvm"), ToolVersion(major, 1, 0), (("clang", CLANG),))


def cuda(ptxas: Path | None = Path("/cuda/bin/ptxas")) -> CudaToolkit:
    return CudaToolkit(Path("/cuda"), ToolVersion(13, 0, 88), ptxas=ptxas)


@pytest.mark.parametrize(
    ("major", "layout"),
    [
        (16, "e-i64:64-i128:128-v16:16-v32:32-n16:32:64"),
        (19, "e-i64:64-i128:128-v16:16-v32:32-n16:32:64"),
        (22, "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"),
    ],
)
def test_the_module_gets_triple_and_layout_of_the_release(major: int, layout: str) -> None:
    text = nvptx_device_ir(lowered("kernels", 19), kernels=["saxpy", "other"], llvm_major=major)
    assert text.count("target triple") == 1
    assert f'target datalayout = "{layout}"\ntarget triple = "nvptx64-nvidia-cuda"\n' in text


@pytest.mark.parametrize("major", [19, 22])
def test_kernels_are_marked_by_calling_convention(major: int) -> None:
    text = nvptx_device_ir(lowered("kernels", major), kernels=["saxpy", "other"], llvm_major=major)
    defined = re.findall(r"^define (.*?)\(", text, re.MULTILINE)
    assert defined == ["ptx_kernel void @saxpy", "ptx_kernel void @other"]


@pytest.mark.parametrize(
    ("variable", "aligned"),
    [
        ("internal addrspace(3) global [8 x float] undef", ", align 16"),
        ('internal constant [3 x i8] c"a\\00,"', ", align 16"),
        ("internal addrspace(3) global [2 x <8 x float>] undef", ", align 32"),
        ("internal global { i32, <6 x i16> } zeroinitializer, !dbg !3", ", align 16, !dbg !3"),
        ("internal addrspace(3) global [8 x float] undef, align 4", ", align 4"),
        ("internal addrspace(3) global [8 x i8] undef, align 1, !dbg !3", ", align 1, !dbg !3"),
    ],
)
def test_a_variable_has_the_alignment_that_llvm_assumes(variable: str, aligned: str) -> None:
    text = nvptx_device_ir(f"@x = {variable}\n", kernels=[], llvm_major=22)
    (line,) = (line for line in text.splitlines() if line.startswith("@x"))
    kept = variable.split(", align", maxsplit=1)[0].split(", !", maxsplit=1)[0]
    assert line == f"@x = {kept}{aligned}"


def test_a_declared_variable_keeps_its_alignment() -> None:
    text = nvptx_device_ir("@x = external global [8 x i32]\n", kernels=[], llvm_major=22)
    assert "@x = external global [8 x i32]\n" in text


@pytest.mark.parametrize("element", ["i8", "float", "i128", "half"])
def test_an_array_of_no_elements_is_dynamic_shared_memory(element: str) -> None:
    variable = f"addrspace(3) global [0 x {element}]"
    text = nvptx_device_ir(f"@s = private {variable} undef, align 16\n", kernels=[], llvm_major=22)
    assert f"@s = external {variable}, align 16\n" in text


@pytest.mark.parametrize(
    ("code", "align"),
    [
        ("declare void @llvm.nvvm.cp.async.bulk.tensor.g2s.tile.1d()", "1024"),
        (
            'define void @f() {\n  call void asm "cp.async.bulk.tensor.1d;", ""()\n  ret void\n}',
            "1024",
        ),
        ("declare void @llvm.nvvm.cp.async.ca.shared.global.4()", "16"),
    ],
)
def test_shared_memory_is_aligned_for_bulk_copies(code: str, align: str) -> None:
    shared = (
        "@d = internal addrspace(3) global [0 x i8] undef, align 16\n"
        "@s = internal addrspace(3) global [64 x float] undef\n"
    )
    text = nvptx_device_ir(f"{shared}\n{code}\n", kernels=[], llvm_major=22)
    assert re.findall(r"external .*, align (\d+)", text) == [align]
    assert re.findall(r"@s = .*, align (\d+)", text) == ["128" if align == "1024" else "16"]


def test_dynamic_shared_memory_is_sized_by_the_launch() -> None:
    text = nvptx_device_ir(lowered("kernels", 22), kernels=["saxpy", "other"], llvm_major=22)
    assert "@__dynamic_shmem__0 = external addrspace(3) global [0 x i8], align 16" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("define void @f() {", "define internal void @f() {"),
        ("define linkonce_odr hidden float @f(float %0) {", "define internal float @f(float %0) {"),
        ("define internal noundef i32 @f() #0 {", "define internal noundef i32 @f() #0 {"),
        ("define dso_local ptx_kernel void @k() {", "define ptx_kernel void @k() {"),
        ("define weak_odr protected void @k() {", "define ptx_kernel void @k() {"),
        ('define void @"k"() {', "define ptx_kernel void @k() {"),
        ("@g = addrspace(3) global i32 undef", "@g = internal addrspace(3) global i32 undef"),
        ("@g = private constant i32 1", "@g = internal constant i32 1"),
        ("@g = hidden unnamed_addr constant i32 1", "@g = internal unnamed_addr constant i32 1"),
        ("@g = external addrspace(1) global i32", "@g = external addrspace(1) global i32"),
        (
            "@llvm.used = appending global [1 x ptr] []",
            "@llvm.used = appending global [1 x ptr] []",
        ),
        (
            "!0 = distinct !DICompileUnit(file: !1, emissionKind: FullDebug, nameTableKind: None)",
            "!0 = distinct !DICompileUnit(file: !1, emissionKind: DebugDirectivesOnly, nameTableKind: None)",
        ),
        ("declare i32 @vprintf(ptr, ptr)", "declare i32 @vprintf(ptr, ptr)"),
    ],
)
def test_each_line_is_made_fit_for_the_device_link(before: str, after: str) -> None:
    assert nvptx_device_ir(f"{before}\n", kernels=["k"], llvm_major=22).endswith(f"\n{after}\n")


def test_libdevice_is_needed_only_where_it_is_called() -> None:
    assert needs_libdevice(lowered("kernels", 22))
    assert not needs_libdevice(lowered("second", 22))


def test_assembly_is_generated_for_the_architecture_and_the_ptx_isa() -> None:
    command = nvptx_assembly_command(llvm(22), Path("a.ll"), Path("a.s"), CODEGEN, None)
    assert command.argv[:4] == (str(CLANG), "--target=nvptx64-nvidia-cuda", "-x", "ir")
    assert {"-march=sm_90", "--cuda-feature=+ptx83", "-O2", "-S", "-nogpulib"} <= {*command.argv}
    assert command.argv[-3:] == ("a.ll", "-o", "a.s")
    assert "-mlink-builtin-bitcode" not in command.argv


@pytest.mark.parametrize(("release", "is_known"), [(15, True), (22, True), (99, False)])
def test_loops_are_reduced_as_a_release_can(release: int, *, is_known: bool) -> None:
    given, made = Path("a.ll"), Path("a.o")
    codegen = AmdgpuCodegen("gfx90a", 2)
    commands = (
        nvptx_assembly_command(llvm(release), given, made, CODEGEN, None),
        nvptx_object_command(llvm(release), given, made, CODEGEN, None),
        amdgpu_image_command(llvm(release), given, made, codegen),
    )
    for command in commands:
        assert (" -mllvm -lsr-exp-narrow " in " ".join(command.argv)) == is_known


@pytest.mark.parametrize(("release", "is_known"), [(15, True), (22, True), (99, False)])
def test_loops_are_unrolled_for_nvidia_gpus_before_code_is_generated(
    release: int, *, is_known: bool
) -> None:
    given, made = Path("a.ll"), Path("a.bc")
    commands = (
        nvptx_assembly_command(llvm(release), given, made, CODEGEN, None),
        nvptx_bitcode_command(llvm(release), given, made, CODEGEN, None),
    )
    for command in commands:
        assert (" -mllvm -unroll-partial-threshold=" in " ".join(command.argv)) == is_known


def test_no_code_is_generated_with_bitcode() -> None:
    given, made = Path("a.ll"), Path("a.bc")
    commands = (
        nvptx_bitcode_command(llvm(22), given, made, CODEGEN, None),
        amdgpu_image_command(llvm(22), given, made, AmdgpuCodegen("gfx90a", 2)),
    )
    assert not any("-lsr-exp-narrow" in command.argv for command in commands)
    assert "-mllvm" not in commands[1].argv


def test_libdevice_is_linked_as_a_builtin_library() -> None:
    library = Path("/cuda/libdevice.10.bc")
    argv = nvptx_bitcode_command(llvm(19), Path("a.ll"), Path("a.bc"), CODEGEN, library).argv
    at = argv.index("-mlink-builtin-bitcode")
    assert argv[at - 1 : at + 3] == ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(library))
    assert "-emit-llvm" in argv


def test_a_cubin_stays_relocatable() -> None:
    command = cubin_command(cuda(), Path("a.s"), Path("a.cubin"), CODEGEN, ("--maxrregcount=32",))
    assert command.argv == (
        *("/cuda/bin/ptxas", "-arch=sm_90", "-c", "-O2", "--maxrregcount=32"),
        *("a.s", "-o", "a.cubin"),
    )


def test_debug_builds_keep_lines_in_the_cubin() -> None:
    codegen = DeviceCodegen("sm_90", 83, 0, debug=True)
    assert "-lineinfo" in cubin_command(cuda(), Path("a.s"), Path("a"), codegen, ()).argv


def test_a_toolkit_without_ptxas_is_refused() -> None:
    with pytest.raises(ToolchainError, match="the CUDA toolkit in /cuda has no ptxas"):
        cubin_command(cuda(None), Path("a.s"), Path("a.cubin"), CODEGEN, ())


@pytest.mark.parametrize("kind", ["i4", "i24", "i65", "x86_fp80", "fp128"])
def test_a_kernel_cannot_take_a_type_that_ptx_does_not_have(kind: str) -> None:
    text = f"define ptx_kernel void @k(ptr %0, {kind} %1) {{\n  ret void\n}}\n"
    with pytest.raises(SourceError, match=f"'k' has a parameter of type {kind}, which PTX does"):
        nvptx_device_ir(text, kernels=["k"], llvm_major=22)


@pytest.mark.parametrize("kind", ["i1", "i128", "<3 x i24>", "{ i24 }"])
def test_a_kernel_takes_other_types(kind: str) -> None:
    text = f"define ptx_kernel void @k({kind} %0) {{\n  ret void\n}}\n"
    assert f"@k({kind} %0)" in nvptx_device_ir(text, kernels=["k"], llvm_major=22)


@pytest.mark.parametrize(
    ("others", "left"), [('"nvvm.maxntid"="64" ', '"nvvm.maxntid"="64"'), ("", "nounwind")]
)
def test_places_of_barriers_are_for_the_cpu_alone(others: str, left: str) -> None:
    head = "define ptx_kernel void @k() #0 {\n  ret void\n}\n"
    marked = head + f'attributes #0 = {{ "mo.barriers"="a b.mlir:1:2\\0A" {others}}}\n'
    made = nvptx_device_ir(marked, kernels=["k"], llvm_major=22)
    assert f"attributes #0 = {{ {left} }}" in made
