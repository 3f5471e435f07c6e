"""The types of the version skew checks.

A `Consumer` is the release that reads a file. A `Skew` is one construct that it rejects or misreads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from mlir_offload.toolchain.cuda import CudaToolkit
    from mlir_offload.toolchain.rocm import RocmInstallation


ORDERED_ACCESS = "a fence, or an atomic access that orders others"
"""The construct that some back ends compile only from a certain release on."""

HIDDEN_ARGUMENTS = "llvm.amdgcn.implicitarg.ptr"
"""The intrinsic that returns the address of the hidden kernel arguments on AMD GPUs."""


class Consumer(Struct, frozen=True):
    """The reader of a file: a release of LLVM and, if they matter, the vendors' tools.

    `driver` is the version of the NVIDIA driver on the host that runs the program (`570.86.15`).
    """

    llvm: int
    cuda: CudaToolkit | None = None
    driver: str | None = None
    rocm: RocmInstallation | None = None


class Skew(Struct, frozen=True):
    """One construct that a consumer rejects or misreads, with the ID of its rule.

    `function` is the function that contains it, if that is known. `values` are the values of the
    placeholders in the message of the rule.
    """

    rule: str
    values: Mapping[str, object] = field(default_factory=dict)
    function: str = ""
    line: int = 0
