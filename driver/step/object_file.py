"""Steps on objects and libraries, around the device link."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.step.members import write_members
from mlir_offload.driver.step.step import Keyed, Step, write_text
from mlir_offload.offload.link.collision import detach_object
from mlir_offload.offload.link.dummy_image import render_dummy_image
from mlir_offload.offload.link.relocatable_adapter import (
    registration_names,
    write_relocatable_linker,
)
from mlir_offload.offload.runtime import read_runtime_symbols
from mlir_offload.toolchain.byte_view import open_view


class DummyImage(Step, frozen=True, kw_only=True, tag="dummy-image"):
    """Write the module that makes the linker wrapper take device code out of static libraries."""

    source: Path
    output: Path

    def _do(self) -> None:
        write_text(self.output, render_dummy_image(self.source.read_bytes()))


class Members(Step, frozen=True, kw_only=True, tag="members"):
    """Write the members of a static library into a directory, and the list of them."""

    source: Path
    output: Path

    def _do(self) -> None:
        write_members(self.source, self.output)


class Detach(Step, frozen=True, kw_only=True, tag="detach"):
    """Make an object whose device code is linked leave that of other objects alone."""

    source: Path
    output: Path

    def _do(self) -> None:
        content = self.source.read_bytes()
        self.output.write_bytes(detach_object(content, location=str(self.source)))


class Replacement(Keyed, frozen=True):
    """An object, and the one that a linker takes for it."""

    file: Path
    by: Path


class RelocatableLinker(Step, frozen=True, kw_only=True, tag="relocatable-linker"):
    """Write a linker by which an old linker wrapper makes an object."""

    linker: str = "ld"
    replaced: tuple[Replacement, ...] = ()
    output: Path

    def _do(self) -> None:
        replaced = [(str(one.file), str(one.by)) for one in self.replaced]
        write_relocatable_linker(self.output, self.linker, replaced)


class RegistrationNames(Step, frozen=True, kw_only=True, tag="registration-names"):
    """Write, as llvm-objcopy reads them, names by which an object alone finds its entries."""

    source: Path
    output: Path

    def _do(self) -> None:
        with open_view(self.source) as view:
            words = registration_names(view)
            write_text(self.output, "".join(f"{word}\n" for word in words))


class RuntimeSymbols(Step, frozen=True, kw_only=True, tag="runtime-symbols"):
    """Write the names of the symbols that are the runtime's own, as llvm-objcopy reads them."""

    source: Path
    weak: Path
    output: Path

    def _do(self) -> None:
        symbols = read_runtime_symbols(self.source)
        write_text(self.output, "".join(f"{name}\n" for name in symbols.internal))
        write_text(self.weak, "".join(f"{name}\n" for name in symbols.public))
