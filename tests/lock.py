"""Write tests/requirements.txt: what the tests install, each file by its hash.

usage: python tests/lock.py     with the Python that the file is for, see its first line

The index of packages is the one that pip is configured with; its address is not written.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "tests" / "requirements.txt"
OWN = "mlir-offload"


def main() -> None:
    """Ask pip what it would install, and write names, versions and hashes."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = ("install", "--dry-run", "--ignore-installed", "--quiet", "--report", str(report))
        project = f"{ROOT}[cuda,dev]"
        subprocess.run([sys.executable, "-m", "pip", *words, "--editable", project], check=True)
        items = json.loads(report.read_text(encoding="utf-8"))["install"]
    rows = sorted(_row(item) for item in items if item["metadata"]["name"] != OWN)
    machine = f"# Python {sys.version_info[0]}.{sys.version_info[1]}, {platform.machine()}"
    LOCK.write_text(
        "\n".join((f"{machine}; made by tests/lock.py", *rows)) + "\n", encoding="utf-8"
    )


def _row(item: dict[str, Any]) -> str:
    hashes = item["download_info"]["archive_info"]["hashes"]
    name = item["metadata"]["name"].lower().replace("_", "-").replace(".", "-")
    return f"{name}=={item['metadata']['version']} --hash=sha256:{hashes['sha256']}"


if __name__ == "__main__":
    main()
