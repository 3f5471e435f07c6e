"""The writer of offload binaries against the packager of each release."""

from __future__ import annotations

import os
import random
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.device_image import DeviceImage, serialize_binary

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.container.binary import read_binary
from mlir_offload.offload.container.packager import (
    ImageRecord,
    image_argument,
    packaged_image_kind,
    record_parts,
)
from mlir_offload.offload.image import ImageKind
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.target import Kind, Target

RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (15, 16, 19, 22)]
PACKAGERS = {22: "llvm-offload-binary"}
# From this one on, several `file=` of an `--image=` are several images.
SPLITS_FILES = 17
COMMANDS = 30
LETTERS = "abcdefghijklmnopqrstuvwxyz_ABC.-:+ éß€\udcff"
# Around the lengths at which LLVM's hash changes its way, and the counts at which its tables grow.
LENGTHS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 25, 32, 33, 50, 64, 65, 100, 128, 129, 200)
COUNTS = (0, 1, 3, 10, 12, 13, 20, 44, 47, 48, 60, 100, 200)
ENDINGS = (".o", ".bc", ".cubin", ".s", ".fatbin", ".spv", ".img", ".", "", ".O")


@dataclass
class RandomCommand:
    """The `--image=` arguments of one call, and the files that they name."""

    source: random.Random
    directory: Path
    major: int
    images: list[str] = field(default_factory=list)

    def text(self) -> str:
        return "".join(self.source.choices(LETTERS, k=self.source.choice(LENGTHS)))

    def file(self) -> Path:
        number = len(list(self.directory.iterdir()))
        path = self.directory / f"{number}{self.source.choice(ENDINGS)}"
        magic = self.source.choice([b"", b"", b"BC\xc0\xde", b"\xde\xc0\x17\x0b"])
        path.write_bytes(magic + self.source.randbytes(self.source.randint(0, 40)))
        return path

    def add_image(self) -> None:
        choose = self.source.choice
        files = choose([1, 1, 1, 2, 3]) if self.major >= SPLITS_FILES else 1
        words = [f"file={self.file()}" for _ in range(files)]
        words += [f"triple={choose(['nvptx64-nvidia-cuda', 'x'])}", f"arch=sm_{choose(range(99))}"]
        words.append(f"kind={choose(['cuda', 'hip', 'openmp', 'sycl', 'bogus', 'cuda,kind=hip'])}")
        keys: list[str] = []
        for _ in range(choose(COUNTS)):
            keys.append(choose(keys) if keys and self.source.random() < 0.05 else self.text())
        words += [choose([f"{key}={self.text()}", key, f"{key}=", f"{key}=a=b"]) for key in keys]
        self.source.shuffle(words)
        self.images.append(f"--image={','.join(words)}")


def packaged(major: int, arguments: list[str], directory: Path) -> bytes:
    program = f"/usr/lib/llvm-{major}/bin/{PACKAGERS.get(major, 'clang-offload-packager')}"
    output = directory.with_suffix(".offload")
    subprocess.run([program, "-o", output, *map(os.fsencode, arguments)], check=True)
    return output.read_bytes()


def written(major: int, arguments: list[str]) -> bytes:
    abi = load_abi(major)
    parts = []
    for text in arguments:
        argument = image_argument(text.removeprefix("--image=").split(","))
        for name in argument.files:
            data = Path(name).read_bytes()
            record = ImageRecord(
                dict(abi.kind_codes).get(argument.value("kind"), 0),
                packaged_image_kind(name, data, abi),
                argument.strings(abi),
                memory_view(data),
            )
            parts += [p if isinstance(p, bytes) else p.whole() for p in record_parts(record)]
    return b"".join(parts)


@pytest.mark.parametrize("major", RELEASES)
def test_the_packager_writes_the_same_bytes(major: int, tmp_path: Path) -> None:
    for number in range(COMMANDS):
        source = random.Random(1000 * major + number)  # noqa: S311 (not for secrets)
        directory = tmp_path / str(number)
        directory.mkdir()
        command = RandomCommand(source, directory, major)
        for _ in range(source.choice([1, 1, 1, 2, 5])):
            command.add_image()
        theirs = packaged(major, command.images, directory)
        assert written(major, command.images) == theirs, command.images
        assert len(read_binary(memory_view(theirs))) == sum(
            text.count("file=") for text in command.images
        )


@pytest.mark.parametrize("major", RELEASES)
def test_images_of_a_build_are_written_as_by_the_packager(major: int, tmp_path: Path) -> None:
    data = tmp_path / "image.o"
    data.write_bytes(b"some code")
    images = [
        DeviceImage(
            Target(Kind.CUDA, "nvptx64-nvidia-cuda", "sm_90"), b"some code", ImageKind.OBJECT
        ),
        DeviceImage(
            Target(Kind.CUDA, "nvptx64-nvidia-cuda", "sm_80"),
            b"some code",
            ImageKind.OBJECT,
            feature="+ptx83",
        ),
        DeviceImage(
            Target(Kind.HIP, "amdgcn-amd-amdhsa", "gfx90a"), b"some code", ImageKind.OBJECT
        ),
    ]
    arguments = [
        f"--image=file={data},triple=nvptx64-nvidia-cuda,arch=sm_90,kind=cuda",
        f"--image=file={data},triple=nvptx64-nvidia-cuda,arch=sm_80,kind=cuda,feature=+ptx83",
        f"--image=file={data},triple=amdgcn-amd-amdhsa,arch=gfx90a,kind=hip",
    ]
    assert serialize_binary(images, load_abi(major)) == packaged(
        major, arguments, tmp_path / "build"
    )
