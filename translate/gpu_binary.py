"""`gpu.binary` operations with device images from `gpu-module-to-binary` or another compiler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from mlir_offload.offload.container.precompiled_image import (
    PrecompiledImage,
    explicit_parameters,
    parameter_types,
    read_precompiled,
)
from mlir_offload.offload.device.kernel import DeviceKernel
from mlir_offload.toolchain.errors import MlirOffloadError, SourceError
from mlir_offload.translate.gpu_module import POINTER_HINT, Kernel, argument_types, launches_in
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import (
    Attribute,
    attributes_in,
    float_width,
    integer_width,
    parse_shaped,
    render_symbol,
)
from mlir_offload.translate.target_attribute import parse_target

_DEFAULT_WORD = "fatbin"
_SELECT = "#gpu.select_object"
_METADATA = "#gpu.kernel_metadata"
_SCALAR_BYTES = {"index": 8, "ptr": 8, "bf16": 2, "tf32": 4}
_WORD_BYTES = 8


class GpuObject(Struct, frozen=True):
    """One object of a `gpu.binary`: its description, its bytes and its kernels."""

    image: PrecompiledImage
    content: bytes
    kernels: tuple[DeviceKernel, ...]


class GpuBinary(Struct, frozen=True):
    """A `gpu.binary`: its name, its objects and its location."""

    name: str
    objects: tuple[GpuObject, ...]
    location: str

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Return the kernels that all objects contain. They keep their names."""
        first, *others = self.objects
        names = [kernel.name for kernel in first.kernels]
        held = [{kernel.name for kernel in one.kernels} for one in others]
        return tuple(Kernel(name, name) for name in names if all(name in one for one in held))

    def signature(self, kernel: str) -> tuple[str, ...]:
        """Return the parameter types of a kernel, from an object that contains them if there is one."""
        found = [one for item in self.objects for one in item.kernels if one.name == kernel]
        return parameter_types(min(found, key=lambda one: one.parameters is None))


def read_binaries(operations: Iterable[Operation], locations: Locations) -> tuple[GpuBinary, ...]:
    """Read each `gpu.binary`.

    Raises SourceError for an object that the link cannot use, and for duplicate kernel names.
    """
    found = tuple(
        _read_binary(operation, locations.of(operation))
        for operation in operations
        if operation.name == "gpu.binary"
    )
    owners: dict[str, str] = {}
    for binary in found:
        for kernel in binary.kernels:
            other = owners.setdefault(kernel.name, binary.name)
            if other != binary.name:
                msg = f"kernel @{kernel.name} is in gpu.binary @{binary.name} and in gpu.binary @{other}"
                hint = "compile them in files of their own: precompiled device code keeps its names"
                raise SourceError(msg, hint=hint, location=binary.location)
    return found


def _read_binary(operation: Operation, location: str) -> GpuBinary:
    name = operation.symbol
    objects = operation.attribute("objects").elements
    if not objects:
        msg = f"gpu.binary @{name} contains no object"
        raise SourceError(msg, hint="make it again with --gpu-module-to-binary", location=location)
    chosen = _selected(objects, operation.attribute("offloadingHandler"), name, location)
    try:
        read = tuple(map(_read_object, chosen))
    except MlirOffloadError as error:
        msg = f"gpu.binary @{name}: {error.message}"
        raise SourceError(msg, hint=error.hint, location=location) from error
    return GpuBinary(name, read, location)


def _selected(
    objects: Sequence[Attribute], handler: Attribute, name: str, location: str
) -> Sequence[Attribute]:
    """Return the objects that the offloading handler selects: all, for a choice at run time, or the one it names."""
    wanted = Attribute(handler.body)
    if not handler or (handler.name == _SELECT and not wanted):
        return objects
    if handler.name != _SELECT:
        msg = f"gpu.binary @{name} has the unsupported offloading handler {handler.name}"
        hint = "leave the handler out: the image for the GPU is chosen when the program runs"
        raise SourceError(msg, hint=hint, location=location)
    if wanted.startswith("#"):
        target = parse_target(wanted)
        chosen = [one for one in objects if parse_target(one.body_elements[0]) == target]
    else:
        index = wanted.integer or 0
        chosen = list(objects[index : index + 1])
    if not chosen:
        msg = f"gpu.binary @{name} selects an object that it does not hold"
        hint = "leave the handler out: the image for the GPU is chosen when the program runs"
        raise SourceError(msg, hint=hint, location=location)
    return chosen


def _read_object(given: Attribute) -> GpuObject:
    """Read a `#gpu.object`. Raises MlirOffloadError, without a location, if it cannot be used."""
    parts = given.body_elements or (given,)
    target = parse_target(parts[0])
    if target is None:
        msg = f"the target {parts[0].name} of an object is not supported"
        raise SourceError(msg, hint="supported targets are #nvvm.target and #rocdl.target")
    word, content = _content(parts[-1])
    if content is None:
        msg = "an object without content"
        raise SourceError(msg, hint="make it again with --gpu-module-to-binary")
    data = content.content
    if word == "assembly":
        # MLIR 19 appends a NUL to the text.
        data = data.rstrip(b"\0")
    image, kernels = read_precompiled(data, target.kind, target.chip, word)
    held = {kernel.name for kernel in kernels}
    lacking = next((name for name in _promised(parts[1:-1]) if name not in held), None)
    if lacking is not None:
        msg = f"its metadata names kernel {lacking}, which the object for {image.made_for} lacks"
        raise SourceError(msg, hint="make it again with --gpu-module-to-binary")
    return GpuObject(image, data, kernels)


def _content(part: Attribute) -> tuple[str, Attribute | None]:
    """Return the format and the content of an object: `bin = "..."`, or only the content."""
    word, equals, content = part.partition(" = ") if not part.startswith('"') else ("", "=", part)
    is_content = equals and content.startswith('"')
    return word or _DEFAULT_WORD, Attribute(content) if is_content else None


def _promised(parts: Iterable[Attribute]) -> Iterator[str]:
    """Return the names of the kernels in the metadata of an object."""
    for part in parts:
        for kernel in attributes_in(part, {_METADATA}):
            yield kernel.body_elements[0].string


def check_precompiled_launches(
    operation: Operation, binaries: Mapping[str, GpuBinary], locations: Locations
) -> None:
    """Raise SourceError for a launch whose arguments do not match the kernel in an object."""
    for launch, key in launches_in(operation) if binaries else ():
        if key[0] not in binaries:
            continue
        types = argument_types(launch)
        given = _sizes(types)
        objects = binaries[key[0]].objects
        for one in objects:
            kernel = next((item for item in one.kernels if item.name == key[1]), None)
            if kernel is None:
                raise _not_in_object(key, objects, one, locations.of(launch))
            if kernel.parameters is None or given is None:
                continue
            taken = tuple(item.size_bytes for item in explicit_parameters(kernel.parameters))
            if taken != given:
                raise _other_arguments(key[1], one, types, (given, taken), locations.of(launch))


def _not_in_object(
    key: tuple[str, str], objects: Sequence[GpuObject], lacking: GpuObject, location: str
) -> SourceError:
    module, kernel = map(render_symbol, key)
    msg = f"kernel {kernel} is not in the code for {lacking.image.made_for} of gpu.binary {module}"
    held = dict.fromkeys(item.name for one in objects for item in one.kernels)
    return SourceError(msg, hint=f"kernels in it: {', '.join(held) or 'none'}", location=location)


def _other_arguments(
    kernel: str,
    given: GpuObject,
    types: Sequence[str],
    sizes: tuple[Sequence[int], Sequence[int]],
    location: str,
) -> SourceError:
    passed, taken = (", ".join(map(str, one)) or "none" for one in sizes)
    msg = (
        f"kernel {render_symbol(kernel)} is launched with ({', '.join(types)}), of {passed} bytes, "
        f"but its code for {given.image.made_for} takes arguments of {taken} bytes"
    )
    has_memref = any(kind.startswith("memref<") for kind in types)
    hint = (
        POINTER_HINT
        if has_memref
        else "launch it with what the gpu.module took that it was made from"
    )
    return SourceError(msg, hint=hint, location=location)


def _sizes(types: Iterable[str]) -> tuple[int, ...] | None:
    """Return the sizes in bytes of the arguments of the lowered launch, None if one is unknown."""
    found: list[int] = []
    for kind in types:
        memref = parse_shaped(kind, "memref")
        if kind.startswith("memref<*"):
            found += [_WORD_BYTES] * 2
        elif memref:
            # Two pointers and an offset; a size and a stride for each dimension.
            found += [_WORD_BYTES] * (3 + 2 * len(memref.sizes))
        elif size := _scalar_bytes(kind.removeprefix("!llvm.")):
            found.append(size)
        else:
            return None
    return tuple(found)


def _scalar_bytes(kind: str) -> int:
    """Return the size of a number or pointer in bytes, 0 for another type."""
    if bits := integer_width(kind):
        return 1 << max(0, (bits - 1).bit_length() - 3)
    name = Attribute(kind).name
    return _SCALAR_BYTES.get(name) or float_width(kind) // 8
