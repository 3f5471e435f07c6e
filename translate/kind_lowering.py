"""How MLIR becomes LLVM IR for a device kind: the questions, and who answers them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from msgspec import Struct

from mlir_offload.toolchain.target import (
    AMDGPU_TRIPLE,
    NVPTX_TRIPLE,
    SPIRV_TRIPLE,
    Kind,
    Registry,
    Target,
)
from mlir_offload.translate.device_form import NVVM_FORM, DeviceForm, parse_form


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
