"""Steps that write device images to containers and embed them into host modules."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from mlir_offload.driver.step import image_container
from mlir_offload.driver.step.step import Keyed, PackagedImage, Step, read_text, write_text
from mlir_offload.driver.system.workspace import open_output
from mlir_offload.offload import learned_section, llvm_ir
from mlir_offload.offload.abi import OffloadAbi, host_layout, load_abis
from mlir_offload.offload.container.packager import (
    ImageArgument,
    ImageRecord,
    check_image_argument,
    check_image_content,
    record_parts,
)
from mlir_offload.offload.host import interface as host_interface
from mlir_offload.offload.host import linked_image, source_line
from mlir_offload.offload.host.embed import HostKernel, embed_offload_data
from mlir_offload.offload.host.entry import EntryType, OffloadEntry
from mlir_offload.offload.image import FORM_BYTES, image_form_of
from mlir_offload.offload.ir_syntax import kernel_signatures, with_target
from mlir_offload.offload.kind_format import check_form, check_kinds
from mlir_offload.toolchain.byte_view import copy_view, open_view, write_all
from mlir_offload.toolchain.errors import InputOutputError
from mlir_offload.toolchain.tables import known_release
from mlir_offload.toolchain.target import Kind, uses_processor
from mlir_offload.translate import sanitizer as translate_sanitizer
from mlir_offload.translate.host.module import legalize_host_ir

_STANDARD_INPUT = Path("/dev/stdin")


def write_package(
    files: Sequence[tuple[ImageArgument, str]], abis: Sequence[OffloadAbi], output: Path
) -> None:
    """Write the files, each with the keys of its argument, into one offload binary for every ABI.

    Raises InputOutputError, UsageError for an argument without a required key, CompatibilityError for an
    image that a link would drop.
    """
    for argument, _ in files:
        for abi in abis:
            check_image_argument(argument, abi)
    check_kinds(sorted({Kind(argument.value("kind")) for argument, _ in files}), abis)
    # Check all files before gigabytes are copied.
    for argument, name in files:
        with _open_record(argument, name, abis):
            pass
    with open_output(output) as descriptor:
        for argument, name in files:
            with _open_record(argument, name, abis) as record:
                _write_record(record, descriptor)


@contextlib.contextmanager
def _open_record(
    argument: ImageArgument, name: str, abis: Sequence[OffloadAbi]
) -> Iterator[ImageRecord]:
    """Open an image for the duration of the block."""
    path = _STANDARD_INPUT if name == "-" else Path(name)
    with contextlib.ExitStack() as stack:
        try:
            content = stack.enter_context(open_view(path))
        except InputOutputError as error:
            if len(argument.files) > 1 or any(not value for _, value in argument.pairs):
                error.hint = "a file name cannot contain a comma: it ends a value"
            raise
        image_kinds = [check_image_content(argument, name, content, abi) for abi in abis]
        check_form(image_form_of(content.head(FORM_BYTES)), name, abis)
        kind_code = dict(abis[-1].kind_codes)[argument.value("kind")]
        yield ImageRecord(kind_code, image_kinds[-1], argument.strings(abis[-1]), content)


def _write_record(record: ImageRecord, descriptor: int) -> None:
    for part in record_parts(record):
        if isinstance(part, bytes):
            write_all(part, descriptor)
        else:
            copy_view(part, descriptor)


class Package(Step, frozen=True, kw_only=True, tag="package"):
    """Write device images into one offload binary, as clang-offload-packager does."""

    images: tuple[PackagedImage, ...]
    for_clang: str
    output: Path

    def _do(self) -> None:
        files = [(image.argument, str(image.file)) for image in self.images]
        write_package(files, load_abis(self.for_clang), self.output)


class Unpack(Step, frozen=True, kw_only=True, tag="unpack"):
    """Extract the device image and the kernel declarations from the output of an image step."""

    source: Path
    kernel_heads: Path
    output: Path

    def _do(self) -> None:
        image_container.unpack_image(self.source, self.output, self.kernel_heads)


class LinkedImageFile(Keyed, frozen=True):
    """A linked device image in a file, as the runtime of the kind loads it, and its kernels."""

    kind: Kind
    file: Path
    kernel: tuple[str, ...] = ()


class DeviceGlobal(Keyed, frozen=True):
    """A device global, with the symbol of its shadow on the host."""

    kind: Kind
    name: str
    address: str
    size: int
    type: EntryType = EntryType.GLOBAL
    data: int = 0
    auxiliary: str = ""
    extern: bool = False
    constant: bool = False
    normalized: bool = False

    @property
    def entry(self) -> OffloadEntry:
        """Return its offload entry."""
        return OffloadEntry(
            self.kind,
            self.name,
            self.address,
            self.type,
            self.size,
            is_extern=self.extern,
            is_constant=self.constant,
            is_normalized=self.normalized,
            data=self.data,
            auxiliary=self.auxiliary,
        )


class Embed(Step, frozen=True, kw_only=True, tag="embed"):
    """Embed the images, register the kernels, bind the launches; write text or bitcode."""

    source: Path
    binary: Path | None = None
    kinds: tuple[Kind, ...] = ()
    devices: tuple[Path, ...] = ()
    linked_images: tuple[LinkedImageFile, ...] = ()
    kernels: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    variables: tuple[DeviceGlobal, ...] = ()
    interface: Path | None = None
    sanitizer: translate_sanitizer.Sanitizer | None = None
    triple: str = ""
    location: str = ""
    for_clang: str
    output: Path

    def _do(self) -> None:
        devices = [read_text(device) for device in self.devices]
        text = self._with_offload_data(devices)
        if uses_processor(self.kinds):
            text = source_line.with_kernel_lines(text, devices)
        if self.interface is not None:
            text = host_interface.embed_interface(text, read_text(self.interface))
        for release in filter(
            None, (known_release(abi.major) for abi in load_abis(self.for_clang))
        ):
            text = learned_section.embed_learned(text, release)
        if self.output.suffix == ".bc":
            self.output.write_bytes(llvm_ir.write_bitcode_in_process(text))
        else:
            write_text(self.output, text)

    def _with_offload_data(self, devices: list[str]) -> str:
        signatures: dict[str, tuple[str, ...]] = {}
        for device in devices:
            signatures |= kernel_signatures(device)
        return embed_offload_data(
            self._host(),
            kernels=[HostKernel(symbol, signatures[symbol]) for symbol in self.kernels],
            kinds=self.kinds,
            binary=self.binary.read_bytes() if self.binary else b"",
            abis=load_abis(self.for_clang),
            variables=[variable.entry for variable in self.variables],
            declared=self.declared,
            linked_images=[
                linked_image.LinkedDeviceImage(one.kind, one.file.read_bytes(), one.kernel)
                for one in self.linked_images
            ],
            location=self.location,
        )

    def _host(self) -> str:
        """Return the legalized host module, for the target and the sanitizer."""
        host = legalize_host_ir(read_text(self.source))
        if self.triple:
            layout = host_layout(self.triple, load_abis(self.for_clang)[0].major)
            host = with_target(host, self.triple, layout)
        return translate_sanitizer.instrumented(host, self.sanitizer) if self.sanitizer else host
