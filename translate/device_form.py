"""The forms of a device module before its passes: what has to be rewritten depends on the GPU."""

from __future__ import annotations

from msgspec import Struct


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
