"""Launch kernels of a program for AMD GPUs as machine code, or replay launches that the emulator recorded."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from support.amd_isa import Code, Kernel, Wave, parse_code
from support.amd_memory import Memory
from support.operation_probe import Dim3, Probe

from mlir_offload.offload.container.bundle import read_bundles
from mlir_offload.offload.link.objects import read_objects

_LLVM = "/usr/lib/llvm-22/bin"
_OUTPUT, _ARGUMENTS, _IMPLICIT = 1 << 32, 1 << 16, 40
# Bits of the descriptor's properties, with the number of user registers for each.
_USER_REGISTERS = ((0, 4), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 1))
_DISPATCH_PACKET, _KERNEL_ARGUMENTS = 1, 3


@dataclass(frozen=True, slots=True)
class Start:
    """The input of a launch: sizes, and the addresses of the arguments and of the dispatch packet."""

    grid: Dim3
    block: Dim3
    arguments: int
    packet: int = 0
    dynamic_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Image:
    """A code object, and the wavefront size that it is for."""

    code: Code
    kernels: Mapping[str, Kernel]
    lanes: int

    def run(self, name: str, start: Start, memory: Memory, blocks: int) -> None:
        """Run the first blocks of a launch in order."""
        kernel = self.kernels[name]
        assert not kernel.private_bytes, "private memory is not executed"
        for number in range(blocks):
            rest, x = divmod(number, start.grid[0])
            z, y = divmod(rest, start.grid[1])
            size = kernel.workgroup_bytes + start.dynamic_bytes
            shared = Memory({0: bytearray(b"\xa5" * size)})
            running = [
                self._wave(kernel, start, (memory, shared), (x, y, z), first).run()
                for first in range(0, prod(start.block), self.lanes)
            ]
            while running:
                # Either all waves reach the barrier, or all end.
                ended = [next(wave, "end") == "end" for wave in running]
                assert len(set(ended)) == 1, "a barrier that not all waves reach"
                running = [] if ended[0] else running

    def _wave(
        self, kernel: Kernel, start: Start, memory: tuple[Memory, Memory], place: Dim3, first: int
    ) -> Wave:
        """Return a wave in its initial state: user registers, block ID and thread IDs."""
        block = start.block
        count = min(self.lanes, prod(block) - first)
        wave = Wave(
            code=self.code,
            memory=memory[0],
            shared=memory[1],
            at=kernel.entry,
            exec=(1 << count) - 1,
            lanes=self.lanes,
        )
        addresses = {_DISPATCH_PACKET: start.packet, _KERNEL_ARGUMENTS: start.arguments}
        register = 0
        for bit, taken in _USER_REGISTERS:
            if kernel.properties >> bit & 1:
                address = addresses.get(bit, 0)
                wave.s[register : register + 2] = [address & 0xFFFFFFFF, address >> 32]
                register += taken
        register = kernel.user_registers
        for axis in kernel.block_axes:
            wave.s[register] = place[axis]
            register += 1
        for lane in range(count):
            plane, thread = divmod(first + lane, block[0] * block[1])
            y, x = divmod(thread, block[0])
            wave.v[0][lane] = x | y << 10 | plane << 20
        return wave


def read_images(program: Path, arch: str, lanes: int) -> tuple[Image, ...]:
    """Return the code objects of a linked program for an architecture."""
    (contents,) = read_objects(program)
    parts = [
        part
        for section in contents.hip_fatbins
        for bundle in read_bundles(section)
        for part in bundle.images
        if part.kind.startswith("hip") and part.arch == arch
    ]
    return tuple(_read_image(part.content.whole(), program, lanes) for part in parts)


def _read_image(content: bytes, program: Path, lanes: int) -> Image:
    image = program.with_suffix(".elf")
    image.write_bytes(content)
    code = parse_code(_output(f"{_LLVM}/llvm-objdump", "-d", str(image)))
    return Image(code, dict(_descriptors(image)), lanes)


def _descriptors(image: Path) -> Iterator[tuple[str, Kernel]]:
    """Yield the kernels of a code object by name."""
    symbols = _output(f"{_LLVM}/llvm-readelf", "-sW", str(image)).splitlines()
    sections = _output(f"{_LLVM}/llvm-readelf", "-SW", str(image)).splitlines()
    (rodata,) = [line.partition("]")[2].split() for line in sections if " .rodata " in line]
    shift = int(rodata[3], 16) - int(rodata[2], 16)
    content = image.read_bytes()
    for words in map(str.split, symbols):
        if len(words) > 7 and words[7].endswith(".kd"):
            address = int(words[1], 16)
            descriptor = content[address + shift : address + shift + 64]
            yield words[7].removesuffix(".kd"), Kernel.parse(address, descriptor)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def run_probe(image: Image, probe: Probe, block: Dim3, rows: int) -> memoryview:
    """Run the probe's kernel, whose parameters are one memref; return the contents of that memory."""
    (name,) = [name for name in image.kernels if name.rpartition("__")[2] == f"{probe.name}_kernel"]
    size = rows * prod(probe.grid) * prod(block)
    arguments = bytearray(struct.pack("<5Q", _OUTPUT, _OUTPUT, 0, size, 1) + bytes(256))
    struct.pack_into("<3I3H", arguments, _IMPLICIT, *probe.grid, *block)
    memory = Memory({_ARGUMENTS: arguments, _OUTPUT: bytearray(b"\x5a" * (8 * size))})
    # Integer overflow wraps, and values of inactive lanes may be arbitrary.
    with np.errstate(all="ignore"):
        image.run(name, Start(probe.grid, block, _ARGUMENTS), memory, prod(probe.grid))
    return memoryview(memory.regions[_OUTPUT]).cast("q")


@dataclass(frozen=True, slots=True)
class Difference:
    """A 32-bit word that differs: its address, the value after execution, and the recorded one."""

    address: int
    found: int
    wanted: int


def run_recorded(images: tuple[Image, ...], record: Path, blocks: int) -> list[Difference]:
    """Run the first blocks of a recorded launch; return the differences from the recorded memory.

    Fails if the blocks stored nothing.
    """
    lines = [tuple(map(int, line.split())) for line in record.read_text().splitlines()]
    (grid, block, (dynamic, arguments, packet)), places = lines[:3], lines[3:]
    before, after = (record.with_suffix(suffix).read_bytes() for suffix in (".before", ".after"))
    memory = Memory(dict(_cut(before, places)))
    (image,) = [image for image in images if record.stem in image.kernels]
    (width, height, depth), (x, y, z) = grid, block
    start = Start((width, height, depth), (x, y, z), arguments, packet, dynamic)
    with np.errstate(all="ignore"):
        image.run(record.stem, start, memory, min(blocks, prod(grid)))
    assert memory.stores
    return [
        Difference(address + at, _word(memory.regions[address], at), _word(wanted, at))
        for address, wanted in _cut(after, places)
        if memory.regions[address] != wanted
        for at in range(0, len(wanted), 4)
        if memory.regions[address][at : at + 4] != wanted[at : at + 4]
    ]


def _word(content: bytearray, at: int) -> int:
    return int.from_bytes(content[at : at + 4], "little")


def _cut(content: bytes, places: list[tuple[int, ...]]) -> Iterator[tuple[int, bytearray]]:
    start = 0
    for address, size in places:
        yield address, bytearray(content[start : start + size])
        start += size
