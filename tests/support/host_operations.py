"""Host code with operations of the gpu dialect: functions that store numbers, print, or stop the program."""

from __future__ import annotations

from pathlib import Path

HOST = Path(__file__).resolve().parents[1] / "integration" / "inputs" / "host_operations.mlir"
STOPPED = ("asserted", "absent_device", "clusters", "too_many")
LEFT = {
    # Workgroup memory, declared and dynamic, and private memory.
    "attributions": [303, 212, 121, 30],
    # Memory set and copied, also in a chain of tokens, memory shared with the host, and registered memory.
    "copies": [0x12345678, -2, 11, 12],
    "strided_copy": [1, 0, 5, 0, 9],
    # Elements of every width, and strided memory, which the upstream lowering ignores.
    "transfers": [-3, 0x4004CCCCCCCCCCCD, 7000000000, 1, 7, 62, 1346, 0x492480],
    # Memory with a symbolic layout.
    "layouts": [21, 10, 1, 3],
}


PRINTED = """\
100 %
1 -8 -16 -32 -6400000000 0
-8 248 fff0|         -6400000000
0.5 -8    1.500|-2.25e+00|
A 4294967264 0x41 101
"""


def caller_of_host() -> str:
    """Return a C program that runs the host function named on its command line, and prints the stored numbers."""
    hosted = {name: len(LEFT.get(name, ())) for name in (*LEFT, "print", *STOPPED)}
    lines = [
        "#include <stdint.h>",
        "#include <stdio.h>",
        "#include <string.h>",
        "typedef struct { int64_t *allocated, *aligned; int64_t offset, size, stride; } numbers;",
        *(f"void _mlir_ciface_{name}(numbers *);" for name in hosted),
        "static void run(const char *name, void (*function)(numbers *), int size) {",
        "  int64_t data[8] = {0};",
        "  numbers all = {data, data, 0, 8, 1};",
        "  function(&all);",
        '  printf("%s", name);',
        '  for (int i = 0; i < size; ++i) printf(" %lld", (long long)data[i]);',
        '  puts("");',
        "}",
        "int main(int count, char **names) {",
    ]
    for name, numbers in hosted.items():
        lines += [
            f'  if (!strcmp(names[count - 1], "{name}"))',
            f'    run("{name}", _mlir_ciface_{name}, {numbers});',
        ]
    return "\n".join([*lines, "}", ""])
