"""Validate the tables of the offload ABI and of bundles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlir_offload.offload.image import ImageForm

# The names that `string_order.WALKS` has, without loading that module, which only packagers need.
STRING_CONTAINERS = frozenset({"StringMap", "DenseMap", "DenseMap of LLVM 23", "MapVector"})
FIELD_TYPES = frozenset(("i16", "i32", "i64", "ptr"))
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


def check_table(table: Mapping[str, Any]) -> None:
    """Raise ValueError if rows are out of order, lack a source, or start after the first release."""
    first = table["majors"]["first"]
    for path in _ROW_LISTS:
        rows: Any = table
        for key in path:
            rows = rows[key]
        check_rows(".".join(path), rows, first)
    _check_container_rows(table["container"]["rows"])
    _check_image_rows(table["linked_images"])
    for row in table["entries"]:
        unknown = {field.partition(":")[2] for field in row["fields"]} - FIELD_TYPES
        if unknown:
            msg = f"entries since {row['since']}: unknown field types {sorted(unknown)}"
            raise ValueError(msg)


def _check_container_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    unknown = {name for row in rows for name in row["containers"]} - STRING_CONTAINERS
    if unknown:
        msg = f"container: unknown containers {sorted(unknown)}"
        raise ValueError(msg)


def _check_image_rows(devices: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    for device, rows in devices.items():
        unknown = {form for row in rows for form in row["forms"]} - set(ImageForm)
        if unknown:
            msg = f"linked_images.{device}: unknown forms {sorted(unknown)}"
            raise ValueError(msg)


def check_rows(name: str, rows: Sequence[Mapping[str, Any]], first: int) -> None:
    """Raise ValueError if the rows do not ascend from the first release, or lack a source."""
    releases = [row["since"] for row in rows]
    if not releases or releases[0] > first or releases != sorted(set(releases)):
        msg = f"{name}: rows must rise from LLVM {first}, not {releases}"
        raise ValueError(msg)
    without = [row["since"] for row in rows if not row.get("source") or "checked" not in row]
    if without:
        msg = f"{name}: rows since {without} name no source"
        raise ValueError(msg)
