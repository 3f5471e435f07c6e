"""Steps on a whole program: its split, the header of its functions, and host and device modules in one text."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.message.report import show_warning
from mlir_offload.driver.step.split_file import write_split
from mlir_offload.driver.step.step import Step, TextStep, read_text, write_text
from mlir_offload.toolchain.errors import ToolFailedError
from mlir_offload.toolchain.target import Target
from mlir_offload.translate import prefix_map
from mlir_offload.translate.host import interface
from mlir_offload.translate.kernel_parameter import WIDE, ParameterForm
from mlir_offload.translate.kind_lowering import NVVM_FORM, Contraction, DeviceForm
from mlir_offload.translate.legalize import fast_math as legalize_fast_math
from mlir_offload.translate.legalize.split import SplitOptions, split_program
from mlir_offload.translate.lower import (
    bordered,
    ir_modules,
    join_program,
    separate_program,
    unwrapped,
)


class Split(Step, frozen=True, kw_only=True, tag="split"):
    """Split a normalised program into its host module and its device modules."""

    source: Path
    made_from: Path
    unit_id: str
    llvm: int
    prefix_maps: tuple[prefix_map.PrefixMap, ...] = ()
    forms: tuple[DeviceForm, ...] = (NVVM_FORM,)
    targets: tuple[Target, ...] = ()
    fast_math: bool = False
    parameters: ParameterForm | None = None
    index_bits: int | None = None
    describe_memory: bool = False
    transformed: bool = False
    rdc: bool = False
    is_program: bool = False
    output: Path

    def _do(self) -> None:
        text = read_text(self.source)
        text = prefix_map.map_locations(text, self.prefix_maps) if self.prefix_maps else text
        split = split_program(
            legalize_fast_math.with_fast_math(text) if self.fast_math else text,
            SplitOptions(
                source_text=_bytes_as_text(self.made_from),
                unit_id=self.unit_id,
                llvm_major=self.llvm,
                forms=self.forms,
                keeps_functions=self.rdc,
                describes_memory=self.describe_memory,
                is_program=self.is_program,
                is_transformed=self.transformed,
                targets=self.targets,
                parameters=self.parameters or ParameterForm.WHOLE,
                index_bits=self.index_bits or WIDE,
            ),
        )
        for warning in split.warnings:
            show_warning(warning.message, warning.location)
        write_split(split, self.output)


class Header(Step, frozen=True, kw_only=True, tag="header"):
    """Write the C header of the functions with llvm.emit_c_interface of normalised programs."""

    sources: tuple[Path, ...]
    programs: tuple[Path, ...]
    output: Path

    def _do(self) -> None:

        texts = [
            (read_text(source), _bytes_as_text(program))
            for source, program in zip(self.sources, self.programs, strict=True)
        ]
        location = str(self.programs[0])
        write_text(
            self.output, interface.render_header_of(texts, self.output.name, location=location)
        )


def _bytes_as_text(path: Path) -> str:
    """Return a program as its author wrote it: bytecode is not text, each byte represents itself."""
    return path.read_bytes().decode("latin-1")


class Join(TextStep, frozen=True, kw_only=True, tag="join"):
    """Join the host text and device modules of a program for one mlir-opt."""

    devices: tuple[Path, ...]

    def _rewritten(self, text: str) -> str:
        joined = join_program(text, [read_text(device) for device in self.devices])
        if joined is None:
            msg = f"{self.source} and its device modules have aliases or resources that cannot be joined"
            raise ToolFailedError(msg, hint="lower them one by one")
        return joined


class Separate(TextStep, frozen=True, kw_only=True, tag="separate"):
    """Make each part of a joined program a module of its own for mlir-translate."""

    triple: str
    rdc: bool = False
    fp_contract: Contraction | None = None
    mark_barriers: bool = False

    def _rewritten(self, text: str) -> str:
        host, devices = separate_program(text)
        contraction = self.fp_contract or Contraction.ON
        texts = [
            unwrapped(
                device,
                self.triple,
                keeps_functions=self.rdc,
                contraction=contraction,
                marks_barriers=self.mark_barriers,
            )
            for device in devices
        ]
        return bordered([host.render_part(host.operations), *texts])


class Part(Step, frozen=True, kw_only=True, tag="part"):
    """Write each module of LLVM IR that mlir-translate wrote of a joined program to a file."""

    source: Path
    parts: tuple[Path, ...]

    def _do(self) -> None:
        texts = ir_modules(read_text(self.source))
        if len(texts) != len(self.parts):
            msg = f"mlir-translate wrote {len(texts)} modules for {len(self.parts)}"
            hint = "report this with the output of 'mlir-translate --version'"
            raise ToolFailedError(msg, hint=hint)
        for text, path in zip(texts, self.parts, strict=True):
            write_text(path, text)
