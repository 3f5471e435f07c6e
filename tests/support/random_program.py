"""A program that calls random kernels, and its output."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from support.random_kernel import VARIABLES, RandomKernel, printed_numbers

_REGISTRATION = (
    "mgpuMemHostRegister(data, size * sizeof *data); ",
    " mgpuMemHostUnregister(data);",
)


def caller_of(kernels: Sequence[RandomKernel], *, is_registered: bool = False) -> str:
    """Return a C program that prints the results of each kernel, from memory registered for a GPU on request."""
    register, unregister = _REGISTRATION if is_registered else ("", "")
    functions = [f"_mlir_ciface_{kernel.name}" for kernel in kernels]
    lines = [
        *("#include <stdint.h>", "#include <stdio.h>", "#include <stdlib.h>"),
        "void mgpuMemHostRegister(void *, uint64_t), mgpuMemHostUnregister(void *);",
        "typedef struct { int32_t *allocated, *aligned; int64_t offset, size, stride; } numbers;",
        *(f"void {function}(numbers *, int32_t, int32_t);" for function in functions),
        "typedef void run_function(numbers *, int32_t, int32_t);",
        "static void run(const char *name, run_function *function, int64_t size) {",
        "  int32_t *data = calloc(size, sizeof *data);",
        "  numbers all = {data, data, 0, size, 1};",
        f"  {register}function(&all, 0, 1);{unregister}",
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


def read_numbers(printed: str) -> dict[str, list[int]]:
    """Return the numbers that the program printed, by kernel; those that a kernel itself has printed follow."""
    found: dict[str, list[int]] = {}
    lines: list[str] = []
    for line in printed.splitlines():
        name, *words = line.split()
        if name == "printed":
            lines.append(line)
            continue
        found[name] = [*map(int, words), *printed_numbers(lines)]
        lines = []
    return found
