"""LLVM IR for another machine, as an input: clang would compile it for this one without a warning."""

from __future__ import annotations

from pathlib import Path

import llvmlite.binding
import pytest

from mlir_offload.offload.file.contents_reader import read_contents
from mlir_offload.offload.host.module_target import check_host_module
from mlir_offload.toolchain.errors import CompatibilityError

_PLAIN = "define void @f(ptr %p) {\n  ret void\n}\n"
# Kernels as Triton 3.9 and IREE 3.13 write them; the former without a triple for NVIDIA GPUs.
_NVIDIA = "define ptx_kernel void @add(ptr addrspace(1) %0) local_unnamed_addr {\n  ret void\n}\n"
_AMD = "define amdgpu_kernel void @add(ptr addrspace(1) inreg %0) {\n  ret void\n}\n"
_GPU_MODULES = {
    "nvptx": (_NVIDIA, "nvptx64-nvidia-cuda"),
    "nvptx-without-triple": (_NVIDIA, ""),
    "amdgcn": (_AMD, "amdgcn-amd-amdhsa"),
    "amdgpu-with-processor": (_AMD, "amdgpu9.42-amd-amdhsa"),
    "amdgpu-without-triple": (_AMD, ""),
    "spirv": (_PLAIN, "spirv64-unknown-unknown"),
}
_OTHER_HOSTS = (
    "aarch64-unknown-linux-gnu",
    "i686-pc-linux-gnu",
    "x86_64-pc-windows-msvc",
    "x86_64-apple-macosx13.0.0",
    "x86_64-pc-linux-gnux32",
)
_THIS_HOST = (
    "",
    "x86_64",
    "x86_64-pc-linux-gnu",
    "x86_64-unknown-linux6.1.0-gnu2.36.0",
    "x86_64-linux-musl",
    "x86_64-unknown-unknown",
    "amd64-redhat-linux",
)


def _written(folder: Path, code: str, triple: str, suffix: str) -> Path:
    head = f'target triple = "{triple}"\n' if triple else ""
    path = folder / f"module{suffix}"
    path.write_text(head + code)
    if suffix == ".bc":
        path.write_bytes(llvmlite.binding.parse_assembly(head + code).as_bitcode())
    return path


@pytest.mark.parametrize("suffix", [".ll", ".bc"])
@pytest.mark.parametrize(("code", "triple"), _GPU_MODULES.values(), ids=_GPU_MODULES)
def test_a_module_for_a_gpu_is_not_compiled_for_the_host(
    tmp_path: Path, code: str, triple: str, suffix: str
) -> None:
    path = _written(tmp_path, code, triple, suffix)

    with pytest.raises(CompatibilityError, match=f"is for (a GPU|{triple or '[a-z]+'})") as caught:
        check_host_module(path)

    assert "gpu.module" in caught.value.hint


@pytest.mark.parametrize("suffix", [".ll", ".bc"])
@pytest.mark.parametrize("triple", _OTHER_HOSTS)
def test_a_module_for_another_host_is_not_compiled_for_this_one(
    tmp_path: Path, triple: str, suffix: str
) -> None:
    path = _written(tmp_path, _PLAIN, triple, suffix)

    with pytest.raises(CompatibilityError, match=f"is for {triple}, not for this machine"):
        check_host_module(path)


@pytest.mark.parametrize("suffix", [".ll", ".bc"])
@pytest.mark.parametrize("triple", _THIS_HOST)
def test_a_module_for_this_host_or_any_host_is_compiled(
    tmp_path: Path, triple: str, suffix: str
) -> None:
    check_host_module(_written(tmp_path, _PLAIN, triple, suffix))


@pytest.mark.parametrize(("code", "triple"), _GPU_MODULES.values(), ids=_GPU_MODULES)
def test_inspect_shows_text_for_a_gpu_as_device_code(
    tmp_path: Path, code: str, triple: str
) -> None:
    part = read_contents(_written(tmp_path, code, triple, ".ll"))

    assert [image.form for image in part.images] == ["LLVM IR"]
    assert part.images[0].triple.startswith(triple or ("nvptx", "amdgcn"))
