"""Find the cause of a failed link: the caller of an undefined device function, or the rejected image.

clang-linker-wrapper names neither the calling object nor the image that its bitcode reader rejects.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.reread import reader_command
from mlir_offload.driver.message.journal import ToolRun
from mlir_offload.driver.message.tool_error import explained, tool_error
from mlir_offload.offload.container.binary import PackagedImage
from mlir_offload.offload.device.symbols import read_device_symbols
from mlir_offload.offload.image import is_bitcode
from mlir_offload.offload.link.held_image import runs_on_host
from mlir_offload.offload.link.objects import ObjectContents
from mlir_offload.offload.skew.check import image_name
from mlir_offload.toolchain.errors import CompatibilityError, MlirOffloadError, VerificationError
from mlir_offload.translate.cpu.foreign import source_name

_NO_STUB = re.compile(r"undefined (?:reference|symbol).*__device_stub__")
_OTHER_CODE_OBJECT = "incompatible ABI version"
# GCC's marker for an object that contains only GCC's IR, without machine code (gcc/lto-streamer.h).
_SLIM = b"__gnu_lto_slim"
_SLIM_HINT = (
    "compile it with -ffat-lto-objects, by clang, or without -flto (CMake: "
    "INTERPROCEDURAL_OPTIMIZATION)"
)
_UNDEFINED = re.compile(r"undefined", re.IGNORECASE)
# The messages of lld, GNU ld and nvlink.
_NAME = re.compile(r"[Uu]ndefined (?:hidden )?(?:symbol: |reference to [`'])([\w.$]+)")
_MOST_IMAGES = 256
_HINT = "name the file on the link line that defines it as a public func.func, compiled for {arch} with -fgpu-rdc"
_CPU_HINT = (
    "; a function that waits for other threads has to be declared 'convergent', "
    "and one that uses workgroup memory is called in its own file only"
)
_HEAD_BYTES = 4
_MOST_READ_AGAIN = 64


def diagnose_link(
    apart: Sequence[str], contents: Sequence[ObjectContents], run: ToolRun
) -> MlirOffloadError:
    """Return the error for a failed link; `apart` are objects whose device code was linked separately."""
    failed, error = run.completed, tool_error(run)
    slim = _slim_object(failed.command.argv) if _UNDEFINED.search(failed.stderr) else ""
    if slim:
        msg = f"{slim} contains only the intermediate code of GCC (-flto), which clang cannot link"
        return CompatibilityError(msg, hint=_SLIM_HINT)
    if _UNDEFINED.search(failed.stderr):
        explain_undefined(error, contents, failed.stderr)
    if _NO_STUB.search(failed.stderr):
        error.hint = (
            "name the object that defines the kernel on the link line; for a kernel of MLIR that "
            "other files launch, pass only integers, float, double and pointers"
        )
    elif _OTHER_CODE_OBJECT in failed.stderr:
        error.hint = (
            "objects for AMD GPUs must have the same code object version: set it "
            "with -mcode-object-version= for HIP C++, and with #rocdl.target<abi = ...> for a gpu.binary"
        )
    elif apart and _UNDEFINED.search(failed.stderr):
        error.hint = (
            f"the device code of {', '.join(apart)} was device-linked separately, because other objects have "
            "kernels of the same names: rename these where other files call its device functions, "
            "or launch its kernels from CUDA C++"
        )
    return error


def _slim_object(words: Sequence[str]) -> str:
    """Return an object or archive of a link that contains only GCC's IR; empty if there is none."""
    for word in words:
        if word.endswith((".o", ".a")) and Path(word).is_file():
            content = Path(word).read_bytes()
            if _SLIM in content:
                return word
    return ""


def explain_undefined(
    error: MlirOffloadError, contents: Sequence[ObjectContents], stderr: str
) -> None:
    """Name the file that calls an undefined device function in the error, if no file defines it for its GPU."""
    names = dict.fromkeys(_NAME.findall(stderr))
    found = None
    # Keep the tool's message if an image is corrupt, because it states more.
    with contextlib.suppress(VerificationError):
        found = next(_missing(contents, tuple(names)), None) if names else None
    if found is None:
        return
    name, arch, location = found
    error.message = f"no file has the device function '{source_name(name)}' for {arch}"
    error.hint = _HINT.format(arch=arch) + (_CPU_HINT if name != source_name(name) else "")
    if not error.location.startswith(f"{location}:"):
        error.location = location


def _missing(
    contents: Sequence[ObjectContents], names: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    pairs = ((item, image) for item in contents for image in item.images)
    images = [
        (item.location, image, read_device_symbols(image.content))
        for item, image in islice(pairs, _MOST_IMAGES)
    ]
    for name in names:
        having = {(image.triple, image.arch) for _, image, own in images if name in own.defined}
        for location, image, own in images:
            if name in own.undefined and (image.triple, image.arch) not in having:
                is_host = runs_on_host(image) and not image.arch
                yield name, "the CPU" if is_host else image.arch, location


def diagnose_rejected(
    context: BuildContext,
    contents: Sequence[ObjectContents],
    diagnose: Callable[[ToolRun], MlirOffloadError],
    run: ToolRun,
) -> MlirOffloadError:
    """Return the error for a failed link; name the image that the bitcode reader rejected."""
    error = explained(diagnose(run), run.completed, run.workspace)
    if error.rule and not error.location:
        for item, image in _bitcode_images(contents):
            if _is_refused(context, image):
                name = image_name(image.kind, image.triple, image.arch)
                error.message = f"image {name}: {error.message}"
                error.location = item.location
                break
    return error


def _bitcode_images(
    contents: Sequence[ObjectContents],
) -> Iterator[tuple[ObjectContents, PackagedImage]]:
    found = (
        (item, image)
        for item in contents
        for image in item.images
        if is_bitcode(image.content.head(_HEAD_BYTES))
    )
    return (pair for _, pair in zip(range(_MOST_READ_AGAIN), found, strict=False))


def _is_refused(context: BuildContext, image: PackagedImage) -> bool:
    """Return whether the linking clang cannot read an image."""
    path = context.workspace / "rejected.bc"
    path.write_bytes(image.content.whole())
    return (
        context.executor.runner.run(reader_command(context.llvm.tool("clang"), path)).returncode
        != 0
    )
