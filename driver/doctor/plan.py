"""Which combinations of LLVM, CUDA and ROCm there are to try."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from mlir_offload.offload.link.image_loss import links_device
from mlir_offload.toolchain.cuda import CudaToolkit
from mlir_offload.toolchain.errors import CompatibilityError, UsageError
from mlir_offload.toolchain.inventory import Inventory
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.llvm_tools import Role
from mlir_offload.toolchain.ptx import supported_archs
from mlir_offload.toolchain.target import SPIRV, Kind, parse_offload_arch, sm_number

# What every release that has the kind knows; it decides nothing else.
_AMD_ARCH = "gfx90a"
_HOST = "host"
_SHOWN_PARTS = 3


class Sdk(Struct, frozen=True):
    """What a vendor installs beside LLVM: a CUDA toolkit, the ROCm device libraries."""

    name: str
    path: Path
    option: str
    cuda: CudaToolkit | None = None


class Combination(Struct, frozen=True):
    """The release that lowers, the one that compiles and links, what is beside them, the target.

    `place` tells a release that lowers from another one of its number; `is_default`: what a build
    that names nothing would use.
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
        """Return what the release that lowers is called here."""
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
        """Say whether one release lowers and another one links."""
        return self.producer.version.major != self.consumer.version.major


class _Choice(Struct, frozen=True):
    """An SDK that a kind may use, the architecture to compile for, and whether it is the default."""

    sdk: Sdk | None
    arch: str
    is_default: bool


def plan_combinations(inventory: Inventory, kinds: Sequence[Kind]) -> tuple[Combination, ...]:
    """Return every combination of the kinds, those of the newest releases first.

    Releases that link no code at all for a target are no combination.
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
        for choice in _CHOICES[kind](inventory, releases)
        for producer, consumer in _pairs(releases)
        if links_device(parse_offload_arch(choice.arch), consumer.version.major)
    )


def _releases(inventory: Inventory) -> list[LlvmToolchain]:
    """Return the releases that can compile and link, newest first, the default before its equals."""
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
    """Yield each release that lowers with itself, and with the first one of each other number."""
    first = {release.version.major: release for release in reversed(releases)}
    for producer in releases:
        if producer.can(Role.LOWER):
            for major, consumer in sorted(first.items(), reverse=True):
                yield producer, producer if major == producer.version.major else consumer


def _place(producer: LlvmToolchain, releases: Sequence[LlvmToolchain]) -> str:
    majors = [release.version.major for release in releases]
    is_only = majors.count(producer.version.major) == 1
    return "" if is_only else f" in {_short(producer.prefix)}"


def known_kinds() -> tuple[Kind, ...]:
    """Return the kinds that this release of mlir-offload compiles for."""
    return tuple(kind for kind in _CHOICES if _is_known(_EXAMPLES[kind]))


def _is_known(arch: str) -> bool:
    try:
        parse_offload_arch(arch)
    except UsageError:
        return False
    return True


def _host_choices(_: Inventory, __: Sequence[LlvmToolchain]) -> Iterator[_Choice]:
    yield _Choice(None, _HOST, is_default=True)


def _cuda_choices(inventory: Inventory, releases: Sequence[LlvmToolchain]) -> Iterator[_Choice]:
    complete = [
        cuda
        for cuda in inventory.cuda
        if isinstance(cuda, CudaToolkit) and not cuda.installation.missing
    ]
    versions = [str(cuda.version) for cuda in complete]
    for cuda in complete:
        is_only = versions.count(str(cuda.version)) == 1
        where = "" if is_only else f" in {_short(cuda.root)}"
        sdk = Sdk(f"CUDA {cuda.version}{where}", cuda.root, "--cuda-path=", cuda)
        yield _Choice(
            sdk,
            next(iter(inventory.gpus), "") or _newest_common_arch(cuda, releases),
            cuda == inventory.default_cuda,
        )


def _short(path: Path) -> str:
    """Return the end of a long path, which tells it from others."""
    parts = path.parts[-_SHOWN_PARTS:]
    return str(path) if len(path.parts) <= _SHOWN_PARTS + 1 else f".../{'/'.join(parts)}"


def _newest_common_arch(cuda: CudaToolkit, releases: Sequence[LlvmToolchain]) -> str:
    """Return an architecture that all releases know, else one that the newest of them does."""
    known = [_plain_archs(release.version.major, cuda) for release in releases]
    common = set.intersection(*known) if known else set()
    archs = common or next((archs for archs in known if archs), {"sm_80"})
    return max(archs, key=sm_number)


def _plain_archs(major: int, cuda: CudaToolkit) -> set[str]:
    try:
        return {arch for arch in supported_archs(major, cuda) if arch[-1].isdigit()}
    except CompatibilityError:
        return set()


def _hip_choices(inventory: Inventory, _: Sequence[LlvmToolchain]) -> Iterator[_Choice]:
    for number, libs in enumerate(inventory.rocm):
        name = f"ROCm {libs.version}" if libs.version else "ROCm device libraries"
        yield _Choice(Sdk(name, libs.root, "--rocm-path="), _AMD_ARCH, number == 0)


def _spirv_choices(_: Inventory, __: Sequence[LlvmToolchain]) -> Iterator[_Choice]:
    yield _Choice(None, SPIRV, is_default=True)


_CHOICES: Mapping[Kind, Callable[[Inventory, Sequence[LlvmToolchain]], Iterator[_Choice]]] = {
    Kind.OPENMP: _host_choices,
    Kind.CUDA: _cuda_choices,
    Kind.HIP: _hip_choices,
    Kind.SYCL: _spirv_choices,
}
_EXAMPLES: Mapping[Kind, str] = {
    Kind.OPENMP: _HOST,
    Kind.CUDA: "sm_80",
    Kind.HIP: _AMD_ARCH,
    Kind.SYCL: SPIRV,
}
