from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.container.binary import PackagedImage
from mlir_offload.offload.link.dummy_image import (
    empty_image_command,
    render_dummy_image,
    targets_needing_dummy,
)
from mlir_offload.offload.link.objects import ObjectContents
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.target import Kind, Target
from mlir_offload.toolchain.tool import ToolVersion

LLVM = LlvmToolchain(Path("/llvm"), ToolVersion(22, 1, 0), (("clang", Path("/llvm/bin/clang")),))
GPU = Target(Kind.CUDA, "nvptx64-nvidia-cuda", "sm_90")
AMD = Target(Kind.HIP, "amdgcn-amd-amdhsa", "gfx90a:xnack+")
INTEL = Target(Kind.SYCL, "spirv64-unknown-unknown", "spirv64")
CPU = Target(Kind.OPENMP, "x86_64-pc-linux-gnu", "host")


def contents(member: str, *targets: Target, kind: str = "") -> ObjectContents:
    images = tuple(
        PackagedImage(
            kind or target.kind,
            1,
            0,
            (("arch", target.arch.removeprefix("host")), ("triple", target.triple)),
            memory_view(b""),
        )
        for target in targets
    )
    return ObjectContents(
        Path("a"),
        member,
        is_relocatable=True,
        images=images,
        entries=(),
        runtime_symbols=frozenset(),
        fatbins=(),
    )


def test_targets_of_library_members_alone_get_dummy_images() -> None:
    abi = load_abi(22)
    line = [contents("", GPU), contents("m.o", GPU, CPU, AMD)]
    assert targets_needing_dummy(line, abi) == (AMD, CPU)
    assert targets_needing_dummy([contents("", GPU, CPU), contents("m.o", GPU, CPU)], abi) == ()
    assert targets_needing_dummy([contents("m.o", INTEL)], abi) == (INTEL,)


@pytest.mark.parametrize(("major", "needing"), [(15, ()), (16, (GPU,)), (19, ()), (22, ())])
def test_an_object_is_no_dummy_image_where_only_those_before_the_library_count(
    major: int, needing: tuple[Target, ...]
) -> None:
    line = [contents("", GPU), contents("m.o", GPU)]
    assert targets_needing_dummy(line, load_abi(major)) == needing


@pytest.mark.parametrize(
    ("target", "options"),
    [
        (GPU, {"--target=nvptx64-nvidia-cuda", "-march=sm_90", "-emit-llvm"}),
        (AMD, {"--target=amdgcn-amd-amdhsa", "-mcpu=gfx90a:xnack+", "-emit-llvm"}),
        (INTEL, {"--target=spirv64-unknown-unknown", "-emit-llvm"}),
        (replace(AMD, kind=Kind.OPENMP), {"-mcpu=gfx90a:xnack+", "-emit-llvm"}),
    ],
)
def test_the_empty_image_is_bitcode_for_a_gpu(target: Target, options: set[str]) -> None:
    assert options <= {*empty_image_command(LLVM, target, Path("e.bc")).argv}


def test_the_empty_image_is_an_object_for_the_cpu() -> None:
    argv = empty_image_command(LLVM, CPU, Path("e.o")).argv
    assert "-emit-llvm" not in argv
    assert argv[-3:] == ("/dev/null", "-o", "e.o")


def test_a_dummy_image_is_a_module_with_the_binary_alone() -> None:
    text = render_dummy_image(b"ab")
    assert '[2 x i8] c"\\61\\62", section ".llvm.offloading"' in text
    assert "define" not in text
