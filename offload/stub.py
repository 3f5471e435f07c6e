"""The host function that stands for a kernel: its address is what is registered and launched."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mlir_offload.offload.host_module import global_name
from mlir_offload.offload.mangling import find_stub_symbol

LAUNCH_STUB_FUNCTION = "mlir_offload_launch_stub"
_OUTLINED_PREFIX = "__mo_"
LOCAL_STUB_PREFIX = "__mo_stub__"
# C++ passes every other type another way than LLVM passes the type of that name: float4, __half and
# other classes in registers of their own, or in memory.
_PASSED_ALIKE = re.compile(r"ptr|i(?:1|8|16|32|64)|float|double")


@dataclass(frozen=True, slots=True)
class HostKernel:
    """A kernel as the host sees it: its device symbol and the IR types of its parameters."""

    symbol: str
    parameters: tuple[str, ...]

    @property
    def stub(self) -> str:
        """Return the symbol of its stub, which no other file sees."""
        return f"{LOCAL_STUB_PREFIX}{self.symbol}"

    @property
    def public_stub(self) -> str | None:
        """Return the symbol by which C++ launches it, if it can: clang's name for its stub.

        None where the compiler named the kernel, so that no other file can mean it, and where C++
        would pass an argument in another place than the stub takes it from.
        """
        if self.symbol.startswith(_OUTLINED_PREFIX):
            return None
        if not all(map(_PASSED_ALIKE.fullmatch, self.parameters)):
            return None
        return find_stub_symbol(self.symbol)


def render_stub(kernel: HostKernel) -> str:
    """Return the IR of a kernel's stub, which launches the kernel when called.

    The stub itself is internal: launches in this file mean this kernel, whatever other files
    define. Its public name is weak, so that two files may define a kernel of one name, and hidden:
    the address registered by a shared library must not be that of another one.
    """
    stub = global_name(kernel.stub)
    parameters = ", ".join(f"{kind} %a{i}" for i, kind in enumerate(kernel.parameters))
    lines = [f"define internal void {stub}({parameters}) {{"]
    lines.append(f"  %params = alloca [{max(len(kernel.parameters), 1)} x ptr], align 8")
    for index, kind in enumerate(kernel.parameters):
        lines += _pack_argument(index, kind)
    lines.append(f"  call void @{LAUNCH_STUB_FUNCTION}(ptr {stub}, ptr %params)")
    lines += ["  ret void", "}"]
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
