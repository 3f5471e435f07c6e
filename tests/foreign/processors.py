"""Compare the tables of GPUs with the lists and output of each LLVM release; exit status 1 if they differ.

usage: python tests/foreign/processors.py [--releases=15,...,22] [--root=N=DIR]

The tables are offload/data/amdgpu_mach.yaml, toolchain/data/nvptx.yaml, and `code_objects` of
toolchain/data/amdgpu.yaml.
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
from mlir_offload.toolchain.amdgpu import first_hidden_argument, load_code_objects  # noqa: E402
from mlir_offload.toolchain.ptx import load_nvptx_table, supported_archs  # noqa: E402

_AMD = r"gfx(?:\d+(?:-\d+)*-generic|(?!000)\d[\da-f]+)"
_NVIDIA = r"sm_\d+[af]?"
# llc prints lines such as `  gfx900 - Select the gfx900 processor.`; clang prints one comma-separated line.
_LISTED = r"(?:^ +|[:,] )({pattern})(?= +- Select|,|$)"
# The module flag for the version of AMD's code objects has had two names.
_AMDGPU = "amdgcn-amd-amdhsa"
_FLAGS = ("amdgpu_code_object_version", "amdhsa_code_object_version")
_VERSIONS = (4, 5, 6)
_FLAG = '!llvm.module.flags = !{{!0}}\n!0 = !{{i32 1, !"{name}", i32 {version}00}}\n'
_READS_HIDDEN = f"""\
target triple = "{_AMDGPU}"
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
define amdgpu_kernel void @k(ptr addrspace(1) %p) {{
  %a = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  store ptr addrspace(4) %a, ptr addrspace(1) %p
  ret void
}}
"""
_FIRST_HIDDEN = re.compile(r"hidden_\w+")
_MADE = re.compile(r"\.amdhsa_code_object_version (\d)|amdhsa\.version:\s+- 1\s+- (\d)")
# In releases without the directive, the minor version of the metadata is 0 for version 3.
_FROM_METADATA = {"1": 4, "2": 5}


def processors(reader: Reader, triple: str) -> frozenset[str]:
    """Return the processors of a target that a release lists."""
    clang = (str(reader.program), "clang") if reader.is_clang else reader.tool("clang")
    command = (*clang, "-cc1", "-triple", triple, "-target-cpu", "help", "-x", "ir", "/dev/null")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    pattern = _AMD if triple.startswith("amd") else _NVIDIA
    listed = re.compile(_LISTED.format(pattern=pattern), re.MULTILINE)
    return frozenset(listed.findall(done.stderr + done.stdout))


def mistakes(reader: Reader) -> Iterator[str]:
    """Yield the differences between the tables and the lists of a release."""
    release = reader.release
    amd = processors(reader, "amdgcn-amd-amdhsa")
    known = frozenset(known_processors(release))
    yield from _differences(f"LLVM {release}, amdgpu_mach.yaml", amd, known)
    oldest = dict(load_nvptx_table().oldest_isa)
    listed = {name for name in processors(reader, "nvptx64-nvidia-cuda") if name in oldest}
    # llc supports the family-specific names before clang, which the link runs.
    nvidia, known = (
        frozenset(name for name in names if not name.endswith("f"))
        for names in (listed, supported_archs(release, None))
    )
    yield from _differences(f"LLVM {release}, nvptx.yaml", nvidia, known)
    yield from _code_object_mistakes(reader)
    yield from _layout_mistakes(reader)


def code_objects(reader: Reader) -> dict[str, tuple[int, ...]]:
    """Return, for each flag name, the code object versions that a release generates if they are requested."""
    found = {}
    for flag in _FLAGS:
        made = {
            version: _made(reader, f'!0 = !{{i32 1, !"{flag}", i32 {version}00}}')
            for version in _VERSIONS
        }
        found[flag] = tuple(version for version, result in made.items() if result == version)
    return found


def _made(reader: Reader, node: str) -> int:
    text = f'target triple = "{_AMDGPU}"\ndefine amdgpu_kernel void @k() {{\n ret void\n}}\n'
    flags = f"!llvm.module.flags = !{{!0}}\n{node}\n" if node else ""
    assembly = reader.compile((text + flags).encode(), _AMDGPU, "gfx90a").output.decode()
    version = _MADE.search(assembly)
    if version is None:
        return 0
    return int(version[1]) if version[1] else _FROM_METADATA[version[2]]


def default_code_object(reader: Reader) -> int:
    """Return the code object version that a release generates without a flag."""
    return _made(reader, "")


def first_hidden(reader: Reader, version: int = 0) -> str:
    """Return the first hidden kernel argument of a release, for its default code object version or another one."""
    flag = _FLAG.format(name=_FLAGS[-1], version=version) if version else ""
    made = reader.compile((_READS_HIDDEN + flag).encode(), _AMDGPU, "gfx90a").output.decode()
    found = _FIRST_HIDDEN.search(made)
    return found[0] if found else ""


def _layout_mistakes(reader: Reader) -> Iterator[str]:
    """Compare the table of hidden arguments with the output of a release that supports the flag."""
    for version in load_code_objects(reader.release).reads.get(_FLAGS[-1], ()):
        first = first_hidden(reader, version)
        if first != first_hidden_argument(version):
            yield f"LLVM {reader.release}, amdgpu.yaml: version {version} begins with {first}"


def _code_object_mistakes(reader: Reader) -> Iterator[str]:
    known, default = load_code_objects(reader.release), default_code_object(reader)
    if default != known.versions[-1]:
        yield f"LLVM {reader.release}, amdgpu.yaml: without a flag it makes version {default}"
    for flag, versions in code_objects(reader).items():
        # A release that ignores the flag always generates its default version.
        expected = known.reads.get(flag, (default,))
        if versions != expected:
            yield f"LLVM {reader.release}, amdgpu.yaml: {flag} chooses among {versions}"


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
