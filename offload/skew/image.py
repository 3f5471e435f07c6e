"""Check the compatibility of one device image: its code, its architecture and its container."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache

from msgspec import Struct

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.container.file_form import FileForm
from mlir_offload.offload.device import amdgpu_processor, code_object
from mlir_offload.offload.device import code as device_code
from mlir_offload.offload.link import fatbinary_adapter
from mlir_offload.offload.skew import ptx as image_ptx
from mlir_offload.toolchain.bitcode.attribute import FUNCTION_PLACE
from mlir_offload.toolchain.bitcode.module import BitcodeModule, read_bitcode_modules
from mlir_offload.toolchain.bitcode.skew import check_module
from mlir_offload.toolchain.byte_view import ByteView
from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.ptx import load_nvptx_table, supported_archs
from mlir_offload.toolchain.skew import text as ir_text
from mlir_offload.toolchain.skew.fact import Consumer, Skew
from mlir_offload.toolchain.tables import table_cache
from mlir_offload.toolchain.target import sm_number
from mlir_offload.toolchain.tool import ToolVersion

_NVIDIA, _AMD = "nvptx", "amdgcn"
_DEVICES = (_NVIDIA, _AMD)
_LIBDEVICE = "__nv_"
_OLDEST_ABI = 15
_SM = pattern(r"sm_\d{1,4}[af]?")


class ImagePlace(Struct, frozen=True):
    """The metadata of a device image in its container.

    `version` is the version of LLVM's container, None if the container is of another format.
    """

    triple: str
    arch: str
    version: int | None


def check_image(
    image: ImagePlace, form: FileForm, content: ByteView, consumer: Consumer
) -> Iterator[Skew]:
    """Yield each incompatibility of a device image with the consumer."""
    is_packaged = image.version is not None
    if is_packaged and consumer.llvm >= _OLDEST_ABI:
        yield from _container(image, consumer)
    if form is FileForm.BITCODE:
        for module in read_bitcode_modules(content):
            yield from check_device_module(module, consumer, image.arch)
            if is_packaged:
                yield from _packaged_module(module)
    elif form is FileForm.LLVM_IR:
        if is_packaged:
            yield Skew("BC007", {})
        text = content.whole().decode(errors="replace")
        yield from ir_text.check_text(text, consumer)
        yield from _archs([image.arch, *ir_text.text_target_cpus(text)], image.triple, consumer)
    elif form is FileForm.PTX:
        yield from image_ptx.check_ptx(content, consumer)
    elif form is FileForm.DEVICE_ELF:
        code = device_code.read_device_code(content)
        if code is not None and code.triple.startswith(_NVIDIA):
            yield from image_ptx.check_made_by(code, consumer)


def check_device_module(
    module: BitcodeModule, consumer: Consumer, arch: str = ""
) -> Iterator[Skew]:
    """Yield each incompatibility of a device module. `arch` is the architecture in its container."""
    yield from check_module(module, consumer)
    yield from _archs([arch, *_target_cpus(module)], module.triple, consumer)


def _container(image: ImagePlace, consumer: Consumer) -> Iterable[Skew]:
    cuda = None
    if consumer.cuda is not None and image.triple.startswith(_NVIDIA):
        cuda = (consumer.cuda.version.major, consumer.cuda.version.minor)
    return _container_skews(image.version, consumer.llvm, cuda)


@table_cache
def _container_skews(
    version: int | None, release: int, cuda: tuple[int, int] | None
) -> tuple[Skew, ...]:
    """Return the incompatibilities of a container version, and of its NVIDIA images with a CUDA release, if given."""
    found: list[Skew] = []
    known = load_abi(release).container_versions
    if version not in known:
        values: dict[str, object] = {"version": version, "consumer": release}
        found.append(Skew("OF001", values | {"known": ", ".join(map(str, known))}))
    if cuda and fatbinary_adapter.needs_adapter(release, ToolVersion(*cuda)):
        found.append(Skew("NV007", {"consumer": release, "cuda": f"{cuda[0]}.{cuda[1]}"}))
    return tuple(found)


def _packaged_module(module: BitcodeModule) -> Iterator[Skew]:
    if not module.triple.startswith(_DEVICES):
        return
    if not module.data_layout:
        yield Skew("DL001")
    for function in module.functions:
        if function.is_declaration and function.name.startswith(_LIBDEVICE):
            yield Skew("NV012", {"name": function.name})


def _target_cpus(module: BitcodeModule) -> Iterable[str]:
    """Return the target CPUs of the functions of a module."""
    found: dict[str, None] = {}
    for number in {function.attributes for function in module.functions}:
        one = module.attributes[number].find(FUNCTION_PLACE, "target-cpu")
        if one is not None and isinstance(one.value, str):
            found[one.value] = None
    return found


def _archs(archs: Iterable[str], triple: str, consumer: Consumer) -> Iterable[Skew]:
    """Return findings for architectures that the back end does not support: it uses the oldest one instead."""
    return _arch_skews(tuple(archs), triple, consumer.llvm)


@lru_cache(maxsize=64)
def _arch_skews(archs: tuple[str, ...], triple: str, release: int) -> tuple[Skew, ...]:
    found: list[Skew] = []
    for arch in dict.fromkeys(arch.partition(":")[0] for arch in archs if arch):
        values = {"arch": arch, "consumer": release}
        if triple.startswith(_NVIDIA) and arch.startswith("sm_"):
            if not _knows_sm(arch, release):
                found.append(Skew("NV003", values))
        elif triple.startswith(_AMD) and not _knows_processor(arch, release):
            found.append(Skew("AM006", values))
    return tuple(found)


@cache
def _knows_sm(arch: str, release: int) -> bool:
    table = load_nvptx_table()
    known = dict(table.oldest_isa)
    if release < _OLDEST_ABI:
        return True
    if arch in known:
        return arch in supported_archs(release, None)
    # LLVM has always supported the architectures that are older than the table. No release is known to support
    # newer ones.
    is_named = _SM.fullmatch(arch) is not None
    return is_named and sm_number(arch) < min(map(sm_number, known))


@cache
def _knows_processor(arch: str, release: int) -> bool:
    """Return whether a release has an AMD processor, or cannot be checked: no known release has the processor."""
    is_known = arch in amdgpu_processor.known_processors(release)
    return is_known or arch not in _named_processors() or release < _OLDEST_ABI


@cache
def _named_processors() -> frozenset[str]:
    """Return the AMD processors of all known releases."""
    return frozenset(code_object.load_processors().values())
