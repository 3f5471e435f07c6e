"""Reading MLIR text in generic form."""

from __future__ import annotations

import pytest

from mlir_offload.toolchain.errors import ToolFailedError
from mlir_offload.translate.mlir_syntax import MLIR
from mlir_offload.translate.mlir_text import (
    escape,
    parse_module,
    parse_operation,
    read_locations,
    render_symbol,
    split_signature,
    string_attribute,
    symbol_name,
    unescape,
)

PROGRAM = """\
#loc3 = loc("p.mlir":3:3)
"builtin.module"() ({
  "func.func"() <{function_type = () -> (), sym_name = "empty", sym_visibility = "private"}> ({
  }) : () -> () loc(#loc1)
  "memref.global"() <{sym_name = "g", type = memref<4xf32>}> : () -> () loc(#loc2)
  "gpu.module"() <{sym_name = "m"}> ({
    "gpu.func"() <{function_type = (i1) -> ()}> ({
    ^bb0(%arg0: i1 loc("p.mlir":4:5)):
      "scf.if"(%arg0) ({
        "scf.yield"() : () -> () loc(#loc3)
      }, {
      }) : (i1) -> () loc(#loc3)
      "gpu.return"() : () -> () loc(#loc3)
    }) {gpu.kernel, sym_name = "k"} : () -> () loc(#loc3)
  }) : () -> () loc(#loc4)
}) {gpu.container_module} : () -> () loc(#loc)
#loc = loc(unknown)
#loc1 = loc("a \\22b\\22\\C3\\A9.mlir":1:2)
#loc2 = loc("name"(#loc3))
#loc4 = loc(callsite(#loc2 at #loc1))

{-#
  dialect_resources: { }
#-}
"""


def test_a_module_is_cut_into_operations_with_their_regions() -> None:
    module = parse_module(PROGRAM)

    assert [operation.name for operation in module.operations] == [
        "func.func",
        "memref.global",
        "gpu.module",
    ]
    assert [symbol_name(operation) for operation in module.operations] == ["empty", "g", "m"]
    assert [symbol_name(inner) for inner in module.operations[2].body] == ["k"]


def test_a_module_rendered_with_its_own_operations_is_unchanged() -> None:
    module = parse_module(PROGRAM)
    lines = [line for operation in module.operations for line in operation.lines]

    # But for resources, which it does not use.
    assert module.render(lines).split() == PROGRAM.partition("{-#")[0].split()


def test_a_part_has_the_aliases_and_resources_that_it_uses() -> None:
    module = parse_module(PROGRAM)

    part = module.render(module.operations[1].lines)
    assert [line.partition(" ")[0] for line in part.splitlines() if line[0] == "#"] == [
        *("#loc3", "#loc", "#loc2"),
    ]
    assert "dialect_resources" not in part
    using = '  "a.b"() {x = dense_resource<r> : tensor<1xi8>} : () -> ()'
    assert module.render([using]).endswith("  dialect_resources: { }\n#-}\n")


@pytest.mark.parametrize("text", ["", "module {\n}\n", '"builtin.module"() ({\n'])
def test_text_that_is_no_printed_module_is_refused(text: str) -> None:
    with pytest.raises(ToolFailedError, match="cannot be read"):
        parse_module(text)


@pytest.mark.parametrize(
    ("line", "location"),
    [
        ("  x loc(#loc3)", "p.mlir:3:3"),
        ("  x loc(#loc1)", 'a "b"é.mlir:1:2'),
        ("  x loc(#loc2)", "p.mlir:3:3"),
        ("  x loc(#loc4)", "p.mlir:3:3"),
        ("  x loc(#loc)", ""),
        ('  x loc("q.mlir":7:8)', "q.mlir:7:8"),
        ("  x", ""),
    ],
)
def test_a_location_is_found_through_its_aliases(line: str, location: str) -> None:
    module = parse_module(PROGRAM)

    assert read_locations((*module.aliases, *module.tail)).of(line) == location


def test_the_first_line_of_an_operation_gives_its_parts() -> None:
    operation = parse_operation('    %5:2 = "gpu.alloc"(%4, %1#0) <{x}> : (a, b) -> (c, d) loc(#l)')

    assert operation is not None
    assert (operation.indent, operation.results, operation.name) == (4, "%5:2", "gpu.alloc")
    assert operation.operands == ("%4", "%1#0")
    assert split_signature(operation.rest) == (" <{x}>", ["a", "b"], ["c", "d"], "loc(#l)")


@pytest.mark.parametrize("line", ["^bb0(%a: i1):", "  }) : () -> ()", "", "  }, {"])
def test_labels_and_closing_lines_are_no_operations(line: str) -> None:
    assert parse_operation(line) is None


def test_a_signature_keeps_nested_types_whole() -> None:
    rest = ' <{f = "a : (b"}> : (memref<?xf32, strided<[1], offset: ?>>, (i1) -> i2) -> i3 loc(#l)'

    attributes, operands, results, _ = split_signature(rest)

    assert attributes == ' <{f = "a : (b"}>'
    assert operands == ["memref<?xf32, strided<[1], offset: ?>>", "(i1) -> i2"]
    assert results == ["i3"]


def test_a_list_is_split_outside_of_brackets() -> None:
    assert MLIR.split_list("a, b<c, d>, (e, f) -> g") == ["a", "b<c, d>", "(e, f) -> g"]
    assert MLIR.split_list("") == []


@pytest.mark.parametrize("text", ["plain", 'quote " and \\ backslash', "line\nend", "é ü", ""])
def test_a_string_survives_being_written_and_read(text: str) -> None:
    assert unescape(escape(text)) == text
    assert string_attribute(f'x = "{escape(text)}"', "x") == text


def test_symbols_are_quoted_only_where_they_must_be() -> None:
    assert render_symbol("a.b-c$d") == "@a.b-c$d"
    assert render_symbol("1a") == '@"1a"'
    assert render_symbol("a b") == '@"a b"'
