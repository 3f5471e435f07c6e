"""Device images from precompiled device code: the objects of a `gpu.binary`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.kind_build import ImageFile, build_of, targets_for
from mlir_offload.driver.step.split_file import ModuleFile, ObjectFile
from mlir_offload.driver.system.parallel import parallel_map
from mlir_offload.offload.image import ImageForm
from mlir_offload.toolchain.errors import CompatibilityError, SourceError
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import Kind, Target, sm_number
from mlir_offload.translate.kind_lowering import LOWERINGS


def make_precompiled_images(
    context: BuildContext, source: Path, module: ModuleFile
) -> tuple[tuple[ImageFile, ...], tuple[ImageFile, ...]]:
    """Return the images for the device link, and the linked ones that it would drop.

    Raises SourceError if a device kind has both sorts, CompatibilityError for an object that the release
    cannot read.
    """
    targets = targets_for(context, module)
    chosen = [(target, _object_for(module, target)) for target in targets]
    to_link: list[ImageFile] = []
    linked: list[ImageFile] = []
    for kind in dict.fromkeys(target.kind for target in targets):
        own = [pair for pair in chosen if pair[0].kind is kind]
        sorts = {one.image.is_linked for _, one in own}
        if len(sorts) > 1:
            msg = (
                f"{module.title} holds linked code for some GPUs, and code to be linked for others"
            )
            hint = "make all objects in one form, by one --gpu-module-to-binary"
            raise SourceError(msg, hint=hint, location=str(source))
        if sorts == {True}:
            linked.append(_fat_binary(context, source, module, kind, own))
        else:
            tasks = [partial(_make_image, context, source, module, *pair) for pair in own]
            to_link += parallel_map(tasks)
    return tuple(to_link), tuple(linked)


def _object_for(module: ModuleFile, target: Target) -> ObjectFile:
    """Return the object for a target, with a preference for the exact architecture over PTX of an older GPU."""
    fitting = [one for one in module.objects if one.image.is_compatible(target)]

    def fitness(one: ObjectFile) -> tuple[bool, int]:
        return target.arch in one.image.archs, sm_number(one.image.ptx) if one.image.ptx else 0

    return max(fitting, key=fitness)


def _make_image(
    context: BuildContext, source: Path, module: ModuleFile, target: Target, given: ObjectFile
) -> ImageFile:
    form = given.image.form
    if form is ImageForm.BITCODE:
        lowered = _disassembled(context, source, module, given)
        return build_of(target.kind).make_image(context, source, module, lowered, target)
    if form not in {ImageForm.PTX, ImageForm.AMDGPU_ASSEMBLY}:
        return ImageFile(given.path, target)
    name = f"{given.path.stem}.{target.arch.replace(':', '.')}.o"
    build, output = build_of(target.kind), given.path.with_name(name)
    command, image = build.assemble(context, source, given, target, output)
    context.executor.tool(command, image.path)
    return image


def _disassembled(
    context: BuildContext, source: Path, module: ModuleFile, given: ObjectFile
) -> Path:
    """Return the bitcode as textual IR of the lowering LLVM. Raises CompatibilityError if it is newer."""
    release = context.mlir.version.major
    if given.image.producer > release:
        msg = (
            f"{module.title} holds bitcode of LLVM {given.image.producer}, which LLVM {release} "
            "may misread"
        )
        hint = f"build with --llvm={given.image.producer}, or make it again with LLVM {release}"
        raise CompatibilityError(msg, hint=hint, location=str(source))
    text = given.path.with_name(f"{given.path.name}.ll")
    command = Command((str(context.mlir.tool("llvm-dis")), str(given.path), "-o", str(text)))
    make = partial(context.executor.tool, command, text, decides=True)
    context.executor.once(text, make)
    _check_vendor(text, source, module, given)
    return text


def _check_vendor(text: Path, source: Path, module: ModuleFile, given: ObjectFile) -> None:
    """Raise SourceError if the bitcode was lowered for GPUs of another vendor."""
    other = LOWERINGS[given.image.kind].other_vendor
    found = other.mark.search(text.read_text(encoding="utf-8")) if other else None
    if other is not None and found is not None:
        msg = f"{module.title} holds code for {given.image.made_for} that was lowered for {other.name}: {found['mark'].strip()}"
        hint = f"lower the gpu.module by {other.own_pass} before gpu-module-to-binary, or leave the gpu.module to mlir-offload"
        raise SourceError(msg, hint=hint, location=str(source))


def _fat_binary(
    context: BuildContext,
    source: Path,
    module: ModuleFile,
    kind: Kind,
    chosen: Sequence[tuple[Target, ObjectFile]],
) -> ImageFile:
    """Return linked objects of a kind in the container that its runtime loads; a container is not repacked."""
    objects = tuple(dict.fromkeys(one for _, one in chosen))
    containers = [
        one for one in objects if one.image.form in {ImageForm.FATBINARY, ImageForm.BUNDLE}
    ]
    target = chosen[0][0]
    if len(objects) == 1 and containers:
        return ImageFile(objects[0].path, target)
    if containers:
        msg = f"{module.title} contains several fat binaries, but a program registers only one"
        hint = (
            "make one for all GPUs, or objects of the form bin: --gpu-module-to-binary=format=bin"
        )
        raise SourceError(msg, hint=hint, location=str(source))
    output = module.path.with_name(f"{module.path.stem}.{kind}.fatbin")
    files = [(target, one.path) for target, one in chosen]
    build_of(kind).pack(context, source, files, output)
    return ImageFile(output, target)
