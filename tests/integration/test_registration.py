"""Kernels and device globals, registered when the program starts, in links by each release."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.clang_entries import (
    PROGRAMS,
    kernel_address,
    parse_registration,
    recorded,
    render_kernel_handle,
    run_clang,
)
from support.cuda_tools import cuda_root
from support.device_image import DeviceImage, image_kind_of, serialize_binary

from mlir_offload.offload.abi import load_abi, load_abis
from mlir_offload.offload.host.embed import HostKernel, embed_binary, embed_offload_data
from mlir_offload.offload.host.entry import (
    EntryType,
    OffloadEntry,
    append_entries,
)
from mlir_offload.offload.link.check import layout_findings
from mlir_offload.offload.link.fatbinary_adapter import CudaTools, write_cuda_directory
from mlir_offload.offload.link.objects import read_objects
from mlir_offload.toolchain.process import Command, ProcessRunner, run_checked
from mlir_offload.toolchain.target import NVPTX_TRIPLE, Kind, Target, host_triple
from mlir_offload.toolchain.tool import ToolVersion

INPUTS = Path(__file__).parent / "inputs"
CUDA = cuda_root() / "bin"
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (15, 16, 19, 22)]
FLAGS_SINCE, MANAGED_SINCE = 18, 20
TARGETS = {
    Kind.CUDA: Target(Kind.CUDA, NVPTX_TRIPLE, "sm_90"),
    Kind.HIP: Target(Kind.HIP, "amdgcn-amd-amdhsa", "gfx90a"),
    Kind.OPENMP: Target(Kind.OPENMP, host_triple(), "host"),
}
PTX = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry kernel() { ret; }
.visible .global .align 4 .u32 counter = 7;
.visible .global .align 8 .b8 table[128];
.visible .const .align 4 .f32 factor;
"""
AMDGPU = """\
target triple = "amdgcn-amd-amdhsa"
@counter = protected addrspace(1) externally_initialized global i32 7
@table = protected addrspace(1) externally_initialized global [16 x double] zeroinitializer
@factor = protected addrspace(4) externally_initialized constant float 0.0
define protected amdgpu_kernel void @kernel() {
  ret void
}
"""
SHADOWS = """\
@counter = global i32 0
@table = global [16 x double] zeroinitializer
@factor = global float 0.0
@elsewhere = global i32 0
@managed_storage = global i64 3
@managed = externally_initialized global ptr null
@image = global i64 0
@samples = global i64 0
@linked = global i32 3
@linked_reference = weak global ptr @linked
"""


def _variable(name: str, size_bytes: int, type_: EntryType = EntryType.GLOBAL) -> OffloadEntry:
    return OffloadEntry(Kind.CUDA, name, name, type_, size_bytes)


GLOBALS = (
    _variable("counter", 4),
    _variable("table", 128),
    replace(_variable("factor", 4), is_constant=True),
)
LINKED = _variable("linked_reference", 8, EntryType.LINK)
# What only CUDA and HIP have, and not every release registers.
OTHERS = (
    replace(_variable("elsewhere", 4), is_extern=True),
    replace(_variable("image", 8, EntryType.SURFACE), data=2),
    replace(_variable("samples", 8, EntryType.TEXTURE), data=3, is_normalized=True),
    replace(
        _variable("managed", 8, EntryType.MANAGED),
        address="managed_storage",
        auxiliary="managed",
        data=8,
    ),
)


def clang(major: int, *arguments: object, path: str = "") -> None:
    argv = (f"/usr/lib/llvm-{major}/bin/clang", "-Wno-override-module", *map(str, arguments))
    run_checked(ProcessRunner(), Command(argv, (("PATH", path),) if path else ()))


@pytest.fixture(scope="module")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    if not CUDA.exists():
        pytest.skip("CUDA 13.0 is not installed")
    directory = tmp_path_factory.mktemp("cubin")
    source, output = directory / "device.s", directory / "device.o"
    source.write_text(PTX, encoding="utf-8")
    ptxas = (str(CUDA / "ptxas"), "-c", "-arch=sm_90", str(source), "-o", str(output))
    run_checked(ProcessRunner(), Command(ptxas))
    return output.read_bytes()


def amdgpu_object(major: int, directory: Path) -> bytes:
    source, output = directory / "device.ll", directory / "amdgpu.o"
    source.write_text(AMDGPU, encoding="utf-8")
    target = ("--target=amdgcn-amd-amdhsa", "-mcpu=gfx90a", "-nogpulib")
    clang(major, *target, "-c", source, "-o", output)
    return output.read_bytes()


def cpu_object(major: int, directory: Path) -> bytes:
    source, output = directory / "device.c", directory / "cpu.o"
    source.write_text("int counter = 7; double table[16]; void kernel(void) {}", encoding="utf-8")
    clang(major, "-fPIC", "-c", source, "-o", output)
    return output.read_bytes()


def packaged(images: dict[Kind, bytes], major: int) -> bytes:
    return serialize_binary(
        [DeviceImage(TARGETS[kind], data, image_kind_of(data)) for kind, data in images.items()],
        load_abi(major),
    )


def as_clang_does(
    major: int, image: bytes, kind: Kind, variables: Sequence[OffloadEntry], directory: Path
) -> Path:
    """Compile a host module as clang would annotate it, with what the wrapper loses too."""
    # A symbol that C can name represents the region id, which begins with a dot.
    address = "kernel_region" if kind is Kind.OPENMP else kernel_address(kind, "kernel")
    handle = render_kernel_handle(kind, "kernel").replace(kernel_address(kind, "kernel"), address)
    text = f"{SHADOWS}{handle}define void @__device_stub__kernel() {{\n  ret void\n}}\n"
    entries = [replace(entry, kind=kind) for entry in variables]
    text = append_entries(text, [OffloadEntry(kind, "kernel", address), *entries], load_abi(major))
    return host_object(major, embed_binary(text, packaged({kind: image}, major)), directory)


def host_object(major: int, text: str, directory: Path) -> Path:
    source, output = directory / "host.ll", directory / "host.o"
    source.write_text(text, encoding="utf-8")
    clang(major, "-O1", "-ffunction-sections", "-fdata-sections", "-c", source, "-o", output)
    return output


def registered_by(major: int, host: Path, directory: Path) -> list[str]:
    """Link with unused sections dropped, run, and return each registration, sorted."""
    log, program = directory / f"log{major}.o", directory / f"program{major}"
    abi = load_abi(major)
    macro = f"-DMEMBERS={len(abi.entry.fields)}"
    clang(major, macro, "-c", INPUTS / "registration_log.c", "-o", log)
    tools = CudaTools(ToolVersion(13, 0), CUDA / "ptxas", CUDA / "nvlink", CUDA / "fatbinary")
    cuda = write_cuda_directory(directory / f"cuda{major}", tools, major)
    options = ("-fuse-ld=lld", "-Wl,--gc-sections", *abi.cuda_path_arguments(cuda))
    path = f"{cuda / 'bin'}:{os.environ['PATH']}"
    clang(major, "--offload-link", host, log, *options, "-o", program, path=path)
    output = run_checked(ProcessRunner(), Command((str(program),))).stdout
    return sorted(output.splitlines())


def expected_lines(kind: Kind, kernel: str, *, has_flags: bool, has_managed: bool) -> list[str]:
    managed = f"{kind} managed variable managed at managed from managed_storage size 8 align 8"
    return [
        f"{kind} fat binary",
        f"{kind} function kernel at {kernel}",
        f"{kind} variable counter at counter size 4",
        f"{kind} variable elsewhere at elsewhere size 4{' extern' if has_flags else ''}",
        f"{kind} variable factor at factor size 4{' constant' if has_flags else ''}",
        f"{kind} variable table at table size 128",
        *([managed] if has_managed else []),
    ]


@pytest.mark.parametrize("major", RELEASES)
def test_cuda_kernels_and_globals_are_registered_but_no_textures(
    major: int, cubin: bytes, tmp_path: Path
) -> None:
    host = as_clang_does(major, cubin, Kind.CUDA, (*GLOBALS, *OTHERS), tmp_path)
    flags, managed = major >= FLAGS_SINCE, major >= MANAGED_SINCE
    stub = "__device_stub__kernel"
    expected = expected_lines(Kind.CUDA, stub, has_flags=flags, has_managed=managed)
    assert registered_by(major, host, tmp_path) == sorted(expected)


@pytest.mark.parametrize("major", RELEASES)
def test_hip_kernels_and_globals_are_registered(major: int, tmp_path: Path) -> None:
    image = amdgpu_object(major, tmp_path)
    host = as_clang_does(major, image, Kind.HIP, (*GLOBALS, *OTHERS), tmp_path)
    flags, managed = major >= FLAGS_SINCE, major >= MANAGED_SINCE
    expected = expected_lines(Kind.HIP, "kernel", has_flags=flags, has_managed=managed)
    if flags:
        expected.append("hip surface image at image type 2")
        expected.append("hip texture samples at samples type 3 normalized")
    assert registered_by(major, host, tmp_path) == sorted(expected)


@pytest.mark.parametrize("major", RELEASES)
def test_openmp_kernels_and_globals_are_registered(major: int, tmp_path: Path) -> None:
    image = cpu_object(major, tmp_path)
    host = as_clang_does(major, image, Kind.OPENMP, (*GLOBALS[:2], LINKED), tmp_path)
    assert registered_by(major, host, tmp_path) == [
        "openmp entry counter at counter size 4 flags 0",
        "openmp entry kernel at kernel_region size 0 flags 0",
        "openmp entry linked_reference at linked_reference size 8 flags 1",
        "openmp entry table at table size 128 flags 0",
        "openmp images 1",
    ]


@pytest.mark.parametrize("major", RELEASES)
def test_one_object_for_any_release_registers_each_name_once(
    major: int, cubin: bytes, tmp_path: Path
) -> None:
    text = embed_offload_data(
        SHADOWS,
        kernels=[HostKernel("kernel", ("i32",))],
        kinds=[Kind.CUDA, Kind.OPENMP],
        binary=packaged({Kind.CUDA: cubin, Kind.OPENMP: cpu_object(22, tmp_path)}, 22),
        abis=load_abis("any"),
        variables=[*GLOBALS, replace(GLOBALS[0], kind=Kind.OPENMP)],
    )
    # The newest release compiles it, each one links it.
    host = host_object(22, text, tmp_path)
    constant = " constant" if major >= MANAGED_SINCE else ""
    assert registered_by(major, host, tmp_path) == [
        "cuda fat binary",
        "cuda function kernel at __device_stub__kernel",
        "cuda variable counter at counter size 4",
        f"cuda variable factor at factor size 4{constant}",
        "cuda variable table at table size 128",
        "openmp entry counter at counter size 4 flags 0",
        "openmp entry kernel at __device_stub__kernel size 0 flags 0",
        "openmp images 1",
    ]
    (contents,) = read_objects(host)
    assert list(layout_findings(contents, load_abi(major))) == []
    (finding,) = layout_findings(contents, load_abi(20))
    assert "which LLVM 20 does not read" in finding.message


@pytest.mark.parametrize("major", RELEASES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_was_recorded_of_clang_is_what_it_says(program: str, major: int) -> None:
    text = run_clang(program, f"/usr/lib/llvm-{major}/bin/clang")
    was = parse_registration(_unnumbered(recorded(program, major)))
    assert parse_registration(_unnumbered(text)) == was


def _unnumbered(text: str) -> str:
    """Drop the device and inode of the source file from the names of OpenMP's kernels."""
    names = re.sub(r"__omp_offloading_[0-9a-f]+_[0-9a-f]+_", "__omp_offloading_", text)
    return re.sub(r'\[\d+ x i8\] c"__omp', '[0 x i8] c"__omp', names)
