"""Rows of tables that were learned from the tools of one build of LLVM, with the names that the tables have.

Each type is one list of rows; its tag says which: the table, then the keys that lead to the list.
"""

from __future__ import annotations

from msgspec import Struct


class _Row(Struct, frozen=True, forbid_unknown_fields=True, tag_field="list"):
    """A row without its release and its evidence."""


class ContainerRow(_Row, frozen=True, tag="offload_abi.container.rows"):
    """The versions of offload binaries that are read, and the order of their strings."""

    reads: tuple[int, ...]
    containers: tuple[str, ...]


class ImageKindsRow(_Row, frozen=True, tag="offload_abi.image_kinds_by_ending"):
    """The image kind of each ending of a file."""

    kinds: dict[str, int]


class OffloadKindsRow(_Row, frozen=True, tag="offload_abi.offload_kinds"):
    """The number of each offload kind."""

    codes: dict[str, int]


class EntriesRow(_Row, frozen=True, tag="offload_abi.entries"):
    """How host entries are named, laid out and placed."""

    fields: tuple[str, ...]
    symbol_prefix: str
    name_symbol: str
    name_section: str
    sections: dict[str, str]
    align: int
    symbols_metadata: bool


class EntryValuesRow(_Row, frozen=True, tag="offload_abi.entry_values"):
    """What the members of an entry say, and which entries are registered."""

    flags: dict[str, int]
    has_type_in_data: bool
    managed: dict[str, str]
    registered: dict[str, tuple[str, ...]]
    coff_suffix: str | None


class HostLayoutRow(_Row, frozen=True, tag="offload_abi.host_layouts.x86_64"):
    """The data layout of the host."""

    layout: str


class HostImagesRow(_Row, frozen=True, tag="offload_abi.linked_images.host"):
    """The forms of images for the CPU that link, with the endings that they are packaged from."""

    forms: dict[str, tuple[str, ...]]


class AmdgpuImagesRow(_Row, frozen=True, tag="offload_abi.linked_images.amdgcn"):
    """The forms of images for AMD GPUs that link, with the endings that they are packaged from."""

    forms: dict[str, tuple[str, ...]]


class NvptxImagesRow(_Row, frozen=True, tag="offload_abi.linked_images.nvptx"):
    """The forms of images for NVIDIA GPUs that link, with the endings that they are packaged from."""

    forms: dict[str, tuple[str, ...]]


class SpirvImagesRow(_Row, frozen=True, tag="offload_abi.linked_images.spirv"):
    """The forms of SPIR-V images that link, with the endings that they are packaged from."""

    forms: dict[str, tuple[str, ...]]


class CudaPathRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.cuda_path"):
    """What hands a CUDA directory to the device link."""

    arguments: tuple[str, ...]


class DeviceOptRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.device_opt_level"):
    """What sets the optimisation level of the device link."""

    argument: str


class DeviceFeatureRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.device_feature"):
    """What gives the device link its PTX ISA."""

    argument: str


class HostBitcodeRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.host_bitcode"):
    """What has lld link images of bitcode for the host."""

    argument: str


class HostLibrariesRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.host_device_libraries"):
    """The libraries that images for the host are linked with."""

    libraries: tuple[str, ...]


class ArchivesRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.archives"):
    """Whether a static library is searched only for what objects before it need."""

    in_order: bool


class RelocatableLinkRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.relocatable_link"):
    """Whether `-r` links device code for good, and the kinds that it fails for."""

    links: bool
    without: tuple[str, ...]


class TargetGroupsRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.target_groups"):
    """Which images of different targets are linked together."""

    wildcard: str | None
    target_ids: bool
    into_specific: bool = False


class HostArchRow(_Row, frozen=True, tag="offload_abi.host_archs"):
    """The arch of images for the CPU."""

    arch: str


class JobsRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.jobs"):
    """What says how many device links run at once."""

    argument: str
    takes_jobserver: bool


class FatbinaryRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.fatbinary_image_option"):
    """The option of fatbinary that the device link uses."""

    option: str


class NvptxLayoutRow(_Row, frozen=True, tag="nvptx_layout.layouts"):
    """The data layout of nvptx64."""

    layout: str


class AmdgpuLayoutRow(_Row, frozen=True, tag="amdgpu.layouts"):
    """The data layout of amdgcn."""

    layout: str


class CodeObjectsRow(_Row, frozen=True, tag="amdgpu.code_objects"):
    """The code object versions, the newest last, and the module flag that chooses one."""

    versions: tuple[int, ...]
    flag: str


class NvptxRow(_Row, frozen=True, tag="nvptx.llvm"):
    """The PTX ISA versions and architectures; `oldest_isa` is of architectures that no table knows."""

    isa: tuple[int, ...]
    arch: tuple[str, ...]
    oldest_isa: dict[str, int] = {}


class MissingPassesRow(_Row, frozen=True, tag="pipelines.missing"):
    """Passes of the nearest release's recipe that mlir-opt does not have."""

    passes: tuple[str, ...]


class _ProgramsRow(_Row, frozen=True):
    """Which micro programs a build does not lower, or lowers wrongly: by name, each with the reason."""

    failed: dict[str, str]


class CpuProgramRow(_ProgramsRow, frozen=True, tag="pipelines.programs.cpu"):
    """The program that needs what every program needs, run on the CPU."""


class NvptxProgramRow(_ProgramsRow, frozen=True, tag="pipelines.programs.nvptx"):
    """The same, compiled for NVIDIA GPUs."""


class AmdgpuProgramRow(_ProgramsRow, frozen=True, tag="pipelines.programs.amdgcn"):
    """The same, compiled for AMD GPUs."""


class SpirvProgramRow(_ProgramsRow, frozen=True, tag="pipelines.programs.spirv"):
    """The same, compiled to SPIR-V."""


class DivisionProgramRow(_ProgramsRow, frozen=True, tag="pipelines.programs.division"):
    """Division that rounds up or down, run on the CPU."""


class SubgroupReduceProgramRow(_ProgramsRow, frozen=True, tag="pipelines.programs.subgroup_reduce"):
    """A sum over a subgroup, run on the CPU."""


class AsyncProgramRow(_ProgramsRow, frozen=True, tag="pipelines.programs.async"):
    """A launch in a task of the async dialect, run on the CPU."""


class NvgpuProgramRow(_ProgramsRow, frozen=True, tag="pipelines.programs.nvgpu"):
    """The nvgpu dialect, compiled for NVIDIA GPUs."""


class Bf16ProgramRow(_ProgramsRow, frozen=True, tag="pipelines.programs.bf16"):
    """Numbers of type bf16, compiled to SPIR-V."""


LearnedRow = (
    ContainerRow
    | ImageKindsRow
    | OffloadKindsRow
    | EntriesRow
    | EntryValuesRow
    | HostLayoutRow
    | HostImagesRow
    | AmdgpuImagesRow
    | NvptxImagesRow
    | SpirvImagesRow
    | HostLibrariesRow
    | ArchivesRow
    | RelocatableLinkRow
    | TargetGroupsRow
    | HostArchRow
    | CudaPathRow
    | DeviceOptRow
    | DeviceFeatureRow
    | HostBitcodeRow
    | JobsRow
    | FatbinaryRow
    | NvptxLayoutRow
    | AmdgpuLayoutRow
    | CodeObjectsRow
    | NvptxRow
    | MissingPassesRow
    | CpuProgramRow
    | NvptxProgramRow
    | AmdgpuProgramRow
    | SpirvProgramRow
    | DivisionProgramRow
    | SubgroupReduceProgramRow
    | AsyncProgramRow
    | NvgpuProgramRow
    | Bf16ProgramRow
)
"""Any of them."""
PartProgramRow = (
    DivisionProgramRow
    | SubgroupReduceProgramRow
    | AsyncProgramRow
    | NvgpuProgramRow
    | Bf16ProgramRow
)
"""Rows of the micro programs for parts of a recipe that few programs need."""
ProgramsRow = CpuProgramRow | NvptxProgramRow | AmdgpuProgramRow | SpirvProgramRow | PartProgramRow
"""Rows of micro programs."""


def list_of(row: LearnedRow) -> str:
    """Return the list that a row belongs to: `offload_abi.entries`."""
    return str(type(row).__struct_config__.tag)
