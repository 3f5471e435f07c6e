"""The entry point of a kernel: its launch function, its arguments, the context of a thread."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from mlir_offload.translate.cpu.text import Function, c_string, first_type, symbol

KERNEL_TYPE = "%mo.kernel = type { ptr, ptr, ptr, i64 }"
_FIBERS = "mo_cpu_run_fibers"
_AXES = "xyz"
_BLOCK_DIM = 2
# Fields of %mo.thread that all threads of a block share.
_TRIPLES = ((_BLOCK_DIM, "block_dim"), (3, "block_id"), (4, "grid_dim"))
_POINTERS = ((5, "static"), (6, "dynamic"), (7, "group"))


class KernelMode(Enum):
    """How the threads of a block are run."""

    LOOPS = "loops"
    FIBERS = "fibers"
    STRIPS = "strips"


class Metadata(Struct, frozen=True):
    """What generated functions carry: attributes, references like `, !dbg !7`, or nothing.

    `lines` are references to places in the generated function, one for each line of the kernel.
    """

    attributes: str = ""
    subprogram: str = ""
    location: str = ""
    access_group: str = ""
    loop: str = ""
    lines: tuple[str, ...] = ()


def thread_function_name(kernel: str) -> str:
    """Return the name of the function that one thread runs."""
    return f"{kernel}.item"


def run_name(kernel: str) -> str:
    """Return the name of the function behind mo_kernel.run."""
    return f"{kernel}.run"


def launch_definition(kernel: str, mode: KernelMode, *, shared_bytes: int) -> str:
    """Return the exported function and the constant that describes the kernel to the runtime."""
    described, name = symbol(f"{kernel}.kernel"), symbol(f"{kernel}.name")
    run_range = f"@{_FIBERS}" if mode is KernelMode.FIBERS else "@mo_cpu_run_blocks"
    run = symbol(run_name(kernel))
    fields = f"ptr {name}, ptr {run}, ptr {run_range}, i64 {shared_bytes}"
    return "\n".join(
        (
            f"{name} = internal constant {c_string(kernel)}",
            f"{described} = internal constant %mo.kernel {{ {fields} }}, align 8",
            f"define void {symbol(kernel)}(ptr %launch, ptr %params) nounwind {{",
            f"  call void @mo_cpu_launch(ptr %launch, ptr %params, ptr {described})",
            "  ret void",
            "}",
        )
    )


def runs_fibers(module: bytes) -> bool:
    """Say whether a kernel of a finished module runs on fibers."""
    return f", ptr @{_FIBERS}, i64 ".encode() in module


def fiber_definition(kernel: str, item: Function, metadata: Metadata) -> str:
    """Return mo_kernel.run for a kernel whose threads are fibers: one thread."""
    loads, arguments = load_arguments(item.parameters[1:])
    call = f"  call void {symbol(item.name)}({', '.join(('ptr %item', *arguments))}){metadata.location}"
    head = run_head(run_name(kernel), "%item", metadata)
    return "\n".join((head, *loads, call, "  ret void", "}"))


def strips_definition(kernel: str, run: Function, metadata: Metadata) -> str:
    """Return mo_kernel.run for a kernel of which another function runs a block."""
    head = run_head(run_name(kernel), "%block", metadata)
    call = f"  call void {symbol(run.name)}(ptr %block, ptr %params){metadata.location}"
    return f"{head}\n{call}\n  ret void\n}}"


def run_head(name: str, context: str, metadata: Metadata) -> str:
    """Return the first line of a function as mo_kernel.run is one."""
    signature = f"{symbol(name)}(ptr {context}, ptr %params)"
    return f"define internal void {signature} nounwind{metadata.attributes}{metadata.subprogram} {{"


def load_arguments(parameters: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the loads from `params` and the operands of the call."""
    loads: list[str] = []
    operands: list[str] = []
    for index, parameter in enumerate(parameters):
        type_ = first_type(parameter)
        loads.append(f"  %p{index}.slot = getelementptr inbounds ptr, ptr %params, i64 {index}")
        loads.append(f"  %p{index}.at = load ptr, ptr %p{index}.slot, align 8")
        if "byval(" in parameter:
            operands.append(f"{parameter.rsplit(' ', 1)[0]} %p{index}.at")
            continue
        loads.append(f"  %p{index} = load {type_}, ptr %p{index}.at")
        operands.append(f"{type_} %p{index}")
    return tuple(loads), tuple(operands)


def copy_block() -> tuple[str, ...]:
    """Return the allocation of the thread's context, filled with what the block shares."""
    lines = ["  %item = alloca %mo.thread, align 8"]
    for number, name in _TRIPLES:
        for axis in range(3):
            # Sizes of 1 to 1024 let 32-bit ids be widened without a check for overflow.
            bounds = ", !range !{i32 1, i32 1025}" if number == _BLOCK_DIM else ""
            lines += _copy(f"{name}.{_AXES[axis]}", "i32", f"i32 {number}, i32 {axis}", bounds)
    for number, name in _POINTERS:
        lines += _copy(name, "ptr", f"i32 {number}", "")
    return tuple(lines)


def _copy(name: str, type_: str, place: str, suffix: str) -> list[str]:
    return [
        f"  %{name}.from = getelementptr inbounds %mo.thread, ptr %block, i32 0, {place}",
        f"  %{name} = load {type_}, ptr %{name}.from, align {4 if type_ == 'i32' else 8}{suffix}",
    ]


def fill_thread_context() -> tuple[str, ...]:
    """Return the stores that fill `%item` for one thread, innermost so that SROA dissolves it."""
    lines: list[str] = []

    def store(place: str, type_: str, value: str) -> None:
        slot = f"%slot{len(lines) // 2}"
        lines.append(f"  {slot} = getelementptr inbounds %mo.thread, ptr %item, i32 0, {place}")
        lines.append(f"  store {type_} {value}, ptr {slot}, align {4 if type_ == 'i32' else 8}")

    for axis in range(3):
        store(f"i32 0, i32 {axis}", "i32", f"%{_AXES[axis]}")
    store("i32 1", "i32", "%linear")
    for number, name in _TRIPLES:
        for axis in range(3):
            store(f"i32 {number}, i32 {axis}", "i32", f"%{name}.{_AXES[axis]}")
    for number, name in _POINTERS:
        store(f"i32 {number}", "ptr", f"%{name}")
    return tuple(lines)
