"""Variables and lines for debuggers in CPU kernels, as a rewrite of text."""

from __future__ import annotations

import pytest

from mlir_offload.offload.host.source_line import render_line_nodes, with_kernel_lines
from mlir_offload.translate.cpu.source_names import SourceNames
from mlir_offload.translate.cpu.variables import steppable, with_variables

SOURCE = """\
gpu.module @m {
  gpu.func @k(%buffer: memref<?xf32>, %count: index) kernel {
    %é = arith.constant 1 : index // é: two bytes
    %sum = arith.addi %count, %é : index
    %both:2 = scf.if %c -> (index, index) {
"""
PLACE = 'loc("k.mlir":2:{})'
DEVICE = f"""\
#loc = loc("k.mlir":1:1)
"builtin.module"() ({{
  "gpu.module"() <{{sym_name = "m"}}> ({{
    "gpu.func"() <{{function_type = (memref<?xf32>, index) -> ()}}> ({{
    ^bb0(%arg0: memref<?xf32> {PLACE.format(15)}, %arg1: index {PLACE.format(39)}):
      "gpu.return"() : () -> () loc(#loc)
    }}) {{gpu.kernel, sym_name = "k"}} : () -> () loc(#loc)
  }}) : () -> () loc(#loc)
}}) : () -> () loc(#loc)
"""
IR = """\
define void @k(ptr %0, ptr %1, i64 %2, i64 %3, i64 %4, i64 %5) !dbg !3 {
  %7 = add i64 %5, 1, !dbg !4
  ret void, !dbg !5
}
!llvm.dbg.cu = !{!0}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, isOptimized: true, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "k.mlir", directory: "/src")
!3 = distinct !DISubprogram(name: "k", scope: !1, file: !1, line: 2, unit: !0)
!4 = !DILocation(line: 4, column: 12, scope: !3)
!5 = !DILocation(line: 0, scope: !3)
"""


def test_values_and_parameters_get_the_names_of_the_source() -> None:
    text = with_variables(IR, DEVICE, SOURCE, "k.mlir")
    assert [text.count(f'!DILocalVariable(name: "{n}"') for n in ("buffer", "count", "sum")] == [
        1
    ] * 3
    assert 'name: "buffer", arg: 1' in text
    assert 'name: "size0"' in text
    assert "store i64 %7, ptr %mo.var.2" in text
    assert "FullDebug" in text


def test_the_place_of_a_vector_is_aligned_as_what_is_stored_there() -> None:
    ir = IR.replace("add i64 %5, 1", "load <16 x i8>, ptr %0, align 1")
    lines = with_variables(ir, DEVICE, SOURCE, "k.mlir").splitlines()
    # Without an explicit alignment, both have that of the type: 16 bytes.
    assert "  %mo.var.2 = alloca <16 x i8>" in lines
    assert "  store <16 x i8> %7, ptr %mo.var.2" in lines


def test_what_a_legalization_added_in_another_form_is_passed_over() -> None:
    added = "llvm.mlir.global internal @shared() : !llvm.array<4 x f32>\n    "
    device = DEVICE.replace('"gpu.func"()', f'{added}"gpu.func"()')
    assert 'name: "buffer", arg: 1' in with_variables(IR, device, SOURCE, "k.mlir")


def test_names_that_look_like_code_are_names() -> None:
    name = '"help%2, ptr("'
    ir, device = (
        IR.replace("@k(", f"@{name}("),
        DEVICE.replace('sym_name = "k"', f"sym_name = {name}"),
    )
    assert 'name: "count", arg: 2' in with_variables(ir, device, SOURCE, "k.mlir")


def test_a_function_of_another_file_has_no_variables() -> None:
    assert "DILocalVariable" not in with_variables(IR, DEVICE, SOURCE, "other.mlir")


@pytest.mark.parametrize(
    ("line", "column", "name"),
    [(2, 15, "buffer"), (4, 12, "sum"), (5, 15, ""), (4, 5, "sum"), (9, 1, ""), (1, 1, "")],
)
def test_a_name_is_found_by_its_place(line: int, column: int, name: str) -> None:
    assert SourceNames(SOURCE).defined_at(line, column) == name


def test_columns_count_bytes() -> None:
    assert SourceNames('@"é"(%x: i32)').defined_at(1, 7) == "x"


def test_functions_keep_their_frames() -> None:
    lines = (
        "define internal void @f() alwaysinline nounwind !dbg !3 {",
        "define void @mo() alwaysinline {",
    )
    assert steppable("\n".join(lines)) == "\n".join((lines[0].replace("always", "no"), lines[1]))


def test_lines_of_kernels_are_known_to_the_host_program() -> None:
    text = with_kernel_lines(IR, [IR])
    assert "@__mo_lines() noinline nounwind !dbg !6" in text
    assert "!DILocation(line: 4, scope: !6)" in text
    assert "line: 0, scope: !6" not in text
    assert (
        '@llvm.used = appending global [1 x ptr] [ptr @__mo_lines], section "llvm.metadata"' in text
    )


@pytest.mark.parametrize("host", ["define void @f() {\n}\n", IR.replace("k.mlir", "other.mlir")])
def test_a_host_module_without_these_lines_stays_as_it_is(host: str) -> None:
    assert with_kernel_lines(host, [IR]) == host


def test_the_nodes_of_lines_take_the_place_of_the_device_module() -> None:
    nodes = render_line_nodes(IR)
    assert "DILocation(line: 4" in nodes
    assert with_kernel_lines(IR, [nodes]) == with_kernel_lines(IR, [IR])
    assert render_line_nodes("define void @f() {\n}\n") == ""
