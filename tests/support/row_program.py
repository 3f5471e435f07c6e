"""Programs that apply operations to rows of numbers, one row for each thread."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.amd_emulator import AmdGpu
from support.cuda_emulator import CudaEmulator, run_program
from support.opencl import opencl_environment

_CODES = {"bf16": "H", "f32": "f", "f64": "d", "i64": "q", "i32": "i"}
_THREADS = 128
_CALLER = """\
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef struct { void *base, *data; int64_t offset, size, stride; } M;
void _mlir_ciface_run(PARAMETERS);
int main(int argc, char **argv) {
  int64_t count = COUNT, widths[] = {WIDTHS};
  FILE *file = fopen(argv[1], "rb");
  M m[INPUTS + 1];
  for (int n = 0; n <= INPUTS; n++) {
    void *data = calloc(count, widths[n]);
    m[n] = (M){data, data, 0, n < INPUTS ? count : count * OPERATIONS, 1};
    if (n < INPUTS && fread(data, widths[n], count, file) != count) return 1;
  }
  _mlir_ciface_run(ARGUMENTS);
  file = fopen(argv[2], "wb");
  return fwrite(m[INPUTS].data, widths[INPUTS], count, file) != count || fclose(file);
}
"""


@dataclass(frozen=True)
class RowProgram:
    """Operations on rows.

    `inputs` are the types by name of the value, `columns` the numbers of each input (bits, if it is bf16),
    `operations` the code that computes `%r` of type `result`, by name. The code may use `%cell`, a buffer of that
    type, at the index `%apart`.
    """

    inputs: Mapping[str, str]
    columns: Sequence[Sequence[float]]
    operations: Mapping[str, str]
    result: str

    @property
    def count(self) -> int:
        """Return the number of rows, a multiple of the threads in a block."""
        return len(self.columns[0])

    def text(self, *, is_host: bool = False) -> str:
        """Return the program. `is_host`: the operations are not in a kernel, but in a loop of the host."""
        count, size = self.count, len(self.operations) * self.count
        memory = {name: f"memref<{count}x{kind}>" for name, kind in self.inputs.items()}
        out, cells = f"memref<{size}x{self.result}>", f"memref<{2 * count}x{self.result}>"
        parameters = ", ".join(f"%{name}s: {kind}" for name, kind in memory.items())
        copies = "".join(
            f"  %{name}m = gpu.alloc() : {kind}\n  gpu.memcpy %{name}m, %{name}s : {kind}, {kind}\n"
            for name, kind in memory.items()
        )
        loads = "".join(
            f"    %{name} = memref.load %{name}m[%i0] : {kind}\n" for name, kind in memory.items()
        )
        # Each operation is in a region, because its values have the names of others.
        bodies = "".join(
            f"    scf.execute_region {{\n    {text.replace('CELLS', cells)}\n"
            f"    %at = arith.constant {place * count} : index\n    %to = arith.addi %at, %i0 : index\n"
            f"    memref.store %r, %out[%to] : {out}\n    scf.yield\n    }}\n"
            for place, text in enumerate(self.operations.values())
        )
        if is_host:
            loads, bodies = (
                re.sub(rf"%({'|'.join(self.inputs)})m\[", r"%\1s[", text).replace(
                    "%out[", "%results["
                )
                for text in (loads, bodies)
            )
            return f"""\
func.func @run({parameters}, %results: {out}) attributes {{llvm.emit_c_interface}} {{
  %first = arith.constant 0 : index
  %step = arith.constant 1 : index
  %count = arith.constant {count} : index
  scf.for %i0 = %first to %count step %step {{
{loads}{bodies}  }}
  return
}}
"""
        return f"""\
func.func @run({parameters}, %results: {out}) attributes {{llvm.emit_c_interface}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %threads = arith.constant {_THREADS} : index
  %blocks = arith.constant {count // _THREADS} : index
{copies}  %out = gpu.alloc() : {out}
  %cell = gpu.alloc() : {cells}
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %blocks, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {{
    %before = arith.muli %bx, %threads : index
    %i0 = arith.addi %before, %tx : index
    // GPUs without an atomic operation on 16 bits exchange 32.
    %apart = arith.addi %i0, %i0 : index
{loads}{bodies}    gpu.terminator
  }}
  gpu.memcpy %results, %out : {out}, {out}
  return
}}
"""

    def write(self, folder: Path, *, is_host: bool = False) -> tuple[Path, Path]:
        """Write the program, its C caller and the rows; return the paths of the first two."""
        source, caller = folder / "run.mlir", folder / "caller.c"
        source.write_text(self.text(is_host=is_host))
        inputs, operations = len(self.inputs), len(self.operations)
        codes = [_CODES[kind] for kind in self.inputs.values()]
        widths = [struct.calcsize(f"<{code}") for code in codes]
        widths.append(operations * struct.calcsize(f"<{_CODES[self.result]}"))
        words = {
            "PARAMETERS": ", ".join(["M *"] * (inputs + 1)),
            "ARGUMENTS": ", ".join(f"m + {place}" for place in range(inputs + 1)),
            "WIDTHS": ", ".join(map(str, widths)),
            "OPERATIONS": str(operations),
            "INPUTS": str(inputs),
            "COUNT": str(self.count),
        }
        text = _CALLER
        for word, value in words.items():
            text = text.replace(word, value)
        caller.write_text(text)
        packed = (
            struct.pack(f"<{self.count}{code}", *column)
            for code, column in zip(codes, self.columns, strict=True)
        )
        (folder / "in").write_bytes(b"".join(packed))
        return source, caller

    def results(self, folder: Path) -> dict[str, tuple[float, ...]]:
        """Return the numbers that a run wrote, by the name of the operation."""
        code = f"<{len(self.operations) * self.count}{_CODES[self.result]}"
        found = struct.unpack(code, (folder / "out").read_bytes())
        return {
            name: found[place * self.count : (place + 1) * self.count]
            for place, name in enumerate(self.operations)
        }

    def run(
        self,
        compiler: Sequence[str],
        folder: Path,
        *flags: str,
        opencl: bool = False,
        is_host: bool = False,
    ) -> dict[str, tuple[float, ...]]:
        """Compile and run for the CPU, or for an OpenCL device."""
        program, sources = folder / "app", self.write(folder, is_host=is_host)
        subprocess.run([*compiler, *flags, *sources, "-o", program], check=True)
        environment = os.environ | (opencl_environment() if opencl else {})
        command: list[str | Path] = [program, folder / "in", folder / "out"]
        subprocess.run(command, check=True, env=environment)
        return self.results(folder)

    def run_on_cuda(
        self, compiler: Sequence[str], emulator: CudaEmulator, folder: Path, *flags: str
    ) -> dict[str, tuple[float, ...]]:
        """Compile for an NVIDIA GPU, and run in the emulator."""
        program = folder / "app"
        words = [*flags, *emulator.options(is_kept=False), "-o", str(program)]
        subprocess.run([*compiler, *words, *self.write(folder)], check=True)
        ran = run_program(program, str(folder / "in"), str(folder / "out"))
        assert (ran.returncode, ran.stderr) == (0, "")
        return self.results(folder)

    def run_on_amd(
        self, amd: AmdGpu, folder: Path, arch: str, release: int = 22
    ) -> dict[str, tuple[float, ...]]:
        """Compile for an AMD GPU, and run in the emulator."""
        amd.build(release, arch, folder / "app", *self.write(folder))
        ran = amd.run(folder / "app", str(folder / "in"), str(folder / "out"), arch=arch)
        assert (ran.returncode, ran.stderr) == (0, b""), ran.stderr.decode()
        return self.results(folder)
