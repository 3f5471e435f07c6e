"""Collapse kernels: choose strips or rows, run the preparing passes, write the block function."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from msgspec import Struct

from mlir_offload.toolchain.llvmc.builder import Builder
from mlir_offload.toolchain.llvmc.code import Opcode, RmwUpdate
from mlir_offload.toolchain.llvmc.ir import Function, Value
from mlir_offload.toolchain.llvmc.module import Module
from mlir_offload.toolchain.llvmc.target import run_passes
from mlir_offload.translate.cpu.collapse.bound import add_barriers
from mlir_offload.translate.cpu.collapse.exchange import Exchanges
from mlir_offload.translate.cpu.collapse.frame import Frame
from mlir_offload.translate.cpu.collapse.piece import (
    CannotCollapseError,
    Graph,
    Piece,
    condition_of,
    is_meeting,
)
from mlir_offload.translate.cpu.collapse.place import LARGEST_BLOCK, SUBGROUP, BlockPlace
from mlir_offload.translate.cpu.collapse.row import RowWriter
from mlir_offload.translate.cpu.collapse.shape import Geometry, Shapes
from mlir_offload.translate.cpu.collapse.writer import StripWriter

# After these passes, loops are in simplified form and LCSSA form, and calls that can be inlined are.
_INLINE = "always-inline,function(sroa,early-cse,simplifycfg)"
_SIMPLIFY = "instcombine<no-verify-fixpoint>,simplifycfg<no-switch-to-lookup>"
_PREPARE = (
    f"function({_SIMPLIFY},loop-simplify,lcssa,loop-mssa(licm),loop(loop-rotate),{_SIMPLIFY},"
    "lower-switch,mergereturn,loop-simplify,lcssa)"
)
_PLAIN_RUNTIME = frozenset(
    ("mo_cpu_assertfail", "mo_cpu_copy_part", "mo_cpu_nanoseconds", "mo_cpu_vprintf")
)
# See translate/cpu/foreign.py.
_WAITING_ELSEWHERE = "mo.device.convergent."
_PRINT = "mo_cpu_vprintf"
_WAITS = "a loop may wait for another thread of the strip"
_OTHER_AXES = frozenset(("tid.y", "tid.z"))
_ITEM = ".item"
_LANES = 32
# The length of a row in a small two-dimensional block.
_LANES_OF_A_TILE = 16
# Each strip executes the loops of the kernel by itself. Serial code does not gain from vectors, but a
# strip of 64 threads loads more adjacent memory at a time.
_LANES_OF_SERIAL_CODE = 64
_ROWS_OF_ANY_WIDTH = Geometry(LARGEST_BLOCK, is_row=True, is_whole_row=True, is_any_width=True)
_KEPT_ATTRIBUTES = ("sanitize_address", "sanitize_memory")


class Outcome(Struct, frozen=True):
    """The result for a kernel: whether it was collapsed over strips, and the reason."""

    kernel: str
    is_collapsed: bool
    reason: str
    line: int = 0


class _Code(Enum):
    """The versions that are written for a kernel: for strips of threads, for rows, or for both."""

    STRIPS = "strips"
    STRIPS_AND_ROWS = "strips and rows"
    ROWS = "rows"
    ROWS_ONLY = "rows only"


class _Plan(Struct, frozen=True):
    """The versions that are written for a kernel, and the reason.

    The code is `ROWS_ONLY` if strips cannot execute the kernel, and `STRIPS` if rows cannot.
    """

    code: _Code
    reason: str


def collapse_module(
    module: Module, kernels: Sequence[str], lanes: int | None = None
) -> list[Outcome]:
    """Replace the thread function `KERNEL.item` by the block function `KERNEL.run`, for kernels that permit it.

    `lanes` (16, 32 or 64) is the length of strips, unless a subgroup operation requires 32. With LARGEST_BLOCK,
    kernels with versions for strips and rows are written for rows only.
    """
    run_passes(module, _INLINE)
    waiting = _waiting_functions(module)
    chosen: list[tuple[str, _Plan]] = []
    outcomes: dict[str, Outcome] = {}
    others: list[Function] = []
    for kernel in kernels:
        item = module.function(f"{kernel}{_ITEM}")
        if item is None:
            continue
        try:
            chosen.append((kernel, _plan(item, module, waiting)))
        except CannotCollapseError as error:
            outcomes[kernel] = Outcome(
                kernel, is_collapsed=False, reason=str(error), line=_line(item)
            )
            others.append(item)
    if chosen:
        _prepare(module, others)
    for kernel, plan in chosen:
        outcomes[kernel] = _collapse(module, kernel, plan, lanes)
    run_passes(module, "function(instnamer)")
    module.verify()
    return [outcomes[kernel] for kernel in kernels if kernel in outcomes]


def _prepare(module: Module, others: Sequence[Function]) -> None:
    """Run the preparing passes on all functions except `others`."""
    for function in others:
        function.add_attribute("noinline")
        function.add_attribute("optnone")
    run_passes(module, _PREPARE)
    for function in others:
        function.remove_attribute("optnone")
        function.remove_attribute("noinline")


def _line(function: Function) -> int:
    found = function.subprogram
    return function.context.library.call("DISubprogramGetLine", found) if found else 0


def _plan(item: Function, module: Module, waiting: frozenset[str]) -> _Plan:
    """Choose the versions of a kernel. Raises CannotCollapseError if only fibers can run it."""
    if any(name in waiting or _needs_fibers(name) for name in _callees(item)):
        msg = "it calls a function that waits for other threads"
        raise CannotCollapseError(msg)
    graph = Graph(item)
    shapes = Shapes(graph, module, Geometry(SUBGROUP, is_row=True))
    may_wait = any(_may_wait(graph, shapes, body) for body in graph.loops.values())
    has_subgroups = any(piece.collective is not None for piece in graph.order)
    if has_subgroups or _leaves_early(graph, shapes):
        if may_wait:
            raise CannotCollapseError(_WAITS)
        reason = "it has subgroup operations" if has_subgroups else "threads leave before a barrier"
        return _Plan(_Code.STRIPS, reason)
    if may_wait:
        return _Plan(_Code.ROWS_ONLY, _WAITS)
    reason = _reason_for_rows(item, graph, shapes)
    if reason:
        return _Plan(_Code.ROWS, reason)
    if Exchanges(graph, shapes, module).found:
        return _Plan(_Code.STRIPS_AND_ROWS, "its threads exchange adjacent elements")
    return _plan_by_loops(graph, shapes)


def _reason_for_rows(item: Function, graph: Graph, shapes: Shapes) -> str:
    """Return the reason to write a kernel for rows, whatever it loads and stores; empty if there is none."""
    if item.subprogram:
        return "a debugger stops in the loops over threads"
    if _PRINT in _callees(item):
        return "it prints, one thread after the other"
    if any(not _is_shared(graph, shapes, body) for body in graph.loops.values()):
        return "the number of iterations of a loop differs between threads"
    return ""


def _plan_by_loops(graph: Graph, shapes: Shapes) -> _Plan:
    if not graph.loops:
        return _Plan(_Code.ROWS, "the loop over threads is vectorized as it is")
    has_barriers = [any(p.is_barrier for p in body) for body in graph.loops.values()]
    if all(has_barriers) and not _has_nested_branches(graph, shapes):
        reason = "the loops over threads between barriers are vectorized as they are"
        return _Plan(_Code.ROWS, reason)
    if not all(has_barriers):
        return _Plan(_Code.STRIPS_AND_ROWS, "it has loops whose iterations all threads share")
    return _Plan(_Code.STRIPS_AND_ROWS, "it has nested divergent branches")


def _leaves_early(graph: Graph, shapes: Shapes) -> bool:
    barriers = [piece for piece in graph.order if piece.is_barrier]
    return any(
        barrier in region.pieces for region in shapes.branches.values() for barrier in barriers
    )


def _is_shared(graph: Graph, shapes: Shapes, body: set[Piece]) -> bool:
    """Return whether all threads execute the same number of iterations of a loop."""
    return all(
        shapes.is_uniform(condition_of(piece))
        for piece in graph.order
        if piece in body and any(after not in body for after in piece.successors)
    )


def _may_wait(graph: Graph, shapes: Shapes, body: set[Piece]) -> bool:
    """Return whether a loop with a divergent exit may take a lock or wait for a flag.

    In masked code, the threads of the strip that have left the loop would never execute the code that ends the wait.
    """
    return not _is_shared(graph, shapes, body) and any(
        instruction.opcode == Opcode.CMPXCHG
        or (instruction.opcode == Opcode.RMW and instruction.update == RmwUpdate.EXCHANGE)
        or (
            instruction.opcode == Opcode.LOAD
            and (instruction.is_atomic or instruction.flag("Volatile"))
        )
        for piece in graph.order
        if piece in body
        for instruction in piece.instructions
    )


def _has_nested_branches(graph: Graph, shapes: Shapes) -> bool:
    branches = shapes.branches
    return any(
        inner in region.pieces
        for branch, region in branches.items()
        for inner in branches
        if inner is not branch
    ) and bool(graph.loops)


def _callees(function: Function) -> set[str]:
    """Return the names of the functions that a function calls; the name is empty for an indirect call."""
    return {
        instruction.callee
        for block in function.blocks
        for instruction in block.instructions
        if instruction.opcode == Opcode.CALL
    }


def _needs_fibers(name: str) -> bool:
    """Return whether a function of the runtime or of another file synchronizes with other threads."""
    if name.startswith(_WAITING_ELSEWHERE):
        return True
    return name.startswith("mo_cpu_") and name not in _PLAIN_RUNTIME


def _waiting_functions(module: Module) -> frozenset[str]:
    """Return the functions, except kernels, that may synchronize with other threads; indirect calls may."""
    calls = {
        function.name: _callees(function)
        for function in module.functions
        if not function.is_declaration and not function.name.endswith(_ITEM)
    }
    waiting = {""}
    while True:
        callers = {
            name
            for name, called in calls.items()
            if called & waiting or any(is_meeting(n) or _needs_fibers(n) for n in called)
        }
        if callers <= waiting:
            return frozenset(waiting)
        waiting |= callers


def _collapse(module: Module, kernel: str, plan: _Plan, lanes: int | None) -> Outcome:
    item = module.function(f"{kernel}{_ITEM}")
    if item is None:
        msg = f"{kernel}.item is gone"
        raise ValueError(msg)
    line, code = _line(item), plan.code
    if lanes == LARGEST_BLOCK and code is _Code.STRIPS_AND_ROWS:
        code = _Code.ROWS
    try:
        try:
            _write_run(module, kernel, item, lanes, code)
        except CannotCollapseError:
            if code in (_Code.STRIPS, _Code.ROWS_ONLY):
                raise
            _delete(module, kernel)
            _write_run(module, kernel, item, lanes, _Code.STRIPS)
    except CannotCollapseError as error:
        _delete(module, kernel)
        return Outcome(kernel, is_collapsed=False, reason=str(error), line=line)
    item.delete()
    is_collapsed = code in (_Code.STRIPS, _Code.STRIPS_AND_ROWS)
    return Outcome(kernel, is_collapsed, plan.reason, line)


def _delete(module: Module, kernel: str) -> None:
    """Delete the incomplete functions of a kernel."""
    for name in ("run", "rest"):
        left = module.function(f"{kernel}.{name}")
        if left is not None:
            left.delete()


def _write_run(module: Module, kernel: str, item: Function, lanes: int | None, code: _Code) -> None:
    graph, name = Graph(item), f"{kernel}.run"
    add_barriers(graph)
    if code in (_Code.ROWS, _Code.ROWS_ONLY):
        _write_function(module, name, item, graph, [_ROWS_OF_ANY_WIDTH])
        return
    strips = _strips(graph, lanes)
    if code is _Code.STRIPS:
        Exchanges(graph, Shapes(graph, module, strips[0]), module).isolate()
        others = Geometry(strips[-1].lanes, is_row=False)
        _write_function(module, name, item, graph, [*strips, others])
        return
    # In a separate function, the code for rows does not take registers from the code for strips.
    rest = _write_function(module, f"{kernel}.rest", item, graph, [_ROWS_OF_ANY_WIDTH])
    rest.add_attribute("noinline")
    Exchanges(graph, Shapes(graph, module, strips[0]), module).isolate()
    _write_function(module, name, item, graph, strips, rest)


def _write_function(
    module: Module,
    name: str,
    item: Function,
    graph: Graph,
    geometries: Sequence[Geometry],
    others: Function | None = None,
) -> Function:
    """Write a block function; it calls `others` for blocks whose rows are not divisible into strips."""
    context = module.context
    type_ = context.function_type(context.void, [context.pointer, context.pointer])
    run = module.declare(name, type_)
    run.make_internal()
    run.add_attribute("nounwind")
    for attribute in _KEPT_ATTRIBUTES:
        if item.has_attribute(attribute):
            run.add_attribute(attribute)
    with Builder(context) as b, Builder(context) as entry:
        frame = Frame(module, run, b, entry)
        begin, done = run.append_block("begin"), run.append_block("done")
        b.go(begin)
        block, params = run.parameters
        place = BlockPlace(frame, block)
        arguments = {item.parameters[0]: place.item} | _load_arguments(frame, item, params)
        if item.subprogram:
            _mark_lines(b, graph)
        for geometry in geometries:
            here = b.block
            writer = RowWriter if geometry.is_any_width else StripWriter
            shapes = Shapes(graph, module, geometry)
            first = writer(frame, graph, shapes, geometry, place, arguments).write(done)
            b.go(here)
            if others is None and geometry is geometries[-1]:
                b.jump(first)
            else:
                rest = run.append_block("others")
                b.branch(place.is_made_of(geometry), first, rest)
                b.go(rest)
        if others is not None:
            b.call(others, [block, params])
            b.jump(done)
        b.go(done)
        b.ret()
        entry.jump(begin)
    if item.subprogram:
        run.set_subprogram(item.subprogram)
    return run


def _mark_lines(b: Builder, graph: Graph) -> None:
    """Append an instruction for each line of the kernel, at which gdb stops once for each block.

    The code of the segments has several copies of a line; gdb would stop at one that may not run.
    """
    library, seen = b.context.library, set[int]()
    for piece in graph.order:
        for instruction in (*piece.instructions, piece.collective, piece.terminator):
            place = instruction.location if instruction is not None else 0
            line = library.call("DILocationGetLine", place) if place else 0
            if line and line not in seen:
                seen.add(line)
                b.mark_line(place)


def _strips(graph: Graph, lanes: int | None) -> tuple[Geometry, ...]:
    """Return the geometries that divide rows into strips, in the order of preference."""
    if any(piece.collective is not None for piece in graph.order):
        return (Geometry(SUBGROUP, is_row=True),)
    if lanes not in (None, LARGEST_BLOCK):
        return (Geometry(lanes, is_row=True),)
    if not graph.registers.isdisjoint(_OTHER_AXES):
        return (
            Geometry(_LANES_OF_A_TILE, is_row=True, is_whole_row=True),
            Geometry(_LANES_OF_A_TILE, is_row=True),
        )
    if any(piece.is_serial for body in graph.loops.values() for piece in body):
        return Geometry(_LANES_OF_SERIAL_CODE, is_row=True), Geometry(_LANES, is_row=True)
    return (Geometry(_LANES, is_row=True),)


def _load_arguments(frame: Frame, item: Function, params: Value) -> dict[Value, Value]:
    found: dict[Value, Value] = {}
    for number, parameter in enumerate(item.parameters[1:]):
        b = frame.b
        slot = b.offset(frame.pointer, params, frame.number(number, frame.i64))
        address = b.load(frame.pointer, slot, align=8)
        is_copy = item.has_attribute("byval", parameter=number + 1)
        found[parameter] = address if is_copy else b.load(parameter.type, address)
    return found
