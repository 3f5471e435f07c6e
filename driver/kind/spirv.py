"""Images for devices that accept SPIR-V, such as Intel GPUs: bitcode, which the link compiles to SPIR-V."""

from __future__ import annotations

import re
import shutil
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mlir_offload.driver.compile import device as device_code
from mlir_offload.driver.compile.kind_build import (
    ImageFile,
    KindBuild,
    kernels_of,
    run_on_kernels,
    user_libraries,
)
from mlir_offload.driver.option.compile_options import DeviceCode
from mlir_offload.driver.step.spirv import SpirvCheck, SpirvIr
from mlir_offload.toolchain.errors import CompatibilityError, MlirOffloadError, SourceError
from mlir_offload.toolchain.process import Command, Completed, tool_failed
from mlir_offload.toolchain.target import Kind
from mlir_offload.translate.device_ir import codegen_arguments
from mlir_offload.translate.spirv.module import (
    NotInSpirvError,
    spirv_bitcode_command,
    spirv_code_command,
)

if TYPE_CHECKING:
    from pathlib import Path

    from mlir_offload.driver.compile.context import BuildContext
    from mlir_offload.driver.step.split_file import ModuleFile
    from mlir_offload.toolchain.target import Target

_VALIDATOR = "spirv-val"
# The errors of the back end, before its stack dump, and those of the validator.
_REASON = re.compile(
    r"(?:error in backend|LLVM ERROR|^error): (?:line \d+: )?(?P<reason>.+)", re.MULTILINE
)


def _make_image(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    """Make bitcode of a lowered device module.

    It is also compiled to SPIR-V, only to be checked, because the linker wrapper reports an error of the back
    end as a crash. Raises SourceError if the back end or the validator rejects the module.
    """
    _check_form(context)
    executor, flags = context.executor, context.options.device_flags
    made = _image_file(context, lowered, target)
    libraries = user_libraries(context, source, target, lowered)
    image = made.path
    ready, code = image.with_suffix(".ll"), image.with_suffix(".spv")
    older = context.text_for(context.consumer, lowered, source)
    kernels, location = kernels_of(module), str(source)
    step = SpirvIr(
        source=older,
        kernels=kernels,
        rdc=bool(context.options.gpu_rdc),
        llvm=context.consumer,
        location=location,
        output=ready,
    )
    try:
        run_on_kernels(context, module, step)
    except NotInSpirvError as error:
        raise device_code.with_line(context, source, module, target, step, error) from None
    passes = codegen_arguments(Kind.SYCL, context.llvm.version.major, is_bitcode=True)
    bitcode = spirv_bitcode_command(
        context.llvm,
        ready,
        image,
        opt_level=context.options.opt_level,
        libraries=libraries,
        arguments=(*passes, *flags.device_opt_for(target.arch)),
    )
    executor.tool(bitcode, image)
    diagnose = partial(_not_compiled, source)
    executor.tool(spirv_code_command(context.llvm, image, code), code, diagnose=diagnose)
    executor.step(SpirvCheck(source=code, kernels=kernels, ir=lowered, location=location))
    validator = shutil.which(_VALIDATOR, path=context.search_path or None)
    if validator is not None:
        executor.tool(Command((validator, str(code))), None, diagnose=diagnose)
    return made


# What the back end says of a vector of one element, or of 5, 6, 7, ...
_VECTOR_SIZE = "number of components"


def _check_form(context: BuildContext) -> None:
    if context.options.wanted_device_code is DeviceCode.OBJECT:
        msg = "--device-code=object: clang-linker-wrapper takes no SPIR-V, only bitcode"
        hint = "leave the option out, or spirv64 out of --offload-arch"
        raise CompatibilityError(msg, hint=hint)


def _not_compiled(source: Path, failed: Completed) -> MlirOffloadError:
    """Return the error for a module that the SPIR-V back end or the validator rejects."""
    match = _REASON.search(failed.stderr)
    if match is None:
        return tool_failed(failed)
    msg = f"a kernel cannot be compiled for spirv64: {match['reason']}"
    hint = "rewrite it without that, or leave spirv64 out of --offload-arch"
    if _VECTOR_SIZE in match["reason"]:
        hint = "SPIR-V has vectors of 2, 3, 4, 8 and 16 elements: use these, or memref.load and memref.store"
    return SourceError(msg, hint=hint, location=str(source))


def _image_file(_context: BuildContext, beside: Path, target: Target, /) -> ImageFile:
    """Return the image for a target, with a path next to `beside`."""
    stem = beside.stem.removesuffix(".spirv")
    return ImageFile(beside.with_name(f"{stem}.{target.arch}.bc"), target)


class _Spirv(KindBuild):
    name = Kind.SYCL
    modules = (
        "mlir_offload.driver.step.device",
        "mlir_offload.driver.step.spirv",
        "mlir_offload.offload.device.spirv",
    )
    image_file = staticmethod(_image_file)
    make_image = staticmethod(_make_image)
    code_ending = ".spv"

    def code_alone(self, context: BuildContext, image: ImageFile, /) -> Path:
        """Return the SPIR-V module; with -S as text, with -emit-llvm the bitcode."""
        if context.options.emit_llvm:
            return image.path
        form = ("-S",) if context.options.assembly else ()
        output = image.path.with_suffix(".s" if form else ".spv")
        command = spirv_code_command(context.llvm, image.path, output)
        context.executor.tool(replace(command, argv=(*command.argv, *form)), output)
        return output

    def link_folders(self, context: BuildContext, _directory: Path, /) -> tuple[Path, ...]:
        """Return the directory of clang-sycl-linker, which clang of LLVM 22 runs by its plain name."""
        return (context.llvm.tool("clang-sycl-linker").resolve().parent,)


KIND = _Spirv()
