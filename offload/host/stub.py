"""The host function that represents a kernel: its address is what is registered and launched."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from mlir_offload.offload.host import mangling
from mlir_offload.offload.host.module import global_name
from mlir_offload.offload.kind_format import format_of
from mlir_offload.toolchain.target import Kind

LAUNCH_STUB_FUNCTION = "mlir_offload_launch_stub"
_OUTLINED_PREFIX = "__mo_"
LOCAL_STUB_PREFIX = "__mo_stub__"
LOCAL_HANDLE_PREFIX = "__mo_handle__"
# C++ passes every other type another way than LLVM passes the type of that name: float4, __half and
# other classes in registers of their own, or in memory.
_PASSED_ALIKE = frozenset(("ptr", "i1", "i8", "i16", "i32", "i64", "float", "double"))


class HostKernel(Struct, frozen=True):
    """A kernel as the host sees it: its device symbol and the IR types of its parameters."""

    symbol: str
    parameters: tuple[str, ...]

    @property
    def stub(self) -> str:
        """Return the symbol of its stub, which no other file sees."""
        return f"{LOCAL_STUB_PREFIX}{self.symbol}"

    @property
    def handle(self) -> str:
        """Return the symbol of its handle, which no other file sees: a variable that holds the stub."""
        return f"{LOCAL_HANDLE_PREFIX}{self.symbol}"

    def address(self, kinds: Collection[Kind]) -> str:
        """Return the symbol that the kernel is registered and launched by, for all kinds of a file.

        Where a runtime knows a kernel by its handle, all do: to the others all addresses are alike.
        """
        return self.handle if _are_by_handle(kinds) else self.stub

    @property
    def public_stub(self) -> str | None:
        """Return the symbol by which C++ launches it, if it can: clang's name for its stub.

        None where the compiler named the kernel, so that no other file can mean it, and where C++
        would pass an argument in another place than the stub takes it from.
        """
        if self.symbol.startswith(_OUTLINED_PREFIX):
            return None
        if not _PASSED_ALIKE.issuperset(self.parameters):
            return None
        return mangling.find_stub_symbol(self.symbol)


def _are_by_handle(kinds: Collection[Kind]) -> bool:
    return any(format_of(kind).is_launched_by_handle for kind in kinds)


def foreign_address(kernel: str, kinds: Collection[Kind]) -> str | None:
    """Return the symbol by which another file's kernel is launched; None for a C++ name not understood."""
    return kernel if _are_by_handle(kinds) else mangling.find_stub_symbol(kernel)


def render_foreign(kernel: str, kinds: Collection[Kind]) -> str:
    """Return the IR that declares what another file's kernel is launched by."""
    if _are_by_handle(kinds):
        return f"{global_name(kernel)} = external constant ptr, align 8\n"
    return f"declare void {global_name(mangling.find_stub_symbol(kernel) or '')}()\n"


def render_stub(
    kernel: HostKernel, kinds: Collection[Kind] = (), taken: Collection[str] = ()
) -> str:
    """Return the IR of a kernel's stub, which launches the kernel when called, and of its handle.

    The stub itself is internal: launches in this file mean this kernel, whatever other files
    define. Its public name is weak, so that two files may define a kernel of one name, and hidden:
    the address registered by a shared library must not be that of another one. The public name of
    the handle is the kernel's own, unless the host module has `taken` that for something else.
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
