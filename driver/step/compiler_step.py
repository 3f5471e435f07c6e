"""Steps that are compiler commands: one input, one output, a separate process.

The `flags` of a step are options of the compiler, which the process of the step parses like any other
command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import PurePath
from typing import ClassVar

from mlir_offload.driver.step.step import Step, spelled_options
from mlir_offload.toolchain.process import ProcessRunner, Runner, as_operand
from mlir_offload.translate.kind_lowering import DeviceForm


class CompilerStep(Step, frozen=True, kw_only=True):
    """A step that reads `source` and writes `output`, with tools of identity `toolchain_id`.

    `work` is the function of mlir_offload.driver that runs it, as MODULE:FUNCTION.
    """

    source: PurePath
    output: PurePath
    flags: tuple[str, ...] = ()
    toolchain_id: str = ""

    work: ClassVar[str]
    language: ClassVar[tuple[str, ...]] = ()

    @property
    def compiler_words(self) -> tuple[str, ...]:
        """Return the command line for the parser of the compiler."""
        files = ("-c", as_operand(str(self.source)), "-o", str(self.output))
        return (*self.language, *files, *self.flags)

    @property
    def argv(self) -> tuple[str, ...]:
        """Return the words that `parse_compiler_step` parses to this step."""
        names = sorted(self.__struct_fields__, key="toolchain_id".__eq__)
        own = (name for name in names if name not in OF_COMPILER)
        return (f"--{self.name}", *self.compiler_words, *spelled_options(self, own))

    def run(self, runner: Runner | None = None) -> None:
        """Run the step. Raises MlirOffloadError; then there is no output."""
        module, _, function = self.work.partition(":")
        work = getattr(import_module(f"mlir_offload.driver.{module}"), function)
        work(self, runner or ProcessRunner())


OF_COMPILER = frozenset(("source", "output", "flags"))


class HermeticStep(CompilerStep, frozen=True, kw_only=True):
    """A step that ccache can cache: `-x cpp-output` declares that the input is preprocessed."""

    work = "build.image_step:run_hermetic_step"
    language = ("-x", "cpp-output")


class ImageStep(HermeticStep, frozen=True, kw_only=True, tag="image-step"):
    """Compile one device module for one architecture."""

    kernels: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    library_id: str = ""
    time: int = 1


class HostStep(HermeticStep, frozen=True, kw_only=True, tag="host-step"):
    """Lower one host module to LLVM IR."""

    uses_async: bool = False


class ObjectStep(HermeticStep, frozen=True, kw_only=True, tag="object-step"):
    """Compile one host module with its offload data to an object."""


class BuildStep(CompilerStep, frozen=True, kw_only=True):
    """A step of a project. Errors name `program`, if that is not the source."""

    program: PurePath | None = None
    depfiles: tuple[PurePath, ...] = ()

    work = "project.step:run_project_step"


class SplitStep(BuildStep, frozen=True, kw_only=True, tag="split-step"):
    """Split a program into its host part and its device part."""

    forms: tuple[DeviceForm, ...] = ()


class DeviceStep(BuildStep, frozen=True, kw_only=True, tag="device-step"):
    """Make the images of all device modules of a program for one architecture."""


class JoinStep(BuildStep, frozen=True, kw_only=True, tag="join-step"):
    """Make the object of a program from its host part and the images."""

    device: PurePath
    image_files: tuple[PurePath, ...] = ()


class ModuleStep(BuildStep, frozen=True, kw_only=True, tag="module-step"):
    """Do all steps of a program, and write their intermediate files for later builds."""

    image_files: tuple[PurePath, ...] = ()


class SourceStep(BuildStep, frozen=True, kw_only=True, tag="source-step"):
    """Compile a file of another language."""


class ArchiveStep(BuildStep, frozen=True, kw_only=True, tag="archive-step"):
    """Make a static library from objects."""

    members: tuple[PurePath, ...] = ()


COMPILER_STEPS: Mapping[str, type[CompilerStep]] = {
    f"--{step.__struct_config__.tag}": step
    for step in (
        *(ImageStep, HostStep, ObjectStep),
        *(ModuleStep, SplitStep, DeviceStep, JoinStep, SourceStep, ArchiveStep),
    )
}
"""The steps by the first word of their command line, an option, because a cache takes other words for inputs."""
