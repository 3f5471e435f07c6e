"""Device modules compiled for the CPU by one release, step by step, and loaded into this process."""

from __future__ import annotations

import ctypes
import re
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlir_offload.toolchain.llvm import LlvmToolchain, find_llvm_library
from mlir_offload.toolchain.process import Command, ProcessRunner, run_checked
from mlir_offload.toolchain.tool import ToolVersion
from mlir_offload.translate.cpu.collapse.__main__ import collapse_file
from mlir_offload.translate.cpu.module import (
    CpuDeviceSource,
    KernelMode,
    cpu_collapse_command,
    cpu_device_ir,
    cpu_image_command,
    cpu_runtime_command,
    finish_cpu_ir,
)
from mlir_offload.translate.legalize.split import SplitOptions, split_program
from mlir_offload.translate.lower import (
    device_pipeline_command,
    normalize_command,
    translate_command,
    unwrap_device,
)
from mlir_offload.translate.mlir.module import parse_module

INPUTS = Path(__file__).resolve().parents[1] / "integration" / "inputs"
NVPTX = "nvptx64-nvidia-cuda"
Dim3 = tuple[int, int, int]

RANGE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
PARALLEL_FOR = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p)
FAIL = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p)


class Launch(ctypes.Structure):
    """mo_launch of offload/runtime/mo_launch.h."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("dynamic_shared", ctypes.c_uint32),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("parallel_for", PARALLEL_FOR),
        ("fail", FAIL),
    )


def _on_two_threads(count: int, body: int, argument: int) -> None:
    run = RANGE(body)
    middle = count // 2
    threads = [
        threading.Thread(target=run, args=(argument, begin, end))
        for begin, end in ((0, middle), (middle, count))
        if begin < end
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


on_two_threads = PARALLEL_FOR(_on_two_threads)


@dataclass(frozen=True, slots=True)
class Program:
    """A built image: its kernels by the names in the source, and how their threads are run."""

    library: ctypes.CDLL
    symbols: dict[str, str]
    modes: dict[str, KernelMode]

    def launch(
        self, kernel: str, grid: Dim3, block: Dim3, arguments: Sequence[object], *, shared: int = 0
    ) -> None:
        """Run the kernel; arrays stand for memrefs of rank 1."""
        values: list[object] = []
        for argument in arguments:
            values += memref(argument) if isinstance(argument, ctypes.Array) else [argument]
        pointers = (ctypes.c_void_p * max(1, len(values)))(
            *(ctypes.addressof(value) for value in values)  # type: ignore[arg-type]
        )
        launch = Launch(1, shared, grid, block, on_two_threads, FAIL(_fail))
        getattr(self.library, self.symbols[kernel])(ctypes.byref(launch), pointers)


def _fail(kernel: bytes, message: bytes) -> None:
    sys.stderr.write(f"{kernel.decode()}: {message.decode()}\n")


def memref(array: ctypes.Array[Any]) -> list[object]:
    pointer = ctypes.c_void_p(ctypes.addressof(array))
    return [pointer, pointer, ctypes.c_int64(0), ctypes.c_int64(len(array)), ctypes.c_int64(1)]


def ints(values: Sequence[int]) -> ctypes.Array[ctypes.c_int32]:
    return (ctypes.c_int32 * len(values))(*values)


class Build:
    """One release at work in one directory."""

    def __init__(self, major: int, directory: Path) -> None:
        prefix = Path(f"/usr/lib/llvm-{major}")
        names = ("clang", "mlir-opt", "mlir-translate")
        tools = tuple((name, prefix / "bin" / name) for name in names)
        self.llvm = LlvmToolchain(prefix, ToolVersion(major, 1, 0), tools)
        self.directory = directory

    def run(self, command: Command) -> None:
        run_checked(ProcessRunner(), command)

    def input(self, name: str) -> Path:
        """Copy an input; before LLVM 21 gpu.printf had no comma behind its format."""
        copy = self.directory / name
        text = (INPUTS / name).read_text()
        if self.llvm.version.major < 21:
            text = re.sub(r'(gpu\.printf "[^"]*"),', r"\1", text)
        copy.write_text(text)
        return copy

    def lower(self, source: Path) -> tuple[str, dict[str, str]]:
        """Return NVVM IR of the one device module, and its kernels' symbols."""
        generic, device, low, alone, text = (
            self.directory / f"{source.stem}.{end}"
            for end in ("generic.mlir", "device.mlir", "low.mlir", "alone.mlir", "ll")
        )
        self.run(normalize_command(self.llvm, source, generic))
        program = split_program(
            generic.read_text(),
            SplitOptions(
                source_text=source.read_text(), unit_id="t", llvm_major=self.llvm.version.major
            ),
        )
        (module,) = program.modules
        device.write_text(module.text)
        self.run(device_pipeline_command(self.llvm, device, low, module=module))
        alone.write_text(unwrap_device(parse_module(low.read_text()), NVPTX))
        self.run(translate_command(self.llvm, alone, text))
        return text.read_text(), {kernel.name: kernel.symbol for kernel in module.kernels}

    def finish(self, source: CpuDeviceSource, stem: str, *, lanes: int = 0) -> CpuDeviceSource:
        if not source.needs_collapse:
            return source
        before, after = self.directory / f"{stem}.pre.ll", self.directory / f"{stem}.collapsed.ll"
        before.write_text(source.text)
        names = [kernel.name for kernel in source.kernels]
        library = find_llvm_library(self.llvm.prefix, self.llvm.version.major)
        assert library is not None
        if lanes:
            collapse_file(before, after, library, names, lanes)
        else:
            self.run(cpu_collapse_command(library, before, after, names, ""))
        return finish_cpu_ir(after.read_text(), source)

    def image(
        self, source: CpuDeviceSource, stem: str, opt_level: int, march: str = "native"
    ) -> Path:
        final, image = self.directory / f"{stem}.final.ll", self.directory / f"{stem}.o"
        final.write_text(source.text)
        runtime = self.directory / f"runtime.{march}.bc"
        if not runtime.exists():
            self.run(cpu_runtime_command(self.llvm, runtime, march=march))
        command = cpu_image_command(
            self.llvm, final, runtime, image, opt_level=opt_level, march=march
        )
        self.run(command)
        return image

    def load(self, *images: Path, options: Sequence[str] = ()) -> ctypes.CDLL:
        library = images[0].with_suffix(".so")
        clang = str(self.llvm.tool("clang"))
        argv = (
            clang,
            "-shared",
            "-Wl,--no-undefined",
            *map(str, images),
            *options,
            "-lm",
            "-o",
            str(library),
        )
        self.run(Command(argv))
        return ctypes.CDLL(str(library))

    def program(
        self,
        source: Path,
        *,
        stem: str = "k",
        opt_level: int = 2,
        fibers_only: bool = False,
        collapses: bool = False,
        lanes: int = 0,
    ) -> Program:
        text, symbols = self.lower(source)
        device = cpu_device_ir(
            text,
            kernels=tuple(symbols.values()),
            fibers_only=fibers_only,
            for_collapse=collapses,
        )
        done = self.finish(device, stem, lanes=lanes)
        library = self.load(self.image(done, stem, opt_level))
        by_symbol = {kernel.name: kernel.mode for kernel in done.kernels}
        modes = {name: by_symbol[symbol] for name, symbol in symbols.items()}
        return Program(library, symbols, modes)
