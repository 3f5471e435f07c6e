"""A `gpu.binary` that holds device images: `gpu-module-to-binary` made them, or another compiler."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from mlir_offload.offload.device.given_image import (
    GivenImage,
    explicit_parameters,
    parameter_types,
    read_given,
)
from mlir_offload.offload.device.kernel import DeviceKernel
from mlir_offload.toolchain.errors import MlirOffloadError, SourceError
from mlir_offload.translate.declared import POINTER_HINT, launch_types
from mlir_offload.translate.gpu_module import Kernel, KernelKey, launched_kernel
from mlir_offload.translate.mlir_syntax import MLIR
from mlir_offload.translate.mlir_text import (
    Locations,
    OperationText,
    render_symbol,
    symbol_name,
    unescape,
)
from mlir_offload.translate.target_attribute import mask_strings, parse_target

_OBJECTS = re.compile(r"\bobjects = \[")
_OBJECT = re.compile(r"#gpu\.object<(.*)>", re.DOTALL)
_CONTENT = re.compile(r'(?:(\w+) = )?("\d+")')
_DEFAULT_WORD = "fatbin"
_HANDLER = re.compile(r"\boffloadingHandler = (#[\w.]+)(<)?")
_SELECT = "#gpu.select_object"
_METADATA = re.compile(r'#gpu\.kernel_metadata<("\d+")')
_ESCAPED = re.compile(rb"\\(?:([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_MEMREF = re.compile(r"memref<((?:[\d?]+x)*)")
_SCALAR = re.compile(r"!?(?:llvm\.)?(?:[su]?i(\d+)|(index|ptr|f\d\w*|bf16|tf32).*)")
_SCALAR_BYTES = {"index": 8, "ptr": 8, "bf16": 2, "tf32": 4}
_FLOAT = re.compile(r"f(\d+)")
_WORD_BYTES = 8


class GivenObject(Struct, frozen=True):
    """One object of a `gpu.binary`: its bytes, what they are, and the kernels in them."""

    image: GivenImage
    content: bytes
    kernels: tuple[DeviceKernel, ...]


class GivenBinary(Struct, frozen=True):
    """A `gpu.binary`: its name, its objects, and where it stands."""

    name: str
    objects: tuple[GivenObject, ...]
    location: str

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Return the kernels that every object has, whichever GPU runs: they keep their names."""
        first, *others = self.objects
        names = [kernel.name for kernel in first.kernels]
        held = [{kernel.name for kernel in one.kernels} for one in others]
        return tuple(Kernel(name, name) for name in names if all(name in one for one in held))

    def signature(self, kernel: str) -> tuple[str, ...]:
        """Return the types of a kernel's parameters, as the object tells that knows most of them."""
        found = [one for item in self.objects for one in item.kernels if one.name == kernel]
        return parameter_types(min(found, key=lambda one: one.parameters is None))


def read_binaries(
    operations: Iterable[OperationText], locations: Locations
) -> tuple[GivenBinary, ...]:
    """Return what each `gpu.binary` holds.

    Raises SourceError for an object that no link could find a use for, and for kernels of one name.
    """
    found = tuple(
        _read_binary(operation, locations.of(operation.lines[-1]))
        for operation in operations
        if operation.name == "gpu.binary"
    )
    owners: dict[str, str] = {}
    for binary in found:
        for kernel in binary.kernels:
            other = owners.setdefault(kernel.name, binary.name)
            if other != binary.name:
                msg = f"kernel @{kernel.name} is in gpu.binary @{binary.name} and in gpu.binary @{other}"
                hint = (
                    "compile them in files of their own: code that is made already keeps its names"
                )
                raise SourceError(msg, hint=hint, location=binary.location)
    return found


def _read_binary(operation: OperationText, location: str) -> GivenBinary:
    name = symbol_name(operation)
    masked, strings = mask_strings(operation.attributes)
    start = _OBJECTS.search(masked)
    texts = MLIR.split_list(MLIR.inside(masked, start.end() - 1)) if start else []
    if not texts:
        msg = f"gpu.binary @{name} holds no object"
        raise SourceError(msg, hint="make it again with --gpu-module-to-binary", location=location)
    chosen = _selected(texts, masked, strings, (name, location))
    try:
        objects = tuple(_read_object(text, strings) for text in chosen)
    except MlirOffloadError as error:
        msg = f"gpu.binary @{name}: {error.message}"
        raise SourceError(msg, hint=error.hint, location=location) from error
    return GivenBinary(name, objects, location)


def _selected(
    texts: Sequence[str], masked: str, strings: Sequence[str], place: tuple[str, str]
) -> Sequence[str]:
    """Return the objects that the handler leaves: all, as the GPU decides, or the one that it names."""
    name, location = place
    match = _HANDLER.search(masked)
    if match is None or (match[1] == _SELECT and not match[2]):
        return texts
    if match[1] != _SELECT:
        msg = (
            f"gpu.binary @{name} has the offloading handler {match[1]}, which only its author knows"
        )
        hint = "leave the handler out: the image for the GPU is chosen when the program runs"
        raise SourceError(msg, hint=hint, location=location)
    wanted = MLIR.inside(masked, match.end() - 1)
    if wanted.startswith("#"):
        target = parse_target(wanted, strings)
        chosen = [text for text in texts if parse_target(_parts(text)[0], strings) == target]
    else:
        index = int(wanted.partition(" ")[0])
        chosen = list(texts[index : index + 1])
    if not chosen:
        msg = f"gpu.binary @{name} selects an object that it does not hold"
        hint = "leave the handler out: the image for the GPU is chosen when the program runs"
        raise SourceError(msg, hint=hint, location=location)
    return chosen


def _read_object(text: str, strings: Sequence[str]) -> GivenObject:
    """Read one `#gpu.object`. Raises MlirOffloadError, without a place, for what cannot be used."""
    parts = _parts(text)
    target = parse_target(parts[0], strings)
    if target is None:
        said = parts[0].partition("<")[0]
        msg = f"an object for {said} is code for no device that is known here"
        raise SourceError(msg, hint="known are #nvvm.target and #rocdl.target")
    content = _CONTENT.fullmatch(parts[-1])
    if content is None:
        msg = "an object without content"
        raise SourceError(msg, hint="make it again with --gpu-module-to-binary")
    data = _bytes(strings[int(content[2].strip('"'))])
    word = content[1] or _DEFAULT_WORD
    if word == "assembly":
        # MLIR 19 ends the text with a NUL.
        data = data.rstrip(b"\0")
    image, kernels = read_given(data, target.kind, target.chip, word)
    held = {kernel.name for kernel in kernels}
    promised = (unescape(strings[int(name.strip('"'))]) for name in _METADATA.findall(text))
    lacking = next((name for name in promised if name not in held), None)
    if lacking is not None:
        msg = f"its metadata names kernel {lacking}, which the object for {image.made_for} lacks"
        raise SourceError(msg, hint="make it again with --gpu-module-to-binary")
    return GivenObject(image, data, kernels)


def _parts(text: str) -> list[str]:
    """Return the parts of a `#gpu.object`: its target comes first, its content last."""
    match = _OBJECT.fullmatch(text)
    return MLIR.split_list(match[1]) if match else [text]


def _bytes(spelled: str) -> bytes:
    """Return what a string attribute holds."""
    return _ESCAPED.sub(
        lambda match: bytes.fromhex(match[1].decode()) if match[1] else match[2],
        spelled.encode("utf-8", errors="surrogateescape"),
    )


def check_given_launches(
    lines: Iterable[str], binaries: Mapping[str, GivenBinary], locations: Locations
) -> None:
    """Raise SourceError for a launch with other arguments than a kernel of an object takes."""
    for line in lines if binaries else ():
        key: KernelKey = launched_kernel(line) or ("", "")
        if key[0] not in binaries:
            continue
        types = launch_types(line)
        given = _sizes(types)
        objects = binaries[key[0]].objects
        for one in objects:
            kernel = next((item for item in one.kernels if item.name == key[1]), None)
            if kernel is None:
                raise _not_in_object(key, objects, one, locations.of(line))
            if kernel.parameters is None or given is None:
                continue
            taken = tuple(item.size_bytes for item in explicit_parameters(kernel.parameters))
            if taken != given:
                raise _other_arguments(key[1], one, types, (given, taken), locations.of(line))


def _not_in_object(
    key: KernelKey, objects: Sequence[GivenObject], lacking: GivenObject, location: str
) -> SourceError:
    module, kernel = map(render_symbol, key)
    msg = f"kernel {kernel} is not in the code for {lacking.image.made_for} of gpu.binary {module}"
    held = dict.fromkeys(item.name for one in objects for item in one.kernels)
    return SourceError(msg, hint=f"kernels in it: {', '.join(held) or 'none'}", location=location)


def _other_arguments(
    kernel: str,
    given: GivenObject,
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
    """Return the sizes of the arguments that the lowered launch passes; None where not all are known."""
    found: list[int] = []
    for kind in types:
        memref = _MEMREF.match(kind)
        if kind.startswith("memref<*"):
            found += [_WORD_BYTES] * 2
        elif memref:
            # Two pointers and an offset; a size and a stride for each dimension.
            found += [_WORD_BYTES] * (3 + 2 * memref[1].count("x"))
        elif (size := _scalar_bytes(kind)) is not None:
            found.append(size)
        else:
            return None
    return tuple(found)


def _scalar_bytes(kind: str) -> int | None:
    match = _SCALAR.fullmatch(kind)
    if match is None:
        return None
    if match[1]:
        return 1 << max(0, (int(match[1]) - 1).bit_length() - 3)
    number = _FLOAT.match(match[2])
    return int(number[1]) // 8 if number else _SCALAR_BYTES[match[2]]
