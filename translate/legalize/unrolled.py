"""Warn about large vector.contract operations, which are unrolled to single multiplications."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod

from mlir_offload.translate.host.launch import SourceWarning
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import Attribute, parse_shaped

_CONTRACTION = "vector.contract"
# clang 22 -O2 for x86-64 takes 4 s for 16384 multiplications of f32, 24 s for 32768, 80 s for 65536, and more than
# 285 s for 262144, for scheduling and register allocation of one basic block.
_MANY = 32768


def find_large_products(
    modules: Iterable[Operation], aliases: Mapping[str, str], locations: Locations
) -> Iterator[SourceWarning]:
    """Yield a warning for each vector.contract that takes clang a long time."""
    for operation in (one for module in modules for one in module.walk_inside()):
        count = _multiplications(operation, aliases) if operation.name == _CONTRACTION else 0
        if count >= _MANY:
            text = (
                f"vector.contract is unrolled to {count} multiplications, which may take clang minutes: "
                "use smaller vectors, in a loop over tiles"
            )
            yield SourceWarning(text, locations.of(operation))


def _multiplications(contraction: Operation, aliases: Mapping[str, str]) -> int:
    """Return the product of the sizes of all dimensions in the indexing maps of the operands."""
    sizes: dict[str, int] = {}
    maps = contraction.attribute("indexing_maps").elements
    for given, kind in zip(maps, contraction.operand_types, strict=False):
        shape = parse_shaped(kind, "vector")
        if shape is not None:
            body = Attribute(aliases.get(given, given)).body
            dimensions = body.rpartition("(")[2].removesuffix(")").split(", ")
            known = (size or 0 for size in shape.sizes)
            sizes.update(zip(dimensions, known, strict=False))
    return prod(sizes.values()) if sizes else 0
