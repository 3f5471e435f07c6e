"""Rows of tables, learned from the tools of one LLVM build, with the field names of the tables.

Each type belongs to one list of rows. Its tag is the name of the table, followed by the keys of the list.
"""

from __future__ import annotations

from msgspec import Struct


class _Row(Struct, frozen=True, forbid_unknown_fields=True, tag_field="list"):
    """A row without its release and source."""


class ContainerRow(_Row, frozen=True, tag="offload_abi.container.rows"):
    """The versions of offload binaries that are read, and LLVM's containers that order their strings."""

    reads: tuple[int, ...]
    containers: tuple[str, ...]


class ImageKindsRow(_Row, frozen=True, tag="offload_abi.image_kinds_by_ending"):
    """The `ImageKind` value of each file extension."""

    kinds: dict[str, int]


class OffloadKindsRow(_Row, frozen=True, tag="offload_abi.offload_kinds"):
    """The `OffloadKind` value of each offload kind."""

    codes: dict[str, int]


class EntriesRow(_Row, frozen=True, tag="offload_abi.entries"):
    """The names, fields and sections of offload entries."""

    fields: tuple[str, ...]
    symbol_prefix: str
    name_symbol: str
    name_section: str
    sections: dict[str, str]
    align: int
    symbols_metadata: bool


class EntryValuesRow(_Row, frozen=True, tag="offload_abi.entry_values"):
    """The values of the fields of offload entries, and the entries that are registered."""

    flags: dict[str, int]
    has_type_in_data: bool
    managed: dict[str, str]
    registered: dict[str, tuple[str, ...]]
    coff_suffix: str | None


class HostLayoutRow(_Row, frozen=True, tag="offload_abi.host_layouts.x86_64"):
    """The data layout of the host."""

    layout: str


class HostImagesRow(_Row, frozen=True, tag="offload_abi.linked_images.host"):
    """The formats of CPU images that the linker wrapper links, with the extensions of their files."""

    forms: dict[str, tuple[str, ...]]


class AmdgpuImagesRow(_Row, frozen=True, tag="offload_abi.linked_images.amdgcn"):
    """The formats of AMD GPU images that the linker wrapper links, with the extensions of their files."""

    forms: dict[str, tuple[str, ...]]


class NvptxImagesRow(_Row, frozen=True, tag="offload_abi.linked_images.nvptx"):
    """The formats of NVIDIA GPU images that the linker wrapper links, with the extensions of their files."""

    forms: dict[str, tuple[str, ...]]


class SpirvImagesRow(_Row, frozen=True, tag="offload_abi.linked_images.spirv"):
    """The formats of SPIR-V images that the linker wrapper links, with the extensions of their files."""

    forms: dict[str, tuple[str, ...]]


class CudaPathRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.cuda_path"):
    """The arguments that pass a CUDA directory to the device link."""

    arguments: tuple[str, ...]


class DeviceOptRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.device_opt_level"):
    """The argument that sets the optimization level of the device link."""

    argument: str


class DeviceFeatureRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.device_feature"):
    """The argument that sets the PTX ISA of the device link."""

    argument: str


class HostBitcodeRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.host_bitcode"):
    """The argument that makes lld link bitcode images for the CPU."""

    argument: str


class HostLibrariesRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.host_device_libraries"):
    """The libraries that CPU images are linked with."""

    libraries: tuple[str, ...]


class ArchivesRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.archives"):
    """Whether a static library resolves only symbols of the objects before it."""

    in_order: bool


class RelocatableLinkRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.relocatable_link"):
    """Whether `-r` links device code to a final image, and the kinds for which it fails."""

    links: bool
    without: tuple[str, ...]


class TargetGroupsRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.target_groups"):
    """Which images of different targets are linked together."""

    wildcard: str | None
    target_ids: bool
    into_specific: bool = False


class HostArchRow(_Row, frozen=True, tag="offload_abi.host_archs"):
    """The architecture name of CPU images."""

    arch: str


class JobsRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.jobs"):
    """The argument that sets the number of parallel device links."""

    argument: str
    takes_jobserver: bool


class FatbinaryRow(_Row, frozen=True, tag="offload_abi.linker_wrapper.fatbinary_image_option"):
    """The option of fatbinary that the linker wrapper uses for an image."""

    option: str


class NvptxLayoutRow(_Row, frozen=True, tag="nvptx_layout.layouts"):
    """The data layout of nvptx64."""

    layout: str


class AmdgpuLayoutRow(_Row, frozen=True, tag="amdgpu.layouts"):
    """The data layout of amdgcn."""

    layout: str


class CodeObjectsRow(_Row, frozen=True, tag="amdgpu.code_objects"):
    """The code object versions, oldest first, and the module flag that selects one."""

    versions: tuple[int, ...]
    flag: str


class NvptxRow(_Row, frozen=True, tag="nvptx.llvm"):
    """The PTX ISA versions and architectures. `oldest_isa` is for architectures missing in the tables."""

    isa: tuple[int, ...]
    arch: tuple[str, ...]
    oldest_isa: dict[str, int] = {}


class MissingPassesRow(_Row, frozen=True, tag="pipelines.missing"):
    """Passes of the nearest release's pipeline that mlir-opt does not have."""

    passes: tuple[str, ...]


class _ProgramsRow(_Row, frozen=True):
    """The test programs that a build does not lower, or lowers wrongly: the reason by name."""

    failed: dict[str, str]


class CpuProgramRow(_ProgramsRow, frozen=True, tag="pipelines.programs.cpu"):
    """A program with the operations that every program uses, run on the CPU."""


class NvptxProgramRow(_ProgramsRow, frozen=True, tag="pipelines.programs.nvptx"):
    """The same program, compiled for NVIDIA GPUs."""


class AmdgpuProgramRow(_ProgramsRow, frozen=True, tag="pipelines.programs.amdgcn"):
    """The same program, compiled for AMD GPUs."""


class SpirvProgramRow(_ProgramsRow, frozen=True, tag="pipelines.programs.spirv"):
    """The same program, compiled to SPIR-V."""


class SubgroupReduceProgramRow(_ProgramsRow, frozen=True, tag="pipelines.programs.subgroup_reduce"):
    """A sum over a subgroup, run on the CPU."""


class AsyncProgramRow(_ProgramsRow, frozen=True, tag="pipelines.programs.async"):
    """A launch in a task of the async dialect, run on the CPU."""


class NvgpuProgramRow(_ProgramsRow, frozen=True, tag="pipelines.programs.nvgpu"):
    """The nvgpu dialect, compiled for NVIDIA GPUs."""


class Bf16ProgramRow(_ProgramsRow, frozen=True, tag="pipelines.programs.bf16"):
    """The type bf16, compiled to SPIR-V."""


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
    | SubgroupReduceProgramRow
    | AsyncProgramRow
    | NvgpuProgramRow
    | Bf16ProgramRow
)
"""Any learned row."""
PartProgramRow = SubgroupReduceProgramRow | AsyncProgramRow | NvgpuProgramRow | Bf16ProgramRow
"""Rows of the test programs for optional parts of a pipeline."""
ProgramsRow = CpuProgramRow | NvptxProgramRow | AmdgpuProgramRow | SpirvProgramRow | PartProgramRow
"""Rows of test programs."""


def list_of(row: LearnedRow) -> str:
    """Return the name of the list of a row, such as `offload_abi.entries`."""
    return str(type(row).__struct_config__.tag)
