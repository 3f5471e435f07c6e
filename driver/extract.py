"""Extract device images from files, decompressed but otherwise unchanged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import click
from msgspec import Struct

from mlir_offload.driver.inspect.tree import size_text
from mlir_offload.driver.message.escape import shown
from mlir_offload.driver.message.report import show, show_warning
from mlir_offload.driver.option.checks import OutputFile, check_files
from mlir_offload.driver.option.click_command import PATH, command
from mlir_offload.driver.system.workspace import (
    check_output,
    keep_mode,
    make_directory,
    open_output,
)
from mlir_offload.offload.container.contents import (
    Image,
    Part,
    Problem,
    ProblemKind,
    all_images,
    all_problems,
)
from mlir_offload.offload.container.file_form import FileForm
from mlir_offload.offload.file.contents_reader import read_contents, visit_images
from mlir_offload.offload.kind_format import plain_kind
from mlir_offload.offload.link.held_image import runs_on_host
from mlir_offload.toolchain.byte_view import ByteView, copy_view
from mlir_offload.toolchain.errors import UsageError, VerificationError
from mlir_offload.toolchain.target import HOST

_NO_ARCH = "any"
_ENDINGS = {
    "cubin": "cubin",
    "AMDGPU code object": "hsaco",
    FileForm.BITCODE.value: "bc",
    FileForm.LLVM_IR.value: "ll",
    FileForm.PTX.value: "ptx",
    FileForm.SPIRV.value: "spv",
    FileForm.FAT_BINARY.value: "fatbin",
    FileForm.BUNDLE.value: "bundle",
    FileForm.OFFLOAD_BINARY.value: "offload",
}
_ELF_ENDINGS = {True: "o", False: "so", None: "o"}
_LEGAL = "._+-"
_LONGEST_WORD = 64
_SHOWN = 16


class Wanted(Struct, frozen=True):
    """The filters of `extract`; an empty string matches every image."""

    kind: str
    arch: str
    kernel: str
    image_kind: str

    def fits(self, image: Image) -> bool:
        """Return whether an image matches. A container of images matches only by its own image kind."""
        if image.images and not self.image_kind:
            return False
        return (
            self.kind in ("", image.kind, plain_kind(image.kind))
            and self.arch in ("", arch_name(image))
            and self.image_kind in ("", image.image_kind, image.form, _ending(image))
            and (not self.kernel or _holds(image, self.kernel))
        )


@command("extract", click.Argument(["file"], type=PATH))
def extract(  # noqa: PLR0913 (one for each option)
    file: Path, output: str, *, only_list: bool, kind: str, arch: str, kernel: str, image_kind: str
) -> int:
    """Extract the device images of FILE, decompressed: all, or those that match every option.

    They are named FILE.<index>.<kind>.<arch>.<extension>, in the current directory or in that of -o.
    """
    part = read_contents(file)
    wanted = Wanted(kind, arch, kernel, image_kind)
    fitting = [image for image in all_images(part) if wanted.fits(image)]
    chosen = [image for image in fitting if image.form]
    if not chosen:
        raise _nothing(file, part, fitting, wanted)
    targets = _targets(file, chosen, output)
    if only_list:
        lines = (f"{targets[image.index]}: {described(image)}" for image in chosen)
        click.echo("\n".join(map(shown, lines)))
        return 0
    check_files([file], [OutputFile(target, "-o") for target in targets.values()])
    _write_images(file, targets)
    for image in chosen:
        show(shown(f"{targets[image.index]}: {described(image)}"))
    return _status(part)


def described(image: Image) -> str:
    """Return a one-line description of an image."""
    words = (image.kind, arch_name(image), str(image.form), size_text(image.size_bytes))
    return " ".join(word for word in words if word)


def arch_name(image: Image) -> str:
    """Return the architecture as `--offload-arch=` spells it: `host` for a CPU image."""
    return image.arch or (HOST if runs_on_host(image) else "")


def _ending(image: Image) -> str:
    if image.code is not None and image.form == "ELF":
        return _ELF_ENDINGS[image.code.is_relocatable]
    is_object = image.form in (FileForm.HOST_ELF, "ELF")
    return _ENDINGS.get(str(image.form), "o" if is_object else "img")


def _holds(image: Image, kernel: str) -> bool:
    return image.code is not None and image.code.kernel(kernel) is not None


def _targets(file: Path, chosen: Sequence[Image], output: str) -> Mapping[int, Path]:
    """Return the output file of each image, by index. Raises UsageError if -o names one file for several."""
    place = Path(output)
    if not output or output.endswith("/") or place.is_dir():
        return {image.index: place / _name(file, image) for image in chosen}
    if len(chosen) > 1:
        listed = "; ".join(map(described, chosen[:_SHOWN]))
        msg = f"{len(chosen)} images of {file} fit, but -o {output} is one file: {shown(listed)}"
        hint = f"choose one by --kind, --arch or --kernel, or name a directory: -o {output}/"
        raise UsageError(msg, hint=hint)
    return {chosen[0].index: place}


def _name(file: Path, image: Image) -> str:
    """Return the file name of an image. Names from an untrusted file cannot escape the directory."""
    words = (str(image.index), image.kind or _NO_ARCH, arch_name(image) or _NO_ARCH, _ending(image))
    return ".".join((file.stem or file.name, *map(_legal, words)))


def _legal(word: str) -> str:
    kept = "".join(c if c.isascii() and (c.isalnum() or c in _LEGAL) else "_" for c in word)
    return kept[:_LONGEST_WORD]


def _write_images(file: Path, targets: Mapping[int, Path]) -> None:
    """Read the file again and write the images; either all of them are renamed to their names, or none.

    Raises InputOutputError if one cannot be written.
    """
    if len(targets) == 1:
        ((index, target),) = targets.items()
        make_directory(target.parent)
        with open_output(target) as descriptor:
            _copy_images(file, {index: nullcontext(descriptor)})
        return
    folder = next(iter(targets.values())).parent
    make_directory(folder)
    for target in targets.values():
        check_output(target)
    place = Path(mkdtemp(prefix=".mlir-offload-", dir=folder))
    try:
        _copy_images(file, {i: _opened(place / target.name) for i, target in targets.items()})
        for target in targets.values():
            keep_mode(place / target.name, target)
        for target in targets.values():
            (place / target.name).replace(target)
    finally:
        rmtree(place, ignore_errors=True)


def _copy_images(file: Path, sinks: Mapping[int, AbstractContextManager[int]]) -> None:
    """Copy each image to its sink. A sink is open only while it is written."""
    written: set[int] = set()

    def write(image: Image, content: ByteView) -> None:
        if image.index in sinks:
            with sinks[image.index] as descriptor:
                copy_view(content, descriptor)
            written.add(image.index)

    visit_images(file, write)
    if lacking := sorted(sinks.keys() - written):
        msg = f"image {lacking[0]} of {file} cannot be read"
        raise VerificationError(msg, hint="see 'mlir-offload inspect'", location=str(file))


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _nothing(
    file: Path, part: Part, fitting: Sequence[Image], wanted: Wanted
) -> UsageError | VerificationError:
    """Return the error for a file from which no image can be extracted."""
    images = list(all_images(part))
    damage = next(_damage(part), None)
    if damage is not None and (fitting or not images):
        return VerificationError(shown(damage.message), hint=damage.hint, location=str(file))
    if not images:
        form = "empty" if part.form == FileForm.EMPTY else part.form
        msg = f"{file} contains no device image: it is {form}"
        return UsageError(msg, hint=f"see 'mlir-offload inspect {shown(str(file))}'")
    asked = ", ".join(_asked(wanted))
    held = "; ".join(dict.fromkeys(described(image) for image in images[:_SHOWN]))
    more = f" and {len(images) - _SHOWN} more" if len(images) > _SHOWN else ""
    msg = f"no image of {file} has {asked}; there are: {shown(held)}{more}"
    return UsageError(msg, hint=f"see 'mlir-offload extract --list {shown(str(file))}'")


def _asked(wanted: Wanted) -> Iterator[str]:
    names = ("kind", "arch", "kernel", "image_kind")
    for name in names:
        if value := getattr(wanted, name):
            yield f"{name.replace('_', ' ')} {value}"


def _status(part: Part) -> int:
    """Return the exit status; warn about each image that could not be read."""
    lost = list(_damage(part))
    for problem in lost:
        show_warning(shown(problem.message), part.name)
    return VerificationError.exit_status if lost else 0


def _damage(part: Part) -> Iterator[Problem]:
    for problem in all_problems(part):
        if problem.kind in (ProblemKind.DAMAGED, ProblemKind.UNSUPPORTED):
            yield problem
