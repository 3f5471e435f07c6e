"""What each LLVM release knows of the files that others write, as the table that ships with the package says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.amdgpu import load_code_objects
from mlir_offload.toolchain.tables import load_table

_NEWEST = frozenset(
    {
        "attribute_kinds",
        "attribute_forms",
        "constant_codes",
        "cast_opcodes",
        "atomic_operations",
        "function_codes",
        "type_codes",
        "summaries",
    }
)
_OLDEST_CODE_OBJECTS = 15
_FLAGGED = frozenset({"cast", "compare", "getelementptr"})


class Steps(Struct, frozen=True):
    """A number that some releases raise: pairs of a release and what holds from it on, ascending."""

    pairs: tuple[tuple[int, int], ...]

    def at(self, release: int) -> int:
        """Return the number of a release; that of the oldest known for still older ones."""
        known = [value for since, value in self.pairs if since <= release]
        return known[-1] if known else self.pairs[0][1]

    def first_release(self, number: int) -> int | None:
        """Return the release whose number is the first to reach another; None for a later one."""
        return next((since for since, newest in self.pairs if newest >= number), None)


class DebugRecord(Struct, frozen=True):
    """A record of debug information, and how many operands a reader takes in it."""

    name: str
    operands: Steps


class CodeObjectMade(Struct, frozen=True):
    """What a release makes of AMD code objects: the version without a flag; whether it reads one."""

    version: int
    reads_flag: bool


class LimitsTable(Struct, frozen=True):
    """All of it. `newest` are the highest numbers that a bitcode reader knows, by list.

    `readers` are the releases whose readers were measured.
    """

    readers: range
    newest: Mapping[str, Steps]
    attribute_names: Mapping[int, str]
    debug_records: Mapping[int, DebugRecord]
    instruction_flags: Mapping[str, int]
    memory: tuple[tuple[int, tuple[str, ...]], ...]
    intrinsic_parameters: Mapping[str, Steps]
    launch_since: int
    launch_annotations: Mapping[str, str]
    wide_integer_since: int
    back_ends: Mapping[str, Mapping[str, int]]
    openmp_parameters: Mapping[str, Steps]
    openmp_first: Mapping[str, int]

    def back_end_since(self, triple: str, construct: str) -> int:
        """Return the first release whose back end for a target takes a construct; 0 where all do."""
        return self.back_ends.get(triple.partition("-")[0].rstrip("64"), {}).get(construct, 0)

    def memory_locations(self, release: int) -> tuple[str, ...]:
        """Return what the places of memory(...) stand for in a release; none before there was any."""
        known = [locations for since, locations in self.memory if since <= release]
        return known[-1] if known else ()


def code_object_of(release: int) -> CodeObjectMade:
    """Return what a release makes of AMD code objects; that which writes one version reads no flag."""
    versions = load_code_objects(max(release, _OLDEST_CODE_OBJECTS)).versions
    return CodeObjectMade(versions[-1], len(versions) > 1)


@cache
def load_limits() -> LimitsTable:
    """Return the table that ships with the package."""
    return parse_limits(load_table("mlir_offload.toolchain", "skew_limits"))


def parse_limits(table: Mapping[str, Any]) -> LimitsTable:
    """Return the checked table. Raises ValueError naming the row that is wrong."""
    _check_names("newest", table["newest"], _NEWEST)
    _check_names("instruction_flags", table["instruction_flags"], _FLAGGED)
    launch = table["launch_attributes"]
    return LimitsTable(
        readers=range(int(table["readers"]["first"]), int(table["readers"]["last"]) + 1),
        newest={name: _steps(name, rows, "newest") for name, rows in table["newest"].items()},
        attribute_names={int(kind): str(name) for kind, name in table["attribute_names"].items()},
        debug_records={
            int(row["code"]): DebugRecord(row["name"], _steps(row["name"], row["rows"], "newest"))
            for row in table["debug_operands"]
        },
        instruction_flags={name: int(since) for name, since in table["instruction_flags"].items()},
        memory=_memory(table["memory_locations"]),
        intrinsic_parameters={
            str(row["name"]): _counts(row["name"], row["rows"])
            for row in table["intrinsic_parameters"]
        },
        launch_since=int(launch["since"]),
        launch_annotations={str(name): str(of) for name, of in launch["annotations"].items()},
        wide_integer_since=int(table["wide_integer_since"]),
        back_ends={
            str(target): {str(name): int(since) for name, since in rows.items()}
            for target, rows in table["back_ends"].items()
        },
        openmp_parameters={
            str(name): _counts(name, rows)
            for name, rows in table["openmp_runtime"]["parameters"].items()
        },
        openmp_first={
            str(name): int(since) for name, since in table["openmp_runtime"]["first"].items()
        },
    )


def _check_names(name: str, found: Mapping[str, Any], wanted: frozenset[str]) -> None:
    if wrong := wanted.symmetric_difference(found):
        msg = f"skew_limits: {name} lacks, or has without need, {', '.join(sorted(wrong))}"
        raise ValueError(msg)


def _ascending(name: str, rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, Mapping[str, Any]]]:
    found = [(int(row["since"]), row) for row in rows]
    releases = [since for since, _ in found]
    if not releases or releases != sorted(set(releases)):
        msg = f"skew_limits: the releases of {name} do not ascend: {releases}"
        raise ValueError(msg)
    return found


def _steps(name: str, rows: Sequence[Mapping[str, Any]], key: str) -> Steps:
    steps = _counts(name, rows, key)
    values = [value for _, value in steps.pairs]
    if values != sorted(set(values)):
        msg = f"skew_limits: the numbers of {name} do not ascend: {values}"
        raise ValueError(msg)
    return steps


def _counts(name: str, rows: Sequence[Mapping[str, Any]], key: str = "count") -> Steps:
    return Steps(tuple((since, int(row[key])) for since, row in _ascending(name, rows)))


def _memory(rows: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, tuple[str, ...]], ...]:
    found = tuple(
        (since, tuple(row["locations"])) for since, row in _ascending("memory_locations", rows)
    )
    for since, locations in found:
        if "other" not in locations or len(set(locations)) != len(locations):
            msg = f"skew_limits: memory_locations of {since} lack 'other', or name one twice"
            raise ValueError(msg)
    return found
