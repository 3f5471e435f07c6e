"""Verify what the linking LLVM makes of downgraded IR, and report an error if it rejects it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.step import downgrade
from mlir_offload.toolchain import ptx
from mlir_offload.toolchain.errors import CompatibilityError, MlirOffloadError, UsageError
from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.process import Completed, tool_failed
from mlir_offload.translate.kind import cuda as kind_cuda

if TYPE_CHECKING:
    from mlir_offload.translate.kind.cuda import DeviceCodegen

_NOT_SELECTED = pattern(r"Cannot select: intrinsic %(llvm\.[\w.]+)")
_UNKNOWN_CPU = pattern(r"error: unknown target CPU '([^']+)'")
_ARCH = pattern(r"-m(?:arch|cpu)=")


def verify_downgraded_bitcode(
    context: BuildContext, lowered: Path, image: Path, codegen: DeviceCodegen
) -> None:
    """Let the linking LLVM generate PTX from the bitcode, and compare its kernels with those of `lowered`.

    If ptxas is installed, it assembles the PTX, because inline assembly may require a newer PTX version.
    Raises CompatibilityError if a tool fails, or if a kernel or its launch bounds are missing.
    """
    assembly = image.with_suffix(".check.s")
    command = kind_cuda.nvptx_assembly_command(context.llvm, image, assembly, codegen, None)
    context.executor.tool(command, assembly, diagnose=partial(not_taken, context))
    context.executor.step(downgrade.SameKernels(source=lowered, assembly=assembly))

    cuda = context.cuda
    if cuda is not None and cuda.ptxas is not None and ptx.knows_arch(cuda, codegen.arch):
        cubin = assembly.with_suffix(".o")
        assemble = kind_cuda.cubin_command(cuda, assembly, cubin, codegen, ())
        context.executor.tool(assemble, cubin, diagnose=partial(not_taken, context))


def not_taken(context: BuildContext, failed: Completed) -> MlirOffloadError:
    """Return the error of the linking clang. If a newer release wrote its input, the error says so."""
    error = tool_failed(failed)
    unknown = _UNKNOWN_CPU.search(failed.stderr)
    if unknown is not None:
        msg = f"clang {context.consumer} does not know the processor '{unknown[1]}'"
        hint = f"clang-{context.llvm.version.major} --print-supported-cpus lists those of -march="
        return UsageError(msg, hint=hint)
    missing = _NOT_SELECTED.search(failed.stderr)
    if missing is not None:
        archs = [word.partition("=")[2] for word in failed.command.argv if _ARCH.match(word)]
        msg = f"{archs[0] if archs else 'the target'} has no instruction for {missing[1]}"
        hint = "some are for one architecture only, as sm_90a: attach that chip to the gpu.module, or choose it"
        return CompatibilityError(msg, hint=hint)
    lowered = context.mlir.version.major
    if lowered <= context.llvm.version.major:
        return error
    reason = next((line for line in failed.stderr.splitlines() if "error" in line.lower()), "")
    reason = reason.partition("error: ")[2] or reason or error.message
    msg = f"LLVM {context.consumer} rejects the output of LLVM {lowered} for this file: {reason}"
    hint = f"lower and link with one release, --llvm={context.consumer}; or make an object of the device code, --device-code=object"
    return CompatibilityError(msg, hint=hint)
