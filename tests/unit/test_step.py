"""Steps are values, and their command lines say all that they hold."""

from __future__ import annotations

from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec.structs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlir_offload.driver.step.keyed import Keyed
from mlir_offload.driver.step.object_file import Replacement
from mlir_offload.driver.step.parse import STEPS, described_step, find_step, parse_step
from mlir_offload.driver.step.step import Step
from mlir_offload.offload.host.entry import EntryType
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.target import Kind, Target, all_kinds, parse_offload_arch
from mlir_offload.toolchain.version import ToolVersion
from mlir_offload.translate.device_form import FORM_NAMES, DeviceForm, parse_form
from mlir_offload.translate.prefix_map import PrefixMap
from mlir_offload.translate.sanitizer import Sanitizer

# What command lines, and the values with several parts in them, treat in a way of its own.
TEXT = st.text("ab=,-/.@ é\n", min_size=1, max_size=5)
NUMBER = st.integers(0, 99)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: NUMBER,
    str: TEXT,
    Path: TEXT.map(Path),
    Kind: st.sampled_from(all_kinds()),
    EntryType: st.sampled_from(EntryType),
    Sanitizer: st.sampled_from(Sanitizer),
    Target: st.sampled_from(["sm_90", "gfx90a:xnack+", "host", "spirv64"]).map(parse_offload_arch),
    DeviceForm: st.sampled_from(FORM_NAMES).map(parse_form),
    PrefixMap: st.builds(PrefixMap, st.sampled_from(["/a", "-b,c"]), TEXT),
    ToolVersion: st.builds(ToolVersion, NUMBER, NUMBER, NUMBER),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    if get_origin(hint) is tuple:
        return st.lists(values(get_args(hint)[0]), min_size=1, max_size=3).map(tuple)
    if NoneType in get_args(hint):
        return values(next(kind for kind in get_args(hint) if kind is not NoneType))
    return filled(hint) if issubclass(hint, Keyed) else VALUES[hint]


def filled(record: type[Any]) -> st.SearchStrategy[Any]:
    """Return records in which fields with a default may be left out."""
    hints = get_type_hints(record)
    fields = msgspec.structs.fields(record)
    required = {one.name: values(hints[one.name]) for one in fields if one.required}
    others = {one.name: values(hints[one.name]) for one in fields if not one.required}
    return st.fixed_dictionaries(required, optional=others).map(lambda given: record(**given))


@pytest.mark.parametrize("name", STEPS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_step_is_made_again_of_its_command_line(name: str, data: st.DataObject) -> None:
    step: Step = data.draw(filled(find_step(name)))
    assert step.name == name
    assert parse_step(step.argv) == step


def test_the_value_of_an_option_may_be_the_next_word() -> None:
    step = parse_step(("downgrade", "a.ll", "--reader", "19", "-o", "b.ll"))
    assert step.argv == ("downgrade", "a.ll", "--reader=19", "-o", "b.ll")


def test_a_comma_in_the_name_of_a_file_is_doubled() -> None:
    replaced = Replacement(Path("a,file=b"), Path("c,"))
    assert str(replaced) == "file=a,,file=b,by=c,,"
    assert Replacement.parse(str(replaced)) == replaced


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "there is no step ''"),
        ("fold", "there is no step 'fold'"),
        ("unwrap a.mlir -o b", "step unwrap needs --triple=TRIPLE"),
        ("unwrap --triple=t -o b", "step unwrap needs FILE"),
        ("unwrap a b --triple=t -o c", "'b' is one operand too many"),
        ("unwrap a --triple=t -o", "option '-o' needs a value"),
        ("unwrap a --tripel=t -o b", "unknown option '--tripel=t'"),
        ("downgrade a --reader=new -o b", "--reader=new: invalid literal"),
        ("package --image=file=k.o,arch=host -o b", "no triple or kind"),
        ("annotate a --for-clang=22 --kind=fpga -o b", "--kind=fpga: 'fpga' is not a device kind"),
    ],
)
def test_a_wrong_command_line_is_refused(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_step(line.split())


@pytest.mark.parametrize("name", STEPS)
def test_a_step_says_what_it_does_and_takes(name: str) -> None:
    table = described_step(name)
    assert table.line.endswith(".")
    assert all(row.help for row in table.rows)
