"""A CUDA toolkit whose runtime library interprets PTX on the CPU."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from support.emulator_library import emulator_library

from mlir_offload.driver.tools.choose import choose_toolkit, places_for
from mlir_offload.toolchain.process import ProcessRunner

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tests" / "gpu" / "cuda"
# The interpreter uses the formats and rounding modes of PTX, so the compiler must not change them.
FLAGS = ("-std=c++20", "-frounding-math", "-ffp-contract=off")
# The exit status of the interpreter if a kernel has undefined behavior in PTX.
FAULT = 97


@dataclass(frozen=True, slots=True)
class CudaEmulator:
    """Two directories for `--cuda-path`: with NVIDIA's tools, and with tools that keep the PTX of each cubin."""

    plain: Path
    keeping: Path

    def options(self, *, is_kept: bool) -> tuple[str, ...]:
        """Return the options for a program that keeps PTX for later GPUs, or for the default program."""
        if is_kept:
            return f"--cuda-path={self.plain}", "-fno-gpu-rdc", "--cuda-include-ptx=all"
        return (f"--cuda-path={self.keeping}",)


def run_program(
    program: Path,
    *arguments: str,
    seed: int = 0,
    output: Path | None = None,
    device: str = "cuda",
) -> subprocess.CompletedProcess[str]:
    """Run a program; its output, which may be binary, is written to `output` if given.

    The seed determines the order of threads, poison, and what PTX leaves undefined; 0 is in order.
    """
    variables = {**os.environ, "PTX_SEED": str(seed), "MLIR_OFFLOAD_DEVICE": device}
    argv = [str(program), *arguments]
    if output is None:
        return subprocess.run(argv, env=variables, capture_output=True, text=True, check=False)
    with output.open("wb") as file:
        return subprocess.run(
            argv, env=variables, stdout=file, stderr=subprocess.PIPE, text=True, check=False
        )


def cuda_emulator(directory: Path) -> CudaEmulator:
    """Create both directories of the emulator."""
    library = emulator_library(SOURCES, "libcudart", FLAGS)
    toolkit = choose_toolkit(places_for(), ProcessRunner()).root
    plain, keeping = directory / "plain", directory / "keeping"
    for root in (plain, keeping):
        (root / "lib64").mkdir(parents=True)
        (root / "lib64" / "libcudart.so").symlink_to(library)
        for name in ("nvvm", "include"):
            (root / name).symlink_to(toolkit / name)
    (plain / "bin").symlink_to(toolkit / "bin")
    (keeping / "bin").mkdir()
    store = keeping / "store"
    store.mkdir()
    for tool in (SOURCES / "bin").iterdir():
        text = tool.read_text().replace("@REAL@", str(toolkit / "bin"))
        made = keeping / "bin" / tool.name
        made.write_text(text.replace("@STORE@", str(store)))
        made.chmod(0o755)
    return CudaEmulator(plain, keeping)
