"""All probes of a release as one program, which runs each with all of its block sizes and prints the results.

The program writes 64 bits for every row and thread to its output; with names of probes as arguments, only
for these.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path

from support.operation_probe import Dim3, Probe, expected_of, text_of

Results = dict[tuple[str, Dim3], list[Sequence[int]]]

_HEAD = """\
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { int64_t *allocated, *aligned; int64_t offset, size, stride; } numbers;
typedef void probe(numbers *, int64_t, int64_t, int64_t);
static void run(probe *function, int64_t rows, int64_t blocks, int64_t x, int64_t y, int64_t z) {
  int64_t size = rows * blocks * x * y * z;
  int64_t *data = malloc(size * sizeof *data);
  memset(data, 0x5a, size * sizeof *data);
  numbers all = {data, data, 0, size, 1};
  function(&all, x, y, z);
  fwrite(data, sizeof *data, size, stdout);
  free(data);
}
static int is_asked(int count, char **names, const char *name) {
  int found = count == 1;
  for (int i = 1; i < count; ++i) found |= !strcmp(names[i], name);
  return found;
}
"""


def write_batch(folder: Path, probes: Sequence[Probe], release: int) -> tuple[Path, Path]:
    """Write the kernels in MLIR and the C program that calls them; return both paths."""
    source, caller = folder / "probes.mlir", folder / "caller.c"
    source.write_text(text_of(probes, release))
    caller.write_text(_caller_of(probes, release))
    return source, caller


def _caller_of(probes: Sequence[Probe], release: int) -> str:
    lines = [_HEAD, *(f"probe _mlir_ciface_{probe.name};" for probe in probes)]
    lines.append("int main(int count, char **names) {")
    for probe in probes:
        lines.append(f'  if (is_asked(count, names, "{probe.name}")) {{')
        rows = len(probe.of(release))
        for x, y, z in probe.blocks:
            shape = f"{rows}, {prod(probe.grid)}, {x}, {y}, {z}"
            lines.append(f"    run(_mlir_ciface_{probe.name}, {shape});")
        lines.append("  }")
    return "\n".join([*lines, "  return 0;", "}", ""])


def read_results(output: bytes, probes: Iterable[Probe], release: int) -> Results:
    """Return the numbers of each row, by probe and block size, from the output of the program."""
    numbers = array("q")
    numbers.frombytes(output)
    found: Results = {}
    start = 0
    for probe in probes:
        for block in probe.blocks:
            threads = prod(probe.grid) * prod(block)
            end = start + threads * len(probe.of(release))
            starts = range(start, end, threads)
            found[probe.name, block] = [numbers[row : row + threads] for row in starts]
            start = end
    assert start == len(numbers), "the program wrote more"
    return found


def wrong_threads(
    probe: Probe, release: int, block: Dim3, rows: Sequence[Sequence[int]]
) -> dict[str, list[tuple[Dim3, Dim3, int, int]]]:
    """Return, by row, some threads with a wrong number: block, thread, and both numbers."""
    threads = probe.threads(block)
    wrong = {
        name: [
            (thread.block, thread.thread, wanted, got)
            for thread, wanted, got in zip(threads, numbers, given, strict=True)
            if wanted is not None and wanted != got
        ][:4]
        for (name, numbers), given in zip(
            expected_of(probe, release, block).items(), rows, strict=True
        )
    }
    return {name: found for name, found in wrong.items() if found}
