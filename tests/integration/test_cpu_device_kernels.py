"""Device modules compiled for the CPU by each release, loaded, and run with known results."""

from __future__ import annotations

import ctypes
import math
import random
import re
from collections.abc import Callable
from itertools import product

import pytest
from support.cpu_build import Build, Dim3, Program, ints

from mlir_offload.toolchain.process import Command, ProcessRunner, run_checked
from mlir_offload.translate.cpu.collapse.place import LARGEST_BLOCK
from mlir_offload.translate.cpu.module import (
    CpuDeviceSource,
    KernelMode,
    cpu_device_ir,
    cpu_runtime_command,
)
from mlir_offload.translate.cpu.replacement import load_calls

RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
# The kernels besides `nested`, which takes its barriers in all ways that strips have to follow.
OTHER_KERNELS = re.compile(r"^    gpu\.func @(?!nested\()(?s:.*?)^    }\n", re.MULTILINE)


@pytest.fixture(scope="module", params=RELEASES)
def build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Build:
    return Build(request.param, tmp_path_factory.mktemp(f"cpu{request.param}"))


@pytest.fixture(scope="module")
def plain(build: Build) -> Program:
    """What is made without libLLVM."""
    return build.program(build.input("cpu_device.mlir"), stem="plain")


@pytest.fixture(scope="module")
def rows(build: Build) -> Program:
    source = build.input("cpu_device.mlir")
    return build.program(source, stem="rows", collapses=True, lanes=LARGEST_BLOCK)


@pytest.fixture(scope="module")
def fibers(build: Build) -> Program:
    return build.program(
        build.input("cpu_device.mlir"), stem="fibers", opt_level=1, fibers_only=True
    )


@pytest.fixture(scope="module")
def strips(build: Build) -> Program:
    return build.program(build.input("cpu_device.mlir"), stem="strips", collapses=True)


@pytest.fixture(params=["plain", "fibers", "strips", "rows"])
def program(
    request: pytest.FixtureRequest, plain: Program, fibers: Program, strips: Program, rows: Program
) -> Program:
    return {"plain": plain, "fibers": fibers, "strips": strips, "rows": rows}[request.param]


def test_only_without_libllvm_kernels_with_barriers_need_fibers(
    plain: Program, strips: Program, rows: Program
) -> None:
    fibers = {name for name, mode in plain.modes.items() if mode is KernelMode.FIBERS}
    assert fibers == {"total", "divergent", "active", "scan", "settle", "nested", "flip"}
    assert KernelMode.FIBERS not in {*strips.modes.values(), *rows.modes.values()}


@pytest.mark.parametrize("lanes", [16, 64])
def test_strips_of_any_width_compute_the_same(build: Build, plain: Program, lanes: int) -> None:
    # The fixture `strips` has 32.
    source = build.directory / f"lanes{lanes}.mlir"
    source.write_text(OTHER_KERNELS.sub("", build.input("cpu_device.mlir").read_text()))
    strips = build.program(source, stem=f"lanes{lanes}", collapses=True, lanes=lanes)
    assert strips.modes["nested"] is KernelMode.STRIPS
    for block in ((64, 2, 1), (16, 3, 2), (7, 3, 1)):
        threads = math.prod(block)
        values = [(i * 11) % 29 for i in range(2 * threads)]
        results = []
        for program in (strips, plain):
            data = ints(values)
            arguments = [data, ctypes.c_int64(3), ctypes.c_int64(2), ctypes.c_bool(True)]  # noqa: FBT003
            program.launch("nested", (2, 1, 1), block, arguments)
            results.append(list(data))
        assert results[0] == results[1] != values


def test_tiles_and_histograms_are_right_in_blocks_of_any_width(build: Build) -> None:
    program = build.program(build.input("cpu_tiles.mlir"), stem="tiles", collapses=True)
    assert set(program.modes.values()) == {KernelMode.STRIPS}
    values = [i * 7 % 31 for i in range(256)]
    for width, height in ((16, 16), (32, 8), (8, 32), (64, 4)):
        made = ints([0] * 256)
        program.launch("tile", (1, 1, 1), (width, height, 1), [ints(values), made])
        assert list(made) == [
            sum(values[y % 16 * 16 + k] * values[k * 16 + x % 16] for k in range(16))
            for y in range(height)
            for x in range(width)
        ]
    for width in (24, 32, 64, 96):
        keys = [i * i % 256 for i in range(4 * width)]
        counts = ints([0] * 256)
        program.launch("histogram", (1, 1, 1), (width, 1, 1), [ints(keys), counts])
        assert list(counts) == [keys.count(key) for key in range(256)]


@pytest.mark.parametrize("size", [1, 7, 32, 100, 1024])
def test_scan_with_barriers_in_a_loop(program: Program, size: int) -> None:
    values = [(i * 7) % 11 - 3 for i in range(3 * size)]
    data = ints(values)
    program.launch("scan", (3, 1, 1), (size, 1, 1), [data])
    expected = [sum(values[i // size * size : i + 1]) for i in range(3 * size)]
    assert list(data) == expected


@pytest.mark.parametrize("size", [1, 5, 64, 130])
def test_loop_until_a_shared_flag_stays_clear(program: Program, size: int) -> None:
    values = [(i * 37) % 101 for i in range(2 * size)]
    data, turns = ints(values), ints([0] * (2 * size))
    program.launch("settle", (2, 1, 1), (size, 1, 1), [data, turns])
    expected = [min(values[i : (i // size + 1) * size]) for i in range(2 * size)]
    assert list(data) == expected
    assert all(len(set(turns[b * size : (b + 1) * size])) == 1 for b in range(2))


LOOPS = 40


def _many_barriers() -> str:
    """Return a kernel of loops with two barriers each, and a value of each that is used at the end."""
    shared = "memref<64xi32, #gpu.address_space<workgroup>>"
    loops = "".join(
        f"""
      %c{k} = arith.constant {k + 1} : i32
      scf.for %l{k} = %zero to %n step %one {{
        %a{k} = memref.load %m[%i] : memref<?xi32>
        memref.store %a{k}, %w[%i] : {shared}
        gpu.barrier
        %b{k} = memref.load %w[%j] : {shared}
        gpu.barrier
        %d{k} = arith.addi %b{k}, %c{k} : i32
        memref.store %d{k}, %m[%i] : memref<?xi32>
      }}
      %v{k} = memref.load %m[%i] : memref<?xi32>"""
        for k in range(LOOPS)
    )
    sums = "".join(
        f"""
      %p{k} = arith.muli %v{k}, %c{k} : i32
      %s{k + 1} = arith.addi %s{k}, %p{k} : i32"""
        for k in range(LOOPS)
    )
    return f"""
module attributes {{gpu.container_module}} {{
  gpu.module @many {{
    gpu.func @many(%m: memref<?xi32>, %n: index) workgroup(%w : {shared}) kernel {{
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %s0 = arith.constant 0 : i32
      %i = gpu.thread_id x
      %size = gpu.block_dim x
      %last = arith.subi %size, %one : index
      %j = arith.subi %last, %i : index{loops}{sums}
      memref.store %s{LOOPS}, %m[%i] : memref<?xi32>
      gpu.return
    }}
  }}
}}
"""


def _sums_of_many(values: list[int], turns: int) -> list[int]:
    sums = [0] * len(values)
    for k in range(LOOPS):
        for _ in range(turns):
            values = [value + k + 1 for value in reversed(values)]
        sums = [total + value * (k + 1) for total, value in zip(sums, values, strict=True)]
    return sums


def test_code_between_many_barriers_is_bounded_and_right(build: Build) -> None:
    source = build.directory / "many.mlir"
    source.write_text(_many_barriers())
    program = build.program(source, stem="many", collapses=True)
    assert program.modes == {"many": KernelMode.STRIPS}
    values = [(i * 7) % 11 - 3 for i in range(24)]
    for turns in (0, 1, 3):
        data = ints(values)
        program.launch("many", (1, 1, 1), (24, 1, 1), [data, ctypes.c_int64(turns)])
        assert list(data) == _sums_of_many(values, turns)


@pytest.mark.parametrize("block", [(1, 1, 1), (8, 1, 1), (5, 7, 1), (64, 2, 1), (33, 31, 1)])
@pytest.mark.parametrize("odd", [False, True])
def test_nested_barriers_agree_with_fibers(
    rows: Program, fibers: Program, block: Dim3, *, odd: bool
) -> None:
    size = block[0] * block[1]
    results = []
    for program in (rows, fibers):
        data = ints([(i * 13) % 97 for i in range(3 * size)])
        arguments = [data, ctypes.c_int64(4), ctypes.c_int64(3), ctypes.c_bool(odd)]
        program.launch("nested", (3, 1, 1), block, arguments)
        results.append(list(data))
    assert results[0] == results[1]
    assert len(set(results[0])) > 1 or size == 1


@pytest.mark.parametrize("block", [(1, 1, 1), (20, 1, 1), (60, 3, 1), (12, 45, 1), (32, 32, 1)])
def test_all_reduce_over_blocks_of_any_size(program: Program, block: Dim3) -> None:
    size = block[0] * block[1]
    data, out = ints(list(range(size))), ints([0] * size)
    program.launch("total", (1, 1, 1), block, [data, out])
    assert set(out) == {size * (size - 1) // 2}


def test_shuffles_on_both_sides_of_a_branch(program: Program) -> None:
    data, valid = ints(list(range(64))), ints([0] * 64)
    program.launch("divergent", (1, 1, 1), (64, 1, 1), [data, valid])
    for i in range(64):
        lane = i % 32
        if i % 2:
            assert (data[i], valid[i]) == (i ^ 2, 1)
        else:
            assert (data[i], valid[i]) == ((i + 2, 1) if lane + 2 < 32 else (i, 0))


def test_active_lanes_are_those_at_the_same_call(program: Program, strips: Program) -> None:
    assert strips.modes["active"] is KernelMode.STRIPS
    masks = (ctypes.c_uint32 * 120)()
    program.launch("active", (1, 1, 1), (40, 1, 1), [masks])
    for thread in range(40):
        lanes = range(8 if thread >= 32 else 32)
        groups = (
            lanes,
            [n for n in lanes if (n ^ thread) % 2 == 0],
            range(20) if thread < 20 else (),
        )
        assert masks[3 * thread : 3 * thread + 3] == [
            sum(1 << n for n in group) for group in groups
        ]


def test_atomics_lose_no_update_between_threads(program: Program) -> None:
    bins, total = ints([0] * 8), (ctypes.c_float * 1)()
    program.launch("count", (200, 1, 1), (256, 1, 1), [bins, total])
    assert list(bins) == [200 * 32] * 8
    assert total[0] == 200 * 256 / 2


@pytest.mark.parametrize("size", [1, 33, 1024])
def test_dynamic_shared_memory_is_sized_by_the_launch(program: Program, size: int) -> None:
    data = (ctypes.c_double * size)(*(i / size for i in range(size)))
    program.launch("flip", (1, 1, 1), (size, 1, 1), [data], shared=8 * size)
    for i in range(size):
        assert math.isclose(data[i], math.exp((size - 1 - i) / size), rel_tol=1e-12)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (2, 5), (3, 3), (40, 21), (64, 16)])
def test_conditions_on_two_axes(program: Program, width: int, height: int) -> None:
    values = [(i * 31) % 17 for i in range(width * height)]
    data, out = ints(values), ints([-1] * (width * height))
    sizes = [ctypes.c_int64(width), ctypes.c_int64(height)]
    grid = (-(-width // 16), -(-height // 8), 1)
    program.launch("stencil", grid, (16, 8, 1), [data, out, *sizes])
    for y in range(height):
        for x in range(width):
            i = y * width + x
            inside = 0 < x < width - 1 and 0 < y < height - 1
            expected = -1
            if inside:
                expected = values[i - 1] + values[i + 1] + values[i - width] + values[i + width]
            assert out[i] == expected, (x, y)


def test_printf_formats_packed_arguments(
    program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    program.launch("talk", (1, 1, 1), (3, 1, 1), [ints([7, -8, 9])])
    ctypes.CDLL(None).fflush(None)
    expected = "7 is 0,  0.50 %\n-8 is 1,  0.50 %\n9 is 2,  0.50 %\n"
    assert capfd.readouterr().out == expected


PREDICATES: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "ult": lambda a, b: a < b,
    "ule": lambda a, b: a <= b,
    "ugt": lambda a, b: a > b,
    "uge": lambda a, b: a >= b,
    "slt": lambda a, b: a < b,
    "sle": lambda a, b: a <= b,
    "sgt": lambda a, b: a > b,
    "sge": lambda a, b: a >= b,
}


def comparison_kernel(predicate: str, type_: str, *, swapped: bool) -> str:
    """Store whether `x + offset` compares so with the bound."""
    operands = "%bound, %at" if swapped else "%at, %bound"
    cast = (
        "%x = arith.index_cast %t : index to i32"
        if type_ == "i32"
        else "%x = arith.index_cast %t : index to i64"
    )
    return f"""
    gpu.func @{predicate}_{type_}_{"right" if swapped else "left"}(%out: memref<?xi32>, %offset: {type_}, %bound: {type_}) kernel {{
      %c1 = arith.constant 1 : i32
      %c0 = arith.constant 0 : i32
      %t = gpu.thread_id x
      {cast}
      %at = arith.addi %x, %offset : {type_}
      %holds = arith.cmpi {predicate}, {operands} : {type_}
      scf.if %holds {{
        memref.store %c1, %out[%t] : memref<?xi32>
      }} else {{
        memref.store %c0, %out[%t] : memref<?xi32>
      }}
      gpu.return
    }}"""


@pytest.fixture(scope="module")
def comparisons(build: Build) -> Program:
    kernels = [
        comparison_kernel(predicate, type_, swapped=swapped)
        for predicate in PREDICATES
        for type_, swapped in (("i32", False), ("i64", True))
    ]
    source = build.directory / "comparisons.mlir"
    source.write_text(
        "module attributes {gpu.container_module} {\n  gpu.module @device {"
        + "".join(kernels)
        + "\n  }\n}\n"
    )
    return build.program(
        source, stem="comparisons", opt_level=1, collapses=True, lanes=LARGEST_BLOCK
    )


@pytest.mark.parametrize("predicate", PREDICATES)
def test_rows_are_cut_where_a_comparison_changes(comparisons: Program, predicate: str) -> None:
    for bits, ctype, side in ((32, ctypes.c_int32, "left"), (64, ctypes.c_int64, "right")):
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        edges = [0, 1, -1, 5, -5, 19, 20, 21, low, low + 3, high, high - 3, high - 19, low + 20]
        pairs = [(a, b) for a in edges for b in edges]
        for offset, bound in random.Random(0).sample(pairs, 80):  # noqa: S311
            out = ints([7] * 20)
            name = f"{predicate}_i{bits}_{side}"
            comparisons.launch(name, (1, 1, 1), (20, 1, 1), [out, ctype(offset), ctype(bound)])
            expected = [compare(predicate, x + offset, bound, bits, side) for x in range(20)]
            assert list(out) == expected, (bits, offset, bound)


def compare(predicate: str, at: int, bound: int, bits: int, side: str) -> int:
    mask = (1 << bits) - 1
    operands = [at & mask, bound & mask]
    if predicate.startswith("s"):
        operands = [value - (value >> (bits - 1) << bits) for value in operands]
    if side == "right":
        operands.reverse()
    return int(PREDICATES[predicate](*operands))


def test_two_images_link_into_one(build: Build) -> None:
    source = build.directory / "two.mlir"
    images = []
    for number in (1, 2):
        source.write_text(
            "module attributes {gpu.container_module} {\n  gpu.module @m {"
            "\n    func.func private @value() -> i32 {"
            f"\n      %v = arith.constant {number} : i32\n      return %v : i32\n    }}"
            f"\n    gpu.func @k{number}(%out: memref<?xi32>) kernel {{"
            "\n      %t = gpu.thread_id x\n      %v = func.call @value() : () -> i32"
            "\n      memref.store %v, %out[%t] : memref<?xi32>\n      gpu.return\n    }\n  }\n}\n"
        )
        text, symbols = build.lower(source)
        device = cpu_device_ir(text, kernels=tuple(symbols.values()))
        images.append((build.image(device, f"two{number}", 2), symbols))
    library = build.load(*(image for image, _ in images))
    for number, (_, symbols) in enumerate(images, 1):
        out = ints([0, 0, 0])
        Program(library, symbols, {}).launch(f"k{number}", (1, 1, 1), (3, 1, 1), [out])
        assert list(out) == [number] * 3


@pytest.fixture(scope="module")
def parted(build: Build) -> Program:
    return build.program(build.input("cpu_strips.mlir"), stem="parted", collapses=True)


@pytest.mark.parametrize(("size", "limit"), [(64, 64), (64, 40), (96, 1), (50, 33), (1024, 1000)])
def test_threads_may_return_before_a_barrier(parted: Program, size: int, limit: int) -> None:
    assert parted.modes["reverse"] is KernelMode.STRIPS
    data = ints(range(size))
    parted.launch("reverse", (1, 1, 1), (size, 1, 1), [data, ctypes.c_int64(limit)])
    assert list(data) == [*reversed(range(limit)), *range(limit, size)]


@pytest.mark.parametrize(("size", "limit"), [(64, 64), (64, 40), (33, 33), (96, 2)])
def test_a_shuffle_of_some_lanes(parted: Program, size: int, limit: int) -> None:
    assert parted.modes["partial"] is KernelMode.STRIPS
    data = ints([3 * i + 1 for i in range(size)])
    values = list(data)
    parted.launch("partial", (1, 1, 1), (size, 1, 1), [data, ctypes.c_int64(limit)])
    # A lane whose source does not take part gets its own value.
    sums = [values[i] + values[i ^ 1 if i ^ 1 < limit else i] for i in range(limit)]
    assert list(data) == [*sums, *values[limit:]]


@pytest.mark.parametrize("size", [32, 50, 96])
def test_threads_that_leave_a_loop_in_different_iterations_meet_after_it(
    parted: Program, size: int
) -> None:
    assert parted.modes["leave_loop"] is KernelMode.STRIPS
    data = ints([0] * size)
    parted.launch("leave_loop", (1, 1, 1), (size, 1, 1), [data])
    found = [sum(range(i + 1)) + 100 if i < 9 else sum(range(9)) for i in range(size)]
    assert list(data) == [sum(found[i // 32 * 32 :][:32]) for i in range(size)]


@pytest.mark.parametrize("number", [1, 31, 32, 45, 49])
@pytest.mark.parametrize("value", [-5, 60])
def test_code_of_one_thread(parted: Program, number: int, value: int) -> None:
    assert parted.modes["one_thread"] is KernelMode.STRIPS
    data = ints([value] * 50)
    parted.launch("one_thread", (1, 1, 1), (50, 1, 1), [data, ctypes.c_int32(number)])
    total = value * (32 if number < 32 else 18)
    last = number if value < number else value + number * total
    expected = [value] * 50
    expected[number] = int(last / number)
    assert list(data) == expected


def test_one_lane_stores_without_a_mask(build: Build) -> None:
    text, symbols = build.lower(build.input("cpu_strips.mlir"))
    source = cpu_device_ir(text, kernels=(symbols["one_lane"],), for_collapse=True)
    image = build.image(build.finish(source, "lone"), "lone", 2, march="x86-64-v4")
    objdump = build.llvm.prefix / "bin" / "llvm-objdump"
    listing = run_checked(ProcessRunner(), Command((str(objdump), "-d", str(image)))).stdout
    assert "vpaddd" in listing
    assert "scatter" not in listing
    program = Program(build.load(image), symbols, {})
    for number in (0, 17, 31, 40):
        data = ints(range(64))
        program.launch("one_lane", (1, 1, 1), (64, 1, 1), [data, ctypes.c_int64(number)])
        expected = [*range(64)]
        if number < 32:
            expected[number], expected[number + 32] = sum(range(32)), sum(range(32, 64))
        assert list(data) == expected


FIRST_LANES = """
module attributes {gpu.container_module} {
  gpu.module @first_lanes {
    gpu.func @first_lanes(%x: memref<?xi32>, %y: memref<?xi32>, %turns: index) kernel {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c32 = arith.constant 32 : index
      %zero = arith.constant 0 : i32
      %t = gpu.thread_id x
      %sum = scf.for %j = %c0 to %turns step %c1 iter_args(%a = %zero) -> (i32) {
        %i = arith.addi %t, %j : index
        %v = memref.load %x[%i] : memref<?xi32>
        %w = arith.addi %a, %v : i32
        scf.yield %w : i32
      }
      %lane = arith.remui %t, %c32 : index
      %is_first = arith.cmpi eq, %lane, %c0 : index
      scf.if %is_first {
        memref.store %sum, %y[%t] : memref<?xi32>
      }
      gpu.return
    }
  }
}
"""


def test_the_first_lane_of_a_strip_is_chosen_at_compile_time(build: Build) -> None:
    source = build.directory / "first_lanes.mlir"
    source.write_text(FIRST_LANES)
    text, symbols = build.lower(source)
    device = cpu_device_ir(text, kernels=tuple(symbols.values()), for_collapse=True)
    done = build.finish(device, "first_lanes")
    (body,) = re.findall(r"^define .*@first_lanes\.run\((?s:.*?)^}", done.text, re.MULTILINE)
    # The other one is a test of the size of the block.
    assert len(re.findall(r"= and i\d+ .*, 31$", body, re.MULTILINE)) == 1
    program = Program(build.load(build.image(done, "first_lanes", 2)), symbols, {})
    for size in (64, 50):
        given, found = ints(range(70)), ints([-1] * 70)
        program.launch("first_lanes", (1, 1, 1), (size, 1, 1), [given, found, ctypes.c_int64(3)])
        expected = [3 * n + 3 if n < size and n % 32 == 0 else -1 for n in range(70)]
        assert list(found) == expected


@pytest.mark.parametrize("size", [32, 50, 96, 256])
@pytest.mark.parametrize("mask", [0, 17, 33, 200])
def test_comparisons_with_a_multiple_of_the_strip(parted: Program, size: int, mask: int) -> None:
    assert parted.modes["compare"] is KernelMode.STRIPS
    data = ints([0] * size)
    parted.launch("compare", (1, 1, 1), (size, 1, 1), [data, ctypes.c_int32(mask)])
    assert list(data) == [compared(thread, size, mask) for thread in range(size)]


def compared(thread: int, size: int, mask: int) -> int:
    partner, near, byte = thread ^ mask, thread ^ 3, (thread + 128) % 256 - 128
    beyond, other = ((n + 64) ^ mask for n in (thread, thread ^ 1 if thread ^ 1 < size else thread))
    result = other + 64 * (thread < 32)
    for holds in (partner < size, beyond < 128, near > 31, byte < 32, near > 5, near < 3):
        result = 2 * result + holds
    return result


# The value stored at an odd place of `b` is loaded from `a`, which is the same memory.
STRUCTURES = """
module attributes {gpu.container_module} {
  gpu.module @structures {
    gpu.func @structures(%a: memref<?xi32>, %b: memref<?xi32>, %out: memref<?xi32>) kernel {
      %one = arith.constant 1 : index
      %two = arith.constant 2 : index
      %t = gpu.thread_id x
      %even = arith.muli %t, %two : index
      %odd = arith.addi %even, %one : index
      %x = memref.load %a[%even] : memref<?xi32>
      memref.store %x, %b[%odd] : memref<?xi32>
      %y = memref.load %a[%odd] : memref<?xi32>
      memref.store %y, %out[%t] : memref<?xi32>
      gpu.return
    }
  }
}
"""
# Strips run loops that all threads share.
LOOP = {
    "      %x = memref": "      scf.for %k = %one to %two step %one {\n      %x = memref",
    "      gpu.return": "      }\n      gpu.return",
}


@pytest.mark.parametrize("lanes", [0, 32, LARGEST_BLOCK], ids=["plain", "strips", "rows"])
def test_a_thread_loads_from_structures_what_it_has_stored(build: Build, lanes: int) -> None:
    source, text = build.directory / "structures.mlir", STRUCTURES
    for old, new in LOOP.items() if lanes == 32 else ():
        text = text.replace(old, new)
    source.write_text(text)
    stem = f"structures{lanes}"
    program = build.program(source, stem=stem, collapses=lanes > 0, lanes=lanes)
    data, out = ints(range(512)), ints([-1] * 256)
    program.launch("structures", (1, 1, 1), (256, 1, 1), [data, data, out])
    assert list(out) == [*range(0, 512, 2)]


# The largest error of libmvec, in units of the last place.
ULP = 4
SPECIAL = (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-40, -1e-310, 1e30, -1e300)
NUMBERS = (*SPECIAL, *(n / 7 for n in range(-33, 34)))


def math_kernel(name: str, bits: int) -> str:
    end = "f" if bits == 32 else ""
    type_ = f"memref<?xf{bits}>"
    return f"""
    gpu.func @of_{name}{end}(%data: {type_}) kernel {{
      %t = gpu.thread_id x
      %x = memref.load %data[%t] : {type_}
      %y = llvm.call @__nv_{name}{end}(%x) : (f{bits}) -> f{bits}
      memref.store %y, %data[%t] : {type_}
      gpu.return
    }}
    llvm.func @__nv_{name}{end}(f{bits}) -> f{bits}"""


@pytest.fixture(scope="module")
def math_source(build: Build) -> tuple[CpuDeviceSource, dict[str, str]]:
    functions = sorted(load_calls().vectorized)
    kernels = "".join(math_kernel(name, bits) for name in functions for bits in (32, 64))
    source = build.directory / "math.mlir"
    source.write_text(
        "module attributes {gpu.container_module} {\n  gpu.module @device {"
        + kernels
        + "\n  }\n}\n"
    )
    text, symbols = build.lower(source)
    return cpu_device_ir(text, kernels=tuple(symbols.values())), symbols


@pytest.mark.parametrize("march", ["native", "x86-64"])
@pytest.mark.parametrize("has_vectors", [True, False])
def test_functions_of_libm_are_called_for_several_threads(
    build: Build,
    math_source: tuple[CpuDeviceSource, dict[str, str]],
    march: str,
    *,
    has_vectors: bool,
) -> None:
    source, symbols = math_source
    image = build.image(source, f"math.{march}", 2, march)
    listed = Command((str(build.llvm.prefix / "bin" / "llvm-nm"), "-u", "-j", str(image)))
    undefined = run_checked(ProcessRunner(), listed).stdout.split()
    # The image is linked as with a glibc before 2.35: the name that every libmvec has is defined, nothing else.
    options = () if has_vectors else ("-Wl,--defsym=_ZGVbN4v_expf=0",)
    program = Program(build.load(image, options=options), symbols, {})
    libm = ctypes.CDLL("libm.so.6")
    types = ((ctypes.c_float, "f", 2**-23), (ctypes.c_double, "", 2**-52))
    for name, (ctype, end, last) in product(load_calls().vectorized, types):
        assert any(u.startswith("_ZGV") and u.endswith(f"v_{name}{end}") for u in undefined)
        data = (ctype * len(NUMBERS))(*NUMBERS)
        one = libm[name + end]
        one.argtypes, one.restype = (ctype,), ctype
        expected = [one(x) for x in data]
        program.launch(f"of_{name}{end}", (1, 1, 1), (len(NUMBERS), 1, 1), [data])
        wanted = pytest.approx(expected, rel=ULP * last, abs=1e-37, nan_ok=True)
        assert list(data) == wanted, name + end


def test_no_kernel_can_have_the_name_of_what_the_runtime_calls(build: Build) -> None:
    runtime = build.directory / "runtime.bc"
    build.run(cpu_runtime_command(build.llvm, runtime, march="x86-64"))
    listed = Command((str(build.llvm.prefix / "bin" / "llvm-nm"), "-u", "-j", str(runtime)))
    undefined = run_checked(ProcessRunner(), listed).stdout.split()
    calls = load_calls()
    of_libm = {name + end for name in calls.vectorized for end in ("f", "")}
    assert {u for u in undefined if not u.startswith("_ZGV")} - of_libm <= calls.runtime
    assert of_libm < set(undefined)
