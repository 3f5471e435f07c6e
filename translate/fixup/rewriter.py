"""Operations made in the text of a device module, at the place of one that they replace."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from math import prod

from msgspec import Struct, field

from mlir_offload.translate.fixup.device_form import DeviceForm
from mlir_offload.translate.mlir_text import Locations, Operation, escape, split_signature

BINARY = "(index, index) -> index"
POINTER = "!llvm.ptr"
_UNKNOWN = "(unknown)"
_DEFINITION = re.compile(
    r' *(?P<name>%\w+) = (?:"arith\.constant"\(\) <\{value = (?P<number>-?\d+) : i32\}>)?'
)

Value = Generator[str, None, str]
Values = Generator[str, None, tuple[str, str, str]]
_BLOCK_SIZE = re.compile(r"\bknown_block_size = array<i32: (\d+, \d+, \d+)>")


class Place(Struct, frozen=True):
    """The indentation and the location of what is made."""

    indent: str
    location: str

    @property
    def inside(self) -> Place:
        """Return the place inside of a region."""
        return Place(f"{self.indent}  ", self.location)


class Rewriter(Struct):
    """Makes operations at the place of one that is replaced; value names never clash.

    `has_full_subgroups` says whether the function is known to run in blocks of whole subgroups only;
    `ragged_threads` is the size of its blocks if their rows are known not to be whole subgroups, else 0.
    `constants` are the values of type i32 that are known where the next operation is made. `globals` are
    what the module gets in addition, by symbol.
    """

    locations: Locations
    form: DeviceForm
    has_full_subgroups: bool = False
    ragged_threads: int = 0
    count: int = 0
    globals: dict[str, str] = field(default_factory=dict)
    constants: dict[str, int] = field(default_factory=dict)

    def note_definition(self, line: str) -> None:
        """Keep what an operation of the program says about its function, or the value it defines."""
        if '"gpu.func"(' in line or '"func.func"(' in line:
            known = _BLOCK_SIZE.search(line)
            sizes = [int(size) for size in known[1].split(", ")] if known else [1]
            threads, width = prod(sizes), self.form.subgroup_size
            self.has_full_subgroups = threads % width == 0
            self.ragged_threads = threads if sizes[0] % width and sizes[0] != threads else 0
        match = _DEFINITION.match(line)
        if match and match["number"]:
            self.constants[match["name"]] = int(match["number"])
        elif match:
            # Regions that stand beside each other may give values the same name.
            self.constants.pop(match["name"], None)

    def value(self, operation: str, signature: str, place: Place) -> Value:
        """Make an operation with one result, and return the name of that."""
        self.count += 1
        name = f"%mo_{self.count}"
        yield f"{place.indent}{name} = {operation} : {signature}{place.location}"
        return name

    def index(self, value: int, place: Place) -> Value:
        """Make a constant of type index."""
        return (yield from self.value(index_constant(value), "() -> index", place))

    def identifier(self, kind: str, dimension: str, place: Place) -> Value:
        """Make an operation such as gpu.thread_id."""
        operation = f'"gpu.{kind}"() <{{dimension = #gpu<dim {dimension}>}}>'
        return (yield from self.value(operation, "() -> index", place))

    def dimensions(self, kind: str, place: Place) -> Values:
        """Make an operation such as gpu.thread_id for each of the three dimensions."""
        x = yield from self.identifier(kind, "x", place)
        y = yield from self.identifier(kind, "y", place)
        z = yield from self.identifier(kind, "z", place)
        return x, y, z

    def message_global(self, text: str, place: Place) -> str:
        """Add a constant string to the module, and return its name."""
        name = f"__mo_assert_{len(self.globals)}"
        size = len(text.encode("utf-8", errors="surrogateescape")) + 1
        self.globals[name] = (
            f'    "llvm.mlir.global"() <{{addr_space = 0 : i32, constant, global_type = !llvm.array<{size} x i8>, '
            f'linkage = #llvm.linkage<internal>, sym_name = "{name}", value = "{escape(text)}\\00", '
            f"visibility_ = 0 : i64}}> ({{}}) : () -> (){place.location}"
        )
        return name

    def file_and_line(self, place: Place) -> tuple[str, int]:
        """Return the place in the source that a location means."""
        file, _, rest = self.locations.of(place.location).rpartition(":")
        file, _, line = file.rpartition(":")
        return (file, int(line)) if rest and line.isdigit() else (_UNKNOWN, 0)

    def function_name(self, place: Place) -> str:
        """Return the function that a location names."""
        return self.locations.function_of(place.location) or _UNKNOWN


Expansion = Callable[[Rewriter, Operation, Place], Iterator[str]]
RegionExpansion = Callable[[Rewriter, Operation, Sequence[str], Place], Iterator[str]]
"""What expands an operation with a region: it gets all lines, and the types of the last one."""


def place_of(operation: Operation) -> Place:
    """Return the place of an operation."""
    *_, location = split_signature(operation.rest)
    return Place(" " * operation.indent, f" {location}" if location else "")


def named(result: str, operation: str, signature: str, place: Place) -> str:
    """Return an operation that gives the result of the one that is replaced."""
    return f"{place.indent}{result} = {operation} : {signature}{place.location}"


def aliased(results: str, values: Sequence[tuple[str, str]], place: Place) -> str:
    """Return an operation that gives values, each with its type, the names of other results.

    It folds away, as a cast that changes no type.
    """
    names = ", ".join(value for value, _ in values)
    types = ", ".join(kind for _, kind in values)
    cast = f'"builtin.unrealized_conversion_cast"({names})'
    return named(results, cast, f"({types}) -> ({types})", place)


def index_constant(value: int) -> str:
    """Return the operation that gives a number of type index."""
    return f'"arith.constant"() <{{value = {value} : index}}>'
