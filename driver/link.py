"""Link objects to a program or shared library, and check that no kernel was lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mlir_offload.driver.context import BuildContext
from mlir_offload.driver.options import as_operand
from mlir_offload.driver.parallel import beside
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.coverage import check_coverage, check_duplicates, check_entry_layout
from mlir_offload.offload.objects import ObjectContents, read_objects
from mlir_offload.offload.runtime import runtime_compile_command, runtime_link_arguments
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import NVPTX_TRIPLE, Kind, host_triple

_LINKER = "lld"
_CPP_SUFFIXES = frozenset({".cc", ".cpp", ".cxx"})
CompileInputs = Callable[[], dict[Path, Path]]


@dataclass(frozen=True, slots=True)
class _Runtime:
    """The runtime of a link: its object, the kinds that it serves, GPU architectures in it."""

    object: Path
    kinds: frozenset[Kind]
    archs: tuple[str, ...]


def link(context: BuildContext, compile_inputs: CompileInputs, workspace: Path) -> Path:
    """Compile the inputs that are no objects, link all, check the result, and return its path.

    Raises VerificationError where the result would lack a kernel: it is not kept then.
    """
    runtime = _runtime(context, workspace)
    if runtime.kinds:
        # It does not depend on the inputs, so that it costs no time of its own on two processors.
        _, objects = beside(partial(_compile_runtime, context, runtime), compile_inputs)
    else:
        objects = compile_inputs()
    made = [item for path in objects.values() if path.exists() for item in read_objects(path)]
    contents = (*context.given, *made)
    _check_inputs(context, contents)
    linked = workspace / "linked"
    context.executor.tool(_link_command(context, objects, contents, runtime, linked), linked)
    if linked.exists():
        check_coverage(linked, contents)
    return linked


def _runtime(context: BuildContext, workspace: Path) -> _Runtime:
    kinds = {target.kind for target in context.targets}
    kinds |= {kind for kind in Kind for item in context.given if kind in item.kinds}
    archs = {target.arch for target in context.targets_of(Kind.CUDA)}
    archs |= {image.arch for item in context.given for image in item.images if image.kind == Kind.CUDA}
    return _Runtime(workspace / "runtime.o", frozenset(kinds), tuple(sorted(archs)))


def _compile_runtime(context: BuildContext, runtime: _Runtime) -> None:
    command = runtime_compile_command(
        context.llvm.tool("clang"),
        runtime.object,
        kinds=runtime.kinds,
        archs=runtime.archs,
        standin=context.llvm.libomptarget is None,
    )
    context.executor.tool(command, runtime.object)


def _check_inputs(context: BuildContext, contents: Sequence[ObjectContents]) -> None:
    check_entry_layout(contents, load_abi(context.consumer))
    check_duplicates(contents)


def _link_command(
    context: BuildContext,
    objects: Mapping[Path, Path],
    contents: Sequence[ObjectContents],
    runtime: _Runtime,
    output: Path,
) -> Command:
    """Return the call of clang; it runs the linker wrapper only where there is device code."""
    options = context.options
    dry = options.dry_run
    has_device = any(item.images for item in contents) or (dry and bool(context.targets))
    has_runtime = any(item.runtime_symbols for item in contents) or (dry and bool(context.targets))
    made = {_as_operand(path): str(made) for path, made in objects.items()}
    arguments = [
        *(("--offload-link",) if has_device else ()),
        *(("-shared",) if options.shared else ()),
        *((f"-fuse-ld={_LINKER}",) if context.llvm.has(f"ld.{_LINKER}") else ()),
        *(made.get(item, item) for item in options.link_items),
        *(_runtime_arguments(context, runtime) if has_runtime else ()),
        *(_device_arguments(context, runtime) if has_device else ()),
        *(_language_arguments(options.inputs)),
    ]
    return Command((str(context.llvm.tool("clang")), *arguments, "-o", str(output)))


def _as_operand(path: Path) -> str:
    return as_operand(str(path))


def _runtime_arguments(context: BuildContext, runtime: _Runtime) -> tuple[str, ...]:
    cuda = context.cuda
    libraries = runtime_link_arguments(
        runtime.kinds,
        cudart=(cuda.cudart_static or cuda.cudart) if cuda else None,
        libomptarget=context.llvm.libomptarget,
    )
    return (str(runtime.object), *libraries)


def _device_arguments(context: BuildContext, runtime: _Runtime) -> list[str]:
    """Return what the linker wrapper needs to link the device code of each kind."""
    abi = load_abi(context.consumer)
    arguments: list[str] = []
    if Kind.CUDA in runtime.kinds:
        arguments += abi.cuda_path_arguments(_cuda_directory(context))
        arguments += abi.device_opt_arguments(NVPTX_TRIPLE, context.options.opt_level)
    if Kind.OPENMP in runtime.kinds:
        # The wrapper links images for the host with --no-undefined; kernels may call libm.
        arguments.append(f"-Wl,--device-linker={host_triple()}=-lm")
    return arguments


def _cuda_directory(context: BuildContext) -> Path:
    """Make the directory in which the linker wrapper finds the tools of CUDA, wherever they lie."""
    cuda, directory = context.cuda, context.workspace / "cuda"
    if cuda is None or cuda.ptxas is None or cuda.nvlink is None or cuda.fatbinary is None:
        msg = "linking device code for CUDA needs ptxas, nvlink and fatbinary"
        raise ToolchainError(msg, hint="pip install 'mlir-offload[cuda]', or give --cuda-path=")
    tools = ("--ptxas", cuda.ptxas, "--nvlink", cuda.nvlink, "--fatbinary", cuda.fatbinary)
    release = ("--cuda-version", str(cuda.version), "--for-clang", str(context.consumer))
    context.executor.step("cuda-directory", (*tools, *release, "-o", directory))
    return directory


def _language_arguments(inputs: Sequence[Path]) -> tuple[str, ...]:
    return ("-lm", *(("-lstdc++",) if any(path.suffix in _CPP_SUFFIXES for path in inputs) else ()))
