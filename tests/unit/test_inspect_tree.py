"""The lines of inspect's tree."""

from __future__ import annotations

import pytest

from mlir_offload.driver.inspect.tree import (
    kernel_facts,
    parameter_list,
    size_text,
    tree_lines,
)
from mlir_offload.driver.message.escape import shown
from mlir_offload.offload.container.contents import (
    Container,
    Entry,
    Image,
    Part,
    Problem,
    ProblemKind,
)
from mlir_offload.offload.device.kernel import DeviceCode, DeviceKernel, KernelParameter


def text(part: Part) -> str:
    return "\n".join("".join(piece for _, piece in line) for line in tree_lines(part))


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        ("kernel<float>", "kernel<float>"),
        ("größe", "größe"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\rb\nc\0", "a\\rb\\nc\\x00"),
        ("left\u202eright", "left\\u202eright"),
        ("\x9bH", "\\x9bH"),
        ("\udc80", "\\x80"),
    ],
)
def test_what_does_not_print_is_shown_as_an_escape(raw: str, seen: str) -> None:
    assert shown(raw) == seen


@pytest.mark.parametrize(
    ("size", "seen"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (200 << 20, "200.0 MiB"),
    ],
)
def test_sizes_are_exact_below_a_kibibyte(size: int, seen: str) -> None:
    assert size_text(size) == seen


def test_a_kernel_says_what_it_needs() -> None:
    kernel = DeviceKernel("k", max_threads=256, registers=16, shared_bytes=1024, min_blocks=2)
    assert kernel_facts(kernel) == "≤256 threads  ≥2 blocks  16 registers  1.0 KiB shared"
    fixed = DeviceKernel("k", required_threads=(8, 4, 1), max_threads=32)
    assert kernel_facts(fixed) == "8\N{MULTIPLICATION SIGN}4\N{MULTIPLICATION SIGN}1 threads"


def test_parameters_show_place_and_size_and_leave_out_those_of_the_runtime() -> None:
    parameters = (
        KernelParameter(0, 8, "ptr"),
        KernelParameter(8, 4, "f32", "scale"),
        KernelParameter(16, 8, "hidden_block_count_x", is_hidden=True),
    )
    assert parameter_list(parameters) == "(ptr @0:8, f32 scale @8:4)"
    assert parameter_list(()) == "()"
    assert parameter_list(None) == "(?)"


def test_the_tree_of_an_object() -> None:
    code = DeviceCode("cubin", "ptxas 13.0", is_relocatable=True, kernels=(DeviceKernel("k", ()),))
    image = Image(
        0,
        "cubin",
        2048,
        offset=64,
        container=Container("fat binary", 1, 0, 2112),
        kind="cuda",
        image_kind="cubin",
        arch="sm_90",
        compression="zstd",
        stored_bytes=512,
        code=code,
        problems=(Problem(ProblemKind.DAMAGED, "bad\x1b", "make it again"),),
    )
    entries = (
        Entry("cuda", "k", "kernel", 0, (), "llvm_offload_entries", 9, 21, 23),
        Entry("cuda", "v", "variable", 4, ("constant",), "llvm_offload_entries", 9, 21, 23),
    )
    part = Part("a.o", "ELF relocatable object, x86-64", 4096, images=(image,), entries=entries)
    assert text(part) == (
        "a.o: ELF relocatable object, x86-64, 4.0 KiB\n"
        "├── image 0 cuda sm_90: cubin, 2.0 KiB (zstd: 512 bytes) at 64\n"
        "│   ├── in fat binary version 1, 2.1 KiB at 0, as cubin\n"
        "│   ├── made by ptxas 13.0\n"
        "│   ├── relocatable\n"
        "│   ├── kernel k()\n"
        "│   └── problem: bad\\x1b\n"
        "│       └── hint: make it again\n"
        "└── entries in llvm_offload_entries, read by LLVM 21 to 23\n"
        "    ├── entry cuda kernel k\n"
        "    └── entry cuda variable v  4 bytes  constant"
    )


@pytest.mark.parametrize(
    ("form", "is_relocatable", "words"),
    [
        ("AMDGPU code object", False, "contains code by"),
        ("AMDGPU code object", True, "made by"),
        ("cubin", False, "made by"),
    ],
)
def test_a_linked_elf_image_names_compilers_of_code_in_it(
    form: str,
    is_relocatable: bool,  # noqa: FBT001 (a parameter of the test)
    words: str,
) -> None:
    code = DeviceCode(form, "clang version 15.0.5", 15, is_relocatable=is_relocatable)
    part = Part("a", "ELF executable", 9, images=(Image(0, form, 9, kind="hip", code=code),))
    assert f"── {words} clang version 15.0.5\n" in text(part)


def test_members_without_device_code_are_only_counted() -> None:
    members = tuple(Part(f"l.a({n}.o)", "ELF relocatable object, x86-64", 9) for n in range(3))
    part = Part("l.a", "archive", 99, members=members)
    assert "3 members without device code" in text(part)
    assert "l.a: archive, 99 bytes, contains no device code" in text(part)
