"""Random kernels with barriers on the CPU: cut into regions, or on stacks, they compute the same."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from math import prod
from pathlib import Path

import pytest
from support.operation_probe import Probe
from support.random_kernel import VARIABLES, RandomKernel, computed, program_of, random_kernel

# More of them are run by giving another range; these take most ways through the code that cuts kernels.
SEEDS = {19: range(900, 906), 22: range(906, 914)}
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]


@pytest.mark.parametrize("release", RELEASES)
def test_kernels_with_barriers_compute_what_is_written(
    release: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    # Every fourth one reduces over the block, for which work-items need stacks.
    kernels = [random_kernel(f"k{seed}", seed, reduces=seed % 4 == 3) for seed in SEEDS[release]]
    source, caller, program = (tmp_path / name for name in ("random.mlir", "caller.c", "program"))
    source.write_text(program_of(kernels))
    caller.write_text(caller_of(kernels))
    flags = (f"--llvm={release}", "--offload-arch=host", "-O1", source, caller, "-o", program)
    done = subprocess.run(
        [*mlir_offload, *map(str, flags)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout

    given = {name: [*map(int, words)] for name, *words in map(str.split, printed.splitlines())}
    for kernel in kernels:
        threads = Probe(kernel.name, (), (kernel.block,), kernel.grid).threads(kernel.block)
        assert given[kernel.name] == computed(kernel, threads), kernel


def caller_of(kernels: Sequence[RandomKernel]) -> str:
    """Return a program in C that prints what each kernel leaves."""
    functions = [f"_mlir_ciface_{kernel.name}" for kernel in kernels]
    lines = [
        *("#include <stdint.h>", "#include <stdio.h>", "#include <stdlib.h>"),
        "typedef struct { int32_t *allocated, *aligned; int64_t offset, size, stride; } numbers;",
        *(f"void {function}(numbers *, int32_t, int32_t);" for function in functions),
        "typedef void run_function(numbers *, int32_t, int32_t);",
        "static void run(const char *name, run_function *function, int64_t size) {",
        "  int32_t *data = calloc(size, sizeof *data);",
        "  numbers all = {data, data, 0, size, 1};",
        "  function(&all, 0, 1);",
        '  printf("%s", name);',
        '  for (int64_t i = 0; i < size; ++i) printf(" %d", data[i]);',
        '  puts("");',
        "  free(data);",
        "}",
        "int main(void) {",
    ]
    for kernel, function in zip(kernels, functions, strict=True):
        size = prod(kernel.grid) * prod(kernel.block) * VARIABLES
        lines.append(f'  run("{kernel.name}", {function}, {size});')
    return "\n".join([*lines, "}", ""])
