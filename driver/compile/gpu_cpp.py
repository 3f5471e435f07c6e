"""Compile CUDA C++ and HIP C++ sources; their kernels and those of MLIR can launch each other."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver.compile.clang_error import clang_error
from mlir_offload.driver.compile.context import (
    BuildContext,
    clang_depfile,
    clang_depfile_arguments,
    notes_dependencies,
)
from mlir_offload.driver.compile.kind_build import KindBuild, build_of
from mlir_offload.driver.option.command_line import GPU_CPP, CompileOptions, DeviceCode, Mode
from mlir_offload.driver.system.depfile import with_prerequisites
from mlir_offload.driver.system.workspace import open_output
from mlir_offload.toolchain.byte_view import write_all
from mlir_offload.toolchain.errors import MlirOffloadError, ToolchainError, UsageError
from mlir_offload.toolchain.process import Command, Completed, as_operand

_MISSING_HEADER = re.compile(
    r"__clang_cuda_runtime_wrapper\.h:\d+:\d+: fatal error: '([^']+)' file not found"
)
# clang's errors if HIP's headers or ROCm's device libraries are missing, and its error for the headers
# of ROCm 5, which use a constant that clang 22 no longer defines.
_MISSING_HIP = re.compile(
    r"error: cannot find (?:HIP runtime|ROCm device library)|'hip/[\w/.]+' file not found"
)
_OLD_HIP = "undeclared identifier '__AMDGCN_WAVEFRONT_SIZE'"


def compile_gpu_cpp(
    context: BuildContext, source: Path, output: Path, rule: Path | None = None
) -> None:
    """Compile CUDA C++ or HIP C++ with the linking clang, as relocatable device code (`-fgpu-rdc`).

    `rule` is the dependency file that the options of clang name. clang compiles the source for the host and for each
    architecture, and each time overwrites that file. The headers that the others included are added.
    Raises UsageError if no target is a GPU of the kind, ToolchainError if clang and the headers of the
    vendor are incompatible.
    """
    command = gpu_cpp_command(context, source, output)
    if rule is None and notes_dependencies(context.options):
        rule = clang_depfile(context.compiled.get(source, output))
    headers = output.with_name("headers.txt")
    if rule is not None:
        # Each compilation of the source appends to this file (clang/lib/Frontend/HeaderIncludeGen.cpp).
        listed = (("CC_PRINT_HEADERS", "1"), ("CC_PRINT_HEADERS_FILE", str(headers.absolute())))
        command = replace(command, environment=listed)
    context.executor.tool(command, output, diagnose=partial(_not_compiled, context))
    if rule is not None and headers.exists():
        _add_headers(rule, headers)


def _add_headers(rule: Path, headers: Path) -> None:
    names, text = (os.fsdecode(file.read_bytes()) for file in (headers, rule))
    # clang's rules name `./a.h` as `a.h`.
    complete = with_prerequisites(text, (name.removeprefix("./") for name in names.splitlines()))
    with open_output(rule) as descriptor:
        write_all(os.fsencode(complete), descriptor)


def gpu_cpp_command(context: BuildContext, source: Path, output: Path) -> Command:
    """Return the clang command. Raises UsageError if no target is a GPU of the kind."""
    options, kind = context.options, GPU_CPP[source.suffix]
    build = build_of(kind)
    archs = [f"--offload-arch={target.arch}" for target in context.targets_of(kind)]
    if not archs:
        raise _no_gpu(build, source)
    argv = (
        *(str(context.llvm.tool("clang")), *_stage(options), options.opt_flag),
        *("-fno-gpu-rdc" if options.makes_non_rdc_objects else "-fgpu-rdc", "--offload-new-driver"),
        *archs,
        *build.cpp_arguments(context),
        *(("-foffload-lto",) if options.device_code is DeviceCode.BITCODE else ()),
        *((options.debug_spelled,) if options.debug else ()),
        *(("-fPIC",) if options.pic or options.shared else ()),
        *clang_depfile_arguments(options, source, context.compiled.get(source, output)),
        *(
            *options.gpu_cpp_arguments,
            *options.compiler_arguments,
            as_operand(str(source)),
            "-o",
            str(output),
        ),
    )
    return Command(argv)


def _no_gpu(build: KindBuild, source: Path) -> UsageError:
    language = build.cpp
    msg = f"{language.name} is compiled for {language.gpus} only" if language else "no GPU for it"
    return UsageError(msg, hint=language.hint if language else "", location=str(source))


def _stage(options: CompileOptions) -> tuple[str, ...]:
    """Return the options for the last stage: an object, or the output of --offload-device-only."""
    if options.mode is not Mode.DEVICE:
        return ("-c", *(("--offload-host-only",) if options.is_host_only else ()))
    form = "-S" if options.assembly else "-c"
    return ("--offload-device-only", form, *(("-emit-llvm",) if options.emit_llvm else ()))


def _not_compiled(context: BuildContext, failed: Completed) -> MlirOffloadError:
    """Return the error for a failed compilation, with a hint if headers of the vendor are missing."""
    missing = _MISSING_HEADER.search(failed.stderr)
    if missing is not None:
        version = f" {context.cuda.version}" if context.cuda else ""
        return ToolchainError(
            f"clang of LLVM {context.consumer} includes {missing[1]}, which this CUDA{version} lacks",
            hint="install the headers of all of CUDA (cuRAND's too), or another release of LLVM or "
            "CUDA; or declare what you use yourself and give -nocudainc",
        )
    if _OLD_HIP in failed.stderr:
        return ToolchainError(
            f"the HIP headers are older than clang of LLVM {context.consumer} takes",
            hint="install those of ROCm 6 or newer, or link with an older LLVM; or declare what you "
            "use yourself and give -nogpuinc",
        )
    if _MISSING_HIP.search(failed.stderr):
        return ToolchainError(
            f"clang of LLVM {context.consumer} finds no complete HIP: headers and device libraries",
            hint="apt install libamdhip64-dev rocm-device-libs, or name a ROCm folder with "
            "--rocm-path=; or give -nogpuinc and -nogpulib, and declare what you use yourself",
        )
    return clang_error(failed)
