"""Steps on device code for the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlir_offload.driver.step.step import TextStep, read_text, write_text
from mlir_offload.offload import llvm_ir
from mlir_offload.offload.device import library
from mlir_offload.translate.cpu import variables
from mlir_offload.translate.cpu.module import CpuDeviceSource, cpu_device_ir, finish_cpu_ir
from mlir_offload.translate.sanitizer import Sanitizer


class _CpuStep(TextStep, frozen=True, kw_only=True):
    """The common fields of the steps for modules whose kernels may have barriers."""

    kernels: tuple[str, ...] = ()
    device_libraries: tuple[Path, ...] = ()
    rdc: bool = False
    sanitizer: Sanitizer | None = None
    location: str = ""

    def rewritten(
        self, text: str, *, fibers: bool = False, collapse: bool = False
    ) -> CpuDeviceSource:
        """Return the module rewritten for the CPU, as far as possible before kernels are split."""
        sanitizer = self.sanitizer
        return cpu_device_ir(
            text,
            kernels=self.kernels,
            library=_defined(self.device_libraries),
            keeps_functions=self.rdc,
            attributes=(sanitizer.attribute,) if sanitizer else (),
            fibers_only=fibers or (sanitizer is not None and sanitizer.finds_races),
            for_collapse=collapse,
        )


class CpuIr(_CpuStep, frozen=True, kw_only=True, tag="cpu-ir"):
    """Rewrite the LLVM IR of a device module for the CPU.

    A module whose kernels have barriers is incomplete: it is written to OUTPUT.unsplit.ll, for opt and
    cpu-split.
    """

    fibers: bool = False
    collapse: bool = False
    value_names: Path | None = None

    def _do(self) -> None:
        made = self.rewritten(
            self._with_variables(),
            fibers=self.fibers or self.value_names is not None,
            collapse=self.collapse,
        )
        text = made.text
        if self.value_names is not None:
            text = variables.steppable(text)
        if not made.needs_prepare:
            # A directory of -save-temps may contain the file of an earlier program.
            self.unsplit.unlink(missing_ok=True)
        write_text(self.unsplit if made.needs_prepare else self.output, text)

    @property
    def writes(self) -> tuple[str, ...]:
        """Return the paths of the complete and of the unsplit module, of which one is written."""
        return (str(self.output), str(self.unsplit))

    @property
    def unsplit(self) -> Path:
        """Return the path of a module that must still be split at barriers."""
        return self.output.with_suffix(".unsplit.ll")

    def _with_variables(self) -> str:
        """Return the text with its values named as in the source, if that can be read."""
        text, source = read_text(self.source), Path(self.location)
        if self.value_names is None or not source.is_file():
            return text

        return variables.with_variables(
            text, read_text(self.value_names), read_text(source), source.name
        )


class CpuInline(TextStep, frozen=True, kw_only=True, tag="cpu-inline"):
    """Inline in process, in place of opt between cpu-ir and cpu-split."""

    def _rewritten(self, text: str) -> str:

        return llvm_ir.inline_in_process(text, location=str(self.source))


class CpuSplit(_CpuStep, frozen=True, kw_only=True, tag="cpu-split"):
    """Split kernels at their barriers, in the output of cpu-ir after inlining by opt."""

    made_from: Path

    def _rewritten(self, text: str) -> str:
        return finish_cpu_ir(text, self.rewritten(read_text(self.made_from))).text


def _defined(libraries: Sequence[Path]) -> frozenset[str]:
    """Return the functions that bitcode libraries define."""
    if not libraries:
        return frozenset()

    return frozenset(name for path in libraries for name in library.defined_functions(path))
