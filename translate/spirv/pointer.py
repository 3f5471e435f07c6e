"""Convert the address spaces of NVPTX in a device module to those of SPIR-V.

In SPIR-V only generic pointers (address space 4) can point to any memory. `ptr` of NVPTX becomes a generic
pointer, and the addresses of stack variables (address space 0) are cast to it.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.pattern import ir_line, ir_pattern, ir_reference
from mlir_offload.translate.cpu.text import DeviceModule, Function, label_of, symbol

GENERIC = "ptr addrspace(4)"
GLOBAL = "ptr addrspace(1)"
# Constant memory becomes global memory, because generic pointers cannot point to SPIR-V's UniformConstant.
_SPACES = {0: 4, 1: 1, 3: 3, 4: 1, 5: 0}
_POINTER = ir_pattern("`start`ptr`(` addrspace(`space:number`)`)?``name_end`")
_MANGLED = ir_pattern("@llvm.`dotted`")
_MANGLED_POINTER = ir_pattern(".`lanes:lanes`p`space:number``part_end`")
_VARIABLE_SPACE = ir_pattern("`(`addrspace(`space:number`) `)?``keyword:global|constant` ")
_ALLOCA = ir_line(
    "`indent`%`name:bare` = alloca `type:some``(`, `i32|i64` `count:operand``)?`"
    "`align:align?``private:, addrspace(5)?``metadata``end`"
)


def with_spirv_spaces(module: DeviceModule) -> DeviceModule:
    """Convert the pointers, variables and stack of a module to the address spaces of SPIR-V.

    Raises SourceError for a stack variable of unknown size, and for an intrinsic that supports only
    pointers of one address space.
    """
    moved = _generic_variables(module)
    functions = []
    for function in module.functions:
        head = _mapped(function.head)
        body = [_with_generic_variables(_mapped(line), moved) for line in function.body]
        functions.append(_with_stack(replace(function, head=head, body=tuple(body))))
    return replace(
        module,
        types=tuple(map(_mapped, module.types)),
        globals=tuple((name, _variable(line, moved, name)) for name, line in module.globals),
        declarations=tuple((name, _declaration(name, line)) for name, line in module.declarations),
        functions=tuple(functions),
    )


def _declaration(name: str, line: str) -> str:
    mapped = _mapped(line)
    # An intrinsic that is overloaded on the pointer type has the address space in its name.
    if mapped != line and name.startswith("llvm.") and not _MANGLED_POINTER.search(name):
        msg = f"{name} is not supported for spirv64: it has no form for the memory of SPIR-V"
        hint = "rewrite it with loads and stores, or leave spirv64 out of --offload-arch"
        raise SourceError(msg, hint=hint)
    return mapped


def _mapped(line: str) -> str:
    """Convert the address spaces of pointers and of intrinsic names in a line."""
    return _MANGLED.sub(
        lambda name: _MANGLED_POINTER.sub(
            lambda match: f".{match['lanes']}p{_SPACES.get(int(match['space']), 4)}", name[0]
        ),
        _POINTER.sub(_pointer, line),
    )


def _pointer(match: re.Match[str]) -> str:
    space = _SPACES.get(int(match[1] or 0), 4)
    return f"ptr addrspace({space})" if space else "ptr"


def _generic_variables(module: DeviceModule) -> frozenset[str]:
    """Return the variables with an address of type `ptr`, which are in global memory."""
    found = []
    for name, line in module.globals:
        match = _VARIABLE_SPACE.search(line)
        if match is not None and int(match[1] or 0) == 0:
            found.append(name)
    return frozenset(found)


def _variable(line: str, moved: frozenset[str], name: str) -> str:
    head, _, rest = line.partition(" = ")
    match = _VARIABLE_SPACE.search(rest)
    if match is None:
        return line
    space = _SPACES.get(int(match[1] or 0), 1) if name not in moved else 1
    before, after = rest[: match.start()], rest[match.end() :]
    value = _with_generic_variables(_mapped(after), moved)
    return f"{head} = {before}addrspace({space}) {match[2]} {value}"


def _with_generic_variables(line: str, moved: frozenset[str]) -> str:
    """Cast the addresses of variables in global memory to generic pointers in a line."""
    if "@" not in line:
        return line
    for name in moved:
        reference = symbol(name)
        if reference in line:
            cast = f"addrspacecast ({GLOBAL} {reference} to {GENERIC})"
            line = ir_reference(reference).sub(cast.replace("\\", r"\\"), line)
    return line


def _with_stack(function: Function) -> Function:
    """Move stack variables to the entry block, as SPIR-V requires, and cast them to generic pointers."""
    entry: list[str] = []
    rest: list[str] = []
    for line in function.body:
        match = _ALLOCA.match(line)
        if match is None:
            rest.append(line)
        else:
            entry += _stack_variable(match)
    position = 1 if rest and label_of(rest[0]) is not None else 0
    return replace(function, body=(*rest[:position], *entry, *rest[position:]))


def _stack_variable(match: re.Match[str]) -> list[str]:
    count = match["count"] or "1"
    if not count.isdigit():
        msg = "an allocation on the stack of a size that is not known is not supported for spirv64"
        raise SourceError(msg, hint="allocate a constant size, or workgroup or device memory")
    kind = match["type"] if count == "1" else f"[{count} x {match['type']}]"
    align, name = match["align"] or "", match["name"]
    if match["private"]:
        return [f"  %{name} = alloca {kind}{align}"]
    return [
        f"  %mo.stack.{name} = alloca {kind}{align}",
        f"  %{name} = addrspacecast ptr %mo.stack.{name} to {GENERIC}",
    ]
