"""Read all offload data in a file of any format; corrupt data is reported as a problem.

The file is read in one pass: nested containers are entered up to a depth limit, and every image is read once.
Only an image that is stored compressed is held in memory, while it is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread

from msgspec import Struct, field
from msgspec.structs import replace

from mlir_offload.offload.container import mob_archive, mob_manifest
from mlir_offload.offload.container.archive import ArchiveMember, iterate_members
from mlir_offload.offload.container.compression import inflation_limit
from mlir_offload.offload.container.contents import Image, Part, Problem, ProblemKind, Section
from mlir_offload.offload.container.file_form import FileForm, file_form
from mlir_offload.offload.container.scan import (
    FoundImage,
    file_offset,
    scan_binaries,
    scan_bundles,
    scan_fatbins,
)
from mlir_offload.offload.device.bitcode import llvm_major
from mlir_offload.offload.device.code import hash_kernels, read_device_code
from mlir_offload.offload.device.kernel import DeviceCode
from mlir_offload.offload.elf import read_elf
from mlir_offload.offload.file.problems import Problems, as_problem
from mlir_offload.offload.foreign_object import read_coff, read_mach_o, read_pe, universal_slices
from mlir_offload.offload.host.contents import (
    elf_name,
    explained,
    foreign_section_images,
    offload_sections,
    producers,
    section_images,
)
from mlir_offload.offload.host.module_bitcode import read_host_bitcode
from mlir_offload.offload.host.object_entry import read_entries
from mlir_offload.offload.host.text import HostText
from mlir_offload.offload.interface.function import read_interface
from mlir_offload.toolchain.bitcode.module import read_bitcode_triples
from mlir_offload.toolchain.byte_view import CHUNK_BYTES, ByteView, open_view
from mlir_offload.toolchain.errors import (
    CompatibilityError,
    InputOutputError,
    MlirOffloadError,
    VerificationError,
)
from mlir_offload.toolchain.target import is_gpu_triple

Visit = Callable[[Image, ByteView], None]
_PartReader = Callable[[Part, ByteView, Problems, int], Part]
VisitPart = Callable[[FileForm, ByteView], None]
_DEEPEST = 8
_SCANS = {
    FileForm.OFFLOAD_BINARY: scan_binaries,
    FileForm.FAT_BINARY: scan_fatbins,
    FileForm.BUNDLE: scan_bundles,
}
_IMAGE_FORMS = (FileForm.DEVICE_ELF, FileForm.PTX, FileForm.SPIRV)
# LLVM IR for LTO, from -ffat-lto-objects, and from -fembed-bitcode and rustc.
_HOST_BITCODE_SECTIONS = frozenset({".llvm.lto", ".llvmbc"})
_FOREIGN = {FileForm.PE: read_pe, FileForm.COFF: read_coff, FileForm.MACH_O: read_mach_o}
_NOT_INSPECTED = {
    FileForm.FOREIGN_ELF: (
        "only 64-bit little-endian ELF files can be read",
        "name the file of a 64-bit build",
    ),
    FileForm.LTO_IR: (
        "NVIDIA does not document the format",
        "compile it without -dlto, to a cubin or PTX",
    ),
    FileForm.UNKNOWN: (
        "its format is not known",
        "name an object, library, program or device image, LLVM IR or MLIR",
    ),
}


def read_contents(path: Path, *, with_hashes: bool = False, with_code_hashes: bool = False) -> Part:
    """Read the offload data in a file; optionally hash each image, or the code of each kernel.

    Raises InputOutputError if the file cannot be read. Corrupt data is reported as a problem in the result.
    """
    with open_view(path) as view:
        return read_contents_of(
            view, str(path), with_hashes=with_hashes, with_code_hashes=with_code_hashes
        )


def read_contents_of(
    view: ByteView, name: str, *, with_hashes: bool = False, with_code_hashes: bool = False
) -> Part:
    """Read the offload data in a view of a complete file, as `read_contents` does."""
    limit = inflation_limit(view.size)
    reader = _Reader(limit, with_hashes=with_hashes, with_code_hashes=with_code_hashes)
    return reader.part(view, name, 0)


def visit_images(path: Path, visit: Visit) -> None:
    """Call `visit` with each image of a file and its content, which is valid only during the call.

    The images come in the order of `read_contents`; their kernels are not read. Raises InputOutputError if
    the file cannot be read.
    """
    with open_view(path) as view:
        _Reader(inflation_limit(view.size), visit=visit).part(view, str(path), 0)


def visit_contents(view: ByteView, name: str, visit: Visit, visit_part: VisitPart) -> Part:
    """Call `visit` as `visit_images` does, and `visit_part` with the file and each member of it.

    Returns the contents of the file, without properties that are read from the content of images.
    """
    reader = _Reader(inflation_limit(view.size), visit=visit, visit_part=visit_part)
    return reader.part(view, name, 0)


class _Reader(Struct):
    """Reads the parts of one file; counts its images and limits the bytes that they inflate to."""

    inflatable: int
    with_hashes: bool = False
    with_code_hashes: bool = False
    visit: Visit | None = None
    visit_part: VisitPart | None = None
    next_index: int = 0
    opened: set[Path] = field(default_factory=set)

    def part(self, view: ByteView, name: str, depth: int) -> Part:
        """Return the contents of a file or a member."""
        form = file_form(view)
        part = Part(name, form, view.size, file_offset(view))
        problems = Problems([])
        try:
            if self.visit_part is not None:
                self.visit_part(form, view)
            part = self._filled(part, view, form, problems, depth)
        except (VerificationError, CompatibilityError) as error:
            problems.report(error)
        return replace(part, problems=problems.finished())

    def _filled(
        self, part: Part, view: ByteView, form: FileForm, problems: Problems, depth: int
    ) -> Part:
        readers: dict[FileForm, _PartReader] = {
            FileForm.ARCHIVE: self._library,
            FileForm.THIN_ARCHIVE: self._library,
            FileForm.MOB: self._mob,
            FileForm.HOST_ELF: self._host_elf,
            FileForm.LLVM_IR: self._llvm_ir,
            FileForm.BITCODE: self._llvm_ir,
            FileForm.UNIVERSAL: self._universal,
            **dict.fromkeys(_FOREIGN, self._foreign_object),
        }
        if form in readers:
            return readers[form](part, view, problems, depth)
        if form in _NOT_INSPECTED:
            reason, hint = _NOT_INSPECTED[form]
            problems.add(Problem(ProblemKind.UNSUPPORTED, f"not inspected: {reason}", hint))
        if form in _SCANS:
            found = _SCANS[form](view, problems.report)
            return replace(part, images=self._images(found, depth))
        if form in _IMAGE_FORMS:
            image = Image(0, "", view.size, file_offset(view))
            found = iter([FoundImage(image, lambda: view)])
            return _named_after_image(replace(part, images=self._images(found, depth)))
        return part

    def _foreign_object(self, part: Part, view: ByteView, problems: Problems, depth: int) -> Part:
        """Return the contents of a file for Windows or macOS; its offload entries are not read."""
        file = _FOREIGN[FileForm(part.form)](view)
        images: list[Image] = []
        sections: list[Section] = []
        for name, offset, size in file.sections:
            content = view.part(offset, size, f"section {name}")
            found = self._images(foreign_section_images(name, content, problems.report), depth)
            if found:
                sections.append(Section(name, "", file_offset(content), size))
            images += found
        return replace(part, form=file.name, sections=tuple(sections), images=tuple(images))

    def _universal(self, part: Part, view: ByteView, _: Problems, depth: int) -> Part:
        slices = universal_slices(view) if depth < _DEEPEST else ()
        members = (
            self.part(one.content, f"{part.name}({one.machine})", depth + 1) for one in slices
        )
        return replace(part, members=tuple(members))

    def _members(self, view: ByteView, problems: Problems, depth: int) -> tuple[Part, ...]:
        parts = []
        folder = Path(view.location).resolve().parent
        try:
            for member in iterate_members(view):
                name = f"{view.location}({member.name})"
                part = self._member(member, name, folder, depth)
                parts.append(part)
        except VerificationError as error:
            problems.report(error)
        return tuple(parts)

    def _library(self, part: Part, view: ByteView, problems: Problems, depth: int) -> Part:
        return replace(part, members=self._members(view, problems, depth))

    def _mob(self, part: Part, view: ByteView, _: Problems, depth: int) -> Part:
        """Return the contents of a `.mob` bundle, after verifying it against its manifest."""
        members = mob_archive.read_archive(view)
        manifest = mob_manifest.read_manifest(members, view.location)
        names = [name for unit in manifest.units for name in unit.files] if depth < _DEEPEST else []
        parts = (self.part(members[name], f"{part.name}({name})", depth + 1) for name in names)
        made = tuple(f"{name} {version}" for name, version in manifest.producers)
        return replace(part, producers=made, members=tuple(parts))

    def _member(self, member: ArchiveMember, name: str, folder: Path, depth: int) -> Part:
        if depth >= _DEEPEST:
            return Part(name, FileForm.UNKNOWN, 0, problems=(_too_deep(),))
        if member.content is not None:
            return self.part(member.content, name, depth + 1)
        try:
            file = member.file.resolve() if member.file is not None else folder
        except (OSError, RuntimeError) as error:
            problem = Problem(ProblemKind.UNREADABLE, f"cannot read {member.file}: {error}")
            return Part(name, FileForm.UNKNOWN, 0, None, problems=(problem,))
        reason = ""
        # A thin archive may name any file of the host; only those below its directory belong to it.
        if not file.is_relative_to(folder):
            reason = "it is outside the library's directory"
        elif file in self.opened:
            reason = "the library names it more than once"
        if reason:
            msg = f"{member.file} was not opened: {reason}"
            problem = Problem(ProblemKind.UNREADABLE, msg, "inspect that file itself")
            return Part(name, FileForm.UNKNOWN, 0, None, problems=(problem,))
        self.opened.add(file)
        return self._named_file(file, name, depth)

    def _named_file(self, file: Path, name: str, depth: int) -> Part:
        """Return the contents of a file that a thin archive names."""
        try:
            with open_view(file) as view:
                return self.part(view, name, depth + 1)
        except InputOutputError as error:
            return Part(name, FileForm.UNKNOWN, 0, None, problems=(as_problem(error),))

    def _host_elf(self, part: Part, view: ByteView, problems: Problems, depth: int) -> Part:
        elf = read_elf(view)
        part = replace(part, form=elf_name(elf), sections=offload_sections(elf))
        with_entries = part
        try:
            with_entries = replace(part, producers=producers(elf))
            entries = tuple(explained(entry) for entry in read_entries(elf))
            with_entries = replace(with_entries, entries=entries, functions=read_interface(elf))
        except VerificationError as error:
            problems.report(error)
        images: list[Image] = []
        for section in elf.sections:
            if section.name in _HOST_BITCODE_SECTIONS and self.visit_part is not None:
                content = elf.content(section)
                named = f"{view.location}({section.name})"
                self.visit_part(
                    FileForm.BITCODE, content.part(0, content.size, "module", location=named)
                )
            try:
                images += self._images(section_images(elf, section, problems.report), depth)
            except VerificationError as error:
                problems.report(error)
        return replace(with_entries, images=tuple(images))

    def _llvm_ir(self, part: Part, view: ByteView, problems: Problems, depth: int) -> Part:
        """Return the contents of a module: it is a device image itself, or a host module that may embed some."""
        text = HostText(view) if part.form == FileForm.LLVM_IR else None
        triples = (text.triple,) if text else read_bitcode_triples(view)
        if any(map(is_gpu_triple, triples)):
            image = Image(0, "", view.size, file_offset(view), triple=triples[0])
            return replace(part, images=self._images([FoundImage(image, lambda: view)], depth))
        hosts = (text,) if text else read_host_bitcode(view)
        made = dict.fromkeys(name for host in hosts for name in host.producers)
        majors = {llvm_major(name) for name in made} if not text else set()
        major = majors.pop() if len(majors) == 1 else None
        part = replace(part, producers=tuple(made), llvm_major=major)
        entries = tuple(explained(entry) for host in hosts for entry in host.entries())
        found = (image for host in hosts for image in host.images(problems.report))
        return replace(part, entries=entries, images=self._images(found, depth))

    def _images(self, found: Iterable[FoundImage], depth: int) -> tuple[Image, ...]:
        return tuple(self._image(item, depth) for item in found)

    def _image(self, found: FoundImage, depth: int) -> Image:
        image = replace(found.image, index=self.next_index)
        self.next_index += 1
        problems = Problems([])
        try:
            self._spend(image)
            image = self._looked_at(image, found.open_content(), problems, depth)
        except (VerificationError, CompatibilityError) as error:
            problems.report(error)
        return replace(image, problems=problems.finished())

    def _spend(self, image: Image) -> None:
        """Raise VerificationError if the images would inflate to more than the limit for the file."""
        if image.compression:
            self.inflatable -= image.size_bytes
            if self.inflatable < 0:
                msg = f"image {image.index} was not inflated: the images of the file are too large"
                raise VerificationError(msg, hint="make the file again")

    def _looked_at(self, image: Image, content: ByteView, problems: Problems, depth: int) -> Image:
        form = file_form(content)
        image = replace(image, form=form, size_bytes=content.size)
        if not self.with_hashes:
            return self._entered(image, content, problems, depth)
        # The digest is computed in parallel, because hashlib releases the GIL.
        digest = _Digest(content)
        try:
            image = self._entered(image, content, problems, depth)
        except (VerificationError, CompatibilityError) as error:
            problems.report(error)
        return replace(image, sha256=digest.result())

    def _entered(self, image: Image, content: ByteView, problems: Problems, depth: int) -> Image:
        form = FileForm(image.form)
        if self.visit is not None:
            self.visit(image, content)
        if form in _SCANS:
            if depth >= _DEEPEST:
                problems.add(_too_deep())
                return image
            inner = _SCANS[form](content, problems.report)
            return replace(image, images=self._images(inner, depth + 1))
        if self.visit is not None:
            return image
        code = read_device_code(content)
        if code is not None and self.with_code_hashes:
            code = _hashed(code, content)
        return _described(image, code) if code is not None else image


def _described(image: Image, code: DeviceCode) -> Image:
    """Return the image with the properties read from its content; they do not override its container's."""
    image = replace(image, form=code.form, code=code)
    if image.container is not None:
        return image
    return replace(image, triple=image.triple or code.triple, arch=image.arch or code.arch)


def _hashed(code: DeviceCode, content: ByteView) -> DeviceCode:
    hashes = hash_kernels(content, {kernel.name for kernel in code.kernels})
    kernels = (replace(kernel, code_sha256=hashes.get(kernel.name, "")) for kernel in code.kernels)
    return replace(code, kernels=tuple(kernels))


def _named_after_image(part: Part) -> Part:
    return replace(part, form=part.images[0].form or part.form)


def _too_deep() -> Problem:
    msg = f"nested containers are only read {_DEEPEST} levels deep"
    return Problem(ProblemKind.UNSUPPORTED, msg)


class _Digest:
    """The SHA-256 of an image; for a large image, it is computed in a separate thread."""

    def __init__(self, view: ByteView) -> None:
        """Start the computation."""
        self._view = view
        self._hash = hashlib.sha256()
        self._error: MlirOffloadError | None = None
        self._thread: Thread | None = None
        if view.size >= CHUNK_BYTES:
            self._thread = Thread(target=self._update)
            self._thread.start()

    def result(self) -> str:
        """Return the digest, after waiting for it. Raises any error of reading the image."""
        if self._thread is None:
            self._update()
        else:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self._hash.hexdigest()

    def _update(self) -> None:
        try:
            for chunk in self._view.chunks():
                self._hash.update(chunk)
        except MlirOffloadError as error:
            self._error = error
