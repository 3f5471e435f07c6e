"""Matrix operations of a subgroup on the CPU, against plain products, in every form that has a place."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cpu_build import FAIL, PARALLEL_FOR, RANGE, Launch
from support.tensor_fragments import (
    BITS,
    FORMS,
    Matrix,
    Mma,
    encoded,
    matrix_place,
    packed,
    product,
    random_matrix,
    unpacked,
)

from mlir_offload.offload.runtime import runtime_include_directory
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.process import Command, ProcessRunner, run_checked
from mlir_offload.toolchain.tool import ToolVersion
from mlir_offload.translate.cpu.module import (
    KernelMode,
    cpu_device_ir,
    cpu_image_command,
    cpu_runtime_command,
)

PREFIX = Path("/usr/lib/llvm-22")
LLVM = LlvmToolchain(PREFIX, ToolVersion(22, 1, 0), (("clang", PREFIX / "bin" / "clang"),))
REGISTERS = {"f16": "<2 x half>", "f32": "float", "f64": "double"}
LANE_BYTES = 256

pytestmark = pytest.mark.llvm(22)
Run = Callable[[str, bytes], bytes]


def _types(element: str, size: int) -> list[str]:
    """Return the types of registers of so many bytes."""
    return [REGISTERS.get(element, "i32")] * (size * 8 // max(32, BITS[element]))


def _structure(types: list[str]) -> str:
    return types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}"


def _kernel(name: str, call: str, operands: list[str], results: list[str]) -> tuple[str, str]:
    """Return a kernel that calls an intrinsic with registers from memory, and its declaration."""
    result = _structure(results)
    lines, offset = [], 0
    for number, type_ in enumerate(operands):
        lines.append(f"  %a{number} = getelementptr i8, ptr %from, i64 {offset}")
        lines.append(f"  %x{number} = load {type_}, ptr %a{number}")
        offset += 8 if type_ == "double" else 4
    listed = ", ".join(f"{type_} %x{number}" for number, type_ in enumerate(operands))
    lines.append(f"  %r = call {result} @{call}({listed})")
    offset = 0
    for number, type_ in enumerate(results):
        value = "%r" if len(results) == 1 else f"%r{number}"
        if len(results) > 1:
            lines.append(f"  %r{number} = extractvalue {result} %r, {number}")
        lines.append(f"  %t{number} = getelementptr i8, ptr %to, i64 {offset}")
        lines.append(f"  store {type_} {value}, ptr %t{number}")
        offset += 8 if type_ == "double" else 4
    return _around(name, lines), f"declare {result} @{call}({', '.join(operands)})"


def _around(name: str, lines: list[str]) -> str:
    body = "\n".join(lines)
    return f"""define ptx_kernel void @{name}(ptr %in, ptr %out) {{
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.laneid()
  %place = mul i32 %lane, {LANE_BYTES}
  %from = getelementptr i8, ptr %in, i32 %place
  %to = getelementptr i8, ptr %out, i32 %place
{body}
  ret void
}}"""


def _size(form: Mma, operand: int) -> int:
    m, n, k = form.shape
    count = (m * k, k * n, m * n, m * n)[operand] * form.groups
    return count * BITS[form.elements[operand]] // 8 // 32


def _mma(form: Mma) -> tuple[str, str]:
    types = [_types(form.elements[operand], _size(form, operand)) for operand in range(4)]
    call = f"llvm.nvvm.mma.{form.name}"
    return _kernel(_name(form.name), call, [*types[0], *types[1], *types[2]], types[3])


def _stride(element: str) -> int:
    """Return the elements from one row or column of a and c in memory to the next."""
    return 128 if element == "b1" else 40


def _name(name: str) -> str:
    return name.replace(".", "_")


# wmma: shape, elements of a and b, of c and d, and what LLVM calls the product.
WMMA = [
    *((shape, "f16", d, f"{d}.{d}") for shape in ("m16n16k16", "m8n32k16", "m32n8k16") for d in ("f16", "f32")),
    *((shape, a, "s32", a) for shape in ("m16n16k16", "m8n32k16", "m32n8k16") for a in ("s8", "u8")),
    *((shape, "bf16", "f32", "bf16") for shape in ("m16n16k16", "m8n32k16", "m32n8k16")),
    *(("m8n8k32", a, "s32", a) for a in ("s4", "u4")),
    ("m16n16k8", "tf32", "f32", "tf32"),
    ("m8n8k4", "f64", "f64", "f64"),
    ("m8n8k128", "b1", "s32", "b1"),
]  # fmt: skip
LAYOUTS = (("row", "col"), ("col", "row"), ("row", "row"), ("col", "col"))


def _wmma_registers(shape: str, part: str, element: str) -> list[str]:
    m, n, k = _numbers(shape)
    if element == "f16" and part in "ab":
        return _types("f16", 32)
    count = {"a": m * k, "b": k * n}.get(part, m * n)
    return _types(element, count * BITS[element] // 8 // 32)


def _numbers(shape: str) -> tuple[int, int, int]:
    m, n, k = shape.replace("m", "").replace("n", " ").replace("k", " ").split()
    return int(m), int(n), int(k)


def _wmma(
    shape: str, element: str, sum_: str, product_name: str, layouts: tuple[str, str]
) -> tuple[str, str]:
    """Return a kernel: a at 0 of the input, b at 8192, c at 16384; those of b are packed."""
    lines, declared, values = [], [], {}
    offsets = {"a": 0, "b": 8192, "c": 16384}
    for part, offset in offsets.items():
        layout = {"a": layouts[0], "b": layouts[1]}.get(part, "row")
        type_ = sum_ if part == "c" else element
        stride = ".stride" if part != "b" else ""
        registers = _wmma_registers(shape, part, type_)
        result = _structure(registers)
        call = f"llvm.nvvm.wmma.{shape}.load.{part}.{layout}{stride}.{type_}.p0"
        more, operands = (f", i32 {_stride(type_)}", ", i32") if stride else ("", "")
        lines.append(f"  %p{part} = getelementptr i8, ptr %in, i64 {offset}")
        lines.append(f"  %{part} = call {result} @{call}(ptr %p{part}{more})")
        declared.append(f"declare {result} @{call}(ptr{operands})")
        values[part] = [f"{register} %{part}{i}" for i, register in enumerate(registers)]
        for i in range(len(registers)):
            single = len(registers) == 1
            lines.append(f"  %{part}{i} = " + (f"bitcast {result} %{part} to {result}" if single else f"extractvalue {result} %{part}, {i}"))  # fmt: skip
    registers = _wmma_registers(shape, "d", sum_)
    result = _structure(registers)
    bits = ".xor.popc" if element == "b1" else ""
    call = f"llvm.nvvm.wmma.{shape}.mma{bits}.{layouts[0]}.{layouts[1]}.{product_name}"
    every = [value for part in "abc" for value in values[part]]
    lines.append(f"  %d = call {result} @{call}({', '.join(every)})")
    declared.append(f"declare {result} @{call}({', '.join(v.rsplit(' ', 1)[0] for v in every)})")
    lines += [f"  %d{i} = extractvalue {result} %d, {i}" for i in range(len(registers))]
    store = f"llvm.nvvm.wmma.{shape}.store.d.row.stride.{sum_}.p0"
    listed = ", ".join(f"{register} %d{i}" for i, register in enumerate(registers))
    lines.append(f"  call void @{store}(ptr %out, {listed}, i32 48)")
    declared.append(f"declare void @{store}(ptr, {', '.join(registers)}, i32)")
    return _around(f"wmma_{shape}_{_name(product_name)}_{'_'.join(layouts)}", lines), "\n".join(
        declared
    )


def _rows(count: int, trans: str) -> tuple[str, str]:
    """Return a kernel that moves matrices by ldmatrix, and back by stmatrix."""
    types = ["i32"] * count
    result = _structure(types)
    load = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{trans}.b16.p0"
    store = f"llvm.nvvm.stmatrix.sync.aligned.m8n8.x{count}{trans}.b16.p0"
    lines = [f"  %r = call {result} @{load}(ptr %from)"]
    names = ["%r"] if count == 1 else [f"%r{i}" for i in range(count)]
    lines += [
        f"  {name} = extractvalue {result} %r, {i}" for i, name in enumerate(names) if count > 1
    ]
    for i, name in enumerate(names):
        lines.append(f"  %t{i} = getelementptr i8, ptr %to, i64 {32 + 4 * i}")
        lines.append(f"  store i32 {name}, ptr %t{i}")
    listed = ", ".join(f"i32 {name}" for name in names)
    lines.append(f"  call void @{store}(ptr %to, {listed})")
    declared = f"declare {result} @{load}(ptr)\ndeclare void @{store}(ptr, {', '.join(types)})"
    return _around(f"rows_{count}{_name(trans)}", lines), declared


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a shared image with a kernel for each form."""
    folder = tmp_path_factory.mktemp("tensor")
    parts = [_mma(form) for form in FORMS]
    parts += [_wmma(*row, layouts) for row in WMMA for layouts in _layouts_of(row)]
    parts += [_rows(count, trans) for count in (1, 2, 4) for trans in ("", ".trans")]
    declared = dict.fromkeys(line for _, lines in parts for line in lines.splitlines())
    kernels = [text.split("@", 1)[1].split("(", 1)[0] for text, _ in parts]
    laneid = "declare i32 @llvm.nvvm.read.ptx.sreg.laneid()"
    text = "\n".join(
        ('target triple = "nvptx64-nvidia-cuda"', *(t for t, _ in parts), *declared, laneid)
    )
    source = cpu_device_ir(text, kernels=kernels)
    assert {kernel.mode for kernel in source.kernels} == {KernelMode.FIBERS}
    final, runtime, made = folder / "final.ll", folder / "runtime.bc", folder / "image.o"
    final.write_text(source.text)
    run_checked(ProcessRunner(), cpu_runtime_command(LLVM, runtime))
    run_checked(ProcessRunner(), cpu_image_command(LLVM, final, runtime, made, opt_level=1))
    argv = (str(PREFIX / "bin/clang"), "-shared", "-Wl,--no-undefined", str(made), "-lm", "-o")
    run_checked(ProcessRunner(), Command((*argv, str(made.with_suffix(".so")))))
    return made.with_suffix(".so")


@pytest.fixture(scope="module")
def run(image: Path) -> Run:
    """Return what launches a kernel on the input, with a block of 32 threads."""
    library = ctypes.CDLL(str(image))

    def launch(kernel: str, data: bytes) -> bytes:
        buffers = [ctypes.create_string_buffer(data, 32768), ctypes.create_string_buffer(32768)]
        pointers = [ctypes.c_void_p(ctypes.addressof(buffer)) for buffer in buffers]
        params = (ctypes.c_void_p * 2)(*(ctypes.addressof(pointer) for pointer in pointers))
        made = Launch(1, 0, (1, 1, 1), (32, 1, 1), PARALLEL_FOR(_run_all), FAIL(_fail))
        getattr(library, kernel)(ctypes.byref(made), params)
        return bytes(buffers[1])

    return launch


def _run_all(count: int, body: int, argument: int) -> None:
    RANGE(body)(argument, 0, count)


def _fail(kernel: bytes, message: bytes) -> None:
    sys.stderr.write(f"{kernel.decode()}: {message.decode()}\n")


def _layouts_of(row: tuple[str, str, str, str]) -> tuple[tuple[str, str], ...]:
    # Of whole bytes and more, PTX has every layout; else a has rows and b has columns.
    if BITS[row[1]] < 8:
        return LAYOUTS[:1]
    return LAYOUTS if row[:3] == ("m16n16k16", "f16", "f32") else LAYOUTS[:2]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_mma_sync_multiplies_what_the_lanes_hold(run: Run, form: Mma) -> None:
    rng = random.Random(form.name)  # noqa: S311
    m, n, k = form.shape
    shapes = ((m, k), (k, n), (m, n))
    operands = [
        [random_matrix(*shape, form.elements[part], rng) for _ in range(form.groups)]
        for part, shape in enumerate(shapes)
    ]
    data = bytearray(32 * LANE_BYTES)
    for lane in range(32):
        registers = b"".join(packed(form, part, lane, operands[part]) for part in range(3))
        data[lane * LANE_BYTES : lane * LANE_BYTES + len(registers)] = registers
    out = run(_name(form.name), bytes(data))
    found: list[Matrix] = [[[0.0] * n for _ in range(m)] for _ in range(form.groups)]
    for lane in range(32):
        unpacked(form, lane, out[lane * LANE_BYTES :][: _size(form, 3)], found)
    is_xor = form.name.startswith("xor")
    expected = [product(*three, counts_differences=is_xor) for three in zip(*operands, strict=True)]
    assert found == expected


@pytest.mark.parametrize(
    ("row", "layouts"),
    [(row, layouts) for row in WMMA for layouts in _layouts_of(row)],
    ids=lambda part: "_".join(part).replace(".", "_"),
)
def test_wmma_multiplies_what_is_in_memory(
    run: Run, row: tuple[str, str, str, str], layouts: tuple[str, str]
) -> None:
    shape, element, sum_, name = row
    m, n, k = _numbers(shape)
    rng = random.Random(f"{row}{layouts}")  # noqa: S311
    a, b = random_matrix(m, k, element, rng), random_matrix(k, n, element, rng)
    c = random_matrix(m, n, sum_, rng)
    data = bytearray(32768)
    _put(data, 0, _in_order(a, layouts[0]), element, _stride(element))
    in_order = _in_order(b, layouts[1])
    _put(data, 8192, in_order, element, len(in_order[0]))
    _put(data, 16384, c, sum_, _stride(sum_))
    out = run(f"wmma_{shape}_{_name(name)}_{'_'.join(layouts)}", bytes(data))
    expected = product(a, b, c, counts_differences=element == "b1")
    size = BITS[sum_] // 8
    for i in range(m):
        for j in range(n):
            at = (i * 48 + j) * size
            bits = int.from_bytes(out[at : at + size], "little")
            assert bits == encoded(expected[i][j], sum_), (i, j)


def _in_order(matrix: Matrix, layout: str) -> Matrix:
    return matrix if layout == "row" else [list(column) for column in zip(*matrix, strict=True)]


def _put(data: bytearray, offset: int, matrix: Matrix, element: str, stride: int) -> None:
    bits = BITS[element]
    whole = int.from_bytes(data[offset : offset + 8192], "little")
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            whole |= encoded(value, element) << ((i * stride + j) * bits)
    data[offset : offset + 8192] = whole.to_bytes(8192, "little")


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_and_stmatrix_move_rows(run: Run, count: int, trans: str) -> None:
    """Row r of matrix i is at the address of lane 8 i + r; element (r, c) is in lane 4 r + c / 2."""
    data = bytearray(32 * LANE_BYTES)
    for lane in range(32):
        for column in range(8):
            value = lane * 8 + column
            at = lane * LANE_BYTES + column * 2
            data[at : at + 2] = value.to_bytes(2, "little")
    out = run(f"rows_{count}{_name(trans)}", bytes(data))
    for lane in range(32):
        got = out[lane * LANE_BYTES :]
        for matrix in range(count):
            for i in range(2):
                row, column = matrix_place(lane, i, is_transposed=bool(trans))
                at = 32 + matrix * 4 + i * 2
                assert int.from_bytes(got[at : at + 2], "little") == matrix * 64 + row * 8 + column
        if lane < 8 * count:
            assert got[:16] == bytes(data[lane * LANE_BYTES : lane * LANE_BYTES + 16])


PROGRAMS = Path(__file__).parents[1] / "gpu" / "cuda" / "programs"
INPUTS = Path(__file__).parent / "inputs"


def test_operations_of_the_dialects_give_the_numbers_of_plain_products(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    """`gpu.subgroup_mma_*`, `nvgpu.mma.sync`, `nvgpu.ldmatrix`, `nvgpu.device_async_copy`, and clusters."""
    program = str(tmp_path / "program")
    inputs = (INPUTS / "matrices.mlir", INPUTS / "clusters.mlir", PROGRAMS / "matrices.c")
    sources = map(str, inputs)
    flags = ("--llvm=22", "--offload-arch=host", "-O1")
    subprocess.run([*mlir_offload, *flags, *sources, "-o", program], check=True)
    ran = subprocess.run([program], check=True, capture_output=True, text=True)
    ways = ("wmma", "mma.sync f16", "mma.sync tf32", "element by element", "clusters")
    assert ran.stdout == "".join(f"{way}: 0 wrong\n" for way in ways)


def test_a_matrix_operation_of_a_part_of_a_subgroup_ends_the_program(
    image: Path, tmp_path: Path
) -> None:
    launcher, runtime = str(tmp_path / "launcher"), runtime_include_directory()
    sources = (f"-I{runtime}", str(INPUTS / "cpu_device_launcher.c"))
    subprocess.run([str(PREFIX / "bin/clang"), *sources, "-o", launcher], check=True)
    argv = [launcher, str(image), "rows_1", "31"]
    ran = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert ran.returncode == 3
    message = "31 threads of a subgroup execute a matrix operation that needs all 32"
    assert ran.stderr == f"rows_1: {message}\n"
