"""Call every_type.mlir; every wrong call must be an error of Python."""

import array
import gc
import math
import re
import sys

import numpy as np
import pytest

import mlir_offload

library = mlir_offload.load(sys.argv[1])


def numbers() -> None:
    assert library.half(1.5) == 3.0
    assert library.half(np.float16(0.25)) == 0.5
    assert library.bhalf(1.5) == 1.5
    assert library.bhalf(1 + 2**-9) == 1.0
    assert math.isnan(library.bhalf(float("nan")))
    assert library.flip(1) is False
    assert library.flip(0) is True
    assert library.parity(2) is False
    assert library.trunc(0x180) == -128
    assert library.sum(-1, 65535, 3, 0.5, 0.25) == 1.75
    assert library.sum(a=1, b=2, c=3, e=0.25, d=np.float32(0.5)) == 6.75
    assert library.swap(1 + 2j, 3.0) == 2 + 1j


def results() -> None:
    is_made, made, pair, small = library.fill(4, 2.5)
    assert (is_made, made.tolist(), pair, small) == (True, [2.5] * 4, 2 + 2j, -3)
    view = made[1:]
    del made
    gc.collect()
    assert view.tolist() == [2.5] * 3
    assert library.fill(0, 1.0)[1].shape == (0,)
    assert library.unr()[0] == 5
    constant = library.const()
    assert constant.tolist() == [4, 5]
    assert not constant.flags.writeable


def arrays() -> None:
    x = np.arange(12.0).reshape(3, 4)
    same = library.same(x.T)
    assert (same == x.T).all()
    same[0, 0] = 7
    assert x[0, 0] == 7
    del x
    gc.collect()
    assert library.first(same) == same[1, 0] == 1.0
    assert library.first(same[::-1, ::-1]) == same[-2, -1]
    assert library.rank(np.zeros((2, 3, 4))) == 3
    assert library.rank(array.array("d", [1, 2])) == 1
    assert library.rank(memoryview(bytearray(16)).cast("d")) == 1
    assert library.single(np.array(5)) == 5
    assert library.single(np.array(5, np.uint64)) == 5
    library["odd-name.x"]()


def small_numbers() -> None:
    assert library.quarter(2) == 2.0
    assert library.quarter(-0.3) == -0.3125
    assert math.isnan(library.quarter(float("nan")))
    bits = np.array([0x41, 0], np.uint8)
    assert library.quarters(bits).view(np.uint8).tolist() == [0x41, 0x41]
    refused(ValueError, "q is f8E4M3FN: 500.0 is too large", lambda: library.quarter(500))
    refused(TypeError, "f8E5M2, not float16", lambda: library.quarters(np.zeros(2, np.float16)))


def vectors() -> None:
    x = np.zeros((2, 4), np.float32)
    x[0] = [1, 2, 3, 4]
    made = library.vectors(x)
    assert x[1].tolist() == [2, 4, 6, 8]
    assert (made.tolist(), made.strides) == ([[1, 2, 3], [1, 2, 3]], (8, 2))
    refused(ValueError, "have shape (3,)", lambda: library.vectors(np.zeros((2, 3), np.float32)))
    refused(ValueError, "strides (8,)", lambda: library.vectors(np.zeros((2, 8), "f4")[:, ::2]))
    refused(ValueError, "has shape ()", lambda: library.vectors(np.zeros(4, np.float32)))


def refused(error: type[Exception], words: str, call: object) -> None:
    with pytest.raises(error, match=re.escape(words)):
        call()  # type: ignore[operator]


def wrong_calls() -> None:
    read_only = np.zeros((2, 2))
    read_only.flags.writeable = False
    unaligned = np.frombuffer(bytearray(33), np.uint8)[1:].view(np.float64)
    for words, call in {
        "elements are f64, not float32": lambda: library.first(np.zeros((2, 2), np.float32)),
        "plain numbers of this machine": lambda: library.rank(np.zeros(2, ">f4")),
        "not int": lambda: library.first(3),
        "missing a required argument: 'x'": library.first,
        "too many positional": lambda: library.flip(1, 2),
        "unexpected keyword argument 'y'": lambda: library.flip(1, y=1),
        "h is f16, not str": lambda: library.half("a"),
        "b is i1, not int": lambda: library.flip(2),
        "n is index, not float": lambda: library.fill(1.0, 1.0),
    }.items():
        refused(TypeError, words, call)
    for words, call in {
        "the array has shape (2,)": lambda: library.first(np.zeros(2)),
        "read-only": lambda: library.first(read_only),
        "begins at an address": lambda: library.rank(unaligned),
        "is not from": lambda: library.trunc(1 << 64),
        "is too large": lambda: library.half(1e6),
    }.items():
        refused(ValueError, words, call)
    refused(AttributeError, "has no function 'nope'; it has: half", lambda: library.nope)
    refused(mlir_offload.MlirOffloadError, "no device code", lambda: library.half(1, stream=0))
    refused(mlir_offload.MlirOffloadError, "unknown device", lambda: library.set_device("gpu"))
    refused(mlir_offload.MlirOffloadError, "malformed ELF", lambda: mlir_offload.load(__file__))


numbers()
results()
arrays()
small_numbers()
vectors()
wrong_calls()
assert (
    str(library.first.__signature__)
    == "(x: 'memref<?x?xf64, strided<[?, ?], offset: 3>>') -> float"
)
assert "trunc(b: i64) -> i8" in str(library.trunc.__doc__)
sys.stdout.write("ok\n")
