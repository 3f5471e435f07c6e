"""Write offload binaries of version 1, byte for byte as clang-offload-packager of each release does.

Images that the linker wrapper of the release would drop, mostly silently, are rejected.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from mlir_offload.offload import string_order
from mlir_offload.offload.abi import OffloadAbi, offload_table, row_of
from mlir_offload.offload.image import FORM_BYTES, ImageForm, ImageKind, image_form_of, is_bitcode
from mlir_offload.toolchain.byte_view import ByteView
from mlir_offload.toolchain.errors import CompatibilityError, UsageError

MAGIC = b"\x10\xff\x10\xad"
ALIGNMENT = 8

# Magic, version, size, offset of the entries, and: size of an entry (version 1), number of entries (2, 3).
HEADER = struct.Struct("<4sIQQQ")
# Version 3 adds the inflated size, 0 if the rest is not compressed.
INFLATED_SIZE = struct.Struct("<Q")
# Image kind, offload kind, flags, offset and number of the string entries, offset and size of the image.
ENTRY = struct.Struct("<HHIQQQQ")
# Offsets of the key and the value; from version 2 on also the size of the value, which may contain NULs.
STRING_ENTRY_V1 = struct.Struct("<QQ")
STRING_ENTRY = struct.Struct("<QQQ")
# Every reader up to LLVM 24 accepts version 1.
_VERSION = 1
_FLAGS = 0
_ARCH = b"arch"
_OTHER_DEVICES = ("nvptx", "amdgcn", "spirv")
_HOST = "host"
_OTHER = "other"
_GIVEN_ONCE = ("kind", "triple", "arch")

_REASONS: Mapping[ImageForm, str] = {
    **dict.fromkeys(
        (
            ImageForm.EXECUTABLE_CUBIN,
            ImageForm.HSACO,
            ImageForm.SHARED_OBJECT,
            ImageForm.EXECUTABLE,
        ),
        "it is linked already, and linked again it would have no kernels",
    ),
    **dict.fromkeys(
        (ImageForm.FATBINARY, ImageForm.BUNDLE),
        "it is a container, and the device link looks into none",
    ),
    ImageForm.OFFLOAD_BINARY: "it is packaged already",
    ImageForm.PTX: "its device link does not assemble it",
}

_CURES: Mapping[str, str] = {
    "nvptx": "package LLVM bitcode, or a relocatable cubin as ptxas -c makes it",
    "amdgcn": "package LLVM bitcode, or a relocatable object as clang -c makes it for the GPU",
    "spirv": "package LLVM bitcode",
    _HOST: "package LLVM bitcode, or a relocatable object as clang -c makes it",
}


def aligned(offset: int) -> int:
    """Return the first aligned offset that is not below this one."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


class ImageArgument(Struct, frozen=True):
    """The keys and values of one `--image=`, in order; the values of a repeated key are joined by commas."""

    pairs: tuple[tuple[bytes, bytes], ...]

    def value(self, key: str) -> str:
        """Return the value of a key; empty if it is absent."""
        return os.fsdecode(dict(self.pairs).get(os.fsencode(key), b""))

    @property
    def files(self) -> tuple[str, ...]:
        """Return the files: each becomes an image with the same strings."""
        joined = self.value("file")
        return tuple(joined.split(",")) if joined else ()

    def strings(self, abi: OffloadAbi) -> tuple[tuple[bytes, bytes], ...]:
        """Return the strings of the image, in the order in which the packager of a release writes them."""
        values = dict(self.pairs)
        is_for_cpu = not self.value("triple").startswith(_OTHER_DEVICES)
        if is_for_cpu and values.get(_ARCH) == b"":
            values[_ARCH] = abi.host_arch.encode()
        order = string_order.written_order(tuple(values), abi.string_containers)
        return tuple((key, values[key]) for key in order)


class ImageRecord(Struct, frozen=True):
    """An image and its container fields, with the enum values of the linking LLVM."""

    kind_code: int
    image_kind: int
    strings: tuple[tuple[bytes, bytes], ...]
    content: ByteView


def image_argument(words: Iterable[str]) -> ImageArgument:
    """Return the argument with these `key=value` words."""
    values: dict[bytes, bytes] = {}
    for word in words:
        key, _, value = os.fsencode(word).partition(b"=")
        values[key] = values[key] + b"," + value if key in values else value
    return ImageArgument(tuple(values.items()))


def packaged_image_kind(name: str, head: bytes, abi: OffloadAbi) -> int:
    """Return the image kind that the packager of a release writes for a file of that name.

    The packager uses the file extension, but identifies bitcode by its content.
    """
    if is_bitcode(head):
        return ImageKind.BITCODE
    _, _, ending = name.rpartition("/")[2].rpartition(".")
    return dict(abi.image_kinds_by_ending).get(ending, ImageKind.NONE)


def record_parts(record: ImageRecord) -> Iterator[bytes | ByteView]:
    """Yield the container of one image in pieces; the image is yielded as a view, not copied."""
    strings, table = record.strings, string_table(text for pair in record.strings for text in pair)
    strings_at = HEADER.size + ENTRY.size
    table_at = strings_at + STRING_ENTRY_V1.size * len(strings)
    image_at = aligned(table_at + len(table.content))
    image_size = record.content.size
    size = aligned(image_at + image_size)
    yield b"".join(
        (
            HEADER.pack(MAGIC, _VERSION, size, HEADER.size, ENTRY.size),
            ENTRY.pack(
                record.image_kind,
                record.kind_code,
                _FLAGS,
                strings_at,
                len(strings),
                image_at,
                image_size,
            ),
            *(
                STRING_ENTRY_V1.pack(*(table_at + table.offsets[text] for text in pair))
                for pair in strings
            ),
            table.content.ljust(image_at - table_at, b"\0"),
        )
    )
    yield record.content
    yield bytes(size - image_at - image_size)


class StringTable(Struct, frozen=True):
    """NUL-terminated strings, and the offset of each."""

    content: bytes
    offsets: dict[bytes, int]


def string_table(strings: Iterable[bytes]) -> StringTable:
    """Return the table in the layout of `llvm::StringTableBuilder` (ELF).

    A string that is a suffix of another one shares its bytes.
    """
    unique = sorted({text for text in strings if text}, key=_reversed, reverse=True)
    content = bytearray(b"\0")
    offsets = {b"": 0}
    previous = b""
    for text in unique:
        if previous.endswith(text):
            offsets[text] = len(content) - len(text) - 1
            continue
        offsets[text] = len(content)
        content += text + b"\0"
        previous = text
    return StringTable(bytes(content), offsets)


def _reversed(text: bytes) -> bytes:
    return text[::-1]


def check_image_argument(argument: ImageArgument, abi: OffloadAbi) -> None:
    """Raise UsageError or CompatibilityError for an image that no link would use.

    The packager writes such images silently.
    """
    if not argument.files:
        raise _usage(argument, "has no file", "write file=FILE")
    for key in _GIVEN_ONCE:
        if "," in argument.value(key):
            reason = f"gives {key} more than one value: {argument.value(key)}"
            raise _usage(argument, reason, "write an --image= for each")
    _check_kind(argument, abi)
    if not argument.value("triple"):
        hint = "name the target of the image, for example triple=nvptx64-nvidia-cuda"
        raise _usage(argument, "has no triple", hint)
    _check_device(argument)


def check_image_content(
    argument: ImageArgument, name: str, content: ByteView, abi: OffloadAbi
) -> int:
    """Return the image kind to write for a file of that name.

    Raises CompatibilityError if the linker wrapper of the release would drop the image or fail.
    """
    head = content.head(FORM_BYTES)
    form = image_form_of(head)
    device = device_of(argument.value("triple"))
    endings = linked_endings(device, abi.major).get(form.value)
    if endings is None:
        what = str(form) if content.size else "an empty file"
        msg = f"cannot package {what} for LLVM {abi.major}: {loss_of(form)}"
        raise CompatibilityError(msg, hint=_CURES[device], location=name)
    kind = packaged_image_kind(name, head, abi)
    if ending_of(kind, abi) not in endings:
        msg = f"cannot package {form} of this name for LLVM {abi.major}: the file extension determines the format"
        raise CompatibilityError(msg, hint=f"name the file *.{endings[0]}", location=name)
    return kind


def _check_kind(argument: ImageArgument, abi: OffloadAbi) -> None:
    kind = argument.value("kind")
    if kind in dict(abi.kind_codes):
        return
    known = ", ".join(name for name, _ in abi.kind_codes)
    if not kind:
        raise _usage(argument, "has no offload kind", f"add kind=, one of {known}")
    if kind not in packaged_devices()["kinds"]:
        raise _usage(argument, f"names an unknown offload kind '{kind}'", f"use one of {known}")
    msg = f"{_spelled(argument)}: LLVM {abi.major} has no offload kind '{kind}'; the image would be dropped"
    raise CompatibilityError(msg, hint=f"package for a release that has it, or use one of {known}")


def _check_device(argument: ImageArgument) -> None:
    kind, triple = argument.value("kind"), argument.value("triple")
    device = device_of(triple)
    devices = packaged_devices()["kinds"][kind]
    if device not in devices:
        msg = f"{_spelled(argument)}: code for {triple} would be dropped with kind={kind}"
        hint = (
            f"a triple of kind={kind} starts with {' or '.join(devices)}; check kind= and triple="
        )
        raise CompatibilityError(msg, hint=hint)
    if device in packaged_devices()["need_arch"] and not argument.value("arch"):
        raise _usage(argument, "has no arch", "add the GPU, as arch=sm_90 or arch=gfx90a")


def _usage(argument: ImageArgument, reason: str, hint: str) -> UsageError:
    return UsageError(f"{_spelled(argument)} {reason}", hint=hint)


def _spelled(argument: ImageArgument) -> str:
    name = argument.value("file")
    return f"--image=file={name},..." if name else "an --image="


def device_of(triple: str) -> str:
    """Return the row of the tables for a triple."""
    devices = offload_table()["linked_images"]
    return next((device for device in devices if triple.startswith(device)), _HOST)


def linked_endings(device: str, major: int) -> Mapping[str, Sequence[str]]:
    """Return, for each format that the device link of a release accepts, the file extensions that it accepts."""
    forms: Mapping[str, Sequence[str]] = row_of(offload_table()["linked_images"][device], major)[
        "forms"
    ]
    return forms


def ending_of(image_kind: int, abi: OffloadAbi) -> str:
    """Return the file extension for which the packager writes an image kind."""
    codes = abi.image_kinds_by_ending
    return next((ending for ending, code in codes if code == image_kind), _OTHER)


def packaged_devices() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return the devices of each offload kind, and those whose images require an architecture."""
    table: Mapping[str, Mapping[str, Sequence[str]]] = offload_table()["packaged_devices"]
    return table


def loss_of(form: ImageForm) -> str:
    """Return why no device link accepts an image of this format."""
    return _REASONS.get(form, "the device link for this triple would drop it or fail")
