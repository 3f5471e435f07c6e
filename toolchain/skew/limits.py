"""The tables of the IR constructs that each LLVM release reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.amdgpu import CodeObjects, load_code_objects
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
        "metadata_codes",
    }
)
_OLDEST_CODE_OBJECTS = 15
_FLAGGED = frozenset({"cast", "compare", "getelementptr"})


class Steps(Struct, frozen=True):
    """A number that grows with releases: ascending pairs of a release and the number from it on."""

    pairs: tuple[tuple[int, int], ...]

    def at(self, release: int) -> int:
        """Return the number of a release. Releases older than the table have its first number."""
        known = [value for since, value in self.pairs if since <= release]
        return known[-1] if known else self.pairs[0][1]

    def first_release(self, number: int) -> int | None:
        """Return the first release with at least this number, None if no known release has it."""
        return next((since for since, newest in self.pairs if newest >= number), None)


class DebugRecord(Struct, frozen=True):
    """A record of debug information, and the number of operands that a reader accepts."""

    name: str
    operands: Steps


class AttributeRow(Struct, frozen=True):
    """An attribute whose forms depend on the release: pairs of a release and the forms from it on."""

    name: str
    pairs: tuple[tuple[int, tuple[int, ...]], ...]

    def forms(self, release: int) -> tuple[int, ...]:
        """Return the forms that a release reads. There are none if it does not have the attribute."""
        known = [forms for since, forms in self.pairs if since <= release]
        return known[-1] if known else ()

    def first_release(self, form: int) -> int | None:
        """Return the first release that reads a form of the attribute."""
        return next((since for since, forms in self.pairs if form in forms), None)


class ConventionRow(Struct, frozen=True):
    """A calling convention, and the first release that has it."""

    name: str
    since: int


class LaunchRow(Struct, frozen=True):
    """A launch bound of a kernel: its attribute and the equivalent annotation ('' if there is none)."""

    attribute: str
    since: int
    annotation: str = ""
    annotation_since: int = 0


class ParameterRow(Struct, frozen=True):
    """A property of a kernel parameter: its attribute and the equivalent annotation, with their first releases."""

    attribute: str
    since: int
    annotation: str
    annotation_since: int


class DebugOperation(Struct, frozen=True):
    """An operation of DIExpression, and the first release that has it."""

    name: str
    number: int
    since: int


class RetainedNode(Struct, frozen=True):
    """A kind of node in retainedNodes, its record code, and the first release that accepts it."""

    node: str
    code: int
    since: int


class TextAttribute(Struct, frozen=True):
    """An attribute that releases from `gone` on ignore in text. It has no effect if its value is in `same`."""

    attribute: str
    gone: int
    same: frozenset[str]
    effect: str


class LimitsTable(Struct, frozen=True, dict=True):
    """All tables. `newest` are the highest numbers that a bitcode reader accepts, by list.

    `readers` are the releases whose readers were tested.
    """

    readers: tuple[int, ...]
    newest: Mapping[str, Steps]
    attributes: Mapping[int, AttributeRow]
    unread_attributes: frozenset[int]
    conventions: Mapping[int, ConventionRow]
    debug_records: Mapping[int, DebugRecord]
    debug_operations: Mapping[int, DebugOperation]
    debug_arguments: Mapping[int, int]
    retained_nodes: Mapping[int, RetainedNode]
    instruction_flags: Mapping[str, int]
    memory: tuple[tuple[int, tuple[str, ...]], ...]
    launch: Mapping[str, LaunchRow]
    parameters: tuple[ParameterRow, ...]
    wide_integer_since: int
    back_ends: Mapping[str, Mapping[str, int]]
    openmp_parameters: Mapping[str, Steps]
    openmp_first: Mapping[str, int]
    openmp_structures: Mapping[str, Steps]
    taken_rightly: tuple[str, ...]
    sign_extended_since: int
    noundef_of_loads_since: int
    vector_range_since: int
    attribute_values: Mapping[tuple[str, str], int]
    text_attributes_gone: Mapping[str, TextAttribute]
    rounded_decimals_since: int

    def back_end_since(self, triple: str, construct: str) -> int:
        """Return the first release whose back end for a target compiles a construct, 0 if all do."""
        return self.back_ends.get(triple.partition("-")[0].rstrip("64"), {}).get(construct, 0)

    def lost_bounds(
        self, given: Collection[str], annotated: Collection[object], release: int
    ) -> tuple[LaunchRow, ...]:
        """Return the launch bounds of a kernel that a release ignores."""
        return tuple(
            row
            for row in self.launch.values()
            if (row.attribute in given or (row.annotation and row.annotation in annotated))
            and not (row.attribute in given and release >= row.since)
            and not (row.annotation in annotated and release >= row.annotation_since)
        )

    @cached_property
    def all_bounds_since(self) -> int:
        """Return the first release that reads all of the attributes."""
        return max(row.since for row in self.launch.values())

    @cached_property
    def all_annotations_since(self) -> int:
        """Return the first release that reads all of the annotations."""
        return max(row.annotation_since for row in self.launch.values())

    def memory_locations(self, release: int) -> tuple[str, ...]:
        """Return the locations of memory(...) in the order of their bits, none in releases without it."""
        known = [locations for since, locations in self.memory if since <= release]
        return known[-1] if known else ()


def code_object_of(release: int) -> CodeObjects:
    """Return the AMD code object versions of a release."""
    return load_code_objects(max(release, _OLDEST_CODE_OBJECTS))


@cache
def newest_numbers(release: int) -> Mapping[str, int]:
    """Return the highest number of each list that the reader of a release accepts."""
    return {name: steps.at(release) for name, steps in load_limits().newest.items()}


@cache
def load_limits() -> LimitsTable:
    """Return the tables that ship with the package, generated and handwritten."""
    names = ("reader_limits", "skew_limits")
    tables = [load_table("mlir_offload.toolchain", name) for name in names]
    return parse_limits({**tables[0], **tables[1]})


def parse_limits(table: Mapping[str, Any]) -> LimitsTable:
    """Parse and check the tables. Raises ValueError with the name of an invalid row."""
    _check_names("newest", table["newest"], _NEWEST)
    _check_names("instruction_flags", table["instruction_flags"], _FLAGGED)
    return LimitsTable(
        readers=tuple(int(release) for release in table["releases"]),
        newest={name: _rising(name, values) for name, values in table["newest"].items()},
        attributes={int(row["kind"]): _attribute(row) for row in table["attributes"]},
        unread_attributes=frozenset(table["unread_attributes"]),
        conventions={
            int(row["number"]): ConventionRow(str(row["name"]), int(row["since"]))
            for row in table["calling_conventions"]
        },
        debug_records={
            int(row["code"]): DebugRecord(row["name"], _rising(row["name"], row["newest"]))
            for row in table["metadata_operands"]
        },
        debug_operations={
            int(row["number"]): DebugOperation(**row) for row in table["debug_operations"]
        },
        debug_arguments={
            int(number): int(count)
            for count, numbers in table["debug_operation_arguments"].items()
            for number in numbers
        },
        retained_nodes={int(row["code"]): RetainedNode(**row) for row in table["retained_nodes"]},
        instruction_flags={name: int(since) for name, since in table["instruction_flags"].items()},
        memory=_memory(table["memory_locations"]),
        launch={str(row["attribute"]): LaunchRow(**row) for row in table["launch_attributes"]},
        parameters=tuple(ParameterRow(**row) for row in table["parameter_attributes"]),
        wide_integer_since=int(table["wide_integer_since"]),
        back_ends={
            str(target): {str(name): int(since) for name, since in rows.items()}
            for target, rows in table["back_ends"].items()
        },
        openmp_parameters={
            str(name): _counts(name, rows)
            for name, rows in table["openmp_runtime"]["parameters"].items()
        },
        openmp_structures={
            str(name): _counts(name, rows)
            for name, rows in table["openmp_runtime"]["structures"].items()
        },
        openmp_first={
            str(name): int(since) for name, since in table["openmp_runtime"]["first"].items()
        },
        taken_rightly=tuple(table["taken_rightly"]),
        sign_extended_since=int(table["sign_extended_since"]),
        rounded_decimals_since=int(table["rounded_decimals_since"]),
        noundef_of_loads_since=int(table["noundef_of_loads_since"]),
        vector_range_since=int(table["vector_range_since"]),
        attribute_values={
            (str(row["attribute"]), str(row["value"])): int(row["since"])
            for row in table["attribute_values"]
        },
        text_attributes_gone={
            str(row["attribute"]): TextAttribute(**{**row, "same": frozenset(row["same"])})
            for row in table["text_attributes_gone"]
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


def _releases(name: str, values: Mapping[Any, Any]) -> tuple[tuple[int, Any], ...]:
    found = tuple((int(since), value) for since, value in values.items())
    releases = [since for since, _ in found]
    if not releases or releases != sorted(set(releases)):
        msg = f"reader_limits: the releases of {name} do not ascend: {releases}"
        raise ValueError(msg)
    return found


def _rising(name: str, values: Mapping[Any, Any]) -> Steps:
    steps = Steps(tuple((since, int(value)) for since, value in _releases(name, values)))
    numbers = [number for _, number in steps.pairs]
    if numbers != sorted(set(numbers)):
        msg = f"reader_limits: the numbers of {name} do not ascend: {numbers}"
        raise ValueError(msg)
    return steps


def _attribute(row: Mapping[str, Any]) -> AttributeRow:
    name = str(row["name"])
    forms = ((since, tuple(value)) for since, value in _releases(name, row["forms"]))
    return AttributeRow(name, tuple(forms))


def _counts(name: str, rows: Sequence[Mapping[str, Any]], key: str = "count") -> Steps:
    return Steps(tuple((since, int(row[key])) for since, row in _ascending(name, rows)))


def _memory(rows: Mapping[Any, Any]) -> tuple[tuple[int, tuple[str, ...]], ...]:
    found = tuple((since, tuple(places)) for since, places in _releases("memory_locations", rows))
    for since, locations in found:
        if "other" not in locations or len(set(locations)) != len(locations):
            msg = f"reader_limits: memory_locations of {since} lack 'other', or name one twice"
            raise ValueError(msg)
    return found
