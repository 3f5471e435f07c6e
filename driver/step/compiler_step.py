"""Steps that are calls of the compiler: one input, one output, a process of its own.

What a module, a target or a build is made of is given by words of the compiler (`flags`), which the
process that does the step reads as it reads those of every call.
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
    """A step that reads `source` and makes `output`, with tools of the identity that is named.

    `work` is the function of mlir_offload.driver that does it, as a subcommand names its own.
    """

    source: PurePath
    output: PurePath
    flags: tuple[str, ...] = ()
    toolchain_id: str = ""

    work: ClassVar[str]
    language: ClassVar[tuple[str, ...]] = ()

    @property
    def compiler_words(self) -> tuple[str, ...]:
        """Return what the parser of the compiler reads."""
        files = ("-c", as_operand(str(self.source)), "-o", str(self.output))
        return (*self.language, *files, *self.flags)

    @property
    def argv(self) -> tuple[str, ...]:
        """Return the words from which `parse_compiler_step` makes it again."""
        names = sorted(self.__struct_fields__, key="toolchain_id".__eq__)
        own = (name for name in names if name not in OF_COMPILER)
        return (f"--{self.name}", *self.compiler_words, *spelled_options(self, own))

    def run(self, runner: Runner | None = None) -> None:
        """Do it. Raises MlirOffloadError; no output is left then."""
        module, _, function = self.work.partition(":")
        work = getattr(import_module(f"mlir_offload.driver.{module}"), function)
        work(self, runner or ProcessRunner())


OF_COMPILER = frozenset(("source", "output", "flags"))


class HermeticStep(CompilerStep, frozen=True, kw_only=True):
    """A step that ccache can keep: the language tells it that the input is ready to compile."""

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
    """A step of a project: `program` is the file that errors name, if that is not the source."""

    program: PurePath | None = None
    depfiles: tuple[PurePath, ...] = ()

    work = "project.step:run_project_step"


class SplitStep(BuildStep, frozen=True, kw_only=True, tag="split-step"):
    """Take a program apart."""

    forms: tuple[DeviceForm, ...] = ()


class DeviceStep(BuildStep, frozen=True, kw_only=True, tag="device-step"):
    """Make the images of all device modules of a program for one architecture."""


class JoinStep(BuildStep, frozen=True, kw_only=True, tag="join-step"):
    """Make the object of the host module, which is the source, and the images."""

    device: PurePath
    image_files: tuple[PurePath, ...] = ()


class ModuleStep(BuildStep, frozen=True, kw_only=True, tag="module-step"):
    """Do what the three steps of a program do, and leave the files between them for later builds."""

    image_files: tuple[PurePath, ...] = ()


class SourceStep(BuildStep, frozen=True, kw_only=True, tag="source-step"):
    """Compile a file of another language."""


class ArchiveStep(BuildStep, frozen=True, kw_only=True, tag="archive-step"):
    """Make a static library of objects."""

    members: tuple[PurePath, ...] = ()


COMPILER_STEPS: Mapping[str, type[CompilerStep]] = {
    f"--{step.__struct_config__.tag}": step
    for step in (
        *(ImageStep, HostStep, ObjectStep),
        *(ModuleStep, SplitStep, DeviceStep, JoinStep, SourceStep, ArchiveStep),
    )
}
"""The steps by the first word of their command lines: a cache takes one without dashes for an input."""
