"""Annotate a host module: embed the device images, register the kernels, resolve the launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlir_offload.offload.host import finished_code
from mlir_offload.offload.host.entry import OffloadEntry
from mlir_offload.offload.host.launch import resolve_launches
from mlir_offload.offload.host.module import (
    escape_blob,
    extend_used_list,
    global_symbols,
    next_metadata_number,
)
from mlir_offload.offload.host.registration import register_entries
from mlir_offload.offload.host.stub import (
    LAUNCH_STUB_FUNCTION,
    HostKernel,
    foreign_address,
    render_foreign,
    render_stub,
)
from mlir_offload.toolchain.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlir_offload.offload.abi import OffloadAbi
    from mlir_offload.offload.host.finished_code import FinishedCode
    from mlir_offload.toolchain.target import Kind

_EMBEDDED = "llvm.embedded.object"
_EMBEDDED_SECTION = ".llvm.offloading"


def annotate_host(  # noqa: PLR0913 (the parts of one module)
    ll_text: str,
    *,
    kernels: Sequence[HostKernel],
    kinds: Sequence[Kind],
    binary: bytes,
    abis: Sequence[OffloadAbi],
    variables: Sequence[OffloadEntry] = (),
    declared: Sequence[str] = (),
    finished: Sequence[FinishedCode] = (),
    location: str = "",
) -> str:
    """Return the host module with stubs, entries of each kind, and the offload binary inside.

    A kernel has one address for all kinds, that of its stub or handle. `variables` are the entries of device
    globals; the module holds their shadows. `declared` are kernels that another file defines, and
    registers. `finished` is code that is linked already; nothing else registers its kernels. Raises
    SourceError where a launch names a kernel that is in none of these.
    """
    addresses = {kernel: _foreign_address(kernel, kinds, location) for kernel in declared}
    foreign = "".join(render_foreign(kernel, kinds) for kernel in declared)
    addresses |= {kernel.symbol: kernel.address(kinds) for kernel in kernels}
    text = resolve_launches(ll_text, addresses, location)
    text = (text if text.endswith("\n") else f"{text}\n") + foreign
    if not kernels and not variables:
        # Functions for kernels of other files.
        return embed_binary(text, binary) if binary else text
    taken = global_symbols(text)
    rendered = "\n".join(render_stub(kernel, kinds, taken) for kernel in kernels)
    text = f"{text}\n{rendered}\ndeclare void @{LAUNCH_STUB_FUNCTION}(ptr, ptr)\n\n"
    own = [kernel for kernel in kernels if kernel.public_stub]
    if own:
        # Else LLVM gives a stub the name of its alias, and what refers to the stub refers to that.
        aliased = dict.fromkeys(name for k in own for name in (k.stub, k.address(kinds)))
        text = extend_used_list(text, "llvm.compiler.used", list(aliased))
    done = {(code.kind, kernel) for code in finished for kernel in code.kernels}
    entries = [
        OffloadEntry(kind, kernel.symbol, kernel.address(kinds), is_local=True)
        for kind in kinds
        for kernel in kernels
        if (kind, kernel.symbol) not in done
    ]
    if entries or variables:
        text = register_entries(text, (*entries, *variables), abis)
    if finished:
        text = finished_code.register_finished(text, finished, addresses, abis[0])
    return embed_binary(text, binary) if binary else text


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


def _foreign_address(kernel: str, kinds: Sequence[Kind], location: str) -> str:
    address = foreign_address(kernel, kinds)
    if address is None:
        msg = f"the C++ name of the declared kernel '{kernel}' cannot be read"
        hint = 'declare a kernel that is neither inside of a function nor made for an expression, or extern "C"'
        raise SourceError(msg, hint=hint, location=location)
    return address
