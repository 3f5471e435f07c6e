from __future__ import annotations

import pytest

from mlir_offload.translate.kernel import hermetic_text, owner_of, unit_of
from mlir_offload.translate.mlir.module import parse_module


def program(*body: str, aliases: tuple[str, ...] = (), tail: tuple[str, ...] = ()) -> str:
    return "\n".join((*aliases, '"builtin.module"() ({', *body, "}) : () -> ()", *tail)) + "\n"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('  "a.b"() : () -> () loc(#loc1)', '  "a.b"() : () -> () loc(#loc7)'),
        ('  "a.b"() : () -> () loc("k.mlir":1:2)', '  "a.b"() : () -> () loc(unknown)'),
        (
            '  "a.b"() : () -> () loc(callsite("f"("k (1).mlir":1:2) at fused<"x">[#loc]))',
            '  "a.b"() : () -> ()',
        ),
        (
            '    ^bb3(%arg6: i32 loc("a":1:2), %arg7: i32 loc(#loc3)):',
            "    ^bb0(%arg0: i32, %arg1: i32):",
        ),
        (
            '  %38:2 = "a.b"() : () -> (i1, i1)\n  "c"(%38#1)',
            '  %1:2 = "a.b"() : () -> (i1, i1)\n  "c"(%1#1)',
        ),
    ],
    ids=["alias", "file", "nested", "arguments", "results"],
)
def test_place_and_numbers_do_not_matter(one: str, other: str) -> None:
    assert hermetic_text(program(one)) == hermetic_text(program(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('  "a.b"(%0, %1)', '  "a.b"(%1, %1)'),
        ('  "a.b"() {x = "%0 loc(#loc1)"}', '  "a.b"() {x = "%1 loc(#loc2)"}'),
        ('  "a.b"() {x = "\\"", y = " loc(#loc1)"}', '  "a.b"() {x = "\\"", y = ""}'),
        ('  "a.b"() {x = loc("a":1:2)}', '  "a.b"() {x = loc("a":2:2)}'),
        ('  "cf.assert"(%0) : () -> () loc("a":1:2)', '  "cf.assert"(%0) : () -> () loc("a":2:2)'),
        ('  "a.b"() {x = #nvvm.target}', '  "a.b"() {x = #nvvm.other}'),
    ],
    ids=["values", "string", "quote", "location as a value", "assertion", "attribute"],
)
def test_what_the_code_depends_on_stays(one: str, other: str) -> None:
    assert hermetic_text(program(one)) != hermetic_text(program(other))


def test_aliases_are_named_by_their_use() -> None:
    one = program(
        '  "a.b"() {x = #map1, y = !type}',
        aliases=("#map = affine_map<(d0) -> (d0)>", "#map1 = list<#map>", "!type = !llvm.ptr"),
    )
    other = program(
        '  "a.b"() {x = #map4, y = !type7}',
        aliases=(
            "#unused = affine_map<(d0) -> (d0 * 2)>",
            "!type7 = !llvm.ptr",
            "#map3 = affine_map<(d0) -> (d0)>",
            "#map4 = list<#map3>",
        ),
    )

    assert hermetic_text(one) == hermetic_text(other)
    assert hermetic_text(one).startswith("#a0 = affine_map<(d0) -> (d0)>\n#a1 = list<#a0>\n")


def test_locations_are_kept_where_they_are_wanted() -> None:
    text = program('  "a.b"() : () -> () loc(#loc5)', tail=('#loc5 = loc("k.mlir":7:3)',))

    assert '#a0 = loc("k.mlir":7:3)' in hermetic_text(text, keeps_locations=True)
    assert "k.mlir" not in hermetic_text(text)


def test_resources_of_other_parts_are_left_out() -> None:
    tail = (
        "{-#",
        "  dialect_resources: {",
        "    builtin: {",
        '      mine: "0x04000000AA",',
        '      other: "0x04000000BB"',
        "    }",
        "  }",
        "#-}",
    )
    used = program('  "a.b"() {x = dense_resource<mine> : tensor<1xi8>}', tail=tail)

    assert '      mine: "0x04000000AA"\n    }' in hermetic_text(used)
    assert "other" not in hermetic_text(used)
    assert "{-#" not in hermetic_text(program('  "a.b"()', tail=tail))


def test_a_text_is_hermetic_at_once() -> None:
    text = program('  %5 = "a.b"(%arg3) {x = #map} : i1 loc(#loc)', aliases=("#map = list<1>",))

    once = hermetic_text(text)

    assert hermetic_text(once) == once


KERNEL = '  "gpu.module"() <{sym_name = "m"}> ({\n    "a.b"() : () -> ()\n  }) : () -> ()'
RUN = '  "func.func"() <{sym_name = "run"}> ({\n    "func.return"() : () -> ()\n  }) : () -> ()'


@pytest.mark.parametrize(
    "text",
    [program(KERNEL, RUN), program(RUN.replace("run", "zap"), RUN, KERNEL)],
    ids=["same", "more host code"],
)
def test_other_host_code_keeps_the_names_of_kernels(text: str) -> None:
    assert unit(text, "k.mlir") == unit(program(KERNEL, RUN), "k.mlir")


@pytest.mark.parametrize(
    ("text", "file"),
    [
        (program(KERNEL, RUN), "other.mlir"),
        (program(KERNEL.replace("a.b", "a.c"), RUN), "k.mlir"),
        (program(KERNEL, RUN.replace("run", "go")), "k.mlir"),
        (program(KERNEL, RUN.replace('"run"', '"run", sym_visibility = "private"')), "k.mlir"),
    ],
    ids=["file", "kernel", "exported name", "nothing exported"],
)
def test_kernels_of_files_that_can_be_linked_have_other_names(text: str, file: str) -> None:
    assert unit(text, file) != unit(program(KERNEL, RUN), "k.mlir")


def unit(text: str, file: str) -> str:
    module = parse_module(text)
    device = next(op for op in module.operations if op.name == "gpu.module")
    return unit_of(module, device, file=file, owner=owner_of(module, text))
