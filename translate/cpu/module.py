"""Compile NVVM IR text for the CPU to an ELF object that exports the kernels.

The steps, each text to text or files to files:
1. `cpu_device_ir` replaces NVVM intrinsics by uses of the thread context, and adds an entry point for each kernel.
2. If `CpuDeviceSource.needs_collapse`, the entry points are not added yet. `cpu_collapse_command` runs with an
   installed libLLVM, and `finish_cpu_ir` adds the entry points to its output.
3. `cpu_runtime_command` compiles the device runtime to bitcode, which all images of a build share.
4. `cpu_image_command` compiles the module with one call of clang, which links the runtime and makes it local.
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
# Loads without a masked form: AVX2 has masked loads of 32 and 64 bits.
_NARROW = (" load half", " load bfloat", " load i16", " load i8")
# The least `_guarded_cost` with a gain: below that of a stencil or Black-Scholes, above that of saxpy,
# also with an exponential function.
_MUCH = 8


class ToolPaths(Protocol):
    """The paths of the programs of an LLVM release."""

    def tool(self, name: str) -> Path:
        """Return the path of a program of this release."""


class CpuDeviceSource(Struct, frozen=True):
    """LLVM IR for the CPU; if `needs_collapse`, without the entry points of the kernels (see `finish_cpu_ir`).

    `support` contains the definitions of functions that the prepared text only declares.
    """

    text: str
    kernels: tuple[CpuKernel, ...]
    shared_bytes: int
    support: tuple[tuple[str, str], ...]
    attributes: tuple[str, ...] = ()
    needs_collapse: bool = False


def cpu_device_ir(  # noqa: PLR0913 (the properties of a module, and its execution)
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

    `attributes` are added to every device function, for example `sanitize_address`, which clang adds only to code
    that it compiles from a source language. `for_collapse` prepares kernels for `cpu_collapse_command`.
    `fibers_only` runs each thread on its own fiber. This mode is slow and makes no assumptions; it is the reference
    for the other modes. `library` are functions of linked bitcode, which take no thread context. With
    `keeps_functions`, other files call the public functions, and define the declared ones. Raises SourceError for
    operations that the CPU does not support, and for kernels that the module does not define.
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
    """Return whether the collapse makes a kernel fast enough to justify its compile time.

    Kernels with barriers, subgroup operations or loops gain. Other kernels gain if they have private arrays, or if
    they load after a store, which may prevent vectorization. They also gain if an `if (i < n)` guards expensive
    code, because vector code with masks takes 1.3 to 1.5 times as long as code without.
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
    """Collapse kernels in a separate process, through LLVM's C API in `library`.

    The output is the input of `finish_cpu_ir`.
    """
    words = (word for kernel in kernels for word in ("--kernel", kernel))
    argv = (
        *(sys.executable, "-P", "-m", "mlir_offload.translate.cpu.collapse", str(source)),
        *("-o", str(output), "--library", str(library), "--location", location, *words),
    )
    return Command(argv)


def finish_cpu_ir(prepared: str, source: CpuDeviceSource) -> CpuDeviceSource:
    """Add the entry points of the kernels to the output of `cpu_collapse_command`."""
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

    clang optimizes it together with the image, into which it links only the functions that are used.
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

    `march` is `native` by default, because most programs run on the build host, and the vector width determines
    the speed. Programs for other hosts require a name such as `x86-64-v3`. `runtime` is None if the module already
    contains it.
    """
    options = (
        *(f"-O{opt_level}", *_march(march), "-fPIC", "-fveclib=libmvec"),
        # The module has no target triple, and atomics prevent the vectorization of some loops.
        *("-Wno-override-module", "-Wno-pass-failed"),
        *(("-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(runtime)) if runtime else ()),
    )
    argv = (str(llvm.tool("clang")), "-c", *options, *extra, str(source), "-o", str(output))
    return Command(argv)


def _march(march: str) -> tuple[str, ...]:
    return (f"-march={march}",) if march else ()
