"""The machine code of reductions, shuffles and rotations for AMD GPUs, executed instruction by instruction."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import pytest
from support.amd_emulator import WAVES
from support.amd_isa import Code, Kernel, Memory, Wave, parse_code
from support.operation_batch import write_batch, wrong_threads
from support.operation_probe import Dim3, Probe
from support.operation_results import probes_for

from mlir_offload.offload.container.bundle import read_bundles
from mlir_offload.offload.link.objects import read_objects

NAMES = ("exchange", "turn", "subgroups", "blocks")
BLOCKS: tuple[Dim3, ...] = ((96, 1, 1), (20, 3, 2), (160, 1, 1))
# All of them for one GPU; of the others, what waves of 32 lanes and the older release do otherwise.
CASES = [
    pytest.param(
        release, arch, names, blocks, marks=pytest.mark.llvm(release), id=f"{release}-{arch}"
    )
    for release, arch, names, blocks in (
        (22, "gfx90a", NAMES, BLOCKS),
        (22, "gfx1100", ("turn", "blocks"), BLOCKS[1:]),
        (19, "gfx90a", ("blocks",), BLOCKS[:2]),
    )
]
OUTPUT, ARGUMENTS, IMPLICIT = 1 << 32, 1 << 16, 40
# Bits of the descriptor's properties, with the registers that each asks for.
USER_REGISTERS = ((0, 4), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 1))
KERNEL_ARGUMENTS = 3


def code_object(program: Path, output: Path) -> Path:
    (contents,) = read_objects(program)
    (section,) = contents.hip_fatbins
    (part,) = [p for b in read_bundles(section) for p in b.images if p.kind.startswith("hip")]
    output.write_bytes(part.content.whole())
    return output


def descriptors(image: Path) -> dict[str, Kernel]:
    """Return the kernels of a code object by name."""
    llvm = "/usr/lib/llvm-22/bin"
    symbols = _output(f"{llvm}/llvm-readelf", "-sW", str(image)).splitlines()
    sections = _output(f"{llvm}/llvm-readelf", "-SW", str(image)).splitlines()
    (rodata,) = [line.partition("]")[2].split() for line in sections if " .rodata " in line]
    shift = int(rodata[3], 16) - int(rodata[2], 16)
    content = image.read_bytes()
    found = {}
    for words in map(str.split, symbols):
        if len(words) > 7 and words[7].endswith(".kd"):
            address = int(words[1], 16)
            descriptor = content[address + shift : address + shift + 64]
            found[words[7].removesuffix(".kd")] = Kernel.parse(address, descriptor)
    return found


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel in the code of its image, in waves of so many lanes."""

    code: Code
    kernel: Kernel
    lanes: int

    def run(self, probe: Probe, block: Dim3, rows: int) -> memoryview:
        """Run the probe's kernel, whose parameters are those of one memref; return what it leaves there."""
        size = rows * prod(probe.grid) * prod(block)
        arguments = bytearray(struct.pack("<5Q", OUTPUT, OUTPUT, 0, size, 1) + bytes(256))
        struct.pack_into("<3I3H", arguments, IMPLICIT, *probe.grid, *block)
        memory = Memory({ARGUMENTS: arguments, OUTPUT: bytearray(b"\x5a" * (8 * size))})
        for number in range(prod(probe.grid)):
            place = (number % probe.grid[0], number // probe.grid[0] % probe.grid[1], 0)
            shared = bytearray(b"\xa5" * self.kernel.workgroup_bytes)
            running = [
                self.wave((memory, shared), block, place, first).run()
                for first in range(0, prod(block), self.lanes)
            ]
            while running:
                # All of them reach the barrier, or all end.
                ended = [next(wave, "end") == "end" for wave in running]
                assert len(set(ended)) == 1, "a barrier that not all waves reach"
                running = [] if ended[0] else running
        return memoryview(memory.regions[OUTPUT]).cast("q")

    def wave(self, memory: tuple[Memory, bytearray], block: Dim3, place: Dim3, first: int) -> Wave:
        """Return a wave as the GPU starts it: registers for the user, the block, the thread."""
        count = min(self.lanes, prod(block) - first)
        wave = Wave(
            code=self.code,
            memory=memory[0],
            shared=memory[1],
            at=self.kernel.entry,
            exec=(1 << count) - 1,
            lanes=self.lanes,
        )
        register = 0
        for bit, taken in USER_REGISTERS:
            if self.kernel.properties >> bit & 1:
                if bit == KERNEL_ARGUMENTS:
                    wave.s[register : register + 2] = [ARGUMENTS, 0]
                register += taken
        wave.s[self.kernel.user_registers : self.kernel.user_registers + 3] = place
        for lane in range(count):
            plane, thread = divmod(first + lane, block[0] * block[1])
            y, x = divmod(thread, block[0])
            wave.v[0][lane] = x | y << 10 | plane << 20
        return wave


@pytest.mark.parametrize(("release", "arch", "names", "blocks"), CASES)
def test_machine_code_gives_what_the_dialect_defines(
    mlir_offload: list[str],
    tmp_path: Path,
    release: int,
    arch: str,
    names: tuple[str, ...],
    blocks: tuple[Dim3, ...],
) -> None:
    if not Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode").is_dir():
        pytest.skip("no rocm-device-libs")
    lanes = WAVES[arch]
    probes = [probe for probe in probes_for(lanes) if probe.name in names]
    program = tmp_path / "program"
    flags = (f"--llvm={release}", f"--offload-arch={arch}", "-O1")
    sources = map(str, write_batch(tmp_path, probes, release))
    subprocess.run([*mlir_offload, *flags, *sources, "-o", str(program)], check=True)
    image = code_object(program, tmp_path / "image.elf")
    code = parse_code(_output("/usr/lib/llvm-22/bin/llvm-objdump", "-d", str(image)))
    kernels = descriptors(image)
    for probe in probes:
        (name,) = [name for name in kernels if name.endswith(f"__{probe.name}_kernel")]
        rows = len(probe.of(release))
        for block in blocks:
            # Integers wrap, and numbers that no lane uses may be anything.
            with np.errstate(all="ignore"):
                left = Launch(code, kernels[name], lanes).run(probe, block, rows)
            threads = prod(probe.grid) * prod(block)
            cut = [left[row * threads : (row + 1) * threads] for row in range(rows)]
            assert wrong_threads(probe, release, block, cut) == {}, (probe.name, block)
