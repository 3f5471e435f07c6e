"""How the commands of a verb read their words."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlir_offload.driver.step_command import CommandGroup, argument, option
from mlir_offload.toolchain.errors import UsageError

Values = dict[str, object]


@pytest.fixture
def seen() -> Values:
    return {}


@pytest.fixture
def group(seen: Values) -> CommandGroup:
    commands = CommandGroup("tool step", "Do one thing.")

    @commands.command(
        "make",
        argument("source", type=Path),
        argument("others", nargs=-1),
        option("--count", type=int, default=1, help="how many"),
        option("--name", "names", multiple=True),
        option("--form", "forms", multiple=True, default=("usual",)),
        option("--kind", choices=["a", "b"]),
        option("--is-loud", is_flag=True),
        option("-o", "--output", type=Path, required=True, help="where it goes"),
    )
    def _make(**values: object) -> None:
        """Make it."""
        seen.update(values)

    return commands


def test_words_become_what_the_function_takes(group: CommandGroup, seen: Values) -> None:
    words = "make --count 3 in --name=x --name -y --is-loud -o out --kind=b -- -more"
    group.run(words.split())
    assert seen == {
        "source": Path("in"),
        "others": ("-more",),
        "count": 3,
        "names": ("x", "-y"),
        "forms": ("usual",),
        "kind": "b",
        "is_loud": True,
        "output": Path("out"),
    }


def test_what_is_not_said_has_its_default(group: CommandGroup, seen: Values) -> None:
    group.run(["make", "in", "--output=out", "--form=own"])
    assert (seen["count"], seen["names"], seen["kind"], seen["is_loud"]) == (1, (), None, False)
    assert (seen["others"], seen["forms"]) == ((), ("own",))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("mke in -o out", "unknown step 'mke'"),
        ("make in --cuont=1 -o out", "unknown option '--cuont'"),
        ("make in", "missing: -o, --output FILE"),
        ("make -o out", "missing: SOURCE"),
        ("make in -o", "-o, --output FILE takes a value"),
        ("make in -o out --is-loud=1", "--is-loud takes no value"),
        ("make in -o out --count=x", "--count N: 'x' is not a number"),
        ("make in -o out --kind=c", "--kind KIND: 'c' is not one of a, b"),
    ],
)
def test_what_is_wrong_is_named(words: str, message: str, group: CommandGroup) -> None:
    with pytest.raises(UsageError) as caught:
        group.run(words.split())
    assert caught.value.message == message
    assert caught.value.hint


@pytest.mark.parametrize("words", [[], ["--help"], ["make", "--help"], ["make", "in", "-h"]])
def test_help_says_what_there_is(
    words: list[str], group: CommandGroup, capsys: pytest.CaptureFixture[str], seen: Values
) -> None:
    group.run(words)
    said = capsys.readouterr().out
    assert said.startswith("usage: tool step ")
    assert ("where it goes [required]" in said) == ("make" in words)
    assert seen == {}
