"""Time the kernels of cpu_kernels.py with an OpenCL implementation for the CPU, such as PoCL or Intel's.

Processor time of the whole process on one core, the least of several runs, for the sizes of
`cpu/reference.c`, and after writing the same memory, so that the caches contain the same. Prints a line for each kernel: its name and milliseconds, or a dash if the implementation
cannot compile it.

usage: python tests/bench/opencl_kernels.py LIBRARY  (libOpenCL, or a library of PoCL or Intel that is one)
"""

from __future__ import annotations

import os
import sys
import time
from array import array
from collections.abc import Callable
from ctypes import (
    CDLL,
    byref,
    c_char,
    c_char_p,
    c_float,
    c_int,
    c_long,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
    create_string_buffer,
    memmove,
    memset,
    sizeof,
)
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "cpu" / "kernels.cl"
RUNS = 15
COUNT, BODIES, ROWS, BINS = 1 << 20, 4096, 1 << 16, 256
BLOCKS = COUNT // 256
# Name, global size, block size, arguments: a buffer by name, a number by type.
KERNELS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[object, ...]]] = {
    "saxpy": ((COUNT,), (256,), (2.0, "x", "made", COUNT)),
    "axpy_f16": ((COUNT,), (256,), ("half", "made", COUNT)),
    "reduce": ((COUNT,), (256,), ("x", "made", COUNT)),
    "matmul": ((512, 512), (16, 16), ("x", "y", "made")),
    "bmm": ((COUNT // 16, 16), (16, 16), ("x", "y", "made")),
    "transpose": ((1024, 1024), (32, 32), ("x", "made")),
    "stencil": ((1024, 1024), (128, 8), ("x", "made")),
    "softmax": ((1024 * 32,), (32,), ("x", "made")),
    "layernorm": ((1024 * 256,), (256,), ("x", "made")),
    "scan": ((COUNT,), (256,), ("x", "made")),
    "blackscholes": ((COUNT,), (256,), ("x", "made", COUNT)),
    "histogram": ((64 * 256,), (256,), ("keys", "bins", COUNT)),
    "nbody": ((BODIES,), (256,), ("x", "y", "z", "made", BODIES)),
    "spmv": ((ROWS,), (256,), ("rows", "columns", "y", "x", "made")),
    "bitonic": ((COUNT,), (256,), ("made",)),
}
# What the buffer of results contains before a run, if it is not 0.
BEFORE = {"saxpy": "y", "bitonic": "x"}
DEFAULT, USE_HOST_MEMORY = 1, 8
BUILD_LOG = 0x1183
WAYS = (
    "-DSHUFFLES -DSUBGROUP_OF_32=__attribute__((intel_reqd_sub_group_size(32)))",
    "-DSHUFFLES -DSUBGROUP_OF_32=",
    "",
)
STANDARDS = ("-cl-std=CL3.0", "-cl-std=CL2.0", "")
LOG_BYTES = 2000


def inputs() -> dict[str, bytearray]:
    """Return the data of `fill` in reference.c."""
    word = [i * 2654435761 % 2**32 for i in range(COUNT)]
    x = array("f", ((w >> 20) / 4096 + 0.01 for w in word))
    found: dict[str, array[float] | array[int]] = {
        "x": x,
        "y": array("f", (i * 40503 % 2**32 % 1000 / 1000 for i in range(COUNT))),
        "z": array("f", (i * 7919 % 2**32 % 1000 / 1000 for i in range(COUNT))),
        "half": array("H", bytes(2 * COUNT)),
        "made": array("f", bytes(4 * COUNT)),
        "keys": array("i", (w >> 24 for w in word)),
        "columns": array("i", (w >> 16 for w in word)),
        "rows": array("i", (i * (COUNT // ROWS) for i in range(ROWS + 1))),
        "bins": array("i", bytes(4 * BINS)),
    }
    return {name: bytearray(values.tobytes()) for name, values in found.items()}


class OpenCl:
    """A CPU device of an OpenCL implementation."""

    def __init__(self, library: str) -> None:
        self._library = CDLL(library)
        self._memory: list[object] = []
        platform, device = c_void_p(), c_void_p()
        self.call("clGetPlatformIDs", 1, byref(platform), None)
        self.call("clGetDeviceIDs", platform, c_uint64(DEFAULT), 1, byref(device), None)
        self.device = device
        self.context = self.made("clCreateContext", None, 1, byref(device), None, None)
        self.queue = self.made("clCreateCommandQueue", self.context, device, c_uint64(0))

    def call(self, name: str, *arguments: object) -> None:
        function = getattr(self._library, name)
        function.restype = c_int
        status = function(*arguments)
        if status:
            message = f"{name}: error {status}"
            raise OSError(message)

    def made(self, name: str, *arguments: object) -> c_void_p:
        function, status = getattr(self._library, name), c_int()
        function.restype = c_void_p
        found = function(*arguments, byref(status))
        if status.value:
            message = f"{name}: error {status.value}"
            raise OSError(message)
        return c_void_p(found)

    def built(self, source: str) -> c_void_p:
        """Return the program, with as many of its kernels as the implementation can compile."""
        text = c_char_p(source.encode())
        for options in (f"{standard} {way}" for way in WAYS for standard in STANDARDS):
            program = self.made("clCreateProgramWithSource", self.context, 1, byref(text), None)
            arguments = (program, 1, byref(self.device), options.encode(), None, None)
            if self._library.clBuildProgram(*arguments) == 0:
                return program
            log, size = create_string_buffer(LOG_BYTES), c_size_t(LOG_BYTES)
            self._library.clGetProgramBuildInfo(program, self.device, BUILD_LOG, size, log, None)
            sys.stderr.write(log.value.decode(errors="replace"))
        sys.exit("the implementation compiles none of the kernels")

    def buffer(self, data: bytearray) -> c_void_p:
        memory = (c_uint32 * (len(data) // 4)).from_buffer(data)
        self._memory.append(memory)
        flags = c_uint64(USE_HOST_MEMORY | 1)
        return self.made("clCreateBuffer", self.context, flags, c_size_t(len(data)), memory)

    def milliseconds(
        self,
        kernel: c_void_p,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        prepare: Callable[[], None],
    ) -> float:
        sizes = c_size_t * len(grid)
        least = float("inf")
        for _ in range(RUNS):
            prepare()
            start = time.process_time()
            place = (self.queue, kernel, len(grid), None, sizes(*grid), sizes(*block))
            self.call("clEnqueueNDRangeKernel", *place, 0, None, None)
            self.call("clFinish", self.queue)
            least = min(least, time.process_time() - start)
        return least * 1e3


def as_argument(given: object, buffers: dict[str, c_void_p]) -> c_void_p | c_float | c_long:
    """Return an argument of a kernel as a C value."""
    if isinstance(given, str):
        return buffers[given]
    return c_float(given) if isinstance(given, float) else c_long(int(str(given)))


def main() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    device = OpenCl(sys.argv[1])
    program = device.built(SOURCE.read_text(encoding="utf-8"))
    data = inputs()
    buffers = {name: device.buffer(content) for name, content in data.items()}
    made, expected = (
        (c_char * len(content)).from_buffer(content)
        for content in (data["made"], bytearray(data["made"]))
    )
    for name, (grid, block, arguments) in KERNELS.items():
        try:
            kernel = device.made("clCreateKernel", program, name.encode())
        except OSError:
            sys.stdout.write(f"{name} -\n")
            continue
        for number, given in enumerate(arguments):
            value = as_argument(given, buffers)
            size = c_size_t(sizeof(value))
            device.call("clSetKernelArg", kernel, number, size, byref(value))
        before = bytes(data[BEFORE[name]]) if name in BEFORE else b""

        def prepare(before: bytes = before) -> None:
            for memory in (made, expected):
                memset(memory, 0, 0 if before else len(memory))
                memmove(memory, before, len(before))

        sys.stdout.write(f"{name} {device.milliseconds(kernel, grid, block, prepare):.4f}\n")


if __name__ == "__main__":
    main()
