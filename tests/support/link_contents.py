"""Contents of files on a link line, made without tools: entries, and PTX images with kernels."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.offload.container.binary import PackagedImage
from mlir_offload.offload.host.object_entry import HostEntry
from mlir_offload.offload.image import ImageKind
from mlir_offload.offload.link.objects import ObjectContents
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.target import NVPTX_TRIPLE

ARRAY_22 = ("llvm_offload_entries", 9)
ARRAY_20 = ("cuda_offloading_entries", 9)
ARRAY_19 = ("cuda_offloading_entries", 5)
CUDA_CODE = 2


def image(  # noqa: PLR0913 (the fields of an image)
    data: bytes,
    arch: str = "sm_90",
    *,
    image_kind: int = ImageKind.BITCODE,
    version: int = 1,
    code: int = CUDA_CODE,
    kind: str = "cuda",
    triple: str = NVPTX_TRIPLE,
) -> PackagedImage:
    """Return an image of an offload binary."""
    strings = (("triple", triple), ("arch", arch))
    view = memory_view(data)
    return PackagedImage(kind, image_kind, 0, strings, view, version=version, kind_code=code)


def bitcode(arch: str, note: bytes = b"") -> PackagedImage:
    """Return an image whose kernels cannot be read."""
    return image(b"BC\xc0\xde" + note, arch)


def ptx(arch: str, *kernels: str, note: str = "") -> PackagedImage:
    """Return an image that defines kernels. LLVM 16 to 19 link PTX images."""
    entries = "".join(f".visible .entry {kernel}()\n{{ ret; }}\n" for kernel in kernels)
    text = f".version 7.8\n.target {arch}\n.address_size 64\n// {note}\n{entries}"
    return image(text.encode(), arch, image_kind=ImageKind.PTX)


def contents(
    name: str,
    kernels: tuple[str, ...] = (),
    images: tuple[PackagedImage, ...] = (),
    *,
    array: tuple[str, int] = ARRAY_19,
    member: str = "",
    kind: str = "cuda",
) -> ObjectContents:
    """Return the contents of an object with registered kernels and images."""
    entries = tuple(
        HostEntry(kind, kernel, 0, section=array[0], fields=array[1]) for kernel in kernels
    )
    return ObjectContents(
        Path(name),
        member,
        is_relocatable=True,
        images=images,
        entries=entries,
        runtime_symbols=frozenset(),
        fatbins=(),
    )
