"""Legalize accesses to memory with vectors that convert-vector-to-llvm lowers wrongly or not at all.

An element of `memref<?xi1>` takes a byte and one of `memref<?xi24>` four, as memref.load reads them, but LLVM packs the
elements of a vector in memory. Vectors of such types are extended to whole words in registers, and loaded and stored
as these. The cast between memrefs disappears, because their lowered types are equal.
"""

from __future__ import annotations

from collections.abc import Callable

from mlir_offload.translate.host.launch import element_bytes
from mlir_offload.translate.legalize.arith import constant, convert
from mlir_offload.translate.legalize.elements import element_of, with_element
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.syntax import Shaped, float_width, integer_width, parse_shaped

_MATRIX_RANK = 2
_BYTE = 8
# The last operand is the vector that is stored, or has the elements that are not loaded.
_MASKED = frozenset(
    f"vector.{name}" for name in ("maskedload", "maskedstore", "expandload", "compressstore")
)
_READ, _WRITE = "vector.transfer_read", "vector.transfer_write"
_AFFINE_LOAD, _AFFINE_STORE = "affine.vector_load", "affine.vector_store"
_STORED = frozenset({"vector.store", _WRITE, _AFFINE_STORE})
# The operations whose pattern is `access`.
ACCESSES = (*sorted(_MASKED), _READ, _WRITE, _AFFINE_LOAD, _AFFINE_STORE)
_SEGMENTS = "operandSegmentSizes"


def load(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Replace a load of a multidimensional vector by vector.transfer_read, which convert-vector-to-scf unrolls."""
    _by_words(rewriter, operation, _load)


def store(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Replace a store of a multidimensional vector by vector.transfer_write."""
    _by_words(rewriter, operation, _store)


def access(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Make an access to elements that are smaller than their place in memory one to whole words."""
    _by_words(rewriter, operation, DeviceRewriter.insert)


def _by_words(
    rewriter: DeviceRewriter,
    operation: Operation,
    insert: Callable[[DeviceRewriter, Operation], object],
) -> None:
    """Insert an access by `insert`, with words in place of smaller elements."""
    given = operation.operands
    memory = next((value for value in given if value.type.startswith("memref<")), None)
    element = _element(memory.type) if memory else ""
    word = _word(element)
    if memory is None or not word:
        insert(rewriter, operation)
        return
    words = operation.copy_without_regions()
    extended = _stored_value(operation)
    words.operands = [
        rewriter.value(
            "builtin.unrealized_conversion_cast", (one,), _with_memory_element(one.type, word)
        )
        if one == memory
        else _converted(rewriter, "extui", one, word)
        if place == extended
        else one
        for place, one in enumerate(given)
    ]
    words.result_text = rewriter.fresh_name() if operation.result_text else ""
    words.signature.result_types = [with_element(kind, word) for kind in operation.result_types]
    insert(rewriter, words)
    found = [_converted(rewriter, "trunci", one, element) for one in words.results]
    rewriter.replace(operation, found)


def _stored_value(operation: Operation) -> int:
    """Return the place of the operand with numbers of the element type, -1 if there is none."""
    if operation.name in _STORED:
        return 0
    last = len(operation.operands) - 1
    if operation.name == _READ:
        return last - operation.attribute(_SEGMENTS).integers[-1]
    return last if operation.name in _MASKED else -1


def _word(element: str) -> str:
    """Return the integer type of the place of an element in memory, "" if the element fills it."""
    bits = integer_width(element) or float_width(element)
    word = _BYTE * element_bytes(element) if bits else 0
    return f"i{word}" if bits < word else ""


def _converted(rewriter: DeviceRewriter, name: str, value: Value, element: str) -> Value:
    """Extend numbers to words, or truncate words to a type."""
    number = element_of(value.type) if name == "extui" else element
    if not float_width(number):
        return convert(rewriter, name, value, with_element(value.type, element))
    bits = f"i{float_width(number)}"
    if name == "extui":
        value = convert(rewriter, "bitcast", value, with_element(value.type, bits))
        return convert(rewriter, name, value, with_element(value.type, element))
    value = convert(rewriter, name, value, with_element(value.type, bits))
    return convert(rewriter, "bitcast", value, with_element(value.type, element))


def _element(kind: str) -> str:
    memref = parse_shaped(kind, "memref")
    return memref.element if memref else ""


def _with_memory_element(kind: str, element: str) -> str:
    memref = parse_shaped(kind, "memref")
    if memref is None:
        return kind
    sizes = "".join(f"{'?' if size is None else size}x" for size in memref.sizes)
    return f"memref<{', '.join((f'{sizes}{element}', *memref.parameters))}>"


def _load(rewriter: DeviceRewriter, operation: Operation) -> None:
    kind = operation.result_types[0]
    matrix = _matrix(kind, operation.operand_types[0])
    if matrix is None:
        rewriter.insert(operation)
        return
    # The operation requires a padding value, although no element is out of bounds.
    padding = constant(rewriter, "0.0" if float_width(matrix.element) else "0", matrix.element)
    rank = len(operation.operands) - 1
    operands = (*operation.operands, padding)
    properties = _properties(rank, matrix, (1, rank, 1, 0))
    rewriter.replace(operation, [rewriter.value(_READ, operands, kind, properties)])


def _store(rewriter: DeviceRewriter, operation: Operation) -> None:
    matrix = _matrix(*operation.operand_types[:2])
    if matrix is None:
        rewriter.insert(operation)
        return
    rank = len(operation.operands) - 2
    properties = _properties(rank, matrix, (1, 1, rank, 0))
    rewriter.create(_WRITE, operation.operands, (), properties)


def _matrix(kind: str, memory: str) -> Shaped | None:
    """Return the multidimensional vector, None for other vectors and for memrefs of vectors."""
    vector, memref = parse_shaped(kind, "vector"), parse_shaped(memory, "memref")
    if vector is None or memref is None or len(vector.sizes) < _MATRIX_RANK:
        return None
    return vector if vector.element == memref.element else None


def _properties(rank: int, matrix: Shaped, segments: tuple[int, ...]) -> dict[str, str]:
    count = len(matrix.sizes)
    dimensions = [f"d{number}" for number in range(rank)]
    return {
        "in_bounds": f"[{', '.join(['true'] * count)}]",
        _SEGMENTS: f"array<i32: {', '.join(map(str, segments))}>",
        "permutation_map": f"affine_map<({', '.join(dimensions)}) -> ({', '.join(dimensions[-count:])})>",
    }
