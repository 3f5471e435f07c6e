"""The steps that run in process, each also a command: what `-###` prints can be pasted.

A step reads files and writes files; it knows nothing of the plan that it is part of. Each imports
what it needs when it is called: the first tool runs while the rest is still being loaded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlir_offload.driver.step import cpu as cpu_steps
from mlir_offload.driver.step import device as device_steps
from mlir_offload.driver.step.group import (
    PATH,
    kernels_option,
    located,
    output_option,
    rdc_option,
    read_text,
    release_option,
    sanitize_option,
    source_argument,
    step,
    write_text,
)
from mlir_offload.driver.step.older import downgrade_ir, same_kernels
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.target import (
    Kind,
    all_kinds,
    device_kind,
    kind_of_image,
    uses_processor,
)

if TYPE_CHECKING:
    from mlir_offload.offload.container.packager import ImageArgument
    from mlir_offload.offload.host.entry import OffloadEntry
    from mlir_offload.offload.host.finished_code import FinishedCode

__all__ = ["located", "run_step", "step"]

# They define steps of the group too.
_OTHERS = (cpu_steps, device_steps)

# A comma in a file name does not end the value.
_IMAGE_PARTS = re.compile(r",(?=(?:file|triple|arch|kind|feature)=)")
_FINISHED_PARTS = re.compile(r",(?=(?:kind|file|kernel)=)")
_VARIABLE_KEYS = frozenset(
    ("kind", "name", "address", "size", "type", "flags", "data", "auxiliary")
)
_VARIABLE_FLAGS = frozenset(("extern", "constant", "normalized"))
_consumer = click.option("--for-clang", "consumer", required=True, metavar="RELEASE|any")


step.add_command(downgrade_ir)
step.add_command(same_kernels)


@step.command("split")
@source_argument
@click.option("--from", "program", type=PATH, required=True, help="the file that the user wrote")
@click.option("--unit-id", required=True)
@click.option("--prefix-map", "maps", multiple=True, metavar="OLD=NEW")
@click.option(
    "--form",
    "forms",
    multiple=True,
    default=("nvvm32",),
    help="of a device module: nvvm32, rocdl64, ...",
)
@click.option("--fast-math", is_flag=True, help="let floating-point operations be inexact")
@click.option("--describe-memory", is_flag=True, help="for launches on the host's own memory")
@click.option("--arch", "archs", multiple=True, help="a target, whose limits are checked")
@click.option("--program", "is_program", is_flag=True, help="main is what starts a program")
@click.option("--transformed", is_flag=True, help="a pass has run the transform scripts")
@rdc_option
@release_option
@output_option
def _split(  # noqa: PLR0913 (one parameter for each option)
    source: Path,
    program: Path,
    unit_id: str,
    maps: tuple[str, ...],
    forms: tuple[str, ...],
    archs: tuple[str, ...],
    *,
    fast_math: bool,
    describe_memory: bool,
    is_program: bool,
    transformed: bool,
    rdc: bool,
    major: int,
    output: Path,
) -> None:
    """Split a normalised program into its host module and its device modules."""
    from mlir_offload.driver.message.report import show_warning
    from mlir_offload.driver.step.split_file import write_split
    from mlir_offload.toolchain.target import parse_offload_arch
    from mlir_offload.translate.device_form import parse_form
    from mlir_offload.translate.fixup.fast_math import with_fast_math
    from mlir_offload.translate.fixup.split import split_program

    written = _bytes_as_text(program)
    text = read_text(source)
    if maps:
        from mlir_offload.translate.prefix_map import map_locations, parse_prefix_map

        text = map_locations(text, [parse_prefix_map(item, "--prefix-map") for item in maps])
    text = with_fast_math(text) if fast_math else text
    split = split_program(
        text,
        source_text=written,
        unit_id=unit_id,
        llvm_major=major,
        forms=[parse_form(name) for name in forms],
        keeps_functions=rdc,
        describes_memory=describe_memory,
        is_program=is_program,
        is_transformed=transformed,
        targets=[parse_offload_arch(name) for name in archs],
    )
    for warning in split.warnings:
        show_warning(warning.message, warning.location)
    write_split(split, output)


@step.command("header")
@click.argument("sources", type=PATH, nargs=-1, required=True)
@click.option("--from", "programs", type=PATH, multiple=True, help="what the user wrote, for each")
@output_option
def _header(sources: tuple[Path, ...], programs: tuple[Path, ...], output: Path) -> None:
    """Write the C header of the functions with llvm.emit_c_interface of normalised programs."""
    from mlir_offload.translate.host.interface import render_header_of

    texts = [
        (read_text(source), _bytes_as_text(program))
        for source, program in zip(sources, programs, strict=True)
    ]
    write_text(output, render_header_of(texts, output.name, location=str(programs[0])))


@step.command("unpack")
@source_argument
@click.option("--kernels", type=PATH, required=True, help="where their heads go, as LLVM IR")
@output_option
def _unpack(source: Path, kernels: Path, output: Path) -> None:
    """Take the device image and the heads of its kernels out of what an image step made."""
    from mlir_offload.driver.step.image_container import unpack_image

    unpack_image(source, output, kernels)


@step.command("package")
@click.option(
    "--image", "images", multiple=True, required=True, metavar="file=,triple=,arch=,kind="
)
@_consumer
@output_option
def _package(images: tuple[str, ...], consumer: str, output: Path) -> None:
    """Write device images into one offload binary, as clang-offload-packager does."""
    from mlir_offload.driver.package.file import write_package
    from mlir_offload.offload.abi import load_abis

    arguments = [_image_argument(text) for text in images]
    files = [(argument, argument.value("file")) for argument in arguments]
    write_package(files, load_abis(consumer), output)


@step.command("anchor")
@click.argument("binary", type=PATH)
@output_option
def _anchor(binary: Path, output: Path) -> None:
    """Write the module that makes the linker wrapper take device code out of static libraries."""
    from mlir_offload.offload.link.anchor import render_anchor

    write_text(output, render_anchor(binary.read_bytes()))


@step.command("depfile")
@click.argument("sources", nargs=-1)
@click.option("--target", "targets", multiple=True, required=True, help="as it stands in the rule")
@click.option("--other", "others", multiple=True, help="what was read besides the sources")
@click.option("--from-clang", "rules", type=PATH, multiple=True, help="a rule with more of it")
@click.option("--phony", is_flag=True, help="give each of these a rule of its own, as -MP")
@output_option
def _depfile(
    sources: tuple[str, ...],
    targets: tuple[str, ...],
    others: tuple[str, ...],
    rules: tuple[Path, ...],
    *,
    phony: bool,
    output: Path,
) -> None:
    """Write the rule that tells Make what the targets depend on."""
    from mlir_offload.driver.system.depfile import read_prerequisites, render_rule

    included = [name for rule in rules for name in read_prerequisites(read_text(rule))]
    write_text(output, render_rule(targets, sources, (*others, *included), phony=phony))


@step.command("members")
@click.argument("library", type=PATH)
@output_option
def _members(library: Path, output: Path) -> None:
    """Write the members of a static library into a directory, and the list of them."""
    from mlir_offload.driver.step.members import write_members

    write_members(library, output)


@step.command("detach")
@source_argument
@output_option
def _detach(source: Path, output: Path) -> None:
    """Make an object whose device code is linked leave that of other objects alone."""
    from mlir_offload.offload.link.collision import detach_object

    output.write_bytes(detach_object(source.read_bytes(), location=str(source)))


@step.command("relocatable-linker")
@click.option("--linker", default="ld", help="the linker that it calls")
@click.option("--replace", "replaced", nargs=2, multiple=True, help="an object, and one for it")
@output_option
def _relocatable_linker(linker: str, replaced: tuple[tuple[str, str], ...], output: Path) -> None:
    """Write a linker by which an old linker wrapper makes an object."""
    from mlir_offload.offload.link.relocatable_adapter import write_relocatable_linker

    write_relocatable_linker(output, linker, replaced)


@step.command("registration-names")
@source_argument
@output_option
def _registration_names(source: Path, output: Path) -> None:
    """Write, as llvm-objcopy reads them, names by which an object alone finds its entries."""
    from mlir_offload.offload.link.relocatable_adapter import registration_names
    from mlir_offload.toolchain.byte_view import open_view

    with open_view(source) as view:
        write_text(output, "".join(f"{word}\n" for word in registration_names(view)))


@step.command("annotate")
@source_argument
@click.option("--device", "devices", type=PATH, multiple=True, help="LLVM IR of a device module")
@kernels_option
@click.option("--declared", multiple=True, help="a kernel that another file defines")
@click.option("--kind", "kinds", type=click.Choice(all_kinds()), multiple=True)
@click.option("--binary", type=PATH, help="the offload binary to embed")
@click.option(
    "--variable",
    "variables",
    multiple=True,
    metavar="kind=,name=,address=,size=,…",
    help="a device global with its shadow; also type=, flags=, data=, auxiliary=",
)
@click.option(
    "--finished",
    multiple=True,
    metavar="kind=,file=,kernel=,…",
    help="linked device code, as the runtime of the kind loads it, and its kernels",
)
@sanitize_option
@click.option("--interface", type=PATH, help="the functions for callers in C and Python")
@click.option("--location", default="", help="the file that errors name")
@click.option("--triple", default="", help="the target to write into the module")
@_consumer
@output_option
def _annotate(  # noqa: PLR0913, PLR0917 (one parameter for each option)
    source: Path,
    devices: tuple[Path, ...],
    kernels: tuple[str, ...],
    declared: tuple[str, ...],
    kinds: tuple[str, ...],
    binary: Path | None,
    variables: tuple[str, ...],
    finished: tuple[str, ...],
    sanitize: str,
    interface: Path | None,
    location: str,
    triple: str,
    consumer: str,
    output: Path,
) -> None:
    """Embed the images, register the kernels, resolve the launches; write text or bitcode."""
    from mlir_offload.offload.abi import load_abis
    from mlir_offload.offload.host.annotate import annotate_host
    from mlir_offload.offload.host.module import kernel_signatures
    from mlir_offload.offload.host.stub import HostKernel
    from mlir_offload.translate.host.module import fix_host_ir

    signatures: dict[str, tuple[str, ...]] = {}
    device_texts = [read_text(device) for device in devices]
    for device_text in device_texts:
        signatures |= kernel_signatures(device_text)
    host = fix_host_ir(read_text(source))
    if triple:
        from mlir_offload.offload.abi import host_layout
        from mlir_offload.offload.host.module import with_target

        host = with_target(host, triple, host_layout(triple, load_abis(consumer)[0].major))
    if sanitize:
        from mlir_offload.translate.sanitizer import instrumented, parse_sanitizer

        host = instrumented(host, parse_sanitizer(sanitize))
    text = annotate_host(
        host,
        kernels=[HostKernel(symbol, signatures[symbol]) for symbol in kernels],
        kinds=[Kind(kind) for kind in kinds],
        binary=binary.read_bytes() if binary else b"",
        abis=load_abis(consumer),
        variables=[_variable(variable) for variable in variables],
        declared=declared,
        finished=[_finished(text) for text in finished],
        location=location,
    )
    if uses_processor(tuple(map(Kind, kinds))):
        from mlir_offload.offload.host.source_line import with_kernel_lines

        text = with_kernel_lines(text, device_texts)
    if interface is not None:
        from mlir_offload.offload.host.interface import embed_interface

        text = embed_interface(text, read_text(interface))
    if output.suffix == ".bc":
        from mlir_offload.offload.llvm_ir import write_bitcode_in_process

        output.write_bytes(write_bitcode_in_process(text))
    else:
        write_text(output, text)


def _finished(text: str) -> FinishedCode:
    """Read one `--finished=` argument. Raises UsageError where a key is missing."""
    from mlir_offload.offload.host.finished_code import FinishedCode

    words = [word.partition("=")[::2] for word in _FINISHED_PARTS.split(text)]
    values = dict(words)
    kernels = tuple(value for key, value in words if key == "kernel")
    try:
        kind, file = Kind(values["kind"]), values["file"]
    except (KeyError, ValueError) as error:
        msg = f"--finished={text}: missing or wrong: {error}"
        raise UsageError(msg, hint="write kind=cuda|hip,file=FILE,kernel=NAME,...") from error
    return FinishedCode(kind, Path(file).read_bytes(), kernels)


def _image_argument(text: str) -> ImageArgument:
    """Read one `--image=` argument. Raises UsageError where a key is missing."""
    from mlir_offload.offload.container.packager import image_argument

    words = _IMAGE_PARTS.split(text)
    keys = {word.partition("=")[0] for word in words if not word.endswith("=")}
    missing = [key for key in ("file", "triple", "arch", "kind") if key not in keys]
    if missing:
        msg = f"--image={text}: no {' or '.join(missing)}"
        raise UsageError(msg, hint="write --image=file=FILE,triple=TRIPLE,arch=ARCH,kind=KIND")
    values = dict(word.partition("=")[::2] for word in words)
    kind = kind_of_image(values["kind"], values["triple"])
    if kind is not None:
        # Containers do not name the CPU's.
        values["arch"] = device_kind(kind).container_arch(values["arch"])
    return image_argument([f"{key}={value}" for key, value in values.items()])


def _variable(text: str) -> OffloadEntry:
    """Read one `--variable=` argument. Raises UsageError for what is missing or unknown."""
    from mlir_offload.offload.host.entry import EntryType, OffloadEntry

    values = dict(part.partition("=")[::2] for part in text.split(","))
    flags = {flag for flag in values.get("flags", "").split("+") if flag}
    unknown = sorted((values.keys() - _VARIABLE_KEYS) | (flags - _VARIABLE_FLAGS))
    hint = "write kind=KIND,name=NAME,address=SHADOW,size=BYTES[,type=TYPE][,flags=constant]"
    if unknown:
        msg = f"--variable={text}: unknown {unknown[0]}"
        raise UsageError(msg, hint=hint)
    try:
        return OffloadEntry(
            Kind(values["kind"]),
            values["name"],
            values["address"],
            EntryType(values.get("type", EntryType.GLOBAL)),
            int(values["size"]),
            is_extern="extern" in flags,
            is_constant="constant" in flags,
            is_normalized="normalized" in flags,
            data=int(values.get("data", "0")),
            auxiliary=values.get("auxiliary", ""),
        )
    except (KeyError, ValueError) as error:
        msg = f"--variable={text}: missing or wrong: {error}"
        raise UsageError(msg, hint=hint) from error


def _bytes_as_text(path: Path) -> str:
    """Return a program as its author wrote it: bytecode is no text, each byte stands for itself."""
    return path.read_bytes().decode("latin-1")


def run_step(arguments: Sequence[str]) -> None:
    """Run `mlir-offload step NAME ARGUMENT...`. Raises UsageError for a bad command line."""
    # click takes a short option for a long one at first, and loads what finds names that are like it.
    words = ["--output" if word == "-o" else word for word in arguments]
    try:
        step.main(words, prog_name="mlir-offload step", standalone_mode=False)
    except click.UsageError as error:
        raise UsageError(error.format_message(), hint="see 'mlir-offload step --help'") from error
