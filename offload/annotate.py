"""Annotate a host module: embed the device images, register the kernels, resolve the launches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlir_offload.offload.entry import OffloadEntry, stub_symbol
from mlir_offload.offload.host_module import (
    escape_blob,
    extend_used_list,
    global_name,
    next_metadata_number,
    string_constants,
)
from mlir_offload.offload.registration import register_entries
from mlir_offload.toolchain.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlir_offload.offload.abi import OffloadAbi
    from mlir_offload.toolchain.target import Kind

LAUNCH_STUB_FUNCTION = "mlir_offload_launch_stub"
_EMBEDDED = "llvm.embedded.object"
_EMBEDDED_SECTION = ".llvm.offloading"
_OUTLINED_PREFIX = "__mo_"
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


@dataclass(frozen=True, slots=True)
class HostKernel:
    """A kernel as the host sees it: its device symbol and the IR types of its parameters."""

    symbol: str
    parameters: tuple[str, ...]

    @property
    def is_outlined(self) -> bool:
        """Return whether the compiler named it: no other file can mean this kernel."""
        return self.symbol.startswith(_OUTLINED_PREFIX)


def annotate_host(  # noqa: PLR0913 (the parts of one module)
    ll_text: str,
    *,
    kernels: Sequence[HostKernel],
    kinds: Sequence[Kind],
    binary: bytes,
    abis: Sequence[OffloadAbi],
    variables: Sequence[OffloadEntry] = (),
    location: str = "",
) -> str:
    """Return the host module with stubs, entries of each kind, and the offload binary inside.

    A kernel has one address for all kinds, that of its stub. `variables` are the entries of device
    globals; the module holds their shadows. Raises SourceError where a launch names a kernel that
    is not in `kernels`.
    """
    text = resolve_launches(ll_text, {kernel.symbol for kernel in kernels}, location)
    text = text if text.endswith("\n") else f"{text}\n"
    if not kernels and not variables:
        return text
    stubs = "\n".join(render_stub(kernel) for kernel in kernels)
    text = f"{text}\n{stubs}\ndeclare void @{LAUNCH_STUB_FUNCTION}(ptr, ptr)\n\n"
    entries = [
        OffloadEntry(kind, kernel.symbol, stub_symbol(kernel.symbol))
        for kind in kinds
        for kernel in kernels
    ]
    return embed_binary(register_entries(text, (*entries, *variables), abis), binary)


def resolve_launches(text: str, kernels: set[str], location: str = "") -> str:
    """Return the module with each launch naming the stub of its kernel."""

    def resolved(match: re.Match[str]) -> str:
        symbol = names.get(match.group(2))
        if symbol is None:
            raise _unresolvable(location)
        if symbol not in kernels:
            raise _unknown_kernel(symbol, kernels, location)
        return f"{match.group(1)}{global_name(stub_symbol(symbol))})"

    declared = _DECLARATION.findall(text)
    if not declared:
        return text
    names = string_constants(text)
    body = _GET_FUNCTION.sub(resolved, _DECLARATION.sub("", text))
    if len(_GET_FUNCTION_USE.findall(body)) != len(_GET_FUNCTION.findall(body)):
        raise _unresolvable(location)
    return body + "\n" + "\n".join(_DEFINITIONS[name] for name in declared)


def render_stub(kernel: HostKernel) -> str:
    """Return the host function that stands for a kernel, and launches it when called.

    It is hidden: the address registered by a shared library must not be that of another one. Two
    files that define one kernel name collide at link, except where the compiler made the name.
    """
    stub = global_name(stub_symbol(kernel.symbol))
    linkage = "internal" if kernel.is_outlined else "hidden"
    parameters = ", ".join(f"{kind} %a{i}" for i, kind in enumerate(kernel.parameters))
    lines = [f"define {linkage} void {stub}({parameters}) {{"]
    lines.append(f"  %params = alloca [{max(len(kernel.parameters), 1)} x ptr], align 8")
    for index, kind in enumerate(kernel.parameters):
        lines += _pack_argument(index, kind)
    lines.append(f"  call void @{LAUNCH_STUB_FUNCTION}(ptr {stub}, ptr %params)")
    return "\n".join([*lines, "  ret void", "}", ""])


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


def _pack_argument(index: int, kind: str) -> list[str]:
    slot = f"  %s{index} = getelementptr ptr, ptr %params, i64 {index}"
    if kind.startswith("ptr byval("):
        return [slot, f"  store ptr %a{index}, ptr %s{index}, align 8"]
    return [
        f"  %v{index} = alloca {kind}",
        f"  store {kind} %a{index}, ptr %v{index}",
        slot,
        f"  store ptr %v{index}, ptr %s{index}, align 8",
    ]


def _unresolvable(location: str) -> SourceError:
    return SourceError(
        "a launch does not name its kernel by a constant",
        hint="launch kernels with gpu.launch or gpu.launch_func, do not call mgpuModuleGetFunction",
        location=location,
    )


def _unknown_kernel(symbol: str, kernels: set[str], location: str) -> SourceError:
    known = ", ".join(sorted(kernels)) or "none"
    return SourceError(
        f"kernel '{symbol}' is launched, but no gpu.module defines it",
        hint=f"kernels defined here: {known}",
        location=location,
    )
