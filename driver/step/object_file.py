"""Steps on objects and libraries, around the device link."""

from __future__ import annotations

from pathlib import Path

import click

from mlir_offload.driver.step.group import PATH, output_option, source_argument, step, write_text
from mlir_offload.driver.step.members import write_members
from mlir_offload.offload.link.anchor import render_anchor
from mlir_offload.offload.link.collision import detach_object
from mlir_offload.offload.link.relocatable_adapter import (
    registration_names,
    write_relocatable_linker,
)
from mlir_offload.offload.runtime import read_runtime_symbols
from mlir_offload.toolchain.byte_view import open_view


@step.command("anchor")
@click.argument("binary", type=PATH)
@output_option
def _anchor(binary: Path, output: Path) -> None:
    """Write the module that makes the linker wrapper take device code out of static libraries."""
    write_text(output, render_anchor(binary.read_bytes()))


@step.command("members")
@click.argument("library", type=PATH)
@output_option
def _members(library: Path, output: Path) -> None:
    """Write the members of a static library into a directory, and the list of them."""
    write_members(library, output)


@step.command("detach")
@source_argument
@output_option
def _detach(source: Path, output: Path) -> None:
    """Make an object whose device code is linked leave that of other objects alone."""
    output.write_bytes(detach_object(source.read_bytes(), location=str(source)))


@step.command("relocatable-linker")
@click.option("--linker", default="ld", help="the linker that it calls")
@click.option("--replace", "replaced", nargs=2, multiple=True, help="an object, and one for it")
@output_option
def _relocatable_linker(linker: str, replaced: tuple[tuple[str, str], ...], output: Path) -> None:
    """Write a linker by which an old linker wrapper makes an object."""
    write_relocatable_linker(output, linker, replaced)


@step.command("registration-names")
@source_argument
@output_option
def _registration_names(source: Path, output: Path) -> None:
    """Write, as llvm-objcopy reads them, names by which an object alone finds its entries."""
    with open_view(source) as view:
        write_text(output, "".join(f"{word}\n" for word in registration_names(view)))


@step.command("runtime-symbols")
@source_argument
@click.option("--weak", type=PATH, required=True, help="where the names of public symbols go")
@output_option
def _runtime_symbols(source: Path, weak: Path, output: Path) -> None:
    """Write the names of the symbols that are the runtime's own, as llvm-objcopy reads them."""
    symbols = read_runtime_symbols(source)
    write_text(output, "".join(f"{name}\n" for name in symbols.internal))
    write_text(weak, "".join(f"{name}\n" for name in symbols.public))
