"""Programs that must succeed, and the files that they read."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def run_checked(*argv: object, **environment: str) -> str:
    """Run a program with variables added to the environment; return what it prints on stdout."""
    words = [str(word) for word in argv]
    variables = {**os.environ, **environment}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def written(path: Path, text: str) -> Path:
    """Write a file and return its path."""
    path.write_text(text, encoding="utf-8")
    return path
