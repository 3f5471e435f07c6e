"""The derived table of reader limits, verified with the installed readers at each limit."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from foreign import limits
from foreign import probe_module as probe
from foreign.limit_table import steps
from foreign.reader import Reader

from mlir_offload.toolchain.skew.limits import load_limits

RELEASES = (15, 16, 19, 22)


@cache
def reader_of(release: int) -> Reader:
    opt = Path(f"/usr/lib/llvm-{release}/bin/opt")
    if not opt.exists():
        pytest.skip(f"no opt of LLVM {release}")
    return Reader(release, opt, opt)


@pytest.mark.parametrize("release", RELEASES)
def test_the_reader_takes_the_highest_number_of_each_list_and_not_the_next(release: int) -> None:
    reader = reader_of(release)
    known = limits.known_by(reader)
    for name, is_known in known.items():
        newest = load_limits().newest[name].at(release)
        assert (is_known(newest), is_known(newest + 1)) == (True, False), name
    assert limits.summary_version(reader) == load_limits().newest["summaries"].at(release)


def sides(since: int) -> list[int]:
    """Return the installed releases next to the one with which a value begins: before it, and from it on."""
    before = [release for release in RELEASES if release < since][-1:]
    return before + [release for release in RELEASES if release >= since][:1]


@pytest.mark.parametrize("kind", load_limits().attributes)
def test_readers_take_an_attribute_in_the_forms_of_the_table(kind: int) -> None:
    row = load_limits().attributes[kind]
    since, forms = row.pairs[-1]
    for release in sides(since):
        reader = reader_of(release)
        taken = [form for form in forms if limits.takes_form(reader, kind, form)]
        assert taken == [form for form in forms if form in row.forms(release)], release


@pytest.mark.parametrize("release", RELEASES)
def test_the_reader_takes_the_newest_kind_of_attribute_and_not_the_next(release: int) -> None:
    reader, newest = reader_of(release), load_limits().newest["attribute_kinds"].at(release)
    taken = [
        any(limits.takes_form(reader, kind, form) for form in probe.FORMS)
        for kind in (newest, newest + 1)
    ]
    assert taken == [True, False]


def test_the_newest_reader_takes_no_attribute_that_the_table_has_as_unread() -> None:
    reader = reader_of(RELEASES[-1])
    assert not any(limits.takes_form(reader, kind, 0) for kind in load_limits().unread_attributes)


@pytest.mark.parametrize("code", load_limits().debug_records)
def test_readers_take_as_many_operands_of_a_node_as_the_table_has(code: int) -> None:
    operands = load_limits().debug_records[code].operands
    for release in sides(operands.pairs[-1][0]):
        reader, most = reader_of(release), operands.at(release)
        assert limits.takes_node(reader, code, most)
        assert not limits.takes_node(reader, code, most + 1)


@pytest.mark.parametrize("release", RELEASES)
def test_the_reader_names_the_places_of_memory_and_the_conventions_of_the_table(
    release: int,
) -> None:
    reader = reader_of(release)
    assert limits.memory_locations(reader) == load_limits().memory_locations(release)
    rows = load_limits().conventions
    expected = {number for number, row in rows.items() if row.since <= release}
    assert set(limits.conventions(reader)) & set(rows) == expected


def test_a_value_of_the_table_begins_where_it_changes() -> None:
    assert steps({14: 3, 15: 3, 16: 5, 17: 5, 18: 4}) == {14: 3, 16: 5, 18: 4}
    assert steps({}) == {}


def test_the_modules_of_the_probes_have_the_record_that_they_are_about() -> None:
    from mlir_offload.toolchain.bitcode.module import read_bitcode
    from mlir_offload.toolchain.byte_view import memory_view

    makes: tuple[Callable[[], bytes], ...] = (
        lambda: probe.attribute_module(86, 1),
        lambda: probe.metadata_module(40, 7),
        lambda: probe.convention_module((21,)),
        lambda: probe.summary_module(12),
    )
    modules = [read_bitcode(memory_view(make())) for make in makes]
    assert [
        one.kind for group in modules[0].attributes.groups() for one in group.attributes.values()
    ] == [86]
    assert [function.calling_convention for function in modules[2].functions] == [21]
    assert modules[3].thin_summary == 12
    assert re.match("LLVM", modules[1].producer)
