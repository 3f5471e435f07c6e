"""Facts about skew: what a file holds that the release which is to read it takes for something else.

A `Consumer` is what will read the file, a `Skew` is one thing that it would refuse or, worse, misread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from mlir_offload.toolchain.cuda import CudaToolkit
    from mlir_offload.toolchain.rocm import RocmInstallation


ORDERED_ACCESS = "a fence, or an atomic access that orders others"
"""The construct that a back end compiles from a certain release on."""

HIDDEN_ARGUMENTS = "llvm.amdgcn.implicitarg.ptr"
"""The intrinsic that returns where the arguments are that AMD's runtime adds to those of a kernel."""


class Consumer(Struct, frozen=True):
    """What will read a file: a release of LLVM, and the vendors' parts where they matter.

    `driver` is the version of NVIDIA's driver on the machine that runs the program (`570.86.15`).
    """

    llvm: int
    cuda: CudaToolkit | None = None
    driver: str | None = None
    rocm: RocmInstallation | None = None


class Skew(Struct, frozen=True):
    """One thing that a consumer refuses or misreads, by the rule that it breaks.

    `function` is the function that it was found in, where that is known; `values` fill the message of
    the rule.
    """

    rule: str
    values: Mapping[str, object] = field(default_factory=dict)
    function: str = ""
    line: int = 0
