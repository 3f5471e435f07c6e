"""How MLIR becomes LLVM IR for a device kind: its forms of device modules, the questions, and who answers them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
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


class Contraction(StrEnum):
    """Where a product and a sum may be fused, named as by clang.

    `on`: where the program allows it, by the flag `contract` of both operations; `off`: nowhere;
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
