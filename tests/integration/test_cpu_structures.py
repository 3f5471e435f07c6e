"""Kernels for the CPU that load what the same thread has stored: members of structures, and aligned memory."""

from __future__ import annotations

import numpy as np
import pytest

import mlir_offload

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


BYTES = """
module attributes {gpu.container_module} {
gpu.module @views {
gpu.func @change(%a: memref<?xi8>, %b: memref<?xi8>) kernel {
%i = gpu.thread_id x
%c0 = arith.constant 0 : index
%c1 = arith.constant 1 : index
%c4 = arith.constant 4 : index
%c64 = arith.constant 64 : index
%words = memref.view %a[%c0][%c64] : memref<?xi8> to memref<?xi32>
%low = arith.muli %i, %c4 : index
%high = arith.addi %low, %c1 : index
%before = func.call @byte(%a, %high) : (memref<?xi8>, index) -> i8
%word = arith.constant 0x01020304 : i32
memref.store %word, %words[%i] : memref<?xi32>
%after = func.call @byte(%a, %low) : (memref<?xi8>, index) -> i8
memref.store %before, %b[%low] : memref<?xi8>
memref.store %after, %b[%high] : memref<?xi8>
gpu.return
}
func.func @byte(%a: memref<?xi8>, %n: index) -> i8 {
%v = memref.load %a[%n] : memref<?xi8>
return %v : i8
}
}
func.func @change(%a: memref<?xi8>, %b: memref<?xi8>) attributes {llvm.emit_c_interface} {
%one = arith.constant 1 : index
%all = arith.constant 64 : index
gpu.launch_func @views::@change blocks in (%one, %one, %one) threads in (%all, %one, %one)
    args(%a : memref<?xi8>, %b : memref<?xi8>)
return
}
}
"""


@pytest.mark.llvm(22)
@pytest.mark.parametrize("march", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_bytes_of_a_word_that_a_thread_has_stored(level: str, march: str) -> None:
    options = (f"-march={march}", level)
    library = mlir_offload.compile(BYTES, "host", options, cache=False)
    given = np.full(256, 7, np.int8)
    read = np.zeros_like(given)
    library.change(given, read)
    assert (read.reshape(64, 4) == [7, 4, 0, 0]).all()


ALIGNED = """
module attributes {gpu.container_module} {
gpu.module @aligned {
gpu.func @change(%a: memref<?xi64>, %n: index) kernel {
%i = gpu.thread_id x
%own = memref.alloca() {alignment = 128 : i64} : memref<2xi64, #gpu.address_space<private>>
%address = memref.extract_aligned_pointer_as_index %own : memref<2xi64, #gpu.address_space<private>> -> index
%number = arith.index_cast %address : index to i64
memref.store %number, %own[%n] : memref<2xi64, #gpu.address_space<private>>
gpu.barrier
%stored = memref.load %own[%n] : memref<2xi64, #gpu.address_space<private>>
memref.store %stored, %a[%i] : memref<?xi64>
gpu.return
}
}
func.func @change(%a: memref<?xi64>, %n: index) attributes {llvm.emit_c_interface} {
%one = arith.constant 1 : index
%all = arith.constant 64 : index
gpu.launch_func @aligned::@change blocks in (%one, %one, %one) threads in (%all, %one, %one)
    args(%a : memref<?xi64>, %n : index)
return
}
}
"""


def test_private_memory_has_the_alignment_of_its_allocation() -> None:
    library = mlir_offload.compile(ALIGNED, "host", cache=False)
    addresses = np.zeros(64, np.int64)
    library.change(addresses, 1)
    assert len(set(addresses)) == len(addresses)
    assert not (addresses % 128).any()
