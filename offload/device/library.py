"""Bitcode libraries that kernels call; they are checked before any tool reads them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from msgspec import Struct

from mlir_offload.offload.device.bitcode import llvm_major, target_cpus
from mlir_offload.offload.image import FORM_BYTES, ImageForm, image_form_of
from mlir_offload.toolchain.bitcode.global_value import BitcodeFunction
from mlir_offload.toolchain.bitcode.module import read_bitcode
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.target import Target, device_kind

_LOCAL = frozenset({"internal", "private"})


class _Library(Struct, frozen=True):
    producer: str
    triple: str
    archs: tuple[str, ...]


def check_library(path: Path, target: Target, consumer: int) -> None:
    """Raise CompatibilityError if a library is for another target or cannot be read by this LLVM.

    Raises InputOutputError if it cannot be read, VerificationError if it is corrupt.
    """
    library = _read_library(path)
    _check_producer(path, library.producer, consumer)
    _check_triple(path, library.triple, target)
    kind = device_kind(target.kind)
    wrong = next((arch for arch in library.archs if not kind.runs(arch, target.arch)), None)
    if wrong is not None:
        msg = f"{path} is made for {wrong}: kernels for {target} cannot call it"
        hint = f"compile it for {target}, or pass it for that target: --device-lib={wrong}={path}"
        raise CompatibilityError(msg, hint=hint, location=str(path))


@cache
def _read_library(path: Path) -> _Library:
    """Return the properties of a library, cached because they are needed for each device module and target."""
    with open_view(path) as view:
        form = image_form_of(view.head(FORM_BYTES))
        if form is not ImageForm.BITCODE:
            msg = f"{path} is not LLVM bitcode: it is {_article(form)}"
            hint = "compile it with clang -c -emit-llvm for the device"
            raise CompatibilityError(msg, hint=hint, location=str(path))
        module = read_bitcode(view)
        return _Library(module.producer, module.triple, tuple(target_cpus(module)))


def defined_functions(path: Path) -> tuple[str, ...]:
    """Return the externally visible functions of a library. Raises VerificationError if it is corrupt."""
    with open_view(path) as view:
        symbols = read_bitcode(view).symbols
    return tuple(
        symbol.name
        for symbol in symbols
        if isinstance(symbol, BitcodeFunction)
        and not symbol.is_declaration
        and symbol.linkage not in _LOCAL
    )


def _check_producer(path: Path, producer: str, consumer: int) -> None:
    made_by = llvm_major(producer)
    if made_by is not None and made_by > consumer:
        msg = f"{path} is bitcode of LLVM {made_by}, which LLVM {consumer} may misread"
        hint = f"take one that LLVM {consumer} or older wrote, or build with --llvm={made_by}"
        raise CompatibilityError(msg, hint=hint, location=str(path))


def _check_triple(path: Path, triple: str, target: Target) -> None:
    machine, wanted = triple.partition("-")[0], target.triple.partition("-")[0]
    if machine and machine != wanted:
        msg = f"{path} is bitcode for {triple}: kernels for {target} cannot call it"
        hint = f"compile it with --target={target.triple}, or name its target: --device-lib=KIND={path}"
        raise CompatibilityError(msg, hint=hint, location=str(path))


def _article(form: ImageForm) -> str:
    return f"{'an' if form[0] in 'aeiouAEIOU' else 'a'} {form}"
