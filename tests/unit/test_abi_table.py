from __future__ import annotations

import copy

import pytest

from mlir_offload.offload.abi import (
    FIELD_BYTES,
    entry_layouts,
    fatbinary_without_image,
    kind_names,
    load_abi,
    offload_table,
)
from mlir_offload.offload.string_order import WALKS
from mlir_offload.offload.table_check import FIELD_TYPES, STRING_CONTAINERS, check_table
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.target import Kind


@pytest.mark.parametrize(
    ("major", "section", "size", "prefix", "has_metadata"),
    [
        (15, "cuda_offloading_entries", 32, ".omp_offloading.entry.", False),
        (18, "cuda_offloading_entries", 32, ".omp_offloading.entry.", False),
        (19, "cuda_offloading_entries", 32, ".offloading.entry.", False),
        (20, "cuda_offloading_entries", 56, ".offloading.entry.", True),
        (21, "llvm_offload_entries", 56, ".offloading.entry.", True),
        (22, "llvm_offload_entries", 56, ".offloading.entry.", True),
        (23, "llvm_offload_entries", 56, ".offloading.entry.", True),
    ],
)
def test_each_release_has_its_entry_layout(
    *, major: int, section: str, size: int, prefix: str, has_metadata: bool
) -> None:
    layout = load_abi(major).entry
    assert layout.section(Kind.CUDA) == section
    assert layout.size_bytes == size
    assert layout.symbol_prefix == prefix
    assert layout.has_symbols_metadata is has_metadata


def test_kinds_have_one_section_each_until_they_share_one() -> None:
    assert load_abi(19).entry.section(Kind.OPENMP) == "omp_offloading_entries"
    assert load_abi(22).entry.section(Kind.OPENMP) == load_abi(22).entry.section(Kind.CUDA)


def test_the_packager_of_each_release_has_its_containers() -> None:
    assert load_abi(15).string_containers == ("StringMap", "StringMap")
    assert load_abi(16).string_containers == ("DenseMap", "StringMap")
    assert load_abi(18).string_containers == ("DenseMap", "MapVector")


def test_the_order_in_each_container_is_known() -> None:
    assert WALKS.keys() == STRING_CONTAINERS


def test_the_table_that_ships_is_valid() -> None:
    check_table(offload_table())
    assert FIELD_BYTES.keys() == FIELD_TYPES


def test_an_unknown_container_is_refused() -> None:
    table = copy.deepcopy(offload_table())
    table["container"]["rows"][0]["containers"] = ["StringMap", "SmallMap"]
    with pytest.raises(ValueError, match=r"container: unknown containers \['SmallMap'\]"):
        check_table(table)


def test_an_unknown_form_of_image_is_refused() -> None:
    table = copy.deepcopy(offload_table())
    table["linked_images"]["host"][0]["forms"]["bitcode"] = ["bc"]
    with pytest.raises(ValueError, match=r"linked_images.host: unknown forms \['bitcode'\]"):
        check_table(table)


@pytest.mark.parametrize("major", [14, 24])
def test_a_release_outside_the_table_is_refused(major: int) -> None:
    with pytest.raises(CompatibilityError, match=rf"LLVM {major} is not known \(known: 15 to 23\)"):
        load_abi(major)


def test_every_number_of_a_kind_has_one_name() -> None:
    assert kind_names() == ((1, "openmp"), (2, "cuda"), (3, "hip"), (4, "hip"), (8, "sycl"))


def test_the_device_link_is_optimised_in_the_way_of_each_release() -> None:
    triple = "nvptx64-nvidia-cuda"
    assert load_abi(16).device_opt_arguments(triple, 2) == ("-Wl,--opt-level=O2",)
    assert load_abi(19).device_opt_arguments(triple, 2) == ("-Wl,--opt-level=O2",)
    assert load_abi(22).device_opt_arguments(triple, 3) == (f"-Wl,--device-compiler={triple}=-O3",)


@pytest.mark.parametrize(("cuda", "lost"), [((12, 8), False), ((12, 9), True), ((13, 0), True)])
def test_fatbinary_lost_its_option_with_cuda_12_9(*, cuda: tuple[int, int], lost: bool) -> None:
    assert (cuda >= fatbinary_without_image()) is lost


def test_layouts_of_every_release_are_known_to_the_reader() -> None:
    assert {layout.size_bytes for layout in entry_layouts()} == {32, 56}


def test_rows_out_of_order_are_refused() -> None:
    table = copy.deepcopy(offload_table())
    table["entries"].reverse()
    with pytest.raises(ValueError, match="entries: rows must rise"):
        check_table(table)


def test_a_table_that_starts_too_late_is_refused() -> None:
    table = copy.deepcopy(offload_table())
    del table["offload_kinds"][0]
    with pytest.raises(ValueError, match="offload_kinds: rows must rise from LLVM 15"):
        check_table(table)


def test_a_row_without_a_source_is_refused() -> None:
    table = copy.deepcopy(offload_table())
    table["container"]["rows"][0]["source"] = ""
    with pytest.raises(ValueError, match=r"rows since \[15\] name no source"):
        check_table(table)


def test_an_unknown_field_type_is_refused() -> None:
    table = copy.deepcopy(offload_table())
    table["entries"][0]["fields"][0] = "address:i128"
    with pytest.raises(ValueError, match="unknown field types"):
        check_table(table)
