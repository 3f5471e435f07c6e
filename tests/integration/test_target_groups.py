"""Which device images are linked together: the model against the real linker wrappers, for many link lines."""

from __future__ import annotations

import hashlib
import re
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.container.binary import PackagedImage
from mlir_offload.offload.image import ImageKind
from mlir_offload.offload.link.dummy_image import render_dummy_image
from mlir_offload.offload.link.grouping import group_images
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.target import AMDGPU_TRIPLE, NVPTX_TRIPLE, Kind, host_triple

EVERY = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (15, 16, 19, 22)]
HOST = host_triple()
_ARCHS = {
    (Kind.HIP, AMDGPU_TRIPLE): (
        *("gfx90a", "gfx90a:xnack+", "gfx90a:xnack-", "gfx90a:sramecc-:xnack+"),
        *("gfx942", "generic", "all"),
    ),
    (Kind.CUDA, NVPTX_TRIPLE): ("sm_80", "sm_90", "sm_90a", "generic", "all"),
    (Kind.OPENMP, HOST): ("", "generic", "all", "native"),
    (Kind.OPENMP, NVPTX_TRIPLE): ("sm_80",),
}
Compiled = Callable[[bytes], Path]
TARGETS = [(kind, triple, arch) for (kind, triple), archs in _ARCHS.items() for arch in archs]
# An input of a device link, named after the target of its image.
_INPUT = re.compile(rf"[\w.]*?-(?:{AMDGPU_TRIPLE}|{NVPTX_TRIPLE}|{HOST})-([\w:+-]*)-\w{{6}}\.\w+")


def _lines() -> Iterator[Sequence[int]]:
    """Return link lines as numbers of targets, with every ordered pair of targets of one triple."""
    families = [
        [number for number, target in enumerate(TARGETS) if target[1] == triple]
        for triple in (AMDGPU_TRIPLE, NVPTX_TRIPLE, HOST)
    ]
    # The pairs of one triple do not touch those of another: a line tries three pairs.
    pairs = [[(one, other) for one in family for other in family] for family in families]
    for number in range(max(map(len, pairs))):
        yield [target for family in pairs for target in family[number % len(family)]]
    for step in range(1, 7):
        yield [(start * step) % len(TARGETS) for start in range(5)]


def _binary(kind_code: int, triple: str, arch: str, content: bytes) -> bytes:
    """Return an offload binary of version 1 with an image of any arch."""
    table, words = b"\0arch\0triple\0", [1, 6]
    for text in (arch, triple):
        words.append(len(table))
        table += text.encode() + b"\0"
    strings_at = 72
    table_at = strings_at + 32
    start = table_at + len(table) + -(table_at + len(table)) % 8
    size = start + len(content) + -len(content) % 8
    header = struct.pack("<4sIQQQ", b"\x10\xff\x10\xad", 1, size, 32, 40)
    entry = struct.pack("<HHIQQQQ", 1, kind_code, 0, strings_at, 2, start, len(content))
    keys, values = words[:2], words[2:]
    strings = b"".join(
        struct.pack("<QQ", table_at + key, table_at + value)
        for key, value in zip(keys, values, strict=True)
    )
    return (header + entry + strings + table).ljust(start, b"\0") + content.ljust(
        size - start, b"\0"
    )


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a relocatable object, which every release takes for an image."""
    output = tmp_path_factory.mktemp("content") / "empty.o"
    clang = "/usr/lib/llvm-22/bin/clang"
    subprocess.run([clang, "-c", "-x", "c", "/dev/null", "-o", output], check=True)
    return output.read_bytes()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Return a function that compiles what holds an image; releases whose codes are equal share it."""
    folder = tmp_path_factory.mktemp("objects")

    def compile_once(binary: bytes) -> Path:
        output = folder / f"{hashlib.sha256(binary).hexdigest()}.o"
        if not output.exists():
            source = output.with_suffix(".ll")
            source.write_text(render_dummy_image(binary))
            # The oldest: all releases read what it writes.
            clang = "/usr/lib/llvm-15/bin/clang"
            flags = ("-Wno-override-module", "-c", source, "-o", output)
            subprocess.run([clang, *map(str, flags)], check=True)
        return output

    return compile_once


@pytest.mark.llvm(15)
@pytest.mark.parametrize("major", EVERY)
def test_images_are_grouped_as_the_linker_wrapper_groups_them(
    major: int, content: bytes, compiled: Compiled, tmp_path: Path
) -> None:
    abi, prefix = load_abi(major), Path(f"/usr/lib/llvm-{major}/bin")
    objects = [
        compiled(_binary(abi.kind_code(kind), triple, arch, content))
        for kind, triple, arch in TARGETS
    ]
    wrapper = [prefix / "clang-linker-wrapper", "--dry-run", f"--host-triple={HOST}"]
    wrapper += ["--linker-path=/usr/bin/ld", "--cuda-path=/nowhere"]
    wrong = {}
    for line in _lines():
        named = [objects[number] for number in line]
        done = subprocess.run(
            [*map(str, (*wrapper, *named)), "-o", str(tmp_path / "out")],
            capture_output=True,
            text=True,
            check=False,
        )
        found = _linked_groups(done.stdout + done.stderr, has_host=major > 15)
        expected = _expected_groups([TARGETS[number] for number in line], major)
        if found != expected:
            wrong[tuple(TARGETS[number][1:] for number in line)] = (found, expected)
    assert wrong == {}


def _linked_groups(commands: str, *, has_host: bool) -> list[list[str]]:
    """Return the archs of the images of each device link in a dry run."""
    groups = []
    for command in commands.splitlines():
        archs = sorted(match[1] for match in _INPUT.finditer(command))
        if archs and " -o " in command and "bundler" not in command and "fatbinary" not in command:
            groups.append(archs)
    assert has_host or groups or not commands
    return sorted(groups)


def _expected_groups(targets: Sequence[tuple[Kind, str, str]], major: int) -> list[list[str]]:
    images = [
        PackagedImage(
            kind, ImageKind.OBJECT, 0, (("triple", triple), ("arch", arch)), memory_view(b"")
        )
        for kind, triple, arch in targets
    ]
    groups = group_images(images, load_abi(major).target_groups)
    return sorted(sorted(image.arch for image in members) for members in groups.values())
