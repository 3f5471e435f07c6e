"""The offload ABI of each LLVM release, from the table `offload_abi`."""

from __future__ import annotations

import struct
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mlir_offload.offload import table_check
from mlir_offload.toolchain.errors import CompatibilityError, UsageError
from mlir_offload.toolchain.tables import (
    known_release,
    learned_releases,
    load_table,
    table_cache,
    with_learned,
)
from mlir_offload.toolchain.target import device_kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mlir_offload.toolchain.target import Kind, Target

FIELD_BYTES = {"i16": 2, "i32": 4, "i64": 8, "ptr": 8}


@table_cache
def offload_table() -> dict[str, Any]:
    """Read the table with the learned rows of other releases, and validate it if there are any."""
    table = with_learned("offload_abi", load_table("mlir_offload.offload", "offload_abi"))
    if learned_releases():
        # The tests validate what ships.
        table_check.check_table(table)
    return table


def row_of(rows: Sequence[Mapping[str, Any]], major: int) -> Mapping[str, Any]:
    """Return the row for a release: the last one whose `since` is not newer."""
    return [row for row in rows if row["since"] <= major][-1]


ANY_CONSUMER = "any"
# The `struct` format characters of unsigned integers, by size in bytes.
_FORMS = {2: "H", 4: "I", 8: "Q"}


class EntryField(Struct, frozen=True):
    """A field of the entry struct: its name, LLVM type and byte offset."""

    name: str
    type: str
    offset: int

    @property
    def size_bytes(self) -> int:
        """Return the size of the field in bytes."""
        return FIELD_BYTES[self.type]


class EntryLayout(Struct, frozen=True, dict=True):
    """The layout, names and sections of offload entries in an LLVM release."""

    fields: tuple[EntryField, ...]
    symbol_prefix: str
    name_symbol: str
    name_section: str
    sections: tuple[tuple[str, str], ...]
    align: int
    has_symbols_metadata: bool

    @property
    def size_bytes(self) -> int:
        """Return the size of an entry in bytes, which is the stride of the array."""
        last = self.fields[-1]
        return last.offset + last.size_bytes

    def section(self, kind: Kind) -> str:
        """Return the section that contains the entries of a kind."""
        return dict(self.sections)[device_kind(kind).offload_kind]

    @cached_property
    def section_names(self) -> frozenset[str]:
        """Return the sections of all kinds."""
        return frozenset(name for _, name in self.sections)

    @cached_property
    def members(self) -> struct.Struct:
        """Return the `struct` format of all fields of an entry, in their order."""
        form, end = "<", 0
        for one in self.fields:
            form += f"{one.offset - end}x{_FORMS[one.size_bytes]}"
            end = one.offset + one.size_bytes
        return struct.Struct(form)

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """Return the index in `members` for each field name of any layout; -1 if this layout lacks the field."""
        own = {one.name: number for number, one in enumerate(self.fields)}
        return defaultdict(lambda: -1, own)

    @cached_property
    def name_at(self) -> int:
        """Return the byte offset of the pointer to the name."""
        return next(one.offset for one in self.fields if one.name == "name")

    @cached_property
    def address_at(self) -> int:
        """Return the byte offset of the address of the registered kernel or variable."""
        return next(one.offset for one in self.fields if one.name == "address")


class EntryValues(Struct, frozen=True):
    """The values of entry fields in an LLVM release, and the entries that its linker wrapper registers.

    `managed_members` maps, for a managed variable, the field to its meaning. `registered` contains pairs of
    an offload kind and an entry type.
    """

    flags: tuple[tuple[str, int], ...]
    has_type_in_data: bool
    managed_members: tuple[tuple[str, str], ...]
    registered: frozenset[tuple[str, str]]
    coff_suffix: str | None

    def flag(self, name: str) -> int:
        """Return the bits of a flag; 0 if this release does not have it."""
        return dict(self.flags).get(name, 0)


class TargetGroups(Struct, frozen=True):
    """The rule by which a release links device images of different targets together.

    An image with the arch `wildcard` is linked with those of every arch. With target IDs, images for one AMD
    processor are linked together unless a feature is on in one and off in the other. With `into_specific`, an
    image is linked for the targets that have all its features; if there is one, not for its own target.
    """

    wildcard: str | None
    has_target_ids: bool
    into_specific: bool = False


class OffloadAbi(Struct, frozen=True):
    """The formats and options of the linker wrapper and the runtimes of one LLVM release."""

    major: int
    container_versions: tuple[int, ...]
    string_containers: tuple[str, str]
    image_kinds_by_ending: tuple[tuple[str, int], ...]
    kind_codes: tuple[tuple[str, int], ...]
    entry: EntryLayout
    entry_values: EntryValues
    fatbinary_option: str
    device_opt_argument: str
    device_feature_argument: str
    cuda_arguments: tuple[str, ...]
    host_device_libraries: tuple[str, ...]
    host_bitcode_argument: str
    takes_jobserver: bool
    reads_line_in_order: bool
    target_groups: TargetGroups
    host_arch: str
    jobs_argument: str
    has_relocatable_link: bool
    relocatable_link_without: tuple[str, ...]
    override_argument: str
    overrides_since_cuda: tuple[int, int] | None

    def container_arch(self, target: Target) -> str:
        """Return the arch string of a target's images in a container."""
        arch = device_kind(target.kind).container_arch(target.arch)
        return self.host_arch if target.is_cpu and not arch else arch

    def kind_code(self, kind: Kind) -> int:
        """Return the enum value of an offload kind in containers and entries.

        Raises CompatibilityError if this release does not have the kind.
        """
        code = dict(self.kind_codes).get(device_kind(kind).offload_kind)
        if code is None:
            msg = f"LLVM {self.major} has no offload kind {kind}"
            raise CompatibilityError(msg, hint="link with a newer release of LLVM")
        return code

    def device_opt_arguments(self, triple: str, level: int) -> tuple[str, ...]:
        """Return the arguments of `clang --offload-link` that optimize bitcode images at `-O<level>`."""
        if not self.device_opt_argument:
            return ()
        return (self.device_opt_argument.format(triple=triple, level=level),)

    def device_feature_arguments(self, triple: str, feature: str) -> tuple[str, ...]:
        """Return the arguments of `clang --offload-link` that compile bitcode images with a feature."""
        if not self.device_feature_argument:
            return ()
        return (self.device_feature_argument.format(triple=triple, feature=feature),)

    def takes_linked_cubins(self, cuda: tuple[int, int]) -> bool:
        """Return whether the wrapper accepts linked cubins of a CUDA release (major, minor) unchanged."""
        since = self.overrides_since_cuda
        return since is not None and since <= cuda

    def override_arguments(self, kind: Kind, path: Path) -> tuple[str, ...]:
        """Return the arguments of `clang --offload-link` that replace a kind's device link by a linked image."""
        return (self.override_argument.format(kind=device_kind(kind).offload_kind, path=path),)

    def host_bitcode_arguments(self, triple: str) -> tuple[str, ...]:
        """Return the arguments of `clang --offload-link` that a bitcode image for the CPU requires."""
        argument = self.host_bitcode_argument.format(triple=triple)
        return (argument,) if argument else ()

    def host_device_arguments(self, triple: str) -> tuple[str, ...]:
        """Return the arguments of `clang --offload-link` that link CPU images with libm."""
        return tuple(f"-Wl,--device-linker={triple}={name}" for name in self.host_device_libraries)

    def jobs_arguments(self, jobs: str) -> tuple[str, ...]:
        """Return the arguments of `clang --offload-link` that set the number of parallel device links.

        `jobs` is a number, or `jobserver` if the release supports it.
        """
        return (self.jobs_argument.format(jobs=jobs),) if self.jobs_argument else ()

    def cuda_path_arguments(self, path: Path) -> tuple[str, ...]:
        """Return the arguments of `clang --offload-link` that select the CUDA directory of all tools."""
        return tuple(argument.format(path=path) for argument in self.cuda_arguments)


@table_cache
def load_abi(major: int) -> OffloadAbi:
    """Return the ABI of an LLVM release.

    Raises CompatibilityError if the table does not contain the release, or if the driver does not support its
    ABI.
    """
    table = offload_table()
    if major not in known_majors():
        raise _not_known(major)
    _check_followed(major)
    container = row_of(table["container"]["rows"], major)
    first_container, second_container = container["containers"]
    wrapper = table["linker_wrapper"]
    return OffloadAbi(
        major=major,
        container_versions=tuple(container["reads"]),
        string_containers=(first_container, second_container),
        image_kinds_by_ending=tuple(row_of(table["image_kinds_by_ending"], major)["kinds"].items()),
        kind_codes=tuple(row_of(table["offload_kinds"], major)["codes"].items()),
        entry=entry_layout(row_of(table["entries"], major)),
        entry_values=_entry_values(row_of(table["entry_values"], major)),
        fatbinary_option=row_of(wrapper["fatbinary_image_option"], major)["option"],
        device_opt_argument=row_of(wrapper["device_opt_level"], major)["argument"],
        device_feature_argument=row_of(wrapper["device_feature"], major)["argument"],
        cuda_arguments=tuple(row_of(wrapper["cuda_path"], major)["arguments"]),
        host_device_libraries=tuple(row_of(wrapper["host_device_libraries"], major)["libraries"]),
        host_bitcode_argument=row_of(wrapper["host_bitcode"], major)["argument"],
        takes_jobserver=row_of(wrapper["jobs"], major)["takes_jobserver"],
        jobs_argument=row_of(wrapper["jobs"], major)["argument"],
        reads_line_in_order=row_of(wrapper["archives"], major)["in_order"],
        target_groups=_target_groups(row_of(wrapper["target_groups"], major)),
        host_arch=row_of(table["host_archs"], major)["arch"],
        has_relocatable_link=row_of(wrapper["relocatable_link"], major)["links"],
        relocatable_link_without=tuple(row_of(wrapper["relocatable_link"], major)["without"]),
        override_argument=row_of(wrapper["override_image"], major)["argument"],
        overrides_since_cuda=_release(row_of(wrapper["override_image"], major)["cuda"]),
    )


@table_cache
def unnamed_host_archs() -> frozenset[str]:
    """Return the arch strings of CPU images without a processor, over all releases."""
    return frozenset(row["arch"] for row in offload_table()["host_archs"])


def load_abis(consumer: str) -> tuple[OffloadAbi, ...]:
    """Return the ABIs that an object must follow: one for a release (`22`), two for `any`.

    `any` covers every release of the table except `any_exceptions`. Raises UsageError for another word,
    CompatibilityError if the table does not contain the release.
    """
    if consumer == ANY_CONSUMER:
        majors = offload_table()["any_consumer"]["entries_of"]
        return tuple(load_abi(major) for major in majors)
    if not consumer.isdecimal():
        msg = f"--for-clang={consumer}: not a release of LLVM"
        raise UsageError(msg, hint=f"name a release, such as 22, or '{ANY_CONSUMER}'")
    return (load_abi(int(consumer)),)


def known_majors() -> tuple[int, ...]:
    """Return the releases in the table and the learned ones, oldest first."""
    majors = offload_table()["majors"]
    learned = {release.major for release in learned_releases()}
    return tuple(sorted(learned.union(range(majors["first"], majors["last"] + 1))))


def _check_followed(major: int) -> None:
    """Raise CompatibilityError for a build of LLVM whose tools do something that this driver does not support."""
    release = known_release(major)
    if release is not None and release.refused:
        msg = f"LLVM {release.version} cannot be linked for: {release.refused[0]}"
        hint = f"link with LLVM {release.nearest} (--for-clang={release.nearest})"
        raise CompatibilityError(msg, hint=hint)


def _not_known(major: int) -> CompatibilityError:
    majors = offload_table()["majors"]
    first, last = majors["first"], majors["last"]
    msg = f"the offloading ABI of LLVM {major} is not known (known: {first} to {last})"
    hint = "name a release in that range"
    if major > last:
        hint += f", or learn it where it is installed: mlir-offload learn --llvm={major} --json"
    return CompatibilityError(msg, hint=hint)


def any_exceptions() -> tuple[int, ...]:
    """Return the releases that cannot link an object for `any`."""
    return tuple(offload_table()["any_consumer"]["without"])


@table_cache
def entry_layouts() -> tuple[EntryLayout, ...]:
    """Return every distinct entry layout, oldest first."""
    return tuple(entry_layout(row) for row in offload_table()["entries"])


@table_cache
def kind_names() -> tuple[tuple[int, str], ...]:
    """Return the name of each offload kind's enum value, over all releases (no value has two names)."""
    codes = {
        code: name
        for row in offload_table()["offload_kinds"]
        for name, code in row["codes"].items()
    }
    return tuple(sorted(codes.items()))


@table_cache
def kind_name(code: int) -> str:
    """Return the name of an offload kind's enum value; `kind-N` if no release has it."""
    return dict(kind_names()).get(code, f"kind-{code}")


def host_layout(triple: str, major: int) -> str:
    """Return the data layout of a host triple in an LLVM release; empty if the table lacks the machine."""
    rows = offload_table()["host_layouts"].get(triple.partition("-")[0])
    return str(row_of(rows, major)["layout"]) if rows else ""


def fatbinary_without_image() -> tuple[int, int]:
    """Return the first release of CUDA (major, minor) whose `fatbinary` rejects `--image=`."""
    major, minor = offload_table()["cuda"]["fatbinary_without_image"]["since"]
    return major, minor


def _release(numbers: Sequence[int] | None) -> tuple[int, int] | None:
    return (numbers[0], numbers[1]) if numbers else None


def _target_groups(row: Mapping[str, Any]) -> TargetGroups:
    return TargetGroups(row["wildcard"], row["target_ids"], row["into_specific"])


def entry_layout(row: Mapping[str, Any]) -> EntryLayout:
    """Return the layout in a row of the table."""
    fields = []
    offset = 0
    for member in row["fields"]:
        name, _, type_name = member.partition(":")
        fields.append(EntryField(name, type_name, offset))
        offset += FIELD_BYTES[type_name]
    return EntryLayout(
        fields=tuple(fields),
        symbol_prefix=row["symbol_prefix"],
        name_symbol=row["name_symbol"],
        name_section=row["name_section"],
        sections=tuple(row["sections"].items()),
        align=row["align"],
        has_symbols_metadata=row["symbols_metadata"],
    )


def _entry_values(row: Mapping[str, Any]) -> EntryValues:
    return EntryValues(
        flags=tuple(row["flags"].items()),
        has_type_in_data=row["has_type_in_data"],
        managed_members=tuple(row["managed"].items()),
        registered=frozenset(
            (kind, name) for kind, names in row["registered"].items() for name in names
        ),
        coff_suffix=row["coff_suffix"],
    )
