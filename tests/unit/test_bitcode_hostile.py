"""Malformed bitcode: the reader reports an error with a location, in bounded time and memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

import pytest
from support.bit_writer import BitWriter, array, blob, fixed, literal, vbr
from support.bitcode_census import read_bitcode_census
from support.bitcode_corpus import assemble
from support.hostile import (
    assert_bounded,
    bit_flips,
    extreme_fields,
    peak_memory,
    spliced,
    survives,
    truncations,
)

from mlir_offload.offload.device.bitcode import read_device_bitcode
from mlir_offload.offload.host.bitcode import embedded_objects, offload_entries
from mlir_offload.toolchain.bitcode.constant import ConstantTable
from mlir_offload.toolchain.bitcode.hash import CodeHash
from mlir_offload.toolchain.bitcode.metadata import MetadataTable
from mlir_offload.toolchain.bitcode.module import read_bitcode_modules
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import VerificationError

DEVICE = """
target triple = "nvptx64-nvidia-cuda"
%pair = type { i32, double }
@tile = internal addrspace(3) global [16 x float] undef
@name = private constant [5 x i8] c"k.cu\\00"
@entry = constant { ptr, ptr, i64 } { ptr @name, ptr @k, i64 3 }, section "cuda_offloading_entries"
@image = private constant [8 x i8] c"\\10\\FF\\10\\AD1234", section ".llvm.offloading"
declare float @outside(float)
define internal float @helper(float %v) { %r = fmul float %v, 2.5  ret float %r }
define ptx_kernel void @k(ptr byval(%pair) align 8 %p, i32 %n) #0 !reqd_work_group_size !3 {
  %s = getelementptr float, ptr addrspacecast (ptr addrspace(3) @tile to ptr), i32 %n
  %v = load float, ptr %s
  %w = call float @outside(float %v)
  %x = call float @helper(float %w)
  store float %x, ptr %s
  ret void
}
attributes #0 = { "target-cpu"="sm_80" "nvvm.maxntid"="32,2" "nvvm.minctasm"="2" }
!nvvm.annotations = !{!0}
!llvm.module.flags = !{!1, !2}
!0 = !{ptr @k, !"kernel", i32 1, !"maxntidx", i32 32}
!1 = !{i32 1, !"amdhsa_code_object_version", i32 500}
!2 = !{i32 1, !"wchar_size", i32 4}
!3 = !{i32 8, i32 4, i32 2}
"""
# The documented bound for the memory of the reader, as a multiple of the file size.
MULTIPLE = 64


@cache
def device_module() -> bytes:
    return assemble(22, DEVICE)


def read_everything(data: bytes) -> None:
    """Read all that any of our readers would, of all modules."""
    view = memory_view(data, form="LLVM bitcode", location="x.bc")
    for module in read_bitcode_modules(view):
        constants = ConstantTable(module)
        metadata = MetadataTable(module, constants)
        metadata.flag("amdhsa_code_object_version")
        for function in module.functions:
            module.parameter_types(function)
        list(embedded_objects(module, constants))
        offload_entries(module, constants)
        code = CodeHash(module, constants)
        for number in range(len(module.symbols)):
            code.function(number)
    read_bitcode_census(view)
    read_device_bitcode(view, with_hashes=True)


@pytest.mark.llvm(22)
def test_a_module_that_ends_early_is_refused_at_each_byte() -> None:
    data = device_module()
    step = 9
    # If only the string table is cut off, names are missing.
    refused = survives(read_everything, truncations(data, step=step))
    assert refused == len(range(0, len(data), step))


DAMAGES: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "flips": lambda data: bit_flips(data, step=97),
    "extremes": lambda data: sampled(extreme_fields(data), 200),
    "splices": lambda data: spliced(data, 200),
}


@pytest.mark.llvm(22)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_module_is_read_or_refused(damage: str) -> None:
    assert survives(read_everything, DAMAGES[damage](device_module())) > 0


def sampled(variants: Iterator[bytes], count: int) -> Iterator[bytes]:
    return iter(random.Random(0).sample(list(variants), count))  # noqa: S311 (test data)


def module_of(
    *parts: tuple[int, Sequence[tuple[int, Sequence[int]]]], strings: bytes = b""
) -> bytes:
    """Return a module: blocks of records, and records of the module itself where the number is 8."""
    writer = BitWriter()
    writer.fixed(0xDEC04342, 32)
    with writer.block(8, 3):
        writer.record(1, [2])
        for number, records in parts:
            if number == 8:
                for code, operands in records:
                    writer.record(code, operands)
                continue
            with writer.block(number, 4):
                for code, operands in records:
                    writer.record(code, operands)
    with writer.block(23, 3):
        blob_ = writer.define(literal(1), blob())
        writer.abbreviated(blob_, [1], strings)
    return writer.bytes()


TYPES, CONSTANTS, METADATA, FUNCTION = 17, 11, 15, 12
VOID: tuple[int, list[int]] = (2, [])


def kernel_taking(*types: tuple[int, Sequence[int]], parameters: Sequence[int]) -> bytes:
    records = [VOID, *types, (21, [0, 0, *parameters])]
    names = sum(code == 19 for code, _ in records)
    kernel = [0, 1, len(records) - names - 1, 71, 0, 0, 0, 0, 0]
    return module_of((TYPES, records), (8, [(8, kernel)]), (FUNCTION, [(1, [1])]), strings=b"k")


def test_a_kernel_made_by_hand_is_read() -> None:
    data = kernel_taking((7, [32]), (11, [3, 1]), parameters=[1, 2])
    (kernel,) = read_device_bitcode(memory_view(data)).kernels
    assert [one.type for one in kernel.parameters or ()] == ["i32", "[3 x i32]"]


@pytest.mark.parametrize(
    ("types", "reason"),
    [
        ([(11, [4, 1])], "type 1: it contains itself"),
        ([(8, [1, 0])], "type 1: .*contains itself"),
        ([(18, [0, 2]), (18, [0, 1])], "it contains itself"),
        ([(11, [4, 999])], "type 999: there are only"),
        ([(11, [4])], "record 11 .*it has no operand 1, the element type"),
        ([(7, [32]), *((11, [1, number]) for number in range(1, 300))], "too much within it"),
        ([(7, [1 << 60]), (11, [1 << 60, 1])], "it is larger than any memory"),
        ([(7, [8]), *((18, [0, number, number]) for number in range(1, 60))], "megabyte to spell"),
    ],
    ids=["array", "pointer", "two", "missing", "short", "deep", "large", "exponential"],
)
def test_types_that_have_no_end_are_refused(
    types: list[tuple[int, list[int]]], reason: str
) -> None:
    data = kernel_taking(*types, parameters=[len(types)])
    with pytest.raises(VerificationError, match=reason):
        read_everything(data)


def test_a_named_type_that_only_points_to_itself_has_a_name() -> None:
    data = kernel_taking((19, list(b"list")), (20, [0, 2]), (8, [1, 0]), parameters=[2])
    read_everything(data)
    (kernel,) = read_device_bitcode(memory_view(data)).kernels
    assert [one.type for one in kernel.parameters or ()] == ["%list*"]


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([(8, [5, 9, 1, 71, 0, 0, 0])], "its name, 9 bytes at 5, is not in the string table"),
        ([(8, [0, 1, 1, 71])], "it has no linkage"),
        ([(8, [0, 1, 0, 71, 0, 0, 0])], "type 0: it is not a type of a function"),
        ([(8, [0, 1, 1, 71, 0, 0, 0, 0, 3])], "there is no section 3"),
        ([(7, [0, 1])], "it has no flags"),
        ([(1, [7])], "version 7; the newest that is known is 2"),
    ],
    ids=["name", "short", "type", "section", "variable", "version"],
)
def test_globals_that_name_what_is_not_there_are_refused(
    records: list[tuple[int, list[int]]], reason: str
) -> None:
    data = module_of((TYPES, [VOID, (21, [0, 0])]), (8, records), strings=b"name")
    with pytest.raises(VerificationError, match=reason):
        read_everything(data)


def test_names_that_overlap_do_not_add_up() -> None:
    strings = bytes(range(65, 91)) * 400
    records = [(8, [place, len(strings) - place, 1, 0, 1, 0, 0]) for place in range(3000)]
    data = module_of((TYPES, [VOID, (21, [0, 0])]), (8, records), strings=strings)
    with pytest.raises(VerificationError, match="is not in the string table"):
        read_everything(data)


def test_constants_that_refer_to_themselves_are_read() -> None:
    types = [VOID, (7, [64]), (18, [0, 1]), (25, [0])]
    constants = [(1, [3]), (11, [11, 3, 1]), (1, [2]), (7, [2, 2]), (1, [1]), (4, [6])]
    variable = (7, [0, 1, 2, 3, 2, 0, 0])
    section = (5, list(b"cuda_offloading_entries"))
    placed = (7, [0, 1, 2, 3, 3, 0, 0, 1])
    parts = ((8, [section, variable, placed]), (CONSTANTS, constants))
    read_everything(module_of((TYPES, types), *parts, strings=b"v"))


def test_metadata_that_refer_to_themselves_are_read() -> None:
    nodes = [(3, [1, 2]), (3, [1, 2]), (4, list(b"nvvm.annotations")), (10, [0, 0, 1, 77])]
    read_everything(module_of((TYPES, [VOID]), (METADATA, nodes)))


def test_nodes_that_name_one_long_node_many_times_take_no_longer() -> None:
    nodes = [(3, [2] * 20000), (3, [1] * 20000)]
    names = [(4, list(b"nvvm.annotations")), (10, [0, 1] * 10000)]
    data = module_of((TYPES, [VOID]), (METADATA, [*nodes, *names]))
    assert survives(read_everything, iter([data])) == 1


def test_an_index_whose_nodes_overlap_is_refused() -> None:
    writer = BitWriter()
    writer.fixed(0xDEC04342, 32)
    with writer.block(8, 3):
        with writer.block(TYPES, 4):
            writer.record(2, [])
        with writer.block(METADATA, 4):
            offset = writer.define(literal(38), fixed(32), fixed(32))
            steps = writer.define(literal(39), array(vbr(6)))
            writer.abbreviated(offset, [38, 0, 0])
            begin = writer.position
            writer.record(3, [1] * 5000)
            index = writer.position
            writer.abbreviated(steps, [39], [0] * 5000)
            writer.record(4, list(b"llvm.module.flags"))
            writer.record(10, list(range(5000)))
    data = bytearray(writer.bytes())
    place = begin - 64
    number = int.from_bytes(data, "little") | (index - begin) << place
    with pytest.raises(VerificationError, match="take more to read"):
        read_everything(number.to_bytes(len(data), "little"))


def test_blocks_within_blocks_without_end_are_refused() -> None:
    depth = 5000
    writer = BitWriter()
    writer.fixed(0xDEC04342, 32)
    width = 2
    # Each block contains the next one, and a 32-bit end marker.
    for level in range(depth):
        writer.fixed(1, width)
        writer.vbr(8 if level == 0 else 9, 8)
        writer.vbr(3, 4)
        writer.align()
        writer.fixed(3 * (depth - level - 1) + 1, 32)
        width = 3
    for _ in range(depth):
        writer.fixed(0, 32)
    with pytest.raises(VerificationError, match=r"without end|tables of types|does not|do not fit"):
        read_bitcode_census(memory_view(writer.bytes()))


def repeated(write: Callable[[], object], count: int) -> None:
    for _ in range(count):
        write()


# Content that needs the most memory per bit: many small items.
FILLS: dict[str, Callable[[BitWriter, int], object]] = {
    "functions": lambda w, n: repeated(lambda: w.record(8, [0, 1, 1, 0, 1, 0, 0]), n // 8),
    "variables": lambda w, n: repeated(lambda: w.record(7, [0, 1, 0, 2, 0, 0]), n // 8),
    "dense functions": lambda w, n: dense(w, [8, 0, 1, 1, 0, 1, 0, 0], n),
    "dense variables": lambda w, n: dense(w, [7, 0, 1, 0, 2, 0, 0], n),
    "empty records": lambda w, n: repeated(lambda: w.raw_record(3, 0), n // 2),
    "sections": lambda w, n: repeated(lambda: w.raw_record(5, 0), n // 2),
    "small operands": lambda w, n: w.record(3, [1] * n),
    "large operands": lambda w, n: w.record(3, [1 << 40] * (n // 8)),
    "bodies": lambda w, n: repeated(lambda: empty_block(w, FUNCTION), n // 12),
    "unknown blocks": lambda w, n: repeated(lambda: empty_block(w, 99), n // 12),
    "bits": lambda w, n: w.abbreviated(w.define(literal(3), array(fixed(1))), [3], [1] * 8 * n),
    "types": lambda w, n: block_of(w, TYPES, [(6, [])] * (n // 2)),
    "attributes": lambda w, n: block_of(w, 10, [(3, [i, 1, 0, 3]) for i in range(n // 6)]),
    "constants": lambda w, n: block_of(w, CONSTANTS, [(2, [])] * (n // 2)),
    "metadata": lambda w, n: block_of(w, METADATA, [(3, [])] * (n // 2)),
}


@pytest.mark.parametrize("fill", FILLS)
def test_memory_is_a_small_multiple_of_the_file(fill: str) -> None:
    assert_bounded(read_globals, filled(fill, 30000), MULTIPLE)


def dense(writer: BitWriter, record: Sequence[int], count: int) -> None:
    """Write records of a few bits, as LLVM never would."""
    fields = [literal(record[0]), *(fixed(2) for _ in record[1:])]
    number = writer.define(*fields)
    repeated(lambda: writer.abbreviated(number, record), 4 * count // len(record))


def read_globals(data: bytes) -> None:
    for module in read_bitcode_modules(memory_view(data)):
        MetadataTable(module, ConstantTable(module))


def filled(fill: str, size: int) -> bytes:
    writer = BitWriter()
    writer.fixed(0xDEC04342, 32)
    with writer.block(8, 3):
        writer.record(1, [2])
        if fill != "types":
            block_of(writer, TYPES, [VOID, (21, [0, 0])])
        FILLS[fill](writer, size)
    with writer.block(23, 3):
        writer.abbreviated(writer.define(literal(1), blob()), [1], b"k")
    return writer.bytes()


def block_of(writer: BitWriter, number: int, records: Iterable[tuple[int, list[int]]]) -> None:
    with writer.block(number, 3):
        for code, operands in records:
            writer.record(code, operands)


def empty_block(writer: BitWriter, number: int) -> None:
    with writer.block(number, 2):
        pass


@pytest.mark.llvm(22)
def test_a_large_image_in_a_module_takes_little_more_than_itself() -> None:
    content = random.Random(0).randbytes(1 << 20)  # noqa: S311 (test data)
    escaped = "".join(f"\\{byte:02X}" for byte in content)
    text = f'@x = private constant [{len(content)} x i8] c"{escaped}", section ".llvm.offloading"'
    data = assemble(22, text)

    def images(data: bytes) -> None:
        for module in read_bitcode_modules(memory_view(data)):
            (found,) = embedded_objects(module, ConstantTable(module))
            assert found.data == content

    assert peak_memory(images, data) < 4 * len(data)
