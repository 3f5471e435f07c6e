"""The steps of one module: apart, so that a change repeats few of them, and all in one process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from msgspec import Struct

from mlir_offload.driver.project.planned_step import (
    DEVICE,
    JOIN,
    MODULE,
    SPLIT,
    ProjectStep,
    beside,
    operand,
)
from mlir_offload.driver.project.tools import TIME_VARIABLE, StepTools
from mlir_offload.driver.step.action import Action
from mlir_offload.toolchain.target import Target
from mlir_offload.translate.device_form import NVVM_FORM
from mlir_offload.translate.kind_lowering import forms_of


class ModulePlan(Struct, frozen=True):
    """How one module is compiled in one variant."""

    variant: str
    path: PurePosixPath
    place: PurePosixPath
    tools: StepTools
    targets: tuple[Target, ...]
    attached: tuple[str, ...]

    def split(self) -> ProjectStep:
        """Return the step that takes the program apart."""
        identity = self.tools.identity(None)
        forms = forms_of(self.targets)
        named = () if forms == (NVVM_FORM,) else tuple(f"--form={form.name}" for form in forms)
        arguments = ("--split-step", "-c", operand(self.path), "-o", str(self._host), *named)
        action = Action(
            (*arguments, *self.tools.flags, f"--toolchain-id={identity}"),
            (self.path, *self.tools.pipeline_files),
            (self._host, self._device),
            identity,
        )
        kept, whole = (self._device,), self.whole
        return ProjectStep(
            *(SPLIT, self.path, self.variant, action), kept=kept, steps=self.count, whole=whole
        )

    @property
    def count(self) -> int:
        """Return how many steps the module has."""
        return 2 + (0 if self.tools.options.makes_final_objects else len(self.targets))

    def whole(self) -> ProjectStep:
        """Return the step that does all of them."""
        is_final = self.tools.options.makes_final_objects
        steps = [self.split(), *(() if is_final else map(self.device, self.targets)), self.join()]
        identity, output = self.tools.identity_of(self.targets), beside(self.place, ".o")
        depfiles = [step.action.depfile for step in steps if step.action.depfile]
        archs = f"--offload-arch={','.join(map(str, self.targets))}"
        images = () if is_final else map(self._images, self.targets)
        action = Action(
            (
                *("--module-step", "-c", operand(self.path), "-o", str(output), archs),
                *self.tools.flags,
                *(f"--images={image}" for image in images),
                *(f"--depfile={depfile}" for depfile in depfiles),
                f"--toolchain-id={identity}",
            ),
            (self.path, *self.tools.pipeline_files),
            (*(output for step in steps for output in step.action.outputs), *depfiles),
            identity,
            consulted=tuple(self._libraries(self.targets)),
            environment=tuple({pair for step in steps for pair in step.action.environment}),
        )
        return ProjectStep(MODULE, self.path, self.variant, action)

    def device(self, target: Target) -> ProjectStep:
        """Return the step that makes the images for a target."""
        identity = self.tools.identity(target.kind)
        output, arch = self._images(target), f"--offload-arch={target}"
        libraries = tuple(self._libraries((target,)))
        depfile = beside(output, ".d") if libraries else None
        action = Action(
            (
                *("--device-step", "-c", str(self._device), "-o", str(output), arch),
                *self.tools.later_flags,
                *((f"--depfile={depfile}",) if depfile else ()),
                *(f"--program={self.path}", f"--toolchain-id={identity}"),
            ),
            (self._device,),
            (output,),
            identity,
            consulted=libraries,
            environment=self.tools.image_environment,
            depfile=depfile,
        )
        return ProjectStep(DEVICE, self.path, self.variant, action, str(target))

    def join(self) -> ProjectStep:
        """Return the step that makes the object; a final one takes the device code as it is made."""
        output, is_final = beside(self.place, ".o"), self.tools.options.makes_final_objects
        identity = self.tools.identity_of(self.targets if is_final else ())
        images = () if is_final else tuple(map(self._images, self.targets))
        libraries = tuple(self._libraries(self.targets)) if is_final else ()
        depfile = beside(output, ".d") if libraries else None
        archs = f"--offload-arch={','.join(map(str, self.targets))}"
        action = Action(
            (
                *("--join-step", "-c", str(self._host), "-o", str(output)),
                *(f"--device={self._device}", *(f"--images={image}" for image in images)),
                *(f"--program={self.path}", archs, *self.tools.later_flags),
                *((f"--depfile={depfile}",) if depfile else ()),
                f"--toolchain-id={identity}",
            ),
            (self._host, self._device, *images),
            (output,),
            identity,
            consulted=libraries,
            environment=self.tools.environment(TIME_VARIABLE) if is_final else (),
            depfile=depfile,
        )
        return ProjectStep(JOIN, self.path, self.variant, action)

    def _libraries(self, targets: Iterable[Target]) -> dict[PurePosixPath, None]:
        """Return the device libraries that the images for the targets may contain."""
        targets = tuple(targets)
        found: dict[PurePosixPath, None] = {}
        if not all(target.is_cpu for target in targets):
            found |= dict.fromkeys(self.path.parent / name for name in self.attached)
        for library in self.tools.options.device_flags.libraries:
            if any(map(library.serves, targets)):
                found[PurePosixPath(library.path)] = None
        return found

    @property
    def _host(self) -> PurePosixPath:
        return beside(self.place, ".host")

    @property
    def _device(self) -> PurePosixPath:
        return beside(self.place, ".device")

    def _images(self, target: Target) -> PurePosixPath:
        return beside(self.place, f".{target}.images")
