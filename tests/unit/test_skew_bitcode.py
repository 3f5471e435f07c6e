"""Findings in bitcode and textual IR, compared with the readers of the releases."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from foreign.probe_module import wide_integer_module
from support.bitcode_corpus import assemble, tool
from support.skew_cases import AMDGPU, CASES, DEBUG, HIDDEN, NVPTX, function

from mlir_offload.toolchain.bitcode.bitstream import Block
from mlir_offload.toolchain.bitcode.block_reader import BlockReader
from mlir_offload.toolchain.bitcode.code import BlockId
from mlir_offload.toolchain.bitcode.module import read_bitcode
from mlir_offload.toolchain.bitcode.skew import check_module
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import VerificationError
from mlir_offload.toolchain.rocm import RocmInstallation
from mlir_offload.toolchain.skew import symbol
from mlir_offload.toolchain.skew.fact import Consumer, Skew
from mlir_offload.toolchain.skew.identity import Severity
from mlir_offload.toolchain.skew.limits import code_object_of, load_limits
from mlir_offload.toolchain.skew.rule import load_rules
from mlir_offload.toolchain.skew.signature import parse_signatures
from mlir_offload.toolchain.skew.text import check_text

RELEASES = range(15, 23)
INSTALLED = tuple(release for release in (15, 16, 19) if Path(tool(release, "llvm-dis")).exists())
# Rules whose construct is not visible as a version-specific construct in textual IR.
SAME_IN_TEXT = frozenset({"BC014", "BC015", "BC018", "BC023", "AM004"})


@cache
def bitcode_of(text: str, writer: int = 22) -> bytes:
    return assemble(writer, text)


def skews(text: str, consumer: int, writer: int = 22) -> list[Skew]:
    module = read_bitcode(memory_view(bitcode_of(text, writer)))
    return list(check_module(module, Consumer(consumer)))


def errors(found: list[Skew]) -> set[str]:
    rules = load_rules()
    return {skew.rule for skew in found if rules[skew.rule].severity is Severity.ERROR}


def reader_refuses(release: int, name: str, data: bytes) -> bool:
    command = [tool(release, name), "-", "-o", "/dev/null"]
    return subprocess.run(command, input=data, check=False, capture_output=True).returncode != 0


@pytest.mark.llvm(19)
@pytest.mark.llvm(22)
@pytest.mark.parametrize("name", CASES)
def test_a_construct_is_found_for_each_release_before_the_one_that_reads_it(name: str) -> None:
    case = CASES[name]
    # LLVM adds attributes to intrinsics, and memory(...) is new in LLVM 16.
    beside = {"BC010"} if "intrinsic" in name else set()
    for release in range(16 if "effects" in name else 15, 23):
        found = errors(skews(case.text, release, case.writer))
        assert found - beside == (set(case.rules) - beside if release < case.since else set())


@pytest.mark.llvm(19)
@pytest.mark.llvm(22)
@pytest.mark.parametrize("name", CASES)
def test_what_is_found_in_bitcode_is_what_the_reader_of_a_release_refuses(name: str) -> None:
    case = CASES[name]
    for release in INSTALLED:
        found = errors(skews(case.text, release, case.writer))
        loud = {rule for rule in found if not case.silent or rule not in case.rules}
        assert reader_refuses(release, "llvm-dis", bitcode_of(case.text, case.writer)) == bool(
            loud
        ), release


@pytest.mark.llvm(19)
@pytest.mark.llvm(22)
@pytest.mark.parametrize("name", CASES)
def test_what_is_found_in_text_is_what_the_parser_of_a_release_refuses(name: str) -> None:
    case = CASES[name]
    for release in INSTALLED:
        found = errors(list(check_text(case.text, Consumer(release))))
        refused = bool(found - (SAME_IN_TEXT - {"BC023"}))
        assert reader_refuses(release, "llvm-as", case.text.encode()) == refused, release
        if found & SAME_IN_TEXT:
            assert found & SAME_IN_TEXT == set(case.rules)


@pytest.mark.llvm(22)
def test_text_that_newer_releases_dropped_is_found_for_them() -> None:
    dropped = {
        "@a = global i32 0\n@g = global i64 mul (i64 ptrtoint (ptr @a to i64), i64 2)\n": (21, 22),
        "@a = global i32 0\n@g = global i64 shl (i64 ptrtoint (ptr @a to i64), i64 2)\n": (19, 19),
        "@a = global i32 0\n@g = global i1 icmp eq (ptr @a, ptr null)\n": (19, 19),
        "@a = global i32 0\n@g = global i64 zext (i32 ptrtoint (ptr @a to i32) to i64)\n": (18, 19),
        "declare void @f(x86_mmx)\n": (20, 22),
        "@a = global i64 xor (i64 ptrtoint (ptr @a to i64), i64 2)\n": (99, 99),
    }
    for text, (gone, installed) in dropped.items():
        for release in RELEASES:
            expected = {"LL002"} if release >= gone else set()
            assert errors(list(check_text(text, Consumer(release)))) == expected
        for release in INSTALLED:
            refuses = reader_refuses(release, "llvm-as", text.encode())
            assert refuses == (release >= installed)


def test_words_in_comments_strings_and_names_are_no_constructs() -> None:
    text = (
        '; zext nneg captures( #dbg_value(\n@"range(i32" = global i8 0 ; ptrtoaddr\n'
        '@s = constant [9 x i8] c"splat (i8\\00"\n@captures = global i8 0\n'
        "define void @writable(i32 %disjoint) {\n ret void\n}\n"
        'declare void @memory(ptr)\n!0 = !{!"nofpclass("}\n'
    )
    assert list(check_text(text, Consumer(15))) == []


def test_a_construct_in_text_has_its_line_and_is_told_once() -> None:
    text = function(
        " %r = zext nneg i32 %i to i64\n %s = zext nneg i32 %i to i64\n ret void", "i32 %i"
    )
    assert [(skew.rule, skew.line) for skew in check_text(text, Consumer(16))] == [("LL001", 2)]


@pytest.mark.llvm(22)
def test_the_function_is_named_that_has_the_construct() -> None:
    text = function(" ret void") + (
        "define i64 @second(i32 %i) {\n %r = zext nneg i32 %i to i64\n ret i64 %r\n}\n"
        "define void @third(ptr captures(none) %p) {\n ret void\n}\n"
    )
    found = {skew.rule: skew.function for skew in skews(text, 16)}
    assert found == {"BC021": "second", "BC010": "third"}


@pytest.mark.llvm(22)
def test_a_module_of_a_newer_release_without_a_fault_has_a_note() -> None:
    assert [skew.rule for skew in skews(function(" ret void"), 19)] == ["BC002"]


@pytest.mark.llvm(16)
@pytest.mark.llvm(19)
def test_what_an_older_release_wrote_is_not_looked_at() -> None:
    text = "@a = external global [4 x i32]\n@g = global ptr getelementptr (i8, ptr @a, i64 4)\n"
    for writer in (16, 19):
        module = read_bitcode(memory_view(assemble(writer, text)))
        assert list(check_module(module, Consumer(22))) == []


@pytest.mark.llvm(22)
def test_producer_that_claims_an_older_release_is_not_trusted() -> None:
    from msgspec.structs import replace

    text = "define void @f(ptr captures(none) %p) {\n ret void\n}\n"
    module = replace(read_bitcode(memory_view(bitcode_of(text))), producer="LLVM15.0.7")
    assert errors(list(check_module(module, Consumer(16)))) == {"BC010"}


@pytest.mark.llvm(22)
def test_a_fork_and_another_epoch_are_told() -> None:
    data = bytearray(bitcode_of(function(" ret void")))
    module = read_bitcode(memory_view(bytes(data)))
    from msgspec.structs import replace

    fork = replace(module, producer="LLVM22.1.2-rust-1.95.0-stable", epoch=1)
    assert [skew.rule for skew in check_module(fork, Consumer(22))] == ["BC001", "BC004"]


@pytest.mark.llvm(22)
def test_a_summary_of_a_newer_release_is_told() -> None:
    from msgspec.structs import replace

    module = replace(read_bitcode(memory_view(bitcode_of(function(" ret void")))), thin_summary=12)
    assert "BC006" in errors(list(check_module(module, Consumer(19))))
    assert errors(list(check_module(module, Consumer(22)))) == set()


@pytest.mark.llvm(22)
def test_an_attribute_in_a_form_that_is_unknown_is_told() -> None:
    # range and initializes were added with their forms; uwtable is a known attribute with another form.
    from msgspec.structs import replace

    from mlir_offload.toolchain.bitcode.attribute import Attribute, AttributeGroup

    module = read_bitcode(memory_view(bitcode_of("declare void @f() nounwind\n")))
    group = AttributeGroup(0, {33: Attribute(1, 33, 2)})
    module.attributes._groups = {1: group}
    module.attributes._records = dict.fromkeys([1], next(iter(module.attributes._records.values())))
    assert "BC011" in errors(list(check_module(replace(module), Consumer(14))))
    assert errors(list(check_module(replace(module), Consumer(15)))) == set()


@pytest.mark.llvm(22)
def test_both_bounds_of_a_block_are_told_whatever_reads_them() -> None:
    text = NVPTX + (
        'define ptx_kernel void @f() "nvvm.maxntid"="128" "nvvm.reqntid"="64" {\n ret void\n}\n'
    )
    assert errors(skews(text, 22)) == {"NV009"}
    assert errors(list(check_text(text, Consumer(22)))) == {"NV009"}
    assert errors(skews(text.replace('"nvvm.maxntid"="128" ', ""), 22)) == set()


@pytest.mark.llvm(19)
@pytest.mark.llvm(22)
def test_bounds_of_clusters_are_told_to_each_release_that_does_not_read_them_as_they_are_written() -> (
    None
):
    kernel = NVPTX + "define ptx_kernel void @f() ATTRIBUTE {\n ret void\n}\n"
    annotated = (
        kernel.replace("ATTRIBUTE", "")
        + '!nvvm.annotations = !{!0}\n!0 = !{ptr @f, !"NAME", i32 2}\n'
    )
    texts = {
        (kernel.replace("ATTRIBUTE", '"nvvm.blocksareclusters"'), 22): 22,
        (kernel.replace("ATTRIBUTE", '"nvvm.cluster_dim"="2"'), 22): 21,
        (annotated.replace("NAME", "cluster_dim_x"), 19): 20,
        (annotated.replace("NAME", "maxclusterrank"), 19): 18,
        (annotated.replace("NAME", "maxntidx"), 19): 15,
    }
    for (text, writer), since in texts.items():
        for release in (15, 17, 18, 19, 20, 21, 22):
            expected = {"BC015"} if release < since else set()
            assert errors(skews(text, release, writer)) & {"BC015"} == expected
            assert errors(list(check_text(text, Consumer(release)))) & {"BC015"} == expected


@pytest.mark.parametrize(
    ("name", "value", "same", "gone"),
    [
        ("denormal-fp-math", "preserve-sign,preserve-sign", "ieee,ieee", 23),
        ("denormal-fp-math-f32", "preserve-sign,preserve-sign", "ieee,ieee", 23),
        ("uniform-work-group-size", "false", "true", 23),
        ("implicit-section-name", ".kernels", "", 19),
    ],
)
def test_an_attribute_that_a_newer_release_does_not_look_at_in_text_is_told(
    name: str, value: str, same: str, gone: int
) -> None:
    text = function(" ret void") + "attributes #0 = { VALUE }\n"
    other, kept = (text.replace("VALUE", f'"{name}"="{one}"') for one in (value, same))
    assert not errors(list(check_text(kept, Consumer(23))))
    assert not errors(list(check_text(other, Consumer(gone - 1))))
    assert errors(list(check_text(other, Consumer(gone)))) == {"LL003"}


EXPRESSIONS = """!llvm.module.flags = !{!0}
!llvm.dbg.cu = !{!1}
!x = !{!DIExpression(DW_OP_constu, 23, OPERATION)}
!0 = !{i32 2, !"Debug Info Version", i32 3}
!1 = distinct !DICompileUnit(language: DW_LANG_C99, file: !2, emissionKind: FullDebug)
!2 = !DIFile(filename: "a.c", directory: "/")
"""


RETAINED = {
    "DILocalVariable": 'name: "v", scope: !4, type: !5',
    "DIImportedEntity": "tag: DW_TAG_imported_module, scope: !4, entity: !2",
    "DIGlobalVariableExpression": "var: !6, expr: !DIExpression()",
    "DIDerivedType": "tag: DW_TAG_typedef, scope: !4, baseType: !5",
    "DICompositeType": "tag: DW_TAG_structure_type, scope: !4, size: 32",
}
RETAINING = """!llvm.module.flags = !{!0}
!llvm.dbg.cu = !{!1}
!0 = !{i32 2, !"Debug Info Version", i32 3}
!1 = distinct !DICompileUnit(language: DW_LANG_C99, file: !2, emissionKind: FullDebug)
!2 = !DIFile(filename: "a.c", directory: "/")
!3 = !DISubroutineType(types: !{})
!4 = distinct !DISubprogram(name: "f", scope: !2, type: !3, spFlags: DISPFlagDefinition, unit: !1, retainedNodes: !9)
!5 = !DIBasicType(name: "i", size: 32, encoding: DW_ATE_signed)
!6 = distinct !DIGlobalVariable(name: "s", scope: !4, type: !5, isLocal: true, isDefinition: true)
!8 = distinct !DISubprogram(name: "g", scope: !4, type: !3, spFlags: DISPFlagDefinition, unit: !1)
!9 = !{!7}
"""


@pytest.mark.llvm(22)
@pytest.mark.llvm(19)
@pytest.mark.llvm(16)
@pytest.mark.llvm(15)
@pytest.mark.parametrize("name", [row.name for row in load_limits().debug_operations.values()])
def test_a_reader_that_drops_all_debug_information_is_told(name: str) -> None:
    row = next(row for row in load_limits().debug_operations.values() if row.name == name)
    arguments = ", 1, 2" if row.number in load_limits().debug_arguments else ""
    text = EXPRESSIONS.replace("OPERATION", f"{name}{arguments}")
    # Older parsers do not know all names.
    spelled = text.replace(name, str(row.number)).encode()
    for release in (15, 16, 19):
        is_dropped = release < row.since
        command = [tool(release, "opt"), "-passes=no-op-module", "-S", "-", "-o", "-"]
        done = subprocess.run(command, input=spelled, check=False, capture_output=True)
        assert (b"ignoring invalid debug info" in done.stderr) == is_dropped
        assert (b"DICompileUnit" not in done.stdout) == is_dropped
        assert ("BC034" in errors(skews(text, release))) == is_dropped
        assert ("BC034" in errors(list(check_text(text, Consumer(release))))) == is_dropped


def test_an_argument_of_an_expression_for_debuggers_is_no_operation() -> None:
    text = EXPRESSIONS.replace("OPERATION", "DW_OP_plus_uconst, 41, DW_OP_LLVM_fragment, 23, 31")
    assert not skews(text, 15, 16) or "BC034" not in errors(skews(text, 15, 16))


@pytest.mark.llvm(22)
@pytest.mark.llvm(19)
@pytest.mark.llvm(16)
@pytest.mark.llvm(15)
@pytest.mark.parametrize("functions", [1, 2], ids=["function", "module"])
@pytest.mark.parametrize("kind", RETAINED)
def test_a_retained_node_at_which_a_reader_drops_all_debug_information_is_told(
    kind: str, functions: int
) -> None:
    since = next(
        (row.since for row in load_limits().retained_nodes.values() if row.node == kind), 0
    )
    # Nodes that two functions use are in the metadata of the module.
    text = RETAINING + "".join(
        f"define void @f{number}() !dbg !4 {{\n  ret void\n}}\n" for number in range(functions)
    ).replace("f1() !dbg !4", "f1() !dbg !8")
    text += f"!7 = !{kind}({RETAINED[kind]})\n"
    module = read_bitcode(memory_view(assemble(22, text, "-disable-verify")))
    for release in (15, 16, 19, 22):
        is_dropped = release < since
        command = [tool(release, "opt"), "-passes=no-op-module", "-S", "-", "-o", "-"]
        done = subprocess.run(command, input=text.encode(), check=False, capture_output=True)
        assert (b"ignoring invalid debug info" in done.stderr) == is_dropped
        assert (b"DICompileUnit" not in done.stdout) == is_dropped
        told = [skew for skew in check_module(module, Consumer(release)) if skew.rule == "BC034"]
        place = "f0" if functions == 1 else ""
        assert [skew.function for skew in told] == [place] * is_dropped
        assert ("BC034" in errors(list(check_text(text, Consumer(release))))) == is_dropped


GRID_CONSTANT = (
    NVPTX
    + """define ptx_kernel void @f(ptr %p, ptr byval([4 x i32]) align 64 "nvvm.grid_constant" %c) {
  %q = getelementptr i32, ptr %c, i64 2
  %v = load i32, ptr %q
  USE
  ret void
}
"""
)
ESCAPES = ("store ptr %q, ptr %p", "%x = ptrtoint ptr %c to i64", "call void @f(ptr %p, ptr %c)")


@pytest.mark.llvm(22)
@pytest.mark.parametrize("use", ["store i32 %v, ptr %p", *ESCAPES])
def test_a_parameter_in_constant_memory_is_told_where_its_address_is_used(use: str) -> None:
    text = GRID_CONSTANT.replace("USE", use)
    for release in RELEASES:
        expected = {"BC033"} if release < 22 and use in ESCAPES else set()
        assert errors(skews(text, release)) & {"BC033"} == expected
        assert errors(list(check_text(text, Consumer(release)))) & {"BC033"} == expected


@pytest.mark.llvm(19)
def test_a_back_end_that_crashes_at_the_annotation_of_a_parameter_is_told() -> None:
    text = GRID_CONSTANT.replace(' "nvvm.grid_constant"', "").replace("ptx_kernel ", "")
    text = text.replace("USE", ESCAPES[0]) + (
        '!nvvm.annotations = !{!0}\n!0 = !{ptr @f, !"kernel", i32 1, !"grid_constant", !1}\n!1 = !{i32 2}\n'
    )
    for release in RELEASES:
        expected = {"BC025"} if release < 19 else set()
        assert errors(skews(text, release, 19)) & {"BC025", "BC033"} == expected
        assert errors(list(check_text(text, Consumer(release)))) & {"BC025", "BC033"} == expected


def device_library(version: int, flag: int) -> str:
    return AMDGPU + (
        "declare void @__ockl_f()\n"
        f"@__oclc_ABI_version = linkonce_odr addrspace(4) constant i32 {version}\n"
        f'!llvm.module.flags = !{{!0}}\n!0 = !{{i32 1, !"amdhsa_code_object_version", i32 {flag}}}\n'
    )


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("library", "flag", "consumer", "rules"),
    [
        (500, 500, 22, set()),
        (500, 400, 22, {"AM001"}),
        (500, 500, 16, {"AM001"}),
        (400, 400, 16, set()),
    ],
)
def test_the_device_library_must_be_for_the_code_object_version_that_is_made(
    library: int, flag: int, consumer: int, rules: set[str]
) -> None:
    assert errors(skews(device_library(library, flag), consumer)) == rules


@pytest.mark.llvm(16)
@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("flag", "version", "obeying"),
    [
        ("amdgpu_code_object_version", 4, range(15, 23)),
        ("amdgpu_code_object_version", 5, range(17, 23)),
        ("amdhsa_code_object_version", 4, (15, 16, 17, *range(19, 23))),
        ("amdhsa_code_object_version", 6, range(19, 23)),
    ],
)
def test_a_code_object_version_that_a_release_does_not_make_is_told_by_what_is_read(
    flag: str, version: int, obeying: Sequence[int]
) -> None:
    flags = f'!llvm.module.flags = !{{!0}}\n!0 = !{{i32 1, !"{flag}", i32 {version}00}}\n'
    # LLVM 19 and newer write the new name in place of the old one.
    writer = 16 if flag.startswith("amdgpu") else 22
    for release in range(15, 23):
        made = code_object_of(release).versions[-1]
        is_read_rightly = (made > 4) == (version > 4)
        for text, rule in ((AMDGPU, "AM007"), (HIDDEN, "AM007" if is_read_rightly else "AM004")):
            expected = set() if release in obeying else {rule}
            module = read_bitcode(memory_view(bitcode_of(text + flags, writer)))
            found = check_module(module, Consumer(release))
            assert {one.rule for one in found if one.rule.startswith("AM")} == expected
            in_text = check_text(text + flags, Consumer(release))
            assert {one.rule for one in in_text if one.rule.startswith("AM")} == expected


@pytest.mark.llvm(16)
@pytest.mark.llvm(22)
def test_hidden_arguments_without_a_flag_are_those_of_the_release_that_wrote_the_module() -> None:
    for writer, wrong in ((16, {19, 22}), (22, {16})):
        for release in (16, 19, 22):
            found = errors(skews(HIDDEN, release, writer))
            assert ("AM004" in found) == (release in wrong)
    unused = HIDDEN.replace("%a = call", "%a = freeze").replace(
        "@llvm.amdgcn.implicitarg.ptr()\n  store", "null\n  store"
    )
    assert errors(skews(unused, 16, 22)) & {"AM004"} == set()
    assert [one.rule for one in check_text(HIDDEN, Consumer(16)) if "AM" in one.rule] == ["AM008"]


@pytest.mark.llvm(22)
def test_a_device_library_that_nothing_uses_is_not_told() -> None:
    library = device_library(500, 500).replace("declare void @__ockl_f()\n", "")
    text = library + "define void @k() {\n  ret void\n}\n"
    used = "define i32 @f() {\n  %v = load i32, ptr addrspace(4) @__oclc_ABI_version\n  ret i32 %v\n}\n"
    assert errors(skews(text, 16)) == set()
    for one in (library, text + used, text + "declare void @f()\n"):
        assert "AM001" in errors(skews(one, 16))
    # The library itself reads the version.
    own = HIDDEN + "@__oclc_ABI_version = external addrspace(4) global i32\n"
    assert "AM004" not in errors(skews(own, 16))


@pytest.mark.llvm(22)
def test_a_code_object_version_without_a_device_library_is_told() -> None:
    libraries = RocmInstallation(Path("rocm"), Path("rocm/bitcode"), (400, 500), None, "")
    module = read_bitcode(memory_view(bitcode_of(AMDGPU + "@g = global i8 0\n")))
    for release, expected in ((22, {"AM003"}), (19, set())):
        assert errors(list(check_module(module, Consumer(release, rocm=libraries)))) == expected


@pytest.mark.llvm(22)
def test_calls_of_another_releases_openmp_runtime_are_told() -> None:
    text = (
        NVPTX + "declare i32 @__kmpc_target_init(ptr, i8, i1)\ndeclare void @__kmpc_parallel_60()\n"
    )
    found = {
        release: [s.function for s in skews(text, release) if s.rule == "OF005"]
        for release in (16, 17, 18, 22)
    }
    assert found == {
        16: ["__kmpc_parallel_60"],
        17: ["__kmpc_parallel_60"],
        18: ["__kmpc_target_init", "__kmpc_parallel_60"],
        22: ["__kmpc_target_init"],
    }
    defined = NVPTX + "define i32 @__kmpc_target_init(ptr %a, i8 %b, i1 %c) {\n ret i32 0\n}\n"
    assert errors(skews(defined, 22)) == set()


@pytest.mark.llvm(22)
def test_arguments_that_a_later_libomptarget_reads_past_are_told() -> None:
    members = ", ".join(["i32", "i32", *["ptr"] * 6, "i64"])
    text = f"%struct.__tgt_kernel_arguments = type {{ {members} }}\n"
    text += "@a = internal global %struct.__tgt_kernel_arguments zeroinitializer\n"
    for release, expected in ((15, set()), (16, {"OF005"}), (22, {"OF005"})):
        assert errors(skews(text, release)) == expected
        assert errors(list(check_text(text, Consumer(release)))) == expected


# The data layout of LLVM before 18 for x86-64.
NARROW = (
    'target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-f80:128-n8:16:32:64-S128"\n'
    'target triple = "x86_64-pc-linux-gnu"\n'
)


@pytest.mark.llvm(16)
@pytest.mark.parametrize(
    ("element_types", "told"),
    [
        ("i8, i128", True),
        ("i64, [2 x i128], ptr", True),
        # Padding as clang writes it explicitly, and members that are aligned anyway.
        ("i8, [15 x i8], i128", False),
        ("i64, i64, i128", False),
        ("i8, i64", False),
    ],
)
def test_a_structure_that_a_newer_layout_makes_larger_is_told(
    element_types: str, *, told: bool
) -> None:
    text = f"{NARROW}@g = global {{ {element_types} }} zeroinitializer\n"
    expected = {"BC024"} if told else set()
    for release, rules in ((16, set()), (19, expected), (22, expected)):
        assert errors(skews(text, release, writer=16)) == rules
        assert errors(list(check_text(text, Consumer(release)))) == rules


def test_text_that_calls_another_releases_openmp_runtime_is_told() -> None:
    declared = NVPTX + "declare i32 @__kmpc_target_init(ptr, i8, i1, i1)\n"
    called = declared + (
        "define void @f() {\n"
        " %x = call i32 @__kmpc_target_init(ptr null, i8 1, i1 true, i1 true)\n ret void\n}\n"
    )
    assert errors(list(check_text(called, Consumer(15)))) == set()
    assert errors(list(check_text(called, Consumer(22)))) == {"OF005"}
    assert errors(list(check_text(declared, Consumer(22)))) == set()


def test_an_intrinsic_that_is_never_called_and_bounds_of_no_kernel_are_no_fault_of_text() -> None:
    intrinsic = NVPTX + "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)\n"
    assert errors(list(check_text(intrinsic, Consumer(19)))) == set()
    bounded = NVPTX + 'define void @f() "nvvm.maxntid"="128" {\n ret void\n}\n'
    assert errors(list(check_text(bounded, Consumer(19)))) == set()
    assert errors(list(check_text(bounded.replace("void @f", "ptx_kernel void @f"), Consumer(19))))


@pytest.mark.llvm(22)
def test_bounds_of_a_function_that_is_no_kernel_are_no_fault_of_bitcode() -> None:
    bounded = NVPTX + 'define void @f() "nvvm.maxntid"="128" {\n ret void\n}\n'
    assert errors(skews(bounded, 19)) == set()


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("text", "since"),
    [
        (NVPTX + "define void @f() {\n fence acquire\n ret void\n}\n", 20),
        (NVPTX + "define void @f(ptr %p) {\n store atomic i32 0, ptr %p release, align 4\n ret void\n}\n", 20),
        (NVPTX + "define i32 @f(ptr %p) {\n %x = load atomic i32, ptr %p acquire, align 4\n ret i32 %x\n}\n", 20),
        (NVPTX + "define i32 @f(ptr %p) {\n %x = load atomic i32, ptr %p monotonic, align 4\n ret i32 %x\n}\n", 0),
        (AMDGPU + "define void @f() {\n fence acquire\n ret void\n}\n", 0),
        (
            AMDGPU + "declare float @llvm.minimum.f32(float, float)\n"
            "define float @f(float %x) {\n"
            " %y = call float @llvm.minimum.f32(float %x, float %x)\n ret float %y\n}\n",
            19,
        ),
    ],
    ids=["fence", "store", "load", "relaxed", "amdgpu", "minimum"],
)  # fmt: skip
def test_what_an_older_back_end_stops_at_is_told(text: str, since: int) -> None:
    for release in (16, 18, 19, 20, 22):
        expected = {"BC025"} if release < since else set()
        # LLVM 22 also adds attributes to a declared intrinsic that are too new.
        assert errors(skews(text, release)) - {"BC010"} == expected
        indented = text.replace("\n ", "\n  ")
        assert errors(list(check_text(indented, Consumer(release)))) == expected


@pytest.mark.parametrize(
    ("body", "parameters", "since"),
    [
        (" %p = alloca i8, i32 %n\n ret void", "i32 %n", 19),
        (" %p = alloca [4 x i8], i32 4\n ret void", "i32 %n", 0),
        (" %r = fadd fast bfloat %a, %a\n ret void", "bfloat %a", 17),
        (" %r = fcmp oeq bfloat %a, %a\n ret void", "bfloat %a", 17),
        (" store bfloat %a, ptr null\n ret void", "bfloat %a", 0),
    ],
    ids=["alloca", "fixed", "fadd", "fcmp", "store"],
)
def test_what_older_back_ends_of_nvptx_stop_at_is_told_of_text(
    body: str, parameters: str, since: int
) -> None:
    text = NVPTX + function(body, parameters)
    for release in range(15, 23):
        expected = {"BC025"} if release < since else set()
        assert errors(list(check_text(text, Consumer(release)))) == expected
    assert errors(list(check_text(text.replace("nvptx64", "x86_64"), Consumer(15)))) == set()


@pytest.mark.llvm(22)
def test_an_intrinsic_with_another_result_is_told() -> None:
    text = NVPTX + (
        "declare ptr addrspace(7) @llvm.nvvm.mapa.shared.cluster(ptr addrspace(3), i32)\n"
        "define ptr addrspace(7) @f(ptr addrspace(3) %p) {\n"
        " %r = call ptr addrspace(7) @llvm.nvvm.mapa.shared.cluster(ptr addrspace(3) %p, i32 1)\n"
        " ret ptr addrspace(7) %r\n}\n"
    )
    for release, expected in ((16, {"BC014"}), (20, {"BC023"}), (21, set()), (22, set())):
        assert errors(skews(text, release)) - {"BC010"} == expected


def splice(side: str) -> str:
    name = f"llvm.vector.splice.{side}.v4i32"
    return f"declare <4 x i32> @{name}(<4 x i32>, <4 x i32>, i32)\n" + function(
        f" %r = call <4 x i32> @{name}(<4 x i32> %a, <4 x i32> %a, i32 1)\n ret <4 x i32> %r",
        "<4 x i32> %a",
        "<4 x i32>",
    )


@pytest.mark.llvm(19)
@pytest.mark.llvm(22)
def test_an_intrinsic_that_an_older_release_takes_for_another_is_told() -> None:
    for side, taken in (("left", set()), ("right", {"BC028"})):
        text = splice(side)
        for release, expected in ((16, {"BC014"}), (19, taken), (21, taken), (22, set())):
            # LLVM 22 also adds attributes to a declared intrinsic that are too new.
            assert errors(skews(text, release)) - {"BC010"} == expected
            assert errors(list(check_text(text, Consumer(release)))) == expected
    command = [tool(19, "opt"), "-passes=verify", "-S", "-"]
    read = subprocess.run(
        command, input=splice("right"), check=True, capture_output=True, text=True
    )
    assert "@llvm.vector.splice.v4i32(" in read.stdout


@pytest.mark.llvm(22)
def test_debug_records_and_nodes_of_a_release_are_read_by_it_and_not_by_older_ones() -> None:
    label = DEBUG.replace(" ret void, !dbg", " #dbg_label(!9, !7)\n ret void, !dbg")
    node = '!9 = !DILabel(scope: !3, name: "l", file: !1, line: 1)\n'
    ranges = (
        '!9 = !DISubrangeType(name: "r", size: 32, align: 32, baseType: !8, lowerBound: i64 1)\n'
    )
    for text, construct in (
        (DEBUG.replace("#dbg_value", "#dbg_declare_value"), "#dbg_value"),
        (label + node, "DILabel"),
        (DEBUG.replace("type: !8", "type: !9") + ranges, "record 48"),
    ):
        assert errors(skews(text, 22)) == set()
        found = {skew.values.get("construct") for skew in skews(text, 20)}
        assert construct in found


@pytest.mark.parametrize(
    ("bits", "operand", "told"), [(80, 3, True), (80, 2, False), (64, 3, False)]
)
def test_a_wide_integer_that_newer_releases_extend_by_its_sign_is_told(
    bits: int, operand: int, *, told: bool
) -> None:
    module = read_bitcode(memory_view(wide_integer_module(bits, operand)))
    for release in range(15, 23):
        expected = {"BC029"} if told and release >= 22 else set()
        assert errors(list(check_module(module, Consumer(release)))) - {"BC022"} == expected


@pytest.mark.llvm(22)
def test_what_a_release_reads_of_a_wide_integer_in_64_bits_is_what_the_table_has() -> None:
    since = load_limits().sign_extended_since
    for release in (*INSTALLED, 22):
        command = [tool(release, "llvm-dis"), "-o", "-"]
        data = wide_integer_module(80, 3)
        read = subprocess.run(command, input=data, check=True, capture_output=True).stdout
        assert (b"i80 -1" if release >= since else b"i80 18446744073709551615") in read


@pytest.mark.llvm(22)
def test_a_reader_that_was_not_measured_is_told() -> None:
    from msgspec.structs import replace

    module = replace(
        read_bitcode(memory_view(bitcode_of(function(" ret void")))), producer="LLVM99.1.0"
    )
    assert [skew.rule for skew in check_module(module, Consumer(22))] == ["BC002"]
    assert [skew.rule for skew in check_module(module, Consumer(98))] == ["BC027"]


@pytest.mark.llvm(22)
def test_opaque_pointers_are_not_read_by_llvm_14() -> None:
    text = "define void @f(ptr %p) {\n ret void\n}\n"
    assert errors(skews(text, 14)) == {"BC022"}
    assert errors(skews(text, 15)) == set()


NOUNDEF = (
    "declare i32 @g()\ndefine i32 @f(ptr %p) {\n  %a = alloca i32\n  %v = load i32, ptr %p, !noundef !0\n"
    "  %c = call i32 @g()MARK\n  %r = add i32 %v, %c\n  ret i32 %r\n}\n!0 = !{}\n"
)


@pytest.mark.llvm(22)
def test_noundef_of_another_instruction_than_a_load_is_told_for_llvm_23() -> None:
    texts = [NOUNDEF.replace("MARK", mark) for mark in ("", ", !noundef !0")]
    assert [errors(skews(text, 23)) for text in texts] == [set(), {"BC030"}]
    assert [errors(skews(text, 22)) for text in texts] == [set(), set()]
    in_text = [[skew.rule for skew in check_text(text, Consumer(23))] for text in texts]
    assert in_text == [[], ["LL002"]]


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("value", "since"), [("all", 0), ("reserved", 19), ("non-leaf-no-reserve", 22)]
)
def test_a_value_of_an_attribute_that_an_older_verifier_rejects_is_told(
    value: str, since: int
) -> None:
    text = f'define void @f() "frame-pointer"="{value}" {{\n ret void\n}}\n'
    for release in RELEASES:
        expected = {"BC035"} if release < since else set()
        assert errors(skews(text, release)) == expected
        in_text = errors(list(check_text(text, Consumer(release))))
        assert in_text == ({"LL001"} if expected else set())
        if release in INSTALLED:
            assert reader_refuses(release, "opt", bitcode_of(text)) == bool(expected)


@pytest.mark.llvm(22)
def test_the_range_of_elements_of_a_vector_is_told_for_releases_that_reject_it() -> None:
    text = (
        "declare TYPE @g()\ndefine TYPE @f() {\n %r = call TYPE @g(), !range !0\n ret TYPE %r\n}\n"
    )
    texts = [text.replace("TYPE", kind) + "!0 = !{i32 0, i32 5}\n" for kind in ("i32", "<2 x i32>")]
    for release in (15, 16, 17, 19, 22):
        wrong = {"BC036"} if release < load_limits().vector_range_since else set()
        assert [errors(skews(one, release)) for one in texts] == [set(), wrong]
        in_text = [errors(list(check_text(one, Consumer(release)))) for one in texts]
        assert in_text == [set(), {"LL001"} if wrong else set()]
        if release in INSTALLED:
            refused = [reader_refuses(release, "opt", bitcode_of(one)) for one in texts]
            assert refused == [False, bool(wrong)]


def test_an_intrinsic_that_is_gone_or_whose_change_was_not_measured_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lists = {"gone": {21: "llvm.a"}, "unmeasured": {20: "llvm.b"}}
    table = parse_signatures({"changed": {}, "unread": {}, "unchanged": "", **lists})
    monkeypatch.setattr(symbol, "load_signatures", lambda: table)
    for name, rule, since in (("llvm.a", "BC031", 21), ("llvm.b", "BC032", 20)):
        found = [
            symbol.check_intrinsic(name, "void ()", Consumer(release))
            for release in (since - 1, since)
        ]
        assert [skew.rule if skew else "" for skew in found] == ["", rule]


def test_every_rule_of_a_module_has_a_case() -> None:
    told = {rule for case in CASES.values() for rule in case.rules}
    own = Path(__file__).read_text(encoding="utf-8")
    for name in load_rules():
        if name.startswith(("BC0", "LL", "AM00")) and name not in {
            "BC005",
            "BC007",
            "AM005",
            "AM006",
        }:
            assert name in told or f'"{name}"' in own, name


@pytest.mark.llvm(22)
def test_damaged_names_of_values_are_found_though_no_rule_looks_at_them() -> None:
    data = bytearray(bitcode_of("define i32 @f(i32 %name) { ret i32 %name }"))
    module = read_bitcode(memory_view(bytes(data)))
    inner = BlockReader(module.content.stream, module.content.bodies[0])
    (names,) = (
        one for one in inner if isinstance(one, Block) and one.number == BlockId.VALUE_SYMBOLS
    )
    data[names.begin >> 3 : names.end >> 3] = b"\xff" * ((names.end - names.begin) >> 3)
    with pytest.raises(VerificationError, match="block 14"):
        list(check_module(read_bitcode(memory_view(bytes(data))), Consumer(22)))
