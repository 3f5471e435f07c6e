"""Search for installations of LLVM, CUDA and ROCm, without starting a program."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from mlir_offload.toolchain import cuda as toolchain_cuda
from mlir_offload.toolchain import rocm as toolchain_rocm
from mlir_offload.toolchain.llvm import LlvmInstallation, inspect_llvm
from mlir_offload.toolchain.pattern import pattern as lazy_pattern
from mlir_offload.toolchain.tool import (
    ToolchainRequest,
    first_request,
    is_program,
    load_llvm_table,
    paths_like,
)

if TYPE_CHECKING:
    from mlir_offload.toolchain.cuda import CudaInstallation
    from mlir_offload.toolchain.rocm import RocmInstallation

_DIGITS = lazy_pattern(r"\d+")
_PATH = "PATH"
_VARIABLES = ("MLIR_OFFLOAD_LLVM", "MLIR_OFFLOAD_FOR_CLANG", "CUDA_PATH", "CUDA_HOME", "ROCM_PATH")

_Found = TypeVar("_Found")
# A directory of programs, the suffix of their names, how it was found, and whether names without the suffix count.
_Candidate = tuple[Path, str, str, bool]


class SearchPlaces(Struct, frozen=True):
    """The inputs of the search: requests, PATH, directories of Python packages, default locations.

    `consumer` is the linking LLVM, if it differs from `llvm`. `root` is the root of the default
    locations; only tests change it.
    """

    llvm: ToolchainRequest | None = None
    cuda: ToolchainRequest | None = None
    rocm: ToolchainRequest | None = None
    path: tuple[Path, ...] = ()
    site_packages: tuple[Path, ...] = ()
    root: Path = Path("/")
    consumer: ToolchainRequest | None = None


def search_places(
    environment: Mapping[str, str],
    python_path: Sequence[str],
    *,
    llvm: str = "",
    for_clang: str = "",
    cuda_path: str = "",
    rocm_path: str = "",
) -> SearchPlaces:
    """Return the inputs of the search from the options, then from the environment.

    `python_path` is `sys.path`, whose directories may contain NVIDIA's wheels.
    """
    variable = {name: (name, environment.get(name, "")) for name in _VARIABLES}
    return SearchPlaces(
        llvm=first_request(("--llvm", llvm), variable["MLIR_OFFLOAD_LLVM"]),
        cuda=first_request(
            ("--cuda-path", cuda_path), variable["CUDA_PATH"], variable["CUDA_HOME"]
        ),
        rocm=first_request(("--rocm-path", rocm_path), variable["ROCM_PATH"]),
        consumer=first_request(("--for-clang", for_clang), variable["MLIR_OFFLOAD_FOR_CLANG"]),
        path=_program_folders(environment),
        site_packages=tuple(Path(entry) for entry in python_path if entry),
    )


def _program_folders(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the directories of PATH, followed by `bin` of the conda environment."""
    folders = [Path(entry) for entry in environment.get(_PATH, "").split(os.pathsep) if entry]
    conda = environment.get("CONDA_PREFIX", "")
    return tuple(dict.fromkeys([*folders, *([Path(conda) / "bin"] if conda else [])]))


def find_llvm(places: SearchPlaces) -> tuple[LlvmInstallation, ...]:
    """Return the LLVM installations in search order, without starting a program.

    If the request is a path, only that installation is returned.
    """
    if places.llvm is not None and not places.llvm.is_release:
        candidates = _requested_bin_folders(places.llvm)
    else:
        candidates = _usual_bin_folders(places)
    found = {}
    resolved = {}
    for folder, suffix, source, fills_up in candidates:
        if folder not in resolved:
            resolved[folder] = folder.resolve()
        key = (resolved[folder], suffix, fills_up)
        if key not in found:
            found[key] = inspect_llvm(key[0], suffix=suffix, source=source, fills_up=fills_up)
    return tuple(installation for installation in found.values() if installation is not None)


def _requested_bin_folders(request: ToolchainRequest) -> Iterator[_Candidate]:
    """Yield the program directories for a requested prefix, program directory or program."""
    path = request.path
    if path.is_file():
        folder, suffix = _home(path, _anchor_pattern())
        yield folder, suffix, request.source, False
    for folder in (path / "bin", path):
        if folder.is_dir():
            yield folder, "", request.source, False
            yield from _filled_up(folder, request.source)


def _filled_up(folder: Path, source: str) -> Iterator[_Candidate]:
    """Yield the directory for each suffix, if it mixes names such as clang-22 and mlir-opt, as conda does."""
    try:
        names = set(os.listdir(folder))  # noqa: PTH208 (names are enough)
    except OSError:
        return
    plain = names.intersection(load_llvm_table().anchors)
    if len(plain) in {0, len(load_llvm_table().anchors)}:
        return
    matches = (_anchor_pattern().fullmatch(name) for name in sorted(names))
    for suffix in dict.fromkeys(match[2] for match in matches if match and match[2]):
        yield folder, suffix, source, True


def _usual_bin_folders(places: SearchPlaces) -> Iterator[_Candidate]:
    pattern = _anchor_pattern()
    folders: dict[Path, set[Path]] = {}
    for program in _anchors_on_path(places.path, pattern):
        folder, suffix = _home(program, pattern)
        yield folder, suffix, _PATH, False
        if suffix:
            yield from _filled_up(folder, _PATH)
        if not suffix and program.name in load_llvm_table().anchors:
            folders.setdefault(program.parent, set()).add(folder)
    # A Nix profile contains links to one directory per package.
    yield from ((folder, "", _PATH, False) for folder, homes in folders.items() if len(homes) > 1)
    for prefix in expand(places.root, load_llvm_table().places):
        yield prefix / "bin", "", str(prefix), False


def _anchor_pattern() -> re.Pattern[str]:
    names = "|".join(re.escape(name) for name in load_llvm_table().anchors)
    return lazy_pattern(rf"({names})(-\d+)?")


def _anchors_on_path(path: Iterable[Path], pattern: re.Pattern[str]) -> Iterator[Path]:
    """Yield files named like clang or mlir-opt-22. Each directory is resolved and read once."""
    anchors = load_llvm_table().anchors
    for folder in dict.fromkeys(Path(os.path.realpath(entry)) for entry in path):
        try:
            names = os.listdir(folder)  # noqa: PTH208 (names are enough, and /usr/bin has thousands)
        except OSError:
            continue
        alike = sorted(name for name in names if name.startswith(anchors))
        yield from (folder / name for name in alike if pattern.fullmatch(name))


def _home(program: Path, pattern: re.Pattern[str]) -> tuple[Path, str]:
    """Return the directory of a program after resolving links, and the suffix of the programs there.

    `/usr/bin/clang-22` is a link to `/usr/lib/llvm-22/bin`, which has names without a suffix. A link
    to another program, such as ccache, is not resolved.
    """
    real = program.resolve()
    match = pattern.fullmatch(real.name)
    if match is None:
        return program.parent, ""
    plain = real.parent / match.group(1)
    suffix = "" if os.path.realpath(plain) == str(real) else match.group(2) or ""
    return real.parent, suffix


def expand(root: Path, patterns: Iterable[str]) -> Iterator[Path]:
    """Yield the directories below `root` that match the absolute patterns, the highest version first."""
    for pattern in patterns:
        folders = [path for path in paths_like(root, pattern.lstrip("/")) if path.is_dir()]
        yield from sorted(folders, key=lambda path: _numbers(path.name), reverse=True)


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _DIGITS.findall(name))


def find_cuda(places: SearchPlaces) -> tuple[CudaInstallation, ...]:
    """Return the CUDA installations, the preferred one first, without starting a program.

    If one was requested, only that one is returned. The order is PATH, default locations, NVIDIA's
    wheels. An entry of PATH without libdevice is ignored: it is a wrapper of another toolkit.
    """
    found = _inspect_each(
        _cuda_roots(places), lambda root, source: toolchain_cuda.inspect_cuda(root, source=source)
    )
    return tuple(cuda for cuda in found if cuda.source != _PATH or cuda.path("libdevice"))


def _cuda_roots(places: SearchPlaces) -> Iterator[tuple[Path, str]]:
    if places.cuda is not None:
        path = places.cuda.path
        yield (path.parent if path.name == "bin" else path), places.cuda.source
        return

    table = toolchain_cuda.load_cuda_table()
    for folder in places.path:
        if is_program(folder / "ptxas"):
            yield (folder / "ptxas").resolve().parent.parent, _PATH
    for root in expand(places.root, table.places):
        yield root, str(root)
    for folder in places.site_packages:
        for pattern in table.wheel_roots:
            for root in sorted(
                paths_like(folder, pattern), key=lambda p: _numbers(p.name), reverse=True
            ):
                yield root, "Python environment"


def find_rocm(places: SearchPlaces) -> tuple[RocmInstallation, ...]:
    """Return the ROCm installations, the preferred one first; only the requested one, if any."""
    if places.rocm is not None:
        roots = iter([(places.rocm.path, places.rocm.source)])
    else:
        roots = (
            (root, str(root))
            for root in expand(places.root, toolchain_rocm.load_rocm_table().places)
        )
    return _inspect_each(
        roots, lambda root, source: toolchain_rocm.inspect_rocm(root, source=source)
    )


def _inspect_each(
    roots: Iterable[tuple[Path, str]], inspect: Callable[[Path, str], _Found | None]
) -> tuple[_Found, ...]:
    """Inspect every root once, after resolving links."""
    sources: dict[Path, str] = {}
    for root, source in roots:
        sources.setdefault(root.resolve(), source)
    found = (inspect(root, source) for root, source in sources.items())
    return tuple(item for item in found if item is not None)
