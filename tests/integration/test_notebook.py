"""The notebook of the documentation: each cell runs and prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "5-python.ipynb"


def shown(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """Return what each cell of code prints, and the value of its last expression.

    Python 3.13 prints no spaces in the empty lines of its help.
    """
    return [
        [
            (output.get("text") or output["data"]["text/plain"]).replace("    \n", "\n")
            for output in cell.outputs
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.llvm(22)
def test_the_notebook_shows_what_its_cells_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for variable in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    wanted = shown(notebook)
    ran = NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    assert shown(ran) == wanted
    assert any("MlirOffloadRuntimeError" in text for texts in wanted for text in texts)
