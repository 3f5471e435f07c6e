"""Steps on device images in containers, copied from file to file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from mlir_offload.driver.step import image_container
from mlir_offload.driver.step.step import PackagedImage, Step
from mlir_offload.driver.system.workspace import open_output
from mlir_offload.offload.abi import OffloadAbi, load_abis
from mlir_offload.offload.container.packager import ImageArgument, ImageRecord, record_parts
from mlir_offload.offload.image import FORM_BYTES, image_form_of
from mlir_offload.offload.kind_format import check_form, check_kinds
from mlir_offload.offload.link.image_loss import check_image_argument, check_image_content
from mlir_offload.toolchain.byte_view import copy_view, open_view, write_all
from mlir_offload.toolchain.errors import InputOutputError
from mlir_offload.toolchain.target import Kind

_STANDARD_INPUT = Path("/dev/stdin")


def write_package(
    files: Sequence[tuple[ImageArgument, str]], abis: Sequence[OffloadAbi], output: Path
) -> None:
    """Write the files, each with the keys of its argument, into one offload binary for every ABI.

    Raises InputOutputError, UsageError for an argument that lacks a key, CompatibilityError for an
    image that would be lost.
    """
    for argument, _ in files:
        for abi in abis:
            check_image_argument(argument, abi)
    check_kinds(sorted({Kind(argument.value("kind")) for argument, _ in files}), abis)
    # What is wrong with the last file is said before gigabytes of the first ones are copied.
    for argument, name in files:
        with _open_record(argument, name, abis):
            pass
    with open_output(output) as descriptor:
        for argument, name in files:
            with _open_record(argument, name, abis) as record:
                _write_record(record, descriptor)


@contextlib.contextmanager
def _open_record(
    argument: ImageArgument, name: str, abis: Sequence[OffloadAbi]
) -> Iterator[ImageRecord]:
    """Open an image for the time of the block."""
    path = _STANDARD_INPUT if name == "-" else Path(name)
    with contextlib.ExitStack() as stack:
        try:
            content = stack.enter_context(open_view(path))
        except InputOutputError as error:
            if len(argument.files) > 1 or any(not value for _, value in argument.pairs):
                error.hint = "a comma ends a value: no name of a file may contain one"
            raise
        image_kinds = [check_image_content(argument, name, content, abi) for abi in abis]
        check_form(image_form_of(content.head(FORM_BYTES)), name, abis)
        kind_code = dict(abis[-1].kind_codes)[argument.value("kind")]
        yield ImageRecord(kind_code, image_kinds[-1], argument.strings(abis[-1]), content)


def _write_record(record: ImageRecord, descriptor: int) -> None:
    for part in record_parts(record):
        if isinstance(part, bytes):
            write_all(part, descriptor)
        else:
            copy_view(part, descriptor)


class Package(Step, frozen=True, kw_only=True, tag="package"):
    """Write device images into one offload binary, as clang-offload-packager does."""

    images: tuple[PackagedImage, ...]
    for_clang: str
    output: Path

    def _do(self) -> None:
        files = [(image.argument, str(image.file)) for image in self.images]
        write_package(files, load_abis(self.for_clang), self.output)


class Unpack(Step, frozen=True, kw_only=True, tag="unpack"):
    """Take the device image and the heads of its kernels out of what an image step made."""

    source: Path
    kernel_heads: Path
    output: Path

    def _do(self) -> None:
        image_container.unpack_image(self.source, self.output, self.kernel_heads)
