"""Probe the packager: its container version, offload kind values and string order."""

from __future__ import annotations

from mlir_offload.offload.abi import load_abi, offload_table
from mlir_offload.offload.calibrate.probe import CannotLearnError, Learned, ProbeBench
from mlir_offload.offload.container.binary import PackagedImage, read_binary
from mlir_offload.offload.string_order import written_order
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.errors import VerificationError
from mlir_offload.toolchain.learned_row import ContainerRow, ImageKindsRow, OffloadKindsRow

# The newer name is first, because the older program prints a deprecation warning.
_PROGRAMS = ("llvm-offload-binary", "clang-offload-packager")
_KINDS = ("openmp", "cuda", "hip", "sycl")
_ENDINGS = ("o", "bc", "cubin", "fatbin", "s", "spv")
# Keys whose order differs between all LLVM containers that packagers have used.
_KEYS = ("triple", "arch", "kind", "foo", "zeta", "feature", "mode")


def learn_packager(bench: ProbeBench) -> Learned:
    """Package one image for each kind and each file extension, and read the containers."""
    images = _packaged(bench)
    of_kinds, of_endings = images[: len(_KINDS)], images[len(_KINDS) :]
    found = Learned()
    codes = {
        kind: image.kind_code
        for kind, image in zip(_KINDS, of_kinds, strict=True)
        if image.kind_code
    }
    if "cuda" not in codes or len(set(codes.values())) < len(codes):
        numbers = ", ".join(f"{kind} {code}" for kind, code in codes.items())
        msg = f"its packager does not write distinct enum values of kinds: {numbers or 'all are 0'}"
        raise CannotLearnError(msg)
    found.rows.append(OffloadKindsRow(codes))
    kinds = {
        ending: image.image_kind
        for ending, image in zip(_ENDINGS, of_endings, strict=True)
        if image.image_kind
    }
    found.rows.append(ImageKindsRow(kinds))
    _learn_order(found, images, bench.base)
    return found


def _packaged(bench: ProbeBench) -> tuple[PackagedImage, ...]:
    keys = ",".join(f"{key}={key}" for key in _KEYS if key != "kind")
    arguments = []
    for ending, kind in (*(("x", kind) for kind in _KINDS), *((one, "cuda") for one in _ENDINGS)):
        (bench.folder / f"image.{ending}").write_bytes(b"image")
        words = keys.replace("arch=arch", f"arch=arch,kind={kind}")
        arguments.append(f"--image=file=image.{ending},{words}")
    program = next((name for name in _PROGRAMS if bench.llvm.has(name)), _PROGRAMS[-1])
    bench.output(program, ("-o", "packaged", *arguments))
    try:
        with open_view(bench.folder / "packaged") as view:
            images = read_binary(view)
    except VerificationError as error:
        msg = f"its packager writes a container that is not known: {error.message}"
        raise CannotLearnError(msg) from error
    if len(images) != len(arguments):
        msg = f"its packager wrote {len(images)} of {len(arguments)} images"
        raise CannotLearnError(msg)
    return images


def _learn_order(found: Learned, images: tuple[PackagedImage, ...], base: int) -> None:
    given = tuple(key.encode() for key in ("file", *_KEYS))
    written = tuple(key.encode() for key, _ in images[0].strings)
    reads = tuple(range(1, images[0].version + 1))
    rows = offload_table()["container"]["rows"]
    for containers in dict.fromkeys(tuple(row["containers"]) for row in reversed(rows)):
        if written_order(given, containers) == written:
            found.rows.append(ContainerRow(reads, containers))
            return
    # No reader depends on the order.
    found.rows.append(ContainerRow(reads, load_abi(base).string_containers))
    order = ", ".join(key.decode() for key in written)
    found.assumed.append(f"order of strings in offload binaries (this one is not known: {order})")
