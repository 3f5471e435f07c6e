"""Load modules that are needed later while the first tools run."""

from __future__ import annotations

import importlib
import threading

from mlir_offload.toolchain.target import Kind

# In the order in which a compilation comes to them.
_ALWAYS = (
    "mlir_offload.driver.steps",
    "mlir_offload.translate.split",
    "mlir_offload.translate.host",
)
_OF_KIND = {
    Kind.CUDA: (
        "mlir_offload.translate.device",
        "mlir_offload.toolchain.ptx",
        "mlir_offload.offload.cubin",
    ),
    Kind.HIP: ("mlir_offload.driver.hip_image", "mlir_offload.translate.amdgpu"),
    Kind.OPENMP: ("mlir_offload.translate.cpu", "mlir_offload.offload.host_image"),
    Kind.SYCL: ("mlir_offload.driver.sycl_image", "mlir_offload.offload.spirv"),
}
_LATE = (
    "mlir_offload.offload.annotate",
    "mlir_offload.offload.host_module",
)


# What compiles for a kind runs in other processes then, if at all.
_LAUNCHED = ("mlir_offload.driver.launched_step", "mlir_offload.toolchain.ptx")


def preload(kinds: frozenset[Kind], *, launched: bool = False) -> None:
    """Start loading what a compilation for these kinds will need; return at once."""
    of_kinds = tuple(name for kind in Kind if kind in kinds for name in _OF_KIND[kind])
    names = (*_ALWAYS, *(_LAUNCHED if launched else of_kinds), *_LATE)
    threading.Thread(target=_load, args=(names,), daemon=True).start()


def _load(names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)
