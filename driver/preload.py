"""Load modules that are needed later while the first tools run."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping

from mlir_offload.toolchain.target import Kind

# In the order in which a compilation comes to them.
_ALWAYS = (
    "mlir_offload.driver.steps",
    "mlir_offload.translate.split",
    "mlir_offload.translate.host",
)
_OF_KIND: Mapping[Kind, tuple[str, ...]] = {
    Kind.CUDA: ("mlir_offload.translate.device", "mlir_offload.toolchain.ptx"),
    Kind.HIP: ("mlir_offload.driver.hip_image", "mlir_offload.translate.amdgpu"),
    Kind.OPENMP: (
        "mlir_offload.driver.cpu_image",
        "mlir_offload.translate.cpu",
        "mlir_offload.offload.host_image",
    ),
    Kind.SYCL: ("mlir_offload.driver.sycl_image", "mlir_offload.offload.spirv"),
}
# What compiles for a kind runs in other processes then, if at all.
_LAUNCHED = ("mlir_offload.driver.launched_step", "mlir_offload.toolchain.ptx")
_LATE = ("mlir_offload.offload.annotate", "mlir_offload.driver.package_file")
_LINK = ("mlir_offload.driver.link",)
_LINK_OF_KIND: Mapping[Kind, tuple[str, ...]] = {
    Kind.CUDA: ("mlir_offload.offload.fatbinary_adapter", "mlir_offload.offload.cubin"),
}


def preload(kinds: frozenset[Kind], *, launched: bool = False, links: bool = False) -> None:
    """Start loading what a compilation for these kinds will need; return at once."""
    compiling = _LAUNCHED if launched else _of(kinds, _OF_KIND)
    linking = (*_LINK, *_of(kinds, _LINK_OF_KIND)) if links else ()
    names = (*_ALWAYS, *compiling, *_LATE, *linking)
    threading.Thread(target=_load, args=(names,), daemon=True).start()


def _of(kinds: frozenset[Kind], modules: Mapping[Kind, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(name for kind in Kind if kind in kinds for name in modules.get(kind, ()))


def _load(names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)
