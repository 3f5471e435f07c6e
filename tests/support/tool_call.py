"""Calls of tools that may fail."""

from __future__ import annotations

import re
import subprocess

_TIMEOUT_SECONDS = 600


def call(*argv: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a tool and return its result and output."""
    return subprocess.run(
        argv,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )


def first_error(text: str) -> str:
    """Return the line with the reason of a tool's failure, without names of directories."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = [line for line in lines if re.search(r"error|fatal|Cannot|UNREACHABLE", line)]
    return re.sub(r"\S*/", "", (found or lines or ["crash"])[0])[:120]
