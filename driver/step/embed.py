"""The step that puts device images, entries and stubs into a host module."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.step.step import Keyed, Step, read_text, write_text
from mlir_offload.offload import llvm_ir
from mlir_offload.offload.abi import host_layout, load_abis
from mlir_offload.offload.host import interface as host_interface
from mlir_offload.offload.host import learned, linked_image, source_line
from mlir_offload.offload.host.embed import HostKernel, embed_offload_data
from mlir_offload.offload.host.entry import EntryType, OffloadEntry
from mlir_offload.offload.host.module import kernel_signatures, with_target
from mlir_offload.toolchain.tables import known_release
from mlir_offload.toolchain.target import Kind, uses_processor
from mlir_offload.translate import sanitizer as translate_sanitizer
from mlir_offload.translate.host.module import legalize_host_ir


class LinkedImageFile(Keyed, frozen=True):
    """Linked device code in a file, as the runtime of the kind loads it, and its kernels."""

    kind: Kind
    file: Path
    kernel: tuple[str, ...] = ()


class DeviceGlobal(Keyed, frozen=True):
    """A device global with the symbol that represents it on the host."""

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
    """Embed the images, register the kernels, resolve the launches; write text or bitcode."""

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
            text = learned.embed_learned(text, release)
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
        """Return the host module as the rest takes it, for the target and the sanitizer."""
        host = legalize_host_ir(read_text(self.source))
        if self.triple:
            layout = host_layout(self.triple, load_abis(self.for_clang)[0].major)
            host = with_target(host, self.triple, layout)
        return translate_sanitizer.instrumented(host, self.sanitizer) if self.sanitizer else host
