"""Compare the CUDA rows in toolchain/data/nvptx.yaml with ptxas of each release; exit status 1 if they differ.

usage: python tests/foreign/ptxas.py [--only=13.0]

The programs come from NVIDIA's wheels on PyPI, one per release; only ptxas is kept.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".importroot")]

from foreign.source_package import default_cache  # noqa: E402
from foreign.wheel import download_wheel  # noqa: E402

from mlir_offload.toolchain.ptx import PtxSupport, load_nvptx_table  # noqa: E402

# The wheel of each CUDA release: the package, and the version of its ptxas.
_WHEELS = {
    "11.8": "nvidia-cuda-nvcc-cu11==11.8.89",
    "12.0": "nvidia-cuda-nvcc-cu12==12.0.140",
    "12.1": "nvidia-cuda-nvcc-cu12==12.1.105",
    "12.2": "nvidia-cuda-nvcc-cu12==12.2.140",
    "12.3": "nvidia-cuda-nvcc-cu12==12.3.107",
    "12.4": "nvidia-cuda-nvcc-cu12==12.4.131",
    "12.5": "nvidia-cuda-nvcc-cu12==12.5.82",
    "12.6": "nvidia-cuda-nvcc-cu12==12.6.85",
    "12.8": "nvidia-cuda-nvcc-cu12==12.8.93",
    "12.9": "nvidia-cuda-nvcc-cu12==12.9.86",
    "13.0": "nvidia-cuda-nvcc==13.0.88",
    "13.1": "nvidia-cuda-nvcc==13.1.115",
    "13.2": "nvidia-cuda-nvcc==13.2.86",
    "13.3": "nvidia-cuda-nvcc==13.3.73",
    "13.4": "nvidia-cuda-nvcc==13.4.92",
    "13.5": "nvidia-cuda-nvcc==13.5.37",
}
_ARCH = re.compile(r"'(sm_\d+[af]?)'")
_NEWEST = re.compile(r"current version is '(\d+)\.(\d)'")
# A PTX ISA version that no ptxas supports.
_FUTURE = 990


def find_ptxas(release: str) -> Path:
    """Return the ptxas of a CUDA release, downloaded once."""
    program = default_cache() / "ptxas" / release
    if not program.exists():
        with tempfile.TemporaryDirectory() as folder:
            download_wheel(_WHEELS[release], Path(folder))
            wheel = zipfile.ZipFile(next(Path(folder).iterdir()))
            name = next(one for one in wheel.namelist() if one.endswith("bin/ptxas"))
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_bytes(wheel.read(name))
        program.chmod(0o755)
    return program


def assemble(program: Path, arch: str, isa: int) -> str:
    """Return the message of ptxas for an empty module of a PTX ISA version and architecture; empty if it succeeds."""
    head = f".version {isa // 10}.{isa % 10}\n.target {arch}\n.address_size 64\n"
    text = f"{head}.visible .entry k() {{ ret; }}\n"
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as module:
        module.write(text)
        module.flush()
        command = (str(program), f"-arch={arch}", "-o", "/dev/null", module.name)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr + done.stdout if done.returncode else ""


def architectures(program: Path) -> frozenset[str]:
    """Return the architectures that a ptxas lists."""
    done = subprocess.run((str(program), "--help"), capture_output=True, text=True, check=True)
    _, _, text = done.stdout.partition("--gpu-name")
    return frozenset(_ARCH.findall(text.partition("\n\n")[0]))


def newest_isa(program: Path, arch: str) -> int:
    """Return the newest PTX ISA version that a ptxas supports."""
    found = _NEWEST.search(assemble(program, arch, _FUTURE))
    return int(found[1]) * 10 + int(found[2]) if found else 0


def oldest_isa(program: Path, arch: str, versions: list[int]) -> int:
    """Return the oldest of the versions with which a ptxas accepts an architecture; 0 if there is none."""
    return next((isa for isa in versions if not assemble(program, arch, isa)), 0)


def mistakes(row: PtxSupport, program: Path) -> Iterator[str]:
    """Yield the differences between a row and a ptxas."""
    release = f"CUDA {row.release[0]}.{row.release[1]}"
    listed = architectures(program)
    if listed != row.archs:
        yield f"{release}: architectures {', '.join(sorted(listed ^ row.archs))}"
    newest = newest_isa(program, min(listed))
    if newest != row.isa[-1]:
        yield f"{release}: reads PTX ISA up to {newest}, the table has {row.isa[-1]}"


def isa_mistakes(programs: dict[str, Path]) -> Iterator[str]:
    """Yield the architectures whose oldest PTX ISA version differs from that of ptxas."""
    table = load_nvptx_table()
    versions = sorted({isa for row in (*table.llvm, *table.cuda) for isa in row.isa})
    for arch, known in table.oldest_isa:
        names = [f"{a}.{b}" for a, b in (row.release for row in table.cuda if arch in row.archs)]
        own = [name for name in names if name in programs]
        if own and (found := oldest_isa(programs[own[-1]], arch, versions)) != known:
            yield f"CUDA {own[-1]}: {arch} needs PTX ISA {found}, the table has {known}"


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="one release of CUDA")
    only = parser.parse_args().only
    programs = {name: find_ptxas(name) for name in _WHEELS if only in {"", name}}
    rows = {f"{row.release[0]}.{row.release[1]}": row for row in load_nvptx_table().cuda}
    found = [line for name, program in programs.items() for line in mistakes(rows[name], program)]
    found += isa_mistakes(programs)
    for line in found:
        print(line)  # noqa: T201
    print(f"{len(programs)} releases of CUDA, {len(found)} differences")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
