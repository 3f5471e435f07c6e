"""`mlir-offload inspect` on files for Windows and macOS, as clang, lld and llvm-lipo make them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.hostile import assert_bounded, bit_flips, extreme_fields, survives, truncations
from support.inspect_subcommand import LLVM, ROOT, documents, inspect

from mlir_offload.offload.container.file_form import file_form
from mlir_offload.offload.foreign_object import (
    HostFile,
    read_coff,
    read_mach_o,
    read_pe,
    universal_slices,
)
from mlir_offload.toolchain.byte_view import memory_view

FATBIN = ROOT / "tests" / "golden" / "fatbin" / "lto_and_cubin.fatbin"
WINDOWS = "x86_64-pc-windows-msvc"

pytestmark = pytest.mark.llvm(22)


def run(*argv: str | Path) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def assembled(folder: Path, triple: str, section: str) -> Path:
    """Return an object with the fat binary in a section and a variable of its own."""
    source, made = folder / "host.s", folder / f"{triple}.o"
    source.write_text(f'.section {section}\n.incbin "{FATBIN}"\n.data\n.quad 1\n')
    run(LLVM / "clang", f"--target={triple}", "-c", source, "-o", made)
    return made


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("foreign")
    coff = assembled(folder, WINDOWS, '.nv_fatb,"dr"')
    dll, library, universal = folder / "k.dll", folder / "k.lib", folder / "k.dylib"
    run(LLVM / "lld-link", "/dll", "/noentry", coff, f"/out:{dll}")
    run(LLVM / "llvm-ar", "rc", library, coff)
    apple = assembled(folder, "arm64-apple-darwin", "__NV_CUDA,__nv_fatbin")
    mach = assembled(folder, "x86_64-apple-darwin", "__NV_CUDA,__nv_fatbin")
    run(LLVM / "llvm-lipo", "-create", mach, apple, "-output", universal)
    return {"coff": coff, "dll": dll, "lib": library, "mach-o": mach, "universal": universal}


@pytest.mark.parametrize(
    ("name", "copies"), [("coff", 1), ("dll", 1), ("lib", 1), ("mach-o", 1), ("universal", 2)]
)
def test_inspect_reports_fat_binaries_of_windows_and_macos(
    name: str, copies: int, files: dict[str, Path], mlir_offload: list[str]
) -> None:
    (found,) = documents(mlir_offload, files[name])
    (alone,) = documents(mlir_offload, FATBIN)
    expected = [image["sha256"] for image in alone["images"]]
    assert expected
    members = found["members"] or [found]
    assert [image["sha256"] for one in members for image in one["images"]] == expected * copies


def test_inspect_reads_what_clang_embeds_for_windows(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    packaged, made = tmp_path / "images", tmp_path / "host.obj"
    image = f"--image=file={FATBIN},triple=nvptx64-nvidia-cuda,arch=sm_80,kind=cuda"
    run(LLVM / "llvm-offload-binary", "-o", packaged, image)
    source = tmp_path / "host.c"
    source.write_text("int f(void) { return 1; }\n")
    embed = f"-fembed-offload-object={packaged}"
    run(LLVM / "clang", "-cc1", "-triple", WINDOWS, "-emit-obj", embed, source, "-o", made)
    (found,) = documents(mlir_offload, made)
    assert [(image["kind"], image["arch"]) for image in found["images"]] == [("cuda", "sm_80")]


READERS = {"coff": read_coff, "dll": read_pe, "mach-o": read_mach_o}


@pytest.mark.parametrize("name", READERS)
def test_section_headers_match_llvm_readobj(name: str, files: dict[str, Path]) -> None:
    read = READERS[name](memory_view(files[name].read_bytes()))
    printed = run(LLVM / "llvm-readobj", "--sections", files[name]).splitlines()
    # As in `Name: .text (2E 74 65 78 74 00 00 00)`.
    names = [line.split()[1] for line in printed if line.strip().startswith("Name: ")]
    assert [section.name for section in read.sections] == names


@pytest.mark.parametrize("name", [*READERS, "universal"])
def test_damaged_headers_are_errors(name: str, files: dict[str, Path]) -> None:
    data = files[name].read_bytes()[:2048]

    def read(content: bytes) -> object:
        view = memory_view(content)
        file_form(view)
        if name == "universal":
            return list(universal_slices(view))
        file: HostFile = READERS[name](view)
        return [view.part(one.offset, one.size, one.name) for one in file.sections]

    for variants in (truncations(data, 7), bit_flips(data, 16), extreme_fields(data, 512)):
        survives(read, variants)
    assert_bounded(read, data, 16)


@pytest.mark.parametrize(
    ("content", "reason", "hint"),
    [
        (b"\1\0\2", "its format is not known", "name an object, library, program"),
        (b"\xedCN\x7f\0\1", "NVIDIA does not document the format", "compile it without -dlto"),
    ],
    ids=["unknown", "lto-ir"],
)
def test_inspect_does_not_claim_that_unreadable_files_lack_device_code(
    content: bytes, reason: str, hint: str, mlir_offload: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    said = inspect(mlir_offload, path)
    assert said.status == 6
    assert f"not inspected: {reason}" in said.out
    assert f"hint: {hint}" in said.out
    assert "no device code" not in said.out
