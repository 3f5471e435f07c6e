"""Report CPU kernels named like C functions: the device link would resolve calls of other files to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mlir_offload.offload.device import code as device_code
from mlir_offload.offload.link.finding import Finding
from mlir_offload.offload.link.held_image import runs_on_host
from mlir_offload.translate.cpu import replacement

if TYPE_CHECKING:
    from mlir_offload.offload.link.objects import ObjectContents


def c_name_findings(contents: Sequence[ObjectContents]) -> Iterator[Finding]:
    """Yield an error for each kernel with the name of a C function that kernels of a file call on the CPU."""
    images = [(item, image) for item in contents for image in item.images if runs_on_host(image)]
    kinds = {image.kind for _, image in images}
    named = {
        entry.name: item
        for item in contents
        for entry in item.entries
        if entry.is_kernel and entry.kind in kinds and replacement.is_c_function(entry.name)
    }
    for item, image in images if named else ():
        code = device_code.read_device_code(image.content)
        for name in sorted(named.keys() & set(code.undefined if code else ())):
            yield Finding(
                f"kernel @{name} has the name of a C function that kernels of {item.location} call on the CPU",
                named[name].location,
                "rename the kernel",
            )
