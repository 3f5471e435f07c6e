"""The steps that run in process, each also a command: what `-###` prints can be pasted.

A step reads files and writes files; it knows nothing of the plan that it is part of. Each imports
what it needs when it is called: the first tool runs while the rest is still being loaded.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlir_offload.toolchain.errors import MlirOffloadError, UsageError
from mlir_offload.toolchain.target import Kind
from mlir_offload.toolchain.version import parse_version

if TYPE_CHECKING:
    from mlir_offload.offload.entry import OffloadEntry
    from mlir_offload.offload.packager import ImageArgument
    from mlir_offload.translate.cpu import CpuDeviceSource

# A comma in a file name does not end the value.
_IMAGE_PARTS = re.compile(r",(?=(?:file|triple|arch|kind|feature)=)")
_VARIABLE_KEYS = frozenset(
    ("kind", "name", "address", "size", "type", "flags", "data", "auxiliary")
)
_VARIABLE_FLAGS = frozenset(("extern", "constant", "normalized"))
_PATH = click.Path(path_type=Path)
_output = click.option("-o", "--output", type=_PATH, required=True)
_kernels = click.option("--kernel", "kernels", multiple=True)
_release = click.option("--llvm", "major", type=int, required=True)
_consumer = click.option("--for-clang", "consumer", required=True, metavar="RELEASE|any")
_source = click.argument("source", type=_PATH)
_sanitize = click.option("--sanitize", default="", help="the sanitizer that the code is marked for")


@click.group()
def step() -> None:
    """Run one step of a compilation; these are what -### prints."""


@step.command("split")
@_source
@click.option("--from", "program", type=_PATH, required=True, help="the file that the user wrote")
@click.option("--unit-id", required=True)
@click.option("--prefix-map", "maps", multiple=True, metavar="OLD=NEW")
@_release
@_output
def _split(
    source: Path, program: Path, unit_id: str, maps: tuple[str, ...], major: int, output: Path
) -> None:
    """Split a normalised program into its host module and its device modules."""
    from mlir_offload.driver.split_file import write_split
    from mlir_offload.translate.prefix_map import map_locations, parse_prefix_map
    from mlir_offload.translate.split import split_program

    # Bytecode is no text: each byte stands for itself.
    written = program.read_bytes().decode("latin-1")
    text = map_locations(_read(source), [parse_prefix_map(item, "--prefix-map") for item in maps])
    split = split_program(text, source_text=written, unit_id=unit_id, llvm_major=major)
    write_split(split, output)


@step.command("ptx-time")
@_source
@click.option("--time", "seconds", type=int, required=True, help="seconds since 1970")
@_output
def _ptx_time(source: Path, seconds: int, output: Path) -> None:
    """Give the files that PTX names a time and a size, so that ptxas does not ask for their own."""
    from mlir_offload.translate.device import with_file_times

    _write(output, with_file_times(_read(source), seconds))


@step.command("unwrap")
@_source
@click.option("--triple", required=True)
@_output
def _unwrap(source: Path, triple: str, output: Path) -> None:
    """Make the lowered device module a module of its own for mlir-translate."""
    from mlir_offload.translate.lower import unwrap_device

    _write(output, unwrap_device(_read(source), triple))


@step.command("nvptx-ir")
@_source
@_kernels
@_release
@_output
def _nvptx_ir(source: Path, kernels: tuple[str, ...], major: int, output: Path) -> None:
    """Prepare the LLVM IR of a device module for the NVPTX back end."""
    from mlir_offload.translate.device import nvptx_device_ir

    _write(output, nvptx_device_ir(_read(source), kernels=kernels, llvm_major=major))


@step.command("cpu-ir")
@_source
@_kernels
@_sanitize
@click.option("--benign", multiple=True, metavar="LINE:COLUMN", help="no races are reported there")
@click.option("--location", default="", help="the file that errors name")
@_output
def _cpu_ir(
    source: Path,
    kernels: tuple[str, ...],
    sanitize: str,
    benign: tuple[str, ...],
    location: str,
    output: Path,
) -> None:
    """Rewrite the LLVM IR of a device module for the CPU.

    A module whose kernels have barriers is not whole yet: it is written to OUTPUT.unsplit.ll, for
    opt and cpu-split.
    """
    with located(location):
        made = _cpu_source(source, kernels, sanitize)
    if benign:
        from mlir_offload.translate.sanitizer import without_races_at

        made = replace(made, text=without_races_at(made.text, benign))
    _write(unsplit(output) if made.needs_prepare else output, made.text)


@step.command("cpu-split")
@_source
@click.option("--from", "device", type=_PATH, required=True, help="what cpu-ir read")
@_kernels
@_sanitize
@click.option("--location", default="", help="the file that errors name")
@_output
def _cpu_split(
    source: Path, device: Path, kernels: tuple[str, ...], sanitize: str, location: str, output: Path
) -> None:
    """Split kernels at their barriers, in what opt made of the output of cpu-ir."""
    from mlir_offload.translate.cpu import finish_cpu_ir

    with located(location):
        first = _cpu_source(device, kernels, sanitize)
        _write(output, finish_cpu_ir(_read(source), first).text)


def _cpu_source(source: Path, kernels: Sequence[str], sanitize: str) -> CpuDeviceSource:
    from mlir_offload.translate.cpu import cpu_device_ir
    from mlir_offload.translate.sanitizer import parse_sanitizer

    if not sanitize:
        return cpu_device_ir(_read(source), kernels=kernels)
    sanitizer = parse_sanitizer(sanitize)
    return cpu_device_ir(
        _read(source),
        kernels=kernels,
        attributes=(sanitizer.attribute,),
        fibers_only=sanitizer.finds_races,
    )


def unsplit(output: Path) -> Path:
    """Return where cpu-ir writes a module that is yet to be split."""
    return output.with_suffix(".unsplit.ll")


@step.command("unpack")
@_source
@click.option("--kernels", type=_PATH, required=True, help="where their heads go, as LLVM IR")
@_output
def _unpack(source: Path, kernels: Path, output: Path) -> None:
    """Take the device image and the heads of its kernels out of what an image step made."""
    from mlir_offload.driver.image_container import unpack_image

    unpack_image(source, output, kernels)


@step.command("package")
@click.option(
    "--image", "images", multiple=True, required=True, metavar="file=,triple=,arch=,kind="
)
@_consumer
@_output
def _package(images: tuple[str, ...], consumer: str, output: Path) -> None:
    """Write device images into one offload binary, as clang-offload-packager does."""
    from mlir_offload.driver.package_file import write_package
    from mlir_offload.offload.abi import load_abis

    arguments = [_image_argument(text) for text in images]
    files = [(argument, argument.value("file")) for argument in arguments]
    write_package(files, load_abis(consumer), output)


@step.command("cuda-directory")
@click.option("--ptxas", type=_PATH, required=True)
@click.option("--nvlink", type=_PATH, required=True)
@click.option("--fatbinary", type=_PATH, required=True)
@click.option("--cuda-version", "version", required=True)
@click.option("--time", "seconds", type=int, help="what ptxas takes for the time of source files")
@click.option("--for-clang", "consumer", type=int, required=True)
@_output
def _cuda_directory(  # noqa: PLR0913, PLR0917 (one parameter for each option)
    ptxas: Path,
    nvlink: Path,
    fatbinary: Path,
    version: str,
    seconds: int | None,
    consumer: int,
    output: Path,
) -> None:
    """Put the tools of CUDA where the linker wrapper looks, `fatbinary` fitted to the wrapper."""
    from mlir_offload.offload.fatbinary_adapter import CudaTools, write_cuda_directory

    release = parse_version(version)
    if release is None:
        msg = f"--cuda-version={version} is no version"
        raise UsageError(msg, hint="write it as 13.0.88")
    tools = CudaTools(release, ptxas, nvlink, fatbinary, source_time=seconds)
    write_cuda_directory(output, tools, consumer)


@step.command("anchor")
@click.argument("binary", type=_PATH)
@_output
def _anchor(binary: Path, output: Path) -> None:
    """Write the module that makes the linker wrapper take device code out of static libraries."""
    from mlir_offload.offload.anchor import render_anchor

    _write(output, render_anchor(binary.read_bytes()))


@step.command("depfile")
@click.argument("sources", nargs=-1)
@click.option("--target", "targets", multiple=True, required=True, help="as it stands in the rule")
@click.option("--other", "others", multiple=True, help="what was read besides the sources")
@click.option("--from-clang", "rules", type=_PATH, multiple=True, help="a rule with more of it")
@click.option("--phony", is_flag=True, help="give each of these a rule of its own, as -MP")
@_output
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
    from mlir_offload.driver.depfile import read_prerequisites, render_rule

    included = [name for rule in rules for name in read_prerequisites(_read(rule))]
    _write(output, render_rule(targets, sources, (*others, *included), phony=phony))


@step.command("members")
@click.argument("library", type=_PATH)
@_output
def _members(library: Path, output: Path) -> None:
    """Write the members of a static library into a directory, and the list of them."""
    from mlir_offload.driver.members import write_members

    write_members(library, output)


@step.command("detach")
@_source
@_output
def _detach(source: Path, output: Path) -> None:
    """Make an object whose device code is linked leave that of other objects alone."""
    from mlir_offload.offload.collision import detach_object

    output.write_bytes(detach_object(source.read_bytes(), location=str(source)))


@step.command("annotate")
@_source
@click.option("--device", "devices", type=_PATH, multiple=True, help="LLVM IR of a device module")
@_kernels
@click.option("--declared", multiple=True, help="a kernel that another file defines")
@click.option("--kind", "kinds", type=click.Choice([kind.value for kind in Kind]), multiple=True)
@click.option("--binary", type=_PATH, help="the offload binary to embed")
@click.option(
    "--variable",
    "variables",
    multiple=True,
    metavar="kind=,name=,address=,size=,…",
    help="a device global with its shadow; also type=, flags=, data=, auxiliary=",
)
@_sanitize
@click.option("--location", default="", help="the file that errors name")
@_consumer
@_output
def _annotate(  # noqa: PLR0913, PLR0917 (one parameter for each option)
    source: Path,
    devices: tuple[Path, ...],
    kernels: tuple[str, ...],
    declared: tuple[str, ...],
    kinds: tuple[str, ...],
    binary: Path | None,
    variables: tuple[str, ...],
    sanitize: str,
    location: str,
    consumer: str,
    output: Path,
) -> None:
    """Embed the images, register the kernels, resolve the launches; write text or bitcode."""
    from mlir_offload.offload.abi import load_abis
    from mlir_offload.offload.annotate import annotate_host
    from mlir_offload.offload.host_module import kernel_signatures
    from mlir_offload.offload.stub import HostKernel
    from mlir_offload.translate.host import fix_host_ir

    signatures: dict[str, tuple[str, ...]] = {}
    for device in devices:
        signatures |= kernel_signatures(_read(device))
    host = fix_host_ir(_read(source))
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
        location=location,
    )
    if output.suffix == ".bc":
        from mlir_offload.offload.llvm_ir import write_bitcode_in_process

        output.write_bytes(write_bitcode_in_process(text))
    else:
        _write(output, text)


@contextlib.contextmanager
def located(location: str) -> Iterator[None]:
    """Give errors raised inside the place of the input where they name none."""
    try:
        yield
    except MlirOffloadError as error:
        error.location = error.location or location
        raise


def _image_argument(text: str) -> ImageArgument:
    """Read one `--image=` argument. Raises UsageError where a key is missing."""
    from mlir_offload.offload.packager import image_argument

    words = _IMAGE_PARTS.split(text)
    # The CPU has no architecture in the container.
    stored = ["arch=" if "kind=openmp" in words and word == "arch=host" else word for word in words]
    keys = {word.partition("=")[0] for word in words if not word.endswith("=")}
    missing = [key for key in ("file", "triple", "arch", "kind") if key not in keys]
    if missing:
        msg = f"--image={text}: no {' or '.join(missing)}"
        raise UsageError(msg, hint="write --image=file=FILE,triple=TRIPLE,arch=ARCH,kind=KIND")
    return image_argument(stored)


def _variable(text: str) -> OffloadEntry:
    """Read one `--variable=` argument. Raises UsageError for what is missing or unknown."""
    from mlir_offload.offload.entry import EntryType, OffloadEntry

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


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogateescape")


def run_step(arguments: Sequence[str]) -> None:
    """Run `mlir-offload step NAME ARGUMENT...`. Raises UsageError for a bad command line."""
    try:
        step.main(list(arguments), prog_name="mlir-offload step", standalone_mode=False)
    except click.UsageError as error:
        raise UsageError(error.format_message(), hint="see 'mlir-offload step --help'") from error
