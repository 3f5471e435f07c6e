"""Forms of the dialect's documentation that stock passes refuse, in the form that they take."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from mlir_offload.translate.mlir_syntax import MLIR
from mlir_offload.translate.mlir_text import Operation, parse_operation

_MEMREF = re.compile(r"\bmemref<")
_PRIVATE_NUMBERS = (", 5", ", 5 : i32", ", 5 : i64")
_PRIVATE = ", #gpu.address_space<private>"
_GLOBAL_NUMBERS = (", 1", ", 1 : i32", ", 1 : i64", ", #gpu.address_space<global>")
_REDUCTION = '"gpu.all_reduce"('
_UNIFORM = re.compile(r"<\{[^}]*\buniform\b")
_ARGUMENT = re.compile(r"%[\w$.-]+(?=:)")
_KERNEL = "gpu.func"
# Equal for all threads of a block; with them, what is computed of such values alone.
_EQUAL = frozenset(
    (
        *(
            "gpu.block_id",
            "gpu.block_dim",
            "gpu.grid_dim",
            "gpu.subgroup_size",
            "gpu.num_subgroups",
        ),
        *("arith.constant", "memref.dim"),
    )
)
_COMPUTED = re.compile(r"arith\.(?!constant)\w+|affine\.(?:apply|min|max)")


def with_documented_forms(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines of a `gpu.module` in the forms that have a lowering."""
    named = [_with_space(line, _PRIVATE_NUMBERS, _PRIVATE) for line in lines]
    return tuple(_with_uniform_reductions(named))


def without_global_space(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines of the host, to which global memory of a device is memory as any other."""
    return tuple(_with_space(line, _GLOBAL_NUMBERS, "") for line in lines)


def _with_space(line: str, spaces: Sequence[str], other: str) -> str:
    """Return a line whose memrefs in one of the spaces are in the other."""
    if "memref<" not in line or not any(space in line for space in spaces):
        return line
    for match in reversed(list(_MEMREF.finditer(MLIR.blanked(line)))):
        end = MLIR.closing(line, match.end() - 1)
        space = next((space for space in spaces if line[:end].endswith(space)), None)
        if space is not None:
            line = f"{line[: end - len(space)]}{other}{line[end:]}"
    return line


def _with_uniform_reductions(lines: Sequence[str]) -> Iterator[str]:
    """Mark each gpu.all_reduce that every thread of the block reaches because no branch is before it.

    It is in the entry block of a kernel, or in loops of it whose bounds are equal for all threads.
    """
    if not any(_REDUCTION in line for line in lines):
        yield from lines
        return
    flow = _Flow()
    for line in lines:
        operation = flow.enter(line)
        is_reduction = operation is not None and operation.name == "gpu.all_reduce"
        yield _marked(line) if is_reduction and flow.is_reached(line) else line


class _Flow(Struct):
    """Where all threads of a block are: the regions around a line, and values that all have alike.

    `regions` are the indentations of the operations whose regions all threads run through.
    """

    regions: list[int] = field(default_factory=list)
    equal: set[str] = field(default_factory=set)
    opened: str = ""

    def is_reached(self, line: str) -> bool:
        """Say whether all threads reach the operation on this line."""
        return bool(self.regions) and _indent(line) == self.regions[-1] + 2

    def enter(self, line: str) -> Operation | None:
        """Follow the flow to a line; return the operation that begins there."""
        operation = parse_operation(line)
        opened, self.opened = self.opened, ""
        if operation is None:
            self._enter_block(line, opened)
            return None
        while self.regions and operation.indent <= self.regions[-1]:
            self.regions.pop()
        self._note(operation)
        is_loop = operation.name == "scf.for" and self.equal.issuperset(operation.operands[:3])
        if operation.name == _KERNEL or (is_loop and self.is_reached(line)):
            self.regions.append(operation.indent)
            self.opened = operation.name
        return operation

    def _enter_block(self, line: str, opened: str) -> None:
        label = line.lstrip()
        if opened and label.startswith("^bb0("):
            # All threads have the same parameters, and count the same rounds of a loop.
            names = _ARGUMENT.findall(MLIR.blanked(label))
            self.equal.update(names if opened == _KERNEL else names[:1])
        elif not opened or label.startswith(("^", "}")):
            while self.regions and _indent(line) <= self.regions[-1]:
                self.regions.pop()

    def _note(self, operation: Operation) -> None:
        is_equal = operation.name in _EQUAL or _COMPUTED.fullmatch(operation.name)
        if is_equal and self.equal.issuperset(operation.operands):
            self.equal.add(operation.results)
        else:
            self.equal.discard(operation.results)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _marked(line: str) -> str:
    if _UNIFORM.search(MLIR.blanked(line)):
        return line
    if " <{" in line:
        return line.replace(" <{", " <{uniform, ", 1)
    return line.replace(") ({", ") <{uniform}> ({", 1)
