"""Link objects to a program or shared library, and check that no kernel was lost."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from mlir_offload.driver.compile import compile_inputs, host_command
from mlir_offload.driver.context import BuildContext
from mlir_offload.driver.device import ImageFile
from mlir_offload.driver.finish import DeviceLink, finish_collisions
from mlir_offload.driver.jobserver import JobSlots
from mlir_offload.driver.link_error import diagnose_link
from mlir_offload.driver.link_line import parse_link_line
from mlir_offload.driver.options import CUDA_SUFFIX, as_operand
from mlir_offload.driver.report import show_note
from mlir_offload.driver.runtime import HostRuntime, host_runtime
from mlir_offload.driver.whole_archive import without_whole_archives
from mlir_offload.offload.abi import first_relocatable_link, load_abi
from mlir_offload.offload.anchor import (
    empty_image_command,
    is_bitcode_target,
    targets_to_anchor,
)
from mlir_offload.offload.coverage import check_coverage
from mlir_offload.offload.duplicate import duplicate_findings, find_duplicates
from mlir_offload.offload.finding import raise_findings
from mlir_offload.offload.kernel_layout import check_layouts
from mlir_offload.offload.link_check import check_link, kind_notes
from mlir_offload.offload.objects import ObjectContents, read_objects
from mlir_offload.offload.runtime import runtime_link_arguments
from mlir_offload.offload.sparse_runtime import (
    is_sparse,
    sparse_compile_command,
    sparse_link_arguments,
)
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import AMDGPU_TRIPLE, NVPTX_TRIPLE, Kind, host_triple

_LINKER = "lld"
_CPP_SUFFIXES = frozenset({".cc", ".cpp", ".cxx", CUDA_SUFFIX})


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
    if Kind.CUDA in runtime.kinds:
        _make_cuda_directory(context)
    finished = finish_collisions(context, contents, _device_link(context, runtime))
    anchor = _make_anchor(context, finished.remaining)
    line = without_whole_archives(context, contents, _link_items(context, finished.replaced))
    command = _link_command(context, (*map(str, anchor), *line), contents, runtime, linked)
    context.executor.tool(command, linked, diagnose=partial(diagnose_link, finished.apart))
    if linked.exists():
        name = str(context.options.output or "a.out")
        check_coverage(linked, contents, name=name)
        if Kind.HIP in runtime.kinds:
            check_layouts(linked, finished.remaining, name=name)
    return linked


def _check_inputs(context: BuildContext, contents: Sequence[ObjectContents]) -> None:
    """Refuse what the link would lose, all of it in one error.

    Kernels of one name are a fault here only where the release cannot link their objects apart.
    """
    abi = load_abi(context.consumer)
    findings = check_link((*contents, *context.linked), abi)
    if not abi.has_relocatable_link:
        cure = f"LLVM {first_relocatable_link()} and newer keep such kernels apart"
        findings += duplicate_findings(find_duplicates(contents), other_cure=cure)
    raise_findings(findings)
    for note in kind_notes(contents):
        show_note(note)


def _make_anchor(context: BuildContext, contents: Sequence[ObjectContents]) -> tuple[Path, ...]:
    """Return the object without which device code that only libraries have would be lost."""
    executor, directory = context.executor, context.workspace / "anchor"
    targets = targets_to_anchor(contents, load_abi(context.consumer))
    if not targets:
        return ()
    executor.make_directory(directory)
    images = []
    for number, target in enumerate(targets):
        path = directory / f"empty{number}.{'bc' if is_bitcode_target(target) else 'o'}"
        is_ptx = target.triple == NVPTX_TRIPLE
        feature = _ptx_feature(context, (target.arch,)) if is_ptx else ""
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


def _link_items(context: BuildContext, finished: Mapping[str, str]) -> list[str]:
    """Return the link line with what the sources were compiled to, and what was finished."""
    made = {as_operand(str(path)): str(made) for path, made in context.compiled.items()}
    made |= finished
    items: Sequence[str] = context.options.link_items
    if finished:
        # A library may be named between options of one `-Wl,`.
        items = [word.text for word in parse_link_line(items)]
    return [made.get(item, item) for item in items]


def _link_command(
    context: BuildContext,
    items: Sequence[str],
    contents: Sequence[ObjectContents],
    runtime: HostRuntime,
    output: Path,
) -> Command:
    """Return the call of clang; it runs the linker wrapper only where there is device code."""
    options = context.options
    dry = options.dry_run
    has_device = any(item.images for item in contents) or (dry and bool(context.targets))
    has_runtime = any(item.runtime_symbols for item in contents) or (dry and bool(context.targets))
    # Host code of CUDA C++ calls the CUDA runtime itself; for Intel GPUs there is no runtime of ours.
    has_runtime = (has_runtime or options.has_cuda_cpp) and bool(runtime.kinds)
    device = _device_link(context, runtime)
    arguments = [
        *(("--offload-link",) if has_device else ()),
        *(("-shared",) if options.shared else ()),
        *((f"-fuse-ld={_LINKER}",) if context.llvm.has(f"ld.{_LINKER}") else ()),
        *items,
        *(_runtime_arguments(context, runtime) if has_runtime else ()),
        *(_sparse_arguments(context, contents, runtime) if has_runtime else ()),
        *(device.arguments if has_device else ()),
        *(_language_arguments(options.inputs)),
    ]
    argv = (str(context.llvm.tool("clang")), *arguments, "-o", str(output))
    return Command(argv, environment=device.environment if has_device else ())


def _runtime_arguments(context: BuildContext, runtime: HostRuntime) -> tuple[str, ...]:
    cuda = context.cuda
    libraries = runtime_link_arguments(
        runtime.kinds,
        cudart=(cuda.cudart_static or cuda.cudart) if cuda else None,
        libomptarget=context.llvm.libomptarget,
        libamdhip=context.rocm.runtime if context.rocm else None,
    )
    return (str(runtime.object), *libraries)


def _sparse_arguments(
    context: BuildContext, contents: Sequence[ObjectContents], runtime: HostRuntime
) -> tuple[str, ...]:
    """Compile the runtime's part for sparse matrices where it is called; return how to link it."""
    symbols = frozenset().union(*(item.runtime_symbols for item in contents))
    if not is_sparse(symbols, runtime.kinds) or context.cuda is None:
        return ()
    libraries = sparse_link_arguments(context.cuda.root)
    output = context.workspace / "sparse.o"
    context.executor.tool(sparse_compile_command(context.llvm.tool("clang"), output), output)
    return (str(output), *libraries)


def _device_link(context: BuildContext, runtime: HostRuntime) -> DeviceLink:
    """Return what the linker wrapper needs to link the device code of each kind."""
    abi = load_abi(context.consumer)
    # What it makes of several kinds the wrapper (LLVM 19 and 22) links in the order in which it got
    # ready: one job at a time gives equal bytes.
    slots = context.executor.slots if len(runtime.kinds) == 1 else JobSlots(1)
    jobs = slots.for_child(takes_jobserver=abi.takes_jobserver)
    arguments = list(abi.jobs_arguments(jobs))
    if Kind.CUDA in runtime.kinds:
        arguments += abi.cuda_path_arguments(_cuda_directory(context))
        arguments += abi.device_opt_arguments(NVPTX_TRIPLE, context.options.opt_level)
        # Objects whose device code is linked already leave nothing to compile.
        if archs := runtime.archs(Kind.CUDA):
            feature = _ptx_feature(context, archs)
            arguments += abi.device_feature_arguments(NVPTX_TRIPLE, feature)
    if Kind.HIP in runtime.kinds:
        arguments += abi.device_opt_arguments(AMDGPU_TRIPLE, context.options.opt_level)
    if Kind.OPENMP in runtime.kinds:
        # The wrapper links images for the host with --no-undefined; kernels may call libm.
        arguments.append(f"-Wl,--device-linker={host_triple()}=-lm")
    if Kind.CUDA not in runtime.kinds:
        return DeviceLink(tuple(arguments))
    # The clang that the wrapper of LLVM 19 runs for bitcode looks for ptxas on PATH.
    path = os.pathsep.join((str(_cuda_directory(context) / "bin"), context.search_path))
    return DeviceLink(tuple(arguments), (("PATH", path),))


def _cuda_directory(context: BuildContext) -> Path:
    return context.workspace.absolute() / "cuda"


def _make_cuda_directory(context: BuildContext) -> None:
    """Make the directory in which the linker wrapper finds the tools of CUDA, wherever they lie."""
    cuda = context.cuda
    if cuda is None or cuda.ptxas is None or cuda.nvlink is None or cuda.fatbinary is None:
        msg = "linking device code for CUDA needs ptxas, nvlink and fatbinary"
        raise ToolchainError(msg, hint="pip install 'mlir-offload[cuda]', or give --cuda-path=")
    tools = ("--ptxas", cuda.ptxas, "--nvlink", cuda.nvlink, "--fatbinary", cuda.fatbinary)
    release = ("--cuda-version", str(cuda.version), "--for-clang", str(context.consumer))
    time = ("--time", str(context.source_time))
    context.executor.step(
        "cuda-directory", (*tools, *release, *time, "-o", _cuda_directory(context))
    )


def _language_arguments(inputs: Sequence[Path]) -> tuple[str, ...]:
    return ("-lm", *(("-lstdc++",) if any(path.suffix in _CPP_SUFFIXES for path in inputs) else ()))
