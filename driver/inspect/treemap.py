"""Lay out a treemap of a file; the area of each rectangle is proportional to its size in bytes.

Squarified treemaps: Bruls, Huizing, van Wijk, Data Visualization 2000.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from mlir_offload.driver.inspect.tree import kernel_facts, size_text
from mlir_offload.offload.container.contents import Image, Part
from mlir_offload.offload.device.kernel import DeviceKernel

# Further kernels, over all images of a file, share one rectangle: smaller ones are not distinguishable.
_MOST_KERNELS = 1000
_FEWEST_KERNELS = 20
# Host code, data and headers are drawn at most this large, relative to the device code.
_MOST_HOST = 0.25
_HOST = "host"
_LONG, _SHORT_HEAD, _SHORT_TAIL = 90, 60, 20


class Role(StrEnum):
    """The kind of a node."""

    FILE = "file"
    IMAGE = "image"
    CODE = "code"
    LEAF = "leaf"


class TreemapNode(Struct, frozen=True):
    """An item with a size: `weight` determines its share of the area among its siblings.

    `colour` is its architecture, empty for the host.
    """

    role: Role
    label: str
    detail: str
    weight: float
    colour: str = ""
    children: tuple[TreemapNode, ...] = ()


class TreemapRect(Struct, frozen=True):
    """A node and its rectangle, in fractions of the map's width and height."""

    node: TreemapNode
    depth: int
    left: float
    top: float
    width: float
    height: float


def file_node(part: Part) -> TreemapNode:
    """Return a file with its images and members, and the remaining bytes drawn at most as a fifth."""
    most = max(_FEWEST_KERNELS, _MOST_KERNELS // max(len(part.images), 1))
    inner = [_image_node(image, _stored(image, part.images), most) for image in part.images]
    sizes = [node.weight for node in inner]
    for member in part.members:
        if member.size_bytes:
            inner.append(file_node(member))
            sizes.append(member.size_bytes)
    rest = part.size_bytes - sum(sizes)
    drawn = sum(node.weight for node in inner)
    if inner and rest > 0:
        what = "other members and headers" if part.members else "host code, data, headers"
        shown = min(rest, drawn * _MOST_HOST)
        inner.append(TreemapNode(Role.LEAF, what, size_text(int(rest)), shown))
        drawn += shown
    role = Role.FILE if inner else Role.LEAF
    detail = f"{part.form}, {size_text(part.size_bytes)}"
    weight = drawn if inner else part.size_bytes
    return TreemapNode(role, part.name, detail, weight, "", tuple(inner))


def layout(nodes: Sequence[TreemapNode], aspect: float) -> Iterator[TreemapRect]:
    """Yield a rectangle for each node and its descendants, outer ones first.

    `aspect` is the ratio of the map's width to its height.
    """
    yield from _placed(nodes, (0.0, 0.0, aspect, 1.0), aspect, 0)


def _stored(image: Image, siblings: Sequence[Image]) -> float:
    """Return the bytes of an image in the file; its share of the container if that is compressed."""
    if image.stored_bytes is not None:
        return image.stored_bytes
    container = image.container
    if image.offset is not None or container is None:
        return image.size_bytes
    total = sum(other.size_bytes for other in siblings if other.container == container)
    return container.size_bytes * image.size_bytes / total if total else 0.0


def _image_node(image: Image, weight: float, most: int) -> TreemapNode:
    colour = image.arch or image.kind or _HOST
    inner = [_image_node(nested, _stored(nested, image.images), most) for nested in image.images]
    kernels = image.code.kernels if image.code is not None else ()
    code = sum(kernel.code_bytes or 0 for kernel in kernels)
    if code:
        inner.append(_kernels_node(kernels, code, colour, most))
    used = sum(node.weight for node in inner)
    if inner and image.size_bytes > used:
        rest = image.size_bytes - used
        inner.append(
            TreemapNode(Role.LEAF, "symbols, constants, rest", size_text(int(rest)), rest, colour)
        )
    label = " ".join(word for word in (image.kind, image.arch) if word) or str(image.form)
    detail = f"{image.form}, {size_text(image.size_bytes)}"
    role = Role.IMAGE if inner else Role.LEAF
    return TreemapNode(role, label, detail, weight, colour, tuple(inner))


def _kernels_node(
    kernels: Sequence[DeviceKernel], code: int, colour: str, most: int
) -> TreemapNode:
    ordered = sorted(kernels, key=lambda kernel: (-(kernel.code_bytes or 0), kernel.name))
    nodes = [
        TreemapNode(
            Role.LEAF, _short(kernel.name), kernel_facts(kernel), kernel.code_bytes or 0, colour
        )
        for kernel in ordered[:most]
        if kernel.code_bytes
    ]
    if left_out := ordered[most:]:
        rest = sum(kernel.code_bytes or 0 for kernel in left_out)
        nodes.append(
            TreemapNode(
                Role.LEAF, f"{len(left_out)} smaller kernels", size_text(rest), rest, colour
            )
        )
    count = "1 kernel" if len(kernels) == 1 else f"{len(kernels)} kernels"
    return TreemapNode(
        Role.CODE, count, f"{size_text(code)} of instructions", code, colour, tuple(nodes)
    )


def _short(name: str) -> str:
    """Return the beginning and the end of a long name; C++ names end with the types."""
    return f"{name[:_SHORT_HEAD]}…{name[-_SHORT_TAIL:]}" if len(name) > _LONG else name


def _placed(
    nodes: Sequence[TreemapNode], area: tuple[float, float, float, float], aspect: float, depth: int
) -> Iterator[TreemapRect]:
    for node, place in _squarified(nodes, area):
        left, top, width, height = place
        yield TreemapRect(node, depth, left / aspect, top, width / aspect, height)
        if node.children:
            yield from _placed(node.children, place, aspect, depth + 1)


def _squarified(
    nodes: Sequence[TreemapNode], area: tuple[float, float, float, float]
) -> Iterator[tuple[TreemapNode, tuple[float, float, float, float]]]:
    """Yield the nodes and rectangles, in rows along the shorter side, as close to squares as possible."""
    left, top, width, height = area
    ordered = sorted((node for node in nodes if node.weight > 0), key=lambda node: -node.weight)
    total = sum(node.weight for node in ordered)
    scale = width * height / total if total else 0.0
    begin = 0
    while begin < len(ordered):
        side = min(width, height)
        end = _row_end(ordered, begin, side, scale)
        row = ordered[begin:end]
        thickness = sum(node.weight for node in row) * scale / side if side else 0.0
        offset = 0.0
        for node in row:
            length = node.weight * scale / thickness if thickness else 0.0
            if width >= height:
                yield node, (left, top + offset, thickness, length)
            else:
                yield node, (left + offset, top, length, thickness)
            offset += length
        if width >= height:
            left, width = left + thickness, max(width - thickness, 0.0)
        else:
            top, height = top + thickness, max(height - thickness, 0.0)
        begin = end


def _row_end(ordered: Sequence[TreemapNode], begin: int, side: float, scale: float) -> int:
    """Return the end of the row: the first node that would worsen the worst aspect ratio."""
    largest = ordered[begin].weight * scale
    total, worst = 0.0, float("inf")
    for end in range(begin, len(ordered)):
        smallest = ordered[end].weight * scale
        total += smallest
        square = total * total
        squared_side = side * side
        ratio = (
            max(squared_side * largest / square, square / (squared_side * smallest))
            if squared_side
            else 0.0
        )
        if ratio > worst:
            return end
        worst = ratio
    return len(ordered)
