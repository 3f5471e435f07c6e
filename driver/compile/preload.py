"""Load modules that are needed later while the first tools run."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator

from mlir_offload.driver.compile.kind_build import BUILDS, build_of
from mlir_offload.toolchain.target import Kind, all_kinds

# In the order in which a compilation comes to them.
_ALWAYS = (
    "mlir_offload.driver.step.program",
    "mlir_offload.translate.legalize.split",
    "mlir_offload.translate.host.module",
)
# What compiles for a kind runs in other processes then, if at all.
_LAUNCHED = ("mlir_offload.driver.compile.launched", "mlir_offload.toolchain.ptx")
_LATE = (
    "mlir_offload.driver.step.annotate",
    "mlir_offload.driver.step.image_file",
    "mlir_offload.offload.host.annotate",
)
_LINK = ("mlir_offload.driver.link.program",)


def preload(kinds: frozenset[Kind], *, launched: bool = False, links: bool = False) -> None:
    """Start loading what a compilation for these kinds will need; return at once."""
    names = modules_for(kinds, launched=launched, links=links)
    threading.Thread(target=_load, args=(names,), daemon=True).start()


def modules_for(
    kinds: frozenset[Kind], *, launched: bool = False, links: bool = False
) -> Iterator[str]:
    """Yield the modules that a compilation for these kinds will need; a kind's own tells the others."""
    yield from _ALWAYS
    own = tuple(kind for kind in all_kinds() if kind in kinds)
    for kind in own:
        yield BUILDS.module(kind)
        yield from () if launched else build_of(kind).modules
    yield from _LAUNCHED if launched else ()
    yield from _LATE
    if links:
        yield from _LINK
        for kind in own:
            yield from build_of(kind).link_modules


def _load(names: Iterator[str]) -> None:
    for name in names:
        importlib.import_module(name)
