"""Steps on device code for the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlir_offload.driver.step.step import TextStep, read_text, write_text
from mlir_offload.offload.device import library
from mlir_offload.translate.cpu import variables
from mlir_offload.translate.cpu.module import CpuDeviceSource, cpu_device_ir, finish_cpu_ir
from mlir_offload.translate.sanitizer import Sanitizer


class _CpuStep(TextStep, frozen=True, kw_only=True):
    """The common fields of the steps for modules whose kernels may be collapsed."""

    kernels: tuple[str, ...] = ()
    device_libraries: tuple[Path, ...] = ()
    rdc: bool = False
    sanitizer: Sanitizer | None = None
    location: str = ""

    def rewritten(
        self, text: str, *, fibers: bool = False, collapse: bool = True
    ) -> CpuDeviceSource:
        """Return the module rewritten for the CPU, as far as possible before kernels are collapsed."""
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

    If kernels are to be collapsed, the module is incomplete: it is written to OUTPUT.uncollapsed.ll, for the collapse
    and cpu-finish.
    """

    collapse: bool = False
    value_names: Path | None = None

    def _do(self) -> None:
        made = self.rewritten(
            self._with_variables(),
            fibers=self.value_names is not None,
            collapse=self.collapse,
        )
        text = made.text
        if self.value_names is not None:
            text = variables.steppable(text)
        if not made.needs_collapse:
            # A directory of -save-temps may contain the file of an earlier program.
            self.uncollapsed.unlink(missing_ok=True)
        write_text(self.uncollapsed if made.needs_collapse else self.output, text)

    @property
    def writes(self) -> tuple[str, ...]:
        """Return the paths of the complete and of the uncollapsed module, of which one is written."""
        return (str(self.output), str(self.uncollapsed))

    @property
    def uncollapsed(self) -> Path:
        """Return the path of a module whose kernels must still be collapsed."""
        return self.output.with_suffix(".uncollapsed.ll")

    def _with_variables(self) -> str:
        """Return the text with its values named as in the source, if that can be read."""
        text, source = read_text(self.source), Path(self.location)
        if self.value_names is None or not source.is_file():
            return text

        return variables.with_variables(
            text, read_text(self.value_names), read_text(source), source.name
        )


class CpuFinish(_CpuStep, frozen=True, kw_only=True, tag="cpu-finish"):
    """Add the entry points of kernels to the collapsed output of cpu-ir."""

    made_from: Path

    def _rewritten(self, text: str) -> str:
        return finish_cpu_ir(text, self.rewritten(read_text(self.made_from))).text


def _defined(libraries: Sequence[Path]) -> frozenset[str]:
    """Return the functions that bitcode libraries define."""
    if not libraries:
        return frozenset()

    return frozenset(name for path in libraries for name in library.defined_functions(path))
