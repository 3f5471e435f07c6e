"""The reader of plain objects gives what the general readers give, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from support.hostile import bit_flips, extreme_fields, spliced, truncations
from support.link_inputs import LinkInputs

from mlir_offload.offload.container.offload_section import read_section
from mlir_offload.offload.elf import read_elf
from mlir_offload.offload.host.object_entry import read_entries
from mlir_offload.offload.link.objects import read_inputs
from mlir_offload.offload.link.plain_object import PlainObject, read_plain
from mlir_offload.toolchain.byte_view import ByteView, memory_view
from mlir_offload.toolchain.target import Kind

pytestmark = pytest.mark.llvm(22)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a small object with two entries and an image."""
    inputs = LinkInputs(22, tmp_path_factory.mktemp("plain"))
    image = inputs.device_image(Kind.CUDA, ["k", "other"])
    return inputs.host_object("one", [Kind.CUDA], ["k", "other"], [image]).read_bytes()


def general(view: ByteView) -> PlainObject:
    """Read an object with the general readers."""
    elf = read_elf(view)
    sections = elf.named(".llvm.offloading")
    return PlainObject(
        tuple(image for one in sections for image in read_section(elf.content(one))),
        read_entries(elf),
        tuple(elf.undefined_names()),
    )


def variants(data: bytes) -> Iterator[bytes]:
    """Yield damaged objects. Headers and symbols are at the end of an object, as is its content."""
    headers = len(data) - 13 * 64
    return chain(
        truncations(data, 41),
        bit_flips(data, 23),
        extreme_fields(data, 256),
        (data[:headers] + tail for tail in extreme_fields(data[headers:], 13 * 64)),
        spliced(data, 1000),
    )


def test_a_plain_object_is_read_like_any_other(data: bytes) -> None:
    view = memory_view(data)
    plain = read_plain(view)
    assert plain is not None
    assert plain == general(view)
    assert [one.name for one in plain.entries] == ["k", "other"]
    assert len(plain.images) == 1
    assert plain.images[0].triple == "nvptx64-nvidia-cuda"


def test_a_damaged_object_is_read_like_any_other_or_left_to_the_other_readers(data: bytes) -> None:
    left = taken = 0
    for damaged in variants(data):
        plain = read_plain(memory_view(damaged))
        if plain is None:
            left += 1
        else:
            taken += 1
            read = general(memory_view(damaged))
            # Views compare their source, which differs.
            assert [one.data for one in plain.images] == [one.data for one in read.images]
            assert plain.entries == read.entries
            assert plain.undefined == read.undefined
            assert [one.strings for one in plain.images] == [one.strings for one in read.images]
    assert min(left, taken) > 100


@pytest.mark.parametrize("kind", [Kind.CUDA, Kind.HIP, Kind.OPENMP])
def test_objects_of_links_are_plain(kind: Kind, tmp_path: Path) -> None:
    path = LinkInputs(22, tmp_path).simple("one", kind)
    assert read_plain(memory_view(path.read_bytes())) is not None
    (contents,) = read_inputs(path)
    assert contents.kernels(contents.images[0].kind)


def test_an_object_that_embeds_a_runtime_is_left_to_the_other_readers(tmp_path: Path) -> None:
    text = '__attribute__((weak, visibility("hidden"))) void mgpuStreamCreate(void) {}\n'
    path = LinkInputs(22, tmp_path).c_object("embedding", text)
    assert read_plain(memory_view(path.read_bytes())) is None
    (contents,) = read_inputs(path)
    assert contents.runtime_symbols == {"mgpuStreamCreate"}


def test_an_undefined_function_of_the_runtime_is_found_in_a_plain_object(tmp_path: Path) -> None:
    text = "void mgpuStreamCreate(void); void printF32(float);\n"
    text += "void f(void) { mgpuStreamCreate(); printF32(1); }\n"
    path = LinkInputs(22, tmp_path).c_object("calling", text)
    assert read_plain(memory_view(path.read_bytes())) is not None
    (contents,) = read_inputs(path)
    assert contents.runtime_symbols == {"mgpuStreamCreate"}
    assert contents.library_functions == {"printF32"}


def test_an_object_with_a_thousand_kernels_is_read_without_reading_a_part_a_thousand_times(
    tmp_path: Path,
) -> None:
    names = [f"kernel_{number}" for number in range(1000)]
    inputs = LinkInputs(22, tmp_path)
    path = inputs.host_object("many", [Kind.CUDA], names, [])
    (contents,) = read_inputs(path)
    assert {entry.name for entry in contents.entries} == set(names)
