"""Which file calls a device function that a link did not find, and for which device."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from mlir_offload.offload.device.symbols import read_device_symbols
from mlir_offload.offload.link.held_image import runs_on_host
from mlir_offload.offload.link.objects import ObjectContents
from mlir_offload.toolchain.errors import MlirOffloadError, VerificationError
from mlir_offload.translate.cpu.foreign import source_name

# As lld, GNU ld and nvlink have it.
_NAME = re.compile(r"[Uu]ndefined (?:hidden )?(?:symbol: |reference to [`'])([\w.$]+)")
_MOST_IMAGES = 256
_HINT = "name the file on the link line that defines it as a public func.func, compiled for {arch} with -fgpu-rdc"
_CPU_HINT = (
    "; a function that waits for other threads has to be declared 'convergent', "
    "and one that uses workgroup memory is called in its own file only"
)


def explain_undefined(
    error: MlirOffloadError, contents: Sequence[ObjectContents], stderr: str
) -> None:
    """Let the error of a link say which file calls a device function that no other has for its GPU."""
    names = dict.fromkeys(_NAME.findall(stderr))
    found = None
    # What the tool said of a damaged image says more.
    with contextlib.suppress(VerificationError):
        found = next(_missing(contents, tuple(names)), None) if names else None
    if found is None:
        return
    name, arch, location = found
    error.message = f"no file has the device function '{source_name(name)}' for {arch}"
    error.hint = _HINT.format(arch=arch) + (_CPU_HINT if name != source_name(name) else "")
    if not error.location.startswith(f"{location}:"):
        error.location = location


def _missing(
    contents: Sequence[ObjectContents], names: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    pairs = ((item, image) for item in contents for image in item.images)
    images = [
        (item.location, image, read_device_symbols(image.content))
        for item, image in islice(pairs, _MOST_IMAGES)
    ]
    for name in names:
        having = {(image.triple, image.arch) for _, image, own in images if name in own.defined}
        for location, image, own in images:
            if name in own.undefined and (image.triple, image.arch) not in having:
                is_host = runs_on_host(image) and not image.arch
                yield name, "the CPU" if is_host else image.arch, location
