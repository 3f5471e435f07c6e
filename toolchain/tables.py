"""Tables and JSON as values: the YAML tables of the package, rows learned from tools, plain data as Struct types.

Rows are learned from the tools of builds of LLVM that the tables do not know. A process knows one build of each
release: two that differ cannot be distinguished by their number.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import marshal
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.toolchain import learned_row
from mlir_offload.toolchain.errors import CompatibilityError, VerificationError

T = TypeVar("T")
P = ParamSpec("P")

SOURCE = "learned from its tools"
LEARNED = "MLIR_OFFLOAD_LEARNED"
"""The variable that holds learned rows as JSON, or names a file of them."""
_LARGEST = 1 << 16
_NOT_ALWAYS = {
    "offload_abi.linked_images.host": "which images a device link takes for the CPU",
    "offload_abi.linked_images.amdgcn": "for AMD GPUs",
    "offload_abi.linked_images.nvptx": "for NVIDIA GPUs",
    "offload_abi.linked_images.spirv": "as SPIR-V",
    "offload_abi.linker_wrapper.target_groups": "how it groups images",
    "offload_abi.linker_wrapper.archives": "how it searches libraries",
    "offload_abi.linker_wrapper.host_device_libraries": "the libraries for the CPU",
    "offload_abi.linker_wrapper.relocatable_link": "what -r links",
}
_NEWEST = 999


def load_table(package: str, name: str) -> dict[str, Any]:
    """Read `data/<name>.yaml` of the package (`mlir_offload.toolchain`, for example).

    Raises ValueError where the file is not a mapping: the table itself is wrong, which is a bug.
    """
    # The packages lie side by side, as folders in a checkout too. importlib.resources would cost
    # each start of the compiler 9 ms.
    packages = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 (for each of nine tables)
    table = _load(Path(f"{packages}/{package.rpartition('.')[2]}/data/{name}.yaml"))
    if not isinstance(table, dict):
        msg = f"{package}: data/{name}.yaml is not a mapping"
        raise ValueError(msg)  # noqa: TRY004 (a wrong table, not a wrong argument)
    return table


def _load(file: Path) -> object:
    """Read a file of YAML, or what was kept of the last reading.

    Loading the reader of YAML would cost each start of the compiler 20 ms. As Python does with its
    own modules, the result lies in `__pycache__` for as long as the file has the same time and size.
    """
    status = file.stat()
    stamp = (sys.hexversion, status.st_mtime_ns, status.st_size)
    kept = Path(importlib.util.cache_from_source(str(file)))
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
        known_stamp, table = marshal.loads(kept.read_bytes())  # noqa: S302 (trusted as modules are)
        if known_stamp == stamp:
            return table
    table = _parse(file.read_text(encoding="utf-8"))
    if not sys.dont_write_bytecode:
        with contextlib.suppress(OSError):
            _replace(kept, marshal.dumps((stamp, table)))
    return table


def _parse(text: str) -> Any:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(text, Loader=loader)  # noqa: S506 (a safe loader, in C where there is one)


def _replace(file: Path, content: bytes) -> None:
    """Write a file in one rename: other processes read it meanwhile."""
    file.parent.mkdir(exist_ok=True)
    beside = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)


# With the first value of a type msgspec 0.22 reads the annotations, which runs Python code, and remembers
# the half-read type meanwhile: a second thread that converts to it then ends with a segmentation fault.
_READING = threading.Lock()


def converted(value: object, kind: type[T]) -> T:
    """Return plain data as the type, without changing values. Raises msgspec.ValidationError."""
    with _READING:
        return msgspec.convert(value, kind, strict=True)


def decoded(text: str | bytes, kind: type[T]) -> T:
    """Return JSON as the type. Raises msgspec.DecodeError, RecursionError for a text nested too deep."""
    with _READING:
        return msgspec.json.decode(text, type=kind)


class LearnedRelease(Struct, frozen=True, forbid_unknown_fields=True):
    """The rows of one build: what it calls itself, the identity of its tools, the release it is nearest to.

    `probes` is how many programs were run. `assumed` are parts that could not be learned, each with the
    reason: they are as in the nearest release. `refused` says what is known and cannot be followed.
    """

    version: str
    major: int
    nearest: int
    identity: str
    rows: tuple[learned_row.LearnedRow, ...] = ()
    assumed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    probes: int = 0

    @property
    def text(self) -> str:
        """Return it as JSON on one line; equal rows give equal text."""
        return msgspec.json.encode(self, order="deterministic").decode()

    @property
    def row_text(self) -> str:
        """Return the rows alone as JSON: what results depend on."""
        return msgspec.json.encode(self.rows, order="deterministic").decode()

    @property
    def assumption(self) -> str:
        """Return what was not learned but taken from the nearest release."""
        lists = {learned_row.list_of(row) for row in self.rows}
        missing = (text for name, text in _NOT_ALWAYS.items() if name not in lists)
        parts = "; ".join((*missing, *self.assumed))
        return f"assumed of LLVM {self.version} as of LLVM {self.nearest}: {parts}" if parts else ""

    def rows_of(self, table: str) -> tuple[learned_row.LearnedRow, ...]:
        """Return the rows of one table."""
        return tuple(
            row for row in self.rows if learned_row.list_of(row).partition(".")[0] == table
        )

    def with_more(self, other: LearnedRelease) -> LearnedRelease:
        """Return the rows of both; where both have a list, the other's counts."""
        rows = {learned_row.list_of(row): row for row in (*self.rows, *other.rows)}
        assumed = tuple(dict.fromkeys((*self.assumed, *other.assumed)))
        refused = tuple(dict.fromkeys((*self.refused, *other.refused)))
        ordered = tuple(rows[name] for name in sorted(rows))
        probes = self.probes + other.probes
        return replace(self, rows=ordered, assumed=assumed, refused=refused, probes=probes)


def parse_learned(text: str | bytes, location: str) -> LearnedRelease:
    """Return what LearnedRelease.text wrote. Raises VerificationError for anything else."""
    hint = "write it again with 'mlir-offload learn --json'"
    if len(text) > _LARGEST:
        msg = f"learned rows of {len(text)} bytes: more than {_LARGEST}"
        raise VerificationError(msg, hint=hint, location=location)
    try:
        release = decoded(text, LearnedRelease)
    except (msgspec.DecodeError, RecursionError) as error:
        msg = f"not rows of an LLVM release: {error}"
        raise VerificationError(msg, hint=hint, location=location) from error
    if not 0 < release.major < _NEWEST:
        msg = f"not rows of an LLVM release: its number is {release.major}"
        raise VerificationError(msg, hint=hint, location=location)
    return release


_KNOWN: dict[int, LearnedRelease] = {}
_FORGET: list[Callable[[], None]] = []


def table_cache(function: Callable[P, T]) -> Callable[P, T]:
    """Remember what a function takes from tables, until more rows are learned."""
    cached = functools.cache(function)
    _FORGET.append(cached.cache_clear)

    @functools.wraps(function)
    def remembered(*arguments: P.args, **named: P.kwargs) -> T:
        return cached(*arguments, **named)  # type: ignore[arg-type]  # what is not a key fails there

    return remembered


def learn_release(release: LearnedRelease) -> None:
    """Let the tables have these rows from now on.

    Raises CompatibilityError where another build of that number is in use and its rows differ.
    """
    known = _KNOWN.get(release.major)
    if known is not None and known.identity != release.identity:
        check_equal(known, release)
    merged = known.with_more(release) if known is not None else release
    if known is None or (merged.rows, merged.refused) != (known.rows, known.refused):
        _KNOWN[release.major] = merged
        for forget in _FORGET:
            forget()


@contextlib.contextmanager
def for_now(release: LearnedRelease) -> Iterator[None]:
    """Let the tables have these rows too until the block ends, and forget all that is learned in it."""
    known = dict(_KNOWN)
    learn_release(release)
    try:
        yield
    finally:
        _KNOWN.clear()
        _KNOWN.update(known)
        for forget in _FORGET:
            forget()


def check_equal(one: LearnedRelease, other: LearnedRelease, where: str = "") -> None:
    """Raise CompatibilityError where a list that both have learned differs."""
    own = {learned_row.list_of(row): row for row in one.rows}
    for row in other.rows:
        name = learned_row.list_of(row)
        if name in own and own[name] != row:
            msg = f"two builds call themselves LLVM {one.version} and differ in {name}"
            hint = "compile again with the build that links"
            raise CompatibilityError(msg, hint=hint, location=where)


def known_release(major: int) -> LearnedRelease | None:
    """Return what was learned of a release in this process."""
    return _KNOWN.get(major)


def learned_releases() -> tuple[LearnedRelease, ...]:
    """Return all that was learned in this process, the oldest release first."""
    return tuple(_KNOWN[major] for major in sorted(_KNOWN))


def forget_learned() -> None:
    """Let the tables be as they are shipped."""
    _KNOWN.clear()
    for forget in _FORGET:
        forget()


def with_learned(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with the rows that were learned, each for its release alone."""
    whole = dict(table)
    for release in learned_releases():
        for row in release.rows_of(name):
            keys = learned_row.list_of(row).split(".")[1:]
            whole = _with_row(whole, keys, release, msgspec.to_builtins(row))
    return whole


def _with_row(
    table: Mapping[str, Any], keys: list[str], release: LearnedRelease, row: dict[str, Any]
) -> dict[str, Any]:
    first, *rest = keys
    if rest:
        return {**table, first: _with_row(table[first], rest, release, row)}
    del row["list"]
    major = release.major
    evidence = {"since": major, "checked": [major], "source": SOURCE}
    rows = list(table.get(first, ()))
    older = [known for known in rows if known["since"] < major]
    newer = [known for known in rows if known["since"] > major]
    # What was learned of one build says nothing of the release behind it.
    as_before = [known for known in rows if known["since"] <= major][-1:]
    if not newer or newer[0]["since"] > major + 1:
        newer = [*({**known, "since": major + 1} for known in as_before), *newer]
    return {**table, first: [*older, {**row, **evidence}, *newer]}
