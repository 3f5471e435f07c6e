from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import pytest
from support.hostile import (
    assert_bounded,
    bit_flips,
    extreme_fields,
    spliced,
    survives,
    truncations,
)

from mlir_offload.offload.device.kernel import DeviceCode, DeviceKernel
from mlir_offload.offload.device.spirv import is_spirv, read_spirv, spirv_kernel_names
from mlir_offload.toolchain.byte_view import memory_view, open_view
from mlir_offload.toolchain.errors import VerificationError

CLANG = "/usr/lib/llvm-22/bin/clang"
OPENCL = """
typedef float float3 __attribute__((ext_vector_type(3)));
typedef float float4 __attribute__((ext_vector_type(4)));
typedef struct { int a[5]; char c; } S;
typedef struct __attribute__((packed)) { char c; int a; short b; } P;
int other(int);
__attribute__((reqd_work_group_size(64, 2, 1))) kernel void fixed(global float *p, int n) { p[n] = n; }
__attribute__((intel_reqd_sub_group_size(16)))
kernel void passes(global float *restrict p, S s, char c, local int *l, double d, float4 v, P q, float3 w)
{ l[0] = c + q.a; p[0] = s.a[2] + c + d + v.x + w.y; }
kernel void calls(global int *p) { *p = other(3); }
kernel void nothing() {}
"""


def read(data: bytes) -> DeviceCode:
    return read_spirv(memory_view(data))


def compile_opencl(path: Path, triple: str = "spirv64", *options: str) -> Path:
    argv = [CLANG, "-x", "cl", "-", "-O1", "-w", f"--target={triple}", *options, "-o", str(path)]
    subprocess.run(argv, input=OPENCL, text=True, check=True)
    return path


@pytest.mark.llvm(22)
@pytest.mark.parametrize(("triple", "pointer"), [("spirv64", 8), ("spirv32", 4)])
def test_kernels_are_told_as_the_back_end_prints_them(
    triple: str, pointer: int, tmp_path: Path
) -> None:
    text = compile_opencl(tmp_path / "k.txt", triple, "-S").read_text()
    with open_view(compile_opencl(tmp_path / "k.spv", triple, "-c")) as view:
        assert is_spirv(view)
        code = read_spirv(view)
        names = spirv_kernel_names(view)
    assert list(names) == re.findall(r'OpEntryPoint Kernel %\d+ "(\w+)"', text)
    assert [kernel.name for kernel in code.kernels] == list(names)
    assert (code.form, code.producer, code.llvm_major) == ("SPIR-V", "LLVM SPIR-V Backend 22", 22)
    assert code.triple == f"{triple}-unknown-unknown"
    assert re.fullmatch(r"v1\.\d", code.arch)
    assert (code.undefined, code.is_relocatable) == (("other",), True)
    fixed, passes, _, nothing = code.kernels
    assert (fixed.required_threads, fixed.subgroup_size) == ((64, 2, 1), None)
    assert (passes.required_threads, passes.subgroup_size) == (None, 16)
    assert nothing.parameters == ()
    assert [(p.size_bytes, p.type) for p in passes.parameters or ()] == [
        (pointer, "OpTypePointer CrossWorkgroup"),
        (24, "OpTypeStruct"),
        (1, "OpTypeInt 8"),
        (pointer, "OpTypePointer Workgroup"),
        (8, "OpTypeFloat 64"),
        (16, "OpTypeVector"),
        (7, "OpTypeStruct"),
        (16, "OpTypeVector"),
    ]
    offsets = [p.offset for p in passes.parameters or ()]
    ends = [p.offset + p.size_bytes for p in passes.parameters or ()]
    assert all(first <= second for first, second in zip(ends, offsets[1:], strict=False))
    assert [offset % p.size_bytes for offset, p in zip(offsets, passes.parameters or (), strict=True) if p.type != "OpTypeStruct"] == [0] * 6  # fmt: skip


@pytest.mark.llvm(22)
def test_the_size_of_a_kernel_is_that_of_its_instructions(tmp_path: Path) -> None:
    path = compile_opencl(tmp_path / "k.spv", "spirv64", "-c")
    data = path.read_bytes()
    functions, place = [], 20
    while place < len(data):
        word = int.from_bytes(data[place : place + 4], "little")
        if word & 0xFFFF == 54:
            functions.append(place)
        place += 4 * (word >> 16)
        if word & 0xFFFF == 56:
            functions[-1] = place - functions[-1]
    assert {kernel.code_bytes for kernel in read(data).kernels} <= set(functions)


@pytest.mark.llvm(22)
def test_both_orders_of_bytes_are_read(tmp_path: Path) -> None:
    data = compile_opencl(tmp_path / "k.spv", "spirv64", "-c").read_bytes()
    count = len(data) // 4
    swapped = struct.pack(f">{count}I", *struct.unpack(f"<{count}I", data))
    assert is_spirv(memory_view(swapped))
    assert read(swapped) == read(data)


@pytest.mark.llvm(22)
def test_damaged_modules_are_refused_or_read(tmp_path: Path) -> None:
    data = compile_opencl(tmp_path / "k.spv", "spirv64", "-c").read_bytes()
    assert survives(read, truncations(data, step=3)) > 0
    assert survives(read, bit_flips(data, step=17)) > 0
    assert survives(read, extreme_fields(data, limit=200)) > 0
    survives(read, spliced(data, 200))


def instruction(operation: int, *operands: int) -> list[int]:
    return [(len(operands) + 1) << 16 | operation, *operands]


def module(*instructions: list[int], generator: int = 0x00060001) -> bytes:
    words = [
        0x07230203,
        0x10200,
        generator,
        100,
        0,
        *(word for one in instructions for word in one),
    ]
    return struct.pack(f"<{len(words)}I", *words)


K = int.from_bytes(b"k\0\0\0", "little")
ENTRY = instruction(15, 6, 1, K)
PHYSICAL64 = instruction(14, 2, 2)
VOID = instruction(19, 2)


def kernel_of(*types: list[int], parameters: tuple[int, ...]) -> DeviceKernel:
    """Return the only kernel of a module; its parameters are of the types of these ids."""
    body = [instruction(55, kind, 50 + i) for i, kind in enumerate(parameters)]
    function = instruction(33, 40, 2, *parameters)
    start, end = instruction(54, 2, 1, 0, 40), instruction(56)
    (kernel,) = read(module(PHYSICAL64, ENTRY, VOID, *types, function, start, *body, end)).kernels
    return kernel


INT8, INT32, INT64 = (instruction(21, 3 + i, bits, 0) for i, bits in enumerate((8, 32, 64)))


@pytest.mark.parametrize(
    ("types", "kind", "size"),
    [
        ([INT8], 3, 1),
        ([INT32, instruction(43, 4, 6, 5), instruction(28, 7, 4, 6)], 7, 20),
        ([INT32, INT64, instruction(43, 5, 6, 5, 0), instruction(28, 7, 4, 6)], 7, 20),
        ([INT32, instruction(23, 7, 4, 3)], 7, 16),
        ([INT8, INT64, instruction(30, 7, 3, 5, 3)], 7, 24),
        ([instruction(71, 7, 10), INT8, INT64, instruction(30, 7, 3, 5, 3)], 7, 10),
        ([INT32, instruction(32, 7, 5, 4)], 7, 8),
        ([instruction(30, 7)], 7, 0),
    ],
)
def test_sizes_of_types_are_those_of_opencl(types: list[list[int]], kind: int, size: int) -> None:
    (parameter,) = kernel_of(*types, parameters=(kind,)).parameters or ()
    assert (parameter.offset, parameter.size_bytes) == (0, size)


@pytest.mark.parametrize(
    "types",
    [
        [instruction(26, 7)],
        [instruction(25, 7, 2, 1, 0, 0, 0, 0, 0)],
        [],
        [INT64, instruction(43, 5, 6, 2**32 - 1, 2**32 - 1), instruction(28, 7, 5, 6)],
        [INT32, instruction(28, 7, 4, 6)],
        [instruction(30, 7, 7)],
        [instruction(28, 7, 7, 7)],
    ],
)
def test_layouts_that_the_module_does_not_tell_are_unknown(types: list[list[int]]) -> None:
    assert kernel_of(*types, parameters=(7,)).parameters is None


def test_a_logical_module_has_no_size_of_pointers() -> None:
    pointer, function = instruction(32, 7, 12, 4), instruction(33, 40, 2, 7)
    body = instruction(54, 2, 1, 0, 40), instruction(55, 7, 50), instruction(56)
    logical = instruction(14, 0, 1)
    code = read(module(logical, ENTRY, VOID, INT32, pointer, function, *body))
    assert (code.triple, code.kernels[0].parameters) == ("spirv-unknown-unknown", None)
    assert (code.producer, code.llvm_major) == ("Khronos LLVM/SPIR-V Translator 1", None)


def test_entry_points_of_shaders_and_of_missing_functions_are_no_kernels() -> None:
    shader = instruction(15, 5, 1, K)
    body = instruction(54, 2, 1, 0, 40), instruction(56)
    assert read(module(PHYSICAL64, shader, VOID, *body)).kernels == ()
    assert read(module(PHYSICAL64, ENTRY, VOID)).kernels == ()


def test_bounds_of_work_groups_are_read() -> None:
    modes = instruction(16, 1, 5893, 8, 4, 2), instruction(16, 1, 38, 1, 2, 3)
    body = instruction(54, 2, 1, 0, 40), instruction(56)
    (kernel,) = read(module(PHYSICAL64, ENTRY, *modes, VOID, *body)).kernels
    assert (kernel.max_threads, kernel.required_threads) == (64, None)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "module at offset 0: 0 bytes are not a whole number of words"),
        (module()[:18], "module at offset 0: 18 bytes"),
        (module() + b"\0", "module at offset 0: 21 bytes"),
        (b"\x7fELF" + module()[4:], "magic number at offset 0"),
        (module([0]), "instruction 0 at offset 20: its 0 words do not fit"),
        (module(VOID, [9 << 16 | 15]), "instruction 15 at offset 28: its 9 words do not fit"),
    ],
)
def test_errors_name_the_instruction_and_its_place(data: bytes, reason: str) -> None:
    with pytest.raises(VerificationError, match=f"malformed SPIR-V: {reason}"):
        read(data)


def test_many_types_and_constants_take_a_bounded_multiple_of_their_size() -> None:
    types = (instruction(21, number, 32, 0) for number in range(10_000))
    assert_bounded(read, module(*types), 24)
    constants = (instruction(43, 4, number, number) for number in range(10_000))
    assert_bounded(read, module(*constants), 16)
    doubling = (instruction(30, number, number - 1, number - 1) for number in range(10, 5_000))
    assert read(module(instruction(21, 9, 8, 0), *doubling)).kernels == ()
    names = (instruction(71, 9, 41, *[0x61616161] * 3, number, 0, 1) for number in range(5_000))
    assert_bounded(read, module(*names), 24)
