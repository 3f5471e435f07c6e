"""Pass the source locations of barriers through mlir-translate, for the CPU target.

A barrier has no operand for its location, and without -g instructions have no locations. An attribute
of the function therefore contains all of them, in the order in which mlir-translate writes barriers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mlir_offload.offload.ir_syntax import string_of, unescape_bytes
from mlir_offload.translate.device_ir import BARRIER_MARK, BARRIER_PLACES
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import Attribute, quoted

# LLVM 19 has a separate operation for the barrier without operands.
_BARRIERS = frozenset({"nvvm.barrier", "nvvm.barrier0"})
_PASSTHROUGH = "passthrough"
_SEPARATOR = "\n"


def mark_barriers(operations: Iterable[Operation], locations: Locations) -> None:
    """Attach the locations of its barriers to each function: `file:line:column`, or empty if unknown."""
    for function in operations:
        places = [locations.of(one) for one in function.walk_inside() if one.name in _BARRIERS]
        if function.name == "llvm.func" and any(places):
            given = (str(one) for one in function.attribute(_PASSTHROUGH).elements)
            own = f"[{quoted(BARRIER_PLACES)}, {quoted(_SEPARATOR.join(places))}]"
            function.set_attribute(_PASSTHROUGH, Attribute(f"[{', '.join((*given, own))}]"))


def read_places(attributes: Iterable[str], head: str) -> Iterator[str]:
    """Yield the locations of a function's barriers from its head and the attributes of a concealed module."""
    groups = frozenset(word for word in head.split() if word.startswith("#"))
    for line in attributes:
        _, _, rest = line.partition("attributes ")
        if rest.partition(" ")[0] in groups and (mark := BARRIER_MARK.search(line)):
            places = unescape_bytes(string_of(mark["places"])).decode(errors="surrogateescape")
            yield from places.split(_SEPARATOR)
