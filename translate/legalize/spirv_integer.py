"""Reject integers of widths that LLVM's back end for SPIR-V computes wrongly.

It widens `i24` to 32 bits without extending it: comparisons, divisions, shifts and extensions see the upper bits.
"""

from __future__ import annotations

from collections.abc import Iterator

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import integer_width, parse_shaped
from mlir_offload.translate.pipelines import load_spirv_integers

_HINT = "use integers of these widths, or leave spirv64 out of --offload-arch"


def check_integers(module: Operation, locations: Locations) -> None:
    """Raise SourceError for a value that is, or contains, an integer of a width that SPIR-V does not have."""
    widths = load_spirv_integers()
    for operation in module.walk_inside():
        for kind, location in _values(operation, locations):
            vector = parse_shaped(kind, "vector")
            element = vector.element if vector else kind
            width = integer_width(element)
            if width and width not in widths:
                *most, last = (one for one in widths if one > 1)
                known = f"{', '.join(map(str, most))} and {last}"
                msg = f"{operation.name} of {element} is not supported for spirv64: OpenCL has integers of {known} bits"
                raise SourceError(msg, hint=_HINT, location=location)


def _values(operation: Operation, locations: Locations) -> Iterator[tuple[str, str]]:
    """Yield the type and location of each result and block argument of an operation."""
    own = locations.of(operation)
    for kind in operation.result_types:
        yield kind, own
    for region in operation.regions:
        for block in region.blocks:
            for argument in block.arguments:
                yield argument.type, locations.resolve(argument.location) or own
