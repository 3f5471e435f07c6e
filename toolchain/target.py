"""Device kinds, architectures and targets, as LLVM spells them, and the workgroup memory of an architecture."""

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
HOST = "host"
"""The word of `--offload-arch=` for the CPU."""
SPIRV = "spirv64"
"""The word of `--offload-arch=` for what takes SPIR-V, as Intel GPUs do."""
SM = pattern(r"sm_(\d{2,3})([af]?)")
"""The form of an NVIDIA architecture."""
TARGET_ID = pattern(r"(gfx(?:\d+(?:-\d+)*-generic|\d{1,2}[0-9a-f]{2}))((?::[a-z0-9]+[+-])*)")
"""The form of an AMD GPU with features: `gfx90a:sramecc+:xnack-`."""


class Kind(str):
    """The name of a device kind: that of the offload kind of its images (`llvm/Object/OffloadBinary.h`).

    Only registered names are kinds, each of them one object. Raises ValueError for another name.
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
_CPP_SUFFIXES: dict[str, Kind] = {}


def register_kind(name: str, module: str, cpp_suffix: str = "") -> Kind:
    """Add a device kind, which one module of this name in each layer knows; return it.

    Files of C++ with kernels for it end in `cpp_suffix`, if there are any.
    """
    kind = _KNOWN.setdefault(name, str.__new__(Kind, name))
    _MODULES[kind] = module
    if cpp_suffix:
        _CPP_SUFFIXES[cpp_suffix] = kind
    return kind


Kind.CUDA = register_kind("cuda", "cuda", ".cu")
Kind.HIP = register_kind("hip", "hip", ".hip")
Kind.OPENMP = register_kind("openmp", "cpu")
Kind.SYCL = register_kind("sycl", "spirv")


def all_kinds() -> tuple[Kind, ...]:
    """Return the device kinds in the order in which they are listed."""
    return tuple(_MODULES)


def cpp_suffixes() -> Mapping[str, Kind]:
    """Return the device kinds by the suffixes of C++ files with kernels for them."""
    return dict(_CPP_SUFFIXES)


class Registry(Generic[T]):
    """The modules of one layer that know a device kind each, loaded when they are first asked.

    The module of a kind is that of its registered name in the package of the layer, unless the name
    is a full one with a place for the layer (`plugin.{layer}`). Its `KIND` is what it knows.
    """

    def __init__(self, layer: str) -> None:
        self._layer = layer
        self._loaded: dict[Kind, T] = {}

    def module(self, kind: Kind) -> str:
        """Return the name of the module that knows a kind."""
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
    """What LLVM and the command line say of a device kind: its names, its triple, its architectures.

    `word` is what MLIR_OFFLOAD_DEVICE calls its devices (runtime/device_name.c), `arch_hint` how an
    architecture is named, `example` an architecture that every release knows; code of an `is_cpu` kind
    runs on the CPU, in the memory of the program.
    """

    name: Kind
    word: str
    arch_form: re.Pattern[str]
    arch_hint: str
    example: str
    title: str
    """Who runs its code, as one reads it: `the CPU`."""
    is_cpu = False
    uses_cuda = False
    """Whether its code is made with a CUDA toolkit."""
    uses_rocm = False
    """Whether its code is made with ROCm's device libraries."""

    @property
    def triple(self) -> str:
        """Return the target triple of its device code."""
        raise NotImplementedError

    @property
    def offload_kind(self) -> str:
        """Return the offload kind that LLVM's containers and entries name its images by."""
        return self.name

    def holds(self, offload_kind: str, _triple: str, /) -> bool:
        """Return whether an image of an offload kind and a triple is one for these devices."""
        return offload_kind == self.offload_kind

    def parse(self, word: str) -> Target | None:
        """Return the target that a word of `--offload-arch=` names, if it is one of this kind."""
        if self.arch_form.fullmatch(word) is None:
            return None
        return Target(self.name, self.triple, self.normalize(word))

    def normalize(self, arch: str, /) -> str:
        """Return an architecture as clang and the runtime spell it."""
        return arch

    def spelling(self, arch: str, /) -> str:
        """Return how `--offload-arch=` spells the target of an architecture."""
        return arch

    def container_arch(self, arch: str, /) -> str:
        """Return how a container names the architecture of an image."""
        return arch

    def check_archs(self, _archs: Sequence[str], /) -> None:
        """Raise UsageError for architectures that no program holds together."""

    def runs(self, _code_arch: str, _arch: str, /) -> bool:
        """Return whether a device of an architecture (the second) runs code of another one."""
        return True


DEVICE_KINDS = Registry[DeviceKind]("toolchain")


def device_kind(kind: Kind) -> DeviceKind:
    """Return what LLVM and the command line say of a device kind."""
    return DEVICE_KINDS[kind]


def uses_cuda(kinds: Collection[Kind]) -> bool:
    """Return whether code for one of the kinds is made with a CUDA toolkit."""
    return any(device_kind(kind).uses_cuda for kind in kinds)


def uses_rocm(kinds: Collection[Kind]) -> bool:
    """Return whether code for one of the kinds is made with ROCm's device libraries."""
    return any(device_kind(kind).uses_rocm for kind in kinds)


def uses_processor(kinds: Collection[Kind]) -> bool:
    """Return whether code for one of the kinds is for the processor of this machine."""
    return any(device_kind(kind).is_cpu for kind in kinds)


def kind_of_triple(triple: str) -> Kind | None:
    """Return the device kind whose code is for a triple; None for that of another host."""
    return next((kind.name for kind in DEVICE_KINDS if kind.triple == triple), None)


def kind_of_image(offload_kind: str, triple: str) -> Kind | None:
    """Return the device kind of an image by what its container says; the last one that claims it."""
    return _claiming(offload_kind, triple, all_kinds())


@cache
def _claiming(offload_kind: str, triple: str, kinds: tuple[Kind, ...]) -> Kind | None:
    # A link of many objects asks for each image.
    claiming = [kind for kind in kinds if DEVICE_KINDS[kind].holds(offload_kind, triple)]
    return claiming[-1] if claiming else None


class Target(Struct, frozen=True, order=True):
    """What a device image is made for: device kind, target triple, architecture."""

    kind: Kind
    triple: str
    arch: str

    def __str__(self) -> str:
        """Return the spelling of `--offload-arch=`."""
        return device_kind(self.kind).spelling(self.arch)

    @property
    def is_cpu(self) -> bool:
        """Return whether its code runs on the CPU, in the memory of the program."""
        return device_kind(self.kind).is_cpu


def host_triple() -> str:
    """Return the target triple of this machine as Debian's clang spells it."""
    return f"{os.uname().machine}-pc-linux-gnu"


def parse_offload_arch(name: str) -> Target:
    """Return the target that one word of `--offload-arch=` names (`native` is resolved earlier).

    Raises UsageError for a name that is not an architecture of a known kind.
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


# Other names of what --offload-arch= has one for.
_OTHER_NAMES = {"cpu": HOST, "x86_64": HOST, "x86-64": HOST, "spirv": SPIRV, "opencl": SPIRV}


def _meant(name: str) -> str:
    """Return the architecture whose name is written in another way; empty if there is none."""
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
    """The bytes that variables may take, and those that variables and the launch may take together."""

    arch: str
    static_bytes: int
    all_bytes: int


def find_workgroup_limit(arch: str) -> WorkgroupLimit | None:
    """Return the limit of an architecture, None where only the machine that runs the program knows it."""
    name = arch.partition(":")[0]
    bare = name.rstrip("af") if name.startswith("sm_") else name
    for row in _rows():
        # A pattern that is a name costs more to compile than to compare.
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
