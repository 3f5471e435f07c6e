"""The driver as a wheel installs it, in an environment of its own."""

from __future__ import annotations

import os
import shutil
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def install(work: Path) -> Path:
    """Lay the packages as a wheel does and return Python: an editable install starts 15 ms later."""
    # Users have compiled modules; a shell that forbids writing them would be measured instead.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.pop("PYTHONPATH", None)
    environment = work / "environment"
    venv.create(environment, symlinks=True)
    own = {"base": str(environment), "platbase": str(environment)}
    site = Path(sysconfig.get_path("purelib", vars=own))
    for package in (ROOT / ".importroot" / "mlir_offload").iterdir():
        copy = shutil.copytree if package.is_dir() else shutil.copy
        copy(package, site / "mlir_offload" / package.name)
    (site / "required.pth").write_text(sysconfig.get_path("purelib"))
    return environment / "bin" / "python"
