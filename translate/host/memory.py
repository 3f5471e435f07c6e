"""Launches of kernels that were made of host code: what they say of the host memory they work on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from math import prod

from mlir_offload.translate.host.gpu_operation import GpuOperation, parse_gpu_operation
from mlir_offload.translate.mlir_syntax import MLIR

_DESCRIBE = "mgpuDescribeMemRef"
_SEGMENTS = re.compile(r"operandSegmentSizes = array<i32: ([\d, ]+)>")
_ARGUMENTS = 11
_MEMREF = re.compile(r"memref<((?:(?:\?|\d+)x)*)(.*)>", re.DOTALL)
_VECTOR = re.compile(r"vector<((?:\d+x)*)(\w+)>")
_COMPLEX = re.compile(r"complex<(\w+)>")
_NUMBER = re.compile(r"(?:[su]?i|b?f|tf)(\d+)")
_UNRANKED = "memref<*x"
_BYTE = 8


def describe_launches(lines: Sequence[str]) -> list[str]:
    """Return the lines of a host module with a call for each memref before each launch.

    The runtime copies what the device cannot reach, see offload/runtime/launch_memory.c.
    """
    numbers = count()
    result: list[str] = []
    for line in lines:
        launch = parse_gpu_operation(line) if '"gpu.launch_func"(' in line else None
        result += _descriptions(launch, numbers) if launch else ()
        result.append(line)
    if len(result) > len(lines):
        result.append(f"  llvm.func @{_DESCRIBE}(i32, i32, i64)")
    return result


def _descriptions(launch: GpuOperation, numbers: Iterator[int]) -> Iterator[str]:
    indent, location = " " * launch.indent, f" {launch.location}".rstrip()
    for values in _memrefs(_argument_types(launch)):
        names = []
        for value, kind in zip(values, ("i32", "i32", "i64"), strict=True):
            names.append(f"%mo_memory_{next(numbers)}")
            constant = f'"llvm.mlir.constant"() <{{value = {value} : {kind}}}> : () -> {kind}'
            yield f"{indent}{names[-1]} = {constant}{location}"
        # The custom form: the properties of llvm.call differ between releases.
        yield f"{indent}llvm.call @{_DESCRIBE}({', '.join(names)}) : (i32, i32, i64) -> (){location}"


def _argument_types(launch: GpuOperation) -> Sequence[str]:
    sizes = _SEGMENTS.search(launch.attributes)
    if sizes is None:
        return ()
    counts = [int(size) for size in sizes[1].split(",")]
    start = sum(counts[:_ARGUMENTS])
    return launch.operand_types[start : start + counts[_ARGUMENTS]]


def _memrefs(types: Iterable[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the first parameter, the rank and the bytes of an element of each memref.

    gpu-to-llvm passes a memref as two pointers, the offset, and a size and a stride per dimension.
    """
    param = 0
    for kind in types:
        match = _MEMREF.fullmatch(kind)
        if match is None or kind.startswith(_UNRANKED):
            param += 2 if match else 1
            continue
        rank = match[1].count("x")
        size = element_bytes(MLIR.split_list(match[2])[0])
        if size:
            yield param, rank, size
        param += 3 + 2 * rank


def element_bytes(kind: str) -> int:
    """Return the distance of two elements in memory; 0 where it is not known."""
    if kind == "index":
        return _BYTE
    if match := _VECTOR.fullmatch(kind):
        *outer, last = (int(size) for size in match[1].split("x")[:-1])
        return prod(outer) * _padded(last * element_bytes(match[2]))
    if match := _COMPLEX.fullmatch(kind):
        return 2 * element_bytes(match[1])
    match = _NUMBER.match(kind)
    return _padded(-(-int(match[1]) // _BYTE)) if match else 0


def _padded(size: int) -> int:
    return 1 << (size - 1).bit_length() if size else 0
