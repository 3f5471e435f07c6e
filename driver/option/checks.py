"""Options that do not go together, reported before anything is read or run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mlir_offload.driver.option.compile_options import (
    ANY_CLANG,
    MLIR_SUFFIXES,
    CompileOptions,
    DeviceCode,
    Mode,
)
from mlir_offload.toolchain.errors import InputOutputError, UsageError
from mlir_offload.toolchain.target import HOST, SPIRV


def _check_words(inputs: Iterable[Path]) -> None:
    """Raise InputOutputError for the value of an option that is the next word, as in -O fast: an input, as for clang."""
    for path in inputs:
        if "." not in path.name and not path.exists():
            msg = f"cannot read {path}: No such file or directory"
            raise InputOutputError(msg, hint="attach the value of an option: -Ofast, -g2")


def consistent(options: CompileOptions) -> CompileOptions:
    """Return the options. Raises UsageError where they exclude each other."""
    if not options.inputs:
        msg = "no input files"
        raise UsageError(
            msg, hint="name at least one .mlir, .o or .c file; see 'mlir-offload --help'"
        )
    if options.header is not None and MLIR_SUFFIXES.isdisjoint(p.suffix for p in options.inputs):
        msg = "--emit-header= needs a .mlir file to take the functions from"
        raise UsageError(msg)
    if options.mode is not Mode.LINK and options.output is not None and len(options.inputs) > 1:
        _check_words(options.inputs)
        msg = f"-o names one file, but {options.mode.value} makes one for each of {len(options.inputs)} inputs"
        raise UsageError(msg, hint="compile each input by its own call, or leave -o out")
    if options.mode is not Mode.LINK and options.shared:
        msg = f"-shared links, {options.mode.value} does not"
        raise UsageError(msg, hint="leave one of them out")
    if options.mode is Mode.LINK and options.embed_runtime:
        msg = "--embed-runtime is for -c, -S and -emit-llvm: a link contains the runtime"
        raise UsageError(msg, hint="leave --embed-runtime out")
    if options.mode is Mode.LINK and options.output == Path("-"):
        msg = "-o -: a link writes a file"
        raise UsageError(
            msg, hint="name the file; -c, -S, -E and -emit-llvm write to the standard output"
        )
    if options.is_for_any_clang:
        _check_for_any(options)
    if options.has_gpu_cpp:
        _check_gpu_cpp(options)
    if options.sanitizer is not None and any(arch != HOST for arch in options.offload_archs):
        msg = f"{options.sanitizer.flag} is not supported for GPU kernels"
        raise UsageError(msg, hint="compile the kernels for the CPU: --offload-arch=host")
    return options


def _check_gpu_cpp(options: CompileOptions) -> None:
    """Refuse what needs one module: C++ with kernels has one for the host and one for each device."""
    if options.mode not in {Mode.LINK, Mode.OBJECT, Mode.DEVICE}:
        msg = f"{options.mode.value} does not go with CUDA C++ and HIP C++, which make several modules of a file"
        raise UsageError(msg, hint="compile it with -c, or link")


def _check_for_any(options: CompileOptions) -> None:
    """Refuse what one release of LLVM makes for itself: a linked file, and LLVM IR of any kind."""
    what = "a linked file" if options.mode is Mode.LINK else "LLVM IR" if options.emit_llvm else ""
    if options.device_code is DeviceCode.BITCODE:
        what = "device bitcode"
    if options.has_gpu_cpp:
        what = "what clang makes of CUDA C++ and HIP C++"
    if SPIRV in options.offload_archs:
        what = f"code for {SPIRV}"
    if what:
        msg = f"--for-clang={ANY_CLANG} is for objects: {what} serves one release of LLVM only"
        raise UsageError(msg, hint="use -c, with --device-code=object or none")
