"""Tables and JSON as values: the YAML tables of the package, and plain data converted to Struct types."""

from __future__ import annotations

import contextlib
import importlib.util
import marshal
import os
import sys
import threading
from pathlib import Path
from typing import Any, TypeVar

import msgspec


def load_table(package: str, name: str) -> dict[str, Any]:
    """Read `data/<name>.yaml` of the package (`mlir_offload.toolchain`, for example).

    Raises ValueError where the file is not a mapping: the table itself is wrong, which is a bug.
    """
    # The packages lie side by side, as folders in a checkout too. importlib.resources would cost
    # each start of the compiler 9 ms.
    folder = Path(__file__).parent.parent / package.rpartition(".")[2]
    table = _load(folder / "data" / f"{name}.yaml")
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


T = TypeVar("T")

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
