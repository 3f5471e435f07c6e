"""The tools of a build, found where it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.driver.option.command_line import CompileOptions
from mlir_offload.driver.tools.choose import choose_rocm_for, choose_toolkit_for, places_of
from mlir_offload.driver.tools.releases import BUILD_ROLES, Releases, choose_releases
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.search import SearchPlaces
from mlir_offload.toolchain.target import Target, parse_offload_arch, uses_cuda, uses_rocm

if TYPE_CHECKING:
    from mlir_offload.driver.system.tool_watch import ToolWatch
    from mlir_offload.driver.tools.toolchain_id import ToolchainIdentity
    from mlir_offload.toolchain.cuda import CudaToolkit
    from mlir_offload.toolchain.rocm import RocmInstallation


class FoundTools(Struct, frozen=True):
    """Where tools were looked for, those found, and the targets that they are for."""

    places: SearchPlaces
    releases: Releases
    targets: tuple[Target, ...]
    cuda: CudaToolkit | None = None
    rocm: RocmInstallation | None = None


def find_step_tools(options: CompileOptions, runner: Runner) -> FoundTools:
    """Find the tools for the targets of a step. Raises ToolchainError where one is missing."""
    places = places_of(options)
    releases = choose_releases(options, places, runner, roles=BUILD_ROLES)
    targets = tuple(parse_offload_arch(name) for name in options.offload_archs)
    kinds = {target.kind for target in targets}
    cuda = choose_toolkit_for(options, places, runner, needed=uses_cuda(kinds))
    rocm = choose_rocm_for(places, needed=uses_rocm(kinds))
    return FoundTools(places, releases, targets, cuda, rocm)


def check_step_tools(identity: ToolchainIdentity, wanted: str, watch: ToolWatch) -> None:
    """Watch the files of the tools. Raises CompatibilityError where the build has other tools."""
    watch.add(identity.files)
    found = str(identity)
    if wanted and found != wanted:
        msg = f"the tools here are not those of the build: {found}, not {wanted}"
        hint = "install the same packages; 'mlir-offload --toolchain-id -v' lists what is there"
        raise CompatibilityError(msg, hint=hint)
