"""The combinations of LLVM, CUDA and ROCm to test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from mlir_offload.driver.compile.kind_build import Sdk, build_of
from mlir_offload.offload.link.dropped_image import links_device
from mlir_offload.toolchain.inventory import Inventory
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.target import DEVICE_KINDS, Kind, parse_offload_arch
from mlir_offload.toolchain.tool import Role

_SHOWN_PARTS = 3


class Combination(Struct, frozen=True):
    """The lowering LLVM, the linking LLVM, the SDK and the target.

    `place` distinguishes lowering releases with the same number. `is_default`: a build without options uses
    this combination.
    """

    kind: Kind
    arch: str
    producer: LlvmToolchain
    consumer: LlvmToolchain
    sdk: Sdk | None = None
    is_default: bool = False
    place: str = ""

    @property
    def producer_name(self) -> str:
        """Return the name of the lowering LLVM."""
        return f"LLVM {self.producer.version.major}{self.place}"

    @property
    def label(self) -> str:
        """Return a short name."""
        releases = self.producer_name
        if self.is_mixed:
            releases += f" for {self.consumer.version.major}"
        return f"{self.kind} {self.arch}, {releases}" + (f", {self.sdk.name}" if self.sdk else "")

    @property
    def is_mixed(self) -> bool:
        """Return whether the lowering and the linking LLVM are different releases."""
        return self.producer.version.major != self.consumer.version.major


def plan_combinations(inventory: Inventory, kinds: Sequence[Kind]) -> tuple[Combination, ...]:
    """Return every combination of the kinds, newest releases first.

    Combinations whose linking release cannot link code of the target are left out.
    """
    releases = _releases(inventory)
    return tuple(
        Combination(
            kind,
            choice.arch,
            producer,
            consumer,
            choice.sdk,
            choice.is_default and producer == consumer == inventory.default_llvm,
            _place(producer, releases),
        )
        for kind in kinds
        for choice in build_of(kind).doctor_choices(inventory, releases)
        for producer, consumer in _pairs(releases)
        if links_device(parse_offload_arch(choice.arch), consumer.version.major)
    )


def _releases(inventory: Inventory) -> list[LlvmToolchain]:
    """Return the releases that can compile and link: newest first, the default first within a release."""
    found = [
        probed.toolchain
        for probed in inventory.llvm
        if isinstance(probed.toolchain, LlvmToolchain)
        and probed.toolchain.is_supported(Role.LINK)
        and probed.toolchain.has("clang")
    ]
    default = inventory.default_llvm
    return sorted(found, key=lambda one: (-one.version.major, one != default))


def _pairs(releases: Sequence[LlvmToolchain]) -> Iterator[tuple[LlvmToolchain, LlvmToolchain]]:
    """Yield each lowering release with itself, and with the first installation of each other release."""
    first = {release.version.major: release for release in reversed(releases)}
    for producer in releases:
        if producer.can(Role.LOWER):
            for major, consumer in sorted(first.items(), reverse=True):
                yield producer, producer if major == producer.version.major else consumer


def _place(producer: LlvmToolchain, releases: Sequence[LlvmToolchain]) -> str:
    majors = [release.version.major for release in releases]
    is_only = majors.count(producer.version.major) == 1
    return "" if is_only else f" in {short_path(producer.prefix)}"


def known_kinds() -> tuple[Kind, ...]:
    """Return the kinds that this release of mlir-offload compiles for."""
    return tuple(kind.name for kind in sorted(DEVICE_KINDS, key=lambda kind: not kind.is_cpu))


def short_path(path: Path) -> str:
    """Return the last components of a long path, for display."""
    parts = path.parts[-_SHOWN_PARTS:]
    return str(path) if len(path.parts) <= _SHOWN_PARTS + 1 else f".../{'/'.join(parts)}"
