"""Check an image for AMD GPUs before it is linked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mlir_offload.offload.device.code import read_device_code
from mlir_offload.toolchain.errors import CompatibilityError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlir_offload.toolchain.byte_view import ByteView

_OF_ROCM = re.compile(r"__(?:ocml|ockl|oclc)_")
_PROCESSOR_NUMBER = "__oclc_ISA_version"


def check_resolved(
    view: ByteView, *, arch: str, libraries: Sequence[str], location: str = ""
) -> None:
    """Raise CompatibilityError if an image has an undefined function of the device libraries."""
    code = read_device_code(view)
    missing = [name for name in code.undefined if _OF_ROCM.match(name)] if code else []
    if not missing:
        return
    where = libraries[0].rpartition("/")[0] if libraries else "the installation"
    hint = "install a newer ROCm, or name its folder with --rocm-path="
    if _PROCESSOR_NUMBER in missing:
        msg = (
            f"a kernel calls functions that differ between GPUs, and the ROCm device libraries in "
            f"{where} are older than {arch}"
        )
    else:
        msg = f"the ROCm device libraries in {where} have no {', '.join(missing[:3])}"
    raise CompatibilityError(msg, hint=hint, location=location)
