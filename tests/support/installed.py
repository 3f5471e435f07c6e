"""The driver as installed from a wheel, in a separate environment."""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
import tomllib
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_NAME = re.compile(r"[\w.-]+")
# Marks requirements for other Python releases or systems, or of an extra.
_CONDITION = ";"


def install(work: Path) -> Path:
    """Install the packages as a wheel does and return Python, because an editable install starts 15 ms later.

    The environment contains only the requirements of the project. For example, msgspec imports
    typing_extensions if it is installed, which takes 9 ms.
    """
    # Installed modules are compiled; without bytecode, compilation would be measured instead.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.pop("PYTHONPATH", None)
    environment = work / "environment"
    venv.create(environment, symlinks=True)
    own = {"base": str(environment), "platbase": str(environment)}
    site = Path(sysconfig.get_path("purelib", vars=own))
    for package in (ROOT / ".importroot" / "mlir_offload").iterdir():
        copy = shutil.copytree if package.is_dir() else shutil.copy
        copy(package, site / "mlir_offload" / package.name)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for required in _required(project["dependencies"]):
        _link(required, site)
    return environment / "bin" / "python"


def _required(requirements: list[str]) -> Iterator[Distribution]:
    """Yield the required distributions, and their requirements."""
    seen: set[str] = set()
    left = list(requirements)
    while left:
        requirement = left.pop()
        name = _NAME.match(requirement)
        if name is None or _CONDITION in requirement or name[0].lower() in seen:
            continue
        seen.add(name[0].lower())
        found = distribution(name[0])
        left += found.requires or []
        yield found


def _link(required: Distribution, site: Path) -> None:
    """Link the files of a distribution into another environment."""
    for name in {file.parts[0] for file in required.files or [] if ".." not in file.parts}:
        place = site / name
        if not place.exists():
            place.symlink_to(Path(str(required.locate_file(name))))
