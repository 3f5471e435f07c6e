"""AMD processors, their device libraries, and the LLVM IR generated for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlir_offload.offload.abi import load_abis
from mlir_offload.offload.device.amdgpu_processor import check_processor, known_processors
from mlir_offload.offload.host.embed import HostKernel, embed_offload_data
from mlir_offload.toolchain.amdgpu import (
    amdgpu_layout,
    check_features,
    check_target_ids,
    load_code_objects,
    normalize_target_id,
    wavefront_size,
)
from mlir_offload.toolchain.errors import CompatibilityError, ToolchainError, UsageError
from mlir_offload.toolchain.rocm import (
    DeviceMath,
    choose_code_object,
    device_libraries,
    inspect_rocm,
)
from mlir_offload.toolchain.target import Kind, Target, parse_offload_arch
from mlir_offload.translate.kind.hip import amdgpu_device_ir

MATH = DeviceMath()
IR = """\
source_filename = "LLVMDialectModule"
target triple = "nothing"
@__dynamic_shmem__0 = internal addrspace(3) global [0 x i8] undef
define amdgpu_kernel void @k(ptr %0) #0 {
  %2 = alloca float, i64 4, align 4
  %3 = alloca float, align 4, addrspace(5)
  ret void
}
define void @helper() {
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="1,256" }
attributes #1 = { "amdgpu-flat-work-group-size"="64,64" }
!llvm.module.flags = !{!0}
!0 = !{i32 2, !"Debug Info Version", i32 3}
"""


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("gfx90a", "gfx90a"),
        ("gfx1100", "gfx1100"),
        ("gfx90a:xnack-:sramecc+", "gfx90a:sramecc+:xnack-"),
        ("gfx9-4-generic", "gfx9-4-generic"),
    ],
)
def test_an_amd_gpu_is_named_by_its_target_id(name: str, arch: str) -> None:
    assert parse_offload_arch(name) == Target(Kind.HIP, "amdgcn-amd-amdhsa", arch)


@pytest.mark.parametrize("name", ["gfx", "gfx9", "gfx90a:", "gfx90a:xnack", "gfx90aa9", "GFX90A"])
def test_another_form_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="unknown offload architecture"):
        parse_offload_arch(name)


@pytest.mark.parametrize(
    ("arch", "threads"),
    [("gfx803", 64), ("gfx90a:xnack+", 64), ("gfx942", 64), ("gfx1010", 32), ("gfx1201", 32)],
)
def test_a_wavefront_has_the_size_of_the_generation(arch: str, threads: int) -> None:
    assert wavefront_size(arch) == threads


def test_features_stand_once_and_in_order() -> None:
    assert normalize_target_id("gfx90a:xnack-:sramecc+:xnack-") == "gfx90a:sramecc+:xnack-"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("gfx1100", ["+wavefrontsize32", "-wavefrontsize64", "-mno-wavefrontsize64", "-mcumode"]),
        ("gfx90a", ["+wavefrontsize64", "-wavefrontsize32", "-mwavefrontsize64"]),
        ("gfx90a:xnack+", ["+xnack", "+dot7-insts", "-O3"]),
        ("gfx90a:sramecc-:xnack-", ["-xnack", "-sramecc"]),
    ],
)
def test_features_of_the_target_are_taken(target: str, words: list[str]) -> None:
    check_features(target, words)


@pytest.mark.parametrize(
    ("target", "word", "hint"),
    [
        ("gfx1100", "+wavefrontsize64", "leave"),
        ("gfx1030", "-mwavefrontsize64", "leave"),
        ("gfx90a", "-mno-wavefrontsize64", "leave"),
        ("gfx90a", "+xnack", "--offload-arch=gfx90a:xnack+"),
        ("gfx90a:xnack+", "-xnack", "--offload-arch=gfx90a:xnack-"),
        ("gfx90a:xnack+", "-sramecc", "--offload-arch=gfx90a:sramecc-"),
    ],
)
def test_code_with_other_features_than_its_target_is_refused(
    target: str, word: str, hint: str
) -> None:
    with pytest.raises(CompatibilityError, match=target) as error:
        check_features(target, ["-O2", word])
    assert hint in error.value.hint


def test_a_gpu_fits_one_of_the_target_ids_of_a_program_at_most() -> None:
    check_target_ids(["gfx90a:xnack+", "gfx90a:xnack-", "gfx1100", "gfx906", "gfx906"])
    for other in ("gfx90a", "gfx90a:sramecc+", "gfx90a:sramecc+:xnack+"):
        with pytest.raises(UsageError, match="cannot be combined in one program"):
            check_target_ids(["gfx90a:xnack+", other])


def test_a_processor_is_known_from_its_release_on_until_it_is_dropped() -> None:
    assert "gfx940" in known_processors(19)
    assert "gfx940" not in known_processors(22)
    assert "gfx950" not in known_processors(19)
    check_processor("gfx950:xnack-", 22)
    with pytest.raises(CompatibilityError) as error:
        check_processor("gfx950", 19)
    assert error.value.hint == "LLVM 20 and newer know it: choose another release with --llvm="
    with pytest.raises(CompatibilityError) as error:
        check_processor("gfx1031x", 22)
    assert error.value.hint == "did you mean gfx1031?"


@pytest.mark.parametrize(
    ("major", "text", "flag"),
    [
        (19, "-p8:128:128-", "amdhsa_code_object_version"),
        (22, "e-m:e-", "amdhsa_code_object_version"),
        (16, "-p6:32:32-i64", "amdgpu_code_object_version"),
    ],
)
def test_layout_and_module_flag_are_those_of_the_release(major: int, text: str, flag: str) -> None:
    assert text in amdgpu_layout(major)
    assert load_code_objects(major).flag == flag


def test_ir_for_an_amd_gpu_has_its_stack_shared_memory_and_block_size_where_they_belong() -> None:
    text = amdgpu_device_ir(IR, kernels=["k"], llvm_major=22, code_object=5)
    assert 'target triple = "amdgcn-amd-amdhsa"\n' in text
    assert "external addrspace(3) global [0 x i8]\n" in text
    assert "%mo.stack.2 = alloca float, i64 4, align 4, addrspace(5)\n" in text
    assert "%2 = addrspacecast ptr addrspace(5) %mo.stack.2 to ptr\n" in text
    assert "  %3 = alloca float, align 4, addrspace(5)\n" in text
    assert "define amdgpu_kernel void @k(" in text
    assert "define internal void @helper(" in text
    assert '#0 = { "amdgpu-flat-work-group-size"="1,1024" }' in text
    assert '#1 = { "amdgpu-flat-work-group-size"="64,64" }' in text
    assert "!llvm.module.flags = !{!0, !1}\n" in text
    assert '!1 = !{i32 1, !"amdhsa_code_object_version", i32 500}' in text
    assert '!llvm.ident = !{!2}\n!2 = !{!"mlir-offload for LLVM 22"}' in text
    again = amdgpu_device_ir(text, kernels=["k"], llvm_major=22, code_object=5)
    assert again.count("!llvm.ident") == 1


NEW = (
    "ocml",
    "ockl",
    "oclc_wavefrontsize64_on",
    "oclc_wavefrontsize64_off",
    "oclc_finite_only_off",
    "oclc_unsafe_math_off",
    "oclc_abi_version_500",
    "oclc_abi_version_600",
    "oclc_isa_version_90a",
)


def install(root: Path, names: tuple[str, ...], ending: str = ".bc") -> Path:
    folder = root / "lib" if ending != ".bc" else root / "amdgcn" / "bitcode"
    folder.mkdir(parents=True)
    for name in names:
        (folder / f"{name}{ending}").touch()
    return root


def test_device_libraries_go_by_the_chip(tmp_path: Path) -> None:
    rocm = inspect_rocm(install(tmp_path, NEW))
    assert rocm is not None
    assert choose_code_object(22, rocm, "gfx90a") == 6
    assert choose_code_object(19, rocm, "gfx90a") == 5
    assert choose_code_object(22, rocm, "gfx90a", 5) == 5
    with pytest.raises(CompatibilityError, match=r"version 4: LLVM 22 with .* makes 5 and 6"):
        choose_code_object(22, rocm, "gfx90a", 4)
    names = [path.stem for path in device_libraries(rocm, "gfx90a:xnack-", 6, MATH)]
    assert names == [
        "ocml",
        "ockl",
        "oclc_wavefrontsize64_on",
        "oclc_finite_only_off",
        "oclc_unsafe_math_off",
        "oclc_abi_version_600",
        "oclc_isa_version_90a",
    ]
    names = [path.stem for path in device_libraries(rocm, "gfx1100", 5, MATH)]
    assert "oclc_wavefrontsize64_off" in names
    assert not [name for name in names if name.startswith("oclc_isa_version")]


def test_device_libraries_of_the_old_layout_are_found(tmp_path: Path) -> None:
    old = tuple(name for name in NEW if "abi" not in name)
    rocm = inspect_rocm(install(tmp_path, old, ".amdgcn.bc"))
    assert rocm is not None
    assert choose_code_object(19, rocm, "gfx90a") == 4
    names = [path.name for path in device_libraries(rocm, "gfx90a", 4, MATH)]
    assert names[0] == "ocml.amdgcn.bc"
    assert names[-1] == "oclc_isa_version_90a.amdgcn.bc"


def test_a_missing_control_library_is_named(tmp_path: Path) -> None:
    rocm = inspect_rocm(install(tmp_path, tuple(name for name in NEW if "finite" not in name)))
    assert rocm is not None
    with pytest.raises(ToolchainError, match=r"there is no oclc_finite_only_off\.bc"):
        device_libraries(rocm, "gfx90a", 5, MATH)


def test_libraries_and_llvm_without_a_common_version_are_refused(tmp_path: Path) -> None:
    names = tuple(name for name in NEW if "500" not in name)
    with pytest.raises(CompatibilityError, match="version 6, LLVM 19 writes 4 and 5"):
        choose_code_object(19, inspect_rocm(install(tmp_path, names)), "gfx90a")


@pytest.mark.parametrize("major", ["19", "22"])
def test_kernels_of_a_hip_file_are_registered_by_their_handles(major: str) -> None:
    kernels = [HostKernel("k", ("ptr",)), HostKernel("taken", ())]
    text = embed_offload_data(
        '@taken = internal constant [1 x i8] c"\\00"\n',
        kernels=kernels,
        kinds=[Kind.CUDA, Kind.HIP],
        binary=b"x",
        abis=load_abis(major),
        declared=["other"],
    )
    assert "@__mo_handle__k = internal constant ptr @__mo_stub__k, align 8\n" in text
    assert "@k = hidden alias ptr, ptr @__mo_handle__k\n" in text
    assert "@taken = hidden alias" not in text
    assert "@other = external constant ptr, align 8\n" in text
    assert text.count("ptr @__mo_handle__k, ptr @.offloading.entry_name") == 2
