"""Embed offload data in a host module: add the device images, register the kernels, bind the launches.

The code of mlir-translate loads a binary for each `gpu.module`, at program start (LLVM 20 and newer) or at
each launch. This is removed: each launch passes the address of the kernel's stub, a host function. Values
have numbers in textual IR, so a removed instruction is replaced by another one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.host import linked_image, mangling
from mlir_offload.offload.host.entry import OffloadEntry, register_entries
from mlir_offload.offload.ir_syntax import (
    concealed,
    escape_blob,
    extend_used_list,
    global_name,
    global_symbols,
    next_metadata_number,
    reference,
    revealed,
    string_constants,
    symbol_of,
    unescape,
)
from mlir_offload.offload.kind_format import format_of
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.pattern import ir_line, ir_pattern
from mlir_offload.toolchain.target import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mlir_offload.offload.abi import OffloadAbi
    from mlir_offload.offload.host.linked_image import LinkedDeviceImage

_GET_FUNCTION = ir_pattern(
    "call ptr @mgpuModuleGetFunction(ptr `words``operand`, ptr `words``name:operand`)"
)
_GET_FUNCTION_USE = ir_pattern("@mgpuModuleGetFunction")
_DECLARATION = ir_line("declare `head`@mgpuModule`Load|Unload|GetFunction`(`rest`\n")
_UNLOAD = ir_line("  call void @mgpuModuleUnload(`rest`\n")
_LOAD = ir_pattern("call ptr @mgpuModuleLoad(ptr `binary:global`, i64 `number`)")
_LOADED = ir_pattern("load ptr, ptr `handle:global`, align `number`")
_STUB = ir_pattern("`value:local` = bitcast ptr `stub:global` to ptr")
_LAUNCH = ir_pattern("`call:call void @mgpuLaunch``verb:word`(ptr `function:local`,")
_REFERENCE = ir_pattern("`global`")
_VARIABLE = ir_line("`name:global` = `rest`\n")
_FUNCTION_END = "\n}\n"
_STARTUP = ir_line(
    'define internal void `name:global`() section ".text.startup"`rest`{\n`body:lines`}\n'
)
_STORED = ir_pattern("store ptr `local`, ptr `handle:global`,")
_LISTED = ir_line(
    "`name:@llvm.global_ctors|@llvm.global_dtors` = appending global"
    " [`number` x { i32, ptr, ptr }] [`listed:rest`]\n"
)
_STRUCTOR = ir_pattern("{ i32, ptr, ptr } { i32 `number`, ptr `function:global`, ptr `operand` }")
LAUNCH_STUB_FUNCTION = "mlir_offload_launch_stub"
_OUTLINED_PREFIX = "__mo_"
LOCAL_STUB_PREFIX = "__mo_stub__"
LOCAL_HANDLE_PREFIX = "__mo_handle__"
# C++ passes every other type differently than LLVM passes the corresponding type: float4, __half and other
# classes in other registers, or in memory.
_PASSED_ALIKE = frozenset(("ptr", "i1", "i8", "i16", "i32", "i64", "float", "double"))
_EMBEDDED = "llvm.embedded.object"
_EMBEDDED_SECTION = ".llvm.offloading"


def resolve_launches(text: str, addresses: Mapping[str, str], location: str = "") -> str:
    """Return the module with each launch bound to the address of its kernel."""

    def resolved(match: re.Match[str]) -> str:
        if match[1] not in names:
            raise _unresolvable(location)
        symbol = unescape(names[match[1]])
        if symbol not in addresses:
            raise _unknown_kernel(symbol, addresses, location)
        spelled.add(match[1])
        return f"bitcast ptr {global_name(addresses[symbol])} to ptr"

    if not _DECLARATION.search(text):
        return text
    spelled = set[str]()
    names = {
        f"@{reference(symbol_of(name[1:]))}": content
        for name, content in string_constants(text).items()
    }
    body = _GET_FUNCTION.sub(resolved, _DECLARATION.sub("", concealed(text)))
    if _GET_FUNCTION_USE.search(body):
        raise _unresolvable(location)
    return revealed(_without_loading(body, spelled))


def _without_loading(text: str, spelled: set[str]) -> str:
    """Return the module without the code that loads binaries; `spelled` are the strings with kernel names."""
    startup = {
        match[1]: match[2] for match in _STARTUP.finditer(text) if "@mgpuModule" in match["body"]
    }
    handles = {name for body in startup.values() for name in _STORED.findall(body)}
    unused = spelled | handles | set(_LOAD.findall(text))
    text = _STARTUP.sub(lambda match: "" if match[1] in startup else match[0], text)
    text = _LISTED.sub(lambda match: _unlisted(match, startup), text)
    text = _UNLOAD.sub("", _LOAD.sub("bitcast ptr null to ptr", text))
    text = _LOADED.sub(
        lambda match: "bitcast ptr null to ptr" if match[1] in handles else match[0], text
    )
    text = _without_variables(text, unused)
    return _FUNCTION_END.join(map(_naming_stubs, text.split(_FUNCTION_END)))


def _naming_stubs(function: str) -> str:
    """Return a function whose launches refer to stubs directly, as the host code of CUDA C++ does."""
    stubs = dict(_STUB.findall(function))
    return _LAUNCH.sub(
        lambda match: f"{match[1]}{match[2]}(ptr {stubs.get(match[3], match[3])},", function
    )


def _unlisted(match: re.Match[str], functions: Iterable[str]) -> str:
    kept = [item[0] for item in _STRUCTOR.finditer(match[2]) if item[1] not in functions]
    if not kept:
        return ""
    return (
        f"{match[1]} = appending global [{len(kept)} x {{ i32, ptr, ptr }}] [{', '.join(kept)}]\n"
    )


def _without_variables(text: str, names: set[str]) -> str:
    """Return the module without those of the variables that are unused."""
    uses = Counter(_REFERENCE.findall(text))
    removed = {name for name in names if uses[name] <= 1}
    return _VARIABLE.sub(lambda match: "" if match[1] in removed else match[0], text)


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


class HostKernel(Struct, frozen=True):
    """A kernel on the host side: its device symbol and the IR types of its parameters."""

    symbol: str
    parameters: tuple[str, ...]

    @property
    def stub(self) -> str:
        """Return the symbol of its stub, which is internal to the file."""
        return f"{LOCAL_STUB_PREFIX}{self.symbol}"

    @property
    def handle(self) -> str:
        """Return the symbol of its handle, a variable with the address of the stub, internal to the file."""
        return f"{LOCAL_HANDLE_PREFIX}{self.symbol}"

    def address(self, kinds: Collection[Kind]) -> str:
        """Return the symbol that identifies the kernel in registrations and launches, for all kinds of a file.

        If the runtime of one kind identifies kernels by handle, the handle is used for all kinds, because the
        other runtimes accept any address.
        """
        return self.handle if _are_by_handle(kinds) else self.stub

    @property
    def public_stub(self) -> str | None:
        """Return the symbol by which C++ launches the kernel: clang's name for its stub.

        None if the compiler chose the kernel's name, so that other files cannot refer to it, or if C++ would
        pass an argument differently than the stub expects it.
        """
        if self.symbol.startswith(_OUTLINED_PREFIX):
            return None
        if not _PASSED_ALIKE.issuperset(self.parameters):
            return None
        return mangling.find_stub_symbol(self.symbol)


def _are_by_handle(kinds: Collection[Kind]) -> bool:
    return any(format_of(kind).is_launched_by_handle for kind in kinds)


def foreign_address(kernel: str, kinds: Collection[Kind]) -> str | None:
    """Return the symbol by which another file's kernel is launched; None if its C++ name cannot be parsed."""
    return kernel if _are_by_handle(kinds) else mangling.find_stub_symbol(kernel)


def render_foreign(kernel: str, kinds: Collection[Kind]) -> str:
    """Return the IR that declares the stub or handle of another file's kernel."""
    if _are_by_handle(kinds):
        return f"{global_name(kernel)} = external constant ptr, align 8\n"
    return f"declare void {global_name(mangling.find_stub_symbol(kernel) or '')}()\n"


def render_stub(
    kernel: HostKernel, kinds: Collection[Kind] = (), taken: Collection[str] = ()
) -> str:
    """Return the IR of a kernel's stub, which launches the kernel when called, and of its handle.

    The stub itself is internal, so launches in this file refer to this kernel whatever other files define.
    Its public name is weak, so that two files may define a kernel of the same name, and hidden, so that a
    shared library registers its own address. The public name of the handle is the kernel's own name, unless
    the host module uses that (`taken`).
    """
    stub = global_name(kernel.stub)
    parameters = ", ".join(f"{kind} %a{i}" for i, kind in enumerate(kernel.parameters))
    lines = [f"define internal void {stub}({parameters}) {{"]
    lines.append(f"  %params = alloca [{max(len(kernel.parameters), 1)} x ptr], align 8")
    for index, kind in enumerate(kernel.parameters):
        lines += _pack_argument(index, kind)
    address = global_name(kernel.address(kinds))
    lines.append(f"  call void @{LAUNCH_STUB_FUNCTION}(ptr {address}, ptr %params)")
    lines += ["  ret void", "}"]
    if _are_by_handle(kinds):
        lines.append(f"{address} = internal constant ptr {stub}, align 8")
        if kernel.public_stub is not None and kernel.symbol not in taken:
            lines.append(f"{global_name(kernel.symbol)} = hidden alias ptr, ptr {address}")
    if kernel.public_stub is not None:
        types = ", ".join(kernel.parameters)
        public = global_name(kernel.public_stub)
        lines.append(f"{public} = hidden alias void ({types}), ptr {stub}")
    return "\n".join([*lines, ""])


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


def embed_offload_data(  # noqa: PLR0913 (the parts of one module)
    ll_text: str,
    *,
    kernels: Sequence[HostKernel],
    kinds: Sequence[Kind],
    binary: bytes,
    abis: Sequence[OffloadAbi],
    variables: Sequence[OffloadEntry] = (),
    declared: Sequence[str] = (),
    linked_images: Sequence[LinkedDeviceImage] = (),
    location: str = "",
) -> str:
    """Return the host module with stubs, the entries of each kind, and the offload binary inside.

    A kernel has one address for all kinds, that of its stub or handle. `variables` are the entries of device
    globals; the module contains their shadows. `declared` are kernels that another file defines and
    registers. `linked_images` are device-linked code, which is registered separately. Raises SourceError if a
    launch names a kernel that is in none of these.
    """
    addresses = {kernel: _foreign_address(kernel, kinds, location) for kernel in declared}
    foreign = "".join(render_foreign(kernel, kinds) for kernel in declared)
    addresses |= {kernel.symbol: kernel.address(kinds) for kernel in kernels}
    text = resolve_launches(ll_text, addresses, location)
    text = (text if text.endswith("\n") else f"{text}\n") + foreign
    if not kernels and not variables:
        # The module only contains stubs for kernels of other files.
        return embed_binary(text, binary) if binary else text
    taken = global_symbols(text)
    rendered = "\n".join(render_stub(kernel, kinds, taken) for kernel in kernels)
    text = f"{text}\n{rendered}\ndeclare void @{LAUNCH_STUB_FUNCTION}(ptr, ptr)\n\n"
    own = [kernel for kernel in kernels if kernel.public_stub]
    if own:
        # Otherwise LLVM merges a stub with its alias, and references to the stub become references to the
        # alias.
        aliased = dict.fromkeys(name for k in own for name in (k.stub, k.address(kinds)))
        text = extend_used_list(text, "llvm.compiler.used", list(aliased))
    done = {(code.kind, kernel) for code in linked_images for kernel in code.kernels}
    entries = [
        OffloadEntry(kind, kernel.symbol, kernel.address(kinds), is_local=True)
        for kind in kinds
        for kernel in kernels
        if (kind, kernel.symbol) not in done
    ]
    if entries or variables:
        text = register_entries(text, (*entries, *variables), abis)
    if linked_images:
        text = linked_image.register_linked_images(text, linked_images, addresses, abis[0])
    return embed_binary(text, binary) if binary else text


def embed_binary(text: str, binary: bytes) -> str:
    """Return the host module with the binary in the section for the linker wrapper (`-fembed-offload-object`)."""
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
