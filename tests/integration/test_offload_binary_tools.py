"""The writer of offload binaries against the packager of each release."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.binary import parse_binary, serialize_binary
from mlir_offload.offload.image import DeviceImage, ImageKind
from mlir_offload.toolchain.process import Command, ProcessRunner, run_checked
from mlir_offload.toolchain.target import Kind, Target

if TYPE_CHECKING:
    from pathlib import Path

RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (16, 19, 22)]
PACKAGERS = {22: "llvm-offload-binary"}
EXTENSIONS = {ImageKind.OBJECT: "o", ImageKind.CUBIN: "cubin", ImageKind.NONE: "img"}


def random_image(source: random.Random) -> DeviceImage:
    kind = source.choice([Kind.CUDA, Kind.HIP, Kind.OPENMP])
    triple = source.choice(["nvptx64-nvidia-cuda", "x86_64-pc-linux-gnu", "x"])
    arch = source.choice(["sm_80", "sm_90a", "sm_8", "nvptx64-nvidia-cuda"])
    data = source.randbytes(source.randint(1, 40))
    feature = source.choice(["", "+ptx83"])
    return DeviceImage(
        Target(kind, triple, arch), data, source.choice(list(EXTENSIONS)), (), feature
    )


def packaged(major: int, images: list[DeviceImage], directory: Path) -> bytes:
    arguments = []
    for number, image in enumerate(images):
        path = directory / f"{number}.{EXTENSIONS[image.image_kind]}"
        path.write_bytes(image.data)
        keys = ",".join(f"{key}={value}" for key, value in image.strings.items())
        arguments.append(f"--image=file={path},{keys},kind={image.target.kind}")
    output = directory / "images.offload"
    program = f"/usr/lib/llvm-{major}/bin/{PACKAGERS.get(major, 'clang-offload-packager')}"
    run_checked(ProcessRunner(), Command((program, "-o", str(output), *arguments)))
    return output.read_bytes()


@pytest.mark.parametrize("major", RELEASES)
def test_the_packager_writes_the_same_bytes(major: int, tmp_path: Path) -> None:
    source = random.Random(major)  # noqa: S311 (not for secrets)
    for count in (1, 1, 1, 2, 5, 12):
        images = [random_image(source) for _ in range(count)]
        theirs = packaged(major, images, tmp_path)
        assert serialize_binary(images, load_abi(major)) == theirs
        assert [item.data for item in parse_binary(theirs)] == [image.data for image in images]
