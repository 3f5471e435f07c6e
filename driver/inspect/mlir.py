"""What an MLIR program says of its kernels: mlir-opt reads it, as the compiler would."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver.compile.choose import places_for
from mlir_offload.driver.workspace import open_workspace
from mlir_offload.offload.contents import Part, SourceKernel, SourceModule
from mlir_offload.toolchain.llvm import LlvmToolchain, choose_llvm, llvm_probe
from mlir_offload.toolchain.llvm_tools import Role
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.search import find_llvm
from mlir_offload.translate.diagnostics import check_source, condense
from mlir_offload.translate.gpu_module import GpuModule
from mlir_offload.translate.lower import normalize_command
from mlir_offload.translate.mlir_syntax import MLIR
from mlir_offload.translate.mlir_text import (
    OperationText,
    parse_module,
    symbol_name,
)
from mlir_offload.translate.split import split_program

_BLOCK_SIZE = re.compile(r"known_block_size = array<i32: (\d+), (\d+), (\d+)>")
_FUNCTION_TYPE = "function_type = "
_TARGETS = "targets = "


def with_modules(part: Part, path: Path, llvm: str, runner: Runner) -> Part:
    """Return the part with the GPU modules of the program, outlined as the compiler outlines them.

    Raises ToolchainError where no LLVM is installed, SourceError for what the compiler would refuse.
    """
    places = places_for(llvm)
    release = choose_llvm(find_llvm(places), places.llvm, llvm_probe(runner), roles=[Role.LOWER])
    with open_workspace() as workspace:
        text = _normalized(release, path, workspace / "normal.mlir", runner)
    written = path.read_bytes().decode(errors="surrogateescape")
    program = split_program(
        text, source_text=written, unit_id=path.name, llvm_major=release.version.major
    )
    operations = {
        symbol_name(operation): operation
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


def _module(module: GpuModule, operation: OperationText) -> SourceModule:
    functions = {symbol_name(function): function for function in operation.body}
    kernels = tuple(
        _kernel(kernel.name, kernel.symbol, functions[kernel.name].attributes)
        for kernel in module.kernels
    )
    return SourceModule(module.name, _listed(operation.attributes, _TARGETS, "["), kernels)


def _kernel(name: str, symbol: str, attributes: str) -> SourceKernel:
    block = _BLOCK_SIZE.search(attributes)
    size = (int(block[1]), int(block[2]), int(block[3])) if block else None
    return SourceKernel(name, symbol, _listed(attributes, _FUNCTION_TYPE, "("), size)


def _listed(text: str, start: str, bracket: str) -> tuple[str, ...]:
    """Return the elements of the bracket that opens at or behind `start`; none where there is none."""
    place = text.find(start)
    opening = text.find(bracket, place) if place >= 0 else -1
    if opening < 0:
        return ()
    depth = 0
    for index in range(opening, len(text)):
        depth += (text[index] in "([{") - (text[index] in ")]}")
        if depth == 0:
            return tuple(MLIR.split_list(text[opening + 1 : index]))
    return ()
