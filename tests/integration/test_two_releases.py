"""One release of LLVM lowers, an older one compiles, links and runs: the real tools of both."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support.ptx_shape import ptx_of, shape

from mlir_offload.offload.link.coverage import held_kernels
from mlir_offload.offload.link.objects import read_objects
from mlir_offload.translate.downgrade.text import downgrade

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
PAIRS = [
    pytest.param(
        lowers,
        links,
        marks=[pytest.mark.llvm(lowers), pytest.mark.llvm(links)],
        id=f"{lowers}-{links}",
    )
    for lowers, links in ((22, 19), (22, 16), (19, 16))
]
# No 17 is installed for the tests.
ABSENT = 17
ATOMIC = """\
gpu.module @m {
  llvm.func @k(%p: !llvm.ptr, %x: f32) attributes {gpu.kernel, nvvm.kernel} {
    %r = llvm.atomicrmw fmaximum %p, %x seq_cst : !llvm.ptr, f32
    llvm.return
  }
}
"""


def compiled(command: list[str], *arguments: str | Path) -> str:
    """Run the compiler; return what it said."""
    argv = [*command, *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("example", ["saxpy", "lowered"])
@pytest.mark.parametrize(("lowers", "links"), PAIRS)
def test_an_example_runs_on_the_cpu_and_finds_its_result_right(
    mlir_offload: list[str], example: str, lowers: int, links: int
) -> None:
    source = EXAMPLES / f"{example}.mlir"
    pair = (f"--llvm={lowers}", f"--for-clang={links}")
    assert "ok" in compiled([*mlir_offload, "run"], "--offload-arch=host", *pair, source)


@pytest.mark.parametrize(("lowers", "links"), PAIRS)
def test_bitcode_is_linked_by_the_older_wrapper_with_every_kernel(
    mlir_offload: list[str], tmp_path: Path, lowers: int, links: int
) -> None:
    program, made = tmp_path / "program", tmp_path / "matmul.o"
    pair = (f"--llvm={lowers}", f"--for-clang={links}", "--offload-arch=sm_80")
    said = compiled(
        mlir_offload, *pair, "-c", "--device-code=bitcode", EXAMPLES / "matmul.mlir", "-o", made
    )
    assert said == ""
    compiled(mlir_offload, *pair, made, "-o", program)
    wanted = {entry.name for item in read_objects(made) for entry in item.entries}
    assert wanted
    held = {image.kernel for item in read_objects(program) for image in held_kernels(item)}
    assert held >= wanted


@pytest.mark.llvm(22)
@pytest.mark.llvm(19)
def test_what_has_no_older_form_crosses_as_a_linked_device_image(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source, made = tmp_path / "k.mlir", tmp_path / "k.o"
    source.write_text(f"module attributes {{gpu.container_module}} {{\n{ATOMIC}}}\n")
    pair = ("--llvm=22", "--for-clang=19", "--offload-arch=sm_90", "-c", source, "-o", made)
    said = compiled(mlir_offload, *pair)
    assert "'atomicrmw fmaximum' in @k has no form that LLVM 19 reads" in said
    assert "a linked device image instead" in said
    (contents,) = read_objects(made)
    assert contents.images[0].content.head(4) == b"\x7fELF"
    refused = subprocess.run(
        [*mlir_offload, *map(str, pair), "--device-code=bitcode"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 4
    assert "--device-code=object" in refused.stderr


@pytest.mark.llvm(22)
@pytest.mark.llvm(16)
def test_assembly_that_wants_a_newer_ptx_crosses_as_a_linked_device_image(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source, made = (
        ROOT / "tests" / "integration" / "inputs" / "tma_descriptor.mlir",
        tmp_path / "k.o",
    )
    pair = ("--llvm=22", "--for-clang=16", "--offload-arch=sm_90")
    said = compiled(mlir_offload, *pair, "-c", source, "-o", made)
    assert "requires PTX ISA .version 8.0 or later" in said
    assert "a linked device image instead" in said
    compiled(mlir_offload, *pair, made, "-shared", "-o", tmp_path / "k.so")


@pytest.mark.llvm(22)
def test_an_object_is_made_for_a_release_that_is_not_installed(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    made = tmp_path / "saxpy.o"
    pair = ("--llvm=22", f"--for-clang={ABSENT}", "--offload-arch=sm_80")
    said = compiled(mlir_offload, *pair, "-c", EXAMPLES / "saxpy.mlir", "-o", made)
    assert f"LLVM {ABSENT} is not installed: LLVM 22 compiles for it" in said
    (contents,) = read_objects(made)
    assert {entry.fields for entry in contents.entries} == {5}
    assert contents.images[0].content.head(4) == b"\x7fELF"


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["-c", "--device-code=bitcode"], "device bitcode"),
        (["-c", "-emit-llvm"], "bitcode"),
        ([], ""),
    ],
    ids=["device bitcode", "bitcode", "link"],
)
def test_what_only_its_own_clang_makes_is_refused_without_it(
    mlir_offload: list[str], tmp_path: Path, arguments: list[str], what: str
) -> None:
    argv = [*mlir_offload, "--llvm=22", f"--for-clang={ABSENT}", "--offload-arch=sm_80", *arguments]
    done = subprocess.run(
        [*argv, EXAMPLES / "saxpy.mlir", "-o", tmp_path / "made"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert f"LLVM {ABSENT} is not installed" in done.stderr
    assert what in done.stderr
    assert "apt install" in done.stderr


@pytest.mark.llvm(22)
@pytest.mark.llvm(16)
def test_a_cache_a_manifest_and_a_path_know_both_releases(
    mlir_offload: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "cache"))
    made, plain, manifest = (tmp_path / name for name in ("a.o", "b.o", "manifest.json"))
    pair = ("--llvm=22", "--offload-arch=sm_80", "-c", EXAMPLES / "saxpy.mlir")
    compiled(mlir_offload, *pair, "--for-clang=/usr/lib/llvm-16", "--no-cache", "-o", plain)
    compiled(mlir_offload, *pair, "--for-clang=16", "--cache", f"--manifest={manifest}", "-o", made)
    assert made.read_bytes() == plain.read_bytes()
    predicate = json.loads(manifest.read_text())["predicate"]
    parameters = predicate["buildDefinition"]["internalParameters"]
    assert parameters["llvmThatLinks"] == "16"
    assert parameters["llvmThatLowers"].startswith("22.")
    tools = {
        (item["name"], item["annotations"]["version"].split(".")[0])
        for item in predicate["buildDefinition"]["resolvedDependencies"]
        if item["annotations"]["role"] == "tool"
    }
    assert {("mlir-opt", "22"), ("clang", "16")} <= tools


@pytest.mark.llvm(22)
@pytest.mark.llvm(16)
def test_the_toolchain_id_names_both(mlir_offload: list[str]) -> None:
    ids = {
        compiled([*mlir_offload, "--toolchain-id", "--llvm=22"], *more)
        for more in ([], ["--for-clang=16"], ["--for-clang=22"])
    }
    assert len(ids) == 2


@pytest.mark.llvm(22)
@pytest.mark.parametrize("source", ["histogram.mlir", "stencil.mlir"])
def test_the_older_form_makes_the_same_ptx(
    mlir_offload: list[str], tmp_path: Path, source: str
) -> None:
    pair = ("--llvm=22", "--offload-arch=host", "-c", f"-save-temps={tmp_path}")
    compiled(mlir_offload, *pair, EXAMPLES / source, "-o", tmp_path / "made.o")
    (lowered,) = tmp_path.glob("*/split/device0.ll")
    text = lowered.read_text()
    expected = shape(ptx_of(text, 22))
    for reader in (16, 19):
        older = downgrade(text, reader=reader)
        assert older != text
        assert shape(ptx_of(older, 22)) == expected
