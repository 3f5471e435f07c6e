"""Identify runtime libraries: libomptarget, the ROCm device libraries and the CUDA driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.elf import ElfFile, read_elf
from mlir_offload.toolchain.bitcode.module import read_bitcode
from mlir_offload.toolchain.byte_view import ByteView, open_view
from mlir_offload.toolchain.errors import CompatibilityError, MlirOffloadError
from mlir_offload.toolchain.gpu import probe_cuda_driver
from mlir_offload.toolchain.rocm import RocmInstallation
from mlir_offload.toolchain.skew.identity import Evidence, Fact, ToolIdentity, Trial, identified
from mlir_offload.toolchain.target import host_triple

_SONAME = re.compile(rb"\0libomptarget\.so\.(\d+)[\d.]*\0")
_LLVM = re.compile(rb"\0libLLVM(?:-|\.so\.)(\d+[\d.]*)")
_RTL = re.compile(r"libomptarget\.rtl\.(\w+)\.so")
# A string in each plugin of libomptarget: the library that it loads. The host plugin contains its architecture.
_PLUGINS = (
    ("cuda", b"\0libcuda.so"),
    ("amdgpu", b"\0libhsa-runtime64.so"),
    ("host", f"\0{host_triple().split('-')[0]}\0".encode()),
)
_STRINGS_BYTES = 1 << 24


def identify_libomptarget(library: Path, group: str) -> ToolIdentity:
    """Return the release of a libomptarget, the size of the entries that it accepts, and its plugins."""
    return identified(group, "libomptarget", library, "", partial(_libomptarget, library))


def _libomptarget(library: Path) -> Trial:
    with open_view(library) as view:
        elf = read_elf(view)
        names, strings = _section(elf, ".dynstr"), _section(elf, ".rodata")
    soname, linked = _SONAME.search(names), _LLVM.search(names)
    written = f"LLVM{linked[1].decode().rstrip('.')}" if linked else ""
    entries = _entries_taken(int(soname[1]) if soname else None)
    return Trial(written, (*entries, Fact("plugins", ", ".join(_plugins(library, strings)))))


def _section(elf: ElfFile, name: str) -> bytes:
    views: list[ByteView] = [elf.content(section) for section in elf.named(name)]
    return b"\0" + b"".join(view.head(_STRINGS_BYTES) for view in views)


def _entries_taken(major: int | None) -> Iterator[Fact]:
    if major is None:
        return
    try:
        layout = load_abi(major).entry
    except CompatibilityError:
        return
    yield Fact("takes entries of", f"{len(layout.fields)} members", Evidence.NAMED)


def _plugins(library: Path, strings: bytes) -> list[str]:
    """Return the built-in plugins, and those in separate libraries in the same directory (up to LLVM 18)."""
    inside = [name for name, sign in _PLUGINS if sign in strings]
    matches = (_RTL.match(path.name) for path in sorted(library.parent.iterdir()))
    return list(dict.fromkeys([*inside, *(match[1] for match in matches if match)])) or ["none"]


def identify_rocm(libs: RocmInstallation) -> ToolIdentity:
    """Return the LLVM release that wrote the device libraries, and the code object ABIs that they support."""
    library = (libs.bitcode or libs.root) / "ocml.bc"
    said = str(libs.version) if libs.version else ""
    abis = ", ".join(map(str, libs.abi_versions)) or "none"
    facts = [Fact("has ABI versions", abis, Evidence.NAMED)]
    if said:
        facts.insert(0, Fact("of ROCm", said, Evidence.SAID))
    problem, written = "", ""
    try:
        with open_view(library) as view:
            written = read_bitcode(view).producer
    except (MlirOffloadError, OSError) as error:
        problem = str(error)
    group = f"ROCm in {libs.root}"
    return ToolIdentity(group, "device libraries", library, "", written, tuple(facts), problem)


def identify_cuda_driver() -> ToolIdentity:
    """Return the newest CUDA release that the driver supports, or the fact that there is no driver."""
    release = probe_cuda_driver()
    if release is None:
        facts = (Fact("is", "absent: no GPU of NVIDIA can be used"),)
        return ToolIdentity("this machine", "CUDA driver", None, facts=facts)
    facts = (Fact("serves CUDA up to", f"{release[0]}.{release[1]}"),)
    return ToolIdentity("this machine", "CUDA driver", None, facts=facts)
