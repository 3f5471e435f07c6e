"""Check the compatibility of PTX and cubins with ptxas and with the NVIDIA driver."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mlir_offload.offload.device.kernel import DeviceCode
from mlir_offload.offload.device.ptx_image import read_ptx
from mlir_offload.toolchain.byte_view import ByteView
from mlir_offload.toolchain.cuda_driver import load_drivers
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.ptx import PtxSupport, load_nvptx_table, support_of
from mlir_offload.toolchain.skew.fact import Consumer, Skew

_HEAD_BYTES = 1 << 16
_VERSION = re.compile(rb"^[ \t]*\.version[ \t]+(\d{1,3})\.(\d)\b", re.MULTILINE)
_TARGET = re.compile(rb"^[ \t]*\.target[ \t]+(\w+)", re.MULTILINE)
_RELEASE = re.compile(r"(?:release|CUDA) (\d{1,3})\.(\d{1,3})")
_INTRINSIC = "llvm."
_LIBDEVICE = "__nv_"


def check_ptx(content: ByteView, consumer: Consumer) -> Iterator[Skew]:
    """Yield each reason why ptxas or the driver rejects a PTX image."""
    head = content.head(_HEAD_BYTES)
    version, target = _VERSION.search(head), _TARGET.search(head)
    if version and target:
        isa, arch = int(version[1]) * 10 + int(version[2]), target[1].decode()
        yield from _too_old(isa, arch)
        yield from _assembler(isa, arch, consumer)
        yield from _driver_ptx(isa, consumer)
    yield from _undefined(read_ptx(content))


def check_made_by(code: DeviceCode, consumer: Consumer) -> Iterator[Skew]:
    """Yield findings for a cubin: undefined functions, and a CUDA release that the driver does not support."""
    yield from _undefined(code)
    made = _RELEASE.search(code.producer)
    cuda = load_drivers().cuda_of(consumer.driver) if consumer.driver else None
    if made and consumer.driver and (cuda is None or int(made[1]) > cuda[0]):
        values: dict[str, object] = {"cuda": f"{made[1]}.{made[2]}", "driver": consumer.driver}
        yield Skew("NV011", values | {"needed": load_drivers().oldest_for(int(made[1]))})


def _undefined(code: DeviceCode) -> Iterator[Skew]:
    for name in code.undefined:
        if name.startswith((_INTRINSIC, _LIBDEVICE)):
            yield Skew("NV012", {"name": name})


def _too_old(isa: int, arch: str) -> Iterator[Skew]:
    oldest = dict(load_nvptx_table().oldest_isa).get(arch, 0)
    if isa < oldest:
        yield Skew("NV001", {"version": dotted(isa), "arch": arch, "needed": dotted(oldest)})


def _assembler(isa: int, arch: str, consumer: Consumer) -> Iterator[Skew]:
    if consumer.cuda is None:
        return
    table = load_nvptx_table()
    version = consumer.cuda.version
    release = f"{version.major}.{version.minor}"
    try:
        support = support_of(table.cuda, (version.major, version.minor), "CUDA")
    except CompatibilityError:
        return
    if isa > support.isa[-1]:
        needed = _first(table.cuda, isa)
        values = {"version": dotted(isa), "cuda": release, "newest": dotted(support.isa[-1])}
        yield Skew("NV002", values | {"needed": needed})
    if arch in support.archs:
        return
    renamed = dict(table.renamed) | {new: old for old, new in table.renamed}
    if renamed.get(arch) in support.archs:
        yield Skew("NV005", {"arch": arch, "cuda": release, "other": renamed[arch]})
    else:
        yield Skew("NV004", {"arch": arch, "cuda": release})


def _driver_ptx(isa: int, consumer: Consumer) -> Iterator[Skew]:
    if not consumer.driver:
        return
    drivers = load_drivers()
    cuda = drivers.cuda_of(consumer.driver)
    if cuda is not None and drivers.is_newest(cuda):
        return
    newest = 0
    if cuda is not None:
        newest = max(
            (row.isa[-1] for row in load_nvptx_table().cuda if row.release <= cuda), default=0
        )
    if isa > newest:
        values = {"version": dotted(isa), "driver": consumer.driver}
        yield Skew("NV010", values | {"newest": dotted(newest) if newest else "what is older"})


def _first(rows: tuple[PtxSupport, ...], isa: int) -> str:
    """Return the first CUDA release whose ptxas reads a PTX version."""
    found = (row.release for row in rows if row.isa[-1] >= isa)
    return next((f"CUDA {major}.{minor}" for major, minor in found), "a later CUDA")


def dotted(isa: int) -> str:
    """Return a PTX version in dotted form: 8.3 for 83."""
    return f"{isa // 10}.{isa % 10}"
