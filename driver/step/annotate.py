"""The step that puts device images, entries and stubs into a host module."""

from __future__ import annotations

import re
from pathlib import Path

import click

from mlir_offload.driver.step.group import (
    PATH,
    consumer_option,
    kernels_option,
    output_option,
    read_text,
    sanitize_option,
    source_argument,
    step,
    write_text,
)
from mlir_offload.offload.abi import load_abis
from mlir_offload.offload.host.annotate import annotate_host
from mlir_offload.offload.host.entry import EntryType, OffloadEntry
from mlir_offload.offload.host.finished_code import FinishedCode
from mlir_offload.offload.host.module import kernel_signatures
from mlir_offload.offload.host.stub import HostKernel
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.target import Kind, all_kinds, uses_processor
from mlir_offload.translate.host.module import fix_host_ir

_FINISHED_PARTS = re.compile(r",(?=(?:kind|file|kernel)=)")
_VARIABLE_KEYS = frozenset(
    ("kind", "name", "address", "size", "type", "flags", "data", "auxiliary")
)
_VARIABLE_FLAGS = frozenset(("extern", "constant", "normalized"))


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
@consumer_option
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
    words = [word.partition("=")[::2] for word in _FINISHED_PARTS.split(text)]
    values = dict(words)
    kernels = tuple(value for key, value in words if key == "kernel")
    try:
        kind, file = Kind(values["kind"]), values["file"]
    except (KeyError, ValueError) as error:
        msg = f"--finished={text}: missing or wrong: {error}"
        raise UsageError(msg, hint="write kind=cuda|hip,file=FILE,kernel=NAME,...") from error
    return FinishedCode(kind, Path(file).read_bytes(), kernels)


def _variable(text: str) -> OffloadEntry:
    """Read one `--variable=` argument. Raises UsageError for what is missing or unknown."""
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
