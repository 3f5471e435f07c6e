"""Which images a device link of a build takes: each form is linked, packaged from a file of each ending."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from mlir_offload.offload.abi import OffloadAbi, load_abi
from mlir_offload.offload.calibrate.probe import CannotLearnError, Learned, ProbeBench
from mlir_offload.offload.container.packager import ImageRecord, record_parts
from mlir_offload.offload.image import ImageForm, ImageKind
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.learned_row import AmdgpuImagesRow, HostImagesRow

_KERNEL = b"mo_kernel\0"
_OTHER = "other"
_ENDINGS = ("o", "bc", "cubin", "fatbin", "s", "spv")
_BITCODE = "bc"


class _Device(Struct, frozen=True):
    """A device that can be linked for without a vendor's tools, and a kernel for it in C."""

    kind: str
    triple: str
    arch: str
    source: str
    object_form: ImageForm
    flags: tuple[str, ...] = ()


_AMDGPU = _Device(
    "hip",
    "amdgcn-amd-amdhsa",
    "gfx900",
    "__attribute__((amdgpu_kernel)) void mo_kernel(void) {}\n",
    ImageForm.AMDGPU_OBJECT,
    ("-target-cpu", "gfx900", "-mcode-object-version=4"),
)


def _host(triple: str) -> _Device:
    flags = ("-pic-level", "2", "-mrelocation-model", "pic")
    return _Device("openmp", triple, "", "void mo_kernel(void) {}\n", ImageForm.OBJECT, flags)


def learn_forms(bench: ProbeBench) -> Learned:
    """Link every form of image for the CPU and for an AMD GPU; raise CannotLearnError where none links."""
    abi = load_abi(bench.llvm.version.major)
    return Learned(
        [
            HostImagesRow(_linked(bench, _host(bench.host), abi)),
            AmdgpuImagesRow(_linked(bench, _AMDGPU, abi)),
        ]
    )


def _linked(bench: ProbeBench, device: _Device, abi: OffloadAbi) -> dict[str, tuple[str, ...]]:
    """Return the endings of the files from which each form links."""
    codes = dict(abi.image_kinds_by_ending)
    forms: dict[str, tuple[str, ...]] = {}
    for form, flag in ((ImageForm.BITCODE, "-emit-llvm-bc"), (device.object_form, "-emit-obj")):
        content = _content(bench, device, flag)
        if form is ImageForm.BITCODE:
            kinds = {_BITCODE: int(ImageKind.BITCODE)}
        else:
            # An ending without a number of its own is packaged as the others are.
            kinds = {ending: codes.get(ending, 0) for ending in (*_ENDINGS, _OTHER)}
        links = {kind: _links(bench, device, abi, content, kind) for kind in set(kinds.values())}
        taken = tuple(ending for ending, kind in kinds.items() if links[kind])
        if taken:
            forms[form.value] = taken
    if not forms:
        msg = f"no image for {device.triple} links"
        raise CannotLearnError(msg)
    return forms


def _content(bench: ProbeBench, device: _Device, form: str) -> bytes:
    (bench.folder / "device.c").write_text(device.source, encoding="utf-8")
    arguments = ("-cc1", "-triple", device.triple, *device.flags, form, "device.c", "-o", "device")
    bench.output("clang", arguments)
    return (bench.folder / "device").read_bytes()


def _links(
    bench: ProbeBench, device: _Device, abi: OffloadAbi, content: bytes, image_kind: int
) -> bool:
    """Return whether a link takes an image: it ends well, and its output has the kernel."""
    strings = ((b"triple", device.triple.encode()), (b"arch", device.arch.encode()))
    code = dict(abi.kind_codes)[device.kind]
    record = ImageRecord(code, image_kind, strings, memory_view(content))
    (bench.folder / "image").write_bytes(b"".join(_bytes(record)))
    (bench.folder / "host.c").write_text("int probe;\n", encoding="utf-8")
    embed = ("-Xclang", "-fembed-offload-object=image")
    bench.output("clang", ("-fPIC", "-c", "host.c", *embed, "-o", "host.o"))
    needed = abi.host_bitcode_arguments(device.triple) if device.kind == "openmp" else ()
    linked = bench.folder / "linked"
    linked.unlink(missing_ok=True)
    words = ("-shared", "-nostdlib", "--offload-link", *needed, "host.o", "-o", "linked")
    done = bench.run("clang", words)
    return done.returncode == 0 and linked.exists() and _KERNEL in linked.read_bytes()


def _bytes(record: ImageRecord) -> Iterator[bytes]:
    for part in record_parts(record):
        yield part if isinstance(part, bytes) else part.whole()
