"""Installed parts of ROCm: the device libraries (ocml, ockl, oclc_*) and the HIP runtime."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.amdgpu import (
    load_code_objects,
    oldest_code_object,
    processor_of,
    wavefront_size,
)
from mlir_offload.toolchain.errors import CompatibilityError, ToolchainError
from mlir_offload.toolchain.tables import load_table
from mlir_offload.toolchain.tool import ToolchainRequest, ToolVersion, parse_version, paths_like

_ABI = re.compile(r"oclc_abi_version_(\d+)")
_DIGITS = re.compile(r"\d+")


class RocmTable(Struct, frozen=True):
    """The search paths and file names of ROCm.

    `controls` are the libraries with one constant each, and whether the library is optional.
    """

    places: tuple[str, ...]
    directories: tuple[str, ...]
    endings: tuple[str, ...]
    libraries: tuple[str, ...]
    package: str
    controls: tuple[tuple[str, bool], ...]
    abi_version: str
    abi_without_library: int
    isa_version: str
    common_code_object: int
    runtime_directories: tuple[str, ...]
    runtime_names: tuple[str, ...]
    runtime_package: str


class RocmInstallation(Struct, frozen=True):
    """The parts of ROCm below one root: the directory `bitcode` of device libraries, the HIP runtime, or both.

    `abi_versions` are the code object versions with an oclc_abi_version file, times 100 as in its
    name. `version` is that of ROCm, None if the installation does not record it.
    """

    root: Path
    bitcode: Path | None
    abi_versions: tuple[int, ...]
    version: ToolVersion | None
    source: str
    runtime: Path | None = None


class DeviceMath(Struct, frozen=True):
    """Floating-point options of the device libraries."""

    flushes_denormals: bool = False
    finite_only: bool = False
    unsafe: bool = False
    rounds_sqrt_correctly: bool = True


@cache
def load_rocm_table() -> RocmTable:
    """Return the table that ships with the package."""
    return parse_rocm_table(load_table("mlir_offload.toolchain", "rocm"))


def parse_rocm_table(table: Mapping[str, Any]) -> RocmTable:
    """Parse and check the table. Raises ValueError with the reason if it is invalid."""
    for key in ("places", "directories", "endings", "libraries"):
        if not isinstance(table.get(key), list) or not table[key]:
            msg = f"rocm: {key} must be a list that is not empty"
            raise ValueError(msg)
    runtime = table["runtime"]
    return RocmTable(
        places=tuple(table["places"]),
        directories=tuple(table["directories"]),
        endings=tuple(table["endings"]),
        libraries=tuple(table["libraries"]),
        package=str(table["package"]),
        controls=tuple((name, bool(row["optional"])) for name, row in table["controls"].items()),
        abi_version=str(table["abi_version"]),
        abi_without_library=int(table["abi_without_library"]),
        isa_version=str(table["isa_version"]),
        common_code_object=int(table["common_code_object"]),
        runtime_directories=tuple(runtime["directories"]),
        runtime_names=tuple(runtime["names"]),
        runtime_package=str(runtime["package"]),
    )


def inspect_rocm(root: Path, *, source: str = "") -> RocmInstallation | None:
    """Return the parts of ROCm below the root, None if there are none."""
    bitcode, runtime = _find_bitcode(root), _find_runtime(root)
    if bitcode is None and runtime is None:
        return None
    versions = _abi_versions(bitcode) if bitcode else ()
    return RocmInstallation(root, bitcode, versions, _read_version(root), source, runtime)


def _find_bitcode(root: Path) -> Path | None:
    table = load_rocm_table()
    for pattern in table.directories:
        for folder in sorted(paths_like(root, pattern), reverse=True):
            if all(_library(folder, name) for name in table.libraries):
                return folder
    return None


def _find_runtime(root: Path) -> Path | None:
    table = load_rocm_table()
    for pattern in table.runtime_names:
        for directory in table.runtime_directories:
            found = [path for path in paths_like(root / directory, pattern) if path.is_file()]
            if found:
                return max(found, key=lambda path: [int(n) for n in _DIGITS.findall(path.name)])
    return None


def _library(bitcode: Path, name: str) -> Path | None:
    files = (bitcode / f"{name}{ending}" for ending in load_rocm_table().endings)
    return next((file for file in files if file.is_file()), None)


def _abi_versions(bitcode: Path) -> tuple[int, ...]:
    matches = [_ABI.match(path.name) for path in bitcode.iterdir()]
    return tuple(sorted({int(match.group(1)) for match in matches if match}))


def _read_version(root: Path) -> ToolVersion | None:
    """Return the version in `.info/version`, None if the file does not exist."""
    try:
        return parse_version(
            (root / ".info" / "version").read_text(encoding="utf-8", errors="replace")
        )
    except OSError:
        return None


def choose_rocm(
    found: Sequence[RocmInstallation], request: ToolchainRequest | None
) -> RocmInstallation:
    """Return the first installation. Raises ToolchainError if there is none."""
    if found:
        return found[0]
    where = (
        f"{request.source}: no ROCm device libraries there"
        if request
        else "no ROCm device libraries found"
    )
    hint = f"apt install {load_rocm_table().package}, or name a ROCm folder with --rocm-path="
    raise ToolchainError(where, hint=hint)


def choose_code_object(
    llvm_major: int, rocm: RocmInstallation | None, target_id: str, wanted: int = 0
) -> int:
    """Return the newest code object version that LLVM writes and the device libraries support.

    Without device libraries, it is clang's default. Raises CompatibilityError if they have no version
    in common, if it is too old for the GPU, or if they do not support the version `wanted`.
    """
    common = _common_versions(llvm_major, rocm)
    if wanted and wanted not in common:
        where = f" with the device libraries in {rocm.bitcode}" if rocm and rocm.bitcode else ""
        msg = f"code object version {wanted}: LLVM {llvm_major}{where} makes {_listed(common)}"
        raise CompatibilityError(msg, hint="leave the version out, or choose one of those")
    chosen = wanted or common[-1]
    oldest = oldest_code_object(target_id)
    if chosen >= oldest:
        return chosen
    where = f"in {rocm.bitcode} " if rocm and rocm.bitcode else ""
    msg = (
        f"--offload-arch={target_id} needs code object version {oldest}: LLVM {llvm_major} with the "
        f"ROCm device libraries {where}makes version {chosen}"
    )
    raise CompatibilityError(msg, hint="name the GPU itself, or install ROCm 6.3 or newer")


def _common_versions(llvm_major: int, rocm: RocmInstallation | None) -> Sequence[int]:
    written = load_code_objects(llvm_major).versions
    if rocm is None or rocm.bitcode is None:
        return written
    supported = [number // 100 for number in rocm.abi_versions] or [
        load_rocm_table().abi_without_library
    ]
    common = [version for version in written if version in supported]
    if common:
        return common
    msg = (
        f"the ROCm device libraries in {rocm.bitcode} are for code object version "
        f"{_listed(supported)}, LLVM {llvm_major} writes {_listed(written)}"
    )
    raise CompatibilityError(msg, hint="install another release of ROCm, or take another LLVM")


def common_code_object(llvm_major: int) -> int:
    """Return a code object version that this LLVM and newer ones write, and ROCm 5 and newer support."""
    written = load_code_objects(llvm_major).versions
    return min(written[-1], load_rocm_table().common_code_object)


def device_libraries(
    rocm: RocmInstallation, target_id: str, code_object: int, math: DeviceMath
) -> tuple[Path, ...]:
    """Return the device libraries for a GPU, in link order.

    If the installation is older than the GPU, the library for the processor (oclc_isa_version) is
    omitted; few functions use it. Raises ToolchainError if another library is missing.
    """
    wanted = _wanted_libraries(target_id, code_object, math, has_abi=bool(rocm.abi_versions))
    found = [_required(rocm, name, is_optional=is_optional) for name, is_optional in wanted]
    return tuple(path for path in found if path is not None)


def device_library_names(target_id: str, code_object: int, math: DeviceMath) -> tuple[str, ...]:
    """Return the names of these libraries in ROCm 5 and 6, without the file extensions."""
    return tuple(name for name, _ in _wanted_libraries(target_id, code_object, math, has_abi=True))


def _wanted_libraries(
    target_id: str, code_object: int, math: DeviceMath, *, has_abi: bool
) -> list[tuple[str, bool]]:
    """Return the names of the libraries, and whether each one is optional."""
    table = load_rocm_table()
    settings = {
        "wavefrontsize64": wavefront_size(target_id) == 64,  # noqa: PLR2004 (in its name)
        "daz_opt": math.flushes_denormals,
        "finite_only": math.finite_only,
        "unsafe_math": math.unsafe,
        "correctly_rounded_sqrt": math.rounds_sqrt_correctly,
    }
    abi = table.abi_version.format(version=100 * code_object)
    isa = table.isa_version.format(processor=processor_of(target_id).removeprefix("gfx"))
    return [
        *((name, False) for name in table.libraries),
        *(
            (f"oclc_{name}_{'on' if settings[name] else 'off'}", is_optional)
            for name, is_optional in table.controls
        ),
        (abi, not has_abi),
        (isa, True),
    ]


def _required(rocm: RocmInstallation, name: str, *, is_optional: bool) -> Path | None:
    path = _library(rocm.bitcode, name) if rocm.bitcode else None
    if path is None and not is_optional:
        msg = f"there is no {name}.bc in the ROCm device libraries in {rocm.bitcode or rocm.root}"
        hint = f"apt install --reinstall {load_rocm_table().package}, or give --rocm-path="
        raise ToolchainError(msg, hint=hint)
    return path


def _listed(versions: Sequence[int]) -> str:
    return " and ".join(map(str, versions))
