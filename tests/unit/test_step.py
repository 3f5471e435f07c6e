"""Steps are values, and their command lines represent all of their fields."""

from __future__ import annotations

from pathlib import Path, PurePath
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from mlir_offload.driver import cli
from mlir_offload.driver.step.compiler_step import COMPILER_STEPS, CompilerStep, ImageStep
from mlir_offload.driver.step.image_file import DeviceGlobal
from mlir_offload.driver.step.object_file import Replacement
from mlir_offload.driver.step.parse import (
    STEPS,
    described_step,
    find_step,
    parse_compiler_step,
    parse_step,
)
from mlir_offload.driver.step.step import Keyed, Step
from mlir_offload.offload.host.entry import EntryType
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.target import Kind, Target, all_kinds, parse_offload_arch
from mlir_offload.toolchain.tool import ToolVersion
from mlir_offload.translate.kernel import ParameterForm
from mlir_offload.translate.kind_lowering import FORM_NAMES, Contraction, DeviceForm, parse_form
from mlir_offload.translate.prefix_map import PrefixMap
from mlir_offload.translate.sanitizer import Sanitizer

# Characters with a special meaning in command lines and in composite values.
TEXT = st.text("ab=,-/.@ é\n", min_size=1, max_size=5)
FLAGS = (
    ("-O2",),
    ("-g",),
    ("-Xptxas", "-v"),
    ("--offload-arch=sm_90,host",),
    ("-Xdevice-opt", "-c"),
)
NUMBER = st.integers(0, 99)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: NUMBER,
    str: TEXT,
    Path: TEXT.map(Path),
    PurePath: TEXT.map(PurePath),
    Kind: st.sampled_from(all_kinds()),
    Contraction: st.sampled_from(Contraction),
    ParameterForm: st.sampled_from(ParameterForm),
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
    known = [one for one in fields(record) if one.name != "flags"]
    required = {one.name: values(hints[one.name]) for one in known if one.required}
    others = {one.name: values(hints[one.name]) for one in known if not one.required}
    return st.fixed_dictionaries(required, optional=others).map(lambda given: record(**given))


@pytest.mark.parametrize("name", STEPS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_step_is_made_again_of_its_command_line(name: str, data: st.DataObject) -> None:
    step: Step = data.draw(filled(find_step(name)))
    assert step.name == name
    assert parse_step(step.argv) == step


def test_the_former_name_of_a_step_is_understood() -> None:
    assert find_step("annotate") is find_step("embed")


@pytest.mark.parametrize("name", COMPILER_STEPS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_call_of_the_compiler_is_made_again_of_its_command_line(
    name: str, data: st.DataObject
) -> None:
    made = data.draw(filled(COMPILER_STEPS[name]))
    flags = data.draw(st.lists(st.sampled_from(FLAGS), max_size=4))
    step: CompilerStep = replace(made, flags=tuple(word for flag in flags for word in flag))
    assert step.argv[0] == name
    assert parse_compiler_step(step.argv) == step


def test_the_words_of_a_call_may_come_in_any_order() -> None:
    words = (
        "-x",
        "cpp-output",
        "--needs=async",
        "-O2",
        "k.i",
        "-MD",
        "-MF",
        "k.d",
        "-o",
        "k",
        "-c",
    )
    step = parse_compiler_step(("--image-step", *words))
    assert step == ImageStep(
        source=PurePath("k.i"),
        output=PurePath("k"),
        flags=("-O2", "-MD", "-MF", "k.d"),
        needs=("async",),
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--image-step -c a.i b.i -o k", "one input and one output"),
        ("--host-step -c a.i", "one input and one output"),
        ("--join-step -c a.host -o a.o", "join-step needs --device=FILE"),
        ("--object-step -c a.i -o a.o --kernel=k", "unknown option '--kernel=k'"),
    ],
)
def test_a_wrong_call_of_the_compiler_is_refused(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_compiler_step(line.split())


def test_the_driver_knows_every_call_of_the_compiler() -> None:
    assert set(cli._COMPILER_STEPS) == COMPILER_STEPS.keys()


def test_the_value_of_an_option_may_be_the_next_word() -> None:
    step = parse_step(("downgrade", "a.ll", "--reader", "19", "-o", "b.ll"))
    assert step.argv == ("downgrade", "a.ll", "--reader=19", "-o", "b.ll")


def test_a_comma_in_the_name_of_a_file_is_doubled() -> None:
    replaced = Replacement(Path("a,file=b"), Path("c,"))
    assert str(replaced) == "file=a,,file=b,by=c,,"
    assert Replacement.parse(str(replaced)) == replaced


def test_a_required_part_is_written_if_it_is_empty_or_zero() -> None:
    empty = DeviceGlobal(Kind.CUDA, "", "a", 0)
    assert str(empty) == "kind=cuda,name=,address=a,size=0,type=global"
    assert DeviceGlobal.parse(str(empty)) == empty


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
