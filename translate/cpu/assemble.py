"""Assemble a module for the CPU: device functions, kernel entry points, and the functions that they call."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.offload.ir_syntax import LLVM_IR, revealed, without_linkage
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.pattern import ir_line, ir_pattern, ir_words
from mlir_offload.translate.cpu.bfloat import library_support, without_bfloat
from mlir_offload.translate.cpu.debug_nodes import DebugNodes, with_retained_variables
from mlir_offload.translate.cpu.intrinsics import (
    ITEM_TYPE,
    RUNTIME_DECLARATIONS,
    find_replacement,
)
from mlir_offload.translate.cpu.launch import (
    KERNEL_TYPE,
    KernelMode,
    fiber_definition,
    launch_definition,
    run_name,
    strips_definition,
    thread_function_name,
)
from mlir_offload.translate.cpu.library import libm_attributes, vector_forms
from mlir_offload.translate.cpu.replacement import define
from mlir_offload.translate.cpu.rewrite import RewrittenModule, place_name
from mlir_offload.translate.cpu.run import loops_definition, with_noted_failures
from mlir_offload.translate.cpu.shared import without_address_spaces
from mlir_offload.translate.cpu.text import (
    DeviceModule,
    Function,
    c_string,
    symbol,
    without_location,
)
from mlir_offload.translate.device_ir import without_barrier_places

Support = tuple[tuple[str, str], ...]

_UNNAMED = ir_words("unnamed_addr", "local_unnamed_addr")
_TARGET_ATTRIBUTES = ir_pattern('"target-`cpu|features`"="`string`"` ?`')
_INLINE_HINDRANCES = ir_words("noinline", "optnone", "convergent")
_REFERENCE = ir_pattern("`global`")
_PARAMETER_NAME = ir_pattern(" `local`")
_NODE = ir_pattern("`node`")
_STORE, _LOAD = "  store ", " = load "
_NO_ATTRIBUTES = ir_pattern("{`indent`}`end`")
_DROPPED_METADATA = ("!nvvm.annotations", "!nvvmir.version")
# The collapse recognizes calls of these functions by name, therefore they stay declarations.
_DECLARED = ("mo.read.ptx.sreg.", "mo.static_shared", "mo.dynamic_shared")
_COLLECTIVE = tuple(
    f"mo.{name}" for name in ("shfl", "vote", "match", "redux", "bar.warp", "barrier")
)
_DEFINITION_HEAD = ir_line("define internal `signature:(``some`)`)` alwaysinline")
# The name that mlir-translate gives every module; without it, the image would contain a file name.
_SOURCE_NAME = 'source_filename = "LLVMDialectModule"'
_INLINED = ("alwaysinline", "nounwind")
_IDS_ARE_PURE = "nounwind willreturn speculatable memory(none)"


class CpuKernel(Struct, frozen=True):
    """A kernel of the image, and the mode in which its threads are executed."""

    name: str
    mode: KernelMode


def device_parts(
    module: DeviceModule,
    rewritten: RewrittenModule,
    kernels: Sequence[str],
    attributes: Sequence[str],
) -> tuple[DeviceModule, Support]:
    """Return the module with rewritten functions, and the definitions of the functions that they call."""
    device = replace(
        module,
        globals=(*_plain_globals(module, rewritten), *_aliases(rewritten), *_places(rewritten)),
        declarations=tuple(_declarations(module, rewritten)),
        functions=_name_items(rewritten, frozenset(kernels), tuple(attributes)),
        tail=tuple(with_retained_variables(_kept_metadata(module))),
    )
    definitions = [(r.name, r.definition) for r in rewritten.replacements if r.definition]
    called = [pair for r in rewritten.replacements for pair in r.called]
    return without_bfloat(device, (*definitions, *called, *_shared_definitions(rewritten)))


def prepared_text(device: DeviceModule, kernels: Sequence[str], support: Support) -> str:
    """Render the functions for the collapse.

    IDs, barriers and subgroup operations stay calls. Kernels are external, so that no pass removes them.
    """
    items = {thread_function_name(kernel) for kernel in kernels}
    functions = tuple(
        replace(
            function,
            head=function.head.replace("define internal ", "define ", 1).replace(
                " alwaysinline ", " "
            ),
        )
        if function.name in items
        else function
        for function in device.functions
    )
    declared = [
        _declaration(name, text) if name.startswith((*_DECLARED, *_COLLECTIVE)) else text
        for name, text in support
    ]
    return _render(replace(device, functions=functions), [RUNTIME_DECLARATIONS, *declared])


def _declaration(name: str, definition: str) -> str:
    match = _DEFINITION_HEAD.match(definition)
    if match is None:
        return definition
    signature = _PARAMETER_NAME.sub("", match["signature"])
    attributes = "convergent nounwind" if name.startswith(_COLLECTIVE) else _IDS_ARE_PURE
    if name.startswith("mo.read.ptx.sreg.tid."):
        # A block has at most 1024 threads.
        signature = signature.replace("internal i32", "internal range(i32 0, 1024) i32")
    return f"declare {signature} {attributes}"


def finished_module(
    device: DeviceModule,
    kernels: Sequence[CpuKernel],
    support: Support,
    shared_bytes: int,
    attributes: Sequence[str],
) -> tuple[str, tuple[CpuKernel, ...]]:
    """Add the entry points of the kernels; return the text, and the final mode of each kernel."""
    nodes = DebugNodes(device, attributes)
    functions = {function.name: function for function in device.functions}
    texts: list[str] = []
    modes: list[CpuKernel] = []
    for kernel in kernels:
        mode, defined = _run_function(kernel, functions, nodes)
        texts += defined
        modes.append(CpuKernel(kernel.name, mode))
        texts.append(launch_definition(kernel.name, mode, shared_bytes=shared_bytes))
    known = RUNTIME_DECLARATIONS.splitlines()
    declarations = [
        (name, line)
        for name, line in device.declarations
        if not name.startswith(("mo.", "mo_cpu_", "llvm."))
    ]
    missing = [text for name, text in support if name not in functions]
    # Functions that only the back end and the vectorizer will call.
    code = (line for f in functions.values() for line in (f.head, *f.body))
    called = library_support((*code, *missing))
    for number, (name, line) in enumerate(declarations):
        forms = vector_forms(name)
        if forms is not None:
            declarations[number] = (name, f"{line} {forms.attribute}")
            known.append(forms.declaration)
            called |= forms.definitions
    whole = replace(device, declarations=tuple(declarations), functions=tuple(functions.values()))
    lines = [
        KERNEL_TYPE,
        *known,
        *missing,
        *texts,
        *called.values(),
        *kept_functions(called),
        *nodes.lines,
    ]
    return _render(whole, lines), tuple(modes)


def _run_function(
    kernel: CpuKernel, functions: dict[str, Function], nodes: DebugNodes
) -> tuple[KernelMode, tuple[str, ...]]:
    """Return the final mode of a kernel and the definition of its run function, if that is not in `functions`.

    Updates the functions of the kernel in `functions`.
    """
    item = functions.get(thread_function_name(kernel.name))
    if item is None:
        run = functions[run_name(kernel.name)]
        debug = nodes.debug_of(run)
        if not debug.subprogram:
            return KernelMode.STRIPS, ()
        # With line tables only, debug information describes a function only if another one is inlined
        # into it.
        del functions[run.name]
        head = run.head.replace(symbol(run.name), symbol(f"{kernel.name}.strips"), 1)
        run = Function(f"{kernel.name}.strips", head, run.body).with_attributes(_INLINED)
        functions[run.name] = run
        return KernelMode.STRIPS, (strips_definition(kernel.name, run, debug),)
    functions[item.name] = item = _internal(item)
    debug = nodes.debug_of(item)
    thread = with_noted_failures(item) if kernel.mode is KernelMode.LOOPS else None
    if thread is None:
        return KernelMode.FIBERS, (fiber_definition(kernel.name, item, debug),)
    functions[item.name] = thread
    marks = debug if _is_serial(thread, functions) else nodes.vector(debug)
    return kernel.mode, (loops_definition(kernel.name, thread, marks),)


def kept_functions(names: Collection[str]) -> Iterable[str]:
    """Yield the definition of `llvm.compiler.used`, which keeps functions that the module does not call."""
    if names:
        listed = ", ".join(f"ptr {symbol(name)}" for name in names)
        array = f"[{len(names)} x ptr] [{listed}]"
        yield f'@llvm.compiler.used = appending global {array}, section "llvm.metadata"'


def _internal(item: Function) -> Function:
    head = f"define internal {without_linkage(item.head.removeprefix('define '))}"
    made = replace(item, head=head)
    return made if " alwaysinline" in head else made.with_attributes(_INLINED)


def _is_serial(item: Function, functions: dict[str, Function]) -> bool:
    """Return whether the threads of a kernel must be executed one after the other.

    The threads of a vector would share the stack arrays of the kernel. In a loop that is marked as parallel, LLVM
    may move a load above a store of the same thread (see `can_be_parallel`). The order of accesses in called
    functions is not examined.
    """
    called = _called(item, functions)
    code = [*item.body, *(line for function in called for line in function.body)]
    if any(" alloca " in line for line in code):
        return True
    if any(_STORE in line for function in called for line in function.body):
        return True
    stored = next((number for number, line in enumerate(item.body) if _STORE in line), None)
    loads = any(_LOAD in line for function in called for line in function.body)
    return stored is not None and (loads or any(_LOAD in line for line in item.body[stored:]))


def _called(item: Function, functions: dict[str, Function]) -> list[Function]:
    """Return the functions of the module that a function calls, also indirectly."""
    found: dict[str, Function] = {}
    work = _mentioned(item)
    while work:
        function = functions.get(work.pop())
        if function is not None and function.name not in found:
            found[function.name] = function
            work += _mentioned(function)
    found.pop(item.name, None)
    return list(found.values())


def _mentioned(function: Function) -> list[str]:
    """Return the names of functions and variables that the function refers to."""
    found = dict.fromkeys(_REFERENCE.findall("\n".join(function.body)))
    return [text[1:].strip('"') for text in found]


def _name_items(
    rewritten: RewrittenModule, kernels: frozenset[str], attributes: tuple[str, ...]
) -> tuple[Function, ...]:
    """Rename kernels to their thread functions, because exported functions take their names; inline all functions."""
    renamed = {symbol(name): symbol(thread_function_name(name)) for name in kernels}

    def rename(line: str) -> str:
        if "@" not in line:
            return line
        return _REFERENCE.sub(lambda match: renamed.get(match[0], match[0]), line)

    return tuple(
        Function(
            thread_function_name(function.name) if function.name in kernels else function.name,
            rename(function.head),
            tuple(rename(line) for line in function.body),
        ).with_attributes((*_INLINED, *attributes))
        for function in rewritten.functions
    )


def _plain_globals(module: DeviceModule, rewritten: RewrittenModule) -> Iterable[tuple[str, str]]:
    for name, line in module.globals:
        if name in rewritten.layout.names:
            continue
        head, _, rest = line.partition(" = ")
        if rest.startswith(("external ", "extern_weak ", "available_externally ")):
            msg = f"the device global {name!r} is declared but not defined in this gpu.module"
            raise SourceError(msg, hint="define it in the gpu.module that uses it")
        plain = _UNNAMED.sub("", without_address_spaces(f" {without_linkage(rest)}"))
        yield name, f"{head} = internal{plain}"


def _aliases(rewritten: RewrittenModule) -> Iterable[tuple[str, str]]:
    """Define aliases for the functions that other files call."""
    for alias, name in rewritten.exported:
        yield alias, f"{symbol(alias)} = alias i8, ptr {symbol(name)}"


def _places(rewritten: RewrittenModule) -> Iterable[tuple[str, str]]:
    """Define the strings with the source locations of barriers."""
    for number, place in enumerate(rewritten.places):
        name = place_name(number)
        yield name, f"{symbol(name)} = internal constant {c_string(place)}"


def _declarations(module: DeviceModule, rewritten: RewrittenModule) -> Iterable[tuple[str, str]]:
    """Declare the functions of libm, libc and linked bitcode, with the types of the source."""
    own = {r.name: r for r in rewritten.replacements if not r.definition}
    done = {function.name for function in module.functions}
    for name, line in module.declarations:
        found = None if name.startswith("llvm.") else find_replacement(name) or own.get(name)
        if (
            found is None
            or found.name not in own
            or found.name in done
            or found.name.startswith("mo_cpu_")
        ):
            continue
        done.add(found.name)
        end = LLVM_IR.closing(line, line.index("(", line.index("@"))) + 1
        head = without_location(line[:end]).replace(symbol(name), symbol(found.name))
        yield found.name, f"{head} {libm_attributes(found.name)}".rstrip()


def _shared_definitions(rewritten: RewrittenModule) -> Support:
    if not rewritten.layout.names:
        return ()
    found: list[tuple[str, str]] = []
    for name, field in (("mo.static_shared", 5), ("mo.dynamic_shared", 6)):
        address = f"%p = getelementptr inbounds %mo.thread, ptr %c, i32 0, i32 {field}"
        lines = (address, "%v = load ptr, ptr %p, align 8", "ret ptr %v")
        found.append((name, define(name, "ptr", "", *lines)))
    return tuple(found)


def _kept_metadata(module: DeviceModule) -> Iterable[str]:
    """Yield metadata and attributes without those of NVPTX: LLVM would upgrade `nvvm.annotations` to `ptx_kernel`."""
    marks = [line for line in module.tail if line.startswith(_DROPPED_METADATA)]
    dropped = {node for line in marks for node in _NODE.findall(line)}
    for line in module.tail:
        if line.startswith("attributes "):
            kept = _INLINE_HINDRANCES.sub(
                "", _TARGET_ATTRIBUTES.sub("", without_barrier_places(line))
            )
            yield _NO_ATTRIBUTES.sub("{ nounwind }", kept)
        elif line not in marks and line.split(" ", 1)[0] not in dropped:
            yield line


def _render(device: DeviceModule, extra: Sequence[str]) -> str:
    types = (line for line in device.types if not line.startswith("%mo."))
    parts = (
        _SOURCE_NAME,
        *types,
        ITEM_TYPE,
        *(line for _, line in device.globals),
        *(line for _, line in device.declarations),
        *(function.render() for function in device.functions),
        *extra,
        *device.tail,
    )
    return revealed("\n".join(parts) + "\n")
