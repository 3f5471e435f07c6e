"""Kernels for the CPU that load what the same thread has stored among the members of structures."""

from __future__ import annotations

import numpy as np
import pytest

import mlir_offload
from mlir_offload.translate.interleaving import has_load_behind_store

MEMBERS = 8


def _program() -> str:
    """Return a program that changes a member of each structure, and copies all."""
    indices = "\n".join(f"%c{n} = arith.constant {n} : index" for n in range(MEMBERS))
    copies = "\n".join(
        f"%v{n} = memref.load %a[%i, %c{n}] : memref<?x8xi32>\n"
        f"memref.store %v{n}, %b[%i, %c{n}] : memref<?x8xi32>"
        for n in range(MEMBERS)
    )
    return f"""
module attributes {{gpu.container_module}} {{
gpu.module @structures {{
gpu.func @change(%a: memref<?x8xi32>, %b: memref<?x8xi32>) kernel {{
%i = gpu.thread_id x
{indices}
%zero = arith.constant 0 : i32
%first = memref.load %a[%i, %c0] : memref<?x8xi32>
%last = memref.load %a[%i, %c7] : memref<?x8xi32>
%negative = arith.subi %zero, %first : i32
%lowest = arith.andi %negative, %last : i32
memref.store %lowest, %a[%i, %c5] : memref<?x8xi32>
{copies}
gpu.return
}}
}}
func.func @change(%a: memref<?x8xi32>, %b: memref<?x8xi32>) attributes {{llvm.emit_c_interface}} {{
%one = arith.constant 1 : index
%all = arith.constant 64 : index
gpu.launch_func @structures::@change blocks in (%one, %one, %one) threads in (%all, %one, %one)
    args(%a : memref<?x8xi32>, %b : memref<?x8xi32>)
return
}}
}}
"""


# The vectorizer of LLVM 22 does it with AVX2, that of LLVM 19 with what every x86-64 has.
@pytest.mark.llvm(19)
@pytest.mark.parametrize("level", ["-O0", "-O2", "-O3"])
def test_what_a_thread_has_stored_is_what_it_loads(level: str) -> None:
    options = ("--llvm=19", "-march=x86-64", level)
    library = mlir_offload.compile(_program(), "host", options, cache=False)
    given = np.repeat(np.arange(64, dtype=np.int32)[:, None], MEMBERS, axis=1)
    copied = np.zeros_like(given)
    expected = given.copy()
    expected[:, 5] = given[:, 0] & -given[:, 0]
    library.change(given, copied)
    assert (copied == expected).all()


KERNEL = """\
define internal void @k.item(ptr %mo.c, ptr %v0) {{
  store i32 0, ptr %mo.v1
{body}
}}
define internal float @mo.f(ptr %v0) {{
  store i32 0, ptr %v0
  %v1 = load i32, ptr %v0
}}
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("  store i32 1, ptr %v0\n  %v1 = call float @mo.f(ptr %v0)", False),
        ("  store i32 1, ptr %v0\n  call void @j.item(ptr %v0)", False),
        ("  store i32 1, ptr %v0\n  %v1 = call i32 @get(ptr %mo.c, ptr %v0)", True),
        ("  call void @set(ptr %v0)\n  %v1 = load i32, ptr %v0", True),
        ("  %v1 = load i32, ptr %v0\n  store i32 %v1, ptr %v0", False),
        ("  store i32 1, ptr %v0\n  %v1 = load i32, ptr %mo.v1", False),
        ("  store i32 1, ptr %v0\n  %v1 = load i32, ptr %v0", True),
        ("  store <2 x i8> %v4, ptr %v0\nv2:\n  %v1 = load i32, ptr %v3, align 4", True),
    ],
)
def test_a_load_behind_a_store_is_found(body: str, *, expected: bool) -> None:
    assert has_load_behind_store(KERNEL.format(body=body)) is expected
