"""The reader of MLIR in generic form."""

from __future__ import annotations

import pytest

from mlir_offload.toolchain.errors import ToolFailedError
from mlir_offload.translate.mlir.module import Locations, parse_module, parse_operations
from mlir_offload.translate.mlir.operation import Operation, Region, Value, function_type
from mlir_offload.translate.mlir.rewriter import Rewriter
from mlir_offload.translate.mlir.syntax import (
    MLIR,
    Attribute,
    Shaped,
    attributes_in,
    escape,
    parse_shaped,
    quoted,
    render_symbol,
    tokens,
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


def read_all(operations: list[Operation]) -> None:
    """Let everything be parsed, so that it is printed of what was parsed."""
    for operation in operations:
        assert len(operation.operand_names) == len(operation.operand_types)
        assert len(operation.result_names) == len(operation.result_types)
        for region in operation.regions:
            for block in region.blocks:
                assert all(argument.type for argument in block.arguments)


# Output of mlir-opt 22 with every form of a line.
CORPUS = """\
#loc3 = loc("p.mlir":3:3)
!pair = !llvm.struct<"pa\\22ir", (i32, ptr)>
"builtin.module"() <{sym_name = "program"}> ({
  "func.func"() <{function_type = (i1, () -> i32) -> (i32, (i32) -> ()), sym_name = "f"}> ({
  ^bb0(%arg0: i1 loc("p.mlir":2:16), %arg1: () -> i32 loc(callsite("g"("p.mlir":1:2) at #loc3))):
    "cf.cond_br"(%arg0, %3#1)[^bb1, ^bb2] <{operandSegmentSizes = array<i32: 1, 1, 0>}> : (i1, i32) -> () loc(#loc3)
  ^bb1(%1: i32 loc(#loc3)):  // 2 preds: ^bb0, ^bb2
    %2, %3:2 = "scf.if"(%arg0) ({
      "scf.yield"(%1, %1, %1) : (i32, i32, i32) -> () loc(#loc3)
    }, {
    }) {"quoted name" = 2 : i32, n.d = {a = 1 : i32, b, s = "}) : (\\22 loc("}, u} : (i1) -> (i32, i32, i32) loc(#loc)
    %4 = "test.function"() : () -> (() -> i32) loc("a loc(b"(fused<"x">["q":1:2, unknown]))
    "test.none"() <{}> : () -> () loc(#loc)
    "test.map"() <{map = affine_set<(d0) : (d0 - 1 >= 0, -d0 + 4 >= 0)>, where = loc("p":1:1)}> : () -> () loc(#loc)
  ^bb2:  // pred: ^bb0
    "cf.br"(%1)[^bb1] : (i32) -> () loc(#loc)
  }) : () -> () loc(#loc)
  "func.func"() <{function_type = (!test.lines<
    on_two_lines
  >) -> (), sym_name = "declared", sym_visibility = "private"}> ({
  }) : () -> () loc(#loc)
  llvm.mlir.global internal @g() {addr_space = 3 : i32} : !llvm.array<33 x i32> loc(#loc)
}) {dlti.x = dense_resource<r> : tensor<1xi8>} : () -> () loc(#loc)
#loc = loc(unknown)

{-#
  dialect_resources: {
    builtin: {
      r: "0x0800000001"
    }
  }
#-}
"""


@pytest.mark.parametrize("is_parsed", [False, True])
@pytest.mark.parametrize("text", [PROGRAM, CORPUS], ids=["program", "corpus"])
def test_what_is_read_is_printed_byte_for_byte(text: str, *, is_parsed: bool) -> None:
    module = parse_module(text)
    if is_parsed:
        read_all([module.operation, *module.operation.walk_inside()])

    assert module.render() == text
    assert module.operation.clone().lines() == module.operation.lines()


def test_a_module_has_operations_with_regions() -> None:
    module = parse_module(PROGRAM)

    assert [one.name for one in module.operations] == ["func.func", "memref.global", "gpu.module"]
    assert [one.symbol for one in module.operations] == ["empty", "g", "m"]
    assert [inner.symbol for inner in module.operations[2].operations] == ["k"]
    assert [one.is_declaration for one in module.operations] == [True, True, False]
    assert module.operations[2].operations[0].regions[0].blocks[0].arguments[0].type == "i1"


def test_every_part_of_an_operation_is_an_object() -> None:
    condition = next(one for one in parse_module(CORPUS).operation.walk_inside() if one.regions and one.result_text)  # fmt: skip

    assert condition.operands == (Value("%arg0", "i1"),)
    assert condition.result_names == ["%2", "%3#0", "%3#1"]
    assert [len(region.blocks) for region in condition.regions] == [1, 0]
    assert condition.attribute('"quoted name"').integer == 2
    assert condition.attribute("n.d").entries["s"].string == '}) : (" loc('
    assert condition.has("u")
    assert condition.attribute("u") == ""
    assert condition.location == "loc(#loc)"


def test_a_part_of_a_module_with_all_its_operations_is_the_module() -> None:
    module = parse_module(PROGRAM)

    # Except for resources, which it does not use.
    whole = PROGRAM.partition("{-#")[0].split()
    assert module.render_part(module.operations).split() == whole


def test_a_part_has_the_aliases_and_resources_that_it_uses() -> None:
    module = parse_module(PROGRAM)

    part = module.render_part([module.operations[1]])
    assert [line.partition(" ")[0] for line in part.splitlines() if line[0] == "#"] == [
        *("#loc3", "#loc", "#loc2"),
    ]
    assert "dialect_resources" not in part
    using = parse_operations(['  "a.b"() {x = dense_resource<r> : tensor<1xi8>} : () -> ()'])
    assert module.render_part(using).endswith("  dialect_resources: { }\n#-}\n")


@pytest.mark.parametrize("text", ["", "module {\n}\n", '"builtin.module"() ({\n'])
def test_text_that_is_no_printed_module_is_refused(text: str) -> None:
    with pytest.raises(ToolFailedError, match="cannot be read"):
        parse_module(text)


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("loc(#loc3)", "p.mlir:3:3"),
        ("loc(#loc1)", 'a "b"é.mlir:1:2'),
        ("loc(#loc2)", "p.mlir:3:3"),
        ("loc(#loc4)", "p.mlir:3:3"),
        ("loc(#loc)", ""),
        ('loc("q.mlir":7:8)', "q.mlir:7:8"),
        ("", ""),
    ],
)
def test_a_location_is_found_through_its_aliases(location: str, place: str) -> None:
    module = parse_module(PROGRAM)
    (operation,) = parse_operations([f'"a.b"() : () -> () {location}'.rstrip()])

    assert Locations(module.aliases).of(operation) == place


@pytest.mark.parametrize("line", ["what is this", '"a.b', "  })", "  }, {"])
def test_a_line_of_another_form_is_refused(line: str) -> None:
    with pytest.raises(ToolFailedError, match="cannot be read"):
        parse_operations([line])


def test_a_signature_keeps_nested_types_whole() -> None:
    text = '"x.y"(%0, %1) <{f = "a : (b"}> : (memref<?xf32, strided<[1], offset: ?>>, (i1) -> i2) -> i3 loc(#l)'
    (operation,) = parse_operations([text])

    assert operation.operand_types == ["memref<?xf32, strided<[1], offset: ?>>", "(i1) -> i2"]
    assert operation.result_types == ["i3"]


def test_locations_are_dropped_but_not_those_in_attributes() -> None:
    lines = [
        '"a.b"() <{x = loc("a":1:2)}> ({',
        '^bb3(%0: i32 loc("a (":1:2), %1: f32 loc(#loc)):  // pred: ^bb0',
        '  "c.d"() {x = loc(#loc)}',
        '}) : () -> () loc(callsite("f"("k (1).mlir":1:2) at fused<"x">[#loc]))',
    ]
    (operation,) = parse_operations(lines)
    for one in (operation, *operation.walk_inside()):
        one.drop_locations()

    assert operation.lines() == [
        lines[0], "^bb3(%0: i32, %1: f32):  // pred: ^bb0", lines[2], "}) : () -> ()",
    ]  # fmt: skip


def doubled(rewriter: Rewriter, operation: Operation) -> None:
    with rewriter.region() as region:
        rewriter.create("t.end", operation.operands)
    made = rewriter.create(
        "t.twice", operation.operands, ("i32", "i32"), {"a": "1 : i32"}, [region]
    )
    rewriter.replace(operation, made.results[1:])


def test_a_rewriter_replaces_operations_and_their_uses() -> None:
    lines = ['"t.f"() ({', '  %1 = "t.one"(%0) : (i32) -> i32 loc(#a)', '  %2 = "t.one"(%1) : (i32) -> i32', '  "t.use"(%2, %1) ({', '    "t.use"(%1) : (i32) -> ()', "  }) : (i32, i32) -> ()", "}) : () -> ()"]  # fmt: skip
    (function,) = parse_operations(lines)
    Rewriter("%n").rewrite(
        function.regions[0], lambda one: doubled if one.name == "t.one" else None
    )

    assert function.lines() == [
        '"t.f"() ({',
        '  %n1:2 = "t.twice"(%0) <{a = 1 : i32}> ({',
        '    "t.end"(%0) : (i32) -> () loc(#a)',
        "  }) : (i32) -> (i32, i32) loc(#a)",
        '  %n2:2 = "t.twice"(%n1#1) <{a = 1 : i32}> ({',
        '    "t.end"(%n1#1) : (i32) -> ()',
        "  }) : (i32) -> (i32, i32)",
        '  "t.use"(%n2#1, %n1#1) ({',
        '    "t.use"(%n1#1) : (i32) -> ()',
        "  }) : (i32, i32) -> ()",
        "}) : () -> ()",
    ]


def test_names_of_values_in_sibling_regions_are_not_mixed_up() -> None:
    lines = ['"t.f"() ({', '  %1 = "t.one"(%0) : (i32) -> i32', "}, {", '  %1 = "t.two"() : () -> i32', '  "t.use"(%1) : (i32) -> ()', "}) : () -> ()"]  # fmt: skip
    (function,) = parse_operations(lines)
    rewriter = Rewriter()
    for region in function.regions:
        rewriter.rewrite(region, lambda one: doubled if one.name == "t.one" else None)

    assert function.lines()[-4:] == lines[-4:]


def test_an_operation_in_custom_form_takes_other_operands() -> None:
    with Rewriter().region() as region:
        rewriter = Rewriter()
        with rewriter.insertion_point(region.blocks[0].operations):
            result = rewriter.custom('llvm.load %0 {x = "%0"} : !llvm.ptr -> i32', "i32")
    region.rename({"%0": "%7"})

    assert region.blocks[0].operations[0].lines() == [
        f'{result.name} = llvm.load %7 {{x = "%0"}} : !llvm.ptr -> i32'
    ]
    assert isinstance(region, Region)


def test_tokens_know_strings_comments_and_symbols() -> None:
    text = 'gpu.module @"a b" { // "not\n %0:2 = "x.y"(%1#0) {s = "a \\" // b"} : (4xf32) -> !t.u<#v.w>'

    assert tokens(text) == [
        *("gpu.module", '@"a b"', "{", "%0", ":", "2", "=", '"x.y"', "(", "%1#0", ")", "{", "s", "="),
        *('"a \\" // b"', "}", ":", "(", "4xf32", ")", "->", "!t.u", "<", "#v.w", ">"),
    ]  # fmt: skip


def test_attributes_are_read_when_somebody_asks() -> None:
    target = Attribute('#nvvm.target<O = 3, chip = "sm_90", flags = {fast, x = "y"}, link = ["a>", "b"]>')  # fmt: skip

    assert target.name == "#nvvm.target"
    assert target.parameters["O"].integer == 3
    assert target.parameters["chip"].string == "sm_90"
    assert list(target.parameters["flags"].entries) == ["fast", "x"]
    assert [one.string for one in target.parameters["link"].elements] == ["a>", "b"]
    assert Attribute("array<i32: 1, -2>").integers == (1, -2)
    assert Attribute("#gpu<dim x>").enumerator == "x"
    assert Attribute('@"a b"::@c').symbols == ("a b", "c")
    assert Attribute("true").integer == 1
    assert Attribute("1.5 : f32").integer is None
    assert [one.name for one in attributes_in(f"x // {target}\n, {target} <", {target.name})] == [target.name]  # fmt: skip


def test_types_are_read_from_their_text() -> None:
    assert parse_shaped("memref<4x?xf32, strided<[1]>, 3>", "memref") == Shaped((4, None), "f32", ("strided<[1]>", "3"))  # fmt: skip
    assert parse_shaped("memref<*xf32>", "memref") is None
    assert parse_shaped("vector<2x[4]xi8>", "vector") == Shaped((2, None), "i8")
    (function,) = parse_operations(
        ['"llvm.func"() <{function_type = !llvm.func<ptr (i32, struct<(i32)>)>}> : () -> ()']
    )
    assert function_type(function) == (["i32", "!llvm.struct<(i32)>"], ["!llvm.ptr"])


def test_a_list_is_split_outside_of_brackets() -> None:
    assert MLIR.split_list("a, b<c, d>, (e, f) -> g") == ["a", "b<c, d>", "(e, f) -> g"]
    assert MLIR.split_list("") == []


@pytest.mark.parametrize("text", ["plain", 'quote " and \\ backslash', "line\nend", "é ü", ""])
def test_a_string_survives_being_written_and_read(text: str) -> None:
    assert unescape(escape(text)) == text
    assert quoted(text).string == text


def test_symbols_are_quoted_only_where_they_must_be() -> None:
    assert render_symbol("a.b-c$d") == "@a.b-c$d"
    assert render_symbol("1a") == '@"1a"'
    assert render_symbol("a b") == '@"a b"'
