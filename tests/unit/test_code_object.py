from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import msgpack
import pytest
import yaml
from support.hostile import (
    assert_bounded,
    bit_flips,
    extreme_fields,
    peak_memory,
    spliced,
    survives,
    truncations,
)

from mlir_offload.offload.device.amdgpu_metadata import parse_metadata
from mlir_offload.offload.device.code_object import (
    code_object_kernel_names,
    hash_code_object_kernels,
    load_processors,
    parse_processors,
    read_code_object,
)
from mlir_offload.offload.device.kernel import DeviceCode, KernelParameter
from mlir_offload.toolchain.byte_view import memory_view, open_view
from mlir_offload.toolchain.errors import VerificationError

READELF = "/usr/lib/llvm-22/bin/llvm-readelf"
HIP = """
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __device__ __attribute__((device))
typedef float float4 __attribute__((ext_vector_type(4)));
struct S { int a[5]; char c; };
extern "C" __attribute__((amdgpu_flat_work_group_size(1, 192))) __global__ void plain(
    float *p, S s, char c, double d, float4 v)
{ __shared__ int m[100]; m[__builtin_amdgcn_workitem_id_x()] = c; p[0] = s.a[2] + m[3] + d + v.x; }
extern "C" __global__ void stack(int *p) { volatile int a[40]; a[p[1]] = 3; p[0] = a[p[2]]; }
template <class T> __global__ void generic(T *p) { *p = 1; }
template __global__ void generic<short>(short *);
extern "C" __global__ void nothing() {}
"""
OPENCL = """
int other(int);
__attribute__((reqd_work_group_size(64, 2, 1))) kernel void fixed(global int *p, local int *l, short n)
{ p[n] = l[n]; }
kernel void calls(global int *p) { p[0] = other(p[1]); }
"""
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (15, 16, 19, 22)]
# The processors of each release, from `llvm/BinaryFormat/ELF.h`.
KNOWN = {
    (15, 16, 19, 22): ("gfx803", "gfx906", "gfx908:xnack+", "gfx90a", "gfx90a:sramecc+:xnack-", "gfx1030", "gfx1100"),
    (15, 16, 19): ("gfx940",),
    (19, 22): ("gfx942", "gfx1200"),
    (22,): ("gfx1250", "gfx11-generic", "gfx9-4-generic"),
}  # fmt: skip
TARGETS = [
    pytest.param(major, arch, marks=pytest.mark.llvm(major), id=f"{major}-{arch}")
    for majors, archs in KNOWN.items()
    for arch in archs
    for major in majors
]


def compile_source(major: int, source: str, output: Path, *options: str) -> Path:
    language = "cl" if source == OPENCL else "hip"
    device_only = () if language == "cl" else ("--offload-device-only", "-nogpuinc")
    target = [*options, "-c"] if output.suffix == ".o" else [*options]
    argv = [f"/usr/lib/llvm-{major}/bin/clang", "-x", language, "-", "-O1", "-nogpulib", "-w", *device_only, *target, "-o", output]  # fmt: skip
    subprocess.run(argv, input=source, text=True, check=True)
    return output


def hip(major: int, arch: str, output: Path) -> Path:
    """Return a linked code object: with --offload-device-only that is what clang makes of HIP."""
    return compile_source(major, HIP, output, f"--offload-arch={arch}", "--no-gpu-bundle-output")


def opencl(major: int, arch: str, output: Path, *options: str) -> Path:
    return compile_source(major, OPENCL, output, "--target=amdgcn-amd-amdhsa", f"-mcpu={arch}", *options)  # fmt: skip


def read(data: bytes) -> DeviceCode:
    view = memory_view(data)
    code = read_code_object(view)
    hash_code_object_kernels(view, code_object_kernel_names(view))
    return code


def read_file(path: Path) -> DeviceCode:
    with open_view(path) as view:
        return read_code_object(view)


def metadata_of(path: Path) -> dict[str, Any]:
    """Return the metadata as llvm-readelf prints it."""
    text = subprocess.run([READELF, "--notes", path], check=True, capture_output=True, text=True).stdout  # fmt: skip
    match = re.search(r"---\n(.*?)\n\.\.\.", text, re.DOTALL)
    assert match is not None
    metadata: dict[str, Any] = yaml.safe_load(match[1])
    return metadata


def as_read(kernel: dict[str, Any]) -> tuple[object, ...]:
    dimensions = kernel.get(".reqd_workgroup_size")
    return (
        kernel[".symbol"].removesuffix(".kd"),
        tuple(
            (a[".offset"], a[".size"], a[".value_kind"], a.get(".name", ""), a[".value_kind"].startswith("hidden_"))
            for a in kernel.get(".args", [])
        ),
        kernel[".max_flat_workgroup_size"],
        tuple(dimensions) if dimensions else None,
        kernel[".vgpr_count"],
        kernel[".sgpr_count"],
        kernel[".group_segment_fixed_size"],
        kernel[".private_segment_fixed_size"],
        kernel[".wavefront_size"],
    )  # fmt: skip


def assert_as_readelf_tells(path: Path) -> DeviceCode:
    code = read_file(path)
    found = [
        (k.name, tuple((p.offset, p.size_bytes, p.type, p.name, p.is_hidden) for p in k.parameters or ()), k.max_threads, k.required_threads, k.registers, k.scalar_registers, k.shared_bytes, k.local_bytes, k.subgroup_size)
        for k in code.kernels
    ]  # fmt: skip
    metadata = metadata_of(path)
    assert found == [as_read(kernel) for kernel in metadata["amdhsa.kernels"]]
    assert metadata["amdhsa.target"] == f"{code.triple}--{code.arch}"
    assert all(kernel.code_bytes for kernel in code.kernels)
    with open_view(path) as view:
        assert set(code_object_kernel_names(view)) == {kernel.name for kernel in code.kernels}
    return code


KERNEL_IR = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @helper(i32)
define amdgpu_kernel void @k(ptr addrspace(1) %p) {
  %v = call i32 @helper(i32 3)
  store i32 %v, ptr addrspace(1) %p
  ret void
}
"""


@pytest.mark.llvm(22)
@pytest.mark.llvm(19)
def test_the_compiler_is_not_that_of_a_device_library(tmp_path: Path) -> None:
    library, output = tmp_path / "library.bc", tmp_path / "k.hsaco"
    source = "kernel void unused() {} int helper(int x) { return x + 1; }"
    target = ("--target=amdgcn-amd-amdhsa", "-mcpu=gfx90a", "-nogpulib")
    old = (
        "/usr/lib/llvm-19/bin/clang",
        *target,
        "-emit-llvm",
        "-c",
        "-x",
        "cl",
        "-",
        "-o",
        library,
    )
    subprocess.run(old, input=source, text=True, check=True)
    new = ("/usr/lib/llvm-22/bin/clang", *target, "-Xclang", "-mlink-builtin-bitcode", "-Xclang", library)  # fmt: skip
    flags = ("-Wno-override-module", "-x", "ir", "-", "-o", output)
    subprocess.run((*new, *flags), input=KERNEL_IR, text=True, check=True)

    with open_view(output) as view:
        code = read_code_object(view)

    assert "LLD 22." in code.producer
    assert code.llvm_major == 22


@pytest.mark.llvm(22)
@pytest.mark.parametrize(("major", "arch"), TARGETS)
def test_kernels_are_told_as_llvm_readelf_tells_them(major: int, arch: str, tmp_path: Path) -> None:
    code = assert_as_readelf_tells(opencl(major, arch, tmp_path / "k.o"))
    assert (code.arch, code.llvm_major, code.is_relocatable) == (arch, major, True)
    assert f"clang version {major}." in code.producer
    assert code.undefined == ("other",)


@pytest.mark.llvm(22)
@pytest.mark.parametrize("major", RELEASES)
def test_linked_code_objects_are_read(major: int, tmp_path: Path) -> None:
    code = assert_as_readelf_tells(hip(major, "gfx90a", tmp_path / "k.hsaco"))
    assert (code.arch, code.llvm_major, code.is_relocatable) == ("gfx90a", major, False)
    assert code.undefined == ()
    assert [k.name for k in code.kernels] == ["plain", "stack", "_Z7genericIsEvPT_", "nothing"]
    plain, stack, _, nothing = code.kernels
    assert (plain.max_threads, plain.shared_bytes) == (192, 400)
    assert (stack.local_bytes or 0) >= 160
    assert [p for p in plain.parameters or () if not p.is_hidden][:3] == [
        KernelParameter(0, 8, "global_buffer", (plain.parameters or ())[0].name),
        KernelParameter(8, 24, "by_value", (plain.parameters or ())[1].name),
        KernelParameter(32, 1, "by_value", (plain.parameters or ())[2].name),
    ]
    assert [p for p in nothing.parameters or () if not p.is_hidden] == []


@pytest.mark.llvm(22)
def test_the_kernels_of_all_objects_that_lld_has_linked_are_read(tmp_path: Path) -> None:
    names = ("first", "second", "third")
    objects: list[Path] = []
    for name in names:
        source = f"kernel void {name}(global int *p) {{ p[0] = 1; }}"
        objects.append(tmp_path / f"{name}.o")
        target = ["--target=amdgcn-amd-amdhsa", "-mcpu=gfx90a", "-nogpulib", "-o", str(objects[-1])]
        clang = ["/usr/lib/llvm-22/bin/clang", "-x", "cl", "-c", "-", *target]
        subprocess.run(clang, input=source, text=True, check=True)
    linked = tmp_path / "linked.hsaco"
    subprocess.run(["/usr/lib/llvm-22/bin/ld.lld", "-shared", *objects, "-o", linked], check=True)
    code = read_file(linked)
    assert tuple(kernel.name for kernel in code.kernels) == names
    assert all(kernel.parameters for kernel in code.kernels)
    assert code_object_kernel_names(memory_view(linked.read_bytes())) == names


@pytest.mark.llvm(22)
def test_a_kernel_without_metadata_is_named_by_both_readers(tmp_path: Path) -> None:
    data = opencl(22, "gfx90a", tmp_path / "k.o").read_bytes().replace(b"AMDGPU\0", b"NOBODY\0")
    assert [kernel.name for kernel in read(data).kernels] == ["fixed", "calls"]
    assert set(code_object_kernel_names(memory_view(data))) == {"fixed", "calls"}


@pytest.mark.llvm(15)
@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_each_code_object_version_is_read(version: int, tmp_path: Path) -> None:
    option = f"-mcode-object-version={version}"
    # Version 2 has no setting for sramecc.
    arch = "gfx900:xnack+" if version == 2 else "gfx908:sramecc+:xnack+"
    path = opencl(15, arch, tmp_path / "k.o", option)
    code = read_file(path)
    assert [kernel.name for kernel in code.kernels] == ["fixed", "calls"]
    if version == 2:
        assert (code.arch, code.kernels[0].parameters) == ("gfx900", None)
        assert (code.kernels[0].code_bytes or 0) > 0
    else:
        assert code.arch == "gfx908:sramecc+:xnack+"
        assert [p.size_bytes for p in (code.kernels[0].parameters or ())[:3]] == [8, 4, 2]


@pytest.mark.llvm(22)
def test_a_processor_that_is_not_in_the_table_is_named_as_the_metadata_names_it(
    tmp_path: Path,
) -> None:
    data = bytearray(opencl(22, "gfx90a", tmp_path / "k.o").read_bytes())
    data[48] = 0xEE
    assert read(bytes(data)).arch == "gfx90a"
    found = data.index(b"amdgcn-amd-amdhsa--gfx90a")
    data[found + 17 : found + 19] = b"xx"
    assert read(bytes(data)).arch == "mach-0xee"


@pytest.mark.parametrize("major", RELEASES)
def test_the_table_has_every_processor_that_a_release_knows(major: int, tmp_path: Path) -> None:
    tool = f"/usr/lib/llvm-{major}/bin/llvm-mc"
    argv = [tool, "-triple=amdgcn-amd-amdhsa", "-filetype=obj", "-o", str(tmp_path / "k.o")]
    listed = subprocess.run([*argv, "-mcpu=help"], input="", text=True, capture_output=True, check=True).stderr  # fmt: skip
    processors = re.findall(r"^ +(gfx(?:\d+[a-c]?|[\d-]+-generic)) +- Select", listed, re.MULTILINE)
    assert len(processors) > 30
    for name in processors:
        subprocess.run([*argv, f"-mcpu={name}"], input="", text=True, check=True)
        flags = int.from_bytes((tmp_path / "k.o").read_bytes()[48:52], "little")
        assert load_processors()[flags & 0xFF] == name


@pytest.mark.parametrize("codes", [{"a": 0}, {"a": 256}, {"a": "1"}, {"a": True}, {"a": 1, "b": 1}])
def test_a_wrong_table_is_refused(codes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"amdgpu_mach: [ab] has the number"):
        parse_processors({"processors": [{"codes": codes}]})


@pytest.mark.llvm(22)
def test_code_hashes_are_equal_where_the_code_is(tmp_path: Path) -> None:
    first = opencl(22, "gfx90a", tmp_path / "first.o")
    second = tmp_path / "second.o"
    changed = OPENCL.replace("other", "others").replace("kernel void fixed", "kernel void first(global int *p) { *p = 1; }\nkernel void fixed")  # fmt: skip
    changed = changed.replace(
        "__attribute__((reqd_work_group_size(64, 2, 1))) kernel void first", "kernel void first"
    )
    argv = ["/usr/lib/llvm-22/bin/clang", "-x", "cl", "-", "-O1", "-nogpulib", "-w", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx90a", "-c", "-o", str(second)]  # fmt: skip
    subprocess.run(argv, input=changed, text=True, check=True)
    hashes = []
    for path in (first, second):
        with open_view(path) as view:
            hashes.append(hash_code_object_kernels(view, {"fixed", "calls"}))
    assert hashes[0]["fixed"] == hashes[1]["fixed"]
    assert hashes[0]["calls"] != hashes[1]["calls"], "they differ in what they call"


@pytest.mark.llvm(22)
def test_a_kernel_without_its_descriptor_is_an_error(tmp_path: Path) -> None:
    data = opencl(22, "gfx90a", tmp_path / "k.o").read_bytes()
    lost = data.replace(b"\0fixed.kd\0", b"\0fixed.xx\0")
    with pytest.raises(VerificationError, match=r"kernel descriptor fixed\.kd.*it is not defined"):
        read(lost)


@pytest.mark.llvm(22)
def test_damaged_code_objects_are_refused_or_read_within_bounds(tmp_path: Path) -> None:
    for path in (opencl(22, "gfx90a", tmp_path / "k.o"), hip(22, "gfx1100", tmp_path / "k.hsaco")):
        data = path.read_bytes()
        (table,) = struct.unpack_from("<Q", data, 40)
        assert survives(read, truncations(data, step=7)) > 0
        assert survives(read, extreme_fields(data, limit=64)) > 0
        survives(read, bit_flips(data[:table], step=41))
        headers = (data[:table] + change for change in bit_flips(data[table:], step=17))
        assert survives(read, headers) > 0
        survives(read, spliced(data, 100))


KERNEL = {".name": "k", ".symbol": "k.kd", ".args": [{".offset": 0, ".size": 8, ".value_kind": "global_buffer"}], ".reqd_workgroup_size": [1, 2, 3], ".vgpr_count": 5}  # fmt: skip


def metadata(**changes: object) -> bytes:
    kernel = {**KERNEL, **{f".{key}": value for key, value in changes.items()}}
    return bytes(msgpack.packb({"amdhsa.kernels": [kernel], "amdhsa.target": "t"}))


def parse(data: bytes) -> object:
    return parse_metadata(memory_view(data))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (metadata(vgpr_count="5"), r"metadata amdhsa\.kernels\[0\]\.vgpr_count.*not a number"),
        (metadata(vgpr_count=-1), r"\.vgpr_count.*not a number"),
        (metadata(vgpr_count=True), r"\.vgpr_count.*not a number"),
        (metadata(vgpr_count=1.5), r"\.vgpr_count.*not a number"),
        (metadata(name=7), r"\.name.*not a string"),
        (metadata(args={}), r"\.args.*not a list of maps"),
        (metadata(args=[1]), r"\.args.*not a list of maps"),
        (metadata(args=[{}]), r"\.args\[0\]\.offset.*not a number"),
        (metadata(reqd_workgroup_size=[1, 2]), r"\.reqd_workgroup_size.*not three numbers"),
        (metadata(reqd_workgroup_size=[1, 2, "3"]), r"\.reqd_workgroup_size.*not three numbers"),
        (msgpack.packb([]), "metadata at offset 0: it is not a map"),
        (msgpack.packb({"amdhsa.kernels": 1}), r"metadata amdhsa\.kernels.*not a list of maps"),
        (metadata() + b"\0", "invalid MessagePack"),
        (metadata()[:-1], "invalid MessagePack"),
        (b"", "invalid MessagePack"),
        (b"\xc1", "invalid MessagePack"),
        (b"\x81\x90\x01", "invalid MessagePack"),
        (b"\x81\xa1x\xd4\xff\x00", "invalid MessagePack"),
    ],
)
def test_metadata_of_another_type_is_refused_by_name(data: bytes, reason: str) -> None:
    with pytest.raises(VerificationError, match=reason):
        parse(data)


def test_metadata_bombs_take_no_more_than_they_hold() -> None:
    lengths = b"".join(b"\xdd" + struct.pack(">I", 4000) for _ in range(1000))
    for bomb in (
        b"\x91" * 100_000,
        lengths,
        b"\x81\xa1x" * 50_000,
        b"\xdf" + b"\xff" * 4,
        b"\xc6" + b"\xff" * 4,
        b"\xdb" + b"\xff" * 4,
    ):
        with pytest.raises(VerificationError, match="invalid MessagePack"):
            parse(bomb)
        assert peak_memory(parse, bomb) < 1 << 20
    empty_maps = b"\xdd" + struct.pack(">I", 500_000) + b"\x80" * 500_000
    assert_bounded(parse, b"\x81\xa1x" + empty_maps, 100)


def test_damaged_metadata_is_refused_or_read() -> None:
    data = metadata(name="kernel", wavefront_size=64)
    assert survives(parse, truncations(data)) == len(data)
    assert survives(parse, bit_flips(data)) > 0
    assert survives(parse, extreme_fields(data)) > 0
    survives(parse, spliced(data, 1000))
