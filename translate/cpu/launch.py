"""The kernel entry point: launch function, loads of the arguments, thread context."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from mlir_offload.translate.cpu.text import Function, c_string, first_type, symbol

KERNEL_TYPE = "%mo.kernel = type { ptr, ptr, ptr, i64 }"
_FIBERS = "mo_cpu_run_fibers"
_AXES = "xyz"
_BLOCK_DIM = 2
# Fields of %mo.thread that are uniform in a block.
_TRIPLES = ((_BLOCK_DIM, "block_dim"), (3, "block_id"), (4, "grid_dim"))
_POINTERS = ((5, "static"), (6, "dynamic"), (7, "group"))


class KernelMode(Enum):
    """How the threads of a block are executed.

    `LOOPS`: loops around the thread function. `FIBERS`: each thread on its own fiber. `STRIPS`: the block
    function that the collapse emits.
    """

    LOOPS = "loops"
    FIBERS = "fibers"
    STRIPS = "strips"


class Metadata(Struct, frozen=True):
    """Attributes and metadata attachments (such as `, !dbg !7`) of a generated function; each may be empty.

    `lines` are attached debug locations in the generated function, one for each line of the kernel.
    """

    attributes: str = ""
    subprogram: str = ""
    location: str = ""
    access_group: str = ""
    loop: str = ""
    lines: tuple[str, ...] = ()


def thread_function_name(kernel: str) -> str:
    """Return the name of the thread function of a kernel, which executes one thread."""
    return f"{kernel}.item"


def run_name(kernel: str) -> str:
    """Return the name of the function to which `mo_kernel.run` points."""
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
    """Return whether a kernel of a finished module runs on fibers."""
    return f", ptr @{_FIBERS}, i64 ".encode() in module


def fiber_definition(kernel: str, item: Function, metadata: Metadata) -> str:
    """Return the `mo_kernel.run` function of a kernel that runs on fibers: it executes one thread."""
    loads, arguments = load_arguments(item.parameters[1:])
    call = f"  call void {symbol(item.name)}({', '.join(('ptr %item', *arguments))}){metadata.location}"
    head = run_head(run_name(kernel), "%item", metadata)
    return "\n".join((head, *loads, call, "  ret void", "}"))


def strips_definition(kernel: str, run: Function, metadata: Metadata) -> str:
    """Return the `mo_kernel.run` function of a collapsed kernel: it calls the block function `run`."""
    head = run_head(run_name(kernel), "%block", metadata)
    call = f"  call void {symbol(run.name)}(ptr %block, ptr %params){metadata.location}"
    return f"{head}\n{call}\n  ret void\n}}"


def run_head(name: str, context: str, metadata: Metadata) -> str:
    """Return the first line of a function with the signature of `mo_kernel.run`."""
    signature = f"{symbol(name)}(ptr {context}, ptr %params)"
    return f"define internal void {signature} nounwind{metadata.attributes}{metadata.subprogram} {{"


def load_arguments(parameters: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the loads of the kernel arguments from `%params`, and the operands of the call."""
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
    """Return the allocation of the thread context, and the loads of its fields that are uniform in the block."""
    lines = ["  %item = alloca %mo.thread, align 8"]
    for number, name in _TRIPLES:
        for axis in range(3):
            # Because sizes are 1 to 1024, LLVM can widen 32-bit IDs without an overflow check.
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
    """Return the stores that initialize `%item` for one thread.

    They are in the innermost loop so that SROA removes the allocation.
    """
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
