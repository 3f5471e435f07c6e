"""The interface to the formats and the host runtime of each device kind."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from mlir_offload.offload.image import ImageForm
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.target import Kind, Registry, all_kinds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlir_offload.offload.abi import OffloadAbi
    from mlir_offload.toolchain.byte_view import ByteView
    from mlir_offload.toolchain.cuda import CudaToolkit
    from mlir_offload.toolchain.target import Kind, Target


class CodeMakers(Struct, frozen=True):
    """The tools that generate device code: lowering and linking LLVM, by major release, and CUDA.

    `is_assembled`: ptxas of this CUDA assembles the code before the link.
    """

    lowering: int
    linking: int
    cuda: CudaToolkit | None = None
    is_assembled: bool = True


class VendorContainers(Protocol):
    """A file with the vendors' containers: NVIDIA's fat binaries, bundles for AMD GPUs."""

    @property
    def fatbins(self) -> tuple[ByteView, ...]:
        """Return the fat binaries."""

    @property
    def hip_fatbins(self) -> tuple[ByteView, ...]:
        """Return the sections of bundles."""


class RuntimePlan(Struct, frozen=True):
    """The host runtime of a program: its kinds, and the library found for each vendor.

    `fallback`: it contains the built-in libomptarget fallback.
    """

    kinds: Collection[Kind]
    libraries: Mapping[Kind, Path | None] = field(default_factory=dict)
    fallback: bool = False

    def library(self, kind: Kind) -> Path | None:
        """Return the library that launches the kernels of a kind; None if it was not found."""
        return self.libraries.get(kind)


class LinkedCodeRuntime(Struct, frozen=True):
    """The registration of linked device images: sections, the magic of the wrapper, runtime functions."""

    section: str
    wrapper_section: str
    magic: int
    align: int
    prefix: str
    functions: Mapping[str, str]


class KindFormat:
    """The properties of a device kind in containers, offload entries and the host runtime.

    This class has the defaults; the modules in `kind/` override them.
    """

    name: Kind
    archs_macro = ""
    """The macro with the architectures of the program's images, for messages of the runtime."""
    object_forms: Mapping[str, frozenset[ImageForm]] = {}
    """The formats that each keyword of `#gpu.object` allows."""
    linked_code: LinkedCodeRuntime | None = None
    """The registration of linked images by the host module; None if the runtime does not support it."""
    is_launched_by_handle = False
    """Whether the runtime identifies a kernel by a variable with the address of the stub, not by the stub."""
    is_registered_first = False
    """Whether its entries precede those of other kinds."""
    has_plain_entries = False
    """Whether its entries keep their symbol names if another kind has entries of the same names."""
    registers_by_name = False
    """Whether the host cannot launch a kernel without an entry."""
    describes_parameters = False
    """Whether linked images store the offsets of kernel parameters."""
    links_undefined = False
    """Whether the wrapper links images with undefined functions."""
    is_bundled = True
    """Whether a bundle for another machine supports its kernels."""
    has_sparse = False
    """Whether the runtime supports sparse matrices on it."""

    def check_arch(self, target: Target, makers: CodeMakers, /) -> None:
        """Raise an error for an architecture that LLVM or the assembler does not support."""

    def runtime_definitions(self, _plan: RuntimePlan, /) -> tuple[str, ...]:
        """Return further macros for the compilation of the runtime."""
        return ()

    def link_arguments(self, _plan: RuntimePlan, /) -> tuple[str, ...]:
        """Return the libraries to link with the runtime. Raises ToolchainError if a library is missing."""
        return ()

    def linked_images(self, _file: VendorContainers, /) -> Iterator[tuple[str, ByteView | None]]:
        """Yield architecture and code of the images in the vendor's containers; the code is None if scrambled."""
        return iter(())

    def text_form(self, _content: bytes, /) -> ImageForm:
        """Return the format of an image that has no magic number."""
        return ImageForm.UNKNOWN


FORMATS = Registry[KindFormat]("offload")
_OF_NO_KIND = KindFormat()


def format_of(kind: str) -> KindFormat:
    """Return the formats of a kind; the defaults for a name that is not a device kind."""
    return FORMATS[Kind(kind)] if kind in all_kinds() else _OF_NO_KIND


def plain_kind(kind: str) -> str:
    """Return the kind without the version of its ABI: `hip` for `hipv4` in bundles."""
    return next((known for known in all_kinds() if kind.startswith(known)), kind)


def formats_of(kinds: Collection[str]) -> tuple[KindFormat, ...]:
    """Return the formats of several kinds, in the order of all kinds."""
    return tuple(FORMATS[kind] for kind in all_kinds() if kind in kinds)


def check_targets(targets: Collection[Target], makers: CodeMakers) -> None:
    """Raise an error for an architecture that LLVM or an assembler does not support, before compiling."""
    for target in targets:
        format_of(target.kind).check_arch(target, makers)


def library_arguments(library: Path) -> tuple[str, ...]:
    """Return the arguments that link a shared library and add its directory to the run path."""
    return str(library), f"-Wl,-rpath,{library.parent}"


_HINT = "name the linking LLVM, with --for-clang=N"


def check_kinds(kinds: Iterable[Kind], abis: Sequence[OffloadAbi]) -> None:
    """Raise CompatibilityError for an offload kind with different enum values in these releases.

    No image can be written for all of them, because each release misreads the other's value.
    """
    for kind in kinds:
        codes = {abi.major: abi.kind_code(kind) for abi in abis}
        if len(set(codes.values())) > 1:
            listed = ", ".join(f"{code} in LLVM {major}" for major, code in codes.items())
            msg = f"kind {kind} has different enum values in these releases: {listed}"
            raise CompatibilityError(msg, hint=_HINT)


def have_one_number(kinds: Iterable[Kind], abis: Sequence[OffloadAbi]) -> bool:
    """Return whether each of the kinds has the same enum value in all releases."""
    return all(len({abi.kind_code(kind) for abi in abis}) == 1 for kind in kinds)


def check_form(form: ImageForm, name: str, abis: Sequence[OffloadAbi]) -> None:
    """Raise CompatibilityError for an image that not all of the releases would link.

    Bitcode is rejected if there are several releases: an older one cannot read a newer one's bitcode, and a
    newer one finds no kernels in an older one's (NVPTX kernels were marked in metadata).
    """
    if len(abis) > 1 and form is ImageForm.BITCODE:
        msg = f"{name}: bitcode is tied to one release of LLVM"
        raise CompatibilityError(msg, hint=f"package a relocatable object, or {_HINT}")
