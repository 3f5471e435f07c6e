"""Where the barriers of device functions are in the source, brought through mlir-translate to code for the CPU.

A barrier has no operand for it, and without -g no instruction has a location. An attribute of the
function has them all, in the order in which mlir-translate writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mlir_offload.offload.ir_syntax import string_of, unescape_bytes
from mlir_offload.translate.device_ir import BARRIER_MARK, BARRIER_PLACES
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import Attribute, quoted

# LLVM 19 has a name of its own for the barrier without operands.
_BARRIERS = frozenset({"nvvm.barrier", "nvvm.barrier0"})
_PASSTHROUGH = "passthrough"
_SEPARATOR = "\n"


def mark_barriers(operations: Iterable[Operation], locations: Locations) -> None:
    """Give each function the places of its barriers, `file:line:column` or nothing."""
    for function in operations:
        places = [locations.of(one) for one in function.walk_inside() if one.name in _BARRIERS]
        if function.name == "llvm.func" and any(places):
            given = (str(one) for one in function.attribute(_PASSTHROUGH).elements)
            own = f"[{quoted(BARRIER_PLACES)}, {quoted(_SEPARATOR.join(places))}]"
            function.set_attribute(_PASSTHROUGH, Attribute(f"[{', '.join((*given, own))}]"))


def read_places(attributes: Iterable[str], head: str) -> Iterator[str]:
    """Yield the places of the barriers of a function, of its head and the attributes of a concealed module."""
    groups = frozenset(word for word in head.split() if word.startswith("#"))
    for line in attributes:
        _, _, rest = line.partition("attributes ")
        if rest.partition(" ")[0] in groups and (mark := BARRIER_MARK.search(line)):
            places = unescape_bytes(string_of(mark["places"])).decode(errors="surrogateescape")
            yield from places.split(_SEPARATOR)
