"""The steps of one module: separate ones, so that a change repeats few of them, or one for all."""

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
    sibling,
)
from mlir_offload.driver.project.tools import TIME_VARIABLE, StepTools
from mlir_offload.driver.step.action import action_of
from mlir_offload.driver.step.compiler_step import DeviceStep, JoinStep, ModuleStep, SplitStep
from mlir_offload.toolchain.target import Target
from mlir_offload.translate.kind_lowering import NVVM_FORM, forms_of


class ModulePlan(Struct, frozen=True):
    """The compilation of one module in one variant."""

    variant: str
    path: PurePosixPath
    place: PurePosixPath
    tools: StepTools
    targets: tuple[Target, ...]
    attached: tuple[str, ...]

    def split(self) -> ProjectStep:
        """Return the step that splits the program."""
        forms = forms_of(self.targets)
        step = SplitStep(
            source=self.path,
            output=self._host,
            flags=self.tools.flags,
            forms=() if forms == (NVVM_FORM,) else forms,
            toolchain_id=self.tools.identity(None),
        )
        outputs = (self._host, self._device)
        action = action_of(step, (self.path, *self.tools.pipeline_files), outputs)
        kept, whole = (self._device,), self.whole
        return ProjectStep(
            *(SPLIT, self.path, self.variant, action), kept=kept, steps=self.count, whole=whole
        )

    @property
    def count(self) -> int:
        """Return the number of steps of the module."""
        return 2 + (0 if self.tools.options.makes_non_rdc_objects else len(self.targets))

    def whole(self) -> ProjectStep:
        """Return the step that does all of them in one process."""
        is_final = self.tools.options.makes_non_rdc_objects
        steps = [self.split(), *(() if is_final else map(self.device, self.targets)), self.join()]
        depfiles = [step.action.depfile for step in steps if step.action.depfile]
        whole = ModuleStep(
            source=self.path,
            output=sibling(self.place, ".o"),
            flags=(self._archs, *self.tools.flags),
            image_files=() if is_final else tuple(map(self._images, self.targets)),
            depfiles=tuple(depfiles),
            toolchain_id=self.tools.identity_of(self.targets),
        )
        action = action_of(
            whole,
            (self.path, *self.tools.pipeline_files),
            (*(output for step in steps for output in step.action.outputs), *depfiles),
            consulted=tuple(self._libraries(self.targets)),
            environment=tuple({pair for step in steps for pair in step.action.environment}),
        )
        return ProjectStep(MODULE, self.path, self.variant, action)

    def device(self, target: Target) -> ProjectStep:
        """Return the step that makes the images for a target."""
        output = self._images(target)
        libraries = tuple(self._libraries((target,)))
        depfile = sibling(output, ".d") if libraries else None
        step = DeviceStep(
            source=self._device,
            output=output,
            flags=(f"--offload-arch={target}", *self.tools.later_flags),
            program=self.path,
            depfiles=(depfile,) if depfile else (),
            toolchain_id=self.tools.identity(target.kind),
        )
        action = action_of(
            step,
            (self._device,),
            (output,),
            consulted=libraries,
            environment=self.tools.image_environment,
            depfile=depfile,
        )
        return ProjectStep(DEVICE, self.path, self.variant, action, str(target))

    def join(self) -> ProjectStep:
        """Return the step that makes the object. For a non-RDC object, it makes the images too."""
        output, is_final = sibling(self.place, ".o"), self.tools.options.makes_non_rdc_objects
        images = () if is_final else tuple(map(self._images, self.targets))
        libraries = tuple(self._libraries(self.targets)) if is_final else ()
        depfile = sibling(output, ".d") if libraries else None
        step = JoinStep(
            source=self._host,
            output=output,
            flags=(self._archs, *self.tools.later_flags),
            device=self._device,
            image_files=images,
            program=self.path,
            depfiles=(depfile,) if depfile else (),
            toolchain_id=self.tools.identity_of(self.targets if is_final else ()),
        )
        action = action_of(
            step,
            (self._host, self._device, *images),
            (output,),
            consulted=libraries,
            environment=self.tools.environment(TIME_VARIABLE) if is_final else (),
            depfile=depfile,
        )
        return ProjectStep(JOIN, self.path, self.variant, action)

    def _libraries(self, targets: Iterable[Target]) -> dict[PurePosixPath, None]:
        """Return the device libraries that may be linked into images for the targets."""
        targets = tuple(targets)
        found: dict[PurePosixPath, None] = {}
        if not all(target.is_cpu for target in targets):
            found |= dict.fromkeys(self.path.parent / name for name in self.attached)
        for library in self.tools.options.device_flags.libraries:
            if any(map(library.is_compatible, targets)):
                found[PurePosixPath(library.path)] = None
        return found

    @property
    def _archs(self) -> str:
        return f"--offload-arch={','.join(map(str, self.targets))}"

    @property
    def _host(self) -> PurePosixPath:
        return sibling(self.place, ".host")

    @property
    def _device(self) -> PurePosixPath:
        return sibling(self.place, ".device")

    def _images(self, target: Target) -> PurePosixPath:
        return sibling(self.place, f".{target}.images")
