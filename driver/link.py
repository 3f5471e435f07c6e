"""Link objects to a program or shared library, and check that no kernel was lost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mlir_offload.driver.compile import compile_inputs, host_command
from mlir_offload.driver.context import BuildContext
from mlir_offload.driver.device import ImageFile
from mlir_offload.driver.options import as_operand
from mlir_offload.driver.runtime import HostRuntime, host_runtime
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.anchor import empty_image_command, targets_to_anchor
from mlir_offload.offload.coverage import check_coverage, check_duplicates, check_entry_layout
from mlir_offload.offload.objects import ObjectContents, read_objects
from mlir_offload.offload.runtime import runtime_link_arguments
from mlir_offload.toolchain.errors import ToolchainError, VerificationError
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import NVPTX_TRIPLE, Kind, host_triple

_LINKER = "lld"
_CPP_SUFFIXES = frozenset({".cc", ".cpp", ".cxx"})


def link(context: BuildContext) -> Path:
    """Compile the sources, link all, check the result, and return its path.

    Raises VerificationError where the result would lack a kernel: it is not kept then.
    """
    compile_inputs(context)
    # Errors name the source, not the object in the workspace.
    made = [
        replace(item, path=source)
        for source, path in context.compiled.items()
        if path.exists()
        for item in read_objects(path)
    ]
    contents = (*context.given, *made)
    _check_inputs(context, contents)
    runtime = host_runtime(context)
    context.wait_for(runtime.object)
    linked = context.workspace / "linked"
    anchor = _make_anchor(context, contents)
    if Kind.CUDA in runtime.kinds:
        _make_cuda_directory(context)
    command = _link_command(context, anchor, contents, runtime, linked)
    context.executor.tool(command, linked)
    if linked.exists():
        _check_linked(context, linked, contents)
    return linked


def _check_linked(context: BuildContext, linked: Path, contents: Sequence[ObjectContents]) -> None:
    """Check the result under the name that the user gave it."""
    try:
        check_coverage(linked, contents)
    except VerificationError as error:
        error.location = str(context.options.output or "a.out")
        raise


def _check_inputs(context: BuildContext, contents: Sequence[ObjectContents]) -> None:
    check_entry_layout(contents, load_abi(context.consumer))
    check_duplicates(contents)


def _make_anchor(context: BuildContext, contents: Sequence[ObjectContents]) -> tuple[Path, ...]:
    """Return the object without which device code that only libraries have would be lost."""
    executor, directory = context.executor, context.workspace / "anchor"
    targets = targets_to_anchor(contents)
    if not targets:
        return ()
    executor.make_directory(directory)
    images = []
    for number, target in enumerate(targets):
        ending = "o" if target.kind is Kind.OPENMP else "bc"
        path = directory / f"empty{number}.{ending}"
        feature = _ptx_feature(context, (target.arch,)) if target.kind is Kind.CUDA else ""
        executor.tool(empty_image_command(context.llvm, target, path, feature=feature), path)
        images.append(ImageFile(path, target).argument)
    binary, text, anchor = (directory / f"anchor.{ending}" for ending in ("offload", "ll", "o"))
    executor.step("package", (*images, "--for-clang", str(context.consumer), "-o", binary))
    executor.step("anchor", (binary, "-o", text))
    executor.tool(host_command(context, text, anchor), anchor)
    return (anchor,)


def _ptx_feature(context: BuildContext, archs: Sequence[str]) -> str:
    """Return the PTX ISA for bitcode of these architectures, as clang spells a feature."""
    from mlir_offload.toolchain.ptx import ptx_isa_for

    return f"+ptx{min(ptx_isa_for(arch, context.consumer, context.cuda) for arch in archs)}"


def _link_command(
    context: BuildContext,
    anchor: Sequence[Path],
    contents: Sequence[ObjectContents],
    runtime: HostRuntime,
    output: Path,
) -> Command:
    """Return the call of clang; it runs the linker wrapper only where there is device code."""
    options = context.options
    dry = options.dry_run
    has_device = any(item.images for item in contents) or (dry and bool(context.targets))
    has_runtime = any(item.runtime_symbols for item in contents) or (dry and bool(context.targets))
    made = {as_operand(str(path)): str(made) for path, made in context.compiled.items()}
    arguments = [
        *(("--offload-link",) if has_device else ()),
        *(("-shared",) if options.shared else ()),
        *((f"-fuse-ld={_LINKER}",) if context.llvm.has(f"ld.{_LINKER}") else ()),
        *map(str, anchor),
        *(made.get(item, item) for item in options.link_items),
        *(_runtime_arguments(context, runtime) if has_runtime else ()),
        *(_device_arguments(context, runtime) if has_device else ()),
        *(_language_arguments(options.inputs)),
    ]
    argv = (str(context.llvm.tool("clang")), *arguments, "-o", str(output))
    if not has_device or Kind.CUDA not in runtime.kinds:
        return Command(argv)
    # The clang that the wrapper of LLVM 19 runs for bitcode looks for ptxas on PATH.
    path = os.pathsep.join((str(_cuda_directory(context) / "bin"), context.search_path))
    return Command(argv, environment=(("PATH", path),))


def _runtime_arguments(context: BuildContext, runtime: HostRuntime) -> tuple[str, ...]:
    cuda = context.cuda
    libraries = runtime_link_arguments(
        runtime.kinds,
        cudart=(cuda.cudart_static or cuda.cudart) if cuda else None,
        libomptarget=context.llvm.libomptarget,
    )
    return (str(runtime.object), *libraries)


def _device_arguments(context: BuildContext, runtime: HostRuntime) -> list[str]:
    """Return what the linker wrapper needs to link the device code of each kind."""
    abi = load_abi(context.consumer)
    jobs = context.executor.slots.for_child(takes_jobserver=abi.takes_jobserver)
    arguments = [f"-Wl,--wrapper-jobs={jobs}"]
    if Kind.CUDA in runtime.kinds:
        arguments += abi.cuda_path_arguments(_cuda_directory(context))
        arguments += abi.device_opt_arguments(NVPTX_TRIPLE, context.options.opt_level)
        feature = _ptx_feature(context, runtime.archs)
        arguments += abi.device_feature_arguments(NVPTX_TRIPLE, feature)
    if Kind.OPENMP in runtime.kinds:
        # The wrapper links images for the host with --no-undefined; kernels may call libm.
        arguments.append(f"-Wl,--device-linker={host_triple()}=-lm")
    return arguments


def _cuda_directory(context: BuildContext) -> Path:
    return context.workspace / "cuda"


def _make_cuda_directory(context: BuildContext) -> None:
    """Make the directory in which the linker wrapper finds the tools of CUDA, wherever they lie."""
    cuda = context.cuda
    if cuda is None or cuda.ptxas is None or cuda.nvlink is None or cuda.fatbinary is None:
        msg = "linking device code for CUDA needs ptxas, nvlink and fatbinary"
        raise ToolchainError(msg, hint="pip install 'mlir-offload[cuda]', or give --cuda-path=")
    tools = ("--ptxas", cuda.ptxas, "--nvlink", cuda.nvlink, "--fatbinary", cuda.fatbinary)
    release = ("--cuda-version", str(cuda.version), "--for-clang", str(context.consumer))
    context.executor.step("cuda-directory", (*tools, *release, "-o", _cuda_directory(context)))


def _language_arguments(inputs: Sequence[Path]) -> tuple[str, ...]:
    return ("-lm", *(("-lstdc++",) if any(path.suffix in _CPP_SUFFIXES for path in inputs) else ()))
