"""Resolve casts and dimensions that are left if only some passes use a 32-bit `index` in kernels.

convert-vector-to-llvm has no option for the width and uses 64 bits, next to operations that were lowered with 32. For
the sizes of blocks and grids on AMD GPUs, mlir-translate 19 and 22 call functions that return 64 bits, whatever the
type of the operation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from mlir_offload.translate.kernel import Place, position_of
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.rewriter import Rewriter
from mlir_offload.translate.mlir.syntax import MLIR, integer_width, parse_shaped

CAST = "builtin.unrealized_conversion_cast"
_STRUCT, _ARRAY = "!llvm.struct<(", "array<"
_DIMENSIONS = frozenset(
    f"rocdl.{of}.dim.{dimension}" for of in ("grid", "workgroup") for dimension in "xyz"
)
_RETURNED = "i64"


def resolve_casts(functions: Iterable[Operation]) -> None:
    """Replace pairs of casts between two lowered forms of one type. Integers are signed, like `index`."""
    rewriter = Rewriter("%mo_cast_")
    for function in functions:
        sources = _sources(function)
        for region in function.regions if sources else ():
            rewriter.rewrite(region, partial(_pattern, sources))


def _sources(function: Operation) -> dict[str, Value]:
    """Return the source of each cast whose result is used only by casts that can be replaced."""
    inside = function.walk_inside()
    users: dict[str, list[Operation]] = defaultdict(list)
    for one in inside:
        for name in one.operand_names:
            users[name].append(one)
    return {
        cast.result_text: cast.operands[0]
        for cast in inside
        if _is_single(cast) and users[cast.result_text]
        if all(
            _is_single(user) and _can_convert(cast.operand_types[0], user.result_types[0])
            for user in users[cast.result_text]
        )
    }


def _is_single(cast: Operation) -> bool:
    return cast.name == CAST and len(cast.operand_types) == len(cast.result_types) == 1


def _pattern(
    sources: Mapping[str, Value], operation: Operation
) -> Callable[[Rewriter, Operation], None] | None:
    if operation.name != CAST:
        return None
    if operation.result_text in sources:
        return _drop
    given = sources.get(operation.operand_text)
    return partial(_replace, given) if given else None


def _drop(_rewriter: Rewriter, _cast: Operation) -> None:
    """Remove the first cast of a pair."""


def _replace(given: Value, rewriter: Rewriter, cast: Operation) -> None:
    rewriter.replace(cast, (_converted(rewriter, given, cast.result_types[0]),))


def _can_convert(given: str, wanted: str) -> bool:
    if given.startswith(_STRUCT) and wanted.startswith(_STRUCT):
        pairs = list(zip(_members(given), _members(wanted), strict=False))
        is_alike = len(list(_members(given))) == len(list(_members(wanted))) == len(pairs)
        return is_alike and all(
            here == there and (kind == other or _can_convert(kind, other))
            for (here, kind), (there, other) in pairs
        )
    return bool(_width(given) and _width(wanted))


def _converted(rewriter: Rewriter, given: Value, wanted: str) -> Value:
    if not wanted.startswith(_STRUCT):
        operation = "llvm.sext" if _width(wanted) > _width(given.type) else "llvm.trunc"
        return rewriter.value(operation, (given,), wanted)
    made = rewriter.value("llvm.mlir.undef", (), wanted)
    for (place, kind), (_, other) in zip(_members(given.type), _members(wanted), strict=True):
        part = rewriter.value("llvm.extractvalue", (given,), kind, position_of(place))
        part = part if kind == other else _converted(rewriter, part, other)
        made = rewriter.value("llvm.insertvalue", (made, part), wanted, position_of(place))
    return made


def _width(kind: str) -> int:
    """Return the width of an integer or of a vector's integer element in bits, 0 for another type."""
    vector = parse_shaped(kind, "vector")
    return integer_width(vector.element if vector else kind)


def _members(struct: str) -> Iterator[tuple[Place, str]]:
    """Yield the positions and types of the members of a descriptor: pointers and integers."""
    start = len(_STRUCT)
    for number, member in enumerate(
        MLIR.split_list(struct[start : MLIR.closing(struct, start - 1)])
    ):
        if member.startswith(_ARRAY):
            count, _, element = member.removeprefix(_ARRAY).removesuffix(">").partition(" x ")
            yield from (((number, index), element) for index in range(int(count)))
        else:
            yield (number,), f"!llvm.{member}" if member.startswith("ptr") else member


def widen_dimensions(functions: Iterable[Operation]) -> None:
    """Make dimension operations return the type of the called function, and truncate the result."""
    rewriter = Rewriter("%mo_dimension_")
    for function in functions:
        for region in function.regions:
            rewriter.rewrite(region, lambda one: _widen if _is_narrow(one) else None)


def _is_narrow(operation: Operation) -> bool:
    return operation.name in _DIMENSIONS and operation.result_types != [_RETURNED]


def _widen(rewriter: Rewriter, operation: Operation) -> None:
    wide = rewriter.value(operation.name, (), _RETURNED)
    narrow = rewriter.value("llvm.trunc", (wide,), operation.result_types[0])
    rewriter.replace(operation, (narrow,))
