"""Run `mlir-offload inspect` and validate its output against the schema."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "driver" / "data" / "inspect.schema.json").read_text())
LLVM = Path("/usr/lib/llvm-22/bin")


@dataclass(frozen=True)
class Said:
    status: int
    out: str
    err: str


def inspect(command: list[str], *arguments: str | Path, **environment: str) -> Said:
    done = subprocess.run(
        [*command, "inspect", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, **environment},
    )
    assert "Traceback" not in done.stderr
    return Said(done.returncode, done.stdout, done.stderr)


def documents(command: list[str], *files: Path) -> list[dict[str, Any]]:
    """Return the output of --json for the files, validated against the schema."""
    document = json.loads(inspect(command, "--json", *files).out)
    jsonschema.validate(document, SCHEMA, cls=jsonschema.Draft202012Validator)
    files_said: list[dict[str, Any]] = document["files"]
    return files_said
