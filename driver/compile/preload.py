"""Load modules that are needed later while the first tools run."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping

from mlir_offload.toolchain.target import Kind

# In the order in which a compilation comes to them.
_ALWAYS = (
    "mlir_offload.driver.step.command",
    "mlir_offload.translate.split",
    "mlir_offload.translate.host.module",
)
_OF_KIND: Mapping[Kind, tuple[str, ...]] = {
    Kind.CUDA: ("mlir_offload.translate.device", "mlir_offload.toolchain.ptx"),
    Kind.HIP: ("mlir_offload.driver.compile.hip_image", "mlir_offload.translate.amdgpu"),
    Kind.OPENMP: (
        "mlir_offload.driver.compile.cpu_image",
        "mlir_offload.translate.cpu.module",
        "mlir_offload.offload.device.host_image",
    ),
    Kind.SYCL: ("mlir_offload.driver.compile.sycl_image", "mlir_offload.offload.device.spirv"),
}
# What compiles for a kind runs in other processes then, if at all.
_LAUNCHED = ("mlir_offload.driver.step.launched", "mlir_offload.toolchain.ptx")
_LATE = ("mlir_offload.offload.host.annotate", "mlir_offload.driver.package.file")
_LINK = ("mlir_offload.driver.link.program",)
_LINK_OF_KIND: Mapping[Kind, tuple[str, ...]] = {
    Kind.CUDA: ("mlir_offload.offload.link.fatbinary_adapter", "mlir_offload.offload.device.cubin"),
}


def preload(kinds: frozenset[Kind], *, launched: bool = False, links: bool = False) -> None:
    """Start loading what a compilation for these kinds will need; return at once."""
    names = modules_for(kinds, launched=launched, links=links)
    threading.Thread(target=_load, args=(names,), daemon=True).start()


def modules_for(
    kinds: frozenset[Kind], *, launched: bool = False, links: bool = False
) -> tuple[str, ...]:
    """Return the modules that a compilation for these kinds will need."""
    compiling = _LAUNCHED if launched else _of(kinds, _OF_KIND)
    linking = (*_LINK, *_of(kinds, _LINK_OF_KIND)) if links else ()
    return (*_ALWAYS, *compiling, *_LATE, *linking)


def _of(kinds: frozenset[Kind], modules: Mapping[Kind, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(name for kind in Kind if kind in kinds for name in modules.get(kind, ()))


def _load(names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)
