"""The CUDA toolkits that `doctor` tests, and the architecture for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mlir_offload.driver.compile.kind_build import Sdk, SdkChoice
from mlir_offload.driver.doctor.plan import short_path
from mlir_offload.toolchain.cuda import CudaToolkit
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.inventory import Inventory
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.ptx import supported_archs
from mlir_offload.toolchain.target import sm_number


def cuda_choices(inventory: Inventory, releases: Sequence[LlvmToolchain]) -> Iterator[SdkChoice]:
    """Yield the complete toolkits, each for the GPU of this host or the newest architecture that all support."""
    complete = [
        cuda
        for cuda in inventory.cuda
        if isinstance(cuda, CudaToolkit) and not cuda.installation.missing
    ]
    versions = [str(cuda.version) for cuda in complete]
    for cuda in complete:
        is_only = versions.count(str(cuda.version)) == 1
        where = "" if is_only else f" in {short_path(cuda.root)}"
        sdk = Sdk(f"CUDA {cuda.version}{where}", cuda.root, "--cuda-path=", cuda)
        yield SdkChoice(
            sdk,
            next(iter(inventory.gpus), "") or _newest_common_arch(cuda, releases),
            cuda == inventory.default_cuda,
        )


def _newest_common_arch(cuda: CudaToolkit, releases: Sequence[LlvmToolchain]) -> str:
    """Return the newest architecture that all releases support, else the newest of the first with any."""
    known = [_plain_archs(release.version.major, cuda) for release in releases]
    common = set.intersection(*known) if known else set()
    archs = common or next((archs for archs in known if archs), {"sm_80"})
    return max(archs, key=sm_number)


def _plain_archs(major: int, cuda: CudaToolkit) -> set[str]:
    try:
        return {arch for arch in supported_archs(major, cuda) if arch[-1].isdigit()}
    except CompatibilityError:
        return set()
