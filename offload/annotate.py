"""Annotate a host module: embed the device images, register the kernels, resolve the launches."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mlir_offload.offload.entry import OffloadEntry
from mlir_offload.offload.host_module import (
    escape_blob,
    extend_used_list,
    global_name,
    next_metadata_number,
    string_constants,
)
from mlir_offload.offload.mangling import find_stub_symbol
from mlir_offload.offload.registration import register_entries
from mlir_offload.offload.stub import LAUNCH_STUB_FUNCTION, HostKernel, render_stub
from mlir_offload.toolchain.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mlir_offload.offload.abi import OffloadAbi
    from mlir_offload.toolchain.target import Kind

_EMBEDDED = "llvm.embedded.object"
_EMBEDDED_SECTION = ".llvm.offloading"
_GET_FUNCTION = re.compile(
    r"(@mgpuModuleGetFunction\(ptr [^,()\n]*, ptr (?:[a-z_]+ )*)([^,()\s]+)\)"
)
_GET_FUNCTION_USE = re.compile(r"@mgpuModuleGetFunction\b")
_DECLARATION = re.compile(
    r"^declare [^@\n]*@(mgpuModuleLoad|mgpuModuleUnload|mgpuModuleGetFunction)\([^\n]*\n",
    re.MULTILINE,
)
# Internal, so that no object depends on a runtime that loads modules; inlined even at -O0, so that
# a launch names its stub as the host code of CUDA C++ does.
_DEFINITIONS = {
    "mgpuModuleLoad": "define internal ptr @mgpuModuleLoad(ptr %0, i64 %1) alwaysinline {\n"
    "  ret ptr null\n}\n",
    "mgpuModuleUnload": "define internal void @mgpuModuleUnload(ptr %0) alwaysinline {\n"
    "  ret void\n}\n",
    "mgpuModuleGetFunction": "define internal ptr @mgpuModuleGetFunction(ptr %0, ptr %1) "
    "alwaysinline {\n  ret ptr %1\n}\n",
}


def annotate_host(  # noqa: PLR0913 (the parts of one module)
    ll_text: str,
    *,
    kernels: Sequence[HostKernel],
    kinds: Sequence[Kind],
    binary: bytes,
    abis: Sequence[OffloadAbi],
    variables: Sequence[OffloadEntry] = (),
    declared: Sequence[str] = (),
    location: str = "",
) -> str:
    """Return the host module with stubs, entries of each kind, and the offload binary inside.

    A kernel has one address for all kinds, that of its stub. `variables` are the entries of device
    globals; the module holds their shadows. `declared` are kernels that another file defines, and
    registers. Raises SourceError where a launch names a kernel that is in neither.
    """
    stubs = {kernel: _foreign_stub(kernel, location) for kernel in declared}
    foreign = "".join(f"declare void {global_name(stub)}()\n" for stub in stubs.values())
    stubs |= {kernel.symbol: kernel.stub for kernel in kernels}
    text = resolve_launches(ll_text, stubs, location)
    text = (text if text.endswith("\n") else f"{text}\n") + foreign
    if not kernels and not variables:
        # Functions for kernels of other files.
        return embed_binary(text, binary) if binary else text
    rendered = "\n".join(render_stub(kernel) for kernel in kernels)
    text = f"{text}\n{rendered}\ndeclare void @{LAUNCH_STUB_FUNCTION}(ptr, ptr)\n\n"
    aliased = [kernel.stub for kernel in kernels if kernel.public_stub]
    if aliased:
        # Else LLVM gives a stub the name of its alias, and what refers to the stub refers to that.
        text = extend_used_list(text, "llvm.compiler.used", aliased)
    entries = [
        OffloadEntry(kind, kernel.symbol, kernel.stub, is_local=True)
        for kind in kinds
        for kernel in kernels
    ]
    return embed_binary(register_entries(text, (*entries, *variables), abis), binary)


def resolve_launches(text: str, stubs: Mapping[str, str], location: str = "") -> str:
    """Return the module with each launch naming the stub of its kernel."""

    def resolved(match: re.Match[str]) -> str:
        symbol = names.get(match.group(2))
        if symbol is None:
            raise _unresolvable(location)
        if symbol not in stubs:
            raise _unknown_kernel(symbol, stubs, location)
        return f"{match.group(1)}{global_name(stubs[symbol])})"

    declared = _DECLARATION.findall(text)
    if not declared:
        return text
    names = string_constants(text)
    body = _GET_FUNCTION.sub(resolved, _DECLARATION.sub("", text))
    if len(_GET_FUNCTION_USE.findall(body)) != len(_GET_FUNCTION.findall(body)):
        raise _unresolvable(location)
    return body + "\n" + "\n".join(_DEFINITIONS[name] for name in declared)


def embed_binary(text: str, binary: bytes) -> str:
    """Return the host module with the binary where the linker wrapper looks for it (`-fembed-offload-object`)."""
    number = next_metadata_number(text)
    embedded = (
        f"@{_EMBEDDED} = private constant [{len(binary)} x i8] "
        f'c"{escape_blob(binary)}", section "{_EMBEDDED_SECTION}", align 8, !exclude !{number}\n'
    )
    metadata = (
        f"!llvm.embedded.objects = !{{!{number + 1}}}\n"
        f"!{number} = !{{}}\n"
        f'!{number + 1} = !{{ptr @{_EMBEDDED}, !"{_EMBEDDED_SECTION}"}}\n'
    )
    text = extend_used_list(text, "llvm.compiler.used", (_EMBEDDED,))
    return text + embedded + metadata


def _foreign_stub(kernel: str, location: str) -> str:
    stub = find_stub_symbol(kernel)
    if stub is None:
        msg = f"the C++ name of the declared kernel '{kernel}' cannot be read"
        hint = 'declare a kernel that is neither inside of a function nor made for an expression, or extern "C"'
        raise SourceError(msg, hint=hint, location=location)
    return stub


def _unresolvable(location: str) -> SourceError:
    return SourceError(
        "a launch does not name its kernel by a constant",
        hint="launch kernels with gpu.launch or gpu.launch_func, do not call mgpuModuleGetFunction",
        location=location,
    )


def _unknown_kernel(symbol: str, kernels: Iterable[str], location: str) -> SourceError:
    known = ", ".join(sorted(kernels)) or "none"
    return SourceError(
        f"kernel '{symbol}' is launched, but no gpu.module defines it",
        hint=f"kernels defined here: {known}",
        location=location,
    )
