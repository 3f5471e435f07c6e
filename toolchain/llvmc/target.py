"""Run passes on a module, and emit assembly."""

from __future__ import annotations

import ctypes
from typing import Self

from mlir_offload.toolchain.llvmc.library import LlvmError, LlvmLibrary
from mlir_offload.toolchain.llvmc.module import Module

_ASSEMBLY = 0
_POSITION_INDEPENDENT = 2
_DEFAULT_CODE_MODEL = 0


def run_passes(module: Module, pipeline: str, machine: TargetMachine | None = None) -> None:
    """Run a pass pipeline in the syntax of opt, and verify the module after each pass.

    This invalidates all values of the context.
    Raises LlvmError if the pipeline is invalid.
    """
    library = module.context.library
    options = library.call("CreatePassBuilderOptions")
    library.call("PassBuilderOptionsSetVerifyEach", options, 1)
    target = machine.handle if machine else None
    error = library.call("RunPasses", module.handle, pipeline.encode(), target, options)
    library.call("DisposePassBuilderOptions", options)
    module.context.forget_all()
    if error:
        message = library.call("GetErrorMessage", error)
        raise LlvmError(library.take_text(message))


class TargetMachine:
    """A target machine for code generation. Use it as a context manager, which disposes of it."""

    def __init__(
        self, library: LlvmLibrary, triple: str, cpu: str, features: str, *, opt_level: int = 2
    ) -> None:
        """Create a target machine. Raises LlvmError if the library lacks the back end of the triple."""
        self.library = library
        library.initialize_x86()
        target = library.checked("GetTargetFromTriple", triple.encode())
        self.handle = library.call(
            "CreateTargetMachine",
            target,
            triple.encode(),
            cpu.encode(),
            features.encode(),
            opt_level,
            _POSITION_INDEPENDENT,
            _DEFAULT_CODE_MODEL,
        )

    def __enter__(self) -> Self:
        """Return the target machine."""
        return self

    def __exit__(self, *_: object) -> None:
        """Dispose of the target machine."""
        self.library.call("DisposeTargetMachine", self.handle)
        self.handle = 0

    @property
    def data_layout(self) -> str:
        """Return the data layout of the target."""
        layout = self.library.call("CreateTargetDataLayout", self.handle)
        text = self.library.take_text(self.library.call("CopyStringRepOfTargetData", layout))
        self.library.call("DisposeTargetData", layout)
        return text

    def assembly(self, module: Module) -> str:
        """Return the module as assembly."""
        message, buffer = ctypes.c_void_p(), ctypes.c_void_p()
        emit = self.library.function("TargetMachineEmitToMemoryBuffer")
        outputs = (ctypes.byref(message), ctypes.byref(buffer))
        if emit(self.handle, module.handle, _ASSEMBLY, *outputs):
            raise LlvmError(self.library.take_text(message.value or 0))
        return self.library.take_buffer(buffer.value or 0).decode()
