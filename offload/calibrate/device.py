"""Probe clang's GPU support: architectures, PTX ISA versions, data layouts, code object versions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mlir_offload.offload.calibrate.probe import CannotLearnError, Learned, ProbeBench
from mlir_offload.toolchain.amdgpu import load_code_objects
from mlir_offload.toolchain.learned_row import (
    AmdgpuLayoutRow,
    CodeObjectsRow,
    NvptxLayoutRow,
    NvptxRow,
)
from mlir_offload.toolchain.pattern import ir_line, ir_pattern
from mlir_offload.toolchain.ptx import load_nvptx_table
from mlir_offload.toolchain.target import SM

_NVPTX, _AMDGPU = "nvptx64-nvidia-cuda", "amdgcn-amd-amdhsa"
_LAYOUT = ir_line('target datalayout = "`layout:string`"')
_CODE_OBJECT = ir_pattern('!"`flag:(``word`_code_object_version`)`", i32 `version:number`00}')
_UNKNOWN_FEATURE = re.compile(r"'\+ptx(\d+)' is not a recognized feature")
_VERSION = re.compile(r"^\s*\.version (\d+)\.(\d+)", re.MULTILINE)
# No release of LLVM has added more PTX ISA versions than this.
_FURTHER_ISA = 40
_EMPTY = "void probe(void) {}\n"


def learn_nvptx(bench: ProbeBench) -> Learned:
    """Learn the architectures and PTX ISA versions that clang accepts, and the data layout."""
    table = load_nvptx_table()
    isa, layout = _isa_and_layout(bench, {isa for one in table.llvm for isa in one.isa})
    archs = _archs(bench, oldest=table.oldest_isa[0][0])
    known = dict(table.oldest_isa)
    new = {arch: _oldest_isa(bench, arch) for arch in archs if arch not in known}
    return Learned([NvptxRow(isa, archs, new), *([NvptxLayoutRow(layout)] if layout else [])])


def _archs(bench: ProbeBench, oldest: str) -> tuple[str, ...]:
    """Return the architectures that clang lists in its error for an unknown one, from `oldest` on."""
    completed = bench.run("clang", ("-cc1", "-triple", _NVPTX, "-target-cpu", "none", "probe.c"))
    _, _, listed = completed.stderr.partition("valid target CPU values are: ")
    names = [name.strip() for name in listed.split("\n")[0].split(",")]
    first = int(oldest.removeprefix("sm_"))
    found = [(int(match[1]), name) for name in names if (match := SM.fullmatch(name))]
    archs = tuple(name for number, name in sorted(found) if number >= first)
    if not archs:
        msg = "clang lists no NVIDIA architecture"
        raise CannotLearnError(msg)
    return archs


def _isa_and_layout(bench: ProbeBench, known: Iterable[int]) -> tuple[tuple[int, ...], str]:
    """Return the PTX ISA versions that clang accepts, of the `known` and newer ones, and the data layout."""
    listed = sorted(known)
    tried = [*listed, *range(listed[-1] + 1, listed[-1] + _FURTHER_ISA)]
    features = [word for isa in tried for word in ("-target-feature", f"+ptx{isa}")]
    arguments = ("-cc1", "-triple", _NVPTX, "-target-cpu", "sm_70", "-emit-llvm", *features)
    (bench.folder / "probe.c").write_text(_EMPTY, encoding="utf-8")
    completed = bench.run("clang", (*arguments, "probe.c", "-o", "-"))
    unknown = {int(number) for number in _UNKNOWN_FEATURE.findall(completed.stderr)}
    if completed.returncode != 0 or len(unknown) == len(tried):
        msg = "clang does not list its PTX ISA versions"
        raise CannotLearnError(msg)
    layout = _LAYOUT.search(completed.stdout)
    return tuple(isa for isa in tried if isa not in unknown), layout[1] if layout else ""


def _oldest_isa(bench: ProbeBench, arch: str) -> int:
    """Return the PTX ISA version that clang selects by default: the oldest that supports the architecture."""
    version = _VERSION.search(bench.compile(_NVPTX, ("-target-cpu", arch, "-S"), _EMPTY))
    if version is None:
        msg = f"clang writes no PTX for {arch}"
        raise CannotLearnError(msg)
    return int(version[1]) * 10 + int(version[2])


def learn_amdgpu(bench: ProbeBench) -> Learned:
    """Learn the data layout and the default code object version of clang."""
    # The clang driver, not the frontend, selects the default version.
    target = (f"--target={_AMDGPU}", "-mcpu=gfx900", "-nogpulib")
    text = bench.output("clang", (*target, "-S", "-emit-llvm", "-x", "c", "-", "-o", "-"), _EMPTY)
    layout, version = _LAYOUT.search(text), _CODE_OBJECT.search(text)
    found = Learned()
    if layout is not None:
        found.rows.append(AmdgpuLayoutRow(layout[1]))
    if version is not None:
        newest, oldest = int(version[2]), load_code_objects(bench.base).versions[0]
        versions = tuple(range(min(oldest, newest), newest + 1))
        found.rows.append(CodeObjectsRow(versions, version[1]))
    return found
