"""Run programs for AMD GPUs on the emulator of tests/gpu/amd, which replaces libamdhip64."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from support.emulator_library import emulator_library

SOURCES = Path(__file__).resolve().parents[1] / "gpu" / "amd"
DEVICE_LIBRARIES = Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")
FLAGS = ("-std=c++17",)
LIBRARY = "/usr/lib/x86_64-linux-gnu/libLLVM.so.22.1"
# The exit status with which the emulator reports a fault.
FAULT = 99
WAVES = {"gfx90a": 64, "gfx1100": 32}
# Options that make the device link embed the optimized IR in the code object.
_EMBEDDING = {
    19: "-Wl,-mllvm,-lto-embed-bitcode=optimized",
    22: "-mllvm=-lto-embed-bitcode=optimized",
}


def make_emulator(root: Path) -> Path:
    """Create a ROCm directory with the device libraries, and the emulator as its HIP runtime."""
    (root / "lib").mkdir(parents=True)
    (root / "amdgcn").mkdir()
    (root / "amdgcn" / "bitcode").symlink_to(DEVICE_LIBRARIES)
    library = emulator_library(SOURCES, "libamdhip64", FLAGS, libraries=(LIBRARY,))
    (root / "lib" / "libamdhip64.so").symlink_to(library)
    return root


@dataclass(frozen=True, slots=True)
class AmdGpu:
    """Builds and runs programs for the emulator."""

    command: list[str]
    rocm: Path

    def build(
        self, release: int, arch: str, program: Path, *arguments: str | Path
    ) -> subprocess.CompletedProcess[str]:
        """Compile and link a program whose code objects contain their IR."""
        flags = (f"--llvm={release}", f"--rocm-path={self.rocm}", f"--offload-arch={arch}")
        linker = f"-Wl,--device-linker=amdgcn-amd-amdhsa={_EMBEDDING[release]}"
        words = [*flags, "--device-code=bitcode", linker, *map(str, arguments), "-o", str(program)]
        done = subprocess.run([*self.command, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done

    def run(
        self,
        program: Path,
        *arguments: str,
        seed: int = 0,
        arch: str = "",
        record: Path | None = None,
        blocks: int = 0,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program. A seed other than 0 changes the order of threads.

        With `record`, the memory around the first `blocks` blocks of each kernel is written to that directory.
        """
        environment = os.environ | {
            "AMD_EMULATOR_SEED": str(seed),
            "AMD_EMULATOR_ARCH": arch,
            "MLIR_OFFLOAD_DEVICE": "hip",
            "LD_LIBRARY_PATH": str(self.rocm / "lib"),
        }
        if blocks:
            environment |= {"AMD_EMULATOR_RECORD": str(record), "AMD_EMULATOR_BLOCKS": str(blocks)}
        return subprocess.run(
            [program, *arguments], capture_output=True, check=False, env=environment
        )
