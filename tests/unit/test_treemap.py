"""The treemap of a file: every byte is represented, and rectangles do not overlap."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from mlir_offload.driver.inspect.treemap import Role, TreemapNode, TreemapRect, file_node, layout
from mlir_offload.offload.container.contents import Container, Image, Part
from mlir_offload.offload.device.kernel import DeviceCode, DeviceKernel


def leaves(boxes: list[TreemapRect]) -> list[TreemapRect]:
    return [box for box in boxes if not box.node.children]


def overlap(one: TreemapRect, other: TreemapRect) -> float:
    width = min(one.left + one.width, other.left + other.width) - max(one.left, other.left)
    height = min(one.top + one.height, other.top + other.height) - max(one.top, other.top)
    return width * height if width > 0 and height > 0 else 0.0


@pytest.mark.parametrize("seed", range(10))
def test_areas_are_to_each_other_as_the_weights(seed: int) -> None:
    source = random.Random(seed)  # noqa: S311 (test data, the same each time)
    nodes = [TreemapNode(Role.LEAF, str(n), "", source.uniform(1, 1000)) for n in range(40)]
    boxes = list(layout(nodes, 2.0))
    total = sum(node.weight for node in nodes)
    assert len(boxes) == len(nodes)
    for box in boxes:
        assert box.width * box.height == pytest.approx(box.node.weight / total)
        assert -1e-9 <= box.left <= box.left + box.width <= 1 + 1e-9
        assert -1e-9 <= box.top <= box.top + box.height <= 1 + 1e-9
    assert all(overlap(*pair) < 1e-9 for pair in combinations(boxes, 2))


def test_boxes_are_near_to_squares() -> None:
    nodes = [TreemapNode(Role.LEAF, str(n), "", 1.0) for n in range(100)]
    ratios = [2 * box.width / box.height for box in layout(nodes, 2.0)]
    assert max(ratios) < 2
    assert min(ratios) > 0.5


def test_a_file_is_divided_into_its_images_and_these_into_their_kernels() -> None:
    code = DeviceCode(
        "cubin", kernels=(DeviceKernel("a", code_bytes=300), DeviceKernel("b", code_bytes=100))
    )
    image = Image(0, "cubin", 800, offset=100, kind="cuda", arch="sm_90", code=code)
    part = Part("f", "ELF executable, x86-64", 1000, images=(image,))
    boxes = {box.node.label: box for box in layout([file_node(part)], 2.0)}
    areas = {label: box.width * box.height for label, box in boxes.items()}
    assert areas["f"] == pytest.approx(1)
    assert areas["cuda sm_90"] == pytest.approx(0.8)
    assert areas["2 kernels"] == pytest.approx(0.4)
    assert areas["a"] == pytest.approx(0.3)
    assert areas["host code, data, headers"] == pytest.approx(0.2)
    assert sum(box.width * box.height for box in leaves(list(boxes.values()))) == pytest.approx(1)


def test_host_code_leaves_the_map_to_device_code() -> None:
    image = Image(0, "cubin", 1000, offset=100, kind="cuda", arch="sm_90")
    part = Part("f", "ELF executable, x86-64", 1_000_000, images=(image,))
    boxes = {box.node.label: box for box in layout([file_node(part)], 2.0)}
    host = boxes["host code, data, headers"]
    assert host.width * host.height == pytest.approx(0.2)
    assert host.node.detail == "975.6 KiB"


def test_a_compressed_image_takes_what_it_takes_in_the_file() -> None:
    container = Container("offload bundle", 3, 0, 400, "zstd")
    packed = Image(0, "cubin", 9000, offset=50, stored_bytes=300, compression="lz4")
    inner = [Image(n, "cubin", size, container=container) for n, size in ((1, 3000), (2, 1000))]
    part = Part("f", "archive", 1000, images=(packed, *inner))
    nodes = file_node(part).children
    assert [node.weight for node in nodes] == [300, 300, 100, 175]


def test_thousands_of_kernels_do_not_make_thousands_of_boxes_without_end() -> None:
    kernels = tuple(DeviceKernel(f"k{n}", code_bytes=n) for n in range(1, 10_000))
    code = DeviceCode("cubin", kernels=kernels)
    image = Image(0, "cubin", 1 << 26, code=code, arch="sm_90")
    boxes = list(layout([file_node(Part("f", "cubin", 1 << 26, images=(image,)))], 2.0))
    assert len(boxes) < 1100
    assert any(box.node.label == "8999 smaller kernels" for box in boxes)


def test_an_empty_file_has_no_box() -> None:
    assert list(layout([file_node(Part("f", "empty file", 0))], 2.0)) == []
