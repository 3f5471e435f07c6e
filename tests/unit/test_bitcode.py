from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.bitcode_census import read_bitcode_census
from support.bitcode_corpus import RELEASES, assemble, compile_bitcode, tool
from support.cuda_tools import cuda_root

from mlir_offload.toolchain.bitcode.attribute import FUNCTION_PLACE
from mlir_offload.toolchain.bitcode.code import AttributeForm, AttributeKind
from mlir_offload.toolchain.bitcode.constant import ConstantTable
from mlir_offload.toolchain.bitcode.global_value import (
    BitcodeAlias,
    BitcodeFunction,
    BitcodeVariable,
    load_conventions,
    parse_conventions,
)
from mlir_offload.toolchain.bitcode.metadata import MetadataTable, NodeNumber
from mlir_offload.toolchain.bitcode.module import BitcodeModule, read_bitcode, read_bitcode_modules
from mlir_offload.toolchain.bitcode.type import quoted_name
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import VerificationError

LLVM = [pytest.param(release, marks=pytest.mark.llvm(release)) for release in RELEASES]
LIBDEVICE = cuda_root() / "nvvm" / "libdevice" / "libdevice.10.bc"

TEXT = r"""
source_filename = "dir/a file.mlir"
target triple = "x86_64-pc-linux-gnu"
%"with space" = type { i32, ptr }
%packed = type <{ i8, [3 x <4 x float>] }>
%list = type { ptr, i64 }
@number = global i64 -5
@null = constant [4 x i8] zeroinitializer
@text = private constant [6 x i8] c"abc\00de"
@ended = constant [4 x i8] c"xyz\00"
@bytes = constant [5 x i8] c"\00\01\FE\FF\80"
@shorts = constant [3 x i16] [i16 1, i16 -2, i16 300]
@floats = constant [2 x float] [float 1.0, float -2.5]
@struct = constant %list { ptr @text, i64 7 }
@inside = constant ptr getelementptr inbounds (i8, ptr @text, i64 2)
@cast = constant i64 ptrtoint (ptr @number to i64)
@space = addrspace(1) global i32 0
@spaced = constant ptr addrspacecast (ptr addrspace(1) @space to ptr)
@outside = external global i32
@other = alias i64, ptr @number
define void @types(%list %a, { i1, half } %b, <{ i8 }> %c, [2 x i128] %d, <2 x bfloat> %e,
                   x86_fp80 %f, ptr addrspace(5) %g, %"with space" %h, %packed %i,
                   <vscale x 4 x i32> %j, ...) {
  ret void
}
declare void @placed(ptr byval(%list) align 16, i32 range(i32 -4, 9), ptr dereferenceable(24)) #0
attributes #0 = { "key"="value" "flag" alignstack=8 cold }
!named = !{!0, !1, !0}
!empty = !{}
!0 = !{!"text", i32 -3, ptr @types, null, !1}
!1 = distinct !{!1, double 1.0}
!llvm.module.flags = !{!2, !3}
!2 = !{i32 1, !"amdhsa_code_object_version", i32 500}
!3 = !{i32 1, !"wchar_size", i32 4}
"""


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp()


def read(data: bytes) -> BitcodeModule:
    return read_bitcode(memory_view(data, location="x.bc"))


@pytest.fixture(scope="module")
def module() -> BitcodeModule:
    if not Path(tool(22, "llvm-as")).exists():
        pytest.skip("LLVM 22 is not installed")
    return read(assemble(22, TEXT))


@pytest.fixture(scope="module")
def constants(module: BitcodeModule) -> ConstantTable:
    return ConstantTable(module)


def variable(module: BitcodeModule, name: str) -> int:
    found = next(one for one in module.variables if one.name == name)
    assert found.initializer is not None
    return found.initializer


def function(module: BitcodeModule, name: str) -> BitcodeFunction:
    return next(one for one in module.functions if one.name == name)


def test_types_are_spelled_as_in_text(module: BitcodeModule) -> None:
    assert module.parameter_types(function(module, "types")) == (
        *("%list", "{ i1, half }", "<{ i8 }>", "[2 x i128]", "<2 x bfloat>", "x86_fp80"),
        *("ptr addrspace(5)", '%"with space"', "%packed", "<vscale x 4 x i32>"),
    )


def test_names_with_other_characters_are_quoted() -> None:
    assert quoted_name("struct.S") == "struct.S"
    assert quoted_name('a"b\\c\n') == '"a\\22b\\5Cc\\0A"'


def test_what_stands_outside_of_functions_is_told_apart(module: BitcodeModule) -> None:
    assert module.source_file == "dir/a file.mlir"
    outside = next(one for one in module.variables if one.name == "outside")
    assert outside.initializer is None
    alias = module.symbols[-1]
    assert isinstance(alias, BitcodeAlias)
    target = module.symbols[alias.target]
    assert isinstance(target, BitcodeVariable)
    assert (alias.name, target.name) == ("other", "number")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("text", b"abc\0de"),
        ("ended", b"xyz\0"),
        ("bytes", b"\0\x01\xfe\xff\x80"),
        ("shorts", struct.pack("<hhh", 1, -2, 300)),
        ("floats", struct.pack("<ff", 1.0, -2.5)),
        ("null", None),
        ("struct", None),
        ("number", None),
    ],
)
def test_arrays_have_their_bytes(
    module: BitcodeModule, constants: ConstantTable, name: str, content: bytes | None
) -> None:
    assert constants.content(variable(module, name)) == content


def test_constants_tell_what_they_are(module: BitcodeModule, constants: ConstantTable) -> None:
    def string(name: str) -> str | None:
        return constants.string(variable(module, name))

    assert (string("text"), string("null"), string("number")) == ("abc", "", None)
    assert constants.integer(variable(module, "number")) == -5
    members = constants.elements(variable(module, "struct"))
    assert members is not None
    text = constants.symbol(members[0])
    assert isinstance(text, BitcodeVariable)
    assert (text.name, constants.integer(members[1])) == ("text", 7)
    assert constants.is_null(variable(module, "null"))


@pytest.mark.parametrize(
    ("name", "target"), [("cast", "number"), ("spaced", "space"), ("inside", None)]
)
def test_a_symbol_is_found_behind_casts_but_not_behind_offsets(
    module: BitcodeModule, constants: ConstantTable, name: str, target: str | None
) -> None:
    symbol = constants.symbol(variable(module, name))
    assert (symbol.name if symbol else None) == target


def test_attributes_have_their_values(module: BitcodeModule) -> None:
    attributes = module.attributes[function(module, "placed").attributes]
    assert (attributes.string("key"), attributes.string("flag")) == ("value", "")
    assert attributes.string("missing") is None
    byval = attributes.find(1, AttributeKind.BYVAL)
    assert byval is not None
    assert isinstance(byval.value, int)
    assert module.types.spell(byval.value) == "%list"
    align = attributes.find(1, AttributeKind.ALIGN)
    assert (align.value if align else None) == 16
    ranges = [one.value for one in attributes.groups[2].attributes.values()]
    assert ranges == [((32, -4, 9),)]
    forms = {one.form for one in attributes.groups[FUNCTION_PLACE].attributes.values()}
    assert forms == {
        *(AttributeForm.FLAG, AttributeForm.INTEGER),
        *(AttributeForm.STRING, AttributeForm.STRING_VALUE),
    }


def test_metadata_have_strings_numbers_symbols_and_nodes(
    module: BitcodeModule, constants: ConstantTable
) -> None:
    table = MetadataTable(module, constants)
    first, second = table.named("named")
    assert first[:2] == ("text", -3)
    assert first[2] is function(module, "types")
    assert first[3] is None
    assert isinstance(first[4], NodeNumber)
    assert table.node(first[4].number) == second
    assert second[0] == first[4]
    assert list(table.named("empty")) == list(table.named("missing")) == []
    assert table.flag("amdhsa_code_object_version") == 500
    assert table.flag("amdgpu_code_object_version") is None


@pytest.mark.llvm(22)
def test_more_nodes_than_llvm_keeps_without_an_index_are_found_by_it() -> None:
    nodes = [f'!{number} = !{{i32 {number}, !"name{number}"}}' for number in range(500)]
    listed = ", ".join(f"!{number}" for number in range(500))
    module = read(assemble(22, "\n".join([f"!all = !{{{listed}}}", *nodes])))
    table = MetadataTable(module, ConstantTable(module))
    assert list(table.named("all")) == [(number, f"name{number}") for number in range(500)]


@pytest.mark.parametrize("release", LLVM)
def test_the_summary_for_thin_links_is_told_from_the_full_one(release: int, session: Path) -> None:
    thin = read(compile_bitcode(release, "thin", session).read_bytes())
    full = read(compile_bitcode(release, "full", session).read_bytes())
    plain = read(compile_bitcode(release, "host-O0", session).read_bytes())
    assert thin.thin_summary is not None
    assert (thin.full_summary, full.thin_summary) == (None, None)
    assert full.full_summary == thin.thin_summary
    assert (plain.thin_summary, plain.full_summary) == (None, None)


@pytest.mark.llvm(22)
def test_bitcode_may_stand_in_the_header_of_darwin(tmp_path: Path) -> None:
    text = 'target triple = "arm64-apple-macosx14"\n@x = global i32 3'
    data = assemble(22, text)
    assert data[:4] == b"\xde\xc0\x17\x0b"
    assert next(read(data).variables).name == "x"
    assert tmp_path.exists()
    with pytest.raises(VerificationError, match="bitcode in its wrapper at offset"):
        read(data[:8] + struct.pack("<II", 20, len(data)) + data[16:])


@pytest.mark.llvm(22)
def test_several_modules_of_a_file_keep_their_own_names_and_constants(tmp_path: Path) -> None:
    files = []
    for number in range(3):
        path = tmp_path / f"{number}.bc"
        path.write_bytes(assemble(22, f'@name{number} = constant [3 x i8] c"c{number}\\00"'))
        files.append(str(path))
    command = [tool(22, "llvm-cat"), "-b", *files, "-o", "-"]
    data = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    modules = read_bitcode_modules(memory_view(data))
    assert [[one.name for one in module.variables] for module in modules] == [
        *(["name0"], ["name1"], ["name2"])
    ]
    contents = [
        ConstantTable(module).string(variable(module, f"name{number}"))
        for number, module in enumerate(modules)
    ]
    assert contents == ["c0", "c1", "c2"]
    with pytest.raises(VerificationError, match="there are 3, where one is expected"):
        read(data)


@pytest.mark.skipif(not LIBDEVICE.exists(), reason="CUDA 13.0 is not installed")
def test_a_module_of_llvm_3_has_identity_and_names() -> None:
    module = read(LIBDEVICE.read_bytes())
    assert (module.producer, module.version) == ("LLVM3.8.0", 1)
    assert module.triple == "nvptx64-nvidia-gpulibs"
    assert module.parameter_types(function(module, "__nv_sqrtf")) == ("float",)
    assert function(module, "__nv_sincosf").linkage == "external"
    assert module.parameter_types(function(module, "__nv_sincosf"))[1:] == ("float*", "float*")
    assert function(module, "__nvvm_reflect").is_declaration
    table = MetadataTable(module, ConstantTable(module))
    assert list(table.named("nvvmir.version")) == [(2, 0)]


@pytest.mark.llvm(22)
def test_a_census_counts_attributes_by_form_and_kind() -> None:
    census = read_bitcode_census(memory_view(assemble(22, TEXT)))
    assert census.string_attributes == {"key": 1, "flag": 1}
    assert census.attributes[AttributeForm.TYPE, AttributeKind.BYVAL] == 1
    assert census.attributes[AttributeForm.RANGE, 92] == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "magic at offset 0: it is , not 4243c0de"),
        (b"\x7fELF" + bytes(60), "magic at offset 0"),
        (b"BC\xc0\xde" + bytes(60), r"modules \(bit 0\) at offset 0: there are 0"),
        (b"BC\xc0\xde" + b"\xff" * 60, "stream .* at offset 4: no block begins here"),
    ],
)
def test_what_is_no_bitcode_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(VerificationError, match=reason):
        read(data)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"calling_conventions": [(1, "a"), (1, "b")], "kernels": []}, "listed twice"),
        ({"calling_conventions": [(1, "a"), (2, "a")], "kernels": []}, "listed twice"),
        ({"calling_conventions": [(1, "a")], "kernels": ["b"]}, r"\['b'\] are not calling"),
    ],
)
def test_a_wrong_table_of_conventions_is_refused(table: dict[str, Any], reason: str) -> None:
    rows = [{"number": number, "name": name} for number, name in table["calling_conventions"]]
    with pytest.raises(ValueError, match=reason):
        parse_conventions({**table, "calling_conventions": rows})


@pytest.mark.parametrize("release", LLVM)
def test_calling_conventions_are_named_as_in_text(release: int) -> None:
    numbers = [number for number in load_conventions().names if number]
    lines = [f"define cc {number} void @f{number}() {{ ret void }}" for number in numbers]
    kept = [line for line in lines if number_is_kept(release, line)]
    data = assemble(release, "\n".join(kept))
    command = [tool(release, "llvm-dis"), "-", "-o", "-"]
    text = subprocess.run(command, input=data, check=True, stdout=subprocess.PIPE).stdout.decode()
    for one in read(data).functions:
        assert f"{one.convention} void @{one.name}(" in text


def number_is_kept(release: int, line: str) -> bool:
    """Return whether the release has the number; what it does not know it prints as one."""
    since = {21: 19, 104: 19, 105: 19}
    number = int(line.split()[2])
    # Number 83, an interrupt handler, requires parameters.
    return since.get(number, 0) <= release and number != 83
