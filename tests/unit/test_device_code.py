from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.cuda_tools import assemble
from support.hostile import bit_flips, extreme_fields, spliced, survives, truncations

from mlir_offload.offload.device.code import hash_kernels, image_kernels, read_device_code
from mlir_offload.offload.device.host_image import read_host_image
from mlir_offload.toolchain.byte_view import memory_view, open_view
from mlir_offload.toolchain.errors import VerificationError

GOLDEN = Path(__file__).parents[1] / "golden" / "cubin"
C = """
extern int other(int);
__attribute__((weak)) void weak_kernel(int *p) { p[0] = other(p[1]); }
static int hidden(int x) { return x * 3; }
void kernel(int *p) { *p = hidden(*p); }
int variable = 3;
"""
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (15, 16, 19, 22)]
PTX = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) { ret; }\n"


def compile_c(major: int, path: Path, *options: str) -> Path:
    argv = [f"/usr/lib/llvm-{major}/bin/clang", "-x", "c", "-", "-O1", "-fPIC", *options, "-o", str(path)]  # fmt: skip
    subprocess.run(argv, input=C, text=True, check=True)
    return path


def read(data: bytes) -> object:
    view = memory_view(data)
    code = read_device_code(view)
    hash_kernels(view, image_kernels(view))
    return code


@pytest.mark.parametrize("major", RELEASES)
@pytest.mark.parametrize("target", ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"])
def test_functions_of_a_host_image_are_found(major: int, target: str, tmp_path: Path) -> None:
    path = compile_c(major, tmp_path / "k.o", f"--target={target}", "-c")
    with open_view(path) as view:
        code = read_device_code(view)
        names = image_kernels(view)
        hashes = hash_kernels(view, {"kernel", "weak_kernel", "hidden", "absent"})
    assert code is not None
    assert (code.form, code.arch, code.is_relocatable) == ("ELF", target.partition("-")[0], True)
    assert (code.llvm_major, code.triple) == (major, "")
    assert names == {"kernel", "weak_kernel"} == {kernel.name for kernel in code.kernels}
    assert all(kernel.code_bytes and kernel.parameters is None for kernel in code.kernels)
    assert code.undefined == ("other",)
    assert set(hashes) == {"kernel", "weak_kernel"}
    assert len(set(hashes.values())) == 2


@pytest.mark.llvm(22)
def test_functions_of_a_shared_host_image_are_those_that_it_exports(tmp_path: Path) -> None:
    with open_view(compile_c(22, tmp_path / "k.so", "-shared", "-nostdlib")) as view:
        code = read_device_code(view)
        hashes = hash_kernels(view, {"kernel"})
    assert code is not None
    assert (code.is_relocatable, code.undefined) == (False, ("other",))
    assert {kernel.name for kernel in code.kernels} == {"kernel", "weak_kernel"}
    with open_view(compile_c(22, tmp_path / "k.o", "-c")) as view:
        assert hash_kernels(view, {"kernel"}) == hashes


@pytest.mark.llvm(22)
def test_each_format_is_told_from_its_content(tmp_path: Path) -> None:
    kernel = "kernel void k(global int *p) { *p = 1; }"
    clang = ["/usr/lib/llvm-22/bin/clang", "-x", "cl", "-", "-nogpulib", "-c"]
    amdgpu, spirv = tmp_path / "amdgpu", tmp_path / "spirv"
    for target, path in (("amdgcn-amd-amdhsa", amdgpu), ("spirv64", spirv)):
        subprocess.run([*clang, f"--target={target}", "-o", path], input=kernel, text=True, check=True)  # fmt: skip
    bitcode = [*clang, "--target=amdgcn-amd-amdhsa", "-emit-llvm", "-o", str(tmp_path / "bitcode")]
    subprocess.run(bitcode, input=kernel, text=True, check=True)
    (tmp_path / "ptx").write_text(PTX)
    forms = {
        "amdgpu": "AMDGPU code object",
        "spirv": "SPIR-V",
        "ptx": "PTX",
        "bitcode": "LLVM bitcode",
    }
    for name, form in forms.items():
        with open_view(tmp_path / name) as view:
            code = read_device_code(view)
            assert code is not None
            assert code.form == form
            assert "k" in image_kernels(view)
            assert bool(hash_kernels(view, {"k"})) == (name in ("amdgpu", "bitcode"))
    with open_view(GOLDEN / "sm_35.11.8.cubin") as view:
        code = read_device_code(view)
        assert code is not None
        assert code.form == "cubin"
        assert image_kernels(view) == {"k"}


def test_the_same_kernel_has_the_same_hash_in_two_cubins(tmp_path: Path) -> None:
    more = PTX + ".visible .entry other(.param .u64 p) { ret; }"
    hashes = []
    for name, text in (("one", PTX), ("two", more)):
        assemble(text, tmp_path / name, "-arch=sm_80", "-c")
        with open_view(tmp_path / name) as view:
            hashes.append(hash_kernels(view, {"k"})["k"])
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x7f",
        b"\x7fELF",
        b"MZ" + bytes(100),
        bytes(64),
        b"// nothing\n",
        b"BC",
        b"; ModuleID",
        b"\xff" * 99,
    ],
)
def test_what_is_no_device_image_is_unknown(data: bytes) -> None:
    view = memory_view(data)
    assert read_device_code(view) is None
    assert image_kernels(view) == frozenset()
    assert hash_kernels(view, {"k"}) == {}


def test_an_image_for_another_processor_is_unknown() -> None:
    data = b"\x7fELF\2\1\1" + bytes(9) + b"\3\0" + (243).to_bytes(2, "little") + bytes(100)
    assert read_device_code(memory_view(data)) is None
    with pytest.raises(VerificationError, match="machine at offset 18: found 243"):
        read_host_image(memory_view(data))


@pytest.mark.llvm(22)
def test_damaged_host_images_are_refused_or_read(tmp_path: Path) -> None:
    data = compile_c(22, tmp_path / "k.o", "-c").read_bytes()
    assert survives(read, truncations(data, step=3)) > 0
    assert survives(read, bit_flips(data, step=19)) > 0
    assert survives(read, extreme_fields(data, limit=64)) > 0
    survives(read, spliced(data, 300))
