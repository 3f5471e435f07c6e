"""Link the device code of an object separately if another object has kernels of the same names.

The linker wrapper links all device images of a target into one. Of two kernels with the same name it keeps
one, or fails. A device-linked object has its own device images and registration, so its kernel names cannot
collide with those of other objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.link import relocatable
from mlir_offload.driver.link.device_link import DeviceLink
from mlir_offload.driver.option.command_line import as_operand
from mlir_offload.driver.step import object_file
from mlir_offload.driver.system.parallel import parallel_map
from mlir_offload.offload import llvm_ir
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.container.archive import iterate_members
from mlir_offload.offload.image import is_bitcode
from mlir_offload.offload.link.collision import (
    Collision,
    LinkInput,
    check_kinds,
    check_launches,
    check_targets,
    find_collisions,
    objects_to_detach,
    objects_to_finish,
    read_stubs,
)
from mlir_offload.offload.link.coverage import check_coverage
from mlir_offload.offload.link.duplicate import check_duplicates
from mlir_offload.offload.link.objects import ObjectContents, read_member
from mlir_offload.toolchain.byte_view import open_view, sha256
from mlir_offload.toolchain.errors import MlirOffloadError, SourceError, VerificationError
from mlir_offload.toolchain.process import Completed, tool_failed
from mlir_offload.translate.mlir import symbol

_DIRECTORY = "finish"
_HEAD_BYTES = 4
# Options for the device link apply to the separate links too.
_DEVICE_OPTIONS = ("-Wl,--device-linker=", "-Wl,--device-compiler=")


class DeviceLinkedInputs(Struct, frozen=True):
    """Replacements by link item, the objects left to the common device link, and the names of the others."""

    replaced: Mapping[str, str]
    remaining: tuple[ObjectContents, ...]
    apart: tuple[str, ...] = ()


def isolate_duplicates(
    context: BuildContext, contents: Sequence[ObjectContents], device_link: DeviceLink
) -> DeviceLinkedInputs:
    """Device-link all but one of the objects that define kernels of the same name.

    Raises VerificationError if an image lost a kernel. Raises SourceError if another file launches a kernel
    that several objects define, or if the device code of an object cannot be linked separately.
    """
    detached = _detach(context, contents)
    # Most links have no duplicates; then nothing more is read.
    if not find_collisions(contents):
        return DeviceLinkedInputs(detached, tuple(contents))
    distinct = _distinct(contents)
    collisions = find_collisions(distinct)
    inputs = _read_inputs(context, distinct)
    chosen = objects_to_finish(collisions, inputs)
    remaining = tuple(item for number, item in enumerate(distinct) if number not in chosen)
    try:
        check_kinds(collisions, distinct, load_abi(context.consumer))
        check_targets(collisions, distinct)
        check_launches(collisions, inputs)
        check_duplicates(remaining)
    except SourceError as error:
        error.location = symbol.place_of_symbol(error.message, error.location)
        raise
    work = _Finish(context, device_link, inputs, chosen)
    return DeviceLinkedInputs(
        detached | work.replace_objects() | work.replace_libraries(),
        remaining,
        tuple(distinct[number].location for number in sorted(chosen)),
    )


def _detach(context: BuildContext, contents: Sequence[ObjectContents]) -> dict[str, str]:
    """Return, by link item, copies of device-linked objects and libraries that cannot collide with others."""
    made = {}
    libraries: dict[Path, None] = {}
    for number, item in enumerate(objects_to_detach(contents)):
        if item.member:
            libraries[item.path] = None
            continue
        copy = context.workspace / _DIRECTORY / f"detached{number}" / f"{item.path.stem}.o"
        context.executor.make_directory(copy.parent)
        context.executor.step(object_file.Detach(source=item.path, output=copy))
        made[as_operand(str(item.path))] = str(copy)
    for number, library in enumerate(libraries):
        directory = context.workspace / _DIRECTORY / f"library{number}"
        context.executor.step(object_file.Members(source=library, output=directory))
        copy = _archive(context, directory, library)
        made |= dict.fromkeys(
            object_file.link_items_of(context.options.link_items, library), str(copy)
        )
    return made


def _archive(context: BuildContext, directory: Path, library: Path) -> Path:
    """Return a copy of a library, made of the members in a directory."""
    copy = directory / library.name
    command = object_file.archive_command(context.llvm.tool("llvm-ar"), directory, copy)
    context.executor.tool(command, copy)
    return copy


class _Finish(Struct, frozen=True):
    """The device links of single objects, and of library members in copies of the libraries."""

    context: BuildContext
    device_link: DeviceLink
    inputs: Sequence[LinkInput]
    chosen: Mapping[int, Collision]

    def replace_objects(self) -> dict[str, str]:
        """Return the device-linked objects by the link items that they replace."""
        made = {}
        tasks = []
        for number in self.chosen:
            item = self.inputs[number]
            if not item.contents.member:
                path = self._directory(number) / f"{item.file.stem}.o"
                made[as_operand(str(item.contents.path))] = str(path)
                tasks.append(partial(self._finish, number, item.file, path))
                self.context.executor.make_directory(path.parent)
        parallel_map(tasks)
        return made

    def replace_libraries(self) -> dict[str, str]:
        """Return copies of libraries with device-linked members, by the link items that they replace."""
        libraries: dict[Path, list[int]] = {}
        for number in self.chosen:
            if self.inputs[number].contents.member:
                libraries.setdefault(self.inputs[number].file, []).append(number)
        copies = parallel_map([partial(self._copy, *pair) for pair in libraries.items()])
        return {
            item: str(copy)
            for path, copy in zip(libraries, copies, strict=True)
            for item in object_file.link_items_of(self.context.options.link_items, path)
        }

    def _copy(self, library: Path, numbers: Sequence[int]) -> Path:
        """Return a copy of a library with these members device-linked."""
        executor, directory = self.context.executor, self._directory(numbers[0])
        executor.step(object_file.Members(source=library, output=directory))
        tasks = []
        for number in numbers:
            item = self.inputs[number]
            member = object_file.member_file(directory, item.ordinal, item.contents.member)
            tasks.append(partial(self._finish, number, member, member))
        parallel_map(tasks)
        return _archive(self.context, directory, library)

    def _finish(self, number: int, source: Path, output: Path) -> None:
        """Link the device code of one object, and detach the result from other objects."""
        executor, contents = self.context.executor, self.inputs[number].contents
        linked = output.with_name(f"{output.stem}.linked.o")
        own = (item for item in self.context.options.link_items if item.startswith(_DEVICE_OPTIONS))
        elf = _elf_file(self.context, source, output.with_name(f"{output.stem}.elf.o"))
        link = relocatable.RelocatableLink((elf,), linked, self.device_link, tuple(own))
        relocatable.link_relocatable(self.context, link, partial(self._not_alone, number))
        executor.step(object_file.Detach(source=linked, output=output))
        if executor.dry_run:
            return
        try:
            check_coverage(output, [replace(contents, member="")])
        except VerificationError as error:
            error.location = contents.location
            raise

    def _not_alone(self, number: int, failed: Completed) -> MlirOffloadError:
        collision = self.chosen[number]
        other = next(other for other in collision.objects if other != number)
        # Drop the file that the device linker names: it is temporary, so its name does not help the user.
        reason = tool_failed(failed).message.partition(" in '")[0]
        msg = (
            f"kernel '{collision.kernel}' is defined here and in "
            f"{self.inputs[other].contents.location}, so the device code of this file must be "
            f"device-linked separately, which failed: {reason}"
        )
        return SourceError(
            msg,
            hint="rename one of the kernels, or define in this file all that its kernels call",
            location=symbol.place_of_symbol(msg, self.inputs[number].contents.location),
        )

    def _directory(self, number: int) -> Path:
        return self.context.workspace / _DIRECTORY / str(number)


def _distinct(contents: Sequence[ObjectContents]) -> tuple[ObjectContents, ...]:
    """Return the objects without duplicates of libraries that are named twice on the link line."""
    return tuple({_identity(item): item for item in contents}.values())


def _identity(item: ObjectContents) -> tuple[object, ...]:
    """Return the identity of an object; the hash distinguishes members of the same name in a library."""
    digest = sha256()
    for image in item.images if item.member else ():
        for chunk in image.content.chunks():
            digest.update(chunk)
    return item.path, item.member, item.entries, digest.digest()


def _read_inputs(context: BuildContext, contents: Sequence[ObjectContents]) -> list[LinkInput]:
    """Return the file of each object, and the kernel stubs in its symbol table."""
    libraries = {
        path: _read_library(path) for path in {item.path for item in contents if item.member}
    }
    inputs = []
    for item in contents:
        if item.member:
            inputs.append(libraries[item.path][_identity(item)])
            continue
        file = context.compiled.get(item.path, item.path)
        with open_view(file) as view:
            inputs.append(LinkInput(item, file, read_stubs(view)))
    return inputs


def _elf_file(context: BuildContext, file: Path, output: Path) -> Path:
    """Return the file, or an object that clang compiles if the file is a host module in bitcode."""
    if context.executor.dry_run:
        return file
    with open_view(file) as view:
        if not is_bitcode(view.head(_HEAD_BYTES)):
            return file
    command = llvm_ir.compile_module_command(context.llvm.tool("clang"), file, output)
    context.executor.tool(command, output)
    return output


def _read_library(path: Path) -> dict[tuple[object, ...], LinkInput]:
    with open_view(path) as view:
        return {
            _identity(item): LinkInput(
                item, path, read_stubs(object_file.member_content(member)), ordinal
            )
            for ordinal, member in enumerate(iterate_members(view))
            for item in read_member(member, path)
        }
