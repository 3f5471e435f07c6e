"""Check whether a consumer can read a file of any format, and report each incompatibility with its location."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.container import contents
from mlir_offload.offload.container.file_form import FileForm, file_form
from mlir_offload.offload.file import contents_reader
from mlir_offload.offload.link import check as link_check
from mlir_offload.offload.link import dropped_image
from mlir_offload.offload.link.objects import ObjectContents, read_objects
from mlir_offload.offload.skew.image import ImagePlace, check_device_module, check_image
from mlir_offload.toolchain.bitcode.module import read_bitcode_modules
from mlir_offload.toolchain.bitcode.skew import check_module
from mlir_offload.toolchain.byte_view import ByteView, open_view
from mlir_offload.toolchain.errors import VerificationError
from mlir_offload.toolchain.skew import rule as skew_rule
from mlir_offload.toolchain.skew import text as ir_text
from mlir_offload.toolchain.skew.fact import Consumer, Skew
from mlir_offload.toolchain.skew.identity import Severity
from mlir_offload.toolchain.target import is_gpu_triple

if TYPE_CHECKING:
    from mlir_offload.offload.container.contents import Image, Part

__all__ = ["Consumer", "SkewFinding", "check_file", "check_view"]

_OBJECTS = (FileForm.ARCHIVE, FileForm.THIN_ARCHIVE, FileForm.HOST_ELF)
_OLDEST_ABI = 15
# The format name of LLVM's containers in the container readers.
_BINARY_FORM = "offload binary"
# Part of the names of all sections with images or entries.
_OFFLOADING = "offload"


class SkewFinding(Struct, frozen=True):
    """A construct in a file that its consumer rejects or misinterprets.

    `location` is the file, with the member of a library and the line of a text file. `image` is the device
    image that contains the construct (kind, triple, architecture), empty for the file itself. `kernel` is the
    function.
    """

    rule: str
    severity: Severity
    message: str
    location: str
    hint: str
    image: str = ""
    kernel: str = ""

    @property
    def text(self) -> str:
        """Return the message, preceded by the image and the function."""
        about = [f"image {self.image}"] if self.image else []
        about += [f"'{self.kernel}'"] if self.kernel else []
        return f"{': '.join((*about, self.message))}"


def check_file(path: Path, consumer: Consumer) -> tuple[SkewFinding, ...]:
    """Return each incompatibility of a file with the consumer, once.

    Raises InputOutputError if the file cannot be read.
    """
    with open_view(path) as view:
        found = [*check_view(view, consumer)]
        if consumer.llvm >= _OLDEST_ABI and file_form(view) in _OBJECTS:
            found += _object_findings(path, consumer)
    return tuple(dict.fromkeys(found))


def check_view(view: ByteView, consumer: Consumer) -> tuple[SkewFinding, ...]:
    """Return the incompatibilities of the code in a view of a complete file; findings contain its location."""
    check = _Check(consumer)
    if not view.size:
        return (_finding(Skew("BC005", {"reason": "it is empty"}), view.location, ""),)
    if file_form(view) is FileForm.BITCODE and check.bitcode(view):
        return tuple(dict.fromkeys(check.found))
    part = contents_reader.visit_contents(view, view.location, check.image, check.part)
    return tuple(dict.fromkeys((*check.found, *_entries(part, consumer), *_damages(part))))


def check_objects(objects: Iterable[ObjectContents], consumer: Consumer) -> tuple[SkewFinding, ...]:
    """Return the incompatibilities of the images in objects that are already read."""
    found = [
        _finding(skew, item.location, image_name(image.kind, image.triple, image.arch))
        for item in objects
        for image in item.images
        for skew in check_image(
            ImagePlace(image.triple, image.arch, image.version),
            file_form(image.content),
            image.content,
            consumer,
        )
    ]
    return tuple(dict.fromkeys(found))


class _Check(Struct):
    """A visitor of the parts and images of a file, which collects findings."""

    consumer: Consumer
    found: list[SkewFinding] = field(default_factory=list)

    def bitcode(self, view: ByteView) -> bool:
        """Check a bitcode file. Return whether the check is complete.

        It is not if the file embeds offload data or is corrupt; then the caller visits its contents.
        """
        try:
            modules = read_bitcode_modules(view)
            sections = {one.section for module in modules for one in module.variables}
            if any(_OFFLOADING in section for section in sections):
                return False
            for module in modules:
                is_device = is_gpu_triple(module.triple)
                check = check_device_module if is_device else check_module
                self._add(check(module, self.consumer), view.location, "")
        except VerificationError:
            return False
        return True

    def part(self, form: FileForm, view: ByteView) -> None:
        """Check a file or library member if it is a host module."""
        if form is FileForm.BITCODE:
            for module in read_bitcode_modules(view):
                # A device module is visited as an image.
                if not is_gpu_triple(module.triple):
                    self._add(check_module(module, self.consumer), view.location, "")
        elif form is FileForm.LLVM_IR:
            text = view.whole().decode(errors="replace")
            if not is_gpu_triple(ir_text.text_triple(text)):
                self._add(ir_text.check_text(text, self.consumer), view.location, "")

    def image(self, image: Image, content: ByteView) -> None:
        """Check a device image."""
        container = image.container
        is_packaged = container and container.form == _BINARY_FORM
        version = container.version if container and is_packaged else None
        place = ImagePlace(image.triple, image.arch, version)
        skews = check_image(place, file_form(content), content, self.consumer)
        # An image without a container is the file itself and needs no name.
        name = image_name(image.kind, image.triple, image.arch) if image.container else ""
        self._add(skews, content.location, name)

    def _add(self, skews: Iterable[Skew], location: str, image: str) -> None:
        self.found += (_finding(skew, location, image) for skew in skews)


def _object_findings(path: Path, consumer: Consumer) -> Iterator[SkewFinding]:
    """Yield findings for offload entries of objects that clang-linker-wrapper ignores, and images that it drops."""
    abi = load_abi(consumer.llvm)
    try:
        objects = [item for item in read_objects(path) if item.is_relocatable]
    except VerificationError:
        return  # `check_view` has already reported the error.
    for item in objects:
        for rule, findings in (
            ("OF002", link_check.layout_findings(item, abi)),
            ("OF008", link_check.loss_findings(item, dropped_image.DropReasons(abi))),
        ):
            for one in findings:
                yield _finding(Skew(rule, {"what": one.message}), one.location, "")


def _entries(part: Part, consumer: Consumer) -> Iterator[SkewFinding]:
    """Yield a finding for each section with entries of another release in host modules in LLVM IR.

    Members of libraries are included.
    """
    for member in part.members:
        yield from _entries(member, consumer)
    if part.form not in (FileForm.BITCODE, FileForm.LLVM_IR) or consumer.llvm < _OLDEST_ABI:
        return
    read = {
        (entry.kind, entry.name)
        for entry in part.entries
        if entry.first_release <= consumer.llvm <= entry.last_release
    }
    lost = (entry for entry in part.entries if (entry.kind, entry.name) not in read)
    for section in dict.fromkeys(entry.section for entry in lost):
        what = f"its kernels are registered in {section} in a form that LLVM {consumer.llvm} does not read"
        yield _finding(Skew("OF002", {"what": what}), part.name, "")


def _damages(part: Part) -> Iterator[SkewFinding]:
    for problem in contents.all_problems(part):
        finding = _finding(Skew("BC005", {"reason": problem.message}), part.name, "")
        yield replace(finding, hint=problem.hint or finding.hint)


def image_name(kind: str, triple: str, arch: str) -> str:
    """Return the name of an image in messages: kind, triple and architecture."""
    return " ".join(word for word in (kind, triple, arch) if word)


def _finding(skew: Skew, location: str, image: str) -> SkewFinding:
    rule = skew_rule.load_rules()[skew.rule]
    place = f"{location}:{skew.line}" if skew.line else location
    message = rule.message.format(**skew.values)
    return SkewFinding(rule.name, rule.severity, message, place, rule.hint, image, skew.function)
