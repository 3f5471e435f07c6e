"""Compare the properties read from device code in public wheels with the output of the vendors' tools.

Cubins are paired by hash with those that cuobjdump extracts from the same library, and their kernels are
compared with `cuobjdump -res-usage`. Code objects for AMD GPUs, including those in compressed bundles, are
compared with the metadata that llvm-readobj prints.

usage: python tests/foreign/corpus.py [--llvm PREFIX] [--cache DIR]
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".importroot"), str(ROOT / "tests")]

from foreign.source_package import default_cache  # noqa: E402
from foreign.wheel import fetch_members, find_member, load_wheels  # noqa: E402

from mlir_offload.offload.container.contents import Image, all_images  # noqa: E402
from mlir_offload.offload.device.kernel import DeviceKernel  # noqa: E402
from mlir_offload.offload.file.contents_reader import read_contents, visit_images  # noqa: E402
from mlir_offload.toolchain.byte_view import ByteView  # noqa: E402

_USAGE = re.compile(r"Function (\S+):\s+(.*)")
_NUMBER = re.compile(r"(REG|STACK|SHARED|LOCAL):(\d+)")
# cuobjdump adds the shared memory that sm_90 and newer reserve, but not for every kernel.
_RESERVED = 1024
_METADATA = re.compile(r"AMDGPU Metadata: (---.*?\n\.\.\.)", re.DOTALL)
Facts = Mapping[str, tuple[int | None, ...]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llvm", type=Path, default=Path("/usr/lib/llvm-22"))
    parser.add_argument("--cache", type=Path, default=default_cache() / "wheels")
    options = parser.parse_args()
    cuobjdump = find_member("cuobjdump", options.cache)
    libraries = (
        path
        for wheel in load_wheels()
        for path in fetch_members(wheel, options.cache)
        if path.suffix == ".so"
    )
    wrong = 0
    for library in libraries:
        with tempfile.TemporaryDirectory(prefix="mlir-offload-corpus-") as folder:
            wrong += compare(library, Path(folder), cuobjdump, options.llvm / "bin/llvm-readobj")
    return 1 if wrong else 0


def compare(library: Path, folder: Path, cuobjdump: Path, readobj: Path) -> int:
    """Compare a library, print a summary, and return the number of differences."""
    differences: list[str] = []
    cubins: set[str] = set()
    images = kernels = paired = 0
    read = {image.index: image for image in all_images(read_contents(library))}

    def visit(found: Image, content: ByteView) -> None:
        nonlocal images, kernels
        image = read[found.index]
        if image.code is None or image.code.form not in {"cubin", "AMDGPU code object"}:
            return
        data = content.whole()
        file = folder / "image"
        file.write_bytes(data)
        if image.code.form == "cubin":
            cubins.add(hashlib.sha256(data).hexdigest())
            ours = cubin_facts(image)
            theirs = usage(cuobjdump, file, ours)
        else:
            theirs, ours = amd_metadata(readobj, file), amd_facts(image)
        images += 1
        kernels += len(ours)
        differences.extend(
            f"{image.arch} {name}: {ours.get(name)}, {theirs.get(name)}"
            for name in sorted(ours.keys() | theirs.keys())
            if ours.get(name) != theirs.get(name)
        )

    visit_images(library, visit)
    if cubins:
        extracted = set(extract_cubins(cuobjdump, library, folder / "all"))
        differences += [f"cuobjdump has the cubin {one}" for one in sorted(extracted - cubins)]
        paired = len(extracted & cubins)
    if not images:
        differences.append("no image was read")
    sys.stdout.write(
        f"{library.name}: {images} images ({paired} paired by hash), {kernels} kernels, "
        f"{len(differences)} differences\n"
    )
    sys.stdout.write("".join(f"  {line[:200]}\n" for line in differences[:10]))
    sys.stdout.flush()
    return len(differences)


def extract_cubins(cuobjdump: Path, library: Path, folder: Path) -> Iterator[str]:
    """Yield the hashes of the cubins that cuobjdump extracts; it reads one of bitsandbytes' three fat binaries."""
    folder.mkdir()
    command = [str(cuobjdump), "-xelf", "all", str(library)]
    subprocess.run(command, check=True, cwd=folder, capture_output=True)
    for path in folder.iterdir():
        yield hashlib.sha256(path.read_bytes()).hexdigest()
        path.unlink()


def run_tool(*argv: str | Path) -> str:
    """Return the standard output of a tool."""
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def usage(cuobjdump: Path, cubin: Path, kernels: Facts) -> Facts:
    """Return registers and shared memory of the kernels from cuobjdump, which also lists other functions."""
    found = {}
    for name, facts in _USAGE.findall(run_tool(cuobjdump, "-res-usage", cubin)):
        if name in kernels:
            numbers = {key: int(value) for key, value in _NUMBER.findall(facts)}
            shared = numbers["SHARED"]
            is_reserved = shared - _RESERVED == kernels[name][1]
            found[name] = (numbers["REG"], shared - _RESERVED * is_reserved)
    return found


def cubin_facts(image: Image) -> Facts:
    """Return the same properties, read by mlir-offload."""
    return {kernel.name: (kernel.registers, kernel.shared_bytes or 0) for kernel in _kernels(image)}


def amd_metadata(readobj: Path, file: Path) -> Facts:
    """Return the properties of each kernel that llvm-readobj prints."""
    texts = _METADATA.findall(run_tool(readobj, "--notes", file))
    rows = [row for text in texts for row in yaml.safe_load(text)["amdhsa.kernels"]]
    return {
        row[".name"]: (
            row[".vgpr_count"],
            row[".sgpr_count"],
            row[".group_segment_fixed_size"],
            row[".private_segment_fixed_size"],
            row[".wavefront_size"],
        )
        for row in rows
    }


def amd_facts(image: Image) -> Facts:
    """Return the same properties, read by mlir-offload."""
    return {
        kernel.name: (
            *(kernel.registers, kernel.scalar_registers),
            *(kernel.shared_bytes, kernel.local_bytes, kernel.subgroup_size),
        )
        for kernel in _kernels(image)
    }


def _kernels(image: Image) -> tuple[DeviceKernel, ...]:
    return image.code.kernels if image.code else ()


if __name__ == "__main__":
    sys.exit(main())
