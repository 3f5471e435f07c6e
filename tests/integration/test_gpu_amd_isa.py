"""The machine code of reductions, shuffles and rotations for gfx90a, executed instruction by instruction."""

from __future__ import annotations

import struct
import subprocess
from math import prod
from pathlib import Path

import numpy as np
import pytest
from support.amd_isa import Code, Kernel, Memory, Wave, parse_code
from support.amd_registers import ALL, LANES
from support.operation_batch import write_batch, wrong_threads
from support.operation_probe import Dim3, Probe
from support.operation_results import probes_for

from mlir_offload.offload.container.bundle import read_bundles
from mlir_offload.offload.link.objects import read_objects

NAMES = ("exchange", "turn", "subgroups", "blocks")
BLOCKS: tuple[Dim3, ...] = ((96, 1, 1), (20, 3, 2), (160, 1, 1))
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


def launch(code: Code, kernel: Kernel, probe: Probe, block: Dim3, rows: int) -> memoryview:
    """Run the probe's kernel, whose parameters are those of one memref; return what it leaves there."""
    size = rows * prod(probe.grid) * prod(block)
    arguments = bytearray(struct.pack("<5Q", OUTPUT, OUTPUT, 0, size, 1) + bytes(256))
    struct.pack_into("<3I3H", arguments, IMPLICIT, *probe.grid, *block)
    memory = Memory({ARGUMENTS: arguments, OUTPUT: bytearray(b"\x5a" * (8 * size))})
    for number in range(prod(probe.grid)):
        place = (number % probe.grid[0], number // probe.grid[0] % probe.grid[1], 0)
        shared = bytearray(b"\xa5" * kernel.workgroup_bytes)
        running = [
            wave_of(code, kernel, (memory, shared), block, place, first).run()
            for first in range(0, prod(block), LANES)
        ]
        while running:
            # All of them reach the barrier, or all end.
            ended = [next(wave, "end") == "end" for wave in running]
            assert len(set(ended)) == 1, "a barrier that not all waves reach"
            running = [] if ended[0] else running
    return memoryview(memory.regions[OUTPUT]).cast("q")


def wave_of(
    code: Code,
    kernel: Kernel,
    memory: tuple[Memory, bytearray],
    block: Dim3,
    place: Dim3,
    first: int,
) -> Wave:
    """Return a wave as the GPU starts it: registers for the user, the block, the thread."""
    count = min(LANES, prod(block) - first)
    active = ALL >> (LANES - count)
    wave = Wave(code=code, memory=memory[0], shared=memory[1], at=kernel.entry, exec=active)
    register = 0
    for bit, taken in USER_REGISTERS:
        if kernel.properties >> bit & 1:
            if bit == KERNEL_ARGUMENTS:
                wave.s[register : register + 2] = [ARGUMENTS, 0]
            register += taken
    wave.s[kernel.user_registers : kernel.user_registers + 3] = place
    for lane in range(count):
        thread = first + lane
        x, y, z = thread % block[0], thread // block[0] % block[1], thread // (block[0] * block[1])
        wave.v[0][lane] = x | y << 10 | z << 20
    return wave


@pytest.mark.parametrize("release", [pytest.param(22, marks=pytest.mark.llvm(22))])
def test_machine_code_gives_what_the_dialect_defines(
    mlir_offload: list[str], tmp_path: Path, release: int
) -> None:
    if not Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode").is_dir():
        pytest.skip("no rocm-device-libs")
    probes = [probe for probe in probes_for(LANES) if probe.name in NAMES]
    program = tmp_path / "program"
    flags = (f"--llvm={release}", "--offload-arch=gfx90a", "-O1")
    sources = map(str, write_batch(tmp_path, probes, release))
    subprocess.run([*mlir_offload, *flags, *sources, "-o", str(program)], check=True)
    image = code_object(program, tmp_path / "image.elf")
    code = parse_code(_output("/usr/lib/llvm-22/bin/llvm-objdump", "-d", str(image)))
    kernels = descriptors(image)
    for probe in probes:
        (name,) = [name for name in kernels if name.endswith(f"__{probe.name}_kernel")]
        rows = len(probe.of(release))
        for block in BLOCKS:
            # Integers wrap, and numbers that no lane uses may be anything.
            with np.errstate(all="ignore"):
                left = launch(code, kernels[name], probe, block, rows)
            threads = prod(probe.grid) * prod(block)
            cut = [left[row * threads : (row + 1) * threads] for row in range(rows)]
            assert wrong_threads(probe, release, block, cut) == {}, (probe.name, block)
