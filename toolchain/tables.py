"""Load and validate the YAML tables that ship with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_table(package: str, name: str) -> dict[str, Any]:
    """Read `data/<name>.yaml` of the package (`mlir_offload.toolchain`, for example).

    Raises ValueError where the file is no mapping: the table itself is wrong, which is a bug.
    """
    # The packages lie side by side, as folders in a checkout too. importlib.resources would cost
    # each start of the compiler 9 ms.
    folder = Path(__file__).parent.parent / package.rpartition(".")[2]
    text = (folder / "data" / f"{name}.yaml").read_text(encoding="utf-8")
    table = yaml.load(text, Loader=_LOADER)  # noqa: S506 (a safe loader, in C where there is one)
    if not isinstance(table, dict):
        msg = f"{package}: data/{name}.yaml is not a mapping"
        raise ValueError(msg)  # noqa: TRY004 (a wrong table, not a wrong argument)
    return table
