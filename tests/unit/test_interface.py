"""The callable functions of an object: types, JSON, sections, the C header."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from support.hostile import assert_bounded, bit_flips, spliced, survives, truncations

from mlir_offload.offload.elf import ElfFile, StringTable, read_elf
from mlir_offload.offload.host.interface import embed_interface
from mlir_offload.offload.interface.c_header import HeaderFunction, render_header
from mlir_offload.offload.interface.function import (
    INTERFACE_SECTION,
    InterfaceArgument,
    InterfaceFunction,
    parse_interface,
    read_interface,
    serialize_interface,
)
from mlir_offload.offload.interface.type import (
    InexpressibleType,
    MemrefType,
    ScalarType,
    TokenType,
    UnrankedType,
    parse_interface_type,
)
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import SourceError, VerificationError
from mlir_offload.toolchain.process import Command, ProcessRunner, run_checked
from mlir_offload.translate.host.interface import render_header_of
from mlir_offload.translate.host.module import legalize_host_ir

CLANG = "/usr/lib/llvm-22/bin/clang"
RUNNER = ProcessRunner()


def _function(name: str, *arguments: str, results: tuple[str, ...] = ()) -> InterfaceFunction:
    return InterfaceFunction(
        name,
        tuple(
            InterfaceArgument(f"x{number}", parse_interface_type(text))
            for number, text in enumerate(arguments)
        ),
        tuple(map(parse_interface_type, results)),
    )


@pytest.mark.parametrize(
    ("text", "shape", "strides", "offset"),
    [
        ("memref<f32>", (), None, 0),
        ("memref<?x4xcomplex<f64>>", (None, 4), None, 0),
        ("memref<?xi1, 1>", (None,), None, 0),
        ("memref<2x?xf32, strided<[?, 1], offset: ?>>", (2, None), (None, 1), None),
        ("memref<2xf32, strided<[-1], offset: 7>, #gpu.address_space<global>>", (2,), (-1,), 7),
        ("memref<f32, strided<[], offset: ?>>", (), (), None),
    ],
)
def test_a_memref_is_read_with_its_layout(
    text: str,
    shape: tuple[int | None, ...],
    strides: tuple[int | None, ...] | None,
    offset: int | None,
) -> None:
    read = parse_interface_type(text)
    assert isinstance(read, MemrefType)
    assert (read.shape, read.strides, read.offset) == (shape, strides, offset)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("index", ScalarType),
        ("bf16", ScalarType),
        ("memref<*xf16>", UnrankedType),
        ("!gpu.async.token", TokenType),
        ("f8E5M2FNUZ", ScalarType),
        ("memref<*xvector<2x4xbf16>>", UnrankedType),
        ("memref<2xvector<8xi1>>", InexpressibleType),
        ("memref<2xvector<[4]xf32>>", InexpressibleType),
        ("memref<2xvector<999999x999999xf32>>", InexpressibleType),
        ("memref<2xf4E2M1FN>", InexpressibleType),
        ("i24", InexpressibleType),
        ("f128", InexpressibleType),
        ("vector<4xf32>", InexpressibleType),
        ("tensor<4xf32>", InexpressibleType),
        ("memref<4x4xf32, affine_map<(d0, d1) -> (d1, d0)>>", InexpressibleType),
        ("memref<4x4xf32, strided<[1]>>", InexpressibleType),
        (f"memref<4xf32, strided<[{'1' * 4000}>", InexpressibleType),
        ("f32" * 5000, InexpressibleType),
    ],
)
def test_what_cannot_be_passed_is_told_from_what_can(text: str, kind: type) -> None:
    assert isinstance(parse_interface_type(text), kind)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (_function("f", "f32", results=("memref<?xf32>",)), ""),
        (_function("f", "f32", "vector<4xf32>"), "argument x1 has type vector<4xf32>"),
        (_function("f", results=("ui8",)), "result 0 has type ui8"),
    ],
)
def test_a_function_says_why_it_cannot_be_called(function: InterfaceFunction, problem: str) -> None:
    assert function.problem == problem


FUNCTIONS = (
    _function("a", "memref<?xf32>", "index", results=("f32", "memref<*xi8>")),
    _function("b.c", "!gpu.async.token"),
)


def _object_of(directory: Path, *functions: InterfaceFunction) -> Path:
    made = directory / f"{functions[0].name}.o"
    text = directory / "text.ll"
    text.write_text(embed_interface("", serialize_interface(functions)))
    run_checked(RUNNER, Command((CLANG, "-w", "-c", str(text), "-o", str(made))))
    return made


def _read(data: bytes) -> tuple[InterfaceFunction, ...]:
    return read_interface(read_elf(memory_view(data)))


@pytest.mark.llvm(22)
def test_a_library_holds_the_functions_of_all_its_objects_and_keeps_them(tmp_path: Path) -> None:
    objects = [str(_object_of(tmp_path, function)) for function in FUNCTIONS]
    library = tmp_path / "lib.so"
    flags = ("-shared", "-nostdlib", "-fuse-ld=lld", "-Wl,--gc-sections", "-Wl,-s")
    run_checked(RUNNER, Command((CLANG, *flags, *objects, "-o", str(library))))
    assert _read(library.read_bytes()) == FUNCTIONS


@pytest.mark.llvm(22)
def test_a_damaged_library_gives_an_error_of_ours(tmp_path: Path) -> None:
    data = _object_of(tmp_path, *FUNCTIONS).read_bytes()
    assert survives(_read, truncations(data, 7)) > 0
    assert survives(_read, bit_flips(data, 11)) > 0
    survives(_read, spliced(data, 300))
    assert_bounded(_read, data, 8)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version":1}',
        '{"version":2,"functions":[]}',
        '{"version":1,"functions":[{"name":1,"arguments":[],"results":[]}]}',
        '{"version":1,"functions":[{"name":"f","arguments":["x"],"results":[]}]}',
        '{"version":1,"functions":[{"name":"f","arguments":[{"name":"x y","type":"f32"}],"results":[]}]}',
        "[" * 100_000,
    ],
)
def test_json_of_another_form_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError, KeyError, RecursionError)):
        parse_interface(text.encode())


def test_an_interface_of_another_version_names_the_file() -> None:
    text = b'{"version":2,"functions":[]}\0'
    view = memory_view(text, location="lib.so")
    names = StringTable(memory_view(f"{INTERFACE_SECTION}\0".encode()))
    header = struct.pack("<IIQQQQIIQQ", 0, 1, 0, 0, 0, len(text), 0, 0, 0, 0)
    elf = ElfFile(view, 3, 62, 0, 0, 0, header, names)
    with pytest.raises(
        VerificationError, match="malformed interface: functions at offset 0"
    ) as caught:
        read_interface(elf)
    assert caught.value.location == "lib.so"


def test_names_that_c_reserves_or_lacks_are_changed() -> None:
    function = InterfaceFunction(
        "a-b.c",
        tuple(
            InterfaceArgument(name, parse_interface_type("complex<f32>"))
            for name in ("class", "class_", "stream", "value")
        ),
        (parse_interface_type("f32"),),
    )
    text = render_header([HeaderFunction(function, "*/ x.mlir:1")], "3.my-h.h")
    assert "#ifndef MLIR_OFFLOAD_3_MY_H_H\n" not in text
    assert "#ifndef MLIR_OFFLOAD__3_MY_H_H\n" in text
    assert "_mlir_ciface_a_b_c(float class__re, float class__im, float class___re" in text
    assert '__asm__("_mlir_ciface_a-b.c");' in text
    assert "a_b_c_on_stream(void *stream_, float class__re" in text
    assert "* / x.mlir:1" in text


PROGRAM = """\
#map = affine_map<(d0) -> (d0)>
#loc2 = loc("/some/where/k.mlir":1:14)
"builtin.module"() ({{
  "func.func"() <{{function_type = ({type}) -> (), sym_name = "f"}}> ({{
  ^bb0(%arg0: {type} loc(#loc2)):
    "func.return"() : () -> () loc(#loc1)
  }}) {{{attributes}}} : () -> () loc(#loc1)
}}) : () -> () loc(#loc)
#loc = loc(unknown)
#loc1 = loc("/some/where/k.mlir":1:1)
"""


def _header(kind: str, attributes: str = "llvm.emit_c_interface") -> str:
    program = PROGRAM.format(type=kind, attributes=attributes)
    return render_header_of(
        [(program, "func.func @f(%input: ...")], "k.h", location="/some/where/k.mlir"
    )


def test_the_header_has_the_names_and_lines_of_the_source_and_no_directory() -> None:
    text = _header("memref<?xf32>")
    assert "/* k.mlir:1: f(input: memref<?xf32>) */" in text
    assert "void _mlir_ciface_f(mlir_memref_1d_f32 *input);" in text
    assert "/some" not in text


@pytest.mark.parametrize(
    ("kind", "attributes", "message"),
    [
        (
            "vector<4xf32>",
            "llvm.emit_c_interface",
            "@f cannot be declared in C: argument input has",
        ),
        ("memref<4xf32, #map>", "llvm.emit_c_interface", r"affine_map<\(d0\) -> \(d0\)>"),
        ("f32", "other", "no function has the attribute llvm.emit_c_interface"),
    ],
)
def test_what_a_header_cannot_declare_is_an_error_at_its_place(
    kind: str, attributes: str, message: str
) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        _header(kind, attributes)
    assert caught.value.location.startswith("/some/where/k.mlir")
    assert caught.value.hint


def test_functions_with_one_name_in_c_are_an_error() -> None:
    program = PROGRAM.format(type="f32", attributes="llvm.emit_c_interface")
    programs = [(program.replace('"f"', f'"{name}"'), "") for name in ("a.b", "a.b", "a-b")]
    with pytest.raises(SourceError, match=r"@a-b and @a\.b have the same name in C"):
        render_header_of(programs, "k.h")


@pytest.mark.parametrize(
    ("line", "extended"),
    [
        ("define i1 @_mlir_ciface_f(ptr %0) {", "define zeroext i1 @_mlir_ciface_f(ptr %0) {"),
        ("define i8 @f(i8 %0) {", "define signext i8 @f(i8 %0) {"),
        ("define zeroext i8 @f() {", "define zeroext i8 @f() {"),
        ("define private i8 @f() {", "define private i8 @f() {"),
        # C may define it with an unsigned result.
        ('declare i16 @"_mlir g h"()', 'declare i16 @"_mlir g h"()'),
        (
            "declare void @f(i8, { i8, i16 }, i1, i16 noundef, i8 zeroext, i32, ...) #0",
            "declare void @f(i8 signext, { i8, i16 }, i1 zeroext, i16 signext noundef, i8 zeroext, i32, ...) #0",
        ),
        (
            "declare void @mgpuMemset16(ptr, i16, i64, ptr)",
            "declare void @mgpuMemset16(ptr, i16 zeroext, i64, ptr)",
        ),
        ("declare void @llvm.assume(i1 noundef)", "declare void @llvm.assume(i1 noundef)"),
        ("  %1 = call i8 @f(i8 %0)", "  %1 = call i8 @f(i8 %0)"),
        ("  call void %1(i1 true, ptr %2)", "  call void %1(i1 zeroext true, ptr %2)"),
        (
            '  %1 = call i32 (i8, ptr, ...) @f(i8 1, ptr @"a, (", i8 2, i1 %0), !dbg !3',
            '  %1 = call i32 (i8, ptr, ...) @f(i8 1, ptr @"a, (", i8 signext 2, i1 zeroext %0), !dbg !3',
        ),
    ],
)
def test_small_integers_are_extended_as_c_expects_them(line: str, extended: str) -> None:
    assert legalize_host_ir(f"{line}\n") == f"{extended}\n"
