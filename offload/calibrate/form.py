"""Probe the image formats that a device link accepts, each packaged from files of every extension."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from mlir_offload.offload.abi import OffloadAbi, load_abi
from mlir_offload.offload.calibrate.probe import CannotLearnError, Learned, ProbeBench
from mlir_offload.offload.container.packager import ImageRecord, record_parts
from mlir_offload.offload.image import ImageForm, ImageKind
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.learned_row import (
    AmdgpuImagesRow,
    HostImagesRow,
    NvptxImagesRow,
    RelocatableLinkRow,
    SpirvImagesRow,
)

_KERNEL = b"mo_kernel\0"
_OTHER = "other"
# The section name of device code that is not linked yet.
_UNLINKED = b"\0.llvm.offloading\0"
_ENDINGS = ("o", "bc", "cubin", "fatbin", "s", "spv")
_BITCODE = "bc"
_EMIT_BITCODE = "-emit-llvm-bc"


class _Device(Struct, frozen=True):
    """A device to link for, a kernel for it, and the flags for each format; `triple` is that of the image."""

    kind: str
    triple: str
    arch: str
    source: str
    forms: tuple[tuple[ImageForm, str], ...]
    flags: tuple[str, ...] = ()


_AMDGPU = _Device(
    "hip",
    "amdgcn-amd-amdhsa",
    "gfx900",
    "__attribute__((amdgpu_kernel)) void mo_kernel(void) {}\n",
    ((ImageForm.BITCODE, _EMIT_BITCODE), (ImageForm.AMDGPU_OBJECT, "-emit-obj")),
    ("-target-cpu", "gfx900", "-mcode-object-version=4"),
)
# Kind openmp is used because a link of kind cuda runs fatbinary, which accepts any format. Every supported
# CUDA has sm_75.
_NVPTX = _Device(
    "openmp",
    "nvptx64-nvidia-cuda",
    "sm_75",
    'extern "C" __attribute__((global)) void mo_kernel() {}\n',
    (
        (ImageForm.BITCODE, _EMIT_BITCODE),
        (ImageForm.RELOCATABLE_CUBIN, ""),
        (ImageForm.EXECUTABLE_CUBIN, ""),
        (ImageForm.PTX, "-S"),
    ),
    ("-target-cpu", "sm_75", "-target-feature", "+ptx63", "-x", "cuda", "-fcuda-is-device"),
)


def _host(triple: str) -> _Device:
    flags = ("-pic-level", "2", "-mrelocation-model", "pic")
    forms = ((ImageForm.BITCODE, _EMIT_BITCODE), (ImageForm.OBJECT, "-emit-obj"))
    return _Device("openmp", triple, "", "void mo_kernel(void) {}\n", forms, flags)


def _spirv(abi: OffloadAbi) -> _Device:
    kind = "sycl" if "sycl" in dict(abi.kind_codes) else "openmp"
    source, flags = "kernel void mo_kernel() {}\n", ("-x", "cl", "-cl-std=CL2.0")
    triple = "spirv64-unknown-unknown"
    return _Device(kind, triple, "", source, ((ImageForm.BITCODE, _EMIT_BITCODE),), flags)


def learn_forms(bench: ProbeBench) -> Iterator[Callable[[], Learned]]:
    """Yield a function per device that links every image format; it raises CannotLearnError if none links."""
    abi = load_abi(bench.llvm.version.major)
    yield lambda: Learned([HostImagesRow(_linked(bench, _host(bench.host), abi))])
    yield lambda: Learned([AmdgpuImagesRow(_linked(bench, _AMDGPU, abi))])
    yield lambda: Learned([SpirvImagesRow(_linked(bench, _spirv(abi), abi, may_be_none=True))])
    yield lambda: Learned([_relocatable(bench, abi)])
    yield lambda: Learned([NvptxImagesRow(_linked(_with_cuda(bench), _NVPTX, abi))])


def _with_cuda(bench: ProbeBench) -> ProbeBench:
    if bench.cuda is None:
        msg = "no CUDA toolkit was found: images for NVIDIA GPUs cannot be linked"
        raise CannotLearnError(msg)
    return bench


def _linked(
    bench: ProbeBench, device: _Device, abi: OffloadAbi, *, may_be_none: bool = False
) -> dict[str, tuple[str, ...]]:
    """Return, for each format that links, the file extensions from which it links."""
    codes = dict(abi.image_kinds_by_ending)
    forms: dict[str, tuple[str, ...]] = {}
    for form, flag in device.forms:
        content = _cubin(bench, device, form) if not flag else _content(bench, device, flag)
        if form is ImageForm.BITCODE:
            kinds = {_BITCODE: int(ImageKind.BITCODE)}
        else:
            # The packager uses 0 for an extension without an enum value.
            kinds = {ending: codes.get(ending, 0) for ending in (*_ENDINGS, _OTHER)}
        links = {kind: _links(bench, device, abi, content, kind) for kind in set(kinds.values())}
        taken = tuple(ending for ending, kind in kinds.items() if links[kind])
        if taken:
            forms[form.value] = taken
    if not forms and not may_be_none:
        msg = f"no image for {device.triple} links"
        raise CannotLearnError(msg)
    return forms


def _content(bench: ProbeBench, device: _Device, form: str) -> bytes:
    (bench.folder / "device.c").write_text(device.source, encoding="utf-8")
    arguments = ("-cc1", "-triple", device.triple, *device.flags, form, "device.c", "-o", "device")
    bench.output("clang", arguments)
    return (bench.folder / "device").read_bytes()


def _cubin(bench: ProbeBench, device: _Device, form: ImageForm) -> bytes:
    (bench.folder / "device.ptx").write_bytes(_content(bench, device, "-S"))
    options = ("-c",) if form is ImageForm.RELOCATABLE_CUBIN else ()
    arguments = (*options, f"-arch={device.arch}", "device.ptx", "-o", "device.cubin")
    bench.assemble(arguments)
    return (bench.folder / "device.cubin").read_bytes()


def _relocatable(bench: ProbeBench, abi: OffloadAbi) -> RelocatableLinkRow:
    """Return whether `-r` links device code. Older wrappers leave it unlinked in its section."""
    failing, left = [], []
    has_sycl = "sycl" in dict(abi.kind_codes)
    for device in (_host(bench.host), _AMDGPU, *([_spirv(abi)] if has_sycl else [])):
        form, flag = device.forms[-1]
        image_kind = ImageKind.BITCODE if form is ImageForm.BITCODE else ImageKind.OBJECT
        content = _content(bench, device, flag)
        linked = _link(bench, device, abi, content, image_kind, ("-r",))
        if not linked:
            failing.append(device.kind)
        elif _UNLINKED in linked:
            left.append(device.kind)
    return RelocatableLinkRow(not left, () if left else tuple(failing))


def _links(
    bench: ProbeBench, device: _Device, abi: OffloadAbi, content: bytes, image_kind: int
) -> bool:
    """Return whether the link of an image succeeds and the kernel is in its output."""
    words = ("-shared", "-nostdlib")
    return _KERNEL in _link(bench, device, abi, content, image_kind, words)


def _link(
    bench: ProbeBench,
    device: _Device,
    abi: OffloadAbi,
    content: bytes,
    image_kind: int,
    flags: tuple[str, ...],
) -> bytes:
    """Return the output of a link of one image; empty if the link fails."""
    strings = ((b"triple", device.triple.encode()), (b"arch", device.arch.encode()))
    code = dict(abi.kind_codes)[device.kind]
    record = ImageRecord(code, image_kind, strings, memory_view(content))
    (bench.folder / "image").write_bytes(b"".join(_bytes(record)))
    (bench.folder / "host.c").write_text("int probe;\n", encoding="utf-8")
    embed = ("-Xclang", "-fembed-offload-object=image")
    bench.output("clang", ("-fPIC", "-c", "host.c", *embed, "-o", "host.o"))
    needed: tuple[str, ...] = ()
    if device.triple == bench.host:
        needed = abi.host_bitcode_arguments(device.triple)
    elif device is _NVPTX and bench.cuda is not None:
        needed = (f"--cuda-path={bench.cuda}", *abi.cuda_path_arguments(bench.cuda))
    linked = bench.folder / "linked"
    linked.unlink(missing_ok=True)
    words = (*flags, "--offload-link", *needed, "host.o", "-o", "linked")
    done = bench.run("clang", words)
    return linked.read_bytes() if done.returncode == 0 and linked.exists() else b""


def _bytes(record: ImageRecord) -> Iterator[bytes]:
    for part in record_parts(record):
        yield part if isinstance(part, bytes) else part.whole()
