"""The properties of a device image and its kernels, independent of its format."""

from __future__ import annotations

from msgspec import Struct


class KernelParameter(Struct, frozen=True):
    """A kernel parameter: its byte offset and size in the argument buffer; type and name if known.

    `type` is in the notation of the format (an LLVM type, a PTX type, an AMD value kind). `is_hidden` marks
    arguments that the runtime passes in addition to the user's.
    """

    offset: int
    size_bytes: int
    type: str = ""
    name: str = ""
    is_hidden: bool = False


class DeviceKernel(Struct, frozen=True):
    """A kernel in a device image; None means that the format does not store the property.

    `max_threads` limits the threads per block, `required_threads` fixes the three block dimensions, and
    `min_blocks` is the requested number of blocks per multiprocessor. `registers` are 32-bit registers per
    thread (for AMD vector registers; `scalar_registers` are the scalar ones), and `max_registers` is their
    limit. `shared_bytes` is the static workgroup memory per block, `local_bytes` the private memory per
    thread. `subgroup_size` is set if the code depends on it. `code_bytes` is the size of the instructions.
    `code_sha256` is equal only if the code is, and empty if it was not computed.
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
    """The properties of a device image, read from its content alone.

    `form` is the format (`cubin`, `LLVM bitcode`, `PTX`, `AMDGPU code object`, `SPIR-V`, `ELF`). `producer`
    is the tool that the file names as its producer, `llvm_major` its release if it is LLVM. `is_relocatable`
    is whether the image must still be linked (None: not applicable). `undefined` are the device symbols that
    other images must define.
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
        """Return the kernel of that name; None if the image does not define it."""
        return next((kernel for kernel in self.kernels if kernel.name == name), None)
