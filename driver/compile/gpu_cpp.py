"""C++ with kernels among the sources: they and those of MLIR can launch each other."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from mlir_offload.driver.compile.clang_error import clang_error
from mlir_offload.driver.compile.context import BuildContext, clang_depfile_arguments
from mlir_offload.driver.compile.kind_build import KindBuild, build_of
from mlir_offload.driver.option.command_line import GPU_CPP, CompileOptions, DeviceCode, Mode
from mlir_offload.toolchain.errors import MlirOffloadError, ToolchainError, UsageError
from mlir_offload.toolchain.process import Command, Completed, as_operand

_MISSING_HEADER = re.compile(
    r"__clang_cuda_runtime_wrapper\.h:\d+:\d+: fatal error: '([^']+)' file not found"
)
# What clang says for want of HIP's headers and of ROCm's device libraries, and the constant that its
# releases from 22 on do not define, which the headers of ROCm 5 use.
_MISSING_HIP = re.compile(
    r"error: cannot find (?:HIP runtime|ROCm device library)|'hip/[\w/.]+' file not found"
)
_OLD_HIP = "undeclared identifier '__AMDGCN_WAVEFRONT_SIZE'"


def compile_gpu_cpp(context: BuildContext, source: Path, output: Path) -> None:
    """Compile CUDA C++ or HIP C++ by the consumer's clang, as relocatable device code (`-fgpu-rdc`).

    Raises UsageError where no GPU of the kind is compiled for, ToolchainError where clang and the
    headers of the vendor do not fit together.
    """
    command = gpu_cpp_command(context, source, output)
    context.executor.tool(command, output, diagnose=partial(_not_compiled, context))


def gpu_cpp_command(context: BuildContext, source: Path, output: Path) -> Command:
    """Return the call of clang. Raises UsageError where there is no GPU for it among the targets."""
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
        *clang_depfile_arguments(options, source, output),
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
    """Return the last stage, which is another than the object for device code alone."""
    if options.mode is not Mode.DEVICE:
        return ("-c", *(("--offload-host-only",) if options.is_host_only else ()))
    form = "-S" if options.assembly else "-c"
    return ("--offload-device-only", form, *(("-emit-llvm",) if options.emit_llvm else ()))


def _not_compiled(context: BuildContext, failed: Completed) -> MlirOffloadError:
    """Return the error for a compilation that failed: clang includes headers that may be lacking."""
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
