"""Compare the tables of GPU architectures with what each release of LLVM lists; exit status 1 if they differ.

usage: python tests/foreign/processors.py [--releases=15,...,22] [--root=N=DIR]

The tables are offload/data/amdgpu_mach.yaml and toolchain/data/nvptx.yaml.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".importroot")]

from foreign.reader import Reader, add_reader_options, chosen_readers  # noqa: E402

from mlir_offload.offload.device.amdgpu_processor import known_processors  # noqa: E402
from mlir_offload.toolchain.ptx import load_nvptx_table, supported_archs  # noqa: E402

_AMD = r"gfx(?:\d+(?:-\d+)*-generic|(?!000)\d[\da-f]+)"
_NVIDIA = r"sm_\d+[af]?"
# llc has lines `  gfx900 - Select the gfx900 processor.`, clang has all in one line, between commas.
_LISTED = r"(?:^ +|[:,] )({pattern})(?= +- Select|,|$)"


def processors(reader: Reader, triple: str) -> frozenset[str]:
    """Return what a release lists as processors of a target."""
    clang = (str(reader.program), "clang", "-cc1", "-triple", triple, "-target-cpu", "help")
    llc = (*reader.tool("llc"), f"-mtriple={triple}", "-mcpu=help", "/dev/null")
    done = subprocess.run(
        (*clang, "-x", "ir", "/dev/null") if reader.is_clang else llc,
        capture_output=True,
        text=True,
        check=False,
    )
    pattern = _AMD if triple.startswith("amd") else _NVIDIA
    listed = re.compile(_LISTED.format(pattern=pattern), re.MULTILINE)
    return frozenset(listed.findall(done.stderr + done.stdout))


def mistakes(reader: Reader) -> Iterator[str]:
    """Return where the tables differ from what a release lists."""
    release = reader.release
    amd = processors(reader, "amdgcn-amd-amdhsa")
    known = frozenset(known_processors(release))
    yield from _differences(f"LLVM {release}, amdgpu_mach.yaml", amd, known)
    oldest = dict(load_nvptx_table().oldest_isa)
    listed = {name for name in processors(reader, "nvptx64-nvidia-cuda") if name in oldest}
    # llc knows the family-specific names as well; clang, which the link runs, does not.
    nvidia = frozenset(name for name in listed if not name.endswith("f"))
    yield from _differences(
        f"LLVM {release}, nvptx.yaml", nvidia, frozenset(supported_archs(release, None))
    )


def _differences(where: str, listed: frozenset[str], known: frozenset[str]) -> Iterator[str]:
    if listed - known:
        yield f"{where}: lacks {', '.join(sorted(listed - known))}"
    if known - listed:
        yield f"{where}: has {', '.join(sorted(known - listed))}, which the release does not list"


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_reader_options(parser)
    readers = [reader for reader in chosen_readers(parser.parse_args()) if reader.release > 14]
    found = [line for reader in readers for line in mistakes(reader)]
    for line in found:
        print(line)  # noqa: T201
    print(f"{len(readers)} releases, {len(found)} differences")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
