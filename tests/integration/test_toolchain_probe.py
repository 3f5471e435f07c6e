"""What is really installed here: the releases, CUDA and the tables held against the real tools."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from mlir_offload.toolchain.cuda import CudaToolkit, choose_cuda, cuda_probe
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.inventory import Part, inventory_rows, take_inventory
from mlir_offload.toolchain.llvm import LlvmToolchain, choose_llvm, llvm_probe
from mlir_offload.toolchain.process import Command, ProcessRunner
from mlir_offload.toolchain.ptx import load_nvptx_table, ptx_isa_for, supported_archs
from mlir_offload.toolchain.search import find_cuda, find_llvm, search_places
from mlir_offload.toolchain.tool import Role

RUNNER = ProcessRunner()


def llvm(major: int) -> LlvmToolchain:
    places = search_places(os.environ, [], llvm=str(major))
    return choose_llvm(find_llvm(places), places.llvm, llvm_probe(RUNNER), roles=[Role.LINK])


def cuda() -> CudaToolkit:
    places = search_places(os.environ, sys.path)
    try:
        return choose_cuda(find_cuda(places), places.cuda, cuda_probe(RUNNER))
    except ToolchainError as error:
        pytest.skip(error.message)


EACH_RELEASE = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (16, 19, 22)]
LOWERING = EACH_RELEASE[1:]


@pytest.mark.parametrize("major", EACH_RELEASE)
def test_a_release_is_found_by_its_number(major: int) -> None:
    toolchain = llvm(major)
    assert toolchain.version.major == major
    assert toolchain.can(Role.LINK)
    assert toolchain.tool("clang").is_file()


@pytest.mark.parametrize("major", LOWERING)
def test_a_release_with_mlir_is_complete_and_has_libomptarget(major: int) -> None:
    toolchain = llvm(major)
    assert toolchain.is_complete
    assert toolchain.libomptarget is not None
    assert f".so.{major}" in toolchain.libomptarget.resolve().name


@pytest.mark.llvm(22)
def test_the_newest_complete_release_is_the_default_and_can_be_named_in_every_way() -> None:
    environment = {"PATH": os.environ["PATH"]}
    spellings = ["", "22", "/usr/lib/llvm-22", "/usr/lib/llvm-22/bin", "/usr/bin/mlir-opt-22"]
    places = [search_places(environment, [], llvm=spelling) for spelling in spellings]
    chosen = [choose_llvm(find_llvm(p), p.llvm, llvm_probe(RUNNER)) for p in places]
    assert {(t.prefix, t.version.major) for t in chosen} == {(Path("/usr/lib/llvm-22"), 22)}


@pytest.mark.llvm(22)
def test_the_inventory_lists_what_is_here() -> None:
    rows = inventory_rows(take_inventory(RUNNER, search_places(os.environ, sys.path)))
    default = [row for row in rows if row.part is Part.LLVM and row.is_default]
    assert len(default) == 1
    assert {"lower", "link", "cpu"} <= set(default[0].roles)
    assert not [missing for missing in default[0].missing if missing.reason]


def clang_accepts(toolchain: LlvmToolchain, *arguments: str) -> bool:
    argv = (str(toolchain.tool("clang")), "-cc1", "-triple", "nvptx64-nvidia-cuda", *arguments)
    empty_input = ("-emit-llvm", "-o", "-", "-x", "c", "-")
    return RUNNER.run(Command((*argv, *empty_input)), input_text="").returncode == 0


@pytest.mark.parametrize("major", EACH_RELEASE)
def test_the_table_names_the_architectures_that_clang_knows(major: int) -> None:
    toolchain = llvm(major)
    known = supported_archs(major, None)
    newest = known[-1]
    assert clang_accepts(toolchain, "-target-cpu", newest)
    for stranger in sorted({row for row, _ in load_nvptx_table().oldest_isa} - set(known))[:3]:
        assert not clang_accepts(toolchain, "-target-cpu", stranger)


@pytest.mark.parametrize("major", LOWERING)
def test_ptx_of_the_version_chosen_is_assembled_by_the_ptxas_found(
    major: int, tmp_path: Path
) -> None:
    toolchain, toolkit = llvm(major), cuda()
    assert toolkit.ptxas is not None
    for arch in ("sm_80", "sm_90"):
        isa = ptx_isa_for(arch, major, toolkit)
        ptx = tmp_path / f"{arch}.ptx"
        features = ("-target-cpu", arch, "-target-feature", f"+ptx{isa}")
        argv = (str(toolchain.tool("clang")), "-cc1", "-triple", "nvptx64-nvidia-cuda", *features)
        source = "void f(int *p) { *p = 1; }"
        RUNNER.run(Command((*argv, "-S", "-x", "c", "-", "-o", str(ptx))), input_text=source)
        assert f".version {isa // 10}.{isa % 10}\n" in ptx.read_text()
        cubin = tmp_path / f"{arch}.cubin"
        assemble = (str(toolkit.ptxas), f"-arch={arch}", "-c", str(ptx), "-o", str(cubin))
        completed = RUNNER.run(Command(assemble))
        assert completed.returncode == 0, completed.stderr
        assert cubin.read_bytes()[:4] == b"\x7fELF"


def test_the_table_names_the_architectures_of_the_ptxas_found() -> None:
    toolkit = cuda()
    completed = RUNNER.run(Command((str(toolkit.ptxas), "--help")))
    listed = set(re.findall(r"'(sm_\d+[af]?)'", completed.stdout))
    release = (toolkit.version.major, toolkit.version.minor)
    (row,) = (row for row in load_nvptx_table().cuda if row.release == release)
    assert row.archs == listed
