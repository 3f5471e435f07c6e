"""Write device images into an offload binary, copied from file to file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from mlir_offload.driver.workspace import open_output
from mlir_offload.offload.abi import OffloadAbi
from mlir_offload.offload.image_loss import check_image_argument, check_image_content
from mlir_offload.offload.packager import ImageArgument, ImageRecord, record_parts
from mlir_offload.toolchain.byte_copy import copy_view, write_all
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.errors import InputOutputError

_STANDARD_INPUT = Path("/dev/stdin")


def write_package(
    files: Sequence[tuple[ImageArgument, str]], abi: OffloadAbi, output: Path
) -> None:
    """Write the files, each with the keys of its argument, into one offload binary.

    Raises InputOutputError, UsageError for an argument that lacks a key, CompatibilityError for an
    image that would be lost.
    """
    for argument, _ in files:
        check_image_argument(argument, abi)
    # What is wrong with the last file is said before gigabytes of the first ones are copied.
    for argument, name in files:
        with _open_record(argument, name, abi):
            pass
    with open_output(output) as descriptor:
        for argument, name in files:
            with _open_record(argument, name, abi) as record:
                _write_record(record, descriptor)


@contextlib.contextmanager
def _open_record(argument: ImageArgument, name: str, abi: OffloadAbi) -> Iterator[ImageRecord]:
    """Open an image for the time of the block."""
    path = _STANDARD_INPUT if name == "-" else Path(name)
    with contextlib.ExitStack() as stack:
        try:
            content = stack.enter_context(open_view(path))
        except InputOutputError as error:
            if len(argument.files) > 1 or any(not value for _, value in argument.pairs):
                error.hint = "a comma ends a value: no name of a file may contain one"
            raise
        image_kind = check_image_content(argument, name, content, abi)
        kind_code = dict(abi.kind_codes)[argument.value("kind")]
        yield ImageRecord(kind_code, image_kind, argument.strings(abi), content)


def _write_record(record: ImageRecord, descriptor: int) -> None:
    for part in record_parts(record):
        if isinstance(part, bytes):
            write_all(part, descriptor)
        else:
            copy_view(part, descriptor)
