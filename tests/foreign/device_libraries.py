"""Pass libdevice of several CUDA releases and ROCm's device libraries to each reader, and compare with the checker.

usage: python tests/foreign/device_libraries.py [--releases=15,...,22] [--root=N=DIR] [--amdgcn=NAME=DIR] [--write]

libdevice comes from NVIDIA's wheels on PyPI, libraries of ROCm from Triton's. --amdgcn names directories of
ROCm libraries (`*.bc`); the installed ones are always tested. A library is compatible if the reader accepts
it and supports its intrinsics, if its backend compiles libdevice, and if it generates the code object version
of an oclc_abi_version library; the checker must report the same. The table is written to
docs/design/device-libraries.md. Exit status 1 if the checker is wrong.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".importroot")]

from foreign.module_text import intrinsics  # noqa: E402
from foreign.pair_verdict import unknown_names  # noqa: E402
from foreign.processors import default_code_object, first_hidden  # noqa: E402
from foreign.reader import Reader, add_reader_options, chosen_readers  # noqa: E402
from foreign.source_package import default_cache  # noqa: E402
from foreign.wheel import download_wheel  # noqa: E402

from mlir_offload.offload.skew.check import check_file  # noqa: E402
from mlir_offload.toolchain.skew.fact import Consumer  # noqa: E402
from mlir_offload.toolchain.skew.identity import Severity  # noqa: E402

PAGE = ROOT / "docs" / "design" / "device-libraries.md"
# The wheel with the libdevice of each CUDA release; releases without a row have the same file as the previous
# one.
_WHEELS = {
    "11.8": "nvidia-cuda-nvcc-cu11==11.8.89",
    "12.0": "nvidia-cuda-nvcc-cu12==12.0.140",
    "12.1": "nvidia-cuda-nvcc-cu12==12.1.105",
    "12.3": "nvidia-cuda-nvcc-cu12==12.3.107",
    "12.8": "nvidia-cuda-nvcc-cu12==12.8.93",
    "12.9": "nvidia-cuda-nvcc-cu12==12.9.86",
    "13.0": "nvidia-nvvm==13.0.88",
    "13.1": "nvidia-nvvm==13.1.115",
    "13.2": "nvidia-nvvm==13.2.86",
    "13.3": "nvidia-nvvm==13.3.73",
    "13.4": "nvidia-nvvm==13.4.92",
    "13.5": "nvidia-nvvm==13.5.37",
}
_LIBDEVICE = ("libdevice.10.bc",)
# All wheels of Triton from 3.1 on contain the same files.
_TRITON, _TRITON_LIBRARIES = "triton==3.5.0", ("ocml.bc", "ockl.bc")
_INSTALLED = Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")
_NVIDIA, _AMD = "nvptx64-nvidia-cuda", "amdgcn-amd-amdhsa"
_CODE_OBJECT = re.compile(r"oclc_abi_version_(\d+)$")
_OLDEST = 15


@dataclass(frozen=True)
class Library:
    """A file of a device library, and the package that it comes from."""

    origin: str
    path: Path
    triple: str


def libraries(folders: list[str]) -> Iterator[Library]:
    """Yield the files: libdevice of each CUDA release; ocml, ockl and the code object versions of ROCm."""
    for release, wheel in _WHEELS.items():
        (path,) = _members(f"CUDA-{release}", wheel, _LIBDEVICE)
        yield Library(f"libdevice of CUDA {release}", path, _NVIDIA)
    for path in _members("Triton", _TRITON, _TRITON_LIBRARIES):
        yield Library(f"{path.stem} of Triton", path, _AMD)
    named = {"ROCm's, installed": _INSTALLED} | {
        name: Path(folder) for name, folder in (one.split("=", 1) for one in folders)
    }
    for origin, folder in named.items():
        for path in sorted(folder.glob("*.bc")):
            if path.stem in {"ocml", "ockl"} or _CODE_OBJECT.match(path.stem):
                yield Library(f"{path.stem} of {origin}", path, _AMD)


def _members(name: str, wheel: str, members: Sequence[str]) -> list[Path]:
    """Return files of a wheel, which is downloaded once."""
    folder = default_cache() / "device-libraries" / name
    paths = [folder / member for member in members]
    if not all(path.exists() for path in paths):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as work:
            download_wheel(wheel, Path(work))
            content = zipfile.ZipFile(next(Path(work).iterdir()))
            for path in paths:
                names = content.namelist()
                path.write_bytes(
                    content.read(next(one for one in names if one.endswith(f"/{path.name}")))
                )
    return paths


def outcome(library: Library, reader: Reader, newest: Reader) -> str:
    """Return the result of reading a library: `fits`, or the reason for the incompatibility."""
    data = library.path.read_bytes()
    written = reader.write(data, library.triple)
    if not written.is_read:
        lines = [line for line in written.message.splitlines() if "error" in line.lower()]
        return f"rejected: {(lines or [written.message])[0].split('error: ')[-1][:90]}"
    # The intrinsics that the reader kept; it may have replaced some by newer ones.
    left = newest.spell(written.output).output.decode(errors="replace")
    declared = {name: line for name, line in intrinsics(left) if name.encode() in data}
    unknown = unknown_names(reader, declared)
    if unknown:
        return f"wrong: unknown {' '.join(sorted(unknown)[:2])}"
    version = _CODE_OBJECT.match(library.path.stem)
    if version is not None and first_hidden(newest, int(version[1]) // 100) != first_hidden(reader):
        return f"wrong: the release makes code object version {default_code_object(reader)}"
    if library.triple == _NVIDIA:
        made = reader.compile(data, _NVIDIA, "sm_80")
        return "fits" if made.is_read else f"rejected: {made.message.splitlines()[0][:90]}"
    return "fits"


def render(
    by_library: Mapping[str, Sequence[str]], releases: Sequence[int], pairs: int, wrong: int
) -> str:
    """Return the page."""
    head = ["| library | " + " | ".join(f"LLVM {one}" for one in releases) + " |"]
    head.append("| --- |" + " --- |" * len(releases))
    rows = [f"| {name} | {' | '.join(results)} |" for name, results in by_library.items()]
    return _TEXT.format(table="\n".join([*head, *rows]), pairs=pairs, wrong=wrong)


_TEXT = """\
# Device libraries and LLVM

This page compares the reports of `mlir-offload check` on libdevice and on ROCm's device libraries with the behavior of
each release of LLVM. `tests/foreign/device_libraries.py` writes this page; do not edit it.

    python tests/foreign/device_libraries.py --releases=15,16,17,18,19,20,21,22,23 --root=23=DIR --amdgcn=NAME=DIR --write

libdevice is from NVIDIA's wheels. ROCm's libraries are from Triton's wheel, Debian 12 (installed) and newer releases of
Debian. CUDA 12.2 has the libdevice of 12.1, CUDA 12.4 to 12.6 that of 12.3.

A library *fits* if the release reads it and supports its intrinsics, and if its back end compiles libdevice. A library
`oclc_abi_version_N` is *wrong* if the hidden arguments of version N have another layout than those of the default version
of the release: a kernel would read them at wrong addresses (AM001).

{table}

`check` is wrong in {wrong} of the {pairs} pairs.
"""


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_reader_options(parser)
    parser.add_argument("--amdgcn", action="append", default=[], metavar="NAME=DIR")
    parser.add_argument("--write", action="store_true", help="replace the page")
    options = parser.parse_args()
    readers = [one for one in chosen_readers(options) if one.release >= _OLDEST]
    found = list(libraries(options.amdgcn))
    pairs = [(library, reader) for library in found for reader in readers]
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda pair: outcome(pair[0], pair[1], readers[-1]), pairs))
    lines = []
    wrong = 0
    for (library, reader), result in zip(pairs, outcomes, strict=True):
        skews = check_file(library.path, Consumer(llvm=reader.release))
        rules = sorted({one.rule for one in skews if one.severity is Severity.ERROR})
        is_wrong = bool(rules) is (result == "fits")
        wrong += is_wrong
        mark = "  <-- checker" if is_wrong else ""
        lines.append(f"{library.origin} -> {reader.release}: {result} {' '.join(rules)}{mark}")
    print("\n".join(lines))  # noqa: T201
    print(f"{len(pairs)} pairs, {wrong} in which the checker is wrong")  # noqa: T201
    if options.write:
        releases = [reader.release for reader in readers]
        by_library = {
            library.origin: [
                result.partition(":")[0]
                for (one, _), result in zip(pairs, outcomes, strict=True)
                if one == library
            ]
            for library in found
        }
        PAGE.write_text(render(by_library, releases, len(pairs), wrong), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
