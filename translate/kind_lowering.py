"""The interface of the lowering of a device kind to LLVM IR, and the forms of device modules."""

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

# The target features that flags of ROCm's libraries imply.
_FLAG_FEATURES = {"wave64": "+wavefrontsize64", "no_wave64": "-wavefrontsize64"}
_ABI_UNIT = 100


class Contraction(StrEnum):
    """Whether products and sums may be fused (`-ffp-contract=`).

    `on`: if both operations have the flag `contract`; `off`: never; `fast`: always.
    """

    OFF = "off"
    ON = "on"
    FAST = "fast"


class DeviceForm(Struct, frozen=True):
    """The dialect that a device module is lowered to, and the subgroup size."""

    dialect: str
    subgroup_size: int

    def __str__(self) -> str:
        """Return the name of the form."""
        return self.name

    @property
    def name(self) -> str:
        """Return the name of the form: `nvvm32`, `rocdl64`."""
        return f"{self.dialect}{self.subgroup_size}"

    @property
    def is_amdgpu(self) -> bool:
        """Return whether the form is for AMD GPUs."""
        return self.dialect == ROCDL

    @property
    def has_assertions(self) -> bool:
        """Return whether device code can call a function for a failed assertion."""
        return self.dialect == "nvvm"

    @property
    def numbers_subgroups_freely(self) -> bool:
        """Return whether a device may assign the threads of a multidimensional block to subgroups in any order."""
        return self.dialect == _SPIRV

    @property
    def ends_kernel_by_mark(self) -> bool:
        """Return whether a thread that fails an assertion must return from its kernel."""
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
    """Return the form with a name in FORM_NAMES."""
    return _FORMS[name]


class DeviceLowering(Struct, frozen=True, order=True):
    """The variant of a device lowering. Targets with equal variants share one lowered module.

    `redux`: with the `redux` instruction of sm_80 and later. `chip`: for this AMD GPU. `spirv`: for
    SPIR-V, which is generated from the lowering for NVIDIA GPUs.
    """

    redux: bool = False
    chip: str = ""
    spirv: bool = False

    @property
    def suffix(self) -> str:
        """Return the part of file names that identifies the variant."""
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
"""Operations that mlir-translate translates to calls of the runtime."""


class OtherVendor(Struct, frozen=True):
    """A pattern that identifies LLVM IR for another vendor's GPUs, their name, and the pass for this vendor."""

    mark: re.Pattern[str]
    name: str
    own_pass: str


class TargetAttribute(Struct, frozen=True):
    """A target attribute of a module. Empty fields, and -1, mean the value of the command line."""

    kind: Kind
    chip: str = ""
    features: str = ""
    opt_level: int = -1
    link: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    triple: str = ""
    abi: str = ""

    def is_compatible(self, target: Target) -> bool:
        """Return whether the attribute selects the module for the target."""
        return self.kind is target.kind and self.chip in {
            "",
            target.arch,
            # The processor of a target ID.
            target.arch.partition(":")[0],
        }

    @property
    def code_object(self) -> int:
        """Return the AMD code object version, 0 for the default."""
        return int(self.abi) // _ABI_UNIT if _is_abi(self.abi) else 0

    @property
    def all_features(self) -> tuple[str, ...]:
        """Return the features in LLVM's spelling, including those that a flag implies."""
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
    """Return the targets for which a module with these attributes is compiled.

    An attribute restricts only the targets of its own kind: a module for one GPU also runs on the CPU.
    """
    pinned = {attribute.kind for attribute in attached}
    return tuple(
        target
        for target in targets
        if target.kind not in pinned or any(item.is_compatible(target) for item in attached)
    )


def attribute_for(attached: Sequence[TargetAttribute], target: Target) -> TargetAttribute | None:
    """Return the target attribute for a target, None if there is none. One with a chip takes precedence."""
    fitting = [attribute for attribute in attached if attribute.is_compatible(target)]
    return max(fitting, key=lambda attribute: bool(attribute.chip), default=None)


class KindLowering:
    """The lowering of device modules for a kind.

    The defaults are for a kind whose code is generated from the lowering for an old NVIDIA GPU. The
    modules in `kind/` override them.
    """

    name: Kind
    target_dialect = ""
    """The dialect of its target attributes: `nvvm` for `#nvvm.target`."""
    target_flags: tuple[str, ...] = ()
    """The flags that its target attributes support."""

    other_vendor: OtherVendor | None = None
    """Another vendor whose code may be found in a program for this kind."""

    def called_operations(self) -> frozenset[str]:
        """Return the operations that are translated to calls after the passes."""
        return CALLED_OPERATIONS

    def form(self, _arch: str, /) -> DeviceForm:
        """Return the form of device modules for an architecture."""
        return NVVM_FORM

    def has_bfloat_fma(self, _arch: str, /) -> bool:
        """Return whether `llvm.fma` of bfloat rounds only once on an architecture."""
        return True

    def lowering(self, _needs: Collection[str], _arch: str, /) -> DeviceLowering:
        """Return the lowering variant of a module with these needs for an architecture."""
        return DeviceLowering()


LOWERINGS = Registry[KindLowering]("translate")


def form_of(target: Target) -> DeviceForm:
    """Return the form of device modules for a target."""
    return LOWERINGS[target.kind].form(target.arch)


def forms_of(targets: Iterable[Target]) -> tuple[DeviceForm, ...]:
    """Return the forms for the targets, without duplicates, sorted by name."""
    return tuple(map(parse_form, sorted({form_of(target).name for target in targets})))


def lowering_for(needs: Collection[str], target: Target) -> DeviceLowering:
    """Return the lowering variant of a module with these needs for a target."""
    return LOWERINGS[target.kind].lowering(needs, target.arch)


def fuse_bfloat(targets: Iterable[Target], form: DeviceForm) -> bool:
    """Return whether each target of a form rounds a fused product and sum of bf16 only once."""
    return all(
        LOWERINGS[target.kind].has_bfloat_fma(target.arch)
        for target in targets
        if form_of(target) == form
    )
