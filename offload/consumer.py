"""What may stand in one object that several releases of LLVM are to link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlir_offload.offload.image import ImageForm
from mlir_offload.toolchain.errors import CompatibilityError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlir_offload.offload.abi import OffloadAbi
    from mlir_offload.toolchain.target import Kind

_HINT = "name the release that links, with --for-clang=N"


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
