"""The output of `--version`: the release, and the tools that a compilation would use."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver import __version__
from mlir_offload.driver.option.command_line import CompileOptions
from mlir_offload.driver.system.parallel import run_concurrently
from mlir_offload.driver.tools.choose import choose_release, choose_toolkit, places_of
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.process import Runner


def render_version(options: CompileOptions, runner: Runner) -> str:
    """Return the release of the driver, then the tools that a compilation with these options would use."""
    lines = partial(_llvm_line, options, runner), partial(_cuda_line, options, runner)
    llvm, cuda = run_concurrently(*lines)
    return f"mlir-offload {__version__}\n{llvm}\n{cuda}\n"


def _llvm_line(options: CompileOptions, runner: Runner) -> str:
    try:
        lowered = replace(options, inputs=(Path("any.mlir"),))
        llvm = choose_release(lowered, places_of(options), runner)
    except ToolchainError:
        return "LLVM: none that lowers and links; see 'mlir-offload toolchains'"
    return f"LLVM {llvm.version}: {Path(llvm.tool('clang')).parent}"


def _cuda_line(options: CompileOptions, runner: Runner) -> str:
    try:
        cuda = choose_toolkit(places_of(options), runner)
    except ToolchainError:
        return "CUDA: none; see 'mlir-offload toolchains'"
    return f"CUDA {cuda.version}: {cuda.root}"
