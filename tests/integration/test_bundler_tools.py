"""Bundles in both directions against clang-offload-bundler and the linker wrapper of each release."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from mlir_offload.offload.container.bundle import (
    FAT_BINARY_ALIGN,
    BundledImage,
    read_bundles,
    section_image,
    serialize_bundle,
)
from mlir_offload.offload.container.bundle_writer import (
    compressed_version,
    fat_binary_images,
    serialize_compressed_bundle,
)
from mlir_offload.offload.elf import read_elf
from mlir_offload.toolchain.byte_view import memory_view, open_view
from mlir_offload.toolchain.process import Command, Environment, ProcessRunner, run_checked

MAJORS = (15, 16, 19, 22)
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in MAJORS]
COMPRESSING = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
# Target ids that every release writes as they are given; 19 would repeat a host id that ends in `-`.
DEVICES = (
    "hip-amdgcn-amd-amdhsa--gfx906",
    "hip-amdgcn-amd-amdhsa--gfx90a:xnack+",
    "hip-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-",
    "hipv4-amdgcn-amd-amdhsa--gfx1030",
    "openmp-amdgcn-amd-amdhsa--gfx906",
)
HOST = "host-x86_64-unknown-linux-gnu"


def written_host(major: int) -> str:
    return HOST if major < 19 else f"{HOST}-"


def bundler(major: int, *arguments: str, environment: Environment = ()) -> str:
    program = f"/usr/lib/llvm-{major}/bin/clang-offload-bundler"
    return run_checked(ProcessRunner(), Command((program, *arguments), environment)).stdout


def bundle_with_tool(
    major: int,
    directory: Path,
    parts: Iterable[tuple[str, bytes]],
    *options: str,
    file_type: str = "o",
    environment: Environment = (),
) -> Path:
    parts = list(parts)
    inputs = []
    for number, (_, data) in enumerate(parts):
        path = directory / f"input{number}"
        path.write_bytes(data)
        inputs.append(f"-input={path}")
    output = directory / f"tool.{file_type}"
    targets = ",".join(name for name, _ in parts)
    arguments = (f"-type={file_type}", f"-targets={targets}", *inputs, f"-output={output}")
    bundler(major, *arguments, *options, environment=environment)
    return output


def some_parts(seed: int, host: bytes = b"") -> list[tuple[str, bytes]]:
    source = random.Random(seed)  # noqa: S311 (not for secrets)
    devices = source.sample(DEVICES, source.randint(1, len(DEVICES)))
    return [(HOST, host), *((name, source.randbytes(source.randint(0, 9000))) for name in devices)]


def images(parts: Iterable[tuple[str, bytes]]) -> tuple[BundledImage, ...]:
    return tuple(BundledImage(name, memory_view(data)) for name, data in parts)


def contents(path: Path) -> list[tuple[str, bytes]]:
    with open_view(path) as view:
        (bundle,) = read_bundles(view)
        return [(item.target_id, item.content.whole()) for item in bundle.images]


def unbundle(major: int, path: Path, names: Iterable[str], directory: Path) -> list[bytes]:
    outputs = {name: directory / f"output{number}" for number, name in enumerate(names)}
    arguments = [f"-output={output}" for output in outputs.values()]
    targets = ",".join(outputs)
    bundler(major, "-unbundle", "-type=o", f"-input={path}", f"-targets={targets}", *arguments)
    return [output.read_bytes() for output in outputs.values()]


@pytest.mark.parametrize("major", RELEASES)
@pytest.mark.parametrize(
    ("file_type", "align"), [("bc", 1), ("o", 1), ("o", 4096), ("gch", 16), ("ast", 1000)]
)
def test_the_bundler_writes_the_same_bytes(
    major: int, file_type: str, align: int, tmp_path: Path
) -> None:
    for seed in range(3):
        parts = some_parts(seed, host=b"host" * (seed % 2))
        option = f"-bundle-align={align}"
        theirs = bundle_with_tool(major, tmp_path, parts, option, file_type=file_type)
        named = [(written_host(major), parts[0][1]), *parts[1:]]
        ours = b"".join(serialize_bundle(images(named), align=align))
        assert ours == theirs.read_bytes()
        assert contents(theirs) == named


@pytest.mark.parametrize("major", RELEASES)
def test_the_bundler_takes_our_bundles_apart(major: int, tmp_path: Path) -> None:
    parts = [(written_host(major), b"host"), *some_parts(7)[1:]]
    path = tmp_path / "ours.o"
    path.write_bytes(b"".join(serialize_bundle(images(parts), align=64)))
    listed = bundler(major, "-list", "-type=o", f"-input={path}").split()
    assert sorted(listed) == sorted(name for name, _ in parts)
    names = [HOST, *(name for name, _ in parts[1:])]
    assert unbundle(major, path, names, tmp_path) == [data for _, data in parts]


@pytest.mark.parametrize("major", COMPRESSING)
@pytest.mark.parametrize("method", ["zlib", "zstd"])
def test_the_bundler_takes_our_compressed_bundles_apart(
    major: int, method: str, tmp_path: Path
) -> None:
    parts = [(written_host(major), b""), *some_parts(3)[1:]]
    for written_for in sorted({18, 19, major}):
        path = tmp_path / f"ours{written_for}.o"
        path.write_bytes(
            b"".join(serialize_compressed_bundle(images(parts), major=written_for, method=method))
        )
        listed = bundler(major, "-list", "-type=o", f"-input={path}").split()
        assert sorted(listed) == sorted(name for name, _ in parts)
        names = [name for name, _ in parts[1:]]
        assert unbundle(major, path, names, tmp_path) == [data for _, data in parts[1:]]


@pytest.mark.parametrize("major", COMPRESSING)
@pytest.mark.parametrize("options", [(), ("-compression-level=19",)])
def test_compressed_bundles_of_the_bundler_are_read(
    major: int, options: tuple[str, ...], tmp_path: Path
) -> None:
    parts = some_parts(5)
    path = bundle_with_tool(
        major, tmp_path, parts, "-compress", f"-bundle-align={FAT_BINARY_ALIGN}", *options
    )
    assert contents(path) == [(written_host(major), b""), *parts[1:]]
    with open_view(path) as view:
        (bundle,) = read_bundles(view)
        assert (bundle.version, bundle.compression) == (compressed_version(major), "zstd")
        assert bundle.size_bytes == view.size


@pytest.mark.parametrize("major", COMPRESSING)
def test_sizes_and_hash_of_a_compressed_bundle_are_those_of_the_bundler(
    major: int, tmp_path: Path
) -> None:
    # What zstd makes of bytes that do not shrink hardly depends on its release.
    parts = some_parts(11)
    theirs = bundle_with_tool(major, tmp_path, parts, "-compress").read_bytes()
    named = [(written_host(major), b""), *parts[1:]]
    ours = b"".join(serialize_compressed_bundle(images(named), major=major))
    # Magic, version and method; then, after the total size, the inflated size and the hash.
    after = 12 if major < 22 else 16
    header = after + (12 if major < 22 else 16)
    assert ours[:8] == theirs[:8]
    assert ours[after:header] == theirs[after:header]
    assert len(ours) <= len(theirs) * 1.01


@pytest.mark.llvm(22)
def test_an_older_form_that_the_bundler_is_asked_for_is_read(tmp_path: Path) -> None:
    parts = some_parts(2)
    older = (("COMPRESSED_BUNDLE_FORMAT_VERSION", "2"),)
    path = bundle_with_tool(22, tmp_path, parts, "-compress", environment=older)
    assert contents(path) == [(written_host(22), b""), *parts[1:]]


@pytest.mark.parametrize("major", RELEASES)
@pytest.mark.parametrize("file_type", ["ll", "s", "i", "cui", "d"])
def test_text_bundles_are_read(major: int, file_type: str, tmp_path: Path) -> None:
    parts = [(HOST, b"; host\n"), (DEVICES[0], b"no line end"), (DEVICES[1], b"")]
    path = bundle_with_tool(major, tmp_path, parts, file_type=file_type)
    assert contents(path) == [(written_host(major), parts[0][1]), *parts[1:]]


@pytest.mark.parametrize("major", RELEASES)
def test_images_in_the_sections_of_an_object_are_read(major: int, tmp_path: Path) -> None:
    source, host = tmp_path / "host.c", tmp_path / "host.o"
    source.write_text("int answer(void) { return 42; }\n", encoding="utf-8")
    clang = f"/usr/lib/llvm-{major}/bin/clang"
    run_checked(ProcessRunner(), Command((clang, "-c", str(source), "-o", str(host))))
    parts = [(HOST, host.read_bytes()), (DEVICES[1], b"device code")]
    path = bundle_with_tool(major, tmp_path, parts)
    with open_view(path) as view:
        elf = read_elf(view)
        found = [section_image(section.name, elf.content(section)) for section in elf.sections]
        read = [(item.target_id, item.content.whole()) for item in found if item is not None]
    assert read == [(written_host(major), b"\0"), parts[1]]


@pytest.mark.parametrize("major", RELEASES)
def test_fat_binaries_are_those_of_the_linker_wrapper(major: int, tmp_path: Path) -> None:
    command = wrapper_bundler_command(major, tmp_path)
    targets = re.search(r"-targets=(\S+)", command)
    assert targets is not None
    (align,) = re.findall(r"-bundle-align=(\d+)", command)
    parts = [(name, b"") for name in targets[1].split(",")]
    parts[1] = (parts[1][0], b"code object")
    theirs = bundle_with_tool(major, tmp_path, parts, f"-bundle-align={align}")
    ours = fat_binary_images([("gfx906", memory_view(b"code object"))], major=major)
    assert b"".join(serialize_bundle(ours, align=FAT_BINARY_ALIGN)) == theirs.read_bytes()


def wrapper_bundler_command(major: int, directory: Path) -> str:
    """Return how the linker wrapper of a release would call the bundler for one HIP image."""
    tools = Path(f"/usr/lib/llvm-{major}/bin")
    device, packed, host = (directory / name for name in ("device.o", "device.out", "host.o"))
    (directory / "device.ll").write_text("define void @f() {\n ret void\n}\n", encoding="utf-8")
    (directory / "host.c").write_text("int main(void) { return 0; }\n", encoding="utf-8")
    amd = ("--target=amdgcn-amd-amdhsa", "-mcpu=gfx906", "-nogpulib", "-Wno-override-module")
    image = f"--image=file={device},triple=amdgcn-amd-amdhsa,arch=gfx906,kind=hip"
    embed = ("-Xclang", f"-fembed-offload-object={packed}")
    separator = ("--",) if major < 19 else ()
    wrapper = ("--host-triple=x86_64-unknown-linux-gnu", "--linker-path=/usr/bin/ld", "--dry-run")
    path = (("PATH", f"{tools}:{os.environ['PATH']}"),)
    for argv in (
        ("clang", *amd, "-c", f"{directory / 'device.ll'}", "-o", f"{device}"),
        ("clang-offload-packager", "-o", f"{packed}", image),
        ("clang", *embed, "-c", f"{directory / 'host.c'}", "-o", f"{host}"),
    ):
        run_checked(ProcessRunner(), Command((f"{tools / argv[0]}", *argv[1:])))
    argv = (f"{tools / 'clang-linker-wrapper'}", *wrapper, *separator, f"{host}", "-o", "a.out")
    done = run_checked(ProcessRunner(), Command(argv, path))
    lines = (done.stdout + done.stderr).splitlines()
    return next(line for line in lines if "clang-offload-bundler" in line)
