"""A real browser for the pages that mlir-offload writes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
# Options that disable the browser's own network access, so that only the page is loaded.
_QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--disable-quic",
    "--disable-default-apps", "--disable-extensions", "--hide-scrollbars", "--enable-logging=stderr",
    "--virtual-time-budget=4000", "--run-all-compositor-stages-before-draw",
)  # fmt: skip
needs_browser = pytest.mark.skipif(_CHROMIUM is None, reason="chromium is not installed")


def browse(text: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Open a page; return the finished browser process with its output."""
    source = folder / "page.html"
    source.write_text(text, encoding="utf-8")
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [str(_CHROMIUM), *_QUIET, profile, *options, source.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)


def console(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the console messages of the page and of its content security policy."""
    return [line for line in done.stderr.splitlines() if "CONSOLE" in line]
