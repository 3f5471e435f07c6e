"""Show what probes of an LLVM installation find, next to the table rows of the nearest release."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.option.click_command import command
from mlir_offload.driver.tools.calibration import as_values, learn_toolchain, table_values
from mlir_offload.driver.tools.choose import choose_toolkit, places_for
from mlir_offload.driver.tools.family import PART_PROGRAMS, Family, program_families
from mlir_offload.toolchain.errors import CompatibilityError, ToolchainError
from mlir_offload.toolchain.learned_row import (
    LearnedRow,
    MissingPassesRow,
    NvptxRow,
    ProgramsRow,
    list_of,
)
from mlir_offload.toolchain.llvm import LlvmToolchain, choose_llvm, llvm_probe
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.search import SearchPlaces, find_llvm
from mlir_offload.toolchain.tables import LearnedRelease
from mlir_offload.toolchain.target import all_kinds

# A pipe has no width; this keeps a data layout on one line.
_PIPE_WIDTH = 240
_EQUAL = "the same"
_FOLDERS = {"offload_abi": "offload", "nvptx_layout": "translate", "pipelines": "translate"}
_ROOT = Path(__file__).resolve().parents[1]


@command("learn")
@click.pass_obj
def learn(runner: Runner, *, llvm: str, as_json: bool, patch: bool) -> int:
    """Probe the tools of an LLVM for everything that the tables contain about a release.

    Exit status 4 if its tools do something that this driver does not support, or contradict each other.
    """
    places = places_for(llvm)
    chosen = choose_llvm(find_llvm(places), places.llvm, llvm_probe(runner), roles=())
    families, cuda = _families(chosen), _cuda(places, runner)
    release = learn_toolchain(chosen, families, runner, is_quiet=True, cuda=cuda)
    if as_json:
        text = msgspec.json.format(release.text.encode(), indent=1).decode() + "\n"
        sys.stdout.write(text)
    elif patch:
        sys.stdout.write(render_patch(release, os.environ))
    else:
        show_table(release, str(chosen.prefix))
    if not chosen.has("clang"):
        show_note(f"{chosen.prefix} has no clang: {chosen.hint_for('clang')}")
    return _status(release)


def _families(llvm: LlvmToolchain) -> list[Family]:
    device = [Family.ABI, Family.NVPTX, Family.AMDGPU] if llvm.has("clang") else []
    device += [Family.LINKS, Family.FORMS] if llvm.has("clang-linker-wrapper") else []
    if not llvm.can_lower:
        return device
    programs = program_families(llvm, all_kinds())
    return [*device, Family.RECIPE, *programs, *(PART_PROGRAMS if programs else ())]


def _cuda(places: SearchPlaces, runner: Runner) -> Path | None:
    """Return the root of the default CUDA toolkit; None if there is none."""
    with contextlib.suppress(ToolchainError):
        toolkit = choose_toolkit(places, runner)
        return toolkit.root
    return None


def _status(release: LearnedRelease) -> int:
    failed = any(isinstance(row, ProgramsRow) and row.failed for row in release.rows)
    return CompatibilityError.exit_status if release.refused or failed else 0


def show_table(release: LearnedRelease, place: str) -> None:
    """Print each list of rows: the learned values, and those of the nearest release."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    console.print(f"LLVM {release.version} in {place}: {release.probes} probes", markup=False)
    table = Table(box=None, pad_edge=False)
    for heading in ("table", f"LLVM {release.version}", f"LLVM {release.nearest}"):
        table.add_column(heading, overflow="fold")
    for row in release.rows:
        own, near = as_values(row), table_values(row, release.nearest)
        for name, value in own.items():
            is_equal = value == near.get(name)
            table.add_row(
                f"{list_of(row)}: {name}",
                _shown(value),
                _EQUAL if is_equal else _shown(near.get(name)),
            )
    console.print(table, markup=False)
    for one in release.assumed:
        console.print(f"assumed as in LLVM {release.nearest}: {one}", markup=False, soft_wrap=True)
    for one in release.refused:
        console.print(f"refused: {one}", markup=False, soft_wrap=True)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_shown(one)}" for key, one in value.items()) or "none"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "none" if value in ("", None) else str(value)


class _Edit(Struct, frozen=True):
    """A replacement for the characters from `start` to `end`."""

    start: int
    end: int
    text: str


def render_patch(release: LearnedRelease, environment: Mapping[str, str]) -> str:
    """Return a unified diff of the tables: new rows, and the release in `checked` of rows that hold for it."""
    tables: dict[str, list[LearnedRow]] = {}
    for row in release.rows:
        tables.setdefault(list_of(row).partition(".")[0], []).append(row)
    return "".join(
        line
        for table, rows in sorted(tables.items())
        for line in _diff(table, rows, release, _source(release, environment))
    )


def _source(release: LearnedRelease, environment: Mapping[str, str]) -> str:
    epoch = environment.get("SOURCE_DATE_EPOCH", "")
    moment = int(epoch) if epoch.isdecimal() else time.time()
    date = time.strftime("%Y-%m-%d", time.gmtime(moment))
    return f"mlir-offload learn, LLVM {release.version}, {date}"


def _diff(
    table: str, rows: Sequence[LearnedRow], release: LearnedRelease, source: str
) -> Iterator[str]:
    name = f"{_FOLDERS.get(table, 'toolchain')}/data/{table}.yaml"
    old = (_ROOT / name).read_text(encoding="utf-8")
    edits = [edit for row in rows for edit in _edits(old, row, release, source)]
    if table == "offload_abi":
        edits += _last_major(old, release.major)
    lines = (old.splitlines(keepends=True), _edited(old, edits).splitlines(keepends=True))
    return difflib.unified_diff(*lines, f"a/{name}", f"b/{name}")


def _edited(text: str, edits: Iterable[_Edit]) -> str:
    for edit in sorted(edits, key=lambda one: one.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _edits(text: str, row: LearnedRow, release: LearnedRelease, source: str) -> Iterator[_Edit]:
    if isinstance(row, ProgramsRow):
        return
    if isinstance(row, NvptxRow):
        yield from _nvptx_edits(text, row, release.major)
        return
    keys = ["recipes"] if isinstance(row, MissingPassesRow) else list_of(row).split(".")[1:]
    items = _items(text, keys)
    before = [item for item in items if _value(item, "since") <= release.major]
    if not before:
        return
    if as_values(row) == table_values(row, release.major):
        yield from _checked(before[-1], release.major)
    elif not isinstance(row, MissingPassesRow):
        values = msgspec.json.decode(msgspec.json.encode(row))
        del values["list"]
        new = {"since": release.major, **values, "checked": [release.major], "source": source}
        at = text.index("\n", before[-1].end_mark.index - 1) + 1
        yield _Edit(at, at, " " * (before[0].start_mark.column - 2) + f"- {_flow(new)}\n")


def _nvptx_edits(text: str, row: NvptxRow, major: int) -> Iterator[_Edit]:
    known = table_values(row, major)
    isa = [one for one in row.isa if one not in known["isa"]]
    archs = [one for one in row.arch if one not in known["arch"]]
    if isa or archs:
        last = _items(text, ["llvm"])[-1]
        at = text.index("\n", last.end_mark.index - 1) + 1
        yield _Edit(at, at, f"  - {_flow({'release': major, 'isa': isa, 'arch': archs})}\n")
    oldest = _node(text, ["oldest_isa"])
    new = "".join(f"  {arch}: {isa}\n" for arch, isa in sorted(row.oldest_isa.items()))
    if new:
        at = oldest.end_mark.index
        yield _Edit(at, at, new)


def _checked(item: yaml.MappingNode, major: int) -> Iterator[_Edit]:
    """Yield the edit that adds the release to the `checked` list of a row."""
    for key, value in item.value:
        if key.value == "checked":
            known = [int(one.value) for one in value.value]
            if major not in known:
                listed = ", ".join(map(str, sorted([*known, major])))
                yield _Edit(value.start_mark.index, value.end_mark.index, f"[{listed}]")


def _last_major(text: str, major: int) -> list[_Edit]:
    node = _node(text, ["majors", "last"])
    if int(node.value) >= major:
        return []
    return [_Edit(node.start_mark.index, node.end_mark.index, str(major))]


def _items(text: str, keys: Sequence[str]) -> list[yaml.MappingNode]:
    return list(_node(text, keys).value)


def _node(text: str, keys: Sequence[str]) -> Any:
    node: Any = yaml.compose(text)
    for key in keys:
        node = next(value for name, value in node.value if name.value == key)
    return node


def _value(item: yaml.MappingNode, key: str) -> int:
    return next(int(value.value) for name, value in item.value if name.value == key)


def _flow(row: Mapping[str, Any]) -> str:
    """Return a row on one line, in the style of the tables."""
    return str(yaml.safe_dump(row, default_flow_style=True, sort_keys=False, width=1 << 20)).strip()
