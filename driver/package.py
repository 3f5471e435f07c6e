"""Package device images into an offload binary, and reject those that a link would drop."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.option.checks import OutputFile, check_files
from mlir_offload.driver.option.command_line import CompileOptions
from mlir_offload.driver.step.fat_binary import write_fat_binary
from mlir_offload.driver.step.image_file import write_package
from mlir_offload.driver.tools.choose import choose_release, places_for
from mlir_offload.driver.tools.releases import learn_named
from mlir_offload.offload.abi import ANY_CONSUMER, load_abis
from mlir_offload.offload.container.bundle import METHODS
from mlir_offload.offload.container.packager import image_argument
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.process import Runner

_OFFLOAD_BINARY, _FAT_BINARY = "offload-binary", "hipfb"


class PackageOptions(Struct, frozen=True):
    """The options of `package`. An empty consumer selects the default linking LLVM."""

    images: tuple[str, ...] = ()
    consumer: str = ""
    format: str = _OFFLOAD_BINARY
    compression: str = ""
    output: Path | None = None


def package(arguments: Sequence[str], runner: Runner) -> int:
    """Run `mlir-offload package`; return its exit status.

    Raises UsageError, InputOutputError, and CompatibilityError for an image that a link would drop.
    """
    options = parse_package_arguments(arguments)
    if options.output is None:
        msg = "package needs an output"
        raise UsageError(msg, hint="add -o FILE")
    if options.consumer:
        learn_named(options.consumer, places_for(), runner, os.environ)
    abis = load_abis(options.consumer or _default_consumer(runner))
    if not options.images:
        show_note("no --image=: the output is empty")
    images = [image_argument(text.split(",")) for text in options.images]
    files = [(image, name) for image in images for name in image.files or ("",)]
    check_files((Path(name) for _, name in files if name), [OutputFile(options.output, "-o")])
    if options.format == _FAT_BINARY:
        write_fat_binary(files, abis[-1].major, options.output, method=options.compression)
    else:
        write_package(files, abis, options.output)
    return 0


def parse_package_arguments(arguments: Sequence[str]) -> PackageOptions:
    """Return the parsed arguments; options may have one dash or two, as in LLVM's tools.

    Raises UsageError for an unknown option, a missing value, or an operand.
    """
    options = PackageOptions()
    rest = list(reversed(arguments))
    while rest:
        argument = rest.pop()
        if not argument.startswith("-") or argument in {"-", "--"}:
            msg = f"package takes no operand, but '{argument}' is one"
            hint = "name images with --image=file=FILE,...; 'mlir-offload extract' takes images out"
            raise UsageError(msg, hint=hint)
        name, is_joined, value = argument.removeprefix("-").removeprefix("-").partition("=")
        if name not in _OPTIONS:
            msg = f"unknown option '{argument}'"
            raise UsageError(msg, hint="see 'mlir-offload package --help'")
        if not is_joined:
            if not rest:
                msg = f"option '{argument}' needs a value"
                raise UsageError(msg, hint="see 'mlir-offload package --help'")
            value = rest.pop()
        options = _OPTIONS[name](options, value)
    if options.compression and options.format != _FAT_BINARY:
        msg = "--compress is for --format=hipfb: no released linker wrapper reads compressed offload binaries"
        raise UsageError(msg, hint="leave --compress out")
    return options


def _default_consumer(runner: Runner) -> str:
    major = choose_release(CompileOptions(), places_for(), runner).version.major
    show_note(f"packaging for LLVM {major} (--for-clang={major})")
    return str(major)


def _image(options: PackageOptions, value: str) -> PackageOptions:
    return replace(options, images=(*options.images, value))


def _consumer(options: PackageOptions, value: str) -> PackageOptions:
    if value != ANY_CONSUMER and not (value.isascii() and value.isdecimal()):
        msg = f"--for-clang={value} is not a release of LLVM"
        raise UsageError(msg, hint="write the number alone, as --for-clang=22")
    return replace(options, consumer=value)


def _output(options: PackageOptions, value: str) -> PackageOptions:
    return replace(options, output=Path(value))


def _format(options: PackageOptions, value: str) -> PackageOptions:
    return replace(options, format=_one_of("--format", value, (_OFFLOAD_BINARY, _FAT_BINARY)))


def _compression(options: PackageOptions, value: str) -> PackageOptions:
    return replace(options, compression=_one_of("--compress", value, tuple(METHODS)))


def _one_of(option: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        msg = f"{option}={value} is not known"
        raise UsageError(msg, hint=f"use one of {', '.join(known)}")
    return value


_OPTIONS: Mapping[str, Callable[[PackageOptions, str], PackageOptions]] = {
    "compress": _compression,
    "format": _format,
    "image": _image,
    "for-clang": _consumer,
    "o": _output,
}
