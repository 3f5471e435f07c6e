"""`mlir-offload inspect` on files that real tools made: the tree, the JSON, what is said to be wrong."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import jsonschema
import pytest
from support.cuda_tools import assemble, cuda_tool
from support.hostile import bit_flips, spliced, survives, truncations
from support.inspect_subcommand import LLVM, SCHEMA, documents, inspect

from mlir_offload.offload.file.contents_reader import read_contents_of
from mlir_offload.toolchain.byte_view import memory_view

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
CUDA_TRIPLE = "nvptx64-nvidia-cuda"
PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry saxpy(.param .u64 data, .param .f32 scale)
.maxntid 256
{ .shared .align 4 .b8 tile[1024]; .reg .f32 %f; .reg .b64 %d;
  ld.param.f32 %f, [scale]; ld.param.u64 %d, [data]; st.global.f32 [%d], %f; st.shared.f32 [tile], %f; ret; }
"""
STORED = (
    "object",
    "archive",
    "program",
    "bitcode",
    "text",
    "mlir",
    "packaged",
    "cubin",
    "fatbin",
    "ptx",
)

pytestmark = pytest.mark.llvm(22)


@pytest.fixture(scope="module")
def files(mlir_offload: list[str], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Return a file of each sort, named without an ending that would tell what it is."""
    place = tmp_path_factory.mktemp("files")
    paths = {name: place / name for name in STORED}

    def compiled(name: str, *options: str) -> None:
        output = ("-o", str(paths[name]))
        source = str(EXAMPLES / "matmul.mlir")
        subprocess.run([*mlir_offload, "--llvm=22", *options, source, *output], check=True)

    both = "--offload-arch=sm_80,sm_90"
    compiled("object", "-c", both)
    compiled("program", "--offload-arch=sm_80,sm_90,host")
    compiled("bitcode", "-c", "-emit-llvm", "--offload-arch=sm_90")
    compiled("text", "-S", "-emit-llvm", "--offload-arch=sm_90")
    subprocess.run([LLVM / "llvm-ar", "rcs", paths["archive"], paths["object"]], check=True)
    paths["mlir"].write_bytes((EXAMPLES / "matmul.mlir").read_bytes())
    assemble(PTX, paths["cubin"], "-arch=sm_80", "-c")
    paths["ptx"].write_text(PTX)
    (place / "cubin.bc").write_bytes(paths["cubin"].read_bytes())
    image = f"--image=file={paths['cubin']},triple={CUDA_TRIPLE},arch=sm_80,kind=cuda"
    subprocess.run([LLVM / "llvm-offload-binary", "-o", paths["packaged"], image], check=True)
    fatbinary = Path(cuda_tool("ptxas")).with_name("fatbinary")
    images = [
        f"--image3=kind=elf,sm=80,file={paths['cubin']}",
        f"--image3=kind=ptx,sm=80,file={paths['ptx']}",
    ]
    subprocess.run([fatbinary, "-64", f"--create={paths['fatbin']}", *images], check=True)
    return paths


@pytest.mark.parametrize("name", STORED)
def test_the_document_of_every_sort_of_file_is_as_the_schema_says(
    name: str, files: Mapping[str, Path], mlir_offload: list[str]
) -> None:
    (said,) = documents(mlir_offload, files[name])
    found = said["images"] + said["modules"] + said["members"]
    assert found, f"nothing was found in {said['format']}"


def test_the_schema_is_strict_and_is_what_is_printed(mlir_offload: list[str]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(inspect(mlir_offload, "--print-schema").out) == SCHEMA

    def check(value: object) -> None:
        if isinstance(value, dict):
            if "properties" in value:
                assert value["additionalProperties"] is False
                assert set(value["required"]) == set(value["properties"])
            for inner in value.values():
                check(inner)

    check(SCHEMA)


def test_a_kernel_is_one_line_with_its_layout_and_needs(
    files: Mapping[str, Path], mlir_offload: list[str]
) -> None:
    said = inspect(mlir_offload, files["cubin"])
    (line,) = [line for line in said.out.splitlines() if "kernel saxpy" in line]
    assert "kernel saxpy(@0:8, @8:4)  ≤256 threads  " in line
    assert " registers  1.0 KiB shared" in line
    text = inspect(mlir_offload, files["ptx"]).out
    assert (
        "kernel saxpy(u64 data @0:8, f32 scale @8:4)  ≤256 threads  1.0 KiB shared"
        in text.replace(".u64", "u64").replace(".f32", "f32")
    )


def test_an_object_shows_images_kernels_and_entries(
    files: Mapping[str, Path], mlir_offload: list[str]
) -> None:
    (said,) = documents(mlir_offload, files["object"])
    assert said["format"] == "ELF relocatable object, x86-64"
    assert [image["arch"] for image in said["images"]] == ["sm_80", "sm_90"]
    image = said["images"][0]
    assert (image["kind"], image["image_kind"], image["format"]) == (
        "cuda",
        "bitcode",
        "LLVM bitcode",
    )
    assert image["llvm_major"] == 22
    (kernel,) = image["kernels"]
    assert kernel["name"] == "matmul"
    assert [parameter["type"] for parameter in kernel["parameters"]][:2] == ["ptr", "ptr"]
    (entry,) = said["entries"]
    assert (entry["kind"], entry["name"], entry["what"]) == ("cuda", "matmul", "kernel")
    layout = entry["layout"]
    assert (layout["first_llvm_release"], layout["section"]) == (21, "llvm_offload_entries")
    assert said["problems"] == []
    data = files["object"].read_bytes()
    start, size = image["offset"], image["size_bytes"]
    assert data[start : start + 4] == b"BC\xc0\xde"
    assert image["sha256"] == hashlib.sha256(data[start : start + size]).hexdigest()


def test_the_text_and_the_bitcode_of_a_host_say_the_same_as_its_object(
    files: Mapping[str, Path], mlir_offload: list[str]
) -> None:
    text, bitcode = documents(mlir_offload, files["text"], files["bitcode"])
    for said in (text, bitcode):
        assert [(image["kind"], image["arch"]) for image in said["images"]] == [("cuda", "sm_90")]
        assert [kernel["name"] for kernel in said["images"][0]["kernels"]] == ["matmul"]
        assert [entry["name"] for entry in said["entries"]] == ["matmul"]
    assert text["images"][0]["sha256"] == bitcode["images"][0]["sha256"]


def test_a_program_shows_what_the_link_made_and_who_made_it(
    files: Mapping[str, Path], mlir_offload: list[str]
) -> None:
    (said,) = documents(mlir_offload, files["program"])
    targets = {(image["kind"], image["arch"]) for image in said["images"]}
    assert targets == {("openmp", ""), ("cuda", "sm_80"), ("cuda", "sm_90")}
    assert any("clang version 22" in producer for producer in said["producers"])
    assert {"openmp", "cuda"} == {entry["kind"] for entry in said["entries"]}
    assert inspect(mlir_offload, files["program"]).status == 0


def test_mlir_shows_kernels_with_types_and_symbols(
    files: Mapping[str, Path], mlir_offload: list[str]
) -> None:
    two = EXAMPLES / "two_modules.mlir"
    matmul, modules = documents(mlir_offload, files["mlir"], two)
    (kernel,) = matmul["modules"][0]["kernels"]
    assert kernel["name"] == kernel["symbol"] == "matmul"
    assert kernel["parameter_types"] == ["memref<?x?xf32>"] * 3 + ["index"]
    assert kernel["known_block_size"] == [16, 16, 1]
    symbols = [k["symbol"] for module in modules["modules"] for k in module["kernels"]]
    assert len(set(symbols)) == len(symbols) == 2
    assert all(symbol.endswith("apply") for symbol in symbols)


def test_the_symbols_of_mlir_are_those_that_the_compiler_gives(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    made = tmp_path / "two.o"
    source = EXAMPLES / "two_modules.mlir"
    subprocess.run([*mlir_offload, "-c", "--offload-arch=sm_90", source, "-o", made], check=True)
    program, compiled = documents(mlir_offload, source, made)
    expected = {k["symbol"] for module in program["modules"] for k in module["kernels"]}
    assert {entry["name"] for entry in compiled["entries"]} == expected


def test_targets_attributes_are_shown(mlir_offload: list[str], tmp_path: Path) -> None:
    source = tmp_path / "t.mlir"
    source.write_text(
        'gpu.module @m [#nvvm.target<chip = "sm_90">, #nvvm.target<chip = "sm_80">] {\n'
        "  gpu.func @k(%a: memref<4xf32>) kernel { gpu.return }\n}\n"
    )
    (said,) = documents(mlir_offload, source)
    assert [target.count("sm_") for target in said["modules"][0]["targets"]] == [1, 1]


def test_every_file_is_shown_though_one_cannot_be_read(
    files: Mapping[str, Path], mlir_offload: list[str], tmp_path: Path
) -> None:
    said = inspect(mlir_offload, tmp_path / "missing", tmp_path, files["cubin"])
    assert said.status == 7
    assert said.err.count("error: cannot read") == 2
    assert "kernel saxpy" in said.out


def test_an_executable_cubin_that_is_packaged_is_told_to_be_lost(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    cubin, packaged = tmp_path / "k.cubin", tmp_path / "k.offload"
    assemble(PTX, cubin, "-arch=sm_80")
    image = f"--image=file={cubin},triple={CUDA_TRIPLE},arch=sm_80,kind=cuda"
    subprocess.run([LLVM / "llvm-offload-binary", "-o", packaged, image], check=True)
    said = inspect(mlir_offload, packaged)
    assert said.status == 6
    assert "problem: image 0 is an executable cubin" in said.out
    assert "hint: package LLVM bitcode" in said.out


def test_one_damaged_image_of_an_object_leaves_the_others(
    files: Mapping[str, Path], mlir_offload: list[str], tmp_path: Path
) -> None:
    data = bytearray(files["object"].read_bytes())
    first = data.find(b"\x10\xff\x10\xad")
    data[first + 4] = 77
    path = tmp_path / "damaged"
    path.write_bytes(data)
    said = inspect(mlir_offload, path)
    assert said.status == 6
    assert f"version at offset {first + 4}" in said.out
    assert "cuda nvptx64-nvidia-cuda sm_90" in said.out
    assert "entry cuda kernel matmul" in said.out


def test_no_control_character_of_a_name_reaches_the_terminal(
    files: Mapping[str, Path], mlir_offload: list[str], tmp_path: Path
) -> None:
    hostile = files["packaged"].read_bytes().replace(b"saxpy", b"\x1b[2J\x07")
    path = tmp_path / "hostile"
    path.write_bytes(hostile)
    for arguments in ((path,), ("--json", path)):
        said = inspect(mlir_offload, *arguments)
        assert "\x1b" not in said.out
        assert "\x07" not in said.out
    assert "kernel \\x1b[2J\\x07(" in inspect(mlir_offload, path).out


def test_a_pipe_gets_neither_colours_nor_folded_lines(
    files: Mapping[str, Path], mlir_offload: list[str]
) -> None:
    said = inspect(mlir_offload, files["object"], COLUMNS="20", FORCE_COLOR="1")
    assert "\x1b" not in said.out
    assert max(map(len, said.out.splitlines())) > 80


def test_a_terminal_gets_colours_unless_no_color_says_otherwise(
    files: Mapping[str, Path], mlir_offload: list[str]
) -> None:
    command = " ".join([*mlir_offload, "inspect", str(files["cubin"])])

    def on_terminal(**environment: str) -> str:
        return subprocess.run(
            ["script", "-qec", command, "/dev/null"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "TERM": "xterm-256color", **environment},
        ).stdout

    assert "\x1b[" in on_terminal()
    assert "\x1b[3" not in on_terminal(NO_COLOR="1")


def test_an_encoding_without_the_letters_is_no_obstacle(
    files: Mapping[str, Path], mlir_offload: list[str]
) -> None:
    said = inspect(mlir_offload, files["cubin"], PYTHONIOENCODING="ascii")
    assert said.status == 0
    assert "\\u2264256 threads" in said.out


def test_the_same_file_gives_the_same_bytes(
    files: Mapping[str, Path], mlir_offload: list[str]
) -> None:
    names = [files[name] for name in STORED]
    for option in ((), ("--json",)):
        first, second = (inspect(mlir_offload, *option, *names).out for _ in range(2))
        assert first == second


def test_the_name_of_a_file_tells_nothing(
    files: Mapping[str, Path], mlir_offload: list[str]
) -> None:
    said = inspect(mlir_offload, files["cubin"].with_name("cubin.bc"))
    assert ": cubin, " in said.out


@pytest.mark.llvm(22)
def test_the_hash_of_code_tells_which_kernel_changed(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    hashes = []
    for number in (1, 2):
        source = tmp_path / "k.c"
        kernels = (
            f"kernel void {k}(global int *p) {{ *p = {v}; }}" for k, v in (("a", 7), ("b", number))
        )
        source.write_text("\n".join(kernels), encoding="utf-8")
        clang = [str(LLVM / "clang"), "-x", "cl", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx90a"]
        output = ["-nogpulib", "-c", "k.c", "-o", "k.o"]
        subprocess.run([*clang, *output], cwd=tmp_path, check=True)
        said = inspect(mlir_offload, "--json", "--code-hashes", tmp_path / "k.o")
        (file,) = json.loads(said.out)["files"]
        (image,) = file["images"]
        hashes.append({kernel["name"]: kernel["code_sha256"] for kernel in image["kernels"]})
    assert hashes[0]["a"] == hashes[1]["a"] != ""
    assert hashes[0]["b"] != hashes[1]["b"]


def test_wrong_options_are_errors_of_the_command_line(mlir_offload: list[str]) -> None:
    assert inspect(mlir_offload).status == 2
    assert inspect(mlir_offload, "--bogus", "x").status == 2


def test_no_damage_to_an_object_makes_it_fail(files: Mapping[str, Path]) -> None:
    data = files["object"].read_bytes()

    def read(variant: bytes) -> None:
        read_contents_of(memory_view(variant, location="file"), "file", with_hashes=True)

    variants = chain(truncations(data, 397), bit_flips(data, 701), spliced(data, 50))
    assert survives(read, variants) == 0
