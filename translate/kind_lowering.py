"""How MLIR becomes LLVM IR for a device kind: its forms of device modules, the questions, and who answers them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum

from msgspec import Struct

from mlir_offload.toolchain.target import (
    AMDGPU_TRIPLE,
    NVPTX_TRIPLE,
    SPIRV_TRIPLE,
    Kind,
    Registry,
    Target,
)

# What the flags of ROCm's libraries say of the code's own features.
_FLAG_FEATURES = {"wave64": "+wavefrontsize64", "no_wave64": "-wavefrontsize64"}
_ABI_UNIT = 100


class Contraction(StrEnum):
    """Where a product and a sum may be fused, named as by clang.

    `on`: if the program allows it, by the flag `contract` of both operations; `off`: nowhere;
    `fast`: everywhere.
    """

    OFF = "off"
    ON = "on"
    FAST = "fast"


class DeviceForm(Struct, frozen=True):
    """The dialect that a device module is lowered to, and the threads of a subgroup."""

    dialect: str
    subgroup_size: int

    def __str__(self) -> str:
        """Return the name."""
        return self.name

    @property
    def name(self) -> str:
        """Return the form as a word: `nvvm32`, `rocdl64`."""
        return f"{self.dialect}{self.subgroup_size}"

    @property
    def is_amdgpu(self) -> bool:
        """Return whether it is for AMD GPUs."""
        return self.dialect == ROCDL

    @property
    def has_assertions(self) -> bool:
        """Return whether device code has a function that a failed assertion calls."""
        return self.dialect == "nvvm"

    @property
    def numbers_subgroups_freely(self) -> bool:
        """Return whether a device may form the subgroups of a block of several dimensions in any order."""
        return self.dialect == _SPIRV

    @property
    def ends_kernel_by_mark(self) -> bool:
        """Return whether a thread that fails an assertion has to leave its kernel by itself."""
        return self.dialect == _SPIRV


ROCDL = "rocdl"
_SPIRV = "spirv"
NVVM_FORM = DeviceForm("nvvm", 32)
SPIRV_FORM = DeviceForm(_SPIRV, 32)
_FORMS = {
    form.name: form
    for form in (NVVM_FORM, DeviceForm(ROCDL, 32), DeviceForm(ROCDL, 64), SPIRV_FORM)
}
FORM_NAMES = tuple(_FORMS)


def parse_form(name: str) -> DeviceForm:
    """Return the form of one of FORM_NAMES."""
    return _FORMS[name]


class DeviceLowering(Struct, frozen=True, order=True):
    """How a device module is lowered; targets for which it is equal share one lowered text.

    `redux`: with the instruction that sm_80 and later reduce by. `chip`: for that AMD GPU. `spirv`: for
    SPIR-V, which is made of what is lowered for NVIDIA GPUs.
    """

    redux: bool = False
    chip: str = ""
    spirv: bool = False

    @property
    def suffix(self) -> str:
        """Return what tells its files from those of another one."""
        if self.spirv:
            return ".spirv"
        return f".{self.chip}" if self.chip else ".redux" if self.redux else ""

    @property
    def triple(self) -> str:
        """Return the triple of the lowered module."""
        if self.spirv:
            return SPIRV_TRIPLE
        return AMDGPU_TRIPLE if self.chip else NVPTX_TRIPLE


CALLED_OPERATIONS = frozenset({"gpu.binary", "gpu.launch_func"})
"""What mlir-translate itself turns into calls of the runtime."""


class OtherVendor(Struct, frozen=True):
    """What only LLVM IR for GPUs of another vendor has, their name, and the pass for the own ones."""

    mark: re.Pattern[str]
    name: str
    own_pass: str


class TargetAttribute(Struct, frozen=True):
    """A target attached to a module; empty, and -1, is what the command line says."""

    kind: Kind
    chip: str = ""
    features: str = ""
    opt_level: int = -1
    link: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    triple: str = ""
    abi: str = ""

    def is_compatible(self, target: Target) -> bool:
        """Return whether the module is to be compiled for the target because of this."""
        return self.kind is target.kind and self.chip in {
            "",
            target.arch,
            # Without the features of a target ID.
            target.arch.partition(":")[0],
        }

    @property
    def code_object(self) -> int:
        """Return the version of an AMD code object, 0 for the usual one."""
        return int(self.abi) // _ABI_UNIT if _is_abi(self.abi) else 0

    @property
    def all_features(self) -> tuple[str, ...]:
        """Return the features as LLVM spells them, those that a flag implies as well."""
        implied = (_FLAG_FEATURES[flag] for flag in self.flags if flag in _FLAG_FEATURES)
        return (*filter(None, self.features.split(",")), *implied)

    @property
    def feature_arguments(self) -> tuple[str, ...]:
        """Return the features as arguments of clang."""
        return tuple(
            word
            for name in filter(None, self.features.split(","))
            for word in ("-Xclang", "-target-feature", "-Xclang", name)
        )


def _is_abi(text: str) -> bool:
    version, rest = text[:1], text[1:]
    return version.isdigit() and version != "0" and rest == "00"


def compatible_targets(
    attached: Sequence[TargetAttribute], targets: Iterable[Target]
) -> tuple[Target, ...]:
    """Return those of the targets that a module with these attributes is compiled for.

    What is attached decides for its own kind only: a module for one GPU runs on the CPU as well.
    """
    pinned = {attribute.kind for attribute in attached}
    return tuple(
        target
        for target in targets
        if target.kind not in pinned or any(item.is_compatible(target) for item in attached)
    )


def attribute_for(attached: Sequence[TargetAttribute], target: Target) -> TargetAttribute | None:
    """Return what is attached for a target: what names its chip before what names none."""
    fitting = [attribute for attribute in attached if attribute.is_compatible(target)]
    return max(fitting, key=lambda attribute: bool(attribute.chip), default=None)


class KindLowering:
    """How device modules are lowered for a kind.

    These are the answers of a kind whose code is made of what is lowered for an old NVIDIA GPU; `kind/`
    has those of each.
    """

    name: Kind
    target_dialect = ""
    """The dialect of the target attributes that name its devices: `nvvm` for `#nvvm.target`."""
    target_flags: tuple[str, ...] = ()
    """The flags that such an attribute may have."""

    other_vendor: OtherVendor | None = None
    """Whose code a program may bring along under the name of this kind."""

    def called_operations(self) -> frozenset[str]:
        """Return the operations that become calls after the passes."""
        return CALLED_OPERATIONS

    def form(self, _arch: str, /) -> DeviceForm:
        """Return the form of a device module before its passes."""
        return NVVM_FORM

    def has_bfloat_fma(self, _arch: str, /) -> bool:
        """Return whether `llvm.fma` of bfloat is rounded once for an architecture."""
        return True

    def lowering(self, _needs: Collection[str], _arch: str, /) -> DeviceLowering:
        """Return how a module with these needs is lowered for an architecture."""
        return DeviceLowering()


LOWERINGS = Registry[KindLowering]("translate")


def form_of(target: Target) -> DeviceForm:
    """Return the form for a target."""
    return LOWERINGS[target.kind].form(target.arch)


def forms_of(targets: Iterable[Target]) -> tuple[DeviceForm, ...]:
    """Return the forms for some targets, each once, in the order of their names."""
    return tuple(map(parse_form, sorted({form_of(target).name for target in targets})))


def lowering_for(needs: Collection[str], target: Target) -> DeviceLowering:
    """Return how a module with these needs is lowered for a target."""
    return LOWERINGS[target.kind].lowering(needs, target.arch)


def fuse_bfloat(targets: Iterable[Target], form: DeviceForm) -> bool:
    """Return whether each target of a form rounds a product and sum of bf16 once."""
    return all(
        LOWERINGS[target.kind].has_bfloat_fma(target.arch)
        for target in targets
        if form_of(target) == form
    )
