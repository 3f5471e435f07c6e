"""The output of `--version`: the release, and the tools that a compilation would use."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from mlir_offload.driver import __version__
from mlir_offload.driver.option.command_line import CompileOptions
from mlir_offload.driver.system.parallel import run_concurrently
from mlir_offload.driver.tools.choose import choose_release, choose_toolkit, places_for
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.process import Runner


def render_version(runner: Runner) -> str:
    """Return the release of the driver, then the tools that a compilation would use."""
    llvm, cuda = run_concurrently(partial(_llvm_line, runner), partial(_cuda_line, runner))
    return f"mlir-offload {__version__}\n{llvm}\n{cuda}\n"


def _llvm_line(runner: Runner) -> str:
    try:
        llvm = choose_release(CompileOptions(inputs=(Path("any.mlir"),)), places_for(), runner)
    except ToolchainError:
        return "LLVM: none that lowers and links; see 'mlir-offload toolchains'"
    return f"LLVM {llvm.version}: {Path(llvm.tool('clang')).parent}"


def _cuda_line(runner: Runner) -> str:
    try:
        cuda = choose_toolkit(places_for(), runner)
    except ToolchainError:
        return "CUDA: none; see 'mlir-offload toolchains'"
    return f"CUDA {cuda.version}: {cuda.root}"
