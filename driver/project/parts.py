"""Store the parts of a split program in two files: one for the host, one for the devices.

They are separate files, so that a change of host code does not change the second one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from mlir_offload.driver.step.split_file import INTERFACE_FILE
from mlir_offload.driver.system.workspace import make_directory, open_output
from mlir_offload.toolchain.byte_view import open_view, write_all
from mlir_offload.translate.kernel import hermetic_text

_INDEX = "split.json"
_HOST = "host.mlir"
_PART = re.compile(r"split\.json|interface\.json|host\.mlir|device[0-9]+(?:\.[a-z]+[0-9]+)?\.mlir")
_LONGEST_BYTES = 1 << 30


def pack_host(directory: Path, output: Path, *, keeps_locations: bool) -> None:
    """Write the host's part of a split; locations are kept or removed as in `pack_device`."""
    host = hermetic_text(_read(directory / _HOST), keeps_locations=keeps_locations)
    parts = {_INDEX: _read(directory / _INDEX), _HOST: host}
    if json.loads(parts[_INDEX])["has_interface"]:
        parts[INTERFACE_FILE] = _read(directory / INTERFACE_FILE)
    _pack(parts, output)


def pack_device(directory: Path, output: Path, *, keeps_locations: bool) -> None:
    """Write the devices' part of a split, unless the file already has this content.

    Source locations are removed unless `keeps_locations`.
    """
    index = json.loads(_read(directory / _INDEX))
    texts = {
        file: hermetic_text(_read(directory / file), keeps_locations=keeps_locations)
        for row in index["modules"]
        for file in (row["file"], *row["others"].values())
    }
    # These two fields depend on host code only.
    own = {**index, "uses_async": False, "has_interface": False}
    parts = {_INDEX: json.dumps(own), **texts}
    if not output.is_file() or output.read_bytes() != _encoded(parts):
        _pack(parts, output)


def unpack_parts(files: Iterable[Path], directory: Path) -> None:
    """Write the parts to a directory; parts of later files replace those of earlier ones.

    Raises VerificationError for a file that `pack_host` and `pack_device` did not write.
    """
    make_directory(directory)
    for file in files:
        for name, text in _load(file).items():
            path = directory / name
            path.write_text(text, encoding="utf-8", errors="surrogateescape")


def _load(file: Path) -> dict[str, str]:
    with open_view(file) as view:
        if view.size > _LONGEST_BYTES:
            raise view.malformed(0, "size", f"{view.size} bytes are not a split program")
        try:
            parts = json.loads(view.whole().decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError) as error:
            raise view.malformed(0, "parts", "no split program") from error
        if not isinstance(parts, dict) or not all(
            _PART.fullmatch(name) and isinstance(text, str) for name, text in parts.items()
        ):
            raise view.malformed(0, "parts", "no split program")
        return parts


def _pack(parts: dict[str, str], output: Path) -> None:
    with open_output(output) as descriptor:
        write_all(_encoded(parts), descriptor)


def _encoded(parts: dict[str, str]) -> bytes:
    return (json.dumps(parts, indent=0) + "\n").encode()


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")
