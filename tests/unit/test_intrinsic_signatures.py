"""Signatures of intrinsics by release: parsing, comparison, and the table compared with installed libraries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from foreign.reader import find_readers
from foreign.signatures import ask, shape

from mlir_offload.toolchain.skew.fact import Consumer
from mlir_offload.toolchain.skew.signature import (
    load_signatures,
    parse_signatures,
    split_signature,
)
from mlir_offload.toolchain.skew.symbol import check_intrinsic

_VECTOR = "<vscale x 2 x float>"
_TUPLE = 'target("riscv.vector.tuple", <vscale x 8 x i8>, 2)'
TABLE: dict[str, Any] = {
    "changed": {
        14: "llvm.a void (i64, ?)\nllvm.b i32 (ptr)",
        19: "llvm.b i32 (ptr, i1)",
        22: "llvm.a void (?)",
    },
    "gone": {21: "llvm.old"},
    "unread": {19: "llvm.b"},
    "unmeasured": {20: "llvm.odd"},
    "unchanged": "llvm.a.other",
}


def test_the_longest_name_of_the_table_counts_and_others_are_not_in_it() -> None:
    table = parse_signatures(TABLE)
    expected = {"llvm.a.p0": "llvm.a", "llvm.a": "llvm.a", "llvm.a.other.i32": "", "llvm.c": ""}
    assert {name: table.base_name(name) for name in expected} == expected


def test_a_newer_release_reads_an_older_type_unless_it_rejects_it_and_an_older_one_no_newer_type() -> (
    None
):
    table = parse_signatures(TABLE)
    read = {
        (name, text): [table.is_read(name, text, release) for release in (16, 19, 22)]
        for name, text in (
            ("llvm.a", "void (i64, ptr)"),
            ("llvm.a", "void (ptr)"),
            ("llvm.b", "i32 (i8*)"),
            ("llvm.b", "i32 (ptr, i1)"),
        )
    }
    assert list(read.values()) == [
        [True, True, True],
        [False, False, True],
        [True, False, False],
        [False, True, True],
    ]
    assert [table.is_unknown("llvm.odd", "void ()", release) for release in (19, 20)] == [
        False,
        True,
    ]


def test_a_type_that_is_chosen_once_is_the_same_at_each_of_its_places() -> None:
    pair = "{ <4 x i32>, <4 x i32> }"
    rows = {19: "llvm.a ? (?0, ?0, ptr, ?1)", 20: "llvm.a ?0 (?0, ?1, ?2, ?2)"}
    table = parse_signatures(TABLE | {"changed": rows, "unread": {20: "llvm.a"}})
    found = {
        text: [table.is_read("llvm.a", text, release) for release in (19, 20)]
        for text in (f"{pair} (<4 x i32>, <4 x i32>, ptr, i64)", f"{pair} ({pair}, ptr, i64, i64)")
    }
    assert list(found.values()) == [[True, False], [False, True]]
    # Overloaded types are printed as placeholders; here the first is printed as ?0, another one as ?1.
    first = "{ <6 x i30>, <6 x i30> } (<6 x i30>, <6 x i1>, ptr, <6 x i34>, <6 x i34>)"
    second = first.replace("<6 x i3", "<6 x i10").replace("<6 x ", "<10 x ")
    assert str(shape(19, (first, second))) == "? (?0, ?, ptr, ?1, ?1)"


def test_types_are_taken_apart_at_commas_that_no_bracket_surrounds() -> None:
    text = '{ i32, i1 } (<4 x i32>, { i8, ptr }, target("a", 1), i8 addrspace(3)*, ...)'
    result, parameters = split_signature(text)
    assert result == "{ i32, i1 }"
    assert parameters == (
        "<4 x i32>",
        "{ i8, ptr }",
        'target("a", 1)',
        "ptr addrspace(3)",
        "...",
    )
    assert split_signature("void ([4 x i8*]*, <2 x i8*>)")[1] == ("ptr", "<2 x ptr>")


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        ({"changed": {19: "llvm.a void ()", 18: "llvm.a i1 ()"}}, "of llvm.a do not ascend"),
        ({"gone": {20: "nvvm.a"}}, "nvvm.a does not begin with llvm."),
    ],
)
def test_a_broken_table_of_types_is_refused(edit: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        parse_signatures(TABLE | edit)


@pytest.mark.parametrize("release", [15, 16, 19, 22])
def test_the_library_of_a_release_has_the_types_of_the_table(release: int) -> None:
    if not Path(f"/usr/lib/llvm-{release}/bin/opt").exists():
        pytest.skip(f"no opt of LLVM {release}")
    (reader,) = find_readers([release])
    table = load_signatures()
    found = ask(reader, table.changed)
    assert len(found) > 900
    for name, types in found.items():
        expected = table.expected(name, release)
        if expected is not None:
            assert str(shape(release, types)) == str(expected), name


def test_an_intrinsic_that_newer_releases_lack_is_told_and_one_that_they_replace_is_not() -> None:
    def rules(name: str, text: str) -> list[str]:
        found = (check_intrinsic(name, text, Consumer(release)) for release in (19, 22, 23))
        return [skew.rule if skew else "" for skew in found]

    assert rules("llvm.x86.avx512.vpdpbusd.128", "<4 x i32> (<4 x i32>, <4 x i32>, <4 x i32>)") == [
        "",
        "",
        "",
    ]
    assert rules("llvm.x86.avx512.vpdpbusd.128", "<4 x i32> (<4 x i32>, <16 x i8>, <16 x i8>)") == [
        "BC023",
        "",
        "",
    ]
    assert rules("llvm.nvvm.barrier0.and", "i32 (i32)") == ["", "", ""]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        # No longer overloaded: LLVM 19 and newer call a function of the name with a suffix.
        ("llvm.nvvm.reflect.p0", "i32 (ptr)", {18: "", 19: "BC031", 22: "BC031"}),
        ("llvm.nvvm.reflect", "i32 (ptr)", {19: "", 22: ""}),
        # Readers upgrade these to atomicrmw or to another intrinsic.
        ("llvm.amdgcn.flat.atomic.fadd.f32.p0.f32", "float (ptr, float)", {19: "", 20: "", 22: ""}),
        ("llvm.nvvm.fabs.ftz.f", "float (float)", {20: "", 21: "", 23: ""}),
        ("llvm.nvvm.ldg.global.f.f32.p1", "float (ptr addrspace(1), i32)", {19: "", 20: ""}),
        # From LLVM 19 on, this is an overload of another intrinsic with the same effect.
        (
            "llvm.amdgcn.raw.buffer.atomic.fadd.v2bf16",
            "<2 x bfloat> (<2 x bfloat>, <4 x i32>, i32, i32, i32)",
            {18: "", 19: "", 22: ""},
        ),
        ("llvm.coro.end", "i1 (ptr, i1, token)", {18: "", 21: "", 22: "BC023"}),
        # Releases with the same number of parameters, of which others are overloaded.
        (
            "llvm.riscv.vlseg2.nxv2f32.i64",
            f"{{ {_VECTOR}, {_VECTOR} }} ({_VECTOR}, {_VECTOR}, ptr, i64)",
            {19: "", 20: "BC023", 21: "BC023", 23: "BC023"},
        ),
        (
            "llvm.riscv.vlseg2.triscv.vector.tuple_nxv8i8_2t.i64",
            f"{_TUPLE} ({_TUPLE}, ptr, i64, i64)",
            {19: "BC023", 20: "", 21: "", 23: ""},
        ),
        (
            "llvm.riscv.vsseg3.mask.nxv2f32.i64",
            f"void ({_VECTOR}, {_VECTOR}, {_VECTOR}, ptr, <vscale x 2 x i1>, i64)",
            {19: "", 20: "BC023", 21: "BC023", 23: "BC023"},
        ),
        (
            "llvm.amdgcn.image.load.2d.v4f32.i32.p8",
            "<4 x float> (i32, i32, i32, ptr addrspace(8), i32, i32)",
            {19: "BC023", 20: "", 21: ""},
        ),
        # Readers upgrade intrinsics on tuples of vectors.
        (
            "llvm.aarch64.sve.tuple.create2.nxv8f32.nxv4f32",
            "<vscale x 8 x float> (<vscale x 4 x float>, <vscale x 4 x float>)",
            {15: "", 16: "", 22: ""},
        ),
        (
            "llvm.aarch64.sve.ld3.nxv12f32.nxv4i1",
            "<vscale x 12 x float> (<vscale x 4 x i1>, ptr)",
            {15: "", 16: "", 22: ""},
        ),
        ("llvm.x86.ttransposed.internal", "x86_amx (i16, i16, x86_amx)", {21: "", 22: "BC031"}),
        ("llvm.dbg.addr", "void (metadata, metadata, metadata)", {16: "", 17: "", 23: ""}),
        (
            "llvm.masked.load.v4i32.p0",
            "<4 x i32> (ptr, i32, <4 x i1>, <4 x i32>)",
            {21: "", 22: "", 23: ""},
        ),
    ],
)
def test_what_readers_make_of_an_older_type_or_name_is_told(
    name: str, text: str, expected: dict[int, str]
) -> None:
    found = {release: check_intrinsic(name, text, Consumer(release)) for release in expected}
    assert {release: skew.rule if skew else "" for release, skew in found.items()} == expected
