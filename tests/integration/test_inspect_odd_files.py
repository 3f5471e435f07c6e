"""`mlir-offload inspect` on odd files: nothing in them, nested containers, damage deep inside."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from support.inspect_subcommand import LLVM, ROOT, documents, inspect

EXAMPLES = ROOT / "docs" / "examples"
FATBIN = ROOT / "tests" / "golden" / "fatbin" / "lto_and_cubin.fatbin"

pytestmark = pytest.mark.llvm(22)


@pytest.mark.parametrize(("content", "form"), [(b"", "empty file"), (b"hello\n", "text")])
def test_what_holds_no_device_code_is_said_and_no_error(
    content: bytes, form: str, mlir_offload: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    said = inspect(mlir_offload, path)
    assert (said.status, said.err) == (0, "")
    assert said.out.startswith(f"{path}: {form}, ")
    assert said.out.endswith("contains no device code\n")


def test_text_has_the_hashes_of_images_only_if_they_are_asked_for(
    mlir_offload: list[str],
) -> None:
    assert "sha256" not in inspect(mlir_offload, FATBIN).out
    said = inspect(mlir_offload, "--code-hashes", FATBIN)
    # What is stored scrambled has none.
    (digest,) = (image["sha256"] for image in documents(mlir_offload, FATBIN)[0]["images"][1:])
    assert f"sha256 {digest}\n" in said.out


def test_a_32_bit_object_is_said_to_be_out_of_reach(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "f.c"
    source.write_text("int f(void) { return 1; }\n")
    made = tmp_path / "f.o"
    subprocess.run([LLVM / "clang", "-m32", "-c", source, "-o", made], check=True)
    said = inspect(mlir_offload, made)
    assert said.status == 6
    assert "not inspected: only 64-bit little-endian ELF files" in said.out


def test_mlir_without_llvm_is_a_clear_error(mlir_offload: list[str], tmp_path: Path) -> None:
    said = inspect(mlir_offload, "--llvm", tmp_path, EXAMPLES / "saxpy.mlir")
    assert said.status == 3
    assert "error: " in said.err


def host_object(folder: Path, *sections: tuple[str, Path]) -> Path:
    """Return an object whose sections hold the files."""
    source, made = folder / "host.s", folder / "host.o"
    lines = (f'.section {name},"a"\n.p2align 12\n.incbin "{path}"\n' for name, path in sections)
    source.write_text("".join(lines))
    subprocess.run([LLVM / "clang", "-c", source, "-o", made], check=True)
    return made


@pytest.fixture
def hip_bundle(tmp_path: Path) -> Path:
    """Return a compressed bundle of a code object for two GPUs, as hipcc would embed it."""
    source = tmp_path / "k.ll"
    source.write_text("define amdgpu_kernel void @scale(ptr addrspace(1) %data) { ret void }\n")
    images: list[Path] = []
    for gpu in ("gfx906", "gfx90a"):
        images.append(tmp_path / f"{gpu}.hsaco")
        target = ("--target=amdgcn-amd-amdhsa", f"-mcpu={gpu}", "-nogpulib", "-x", "ir")
        files = (str(source), "-o", str(images[-1]))
        subprocess.run([str(LLVM / "clang"), *target, *files], check=True, capture_output=True)
    empty, bundle = tmp_path / "host", tmp_path / "bundle"
    empty.touch()
    ids = (
        "host-x86_64-unknown-linux-gnu-,hip-amdgcn-amd-amdhsa--gfx906,hip-amdgcn-amd-amdhsa--gfx90a"
    )
    inputs = [f"-input={path}" for path in (empty, *images)]
    options = ["-type=o", "-compress", f"-targets={ids}", *inputs, f"-output={bundle}"]
    subprocess.run([LLVM / "clang-offload-bundler", *options], check=True)
    return bundle


def test_a_bundle_in_a_host_object_shows_its_code_objects(
    hip_bundle: Path, mlir_offload: list[str], tmp_path: Path
) -> None:
    (said,) = documents(mlir_offload, host_object(tmp_path, (".hip_fatbin", hip_bundle)))
    assert [(image["kind"], image["arch"]) for image in said["images"]] == [
        ("hip", "gfx906"),
        ("hip", "gfx90a"),
    ]
    first = said["images"][0]
    assert (first["container"]["compression"], first["offset"]) == ("zstd", None)
    assert first["sha256"] == hashlib.sha256((tmp_path / "gfx906.hsaco").read_bytes()).hexdigest()
    assert [kernel["name"] for kernel in first["kernels"]] == ["scale"]
    assert first["kernels"][0]["parameters"][0]["size_bytes"] == 8
    assert said["problems"] == []


def test_damage_deep_inside_is_named_and_hides_nothing_else(
    hip_bundle: Path, mlir_offload: list[str], tmp_path: Path
) -> None:
    data = bytearray(hip_bundle.read_bytes())
    data[40] ^= 0xFF
    damaged = tmp_path / "damaged"
    damaged.write_bytes(data)
    made = host_object(tmp_path, (".hip_fatbin", damaged), (".nv_fatbin", FATBIN))
    said = inspect(mlir_offload, made)
    assert said.status == 6
    assert "problem: malformed offload bundle: compressed images at offset " in said.out
    assert ": cubin, " in said.out
