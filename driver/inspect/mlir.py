"""The kernels of an MLIR program, as mlir-opt outlines them."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver.system.workspace import open_workspace
from mlir_offload.driver.tools.choose import places_for
from mlir_offload.offload.container.contents import Part, SourceKernel, SourceModule
from mlir_offload.toolchain.llvm import LlvmToolchain, choose_llvm, llvm_probe
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.search import find_llvm
from mlir_offload.toolchain.tool import Role
from mlir_offload.translate.diagnostics import condense
from mlir_offload.translate.gpu_module import GpuModule
from mlir_offload.translate.input_pipeline import check_source
from mlir_offload.translate.legalize.split import SplitOptions, split_program
from mlir_offload.translate.lower import normalize_command
from mlir_offload.translate.mlir.module import parse_module
from mlir_offload.translate.mlir.operation import Operation, function_type


def with_modules(part: Part, path: Path, llvm: str, runner: Runner) -> Part:
    """Return the part with the GPU modules of the program, outlined as the compiler outlines them.

    Raises ToolchainError if no LLVM is installed, SourceError for a program that the compiler rejects.
    """
    places = places_for(llvm)
    release = choose_llvm(find_llvm(places), places.llvm, llvm_probe(runner), roles=[Role.LOWER])
    with open_workspace() as workspace:
        text = _normalized(release, path, workspace / "normal.mlir", runner)
    written = path.read_bytes().decode(errors="surrogateescape")
    program = split_program(
        text, SplitOptions(source_text=written, unit_id=path.name, llvm_major=release.version.major)
    )
    operations = {
        operation.symbol: operation
        for operation in parse_module(text).operations
        if operation.name == "gpu.module"
    }
    modules = tuple(_module(module, operations[module.name]) for module in program.modules)
    return replace(part, modules=modules)


def _normalized(llvm: LlvmToolchain, path: Path, output: Path, runner: Runner) -> str:
    content = check_source(path)
    completed = runner.run(normalize_command(llvm, path, output, content=content))
    if completed.returncode:
        raise condense(completed, source=path)
    return output.read_text(encoding="utf-8", errors="surrogateescape")


def _module(module: GpuModule, operation: Operation) -> SourceModule:
    functions = {function.symbol: function for function in operation.operations}
    kernels = tuple(
        _kernel(kernel.name, kernel.symbol, functions[kernel.name]) for kernel in module.kernels
    )
    return SourceModule(module.name, operation.attribute("targets").elements, kernels)


def _kernel(name: str, symbol: str, function: Operation) -> SourceKernel:
    sizes = function.known_block_size
    block = (sizes[0], sizes[1], sizes[2]) if sizes else None
    return SourceKernel(name, symbol, tuple(function_type(function)[0]), block)
