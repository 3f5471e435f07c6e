"""Device kinds, architectures and targets with LLVM's names, and workgroup memory limits."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar, cast

from msgspec import Struct

from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.tables import load_table

T = TypeVar("T")

NVPTX_TRIPLE = "nvptx64-nvidia-cuda"
AMDGPU_TRIPLE = "amdgcn-amd-amdhsa"
SPIRV_TRIPLE = "spirv64-unknown-unknown"
# LLVM 24 writes the processor into the triple: amdgpu9.0a-amd-amdhsa.
_GPU_ARCHITECTURES = ("nvptx", "amdgcn", "amdgpu", "r600", "spir")
_OTHER_SYSTEMS = (
    *("windows", "win32", "cygwin", "mingw", "uefi", "darwin", "macos", "ios", "freebsd", "netbsd"),
    *("openbsd", "dragonfly", "solaris", "fuchsia", "wasi", "gnux32", "muslx32"),
)
HOST = "host"
"""The value of `--offload-arch=` for the CPU."""
SPIRV = "spirv64"
"""The value of `--offload-arch=` for devices that accept SPIR-V, such as Intel GPUs."""
SM = pattern(r"sm_(\d{2,3})([af]?)")
"""An NVIDIA architecture."""
TARGET_ID = pattern(r"(gfx(?:\d+(?:-\d+)*-generic|\d{1,2}[0-9a-f]{2}))((?::[a-z0-9]+[+-])*)")
"""An AMD target ID: `gfx90a:sramecc+:xnack-`."""


class Kind(str):
    """The name of a device kind, usually that of the `OffloadKind` (`llvm/Object/OffloadBinary.h`) of its images.

    Each registered name is one object. Raises ValueError for a name that is not registered.
    """

    __slots__ = ()
    CUDA: ClassVar[Kind]
    HIP: ClassVar[Kind]
    OPENMP: ClassVar[Kind]
    SYCL: ClassVar[Kind]

    def __new__(cls, name: str) -> Kind:  # noqa: PYI034 (no subclasses)
        """Return the registered kind of that name."""
        if name not in _KNOWN:
            msg = f"'{name}' is not a device kind"
            raise ValueError(msg)
        return _KNOWN[name]


_KNOWN: dict[str, Kind] = {}
_MODULES: dict[Kind, str] = {}
_OFFLOAD_KINDS: dict[Kind, str] = {}
_CPP_SUFFIXES: dict[str, Kind] = {}


def register_kind(name: str, module: str, cpp_suffix: str = "", offload_kind: str = "") -> Kind:
    """Register and return a device kind. A module of this name in each layer implements it.

    `cpp_suffix` is the extension of C++ files with kernels for it, if any. `offload_kind` is the
    offload kind of its images in LLVM's containers and entries, by default its name.
    """
    kind = _KNOWN.setdefault(name, str.__new__(Kind, name))
    _MODULES[kind] = module
    _OFFLOAD_KINDS[kind] = offload_kind or name
    if cpp_suffix:
        _CPP_SUFFIXES[cpp_suffix] = kind
    return kind


Kind.CUDA = register_kind("cuda", "cuda", ".cu")
Kind.HIP = register_kind("hip", "hip", ".hip")
Kind.OPENMP = register_kind("openmp", "cpu")
Kind.SYCL = register_kind("sycl", "spirv")


def all_kinds() -> tuple[Kind, ...]:
    """Return the device kinds in the order of registration."""
    return tuple(_MODULES)


def cpp_suffixes() -> Mapping[str, Kind]:
    """Return the device kind for each extension of C++ files with kernels."""
    return dict(_CPP_SUFFIXES)


class Registry(Generic[T]):
    """The implementations of all device kinds in one layer, each loaded on first use.

    The module of a kind has the registered name, in the package `kind` of the layer. A name with
    `{layer}` (`plugin.{layer}`) is a full module name. `KIND` in the module is the implementation.
    """

    def __init__(self, layer: str) -> None:
        self._layer = layer
        self._loaded: dict[Kind, T] = {}

    def module(self, kind: Kind) -> str:
        """Return the name of the module that implements a kind."""
        name = _MODULES[kind]
        if "{layer}" in name:
            return name.format(layer=self._layer)
        return f"mlir_offload.{self._layer}.kind.{name}"

    def __getitem__(self, kind: Kind) -> T:
        if kind not in self._loaded:
            self._loaded[kind] = cast("T", import_module(self.module(kind)).KIND)
        return self._loaded[kind]

    def __iter__(self) -> Iterator[T]:
        return (self[kind] for kind in all_kinds())


class DeviceKind:
    """The names, the triple and the architectures of a device kind.

    `word` is the name of its devices in MLIR_OFFLOAD_DEVICE (runtime/device_name.c), `arch_hint` the
    form of an architecture for hints, `example` an architecture that every release supports. Code of
    an `is_cpu` kind runs on the CPU, in the memory of the program.
    """

    name: Kind
    word: str
    arch_form: re.Pattern[str]
    arch_hint: str
    example: str
    title: str
    """Its devices in messages: `the CPU`."""
    is_cpu = False
    uses_cuda = False
    """Whether a CUDA toolkit generates its code."""
    uses_rocm = False
    """Whether its code is linked with ROCm's device libraries."""

    @property
    def triple(self) -> str:
        """Return the target triple of its device code."""
        raise NotImplementedError

    @property
    def offload_kind(self) -> str:
        """Return the offload kind of its images in LLVM's containers and entries."""
        return _OFFLOAD_KINDS[self.name]

    def holds(self, _triple: str, /) -> bool:
        """Return whether an image with its offload kind and this triple is for these devices."""
        return True

    def parse(self, word: str) -> Target | None:
        """Return the target for a value of `--offload-arch=`, None if it is of another kind."""
        if self.arch_form.fullmatch(word) is None:
            return None
        return Target(self.name, self.triple, self.normalize(word))

    def normalize(self, arch: str, /) -> str:
        """Return an architecture in the spelling of clang and the runtime."""
        return arch

    def spelling(self, arch: str, /) -> str:
        """Return the value of `--offload-arch=` for an architecture."""
        return arch

    def container_arch(self, arch: str, /) -> str:
        """Return the name of the architecture in containers."""
        return arch

    def check_archs(self, _archs: Sequence[str], /) -> None:
        """Raise UsageError for architectures that cannot be combined in one program."""

    def runs(self, _code_arch: str, _arch: str, /) -> bool:
        """Return whether a device of `_arch` runs code for `_code_arch`."""
        return True


DEVICE_KINDS = Registry[DeviceKind]("toolchain")


def device_kind(kind: Kind) -> DeviceKind:
    """Return the names, the triple and the architectures of a device kind."""
    return DEVICE_KINDS[kind]


def uses_cuda(kinds: Collection[Kind]) -> bool:
    """Return whether a CUDA toolkit generates the code of one of the kinds."""
    return any(device_kind(kind).uses_cuda for kind in kinds)


def uses_rocm(kinds: Collection[Kind]) -> bool:
    """Return whether code of one of the kinds is linked with ROCm's device libraries."""
    return any(device_kind(kind).uses_rocm for kind in kinds)


def uses_processor(kinds: Collection[Kind]) -> bool:
    """Return whether one of the kinds is the CPU."""
    return any(device_kind(kind).is_cpu for kind in kinds)


def kind_of_triple(triple: str) -> Kind | None:
    """Return the device kind with a triple, None if there is none."""
    return next((kind.name for kind in DEVICE_KINDS if kind.triple == triple), None)


def kind_of_image(offload_kind: str, triple: str) -> Kind | None:
    """Return the device kind of an image by its offload kind and triple; the last registered match."""
    return _claiming(offload_kind, triple, all_kinds())


@cache
def _claiming(offload_kind: str, triple: str, kinds: tuple[Kind, ...]) -> Kind | None:
    # Cached, because a link calls this for each image.
    named = (kind for kind in reversed(kinds) if _OFFLOAD_KINDS[kind] == offload_kind)
    return next((kind for kind in named if device_kind(kind).holds(triple)), None)


class Target(Struct, frozen=True, order=True):
    """The target of a device image: device kind, target triple, architecture."""

    kind: Kind
    triple: str
    arch: str

    def __str__(self) -> str:
        """Return the value of `--offload-arch=`."""
        return device_kind(self.kind).spelling(self.arch)

    @property
    def is_cpu(self) -> bool:
        """Return whether its code runs on the CPU, in the memory of the program."""
        return device_kind(self.kind).is_cpu


def host_triple() -> str:
    """Return the target triple of this host in the spelling of Debian's clang."""
    return f"{os.uname().machine}-pc-linux-gnu"


def is_host_triple(triple: str) -> bool:
    """Return whether code for a triple has the ABI of this host. Any vendor, or no system, may be named."""
    arch, *words = triple.split("-")
    is_elsewhere = any(word.startswith(_OTHER_SYSTEMS) for word in words)
    return arch in {"x86_64", "amd64"} and not is_elsewhere


def is_gpu_triple(triple: str) -> bool:
    """Return whether a triple is for GPUs or other devices."""
    return triple.startswith(_GPU_ARCHITECTURES)


def parse_offload_arch(name: str) -> Target:
    """Return the target for one value of `--offload-arch=` (`native` is resolved before).

    Raises UsageError if it is not an architecture of a registered kind.
    """
    for kind in DEVICE_KINDS:
        target = kind.parse(name)
        if target is not None:
            return target
    msg = f"unknown offload architecture '{name}'"
    meant = _meant(name)
    if meant:
        raise UsageError(msg, hint=f"did you mean '{meant}'?")
    hints = (kind.arch_hint for kind in sorted(DEVICE_KINDS, key=lambda kind: kind.is_cpu))
    raise UsageError(msg, hint=f"use {', '.join(hints)}, or native")


# Alternative names, for hints.
_OTHER_NAMES = {"cpu": HOST, "x86_64": HOST, "x86-64": HOST, "spirv": SPIRV, "opencl": SPIRV}


def _meant(name: str) -> str:
    """Return the architecture that a misspelled name refers to, an empty string if there is none."""
    plain = name.lower().replace("_", "").replace("-", "").replace("compute", "sm")
    number = f"sm_{plain}" if plain.isdecimal() else ""
    for word in (_OTHER_NAMES.get(name.lower(), ""), plain, plain.replace("sm", "sm_", 1), number):
        if word and word != name and any(kind.parse(word) for kind in DEVICE_KINDS):
            return word
    return ""


def sm_number(arch: str) -> int:
    """Return NN of `sm_NN`; feature letters are dropped. Raises ValueError for another name."""
    match = SM.fullmatch(arch)
    if match is None:
        msg = f"not an NVIDIA architecture: {arch!r}"
        raise ValueError(msg)
    return int(match.group(1))


class WorkgroupLimit(Struct, frozen=True):
    """The limit of workgroup memory for variables (`static_bytes`), and for variables and the launch together."""

    arch: str
    static_bytes: int
    all_bytes: int


def find_workgroup_limit(arch: str) -> WorkgroupLimit | None:
    """Return the limit of an architecture, None if it is known only at run time."""
    name = arch.partition(":")[0]
    bare = name.rstrip("af") if name.startswith("sm_") else name
    for row in _rows():
        # Comparing a plain name is cheaper than compiling it as a pattern.
        if bare in row["archs"] or any(
            fnmatchcase(bare, one) for one in row["archs"] if "*" in one
        ):
            return WorkgroupLimit(arch, row["static"], row["all"])
    return None


@cache
def _rows() -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = load_table("mlir_offload.toolchain", "workgroup_memory")[
        "limits"
    ]
    return rows
