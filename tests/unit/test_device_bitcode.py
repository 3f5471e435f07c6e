from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.bitcode_corpus import RELEASES, assemble, compile_bitcode, tool
from support.cuda_tools import cuda_root

from mlir_offload.offload.device.bitcode import llvm_major, read_device_bitcode
from mlir_offload.offload.device.kernel import DeviceCode, KernelParameter
from mlir_offload.offload.file.contents_reader import read_contents_of
from mlir_offload.offload.host.bitcode import embedded_objects, offload_entries
from mlir_offload.toolchain.bitcode import body, reference
from mlir_offload.toolchain.bitcode.bitstream import Record
from mlir_offload.toolchain.bitcode.body import Entry
from mlir_offload.toolchain.bitcode.constant import ConstantTable
from mlir_offload.toolchain.bitcode.global_value import GlobalReader, Symbol
from mlir_offload.toolchain.bitcode.module import read_bitcode
from mlir_offload.toolchain.byte_view import memory_view

LLVM = [pytest.param(release, marks=pytest.mark.llvm(release)) for release in RELEASES]
STORE, BOUNDED = "_Z5storeIdEvPT_S0_", "_Z7boundedPfPKfi5Mixed"
CALLS, DOUBLES = "_Z5calls4FourcsxPS_Dv3_fb", "_Z7doublesPdi"

# Every kind of parameter, for every GPU. `{pointer}` is a pointer to device memory.
PARAMETERS = """
%mixed = type {{ i8, double, [3 x i32] }}
%packed = type <{{ i8, double }}>
%vectors = type {{ <3 x float>, <2 x i8>, half }}
{kernel} void @k(i8 %a, double %b, i1 %c, <3 x float> %d, i16 %e, {pointer} %f, half %g,
                 ptr{space} {memory}(%mixed) align 8 %h, ptr{space} {memory}(%packed) %i, <4 x i8> %j,
                 ptr{space} {memory}(%vectors) align 64 %k, {pointer} %l, i64 %m, float %n,
                 ptr{space} {memory}([5 x i8]) align 1 %o, <2 x double> %p, i32 %q) {{
  ret void
}}
"""


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp()


def code_of(data: bytes, *, with_hashes: bool = False) -> DeviceCode:
    return read_device_bitcode(memory_view(data, location="x.bc"), with_hashes=with_hashes)


@pytest.mark.parametrize("release", LLVM)
@pytest.mark.parametrize("case", ["cuda-O0", "cuda-O2-g"])
def test_cuda_kernels_tell_what_a_launch_needs(release: int, case: str, session: Path) -> None:
    code = code_of(compile_bitcode(release, case, session).read_bytes())
    assert (code.form, code.llvm_major, code.arch) == ("LLVM bitcode", release, "sm_80")
    assert code.producer.startswith(f"LLVM{release}.")
    assert code.triple == "nvptx64-nvidia-cuda"
    assert {kernel.name for kernel in code.kernels} == {STORE, BOUNDED, CALLS, DOUBLES}
    bounded, calls = code.kernel(BOUNDED), code.kernel(CALLS)
    assert bounded
    assert calls
    assert (bounded.max_threads, bounded.min_blocks, bounded.required_threads) == (256, 2, None)
    assert bounded.parameters == (
        *(
            KernelParameter(0, 8, "ptr"),
            KernelParameter(8, 8, "ptr"),
            KernelParameter(16, 4, "i32"),
        ),
        KernelParameter(24, 32, "%struct.Mixed"),
    )
    places = [(one.offset, one.size_bytes) for one in calls.parameters or ()]
    assert places == [(0, 16), (16, 1), (18, 2), (24, 8), (32, 8), (48, 16), (64, 1)]


@pytest.mark.parametrize("release", LLVM)
@pytest.mark.parametrize("case", ["cuda-O2-g", "hip-gfx90a", "hip-gfx1100"])
def test_shared_memory_and_missing_symbols_follow_what_is_used(
    release: int, case: str, session: Path
) -> None:
    code = code_of(compile_bitcode(release, case, session).read_bytes())
    assert set(code.undefined) == {"outside", "elsewhere"}
    shared = {kernel.name: kernel.shared_bytes for kernel in code.kernels}
    # The memory of `outside` is unknown, because it is in another module.
    assert shared == {STORE: 0, BOUNDED: 32 * 33 * 4, CALLS: None, DOUBLES: 16}


@pytest.mark.parametrize("release", LLVM)
def test_hip_kernels_tell_their_largest_block(release: int, session: Path) -> None:
    code = code_of(compile_bitcode(release, "hip-gfx1100", session).read_bytes())
    assert (code.arch, code.triple) == ("gfx1100", "amdgcn-amd-amdhsa")
    assert {kernel.max_threads for kernel in code.kernels} == {1024}


@pytest.mark.parametrize("release", LLVM)
def test_kernels_of_openmp_for_the_cpu_are_known_by_their_name(release: int, session: Path) -> None:
    code = code_of(compile_bitcode(release, "openmp-device", session).read_bytes())
    (kernel,) = code.kernels
    assert kernel.name.startswith("__omp_offloading_")
    assert "__kmpc_fork_teams" in code.undefined


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"nvvm.maxntid"="16,4,2"', (128, None, None, None)),
        ('"nvvm.maxntid"="256"', (256, None, None, None)),
        ('"nvvm.reqntid"="64,2"', (None, (64, 2, 1), None, None)),
        ('"nvvm.minctasm"="3"', (None, None, 3, None)),
        ('"nvvm.maxnreg"="40"', (None, None, None, 40)),
        ('"nvvm.maxntid"="a lot"', (None, None, None, None)),
        ('"nvvm.reqntid"="1,2,3,4"', (None, None, None, None)),
        ('"amdgpu-flat-work-group-size"="64,512"', (512, None, None, None)),
        ("!reqd_work_group_size !0", (None, (8, 4, 2), None, None)),
    ],
)
def test_launch_bounds_of_attributes(
    text: str, expected: tuple[int | None, tuple[int, int, int] | None, int | None, int | None]
) -> None:
    body = f"define ptx_kernel void @k() {text} {{ ret void }}\n!0 = !{{i32 8, i32 4, i32 2}}"
    kernel = code_of(assemble(22, body)).kernel("k")
    assert kernel
    bounds = (kernel.max_threads, kernel.required_threads, kernel.min_blocks)
    assert (*bounds, kernel.max_registers) == expected


@pytest.mark.llvm(19)
def test_launch_bounds_of_annotations() -> None:
    text = """
define void @k() { ret void }
define void @no_kernel() { ret void }
!nvvm.annotations = !{!0, !1, !2}
!0 = !{ptr @k, !"kernel", i32 1, !"reqntidx", i32 32, !"reqntidz", i32 4}
!1 = !{ptr @k, !"maxntidx", i32 64, !"maxntidy", i32 2, !"minctasm", i32 5, !"maxnreg", i32 40}
!2 = !{ptr @no_kernel, !"align", i32 16}
"""
    (kernel,) = code_of(assemble(19, text)).kernels
    assert (kernel.name, kernel.max_threads, kernel.min_blocks) == ("k", 128, 5)
    assert kernel.required_threads == (32, 1, 4)
    assert kernel.max_registers == 40


@pytest.mark.parametrize("release", LLVM)
def test_arguments_of_amd_kernels_lie_where_the_backend_puts_them(release: int) -> None:
    layout = backend_layout(release, "amdgcn-amd-amdhsa")
    text = PARAMETERS.format(
        kernel="define amdgpu_kernel",
        pointer="ptr addrspace(1)",
        space=" addrspace(4)",
        memory="byref",
    )
    full = f'target triple = "amdgcn-amd-amdhsa"\ntarget datalayout = "{layout}"\n{text}'
    command = [tool(release, "llc"), "-mcpu=gfx90a", "-o", "-"]
    assembly = subprocess.run(
        command, input=full, check=True, capture_output=True, text=True
    ).stdout
    arguments = assembly[assembly.index(".args:") :]
    theirs = re.findall(
        r"\.offset: +(\d+)\n(?:.*\n)??.*\.size: +(\d+)\n +\.value_kind: +(?:by_value|global_buffer)",
        arguments,
    )
    assert len(theirs) == 17
    assert places_of(assemble(release, full)) == [(int(a), int(b)) for a, b in theirs]


@pytest.mark.parametrize("release", LLVM)
def test_parameters_of_ptx_have_the_sizes_that_the_backend_gives_them(release: int) -> None:
    layout = backend_layout(release, "nvptx64-nvidia-cuda")
    text = PARAMETERS.format(kernel="define", pointer="ptr", space="", memory="byval")
    annotation = '!nvvm.annotations = !{!0}\n!0 = !{ptr @k, !"kernel", i32 1}'
    full = (
        f'target triple = "nvptx64-nvidia-cuda"\ntarget datalayout = "{layout}"\n{text}{annotation}'
    )
    command = [tool(release, "llc"), "-mcpu=sm_80", "-o", "-"]
    source = full.replace("define void", "define ptx_kernel void")
    assembly = subprocess.run(
        command, input=source, check=True, capture_output=True, text=True
    ).stdout
    offset, theirs = 0, []
    for line in re.findall(r"\.param (.*) k_param_\d+(.*)", assembly):
        size, alignment = size_in_ptx(*line)
        offset = -(-offset // alignment) * alignment
        theirs.append((offset, size))
        offset += size
    assert len(theirs) == 17
    assert places_of(assemble(release, full)) == theirs


def size_in_ptx(head: str, tail: str) -> tuple[int, int]:
    width = int(re.findall(r"\.[a-z](\d+)", head)[-1]) // 8
    explicit = re.search(r"\.align (\d+) \.b8", head)
    count = re.match(r"\[(\d+)\]", tail)
    return width * int(count[1]) if count else width, int(explicit[1]) if explicit else width


def backend_layout(release: int, triple: str) -> str:
    command = [tool(release, "clang"), f"--target={triple}", "-nogpulib", "-x", "ir", "-S"]
    found = subprocess.run(
        [*command, "-emit-llvm", "-o", "-", "-"],
        input="",
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return str(re.findall(r'target datalayout = "(.*)"', found)[0])


def places_of(data: bytes) -> list[tuple[int, int]]:
    (kernel,) = code_of(data).kernels
    return [(one.offset, one.size_bytes) for one in kernel.parameters or ()]


@pytest.mark.parametrize(
    ("producer", "major"),
    [
        ("LLVM19.1.7", 19),
        ("LLVM3.8.0", 3),
        ("LLVM22.1.2-rust-1.95.0-stable", 22),
        ("APPLE_1_1500.1.0.2.5_0", None),
        ("", None),
    ],
)
def test_the_release_is_told_by_the_producer(producer: str, major: int | None) -> None:
    assert llvm_major(producer) == major


BEFORE = """
struct Zed { double a; int q[7]; };
__attribute__((device)) int before;
extern "C" __attribute__((device)) double zed(Zed *z) { before = 9; return z->a + z->q[3] * 3.5; }
__attribute__((global)) void early(float *p) { p[7] = 1.25f; }
"""
KERNEL = """
static __attribute__((shared)) float tile[16];
__attribute__((constant)) float scale = 2.5f;
static __attribute__((device)) __attribute__((noinline)) float twice(float v) { return v * 2 + scale; }
struct Pair { int a; float b; };
__attribute__((global)) void same(float *p, Pair s) { tile[s.a & 7] = twice(p[s.a]); *p = tile[3] + 1e9f; }
"""


@pytest.mark.parametrize("release", LLVM)
def test_a_hash_of_code_does_not_depend_on_what_else_is_in_the_module(
    release: int, tmp_path: Path
) -> None:
    hashes = [
        kernel_hash(release, source, options, tmp_path)
        for source in (KERNEL, BEFORE + KERNEL)
        for options in (("-O2",), ("-O2", "-g"))
    ]
    assert len(set(hashes)) == 1
    assert len(hashes[0]) == 64


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ 1e9f", "+ 2e9f"),
        ("v * 2", "v * 3"),
        ("s.a & 7", "s.a & 3"),
        ("+ 1e9f", "- 1e9f"),
        ("int a; float b", "float b; int a"),
        ("+ scale", "+ scale2"),
        ("tile[16]", "tile[17]"),
        ("global)) void", "global, launch_bounds(64))) void"),
    ],
)
def test_a_hash_of_code_changes_with_the_code(old: str, new: str, tmp_path: Path) -> None:
    source = KERNEL.replace("Pair", "Other" if old == new else "Pair")
    extra = "__attribute__((constant)) float scale2 = 2.5f;\n"
    changed = extra + source.replace(old, new)
    assert changed != extra + KERNEL
    one = kernel_hash(22, extra + KERNEL, ("-O1",), tmp_path)
    assert kernel_hash(22, changed, ("-O1",), tmp_path) != one


def kernel_hash(release: int, source: str, options: tuple[str, ...], folder: Path) -> str:
    (folder / "k.cu").write_text(source, encoding="utf-8")
    flags = [
        "-x",
        "cuda",
        "--cuda-device-only",
        "--cuda-gpu-arch=sm_80",
        "-nocudalib",
        "-nocudainc",
        f"--cuda-path={cuda_root()}",
    ]
    command = [
        tool(release, "clang"),
        *flags,
        *options,
        "-w",
        "-emit-llvm",
        "-c",
        "k.cu",
        "-o",
        "-",
    ]
    data = subprocess.run(command, check=True, cwd=folder, stdout=subprocess.PIPE).stdout
    return next(k for k in code_of(data, with_hashes=True).kernels if "same" in k.name).code_sha256


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    "text",
    [
        # Mutually recursive functions have no hash, because it would depend on itself.
        """define internal void @a() { call void @b() ret void }
define internal void @b() { call void @a() ret void }
define ptx_kernel void @k() { call void @a() ret void }""",
        "define ptx_kernel void @k(ptr %p) { indirectbr ptr %p, [] }",
    ],
    ids=["recursion", "indirect-branch"],
)
def test_code_that_cannot_be_compared_has_no_hash(text: str) -> None:
    kernel = code_of(assemble(22, text), with_hashes=True).kernel("k")
    assert kernel
    assert kernel.code_sha256 == ""


@pytest.mark.parametrize("release", LLVM)
def test_entries_of_a_host_module_have_members_and_names(release: int, session: Path) -> None:
    module = read_bitcode(
        memory_view(compile_bitcode(release, "openmp-host", session).read_bytes())
    )
    entries = offload_entries(module, ConstantTable(module))
    assert {one.section for one in entries} <= {"omp_offloading_entries", "llvm_offload_entries"}
    variable = next(one for one in entries if one.symbol.endswith("shared_with_device"))
    assert next(one.symbol for one in variable.members if one.symbol) == "shared_with_device"
    assert [one.string for one in variable.members if one.string] == ["shared_with_device"]
    assert 4 in [one.number for one in variable.members]
    kernel = next(one for one in entries if one is not variable)
    (name,) = (one.string for one in kernel.members if one.string)
    assert name.startswith("__omp_offloading_")


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    "content",
    [
        bytes(range(256)) * 40,
        bytes(range(256)) * 40 + bytes(3),
        b"text alone, of seven bits" * 9,
        b"letters" * 99 + b"\0",
    ],
    ids=["bytes", "ended-by-zeros", "ascii", "letters"],
)
def test_embedded_images_are_found_whatever_their_encoding(content: bytes, tmp_path: Path) -> None:
    image, source = tmp_path / "image", tmp_path / "host.c"
    image.write_bytes(content)
    source.write_text("int x;", encoding="utf-8")
    command = [tool(22, "clang"), "-c", "-emit-llvm", "-Xclang", f"-fembed-offload-object={image}"]
    output = tmp_path / "host.bc"
    subprocess.run([*command, str(source), "-o", str(output)], check=True)
    module = read_bitcode(memory_view(output.read_bytes()))
    (found,) = embedded_objects(module, ConstantTable(module))
    assert found.section == ".llvm.offloading"
    assert found.data == content


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("declared", "bodies", "undefined"),
    [
        (("missing",), 1, ("missing",)),
        (("missing", "unused"), 50, ("missing",)),
        ((), 0, ()),
    ],
    ids=["used", "unused", "none"],
)
def test_a_listing_reads_no_more_bodies_than_it_takes(
    declared: tuple[str, ...],
    bodies: int,
    undefined: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = "call void @missing()" if declared else ""
    lines = [f"declare void @{name}()" for name in declared]
    lines += [f"define void @f{number}() {{ {call} ret void }}" for number in range(50)]
    data = assemble(22, 'target triple = "nvptx64-nvidia-cuda"\n' + "\n".join(lines))
    read = []

    def read_body(*arguments: Any) -> Iterator[Entry]:
        read.append(arguments)
        return body.read_body(*arguments)

    monkeypatch.setattr(reference, "read_body", read_body)

    assert code_of(data).undefined == undefined
    assert len(read) == bodies


@pytest.mark.llvm(22)
def test_a_listing_reads_the_symbols_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(f"define void @f{number}() {{ ret void }}" for number in range(50))
    data = assemble(22, f'target triple = "nvptx64-nvidia-cuda"\n{text}')
    read_symbol, read = GlobalReader.read, []

    def counted(reader: GlobalReader, record: Record) -> Symbol:
        read.append(record)
        return read_symbol(reader, record)

    monkeypatch.setattr(GlobalReader, "read", counted)
    part = read_contents_of(memory_view(data), "x.bc")

    assert [image.triple for image in part.images] == ["nvptx64-nvidia-cuda"]
    assert len(read) == 50


@pytest.mark.llvm(22)
def test_modules_that_begin_alike_are_told_apart() -> None:
    def kernel(name: str, source: str) -> bytes:
        body = f"define ptx_kernel void @{name}(ptr %p) {{ ret void }}"
        text = f'source_filename = "{source}"\ntarget triple = "nvptx64-nvidia-cuda"\n'
        return assemble(22, f'{text}target datalayout = "e-i64:64"\n{body}')

    modules = {name: kernel(name, source) for name, source in (("a", "x"), ("b", "y" * 90))}
    for name in ("a", "b", "b", "a"):
        read = read_bitcode(memory_view(modules[name]))
        found = [function.name for function in read.functions], read.source_file[:1]
        assert found == ([name], "x" if name == "a" else "y")
        assert (read.data_layout, read.triple) == ("e-i64:64", "nvptx64-nvidia-cuda")
        assert len(read.content.bodies) == 1
        assert "ptr" in map(read.types.spell, range(len(read.types.types)))
