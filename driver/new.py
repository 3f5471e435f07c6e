"""Write a small project to start from: a kernel, callers in C and Python, and files for each build system."""

from __future__ import annotations

import errno
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from mlir_offload.driver.message.escape import shown
from mlir_offload.driver.option.click_command import PATH, command
from mlir_offload.toolchain.errors import InputOutputError

_TEMPLATES = Path(__file__).parent / "data" / "new"
_NAME = "@NAME@"
# Files that would take effect in this repository if the template had their final name.
_PLACES = {"ci.yml": Path(".github", "workflows", "ci.yml"), "gitignore": Path(".gitignore")}
_OTHER_CHARACTERS = re.compile(r"[^A-Za-z0-9_]+")


@command("new", click.Argument(["directory"], type=PATH))
def new(directory: Path) -> int:
    """Write a small project that builds immediately.

    DIRECTORY must not exist, or be empty.
    """
    name = _OTHER_CHARACTERS.sub("_", directory.absolute().name).strip("_") or "app"
    try:
        files = _write(directory, name)
    except OSError as error:
        msg = f"cannot write a project here: {error.strerror}"
        hint = "name a directory that does not exist, or that is empty"
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            hint = "name a directory in one that can be written"
        raise InputOutputError(msg, hint=hint, location=str(directory)) from error
    for file in files:
        sys.stdout.write(f"{shown(str(directory / file))}\n")
    sys.stdout.write(f"Try: cd {shown(str(directory))} && make && ./{name}\n")
    return 0


def _write(directory: Path, name: str) -> list[Path]:
    """Write all files or none; return their paths relative to the directory."""
    absolute = directory.absolute()
    absolute.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=absolute.parent, prefix=".mlir-offload-") as beside:
        made = Path(beside, "project")
        made.mkdir()
        files = sorted(_fill(made, name))
        made.replace(absolute)
    return files


def _fill(directory: Path, name: str) -> Iterator[Path]:
    # Subdirectories are skipped: pip compiles run.py into `__pycache__` when it installs it.
    for template in filter(Path.is_file, _TEMPLATES.iterdir()):
        place = _PLACES.get(template.name, Path(template.name))
        text = template.read_text(encoding="utf-8")
        (directory / place).parent.mkdir(parents=True, exist_ok=True)
        (directory / place).write_text(text.replace(_NAME, name), encoding="utf-8")
        yield place
