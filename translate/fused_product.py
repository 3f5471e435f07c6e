"""Fuse products and sums to llvm.intr.fmuladd for AMD GPUs.

Otherwise LLVM vectorizes neighboring products before it fuses, so that the sums remain separate. clang emits the same
intrinsic for an expression in C++.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.rewriter import Rewriter

_PRODUCT, _SUM, _FUSED = "llvm.fmul", "llvm.fadd", "llvm.intr.fmuladd"
_FLAGS = "fastmathFlags"
_TYPES = frozenset({"f32", "f64"})
_CONTRACT, _ALL = "contract", "fast"


def fuse_products(functions: Iterable[Operation]) -> None:
    """Fuse each product whose only use is a sum in the same block, if both have the flag `contract` or `fast`."""
    rewriter = Rewriter("%mo_fused_")
    for function in functions:
        rewriter.rewrite_chosen(function, dict(_fusible(function)), partial(_fuse, rewriter))


def _fusible(function: Operation) -> Iterator[tuple[int, Operation | None]]:
    """Yield the `id` of each such sum with its product, and the `id` of the product with None."""
    inside = function.walk_inside()
    if not any(one.name == _SUM and _may_fuse(one) for one in inside):
        return
    uses = Counter(name for one in inside for name in one.operand_names)
    for block in (block for region in function.regions for block in region.blocks):
        products: dict[str, Operation] = {}
        for operation in block.operations:
            if operation.name == _PRODUCT and _may_fuse(operation):
                if uses[operation.result_text] == 1:
                    products[operation.result_text] = operation
            elif operation.name == _SUM and _may_fuse(operation):
                names = [name for name in operation.operand_names if name in products]
                if names:
                    product = products[names[0]]
                    yield id(operation), product
                    yield id(product), None


def _may_fuse(operation: Operation) -> bool:
    flags = _flags(operation) if "fastmath<" in operation.head else ()
    return (_CONTRACT in flags or _ALL in flags) and operation.result_types[0] in _TYPES


def _flags(operation: Operation) -> list[str]:
    return operation.attribute(_FLAGS).body.split(", ")


def _fuse(rewriter: Rewriter, operation: Operation, product: Operation | None) -> None:
    """Replace a sum by a fused operation. Remove the product, for which `product` is None."""
    if product is None:
        return
    (added,) = (one for one in operation.operands if one.name != product.result_text)
    flags, others = _flags(operation), _flags(product)
    if _ALL in flags:
        flags = others
    elif _ALL not in others:
        flags = [flag for flag in flags if flag in others]
    properties = {_FLAGS: f"#llvm.fastmath<{', '.join(flags)}>"}
    made = rewriter.value(_FUSED, (*product.operands, added), added.type, properties)
    rewriter.replace(operation, (made,))
