"""Register linked device images, such as nvcc and hipcc generate without relocatable device code.

The linker wrapper would drop such code. Therefore its registration is written into the host module, as clang
does with `-fno-gpu-rdc` (clang/lib/CodeGen/CGCUDANV.cpp). Its entries are in a section that no link reads, as
after `clang -r --offload-link`; they only document the registration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.host.entry import EntryPlace, OffloadEntry, entry_section, render_entry
from mlir_offload.offload.ir_syntax import (
    escape_blob,
    extend_used_list,
    global_name,
    global_symbols,
)
from mlir_offload.offload.kind_format import LinkedCodeRuntime, format_of
from mlir_offload.toolchain.byte_view import sha256
from mlir_offload.toolchain.target import Kind

if TYPE_CHECKING:
    from mlir_offload.offload.abi import OffloadAbi

_SUFFIX_DIGITS = 16


class LinkedDeviceImage(Struct, frozen=True):
    """A linked device image in the format that its runtime loads (a fat binary, a bundle), and its kernels."""

    kind: Kind
    content: bytes
    kernels: tuple[str, ...]


_END = "RegisterFatBinaryEnd"
_REGISTRATION = """\

@{name} = internal constant [{size} x i8] c"{content}", section "{section}", align {align}
@{name}.wrapper = internal constant {{ i32, i32, ptr, ptr }} {{ i32 {magic}, i32 1, ptr @{name}, ptr null }}, section "{wrapper_section}", align 8
@{name}.handle = internal global ptr null
@{name}.start = internal global ptr @{name}.register, section "{constructors}", align 8
{names}
define internal void @{name}.register() {{
  %handle = call ptr @{prefix}RegisterFatBinary(ptr @{name}.wrapper)
  store ptr %handle, ptr @{name}.handle
{calls}
  %status = call i32 @atexit(ptr @{name}.unregister)
  ret void
}}

define internal void @{name}.unregister() {{
  %handle = load ptr, ptr @{name}.handle
  call void @{prefix}UnregisterFatBinary(ptr %handle)
  ret void
}}
"""
# Not llvm.global_ctors, because a module has only one and the host module may already have it.
_CONSTRUCTORS = ".init_array.101"


def register_linked_images(
    text: str, codes: Sequence[LinkedDeviceImage], addresses: Mapping[str, str], abi: OffloadAbi
) -> str:
    """Return the host module with the images inside, which are registered when the program starts.

    `addresses` are the host symbols by which kernels are launched.
    """
    if not codes:
        return text
    known = global_symbols(text)
    for number, code in enumerate(codes):
        name = f"__mo_linked_image.{number}"
        text += _registration(name, code, addresses)
        entries, symbols = _entries(name, code, addresses, abi)
        text = extend_used_list(text + entries, "llvm.used", (f"{name}.start", *symbols))
    runtimes = {code.kind: _runtime_of(code.kind) for code in codes}
    declared = {"atexit": "i32 @{}(ptr)"}
    for runtime in runtimes.values():
        declared |= {runtime.prefix + name: form for name, form in runtime.functions.items()}
    missing = (form.format(name) for name, form in declared.items() if name not in known)
    return text + "".join(f"declare {form}\n" for form in missing)


def _runtime_of(kind: Kind) -> LinkedCodeRuntime:
    runtime = format_of(kind).linked_code
    if runtime is None:
        msg = f"no runtime registers linked code of kind {kind}"
        raise ValueError(msg)
    return runtime


def _registration(name: str, code: LinkedDeviceImage, addresses: Mapping[str, str]) -> str:
    runtime = _runtime_of(code.kind)
    names, calls = [], []
    for number, kernel in enumerate(code.kernels):
        spelled = kernel.encode(errors="surrogateescape") + b"\0"
        string = f"@{name}.kernel{number}"
        names.append(
            f'{string} = internal constant [{len(spelled)} x i8] c"{escape_blob(spelled)}"'
        )
        calls.append(
            f"  %k{number} = call i32 @{runtime.prefix}RegisterFunction(ptr %handle, "
            f"ptr {global_name(addresses[kernel])}, ptr {string}, ptr {string}, i32 -1, "
            "ptr null, ptr null, ptr null, ptr null, ptr null)"
        )
    if _END in runtime.functions:
        calls.append(f"  call void @{runtime.prefix}{_END}(ptr %handle)")
    return _REGISTRATION.format(
        name=name,
        size=len(code.content),
        content=escape_blob(code.content),
        section=runtime.section,
        wrapper_section=runtime.wrapper_section,
        align=runtime.align,
        magic=runtime.magic,
        prefix=runtime.prefix,
        constructors=_CONSTRUCTORS,
        names="\n".join(names),
        calls="\n".join(calls),
    )


def _entries(
    name: str, code: LinkedDeviceImage, addresses: Mapping[str, str], abi: OffloadAbi
) -> tuple[str, list[str]]:
    """Return the entries and their symbols; the name of their section contains the digest of the code."""
    digest = sha256("\0".join(code.kernels).encode(errors="surrogateescape"))
    digest.update(code.content)
    section = f"{entry_section(code.kind, abi)}_{digest.hexdigest()[:_SUFFIX_DIGITS]}"
    text, symbols = "", []
    for index, kernel in enumerate(code.kernels):
        symbol = f"{name}.entry{index}"
        entry = OffloadEntry(code.kind, kernel, addresses[kernel], is_local=True)
        text += render_entry(entry, abi, EntryPlace(symbol, f"{symbol}.name", section))
        symbols.append(symbol)
    return text, symbols
