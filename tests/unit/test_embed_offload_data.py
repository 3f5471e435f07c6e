from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.host.embed import (
    HostKernel,
    embed_offload_data,
    render_stub,
    resolve_launches,
)
from mlir_offload.offload.ir_syntax import (
    escape_blob,
    extend_used_list,
    global_name,
    kernel_signatures,
    string_constants,
    unescape,
)
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.target import Kind

LOWERED = Path(__file__).parent.parent / "golden" / "lowered"
KERNELS = ("saxpy", "other", "__mo_k2")
PARAMETERS = ("ptr", "ptr", "i64", "i64", "i64")


def lowered(name: str, major: int) -> str:
    return (LOWERED / f"{name}.{major}.ll").read_text(encoding="utf-8")


def host_kernels(major: int) -> list[HostKernel]:
    signatures = kernel_signatures(lowered("kernels", major) + lowered("second", major))
    return [HostKernel(symbol, signatures[symbol]) for symbol in KERNELS]


def annotated(major: int, *kinds: Kind, host: str = "") -> str:
    return embed_offload_data(
        host or lowered("host", major),
        kernels=host_kernels(major),
        kinds=kinds or (Kind.CUDA,),
        binary=b"binary\0\xff",
        abis=(load_abi(major),),
        location="a.mlir",
    )


@pytest.mark.parametrize("major", [19, 22])
def test_kernels_and_their_types_are_read_from_the_device_module(major: int) -> None:
    assert kernel_signatures(lowered("kernels", major)) == {
        "saxpy": ("i64", "float", "ptr", "ptr", "i64", "i64", "i64", *PARAMETERS),
        "other": PARAMETERS,
    }


def test_parameters_of_every_shape_are_read() -> None:
    device = """
%pair = type { i64, %"in ner" }
%"in ner" = type { <2 x float> }
define internal i32 @helper(i32 %0) {
define ptx_kernel void @"k\\22" (ptr %0) {
define ptx_kernel void @k(<4 x float> %0, ptr addrspace(1) noalias %1, [2 x { i32, i8 }] %2, \
ptr byval(%pair) align 16 captures(none) %3, half noundef range(i64 0, 5) %4, <{ i8, i16 }> %5) {
"""
    assert kernel_signatures(device.replace('" (ptr', '"(ptr')) == {
        'k"': ("ptr",),
        "k": (
            "<4 x float>",
            "ptr",
            "[2 x { i32, i8 }]",
            "ptr byval({ i64, { <2 x float> } }) align 16",
            "half",
            "<{ i8, i16 }>",
        ),
    }


@pytest.mark.parametrize("major", [19, 22])
def test_each_launch_names_the_stub_of_its_kernel(major: int) -> None:
    text = annotated(major)
    named = re.findall(r"%\d+ = bitcast ptr @(\w+) to ptr", text)
    assert named == [f"__mo_stub__{kernel}" for kernel in KERNELS]


@pytest.mark.parametrize("major", [19, 22])
def test_nothing_is_left_of_what_loads_modules(major: int) -> None:
    left = r"@mgpuModule|@kernels_|@llvm\.global_[cd]tors"
    assert re.search(left, lowered("host", major))
    assert not re.search(left, annotated(major))


def test_other_constructors_and_variables_stay() -> None:
    host = lowered("host", 22)
    first = "[{ i32, ptr, ptr } { i32 7, ptr @own, ptr null }, "
    host = re.sub(
        r"(@llvm\.global_ctors = appending global )\[2( x [^]]*\] )\[", rf"\1[3\2{first}", host
    )
    host += 'define void @own() {\n  ret void\n}\n@text = constant [29 x i8] c"call @mgpuModuleGetFunction(ptr"\n'
    host += "@user = global ptr @kernels_saxpy_name\n"

    text = resolve_launches(host, dict.fromkeys(KERNELS, "stub"))

    kept = "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 7, ptr @own, ptr null }]\n"
    assert kept in text
    assert 'c"call @mgpuModuleGetFunction(ptr"' in text
    assert "@kernels_saxpy_name = " in text
    assert "global_dtors" not in text


def test_a_launch_of_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(
        SourceError, match=r"kernel 'other' is launched, but no gpu\.module"
    ) as caught:
        resolve_launches(lowered("host", 22), {"saxpy": "s", "__mo_k2": "k"}, "a.mlir")
    assert caught.value.location == "a.mlir"
    assert "__mo_k2, saxpy" in caught.value.hint


def test_a_launch_of_a_kernel_that_is_no_constant_is_refused() -> None:
    host = lowered("host", 22).replace("ptr @kernels_saxpy_name)", "ptr %9)")
    with pytest.raises(SourceError, match="does not name its kernel by a constant"):
        resolve_launches(host, dict.fromkeys(KERNELS, "stub"))


def test_a_use_of_the_launch_function_as_a_value_is_refused() -> None:
    host = lowered("host", 22) + "@f = global ptr @mgpuModuleGetFunction\n"
    with pytest.raises(SourceError, match="does not name its kernel by a constant"):
        resolve_launches(host, dict.fromkeys(KERNELS, "stub"))


def test_a_module_without_kernels_is_left_as_it_is() -> None:
    host = "define void @f() {\n  ret void\n}\n"
    abis = (load_abi(22),)
    assert embed_offload_data(host, kernels=(), kinds=(), binary=b"", abis=abis) == host


def test_entries_of_release_22_tell_kind_address_and_name() -> None:
    text = annotated(22)
    assert (
        "@.offloading.entry.saxpy = internal constant "
        "{ i64, i16, i16, i32, ptr, ptr, i64, i64, ptr } "
        "{ i64 0, i16 1, i16 2, i32 0, ptr @__mo_stub__saxpy, ptr @.offloading.entry_name, "
        'i64 0, i64 0, ptr null }, section "llvm_offload_entries", align 8' in text
    )
    assert 'c"saxpy\\00", section ".llvm.rodata.offloading", align 1' in text
    assert "!llvm.offloading.symbols = !{!1, !2, !3}" in text


def test_entries_of_release_19_are_an_array_per_kind() -> None:
    text = annotated(19, Kind.CUDA, Kind.OPENMP)
    assert (
        "@.offloading.entry.saxpy = internal constant { ptr, ptr, i64, i32, i32 } "
        "{ ptr @__mo_stub__saxpy, ptr @.offloading.entry_name.3, i64 0, i32 0, i32 0 }, "
        'section "cuda_offloading_entries", align 1' in text
    )
    assert text.count('section "omp_offloading_entries"') == 3
    assert "llvm.offloading.symbols" not in text


def test_entries_of_kind_openmp_come_before_the_others() -> None:
    text = annotated(22, Kind.CUDA, Kind.OPENMP)
    entries = re.findall(r"^@(\.offloading\.entry\.\w+(?:\.openmp)?) =", text, re.MULTILINE)
    assert [entry.endswith(".openmp") for entry in entries] == [True] * 3 + [False] * 3


def test_entries_are_kept_from_the_garbage_collection_of_sections() -> None:
    used = re.search(
        r"^@llvm\.used = appending global \[3 x ptr\] \[(.*)\]", annotated(22), re.MULTILINE
    )
    assert used is not None
    assert used.group(1) == ", ".join(f"ptr @.offloading.entry.{kernel}" for kernel in KERNELS)


def test_used_lists_of_the_program_are_extended() -> None:
    host = lowered("host", 22) + (
        '@llvm.used = appending global [1 x ptr] [ptr @run], section "llvm.metadata"\n'
        '@llvm.compiler.used = appending global [1 x ptr] [ptr @run], section "llvm.metadata"\n'
    )
    text = annotated(22, host=host)
    assert "@llvm.used = appending global [4 x ptr] [ptr @run, ptr @.offloading" in text
    assert (
        "[4 x ptr] [ptr @run, ptr @__mo_stub__saxpy, ptr @__mo_stub__other, "
        "ptr @llvm.embedded.object]" in text
    )
    assert text.count("@llvm.used =") == 1


def test_the_binary_is_embedded_as_clang_does_it() -> None:
    text = annotated(22)
    assert (
        '@llvm.embedded.object = private constant [8 x i8] c"\\62\\69\\6e\\61\\72\\79\\00\\ff", '
        'section ".llvm.offloading", align 8, !exclude !4\n' in text
    )
    assert "!llvm.embedded.objects = !{!5}\n" in text
    assert "!4 = !{}\n" in text
    assert '!5 = !{ptr @llvm.embedded.object, !".llvm.offloading"}\n' in text


def test_metadata_gets_numbers_that_the_program_does_not_use() -> None:
    host = lowered("host", 22) + "!41 = !{}\n"
    numbers = re.findall(r"^!(\d+) = ", annotated(22, host=host), re.MULTILINE)
    assert len(numbers) == len(set(numbers))
    assert max(map(int, numbers)) == 46


def test_a_stub_has_the_types_of_its_kernel_and_packs_its_arguments() -> None:
    text = render_stub(HostKernel("k", ("i64", "ptr byval({ i64 }) align 8")))
    assert text.splitlines() == [
        "define internal void @__mo_stub__k(i64 %a0, ptr byval({ i64 }) align 8 %a1) {",
        "  %params = alloca [2 x ptr], align 8",
        "  %v0 = alloca i64",
        "  store i64 %a0, ptr %v0",
        "  %s0 = getelementptr ptr, ptr %params, i64 0",
        "  store ptr %v0, ptr %s0, align 8",
        "  %s1 = getelementptr ptr, ptr %params, i64 1",
        "  store ptr %a1, ptr %s1, align 8",
        "  call void @mlir_offload_launch_stub(ptr @__mo_stub__k, ptr %params)",
        "  ret void",
        "}",
    ]


@pytest.mark.parametrize(
    ("symbol", "parameters", "alias"),
    [
        ("k", ("i64", "ptr"), "@__device_stub__k = hidden alias void (i64, ptr), ptr @__mo_stub__k"),
        ("_Z1kPf", ("ptr",), "@_Z16__device_stub__kPf = hidden alias void (ptr), ptr @__mo_stub___Z1kPf"),
        ("__mo_1_m__k", (), ""),
        # C++ passes __half and float4 in other registers than LLVM does.
        ("k", ("half",), ""),
        ("k", ("<4 x float>",), ""),
        ("k", ("i32", "ptr byval({ i64 }) align 8"), ""),
        ("_Z4exprIXadL_Z6calleeiEEEvv", (), "@_Z19__device_stub__exprIXadL_Z6calleeiEEEvv = hidden alias void (), ptr @__mo_stub___Z4exprIXadL_Z6calleeiEEEvv"),
    ],
)  # fmt: skip
def test_cpp_can_launch_the_kernels_that_it_can_name_and_pass_arguments_to(
    symbol: str, parameters: tuple[str, ...], alias: str
) -> None:
    lines = render_stub(HostKernel(symbol, parameters)).splitlines()
    assert [line for line in lines if line.startswith("@")] == [alias] * bool(alias)


def test_a_stub_does_not_take_the_name_of_its_alias() -> None:
    used = re.search(r"^@llvm\.compiler\.used = .*$", annotated(22), re.MULTILINE)
    assert used is not None
    assert all(f"@__mo_stub__{kernel}" in used.group() for kernel in ("saxpy", "other"))


@pytest.mark.parametrize(
    ("symbol", "spelled"),
    [("k", "@k"), ("a.b-c$", "@a.b-c$"), ("1k", '@"1k"'), ('a"\\é', '@"a\\22\\5C\\C3\\A9"')],
)
def test_symbols_are_quoted_where_they_must_be(symbol: str, spelled: str) -> None:
    assert global_name(symbol) == spelled
    assert unescape(spelled.strip('@"')) == symbol


def test_string_constants_are_found_by_name() -> None:
    text = (
        '@a = private unnamed_addr constant [3 x i8] c"x\\0A\\00", align 1\n'
        '@"b c" = internal constant [2 x i8] c"y\\00"\n@n = internal constant [1 x i8] c"z"\n'
    )
    assert string_constants(text) == {"@a": r"x\0A", '@"b c"': "y"}


def test_a_used_list_is_made_where_there_is_none() -> None:
    assert extend_used_list("", "llvm.used", ("a",)) == (
        '@llvm.used = appending global [1 x ptr] [ptr @a], section "llvm.metadata"\n'
    )


def test_an_empty_blob_is_an_empty_string() -> None:
    assert escape_blob(b"") == ""
