"""What the formats of LLVM and the host runtime say of a device kind: the questions, and who answers them."""

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
    """Who makes device code: the lowering LLVM and the one that links, by number, and CUDA.

    `is_assembled`: by its ptxas, before the link.
    """

    lowering: int
    linking: int
    cuda: CudaToolkit | None = None
    is_assembled: bool = True


class VendorContainers(Protocol):
    """A file with the vendors' own containers: NVIDIA's fat binaries, bundles for AMD GPUs."""

    @property
    def fatbins(self) -> tuple[ByteView, ...]:
        """Return the fat binaries."""

    @property
    def hip_fatbins(self) -> tuple[ByteView, ...]:
        """Return the sections of bundles."""


class RuntimePlan(Struct, frozen=True):
    """The host runtime of a program: its kinds, and the library of each vendor that was found.

    `fallback`: it contains what replaces libomptarget.
    """

    kinds: Collection[Kind]
    libraries: Mapping[Kind, Path | None] = field(default_factory=dict)
    fallback: bool = False

    def library(self, kind: Kind) -> Path | None:
        """Return the library that launches the kernels of a kind, if one was found."""
        return self.libraries.get(kind)


class LinkedCodeRuntime(Struct, frozen=True):
    """How a runtime takes linked code: sections, the magic of the wrapper, its functions."""

    section: str
    wrapper_section: str
    magic: int
    align: int
    prefix: str
    functions: Mapping[str, str]


class KindFormat:
    """What the containers, the offload entries and the host runtime say of a device kind.

    These are the answers of a kind without anything of its own; `kind/` has those of each.
    """

    name: Kind
    archs_macro = ""
    """The macro that tells the runtime the architectures of the program's images, for its messages."""
    object_forms: Mapping[str, frozenset[ImageForm]] = {}
    """What the words of `#gpu.object` may stand for."""
    linked_code: LinkedCodeRuntime | None = None
    """How its runtime takes linked code that the host module registers; None: not at all."""
    is_launched_by_handle = False
    """Whether its runtime knows a kernel by a variable that holds the stub, not by the stub."""
    is_registered_first = False
    """Whether its entries precede those of other kinds."""
    has_plain_entries = False
    """Whether its entries keep their symbols where another kind has entries of the same names."""
    registers_by_name = False
    """Whether a kernel without an entry is one that the host cannot launch."""
    describes_parameters = False
    """Whether linked images tell where kernels take their arguments."""
    links_undefined = False
    """Whether the wrapper links images that call what nothing defines."""
    is_bundled = True
    """Whether a bundle for another machine can hold its kernels."""
    has_sparse = False
    """Whether the runtime has sparse matrices for it."""

    def check_arch(self, target: Target, makers: CodeMakers, /) -> None:
        """Raise an error for an architecture that LLVM, or the assembler, does not know."""

    def runtime_definitions(self, _plan: RuntimePlan, /) -> tuple[str, ...]:
        """Return further macros that the runtime is compiled with."""
        return ()

    def link_arguments(self, _plan: RuntimePlan, /) -> tuple[str, ...]:
        """Return the libraries that the runtime is linked with. Raises ToolchainError without one."""
        return ()

    def linked_images(self, _file: VendorContainers, /) -> Iterator[tuple[str, ByteView | None]]:
        """Yield architecture and code of the images in the vendor's own containers; None: scrambled."""
        return iter(())

    def text_form(self, _content: bytes, /) -> ImageForm:
        """Return what an image is that no magic number tells."""
        return ImageForm.UNKNOWN


FORMATS = Registry[KindFormat]("offload")
_OF_NO_KIND = KindFormat()


def format_of(kind: str) -> KindFormat:
    """Return what the formats say of a kind; of a name that is not a device kind nothing of its own."""
    return FORMATS[Kind(kind)] if kind in all_kinds() else _OF_NO_KIND


def plain_kind(kind: str) -> str:
    """Return the kind without the version of its ABI: `hip` for the `hipv4` of bundles."""
    return next((known for known in all_kinds() if kind.startswith(known)), kind)


def formats_of(kinds: Collection[str]) -> tuple[KindFormat, ...]:
    """Return the same of several kinds, in the order of all kinds."""
    return tuple(FORMATS[kind] for kind in all_kinds() if kind in kinds)


def check_targets(targets: Collection[Target], makers: CodeMakers) -> None:
    """Refuse architectures that LLVM or an assembler does not know before any work is done."""
    for target in targets:
        format_of(target.kind).check_arch(target, makers)


def library_arguments(library: Path) -> tuple[str, ...]:
    """Return how to link a shared library that lies where it is when the program runs."""
    return str(library), f"-Wl,-rpath,{library.parent}"


_HINT = "name the linking LLVM, with --for-clang=N"


def check_kinds(kinds: Iterable[Kind], abis: Sequence[OffloadAbi]) -> None:
    """Raise CompatibilityError for an offload kind that the releases number differently.

    No image can be written for both then: each release misreads the other's number.
    """
    for kind in kinds:
        codes = {abi.major: abi.kind_code(kind) for abi in abis}
        if len(set(codes.values())) > 1:
            listed = ", ".join(f"{code} in LLVM {major}" for major, code in codes.items())
            msg = f"kind {kind} cannot be for several releases at once: its number is {listed}"
            raise CompatibilityError(msg, hint=_HINT)


def have_one_number(kinds: Iterable[Kind], abis: Sequence[OffloadAbi]) -> bool:
    """Return whether all releases give each of the kinds one number."""
    return all(len({abi.kind_code(kind) for abi in abis}) == 1 for kind in kinds)


def check_form(form: ImageForm, name: str, abis: Sequence[OffloadAbi]) -> None:
    """Raise CompatibilityError for an image that not all of the releases would link.

    Bitcode is refused where there are several: an older release does not read a newer one's, and
    a newer one finds no kernel in an older one's (NVPTX kernels were marked in metadata).
    """
    if len(abis) > 1 and form is ImageForm.BITCODE:
        msg = f"{name}: bitcode is not read alike by several releases of LLVM"
        raise CompatibilityError(msg, hint=f"package a relocatable object, or {_HINT}")
