"""CUDA C++ among the sources: compiled so that its kernels and those of MLIR can launch each other."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from mlir_offload.driver.context import BuildContext
from mlir_offload.driver.dependencies import clang_depfile_arguments
from mlir_offload.driver.options import DeviceCode
from mlir_offload.toolchain.errors import MlirOffloadError, ToolchainError, UsageError
from mlir_offload.toolchain.process import Command, Completed, tool_failed
from mlir_offload.toolchain.target import Kind

_MISSING_HEADER = re.compile(
    r"__clang_cuda_runtime_wrapper\.h:\d+:\d+: fatal error: '([^']+)' file not found"
)


def compile_cuda_cpp(context: BuildContext, source: Path, output: Path) -> None:
    """Compile CUDA C++ by the consumer's clang, as relocatable device code (`-fgpu-rdc`).

    Raises UsageError where no GPU is compiled for, ToolchainError where clang and CUDA's headers
    do not fit together.
    """
    command = cuda_cpp_command(context, source, output)
    context.executor.tool(command, output, diagnose=partial(_not_compiled, context))


def cuda_cpp_command(context: BuildContext, source: Path, output: Path) -> Command:
    """Return the call of clang. Raises UsageError where there is no GPU among the targets."""
    options, cuda = context.options, context.cuda
    archs = [f"--offload-arch={target.arch}" for target in context.targets_of(Kind.CUDA)]
    if not archs:
        msg = "CUDA C++ is compiled for GPUs only"
        hint = "name an architecture of NVIDIA's with --offload-arch=sm_NN"
        raise UsageError(msg, hint=hint, location=str(source))
    argv = (
        *(str(context.llvm.tool("clang")), "-c", f"-O{options.opt_level}"),
        *("-fno-gpu-rdc" if options.makes_final_objects else "-fgpu-rdc", "--offload-new-driver"),
        *("-Wno-unknown-cuda-version", *archs),
        *((f"--cuda-path={cuda.root}",) if cuda else ()),
        *(("-foffload-lto",) if options.device_code is DeviceCode.BITCODE else ()),
        *(("-g",) if options.debug else ()),
        *(("-fPIC",) if options.pic or options.shared else ()),
        *clang_depfile_arguments(options, source, output),
        *(*options.cuda_arguments, *options.compiler_arguments, str(source), "-o", str(output)),
    )
    return Command(argv)


def _not_compiled(context: BuildContext, failed: Completed) -> MlirOffloadError:
    """Return the error for a compilation that failed: clang includes headers that CUDA may lack."""
    missing = _MISSING_HEADER.search(failed.stderr)
    if missing is None:
        return tool_failed(failed)
    version = f" {context.cuda.version}" if context.cuda else ""
    return ToolchainError(
        f"clang of LLVM {context.consumer} includes {missing[1]}, which this CUDA{version} lacks",
        hint="install the headers of all of CUDA (cuRAND's too), or another release of LLVM or CUDA; "
        "or declare what you use yourself and give -nocudainc",
    )
