"""The result of a split on disk: what the steps after it need to know."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlir_offload.toolchain.target import Kind
from mlir_offload.translate.device_form import DeviceForm
from mlir_offload.translate.gpu_module import GpuModule, Kernel
from mlir_offload.translate.split import SplitProgram
from mlir_offload.translate.target_attribute import TargetAttribute

INTERFACE_FILE = "interface.json"
_INDEX = "split.json"


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """A device module and the files that hold its text for mlir-opt, in one form and in others."""

    path: Path
    module: GpuModule
    others: tuple[tuple[str, Path], ...] = ()

    def text_for(self, form: DeviceForm) -> Path:
        """Return the file with the text in a form."""
        return dict(self.others).get(form.name, self.path)


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """The host module and the device modules of one program, and the kernels it only declares.

    `interface` holds the functions for callers in C and Python, where there are any.
    """

    host: Path
    uses_async: bool
    modules: tuple[ModuleFile, ...]
    declared: tuple[str, ...] = ()
    interface: Path | None = None


def write_split(program: SplitProgram, directory: Path) -> None:
    """Write the host text, one file per device module, and the index of them."""
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / "host.mlir", program.host_text)
    rows = [
        _write_module(module, number, directory) for number, module in enumerate(program.modules)
    ]
    index = {
        "uses_async": program.uses_async,
        "modules": rows,
        "declared": list(program.declared),
        "has_interface": bool(program.interface),
    }
    if program.interface:
        _write(directory / INTERFACE_FILE, program.interface)
    _write(directory / _INDEX, json.dumps(index, indent=1))


def load_split_files(directory: Path) -> SplitFiles:
    """Read what `write_split` wrote."""
    index = json.loads((directory / _INDEX).read_text(encoding="utf-8"))
    modules = tuple(_read_module(row, directory) for row in index["modules"])
    return SplitFiles(
        directory / "host.mlir",
        bool(index["uses_async"]),
        modules,
        tuple(index["declared"]),
        directory / INTERFACE_FILE if index["has_interface"] else None,
    )


def _write_module(module: GpuModule, number: int, directory: Path) -> dict[str, Any]:
    # A module's name may hold any character: the file is named by its number.
    file = f"device{number}.mlir"
    _write(directory / file, module.text)
    others = {name: f"device{number}.{name}.mlir" for name, _ in module.texts}
    for name, text in module.texts:
        _write(directory / others[name], text)
    return {
        "file": file,
        "others": others,
        "name": module.name,
        "kernels": [{"name": kernel.name, "symbol": kernel.symbol} for kernel in module.kernels],
        "needs": sorted(module.needs),
        "targets": [asdict(target) for target in module.targets],
    }


def _read_module(row: dict[str, Any], directory: Path) -> ModuleFile:
    path = directory / row["file"]
    kernels = tuple(Kernel(kernel["name"], kernel["symbol"]) for kernel in row["kernels"])
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    others = tuple((name, directory / file) for name, file in row["others"].items())
    targets = tuple(map(_read_target, row["targets"]))
    module = GpuModule(row["name"], kernels, text, frozenset(row["needs"]), targets=targets)
    return ModuleFile(path, module, others)


def _read_target(row: dict[str, Any]) -> TargetAttribute:
    lists = {"link": tuple(row["link"]), "flags": tuple(row["flags"])}
    return TargetAttribute(**{**row, "kind": Kind(row["kind"]), **lists})


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
