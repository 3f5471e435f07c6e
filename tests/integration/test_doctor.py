"""`mlir-offload doctor` on the tools of this machine, and on tools that are not what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace
from support.cuda_tools import cuda_root, cuda_tool

from mlir_offload.driver.compile.kind_build import Sdk
from mlir_offload.driver.doctor.examination import Examination
from mlir_offload.driver.doctor.json import schema_text
from mlir_offload.driver.doctor.plan import Combination
from mlir_offload.driver.doctor.trial import Bench, Cell, MadeObject, Verdict
from mlir_offload.toolchain.cuda import CudaToolkit, inspect_cuda, probe_cuda
from mlir_offload.toolchain.inventory import Inventory, take_inventory
from mlir_offload.toolchain.llvm import LlvmToolchain, choose_llvm, llvm_probe
from mlir_offload.toolchain.process import ProcessRunner
from mlir_offload.toolchain.search import find_llvm, search_places
from mlir_offload.toolchain.target import Kind

RUNNER = ProcessRunner()
# A busy machine may take its time; what hangs is ended by the tests of the process.
LIMIT_S = 600


@dataclass(frozen=True)
class Said:
    document: dict[str, Any]
    page: str
    status: int


@pytest.fixture(scope="module")
def said(mlir_offload: list[str], tmp_path_factory: pytest.TempPathFactory) -> Said:
    page = tmp_path_factory.mktemp("doctor") / "page.html"
    done = subprocess.run(
        [*mlir_offload, "doctor", "--quick", "--json", f"--html={page}", f"--timeout={LIMIT_S}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return Said(json.loads(done.stdout), page.read_text(encoding="utf-8"), done.returncode)


@pytest.mark.llvm(22)
def test_the_default_combination_works_here(said: Said) -> None:
    jsonschema.validate(said.document, json.loads(schema_text()))
    assert said.status == said.document["exit_status"] == 0, said.document["summary"]
    verdicts = {c["kind"]: c["mlir_offload"]["verdict"] for c in said.document["combinations"]}
    assert verdicts["openmp"] == "works"
    assert verdicts.get("cuda", "links") in {"links", "works"}
    assert all(c["is_default"] for c in said.document["combinations"])
    assert [f for f in said.document["findings"] if f["severity"] == "error"] == []


@pytest.mark.llvm(22)
def test_the_page_of_the_same_call_says_the_same(said: Said) -> None:
    assert said.document["summary"] in said.page
    assert said.page.count("<tr id=trial") == len(said.document["combinations"])


def llvm(major: int) -> LlvmToolchain:
    places = search_places({"PATH": os.environ["PATH"]}, [], llvm=str(major))
    return choose_llvm(find_llvm(places), places.llvm, llvm_probe(RUNNER), roles=())


def tried(combination: Combination, folder: Path) -> Cell:
    """Return what becomes of it, with mlir-offload and with clang alone."""
    bench = Bench(RUNNER, folder, 1, LIMIT_S, has_gpu=False)
    made: Future[MadeObject] = Future()
    made.set_result(bench.make_object(combination, 0))
    return bench.try_combination(combination, 0, made)


@pytest.mark.llvm(19)
@pytest.mark.llvm(22)
def test_clang_alone_loses_the_kernels_of_another_release_without_a_word(tmp_path: Path) -> None:
    cell = tried(Combination(Kind.OPENMP, "host", llvm(19), llvm(22)), tmp_path)
    assert cell.alone is not None
    assert cell.alone.verdict is Verdict.DROPS
    assert cell.alone.reason == "the image is there, but nothing registers decay, sum"
    assert cell.adapters == ("--for-clang=22",)
    # Refused, or right: never lost.
    assert cell.ours.verdict in {Verdict.REFUSED, Verdict.WORKS}
    assert cell.ours.reason or cell.ours.verdict is Verdict.WORKS


def sdk(root: Path) -> Sdk:
    installation = inspect_cuda(root)
    assert installation is not None
    toolkit = probe_cuda(RUNNER, installation)
    assert isinstance(toolkit, CudaToolkit)
    return Sdk(f"CUDA {toolkit.version}", root, "--cuda-path=", toolkit)


@pytest.mark.llvm(19)
def test_the_wrapper_of_19_needs_the_adapter_for_a_fatbinary_without_image(tmp_path: Path) -> None:
    cuda_tool("fatbinary")
    cuda = sdk(cuda_root())
    assert cuda.cuda
    if cuda.cuda.version < replace(cuda.cuda.version, major=12, minor=9, patch=0):
        pytest.skip("this CUDA has the option still")
    cell = tried(Combination(Kind.CUDA, "sm_80", llvm(19), llvm(19), cuda), tmp_path)
    assert cell.ours.verdict is Verdict.LINKS, cell.ours.reason
    assert cell.adapters == ("fatbinary --image to --image3",)
    assert cell.alone is not None
    assert cell.alone.verdict is Verdict.FAILS


@pytest.mark.llvm(22)
def test_a_ptxas_that_knows_less_makes_the_default_fail_and_is_named(tmp_path: Path) -> None:
    real = cuda_tool("ptxas")
    root = tmp_path / "cuda"
    (root / "bin").mkdir(parents=True)
    for name in ("nvvm", "lib64", "lib", "include"):
        if (cuda_root() / name).exists():
            (root / name).symlink_to(cuda_root() / name)
    for name in ("nvlink", "fatbinary"):
        (root / "bin" / name).symlink_to(cuda_tool(name))
    refuse = (
        'for file do case $file in *.ptx|*.s) if grep -qE "^.version (99|9|8.[6-9])" "$file"; then\n'
        "echo \"ptxas fatal : Unsupported .version; current version is '8.5'\" >&2; exit 255; fi;; esac; done"
    )
    (root / "bin" / "ptxas").write_text(f'#!/bin/sh\n{refuse}\nexec {real} "$@"\n')
    (root / "bin" / "ptxas").chmod(0o755)
    places = search_places(os.environ, sys.path, llvm="22", cuda_path=str(root))
    inventory: Inventory = take_inventory(RUNNER, places)
    report = Examination(RUNNER, inventory, 1, LIMIT_S, is_quick=True).report((Kind.CUDA,))
    (cell,) = report.cells
    assert cell.ours.verdict is Verdict.FAILS
    assert report.exit_status == cell.ours.exit_status != 0
    found = [f for f in report.findings if f.rule == "TOOL004"]
    assert "reads PTX up to 8.5" in found[0].message
    assert found[0].location == str(root / "bin" / "ptxas")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--kind=fpga"], "--kind=fpga"), (["-j0"], "-j"), (["--no-such"], "--no-such")],
)
def test_what_cannot_be_asked_for_is_refused(
    arguments: list[str], words: str, mlir_offload: list[str]
) -> None:
    done = subprocess.run(
        [*mlir_offload, "doctor", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert words in done.stderr
