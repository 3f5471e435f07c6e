"""Find, probe and choose installed CUDA toolkits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.pattern import pattern as lazy_pattern
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.tables import load_table
from mlir_offload.toolchain.tool import (
    ToolchainRequest,
    ToolVersion,
    is_program,
    paths_like,
    probe_version,
)

_VERSION = lazy_pattern(r"\brelease [\d.]+, V")
_NUMBER = lazy_pattern(r"\d+")
_PART_NAMES = frozenset({"ptxas", "nvlink", "fatbinary", "libdevice", "cudart_static", "cudart"})
_EXTRA = "pip install 'mlir-offload[cuda]'"


class PartRow(Struct, frozen=True):
    """The location of a part of a toolkit below its root, and the PyPI wheel that contains it."""

    name: str
    directories: tuple[str, ...]
    names: tuple[str, ...]
    wheel: str
    is_program: bool = False


class CudaTable(Struct, frozen=True):
    """The search paths and file names of CUDA toolkits."""

    places: tuple[str, ...]
    wheel_roots: tuple[str, ...]
    parts: tuple[PartRow, ...]


class CudaInstallation(Struct, frozen=True):
    """The parts of CUDA below one root, found without starting a program."""

    root: Path
    parts: tuple[tuple[str, Path], ...]
    source: str

    def path(self, name: str) -> Path | None:
        """Return the path of a part, None if it is missing."""
        return dict(self.parts).get(name)

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the missing parts that a build requires, including one of the two runtime libraries."""
        names = ("ptxas", "nvlink", "fatbinary", "libdevice")
        absent = [name for name in names if not self.path(name)]
        if not self.path("cudart") and not self.path("cudart_static"):
            absent.append("cudart")
        return tuple(absent)


class UnusableCuda(Struct, frozen=True):
    """An unusable installation, and the reason."""

    installation: CudaInstallation
    reason: str


class CudaToolkit(Struct, frozen=True):
    """A CUDA toolkit. `version` is the version of ptxas; each path is that of an existing file.

    `source` is how it was found: an option, a variable, PATH, a search path or the Python environment.
    """

    root: Path
    version: ToolVersion
    ptxas: Path | None = None
    nvlink: Path | None = None
    fatbinary: Path | None = None
    libdevice: Path | None = None
    cudart_static: Path | None = None
    cudart: Path | None = None
    source: str = ""

    @property
    def installation(self) -> CudaInstallation:
        """Return the locations of its parts, without the version."""
        parts = tuple((name, path) for name in sorted(_PART_NAMES) if (path := getattr(self, name)))
        return CudaInstallation(self.root, parts, self.source)


ProbeCuda = Callable[[CudaInstallation], CudaToolkit | UnusableCuda]


@cache
def load_cuda_table() -> CudaTable:
    """Return the table that ships with the package."""
    return parse_cuda_table(load_table("mlir_offload.toolchain", "cuda"))


def parse_cuda_table(table: Mapping[str, Any]) -> CudaTable:
    """Parse and check the table. Raises ValueError with the reason if it is invalid."""
    parts = tuple(
        PartRow(
            str(row["name"]),
            tuple(row["directories"]),
            tuple(row["names"]),
            str(row["wheel"]),
            bool(row.get("program", False)),
        )
        for row in table["parts"]
    )
    names = [part.name for part in parts]
    if sorted(names) != sorted(_PART_NAMES):
        msg = f"cuda: parts must be {sorted(_PART_NAMES)}, each once, not {names}"
        raise ValueError(msg)
    return CudaTable(tuple(table["places"]), tuple(table["wheel_roots"]), parts)


def inspect_cuda(root: Path, *, source: str = "") -> CudaInstallation | None:
    """Return the parts of CUDA below the root, None if there are none."""
    found = [(part.name, _find_part(root, part)) for part in load_cuda_table().parts]
    parts = tuple((name, path) for name, path in found if path is not None)
    return CudaInstallation(root, parts, source) if parts else None


def _find_part(root: Path, part: PartRow) -> Path | None:
    for directory in part.directories:
        for pattern in part.names:
            paths = [path for path in paths_like(root / directory, pattern) if path.is_file()]
            if paths:
                return max(paths, key=_numbers)
    return None


def _numbers(path: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBER.findall(path.name))


def probe_cuda(runner: Runner, installation: CudaInstallation) -> CudaToolkit | UnusableCuda:
    """Query ptxas for its release. Does not raise if ptxas fails."""
    for part in load_cuda_table().parts:
        path = installation.path(part.name)
        if part.is_program and path is not None and not is_program(path):
            return UnusableCuda(installation, f"{path} is not executable: chmod +x it")
    ptxas = installation.path("ptxas")
    if ptxas is None:
        return UnusableCuda(installation, f"no ptxas in {installation.root}")
    probed = probe_version(runner, ptxas, _VERSION)
    if probed.version is None:
        return UnusableCuda(installation, probed.reason)
    return CudaToolkit(
        root=installation.root,
        version=probed.version,
        source=installation.source,
        **dict(installation.parts),
    )


def choose_cuda(
    found: Sequence[CudaInstallation], request: ToolchainRequest | None, probe: ProbeCuda
) -> CudaToolkit:
    """Return the first toolkit that has every part. An explicit request has no alternatives.

    Raises ToolchainError, with the missing parts and an installation hint, if there is none.
    """
    reasons = []
    for installation in found:
        if missing := installation.missing:
            reasons.append(f"{installation.root} has no {' and no '.join(missing)}")
            continue
        probed = probe(installation)
        if isinstance(probed, CudaToolkit):
            return probed
        reasons.append(probed.reason)
    prefix = f"{request.source}: " if request else ""
    if reasons:
        msg = f"{prefix}no complete CUDA toolkit: {'; '.join(reasons)}"
        raise ToolchainError(msg, hint=_install_hint(found))
    msg = f"{prefix}no CUDA toolkit {'there' if request else 'found'}"
    raise ToolchainError(msg, hint=f"{_EXTRA}, or name one with --cuda-path=")


def _install_hint(found: Sequence[CudaInstallation]) -> str:
    missing = {name for installation in found for name in installation.missing}
    wheels = dict.fromkeys(part.wheel for part in load_cuda_table().parts if part.name in missing)
    if not wheels:
        return f"repair that installation, or: {_EXTRA}"
    return f"{_EXTRA} brings all ({', '.join(wheels)})"


def cuda_probe(runner: Runner) -> ProbeCuda:
    """Return a probe that runs the real programs."""
    return partial(probe_cuda, runner)
