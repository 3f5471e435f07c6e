"""NVIDIA's tools for tests, if a toolkit is installed."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import pytest

from mlir_offload.driver.tools.choose import choose_toolkit, places_for
from mlir_offload.offload.link.fatbinary_adapter import CudaTools, write_cuda_directory
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.process import ProcessRunner


@cache
def _found(name: str) -> str:
    try:
        found = getattr(choose_toolkit(places_for(), ProcessRunner()), name)
    except ToolchainError:
        return ""
    return str(found)


def cuda_tool(name: str) -> str:
    """Return the path of `ptxas` or `nvlink`; skip the test if it is not installed."""
    return _found(name) or pytest.skip(f"no {name}: no CUDA toolkit is installed")


@cache
def cuda_root() -> Path:
    """Return the directory of the installed CUDA, a toolkit or the wheels; it contains bin and nvvm."""
    ptxas = _found("ptxas")
    return Path(ptxas).parent.parent if ptxas else Path("no-cuda")


def assemble(ptx: str, output: Path, *options: str) -> str:
    """Assemble PTX with ptxas; return the output of `-v`."""
    source = output.with_suffix(".ptx")
    source.write_text(ptx)
    argv = [cuda_tool("ptxas"), "-v", *options, str(source), "-o", str(output)]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stderr


def cuda_directory(directory: Path, major: int) -> Path:
    """Return a directory that clang of a release accepts as `--cuda-path`, for any installation of CUDA."""
    cuda_tool("ptxas")
    found = choose_toolkit(places_for(), ProcessRunner())
    assert found.ptxas
    assert found.nvlink
    assert found.fatbinary
    tools = CudaTools(found.version, found.ptxas, found.nvlink, found.fatbinary)
    return write_cuda_directory(directory, tools, major)
