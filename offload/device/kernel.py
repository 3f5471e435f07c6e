"""What a device image says of itself and of its kernels, whatever its format."""

from __future__ import annotations

from msgspec import Struct


class KernelParameter(Struct, frozen=True):
    """One parameter: its place in the argument buffer in bytes; type and name as far as known.

    `type` is spelled as the format spells it (an LLVM type, a PTX type, an AMD value kind).
    `is_hidden` marks what the runtime passes next to the user's arguments.
    """

    offset: int
    size_bytes: int
    type: str = ""
    name: str = ""
    is_hidden: bool = False


class DeviceKernel(Struct, frozen=True):
    """A kernel in a device image; None represents what the format does not tell.

    `max_threads` bounds the threads of a block, `required_threads` fixes its three dimensions,
    `min_blocks` asks for that many on a multiprocessor. `registers` are 32-bit registers per thread
    (vector ones for AMD, whose scalar ones are `scalar_registers`), `max_registers` is what their
    number was bounded by. `shared_bytes` is static workgroup memory, `local_bytes`
    that of a thread. `subgroup_size` is the number of threads that run in step (a wavefront), where
    the code depends on it. `code_bytes` is the size of the instructions; `code_sha256` is equal only
    where the code is, '' where it was not computed.
    """

    name: str
    parameters: tuple[KernelParameter, ...] | None = None
    max_threads: int | None = None
    required_threads: tuple[int, int, int] | None = None
    min_blocks: int | None = None
    registers: int | None = None
    max_registers: int | None = None
    scalar_registers: int | None = None
    shared_bytes: int | None = None
    local_bytes: int | None = None
    subgroup_size: int | None = None
    code_bytes: int | None = None
    code_sha256: str = ""


class DeviceCode(Struct, frozen=True):
    """What one device image holds, read from its content alone.

    `form` is the format (`cubin`, `LLVM bitcode`, `PTX`, `AMDGPU code object`, `SPIR-V`, `ELF`).
    `producer` is what wrote it as the file says, `llvm_major` the release where that is an LLVM.
    `is_relocatable` says whether it is still to be linked (None: the question does not arise).
    `undefined` are the device symbols that it needs from other images.
    """

    form: str
    producer: str = ""
    llvm_major: int | None = None
    triple: str = ""
    arch: str = ""
    is_relocatable: bool | None = None
    kernels: tuple[DeviceKernel, ...] = ()
    undefined: tuple[str, ...] = ()

    def kernel(self, name: str) -> DeviceKernel | None:
        """Return the kernel of that name, or None where the image does not define it."""
        return next((kernel for kernel in self.kernels if kernel.name == name), None)
