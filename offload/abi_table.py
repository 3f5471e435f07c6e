"""The table of what releases of LLVM read and write for offloading: loaded and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlir_offload.offload.image import ImageForm
from mlir_offload.offload.string_order import CONTAINERS
from mlir_offload.toolchain.tables import (
    load_table,
    table_cache,
    with_learned,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FIELD_BYTES = {"i16": 2, "i32": 4, "i64": 8, "ptr": 8}
_ROW_LISTS = (
    ("container", "rows"),
    ("image_kinds_by_ending",),
    *(("linked_images", device) for device in ("nvptx", "amdgcn", "spirv", "host")),
    ("offload_kinds",),
    ("entries",),
    ("entry_values",),
    ("linker_wrapper", "fatbinary_image_option"),
    ("linker_wrapper", "cuda_path"),
    ("linker_wrapper", "device_opt_level"),
    ("linker_wrapper", "device_feature"),
    ("linker_wrapper", "host_device_libraries"),
    ("linker_wrapper", "host_bitcode"),
    ("linker_wrapper", "archives"),
    ("host_archs",),
    ("host_layouts", "x86_64"),
    ("linker_wrapper", "target_groups"),
    ("linker_wrapper", "jobs"),
    ("linker_wrapper", "override_image"),
    ("linker_wrapper", "relocatable_link"),
)


@table_cache
def offload_table() -> dict[str, Any]:
    """Read and validate the table, with what was learned of other releases."""
    table = with_learned("offload_abi", load_table("mlir_offload.offload", "offload_abi"))
    check_table(table)
    return table


def check_table(table: Mapping[str, Any]) -> None:
    """Raise ValueError where rows are out of order, lack their evidence, or start too late."""
    first = table["majors"]["first"]
    for path in _ROW_LISTS:
        rows: Any = table
        for key in path:
            rows = rows[key]
        check_rows(".".join(path), rows, first)
    _check_container_rows(table["container"]["rows"])
    _check_image_rows(table["linked_images"])
    for row in table["entries"]:
        unknown = {field.partition(":")[2] for field in row["fields"]} - FIELD_BYTES.keys()
        if unknown:
            msg = f"entries since {row['since']}: unknown field types {sorted(unknown)}"
            raise ValueError(msg)


def _check_container_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    unknown = {name for row in rows for name in row["containers"]} - CONTAINERS
    if unknown:
        msg = f"container: unknown containers {sorted(unknown)}"
        raise ValueError(msg)


def _check_image_rows(devices: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    for device, rows in devices.items():
        unknown = {form for row in rows for form in row["forms"]} - set(ImageForm)
        if unknown:
            msg = f"linked_images.{device}: unknown forms {sorted(unknown)}"
            raise ValueError(msg)


def row_of(rows: Sequence[Mapping[str, Any]], major: int) -> Mapping[str, Any]:
    """Return the row that holds for a release: the last one whose `since` is not newer."""
    return [row for row in rows if row["since"] <= major][-1]


def check_rows(name: str, rows: Sequence[Mapping[str, Any]], first: int) -> None:
    """Raise ValueError where rows do not rise from the first release or lack their evidence."""
    releases = [row["since"] for row in rows]
    if not releases or releases[0] > first or releases != sorted(set(releases)):
        msg = f"{name}: rows must rise from LLVM {first}, not {releases}"
        raise ValueError(msg)
    without = [row["since"] for row in rows if not row.get("source") or "checked" not in row]
    if without:
        msg = f"{name}: rows since {without} name no source"
        raise ValueError(msg)
