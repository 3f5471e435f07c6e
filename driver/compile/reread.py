"""Check bitcode by running its reader, if no table describes what that release misreads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.tools.calibration import llvm_identity
from mlir_offload.offload.device.bitcode import read_device_bitcode
from mlir_offload.offload.device.kernel import DeviceCode
from mlir_offload.offload.image import is_bitcode
from mlir_offload.offload.skew.check import image_name
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.process import Command, Completed

if TYPE_CHECKING:
    from mlir_offload.driver.compile.context import BuildContext
    from mlir_offload.offload.link.objects import ObjectContents

_HEAD_BYTES = 4
_HINT = "compile it again with the linking LLVM, or without bitcode (--device-code=object)"


def reader_command(clang: Path, bitcode: Path) -> Command:
    """Return the clang command that only reads a module and writes it again."""
    passes = ("-O0", "-Xclang", "-disable-llvm-passes", "-Wno-override-module")
    form = ("-x", "ir", "-c", "-emit-llvm")
    return Command((str(clang), *form, *passes, str(bitcode), "-o", f"{bitcode}.out"))


def is_same_build(context: BuildContext, item: ObjectContents) -> bool:
    """Return whether the linking LLVM build also compiled this object, so that there is no version skew."""
    identity = "" if context.llvm.is_measured else llvm_identity(context.llvm)
    return any(release.identity == identity for release in item.learned)


def reread_inputs(
    context: BuildContext, paths: Iterable[Path], objects: Iterable[ObjectContents]
) -> None:
    """Let the linking clang read and rewrite each module, and compare the kernels.

    Raises CompatibilityError for a module that it rejects, or whose kernels differ afterwards.
    """
    count = 0
    for location, name, content in _modules(paths, objects):
        _reread(context, content, location, name, count)
        count += 1
    if count:
        modules = "1 module" if count == 1 else f"{count} modules"
        show_note(
            f"no table says what LLVM {context.llvm.spelled} misreads: it has read {modules} of bitcode, "
            "and written the same kernels again"
        )


def _modules(
    paths: Iterable[Path], objects: Iterable[ObjectContents]
) -> Iterator[tuple[str, str, bytes]]:
    for path in paths:
        content = path.read_bytes()
        if is_bitcode(content[:_HEAD_BYTES]):
            yield str(path), "", content
    for item in objects:
        for image in item.images:
            if is_bitcode(image.content.head(_HEAD_BYTES)):
                name = image_name(image.kind, image.triple, image.arch)
                yield item.location, f"image {name}: ", image.content.whole()


def _reread(context: BuildContext, content: bytes, location: str, name: str, number: int) -> None:
    file = context.workspace / f"reread{number}.bc"
    file.write_bytes(content)
    command = reader_command(context.llvm.tool("clang"), file)
    context.executor.note(command)
    completed = context.executor.runner.run(command)
    if completed.returncode != 0:
        msg = f"{name}LLVM {context.llvm.spelled} does not read it: {_reason(completed)}"
        raise CompatibilityError(msg, hint=_HINT, location=location)
    given, read = _code(content), _code(Path(f"{file}.out").read_bytes())
    if given.kernels != read.kernels or given.undefined != read.undefined:
        msg = f"{name}LLVM {context.llvm.spelled} misreads it: {_difference(given, read)}"
        raise CompatibilityError(msg, hint=_HINT, location=location)


def _reason(completed: Completed) -> str:
    lines = [line for line in completed.stderr.splitlines() if "error: " in line]
    return lines[0].partition("error: ")[2] if lines else "it says nothing"


def _code(content: bytes) -> DeviceCode:
    """Return the contents of a module, sorted, without the fields that depend on its writer."""
    code = read_device_bitcode(memory_view(content))
    plain = {"code_bytes": None, "code_sha256": "", "shared_bytes": None}
    kernels = (replace(one, **plain) for one in code.kernels)
    return replace(
        code,
        kernels=tuple(sorted(kernels, key=lambda one: one.name)),
        undefined=tuple(sorted(code.undefined)),
    )


def _difference(given: DeviceCode, read: DeviceCode) -> str:
    """Return a description of the first difference."""
    for kernel in given.kernels:
        other = read.kernel(kernel.name)
        if other != kernel:
            return f"kernel '{kernel.name}' is {'gone' if other is None else 'another one'}"
    names = sorted(set(given.undefined) ^ set(read.undefined))
    return f"undefined: {', '.join(names)}" if names else "there are more kernels"
