"""Images that the link of a release drops, and those that it links."""

from __future__ import annotations

import pytest

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.container.packager import (
    check_image_argument,
    check_image_content,
    image_argument,
)
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import CompatibilityError, UsageError

MAJORS = (15, 16, 19, 22)
CUDA = "triple=nvptx64-nvidia-cuda,arch=sm_90,kind=cuda"
HIP = "triple=amdgcn-amd-amdhsa,arch=gfx90a,kind=hip"
OPENMP = "triple=x86_64-pc-linux-gnu,kind=openmp"
SYCL = "triple=spirv64-unknown-unknown,kind=sycl"
BITCODE = b"BC\xc0\xde"
PTX = b".version 8.3\n"
FATBIN = b"\x50\xed\x55\xba"
BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
SPIRV = b"\x03\x02\x23\x07"


def elf(sort: int, machine: int) -> bytes:
    return b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + bytes([sort, 0, machine, 0])


CUBIN, LINKED_CUBIN = elf(1, 190), elf(2, 190)
AMDGPU, HSACO = elf(1, 224), elf(3, 224)
OBJECT, SHARED = elf(1, 62), elf(3, 62)


# Results of real links with LLVM 15, 16, 19 and 22 and CUDA 13.0: the releases whose output has the kernel.
@pytest.mark.parametrize(
    ("keys", "name", "content", "linked"),
    [
        (CUDA, "a.bc", BITCODE, MAJORS),
        (CUDA, "a.s", BITCODE, MAJORS),
        (CUDA, "a.o", CUBIN, MAJORS),
        (CUDA, "a.cubin", CUBIN, MAJORS),
        (CUDA, "a.fatbin", CUBIN, (16, 19, 22)),
        (CUDA, "a", CUBIN, (16, 19, 22)),
        (CUDA, "a.s", CUBIN, (22,)),
        (CUDA, "a.bc", CUBIN, (22,)),
        (CUDA, "a.o", LINKED_CUBIN, ()),
        (CUDA, "a.cubin", LINKED_CUBIN, ()),
        (CUDA, "a.s", PTX, (16, 19)),
        (CUDA, "a.ptx", PTX, ()),
        (CUDA, "a.o", PTX, ()),
        (CUDA, "a.fatbin", FATBIN, ()),
        (CUDA, "a.o", OBJECT, ()),
        (CUDA, "a.o", AMDGPU, ()),
        (CUDA, "a.o", b"", ()),
        (CUDA, "a.o", b"junk", ()),
        (HIP, "a.bc", BITCODE, MAJORS),
        (HIP, "a.o", AMDGPU, MAJORS),
        (HIP, "a.s", AMDGPU, (15, 22)),
        (HIP, "a.hsaco", HSACO, ()),
        (HIP, "a.o", HSACO, ()),
        (HIP, "a.hipfb", BUNDLE, ()),
        (HIP, "a.o", OBJECT, ()),
        (HIP, "a.o", CUBIN, ()),
        (OPENMP, "a.o", OBJECT, MAJORS),
        (OPENMP, "a.bc", BITCODE, MAJORS),
        (OPENMP, "a.so", SHARED, ()),
        (OPENMP, "a.o", AMDGPU, ()),
        (f"{CUDA[:-4]}openmp", "a.o", CUBIN, MAJORS),
        (f"{HIP[:-3]}openmp", "a.o", AMDGPU, MAJORS),
        (f"{HIP[:-3]}openmp", "a.o", HSACO, ()),
        (SYCL, "a.bc", BITCODE, (22,)),
        (SYCL, "a.spv", SPIRV, ()),
    ],
)
def test_an_image_is_refused_by_the_releases_that_lose_it(
    keys: str, name: str, content: bytes, linked: tuple[int, ...]
) -> None:
    taken = []
    for major in MAJORS:
        argument, abi = image_argument([f"file={name}", *keys.split(",")]), load_abi(major)
        try:
            check_image_argument(argument, abi)
            check_image_content(argument, name, memory_view(content), abi)
            taken.append(major)
        except CompatibilityError as error:
            assert error.hint, error.message  # noqa: PT017 (each refusal has a hint)
    assert tuple(taken) == linked


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (CUDA, "an --image= has no file"),
        (f"file=a.o,{CUDA},kind=hip", "gives kind more than one value: cuda,hip"),
        (f"file=a.o,{CUDA},arch=sm_80", "gives arch more than one value: sm_90,sm_80"),
        ("file=a.o,triple=nvptx64,arch=sm_90", "file=a.o,... has no offload kind"),
        ("file=a.o,triple=nvptx64,arch=sm_90,kind=opencl", "unknown offload kind 'opencl'"),
        ("file=a.o,arch=sm_90,kind=cuda", "has no triple"),
        ("file=a.o,triple=nvptx64-nvidia-cuda,kind=cuda", "has no arch"),
        ("file=a.o,triple=nvptx64-nvidia-cuda,kind=openmp", "has no arch"),
        ("file=a.o,triple=amdgcn-amd-amdhsa,arch=,kind=hip", "has no arch"),
    ],
)
def test_an_incomplete_argument_is_an_error_of_usage(words: str, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace(".", r"\.")) as caught:
        check_image_argument(image_argument(words.split(",")), load_abi(22))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("words", "major", "message"),
    [
        (f"file=a.bc,{SYCL}", 19, "LLVM 19 has no offload kind 'sycl'"),
        (
            f"file=a.bc,{CUDA[:-4]}hip",
            22,
            "code for nvptx64-nvidia-cuda would be dropped with kind=hip",
        ),
        (
            f"file=a.bc,{HIP[:-3]}cuda",
            22,
            "code for amdgcn-amd-amdhsa would be dropped with kind=cuda",
        ),
    ],
)
def test_kinds_that_do_not_fit_are_refused(words: str, major: int, message: str) -> None:
    with pytest.raises(CompatibilityError, match=message):
        check_image_argument(image_argument(words.split(",")), load_abi(major))


def test_the_ending_decides_the_number_that_is_written() -> None:
    argument = image_argument(["file=a.fatbin", *CUDA.split(",")])
    assert check_image_content(argument, "a.fatbin", memory_view(CUBIN), load_abi(22)) == 4
    assert check_image_content(argument, "d.fatbin/a", memory_view(CUBIN), load_abi(22)) == 0
    assert check_image_content(argument, "a.fatbin", memory_view(BITCODE), load_abi(22)) == 2
