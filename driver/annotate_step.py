"""The step that makes the host module of an object: images embedded, kernels registered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.driver.step_command import CommandGroup, argument, option
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.target import Kind

if TYPE_CHECKING:
    from mlir_offload.offload.entry import OffloadEntry

_VARIABLE_KEYS = frozenset(
    ("kind", "name", "address", "size", "type", "flags", "data", "auxiliary")
)
_VARIABLE_FLAGS = frozenset(("extern", "constant", "normalized"))

ANNOTATE_STEP = CommandGroup("mlir-offload step", "Make the host module of an object.")


@ANNOTATE_STEP.command(
    "annotate",
    argument("source", type=Path),
    option("--device", "devices", type=Path, multiple=True, help="LLVM IR of a device module"),
    option("--kernel", "kernels", multiple=True),
    option("--declared", multiple=True, help="a kernel that another file defines"),
    option("--kind", "kinds", choices=[kind.value for kind in Kind], multiple=True),
    option("--binary", type=Path, help="the offload binary to embed"),
    option(
        "--variable",
        "variables",
        multiple=True,
        metavar="kind=,name=,address=,size=,…",
        help="a device global with its shadow; also type=, flags=, data=, auxiliary=",
    ),
    option("--location", default="", help="the file that errors name"),
    option("--for-clang", "consumer", required=True, metavar="RELEASE|any"),
    option("-o", "--output", type=Path, required=True),
)
def _annotate(  # noqa: PLR0913, PLR0917 (one parameter for each option)
    source: Path,
    devices: tuple[Path, ...],
    kernels: tuple[str, ...],
    declared: tuple[str, ...],
    kinds: tuple[str, ...],
    binary: Path | None,
    variables: tuple[str, ...],
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
    text = annotate_host(
        fix_host_ir(_read(source)),
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
