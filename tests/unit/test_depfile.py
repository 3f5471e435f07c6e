"""The Make rule with the dependencies of an output."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlir_offload.driver.compile.context import DependencyLog, depfile_step, plan_depfiles
from mlir_offload.driver.option.command_line import parse_arguments
from mlir_offload.driver.system.depfile import quote_for_make, read_prerequisites, render_rule
from mlir_offload.toolchain.errors import InputOutputError


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("a.mlir", "a.mlir"),
        ("a b#$.mlir", r"a\ b\#$$.mlir"),
        (r"back\slash", r"back\slash"),
        (r"back\ slash", r"back\\\ slash"),
    ],
)
def test_a_name_is_quoted_as_clang_quotes_it(name: str, quoted: str) -> None:
    assert quote_for_make(name) == quoted


def test_a_name_that_no_rule_can_hold_is_refused() -> None:
    with pytest.raises(InputOutputError, match="newline"):
        quote_for_make("a\nb")


_NAMES = st.lists(
    st.text("ab/.$#\\ -", min_size=1).filter(
        lambda name: not name.endswith("\\") and ":" not in name
    ),
    min_size=1,
    unique=True,
)


@given(_NAMES)
def test_what_is_quoted_is_read_back(names: list[str]) -> None:
    # clang's quoting of a backslash before '#' is ambiguous.
    names = [name for name in names if "\\#" not in name] or ["a"]
    rule = render_rule(["t.o"], names, phony=True)
    assert list(read_prerequisites(rule)) == names


def test_the_rule_is_wrapped_and_every_other_file_is_a_phony_target() -> None:
    long = [f"directory/of/some/length/{number}.h" for number in range(4)]
    text = render_rule(["x.o", "y.o"], ["a.c", "b.c"], [*long, "a.c"], phony=True)
    assert text.startswith("x.o y.o: a.c b.c directory")
    assert max(map(len, text.splitlines())) <= 80
    assert text.endswith("".join(f"{name}:\n" for name in long))
    assert text.count(": ") == 1


def test_make_reads_the_names_back(tmp_path: Path) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    names = ["plain.h", "sp ace.h", "dollar$x.h", "hash#.h", "back\\slash.h", "back\\ space.h"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "rules.d").write_text(render_rule(["out"], names, phony=False))
    (tmp_path / "Makefile").write_text("out:\n\t@echo made\ninclude rules.d\n")

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run([make, "-C", tmp_path], check=False, capture_output=True, text=True)

    assert "made" in run().stdout
    for name in names:
        (tmp_path / name).unlink()
        assert f"No rule to make target '{name}', needed by 'out'" in run().stderr
        (tmp_path / name).touch()


@pytest.mark.parametrize(
    ("arguments", "planned"),
    [
        ("-c a.mlir", []),
        ("-c a.mlir -MF a.d", []),
        ("-MD a.o -o p", []),
        ("-c -MD sub/a.mlir", [("a.d", "a.o", "sub/a.mlir")]),
        ("-c -MD sub/a.mlir -o out/x.y.o", [("out/x.y.d", "out/x.y.o", "sub/a.mlir")]),
        ("-S -MMD a.mlir", [("a.d", "a.s", "a.mlir")]),
        ("-c -MD a.mlir b.c", [("a.d", "a.o", "a.mlir"), ("b.d", "b.o", "b.c")]),
        ("-c -MD -MF z.d a.mlir b.c", [("z.d", "a.o b.o", "a.mlir b.c")]),
        ("-MD a.mlir x.o b.c -o d/prog", [("d/prog.d", "d/prog", "a.mlir b.c")]),
        ("-MD a.mlir b.c", [("a.d", "a.o", "a.mlir"), ("b.d", "b.o", "b.c")]),
        ("-c -MD -MT $(x) -MQ $(y) a.mlir", [("a.d", "$(x) $$(y)", "a.mlir")]),
        ("-c -Wp,-MD,z.d a.mlir b.c", [("z.d", "a.o b.o", "a.mlir b.c")]),
        ("-c -Wp,-MMD a.c", [("a.d", "a.o", "a.c")]),
        ("-c -MD -MF- -MTt a.mlir", [("-", "t", "a.mlir")]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_files_and_targets_are_named_as_clang_names_them(
    arguments: str, planned: list[tuple[str, str, str]]
) -> None:
    made = plan_depfiles(parse_arguments(arguments.split()))
    assert planned == [
        (file.file, " ".join(file.targets), " ".join(map(str, file.sources))) for file in made
    ]


@pytest.mark.parametrize(("which", "is_named"), [("-MD", True), ("-MMD", False)])
def test_only_md_names_the_files_of_the_system(which: str, *, is_named: bool) -> None:
    options = parse_arguments(["-c", which, "a.mlir"])
    log = DependencyLog()
    log.add(Path("a.mlir"), Path("libdevice.bc"), is_system=True)
    log.add(Path("a.mlir"), Path("mine.bc"))
    log.add(Path("b.mlir"), Path("other.bc"))
    step = depfile_step(options, plan_depfiles(options)[0], log, {}, Path("a.d"))
    assert step.others == (("libdevice.bc", "mine.bc") if is_named else ("mine.bc",))
