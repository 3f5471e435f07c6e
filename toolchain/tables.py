"""Read the YAML tables of the package, add rows learned from tools, and convert plain data to Struct types.

Rows are learned from the tools of LLVM builds that the tables do not contain. A process uses one build of each
major release, because the tables distinguish builds only by this number.
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
from typing import Any, ParamSpec, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.toolchain import learned_row
from mlir_offload.toolchain.errors import CompatibilityError, VerificationError

T = TypeVar("T")
P = ParamSpec("P")

SOURCE = "learned from its tools"
LEARNED = "MLIR_OFFLOAD_LEARNED"
"""The environment variable with learned rows as JSON, or with the name of a JSON file."""
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
    """Read `data/<name>.yaml` of a package, such as `mlir_offload.toolchain`.

    Raises ValueError if the file is not a mapping, which is a bug.
    """
    # The packages are sibling directories, also in a checkout. Importing importlib.resources takes
    # 9 ms.
    packages = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 (for each of nine tables)
    table = _load(Path(f"{packages}/{package.rpartition('.')[2]}/data/{name}.yaml"))
    if not isinstance(table, dict):
        msg = f"{package}: data/{name}.yaml is not a mapping"
        raise ValueError(msg)  # noqa: TRY004 (a wrong table, not a wrong argument)
    return table


def _load(file: Path) -> object:
    """Read a YAML file, or the cached result.

    Importing the YAML reader takes 20 ms. Like Python's bytecode, the result is cached in
    `__pycache__`. It is valid while the modification time and the size of the file are the same.
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
    return yaml.load(text, Loader=loader)  # noqa: S506 (a safe loader, in C if there is one)


def _replace(file: Path, content: bytes) -> None:
    """Write a file atomically, because other processes may read it."""
    file.parent.mkdir(exist_ok=True)
    beside = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)


# For the first value of a type msgspec 0.22 evaluates the annotations, which runs Python code, and stores the
# incomplete type before that. If a second thread uses the type then, it crashes with a segmentation fault.
_READING = threading.Lock()


def converted(value: object, kind: type[T]) -> T:
    """Convert plain data to the type, without coercion. Raises msgspec.ValidationError."""
    with _READING:
        return msgspec.convert(value, kind, strict=True)


def decoded(text: str | bytes, kind: type[T]) -> T:
    """Decode JSON to the type. Raises msgspec.DecodeError, or RecursionError if it is nested too deeply."""
    with _READING:
        return msgspec.json.decode(text, type=kind)


class LearnedRelease(Struct, frozen=True, forbid_unknown_fields=True):
    """The rows of one build, with its version, the identity of its tools, and the nearest known release.

    `probes` is the number of programs that were run. `assumed` are the parts that could not be learned
    and are taken from the nearest release, with the reasons. `refused` are differences that the driver
    does not support.
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
        """Return the release as JSON on one line; equal rows have equal text."""
        return msgspec.json.encode(self, order="deterministic").decode()

    @property
    def row_text(self) -> str:
        """Return only the rows as JSON. Results depend on nothing else."""
        return msgspec.json.encode(self.rows, order="deterministic").decode()

    @property
    def assumption(self) -> str:
        """Return a message about the parts that are taken from the nearest release."""
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
        """Return the rows of both releases; for a list that both have, `other` takes precedence."""
        rows = {learned_row.list_of(row): row for row in (*self.rows, *other.rows)}
        assumed = tuple(dict.fromkeys((*self.assumed, *other.assumed)))
        refused = tuple(dict.fromkeys((*self.refused, *other.refused)))
        ordered = tuple(rows[name] for name in sorted(rows))
        probes = self.probes + other.probes
        return replace(self, rows=ordered, assumed=assumed, refused=refused, probes=probes)


def parse_learned(text: str | bytes, location: str) -> LearnedRelease:
    """Parse the output of LearnedRelease.text. Raises VerificationError if it is invalid."""
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
    """Cache the results of a function that reads tables, until more rows are learned."""
    cached = functools.cache(function)
    _FORGET.append(cached.cache_clear)
    return cast("Callable[P, T]", cached)


def learn_release(release: LearnedRelease) -> None:
    """Add the rows to the tables of this process.

    Raises CompatibilityError if another build of the same major release is in use and its rows differ.
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
    """Add the rows to the tables until the end of the block. Rows learned in the block are removed too."""
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
    """Raise CompatibilityError if a list that both have differs."""
    own = {learned_row.list_of(row): row for row in one.rows}
    for row in other.rows:
        name = learned_row.list_of(row)
        if name in own and own[name] != row:
            msg = f"two builds call themselves LLVM {one.version} and differ in {name}"
            hint = "compile again with the build that links"
            raise CompatibilityError(msg, hint=hint, location=where)


def known_release(major: int) -> LearnedRelease | None:
    """Return the learned rows of a major release in this process, None if there are none."""
    return _KNOWN.get(major)


def learned_releases() -> tuple[LearnedRelease, ...]:
    """Return all learned releases of this process, oldest first."""
    return tuple(_KNOWN[major] for major in sorted(_KNOWN))


def forget_learned() -> None:
    """Remove all learned rows from the tables."""
    _KNOWN.clear()
    for forget in _FORGET:
        forget()


def with_learned(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with the learned rows. Each one applies only to its own release."""
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
    # A learned row does not apply to the next release: that one gets a copy of the row before.
    as_before = [known for known in rows if known["since"] <= major][-1:]
    if not newer or newer[0]["since"] > major + 1:
        newer = [*({**known, "since": major + 1} for known in as_before), *newer]
    return {**table, first: [*older, {**row, **evidence}, *newer]}
