"""Compile CUDA C++ and HIP C++ sources; their kernels and those of MLIR can launch each other."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
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
from mlir_offload.driver.system.depfile import read_prerequisites, with_prerequisites
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
_HOST_ONLY, _DEVICE_ONLY = "--offload-host-only", "--offload-device-only"
_OLD_HIP = "undeclared identifier '__AMDGCN_WAVEFRONT_SIZE'"


def compile_gpu_cpp(
    context: BuildContext, source: Path, output: Path, rule: Path | None = None
) -> None:
    """Compile CUDA C++ or HIP C++ with the linking clang, as relocatable device code (`-fgpu-rdc`), or only check it.

    `rule` is the dependency file that the options of clang name. clang compiles the source for the host and for each
    architecture, and each time overwrites that file. The headers that the others included are added.
    Raises UsageError if no target is a GPU of the kind, ToolchainError if clang and the headers of the
    vendor are incompatible.
    """
    options = context.options
    command = gpu_cpp_command(context, source, output)
    if rule is None and notes_dependencies(options):
        rule = clang_depfile(context.compiled.get(source, output))
    headers = output.with_name("headers.txt")
    if rule is not None and options.depfile.has_system_files:
        # Each compilation of the source appends to this file (clang/lib/Frontend/HeaderIncludeGen.cpp).
        listed = (("CC_PRINT_HEADERS", "1"), ("CC_PRINT_HEADERS_FILE", str(headers.absolute())))
        command = replace(command, environment=listed)
    made = None if options.mode is Mode.SYNTAX else output
    context.executor.tool(command, made, diagnose=partial(_not_compiled, context))
    if rule is not None and not options.depfile.has_system_files:
        # The list above would contain system headers.
        names = read_files(context, source, output)
        if not options.dry_run:
            _append_lines(headers, names)
    if rule is not None and headers.exists():
        _add_headers(rule, headers)


def read_files(context: BuildContext, source: Path, output: Path) -> tuple[str, ...]:
    """Return the files that the compilations of a source read, for the host and for each architecture.

    clang 19 prints a rule for each, clang 22 only that for the host. Raises like `compile_gpu_cpp`.
    """
    options = context.options
    targets = () if options.is_host_only else context.targets_of(GPU_CPP[source.suffix])
    sides = [] if options.is_device_only else [(_HOST_ONLY, context.targets)]
    sides += [(_DEVICE_ONLY, (target,)) for target in targets]
    form = "-M" if options.depfile.has_system_files else "-MM"
    found: list[str] = []
    for number, (side, archs) in enumerate(sides):
        rule = output.with_suffix(f".{number}.d")
        # Up to LLVM 19, clang does not use the architectures for the host.
        for_host = ("-Wno-unused-command-line-argument",)
        more = for_host if side == _HOST_ONLY else _device_rule(options, rule)
        stage = (form, side, "-nogpulib", *more)
        command = gpu_cpp_command(replace(context, targets=archs), source, rule, stage)
        context.executor.tool(command, rule, diagnose=partial(_not_compiled, context))
        if rule.exists():
            found += read_prerequisites(os.fsdecode(rule.read_bytes()))
    return tuple(found)


def _append_lines(path: Path, names: Iterable[str]) -> None:
    with path.open("ab") as stream:
        stream.writelines(os.fsencode(f"{name}\n") for name in names)


def _add_headers(rule: Path, headers: Path) -> None:
    names, text = (os.fsdecode(file.read_bytes()) for file in (headers, rule))
    # clang's rules name `./a.h` as `a.h`.
    complete = with_prerequisites(text, (name.removeprefix("./") for name in names.splitlines()))
    with open_output(rule) as descriptor:
        write_all(os.fsencode(complete), descriptor)


def gpu_cpp_command(
    context: BuildContext, source: Path, output: Path, stage: tuple[str, ...] = ()
) -> Command:
    """Return the clang command, for the last stage of the options by default.

    Raises UsageError if no target is a GPU of the kind.
    """
    options, kind = context.options, GPU_CPP[source.suffix]
    build, compiled = build_of(kind), context.compiled.get(source, output)
    archs = [f"--offload-arch={target.arch}" for target in context.targets_of(kind)]
    if not archs:
        raise _no_gpu(build, source)
    argv = (
        *(str(context.llvm.tool("clang")), *(stage or _stage(options)), options.opt_flag),
        *("-fno-gpu-rdc" if options.makes_non_rdc_objects else "-fgpu-rdc", "--offload-new-driver"),
        *archs,
        *build.cpp_arguments(context),
        *(("-foffload-lto",) if options.device_code is DeviceCode.BITCODE else ()),
        *((options.debug_spelled,) if options.debug else ()),
        *(("-fPIC",) if options.pic or options.shared else ()),
        *(() if stage else _depfile_arguments(options, source, compiled)),
        *(
            *options.gpu_cpp_arguments,
            *options.compiler_arguments,
            as_operand(str(source)),
            "-o",
            str(output),
        ),
    )
    return Command(argv)


def _depfile_arguments(options: CompileOptions, source: Path, output: Path) -> tuple[str, ...]:
    if not options.is_device_only:
        return clang_depfile_arguments(options, source, output)
    return _device_rule(options, clang_depfile(output)) if notes_dependencies(options) else ()


def _device_rule(options: CompileOptions, rule: Path) -> tuple[str, ...]:
    """Return the options for a dependency file of a device compilation, which clang 22 does not write for HIP C++."""
    system = ("-sys-header-deps",) if options.depfile.has_system_files else ()
    words = ("-dependency-file", str(rule), "-MT", "object", *system)
    return tuple(part for word in words for part in ("-Xclang", word))


def _no_gpu(build: KindBuild, source: Path) -> UsageError:
    language = build.cpp
    msg = f"{language.name} is compiled for {language.gpus} only" if language else "no GPU for it"
    return UsageError(msg, hint=language.hint if language else "", location=str(source))


def _stage(options: CompileOptions) -> tuple[str, ...]:
    """Return the options for the last stage: an object, the output of --offload-device-only, or none."""
    side = (_DEVICE_ONLY,) if options.is_device_only else ()
    if options.is_host_only:
        side = (_HOST_ONLY,)
    if options.mode is Mode.SYNTAX:
        return (*side, "-fsyntax-only", "-nogpulib")
    if options.mode is not Mode.DEVICE:
        return ("-c", *side)
    form = "-S" if options.assembly else "-c"
    return (*side, form, *(("-emit-llvm",) if options.emit_llvm else ()))


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
