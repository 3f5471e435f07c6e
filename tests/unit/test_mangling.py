"""Names of stubs for kernel names that clang did not mangle; see test_cuda_cpp.py for others."""

from __future__ import annotations

import pytest

from mlir_offload.offload.host.mangling import find_stub_symbol, stub_symbol


@pytest.mark.parametrize(
    ("kernel", "stub"),
    [
        ("saxpy", "__device_stub__saxpy"),
        ("_Zone", "__device_stub___Zone"),
        ("_Z5scalePff", "_Z20__device_stub__scalePff"),
        ("_ZN2ns5scaleEPf", "_ZN2ns20__device_stub__scaleEPf"),
        ("_ZN2ns5scaleIfLi4EEEvPT_", "_ZN2ns20__device_stub__scaleIfLi4EEEvPT_"),
    ],
)
def test_the_prefix_goes_to_the_name_of_the_function(kernel: str, stub: str) -> None:
    assert stub_symbol(kernel) == stub


@pytest.mark.parametrize(
    "kernel",
    [
        "_Z",
        "_ZN",
        "_ZN2ns",
        "_Z9shortPf",
        "_ZNE",
        "_Z5",
        "_ZZ4mainE1kv",
        "_ZN1aIXadL_Z1bvEEE1kE",
        "_ZN1aIL",
        "_ZN1aIF",
        "_ZN1aIM",
        "_ZN1aIS",
        "_ZN" + "1aI" * 5000,
    ],
)
def test_a_name_that_cannot_be_read_is_no_mangled_one(kernel: str) -> None:
    assert find_stub_symbol(kernel) is None
    assert stub_symbol(kernel) == f"__device_stub__{kernel}"
