"""Device code for the CPU: NVVM IR text in, an ELF object that exports the kernels out.

The steps, each text to text or files to files:
1. `cpu_device_ir`: thread context in place of NVVM intrinsics, an entry point for each kernel.
2. Only where `CpuDeviceSource.needs_collapse`: `cpu_collapse_command`, with an installed libLLVM; then
   `finish_cpu_ir`, which adds the entry points of the kernels.
3. `cpu_runtime_command`: the device runtime as bitcode, the same for all images of a build.
4. `cpu_image_command`: one compiler call; the runtime is linked in and made local.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.offload.runtime import runtime_include_directory
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.process import Command
from mlir_offload.translate.cpu.assemble import (
    CpuKernel,
    device_parts,
    finished_module,
    prepared_text,
)
from mlir_offload.translate.cpu.foreign import public_functions
from mlir_offload.translate.cpu.launch import KernelMode
from mlir_offload.translate.cpu.replacement import Sync, load_calls
from mlir_offload.translate.cpu.rewrite import NotOnCpuError, rewrite_functions
from mlir_offload.translate.cpu.text import DeviceModule, location_of, parse_device_module

__all__ = [
    "CpuDeviceSource",
    "CpuKernel",
    "KernelMode",
    "cpu_collapse_command",
    "cpu_device_ir",
    "cpu_image_command",
    "cpu_runtime_command",
    "finish_cpu_ir",
]


_GAINING = (" = phi ", " = alloca ")
_BRANCH, _STORE, _LOAD = " br i1 ", "  store ", " = load "
# There are masked loads of 32 and 64 bits.
_NARROW = (" load half", " load bfloat", " load i16", " load i8")
# More than saxpy has, also with an exponential function; a stencil and Black-Scholes have as much.
_MUCH = 8


class ToolPaths(Protocol):
    """Where the programs of an LLVM release are."""

    def tool(self, name: str) -> Path:
        """Return the path of a program of this release."""


class CpuDeviceSource(Struct, frozen=True):
    """LLVM IR for the CPU; where `needs_collapse`, not yet whole (see `finish_cpu_ir`).

    `support` holds the definitions of functions that the prepared text only declares.
    """

    text: str
    kernels: tuple[CpuKernel, ...]
    shared_bytes: int
    support: tuple[tuple[str, str], ...]
    attributes: tuple[str, ...] = ()
    needs_collapse: bool = False


def cpu_device_ir(  # noqa: PLR0913 (what is known of a module, and how it is to be run)
    ll_text: str,
    *,
    kernels: Sequence[str],
    attributes: Sequence[str] = (),
    fibers_only: bool = False,
    library: frozenset[str] = frozenset(),
    keeps_functions: bool = False,
    for_collapse: bool = False,
) -> CpuDeviceSource:
    """Rewrite NVVM IR, as mlir-translate prints it, for the CPU.

    `attributes` go to every device function (`sanitize_address`, for example: the compiler adds
    it only where it compiles a source language). `for_collapse` prepares kernels for
    `cpu_collapse_command`. `fibers_only` runs each thread on a stack of its
    own, slow and without assumptions: what the other modes must agree with. `library` are functions
    of bitcode that is linked in, which know nothing of threads. With `keeps_functions` other files
    call those that are public, and define those that are declared. Raises SourceError at operations that the CPU
    does not have and for kernels that the module does not define.
    """
    module = parse_device_module(ll_text)
    missing = sorted(set(kernels) - {function.name for function in module.functions})
    if missing:
        msg = f"the device module defines no kernel {missing[0]!r}"
        raise SourceError(msg, hint="the symbol in gpu.launch_func must name a gpu.func kernel")
    for function in module.functions:
        if function.name in kernels and function.name in load_calls().runtime:
            msg = f"kernel @{function.name} has the name of a C function that each image for the CPU calls"
            places = (location_of(module, line) for line in function.body)
            location = next(filter(None, places), "")
            raise NotOnCpuError(msg, hint="rename the kernel", location=location)
    public = public_functions(module, frozenset(kernels)) if keeps_functions else ()
    rewritten = rewrite_functions(module, library, public=public, is_open=keeps_functions)

    def waits(kernel: str) -> bool:
        return rewritten.sync_of(kernel) is not Sync.NONE

    modes = tuple(
        CpuKernel(name, KernelMode.FIBERS if fibers_only or waits(name) else KernelMode.LOOPS)
        for name in kernels
    )
    device, support = device_parts(module, rewritten, kernels, attributes)
    source = CpuDeviceSource("", modes, rewritten.layout.size_bytes, support, tuple(attributes))
    if for_collapse and not fibers_only and may_gain(module, modes):
        text = prepared_text(device, kernels, support)
        return replace(source, text=text, needs_collapse=True)
    return _finished(device, source)


def may_gain(module: DeviceModule, kernels: Sequence[CpuKernel]) -> bool:
    """Say whether the collapse makes a kernel so much faster that it is worth the time that it takes.

    Of kernels without barriers, subgroup operations and loops, those gain that have memory of their own,
    that load behind a store, which may keep LLVM from making vectors, and those whose `if (i < n)` guards
    much: vectors under masks then take 1.3 to 1.5 times as long as others.
    """
    modes = {kernel.name: kernel.mode for kernel in kernels}
    if any(mode is not KernelMode.LOOPS for mode in modes.values()):
        return True
    bodies = ("\n".join(f.body) for f in module.functions if f.name in modes)
    return any(
        any(word in body for word in _GAINING)
        or _LOAD in body.partition(_STORE)[2]
        or (_BRANCH in body and _guarded_cost(body) >= _MUCH)
        for body in bodies
    )


def _guarded_cost(body: str) -> int:
    if any(word in body for word in _NARROW):
        return _MUCH
    calls = body.count(" call ") - body.count("@llvm.")
    return 2 * body.count(_LOAD) + 3 * max(calls, 0)


def cpu_collapse_command(
    library: Path, source: Path, output: Path, kernels: Sequence[str], location: str
) -> Command:
    """Collapse kernels over subgroups, in a process of its own, by LLVM's C API in `library`.

    Its output is for `finish_cpu_ir`.
    """
    words = (word for kernel in kernels for word in ("--kernel", kernel))
    argv = (
        *(sys.executable, "-P", "-m", "mlir_offload.translate.cpu.collapse", str(source)),
        *("-o", str(output), "--library", str(library), "--location", location, *words),
    )
    return Command(argv)


def finish_cpu_ir(prepared: str, source: CpuDeviceSource) -> CpuDeviceSource:
    """Finish the output of `cpu_collapse_command`."""
    return _finished(parse_device_module(prepared), source)


def _finished(device: DeviceModule, source: CpuDeviceSource) -> CpuDeviceSource:
    text, kernels = finished_module(
        device, source.kernels, source.support, source.shared_bytes, source.attributes
    )
    return replace(source, text=text, kernels=kernels, needs_collapse=False)


def cpu_runtime_command(
    llvm: ToolPaths,
    output: Path,
    *,
    opt_level: int = 2,
    march: str = "native",
    extra: Sequence[str] = (),
) -> Command:
    """Compile the device runtime to bitcode; one file serves every image of a build.

    It is optimised with the image, which takes what it needs of it.
    """
    source = runtime_include_directory() / "cpu_device.c"
    unoptimised = ("-Xclang", "-disable-llvm-passes")
    options = (f"-O{max(1, opt_level)}", *unoptimised, *_march(march), "-fPIC", *extra)
    argv = (str(llvm.tool("clang")), "-c", "-emit-llvm", *options, str(source), "-o", str(output))
    return Command(argv)


def cpu_image_command(  # noqa: PLR0913 (two inputs, one output, and how to compile)
    llvm: ToolPaths,
    source: Path,
    runtime: Path | None,
    output: Path,
    *,
    opt_level: int = 2,
    march: str = "native",
    extra: Sequence[str] = (),
) -> Command:
    """Compile a finished module to a relocatable ELF object that exports its kernels only.

    `march` is `native` by default because most programs run where they were built, and the vector
    width decides the speed. One that will be moved wants a name such as `x86-64-v3`. The runtime is None
    where it is linked in already.
    """
    options = (
        *(f"-O{opt_level}", *_march(march), "-fPIC", "-fveclib=libmvec"),
        # The module names no triple, and atomics keep some loops from being vectorised.
        *("-Wno-override-module", "-Wno-pass-failed"),
        *(("-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(runtime)) if runtime else ()),
    )
    argv = (str(llvm.tool("clang")), "-c", *options, *extra, str(source), "-o", str(output))
    return Command(argv)


def _march(march: str) -> tuple[str, ...]:
    return (f"-march={march}",) if march else ()
