"""Check a file, whatever it is, against what is to read it: all that does not fit, and where it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mlir_offload.offload.contents import Image
from mlir_offload.offload.contents_reader import visit_images
from mlir_offload.offload.file_form import FileForm, file_form
from mlir_offload.toolchain.bitcode import read_bitcode_modules
from mlir_offload.toolchain.bitcode_skew import check_module
from mlir_offload.toolchain.byte_view import ByteView, open_view
from mlir_offload.toolchain.skew import Consumer, Skew
from mlir_offload.toolchain.skew_rule import RuleSeverity, load_rules

__all__ = ["Consumer", "SkewFinding", "check_file", "check_view"]


@dataclass(frozen=True, slots=True)
class SkewFinding:
    """One thing in a file that its consumer would refuse or misread.

    `location` is the file, with the line where it is text; `image` the device image that it is in
    (kind, triple, architecture), empty for the file itself; `kernel` the function.
    """

    rule: str
    severity: RuleSeverity
    message: str
    location: str
    hint: str
    image: str = ""
    kernel: str = ""


def check_file(path: Path, consumer: Consumer) -> tuple[SkewFinding, ...]:
    """Return all that the consumer would refuse or misread in a file.

    Raises InputOutputError where the file cannot be read.
    """
    with open_view(path) as view:
        return check_view(view, str(path), consumer)


def check_view(view: ByteView, name: str, consumer: Consumer) -> tuple[SkewFinding, ...]:
    """Return all that the consumer would refuse or misread in a view of a whole file."""
    found: list[SkewFinding] = []
    if file_form(view) == FileForm.BITCODE:
        found += _placed(_bitcode_skews(view, consumer), name, "")
    else:
        visit_images(
            Path(name),
            lambda image, content: found.extend(_image_findings(image, content, name, consumer)),
        )
    return tuple(dict.fromkeys(found))


def _image_findings(
    image: Image, content: ByteView, name: str, consumer: Consumer
) -> Iterator[SkewFinding]:
    if file_form(content) == FileForm.BITCODE:
        yield from _placed(_bitcode_skews(content, consumer), name, _image_name(image))


def _bitcode_skews(view: ByteView, consumer: Consumer) -> Iterator[Skew]:
    for module in read_bitcode_modules(view):
        yield from check_module(module, consumer)


def _image_name(image: Image) -> str:
    return " ".join(word for word in (image.kind, image.triple, image.arch) if word)


def _placed(skews: Iterable[Skew], location: str, image: str) -> Iterator[SkewFinding]:
    rules = load_rules()
    for skew in skews:
        rule = rules[skew.rule]
        place = f"{location}:{skew.line}" if skew.line else location
        message = rule.message.format(**skew.values)
        yield SkewFinding(
            rule.name,
            rule.severity,
            message,
            place,
            rule.cure.format(**skew.values),
            image,
            skew.function,
        )
