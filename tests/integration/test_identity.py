"""Real tools of each release, asked to write and to read; and tools that are not what they say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.cuda_tools import cuda_root, cuda_tool

from mlir_offload.offload.skew.cuda_identity import CudaIdentity, identify_cuda
from mlir_offload.offload.skew.llvm_identity import LlvmIdentity, identify_llvm
from mlir_offload.offload.skew.runtime_identity import identify_libomptarget, identify_rocm
from mlir_offload.toolchain.cuda import CudaToolkit, inspect_cuda, probe_cuda
from mlir_offload.toolchain.llvm import inspect_llvm, probe_every_tool
from mlir_offload.toolchain.process import ProcessRunner
from mlir_offload.toolchain.rocm import RocmInstallation
from mlir_offload.toolchain.search import find_rocm, search_places
from mlir_offload.toolchain.skew.identity import Evidence, ToolIdentity

RUNNER = ProcessRunner()
RELEASES = {15: "15.0.6", 16: "16.0.6", 19: "19.1.7", 22: "22.1.8"}
EACH_RELEASE = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in RELEASES]


def identified(folder: Path, work: Path) -> LlvmIdentity:
    installation = inspect_llvm(folder)
    assert installation is not None
    return identify_llvm(RUNNER, installation, probe_every_tool(RUNNER, installation), work)


def facts(tool: ToolIdentity) -> dict[str, str]:
    return {fact.name: fact.value for fact in tool.facts}


@pytest.mark.parametrize("major", EACH_RELEASE)
def test_every_program_of_a_release_is_what_it_says(major: int, tmp_path: Path) -> None:
    identity = identified(Path(f"/usr/lib/llvm-{major}/bin"), tmp_path)
    assert [finding.message for finding in identity.findings] == []
    tools = {tool.name: tool for tool in identity.tools}
    assert tools["clang"].written.startswith(f"LLVM{major}.")
    assert tools["opt"].written == tools["clang"].written
    assert tools["ld.lld"].written.startswith(f"LLD {major}.")
    assert tools["clang"].written.removeprefix("LLVM") == tools["clang"].said
    assert all(not tool.problem for tool in identity.tools)
    assert facts(tools["clang-offload-packager"])["writes containers of version"] == "1"
    if "mlir-opt" in tools:
        assert tools["mlir-opt"].written.startswith(f"MLIR{major}.")
        mark = facts(tools["mlir-translate"])["marks kernels by"]
        assert mark == ("ptx_kernel" if major == 22 else "nvvm.annotations")


def script(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")), encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def liar(tmp_path: Path) -> Path:
    """Return an installation of LLVM 22 whose clang is that of LLVM 19, with the other's version."""
    folder = tmp_path / "llvm-22" / "bin"
    folder.mkdir(parents=True)
    for name in ("opt", "ld.lld", "clang-offload-packager", "mlir-opt"):
        (folder / name).symlink_to(f"/usr/lib/llvm-22/bin/{name}")
    said = 'case $* in *--version*) echo "clang version 22.1.8"; exit;; esac'
    script(folder / "clang", said, 'exec /usr/lib/llvm-19/bin/clang "$@"')
    return folder


@pytest.mark.llvm(19)
@pytest.mark.llvm(22)
def test_a_clang_that_lies_about_its_release_is_found_out(liar: Path, tmp_path: Path) -> None:
    identity = identified(liar, tmp_path / "work")
    rules = {finding.rule: finding for finding in identity.findings}
    assert "says that it is 22.1.8, but writes LLVM19." in rules["TOOL006"].message
    assert "clang (LLVM19." in rules["TOOL003"].message
    # Its packager numbers hip as LLVM 22 does, and clang 19 would not.
    assert "hip 4" in rules["TOOL004"].message


@pytest.mark.llvm(22)
def test_a_clang_without_a_construct_of_its_release_is_found_out(tmp_path: Path) -> None:
    folder = tmp_path / "llvm-22" / "bin"
    folder.mkdir(parents=True)
    refuse = "text=$(cat); case $text in *captures*) exit 1;; esac"
    call = 'printf "%s\\n" "$text" | /usr/lib/llvm-22/bin/clang "$@"'
    stdin = 'case " $* " in *" - "*) ;; *) exec /usr/lib/llvm-22/bin/clang "$@";; esac'
    script(folder / "clang", stdin, refuse, call)
    (finding,) = identified(folder, tmp_path / "work").findings
    assert finding.rule == "TOOL004"
    assert "dead_on_return" in finding.message.partition("where")[0]
    assert "captures" not in finding.message.partition("where")[0]


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("kill -SEGV $$", "SIGSEGV"),
        ('echo "LLVM version 22.1.8"', "opt.bc"),
        ("exec /does/not/exist", "exit status"),
    ],
    ids=["crashes", "writes-nothing", "cannot-start"],
)
def test_a_broken_program_is_told_and_stops_nothing(body: str, words: str, tmp_path: Path) -> None:
    folder = tmp_path / "llvm-22" / "bin"
    folder.mkdir(parents=True)
    (folder / "clang").symlink_to("/usr/lib/llvm-22/bin/clang")
    script(folder / "opt", body)
    identity = identified(folder, tmp_path / "work")
    tools = {tool.name: tool for tool in identity.tools}
    assert tools["clang"].written.startswith("LLVM22.")
    assert words in tools["opt"].problem
    assert [f.rule for f in identity.findings] == ["TOOL001"]


def toolkit(root: Path) -> CudaToolkit:
    installation = inspect_cuda(root)
    assert installation is not None
    found = probe_cuda(RUNNER, installation)
    assert isinstance(found, CudaToolkit)
    return found


def identified_cuda(root: Path, work: Path) -> CudaIdentity:
    found = toolkit(root)
    return identify_cuda(RUNNER, found.installation, found.version, work)


def test_a_toolkit_knows_what_the_table_says_of_its_release(tmp_path: Path) -> None:
    cuda_tool("ptxas")
    identity = identified_cuda(cuda_root(), tmp_path)
    assert identity.findings == ()
    version = str(toolkit(cuda_root()).version)
    tools = {tool.name: tool for tool in identity.tools}
    assert tools["ptxas"].written == tools["nvlink"].written == version
    assert "sm_90" in identity.archs
    assert identity.isa >= 80
    assert facts(tools["libdevice"])["written by"].startswith("LLVM")


def test_a_ptxas_that_knows_less_than_its_release_is_found_out(tmp_path: Path) -> None:
    root = tmp_path / "cuda"
    (root / "bin").mkdir(parents=True)
    real = cuda_tool("ptxas")
    refuse = (
        'for file do case $file in *.ptx) if grep -q "^.version \\(99\\|9\\)" "$file"; then'
        " echo \"ptxas fatal : Unsupported .version; current version is '8.5'\" >&2; exit 255; fi;; esac; done"
    )
    script(root / "bin" / "ptxas", refuse, f'exec {real} "$@"')
    identity = identified_cuda(root, tmp_path / "work")
    (finding,) = identity.findings
    assert finding.rule == "TOOL004"
    assert "reads PTX up to 8.5" in finding.message
    assert identity.isa == 85


def test_a_ptxas_of_another_release_than_it_says_is_found_out(tmp_path: Path) -> None:
    root = tmp_path / "cuda"
    (root / "bin").mkdir(parents=True)
    said = (
        'case $* in *--version*) echo "Cuda compilation tools, release 12.5, V12.5.40"; exit;; esac'
    )
    script(root / "bin" / "ptxas", said, f'exec {cuda_tool("ptxas")} "$@"')
    rules = [finding.rule for finding in identified_cuda(root, tmp_path / "work").findings]
    assert rules == ["TOOL006", "TOOL004"]


@pytest.mark.parametrize("major", [pytest.param(m, marks=pytest.mark.llvm(m)) for m in (19, 22)])
def test_libomptarget_tells_its_release_entries_and_plugins(major: int) -> None:
    library = next(Path(f"/usr/lib/llvm-{major}/lib").glob("libomptarget.so.*"))
    identity = identify_libomptarget(library, "LLVM")
    assert identity.written.startswith(f"LLVM{major}")
    assert facts(identity)["takes entries of"] == ("9 members" if major == 22 else "5 members")
    assert "cuda, amdgpu, host" in facts(identity)["plugins"]


def test_a_library_that_is_none_is_told(tmp_path: Path) -> None:
    path = tmp_path / "libomptarget.so"
    path.write_bytes(b"\x7fELF" + bytes(60))
    assert identify_libomptarget(path, "LLVM").problem


def test_device_libraries_tell_who_wrote_them() -> None:
    found = find_rocm(search_places({}, sys.path))
    if not found:
        pytest.skip("no ROCm device libraries are installed")
    identity = identify_rocm(found[0])
    assert identity.written.startswith("LLVM")
    assert {fact.evidence for fact in identity.facts} == {Evidence.NAMED}
    damaged = replace(found[0], bitcode=Path("/nowhere"))
    assert isinstance(damaged, RocmInstallation)
    assert "No such file" in identify_rocm(damaged).problem
