"""The offload data in a file: its parts, device images, kernels, offload entries and problems."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.device.kernel import DeviceCode

if TYPE_CHECKING:
    from mlir_offload.offload.interface.function import InterfaceFunction


class ProblemKind(StrEnum):
    """The kinds of problems."""

    DAMAGED = "damaged"
    UNSUPPORTED = "unsupported"
    UNREADABLE = "unreadable"
    UNREGISTERED_KERNEL = "unregistered_kernel"
    MISSING_KERNEL = "missing_kernel"
    MIXED_LAYOUTS = "mixed_layouts"
    DROPPED_IMAGE = "lost_image"


class Problem(Struct, frozen=True):
    """A problem in a file: its kind, message and hint."""

    kind: ProblemKind
    message: str
    hint: str = ""


class Section(Struct, frozen=True):
    """A section of a host file with offload data; `offset` is the offset in the file."""

    name: str
    type: str
    offset: int | None
    size_bytes: int


class Container(Struct, frozen=True):
    """The container of an image; `size_bytes` is the size in the file, before anything is inflated."""

    form: str
    version: int
    offset: int | None
    size_bytes: int
    compression: str = ""


class Image(Struct, frozen=True):
    """A device image, or a nested container.

    `index` counts the images of the file in the order of the scan. `kind` is the offload kind, `image_kind`
    the container's name for the format, `form` the format of the content. `offset` is the offset in the file,
    None if the image was inflated. `stored_bytes` is None if the image is not compressed. `sha256` is empty
    if it was not requested.
    """

    index: int
    form: str
    size_bytes: int
    offset: int | None = None
    container: Container | None = None
    kind: str = ""
    image_kind: str = ""
    triple: str = ""
    arch: str = ""
    flags: int = 0
    strings: tuple[tuple[str, str], ...] = ()
    compression: str = ""
    stored_bytes: int | None = None
    sha256: str = ""
    code: DeviceCode | None = None
    images: tuple[Image, ...] = ()
    problems: tuple[Problem, ...] = ()


class Entry(Struct, frozen=True):
    """An offload entry of the host, as its layout is understood.

    `what` is `kernel`, or the type of variable. The layout is identified by the section and the number of
    fields; `first_release` to `last_release` read it.
    """

    kind: str
    name: str
    what: str
    size_bytes: int
    flags: tuple[str, ...]
    section: str
    members: int
    first_release: int
    last_release: int
    is_device_linked: bool = False

    @property
    def is_kernel(self) -> bool:
        """Return whether the entry registers a kernel."""
        return self.what == "kernel"


class SourceKernel(Struct, frozen=True):
    """A kernel in MLIR: its name, its symbol name, its parameter types and known block size."""

    name: str
    symbol: str
    parameter_types: tuple[str, ...]
    known_block_size: tuple[int, int, int] | None = None


class SourceModule(Struct, frozen=True):
    """A `gpu.module` of MLIR, with its target attributes."""

    name: str
    targets: tuple[str, ...]
    kernels: tuple[SourceKernel, ...]


class Part(Struct, frozen=True):
    """A file, or a member of a library, with its format and offload data.

    `producers` are the compilers that the file itself names. `functions` are those for callers in C and
    Python.
    """

    name: str
    form: str
    size_bytes: int
    offset: int | None = 0
    producers: tuple[str, ...] = ()
    llvm_major: int | None = None
    sections: tuple[Section, ...] = ()
    images: tuple[Image, ...] = ()
    entries: tuple[Entry, ...] = ()
    modules: tuple[SourceModule, ...] = ()
    functions: tuple[InterfaceFunction, ...] = ()
    members: tuple[Part, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def has_device_code(self) -> bool:
        """Return whether the part or one of its members contains offload data."""
        own = self.images or self.entries or self.modules
        return bool(own) or any(member.has_device_code for member in self.members)


def nested_images(images: tuple[Image, ...]) -> Iterator[Image]:
    """Yield the images and those nested in them, in the order of their index."""
    for image in images:
        yield image
        yield from nested_images(image.images)


def all_images(part: Part) -> Iterator[Image]:
    """Yield every image of a file, including those of members and nested containers."""
    yield from nested_images(part.images)
    for member in part.members:
        yield from all_images(member)


def all_problems(part: Part) -> Iterator[Problem]:
    """Yield every problem of a file."""
    yield from part.problems
    for image in nested_images(part.images):
        yield from image.problems
    for member in part.members:
        yield from all_problems(member)
