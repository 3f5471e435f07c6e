"""What is in a file that may hold device code: its parts, images, kernels, entries, problems."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.device.kernel import DeviceCode

if TYPE_CHECKING:
    from mlir_offload.offload.interface.function import InterfaceFunction


class ProblemKind(StrEnum):
    """What class of thing is wrong."""

    DAMAGED = "damaged"
    UNSUPPORTED = "unsupported"
    UNREADABLE = "unreadable"
    UNREGISTERED_KERNEL = "unregistered_kernel"
    MISSING_KERNEL = "missing_kernel"
    MIXED_LAYOUTS = "mixed_layouts"
    DROPPED_IMAGE = "lost_image"


class Problem(Struct, frozen=True):
    """Something wrong: what it is, where it was found, and what to do about it."""

    kind: ProblemKind
    message: str
    hint: str = ""


class Section(Struct, frozen=True):
    """A section of a host file that belongs to offloading; `offset` is its place in the file."""

    name: str
    type: str
    offset: int | None
    size_bytes: int


class Container(Struct, frozen=True):
    """What an image lies in: `size_bytes` are those of the file, before anything is inflated."""

    form: str
    version: int
    offset: int | None
    size_bytes: int
    compression: str = ""


class Image(Struct, frozen=True):
    """A device image, or another container that is in the place of one.

    `index` counts the images of the file in the order in which they are met. `kind` is the offload
    kind, `image_kind` what the container calls the format, `form` what the content is. `offset` is
    the place in the file, None for what had to be inflated; `stored_bytes` is None where the image
    is stored as it is. `sha256` is empty where it was not asked for.
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

    `what` is `kernel`, or what sort of variable it represents. The layout is known by the section
    and the number of members; `first_release` to `last_release` are those that read it.
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
        """Return whether the entry represents a kernel."""
        return self.what == "kernel"


class SourceKernel(Struct, frozen=True):
    """A kernel in MLIR: its name, the symbol that it gets, and what the program says of it."""

    name: str
    symbol: str
    parameter_types: tuple[str, ...]
    known_block_size: tuple[int, int, int] | None = None


class SourceModule(Struct, frozen=True):
    """A `gpu.module` of MLIR, with the targets that it names."""

    name: str
    targets: tuple[str, ...]
    kernels: tuple[SourceKernel, ...]


class Part(Struct, frozen=True):
    """A file, or a member of a library: whatever has a format of its own and a name.

    `producers` are what made it, as it says itself; `functions` are those for callers in C and Python.
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
        """Return whether there is anything of offloading in it."""
        own = self.images or self.entries or self.modules
        return bool(own) or any(member.has_device_code for member in self.members)


def nested_images(images: tuple[Image, ...]) -> Iterator[Image]:
    """Return the images and those within them, in the order of their index."""
    for image in images:
        yield image
        yield from nested_images(image.images)


def all_images(part: Part) -> Iterator[Image]:
    """Return every image of a file, those of members and of containers within included."""
    yield from nested_images(part.images)
    for member in part.members:
        yield from all_images(member)


def all_problems(part: Part) -> Iterator[Problem]:
    """Return every problem of a file."""
    yield from part.problems
    for image in nested_images(part.images):
        yield from image.problems
    for member in part.members:
        yield from all_problems(member)
