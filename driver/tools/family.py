"""Families of probes that learn an LLVM build: what each learns, and which can run concurrently."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TypeAlias

from mlir_offload.driver.tools.micro_program import ProgramsRowType, try_program
from mlir_offload.offload.calibrate.device import learn_amdgpu, learn_nvptx
from mlir_offload.offload.calibrate.entry import learn_entries
from mlir_offload.offload.calibrate.form import learn_forms
from mlir_offload.offload.calibrate.link import learn_links
from mlir_offload.offload.calibrate.packager import learn_packager
from mlir_offload.offload.calibrate.probe import Learned, ProbeBench
from mlir_offload.offload.calibrate.wrapper import learn_wrapper
from mlir_offload.toolchain.learned_row import (
    AmdgpuProgramRow,
    AsyncProgramRow,
    Bf16ProgramRow,
    CpuProgramRow,
    LearnedRow,
    NvgpuProgramRow,
    NvptxProgramRow,
    SpirvProgramRow,
    SubgroupReduceProgramRow,
    list_of,
)
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.target import (
    Kind,
    device_kind,
    uses_cuda,
    uses_processor,
    uses_rocm,
)
from mlir_offload.toolchain.tool import Role
from mlir_offload.translate.calibrate import learn_recipe

Learners: TypeAlias = Callable[[ProbeBench], Iterator[Callable[[], Learned]]]


class Family(StrEnum):
    """A set of probes that run together."""

    ABI = "offloading ABI"
    NVPTX = "NVIDIA GPUs"
    AMDGPU = "AMD GPUs"
    RECIPE = "passes"
    LINKS = "groups and libraries of a link"
    FORMS = "images that link"
    CPU_PROGRAM = "micro program on the CPU"
    NVPTX_PROGRAM = "micro program for NVIDIA GPUs"
    AMDGPU_PROGRAM = "micro program for AMD GPUs"
    SPIRV_PROGRAM = "micro program for SPIR-V"
    SUBGROUP_REDUCE_PROGRAM = "micro program with a sum over a subgroup"
    ASYNC_PROGRAM = "micro program of the async dialect"
    NVGPU_PROGRAM = "micro program of the nvgpu dialect"
    BF16_PROGRAM = "micro program with bf16"


PROGRAM_ROWS: Mapping[Family, ProgramsRowType] = {
    Family.CPU_PROGRAM: CpuProgramRow,
    Family.NVPTX_PROGRAM: NvptxProgramRow,
    Family.AMDGPU_PROGRAM: AmdgpuProgramRow,
    Family.SPIRV_PROGRAM: SpirvProgramRow,
    Family.SUBGROUP_REDUCE_PROGRAM: SubgroupReduceProgramRow,
    Family.ASYNC_PROGRAM: AsyncProgramRow,
    Family.NVGPU_PROGRAM: NvgpuProgramRow,
    Family.BF16_PROGRAM: Bf16ProgramRow,
}
"""The row type of each micro program."""
GPU_PROGRAMS = (Family.NVPTX_PROGRAM, Family.AMDGPU_PROGRAM, Family.SPIRV_PROGRAM)
"""Families of one program, compiled for several GPUs at once."""
PART_PROGRAMS = tuple(list(PROGRAM_ROWS)[1 + len(GPU_PROGRAMS) :])
"""Families of programs for rarely used parts of a pass pipeline."""
# Later waves use rows of earlier ones: links need the containers of images, programs need both.
_WAVES: tuple[tuple[tuple[Family, ...], ...], ...] = (
    ((Family.ABI,), (Family.NVPTX,), (Family.AMDGPU,), (Family.RECIPE,)),
    ((Family.LINKS,), (Family.FORMS,)),
    ((Family.CPU_PROGRAM,), GPU_PROGRAMS, PART_PROGRAMS),
)


def waves(families: Collection[Family]) -> Iterator[list[tuple[Family, ...]]]:
    """Yield waves of groups. Groups of a wave can run concurrently; families of a group run in order."""
    for wave in _WAVES:
        groups = [tuple(one for one in group if one in families) for group in wave]
        yield [group for group in groups if group]


def kind_programs(kinds: Collection[Kind]) -> dict[Family, bool]:
    """Return the families of the program that every source needs, and whether a kind in use needs each."""
    return {
        Family.CPU_PROGRAM: uses_processor(kinds),
        Family.NVPTX_PROGRAM: uses_cuda(kinds),
        Family.AMDGPU_PROGRAM: uses_rocm(kinds),
        Family.SPIRV_PROGRAM: any(device_kind(kind).triple.startswith("spirv") for kind in kinds),
    }


def program_families(llvm: LlvmToolchain, kinds: Collection[Kind]) -> list[Family]:
    """Return the micro programs that test whether a build lowers for these kinds; none if it cannot compile.

    The one for the CPU is always included, because only its result can be checked.
    """
    if not (llvm.can_lower and llvm.can(Role.LINK)):
        return []
    used = kind_programs(kinds)
    return [family for family in used if used[family] or family is Family.CPU_PROGRAM]


def _abi(bench: ProbeBench) -> Iterator[Callable[[], Learned]]:
    written = Learned()

    def keep(learn: Callable[[ProbeBench], Learned]) -> Learned:
        found = learn(bench)
        written.rows.extend(found.rows)
        return found

    yield lambda: keep(learn_packager)
    yield lambda: keep(learn_entries)
    yield lambda: learn_wrapper(bench, written)


def _alone(learn: Callable[[ProbeBench], Learned]) -> Learners:
    def learners(bench: ProbeBench) -> Iterator[Callable[[], Learned]]:
        yield lambda: learn(bench)

    return learners


PROBES: Mapping[Family, Learners] = {
    Family.ABI: _abi,
    Family.NVPTX: _alone(learn_nvptx),
    Family.AMDGPU: _alone(learn_amdgpu),
    Family.RECIPE: _alone(learn_recipe),
    Family.LINKS: _alone(learn_links),
    Family.FORMS: learn_forms,
    **{family: try_program(row) for family, row in PROGRAM_ROWS.items()},
}
"""The probes of each family: a generator of parts, each of which may fail separately."""
_LISTS: Mapping[Family, str] = {
    Family.ABI: "offload_abi.offload_kinds",
    Family.NVPTX: "nvptx",
    Family.AMDGPU: "amdgpu.",
    Family.RECIPE: "pipelines.missing",
    Family.LINKS: "offload_abi.linker_wrapper.archives",
    Family.FORMS: "offload_abi.linked_images.",
}


def has_family(rows: Iterable[LearnedRow], family: Family) -> bool:
    """Return whether a row belongs to a family."""
    own = PROGRAM_ROWS.get(family)
    if own is not None:
        return any(isinstance(row, own) for row in rows)
    return any(list_of(row).startswith(_LISTS[family]) for row in rows)
