"""Make a bundle: everything that another host needs to compile and link a lowered program."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver.bundle.pack import pack_bundle
from mlir_offload.driver.bundle.requirement import llvm_requirement
from mlir_offload.driver.bundle.unit import LoweredUnit, lower_unit
from mlir_offload.driver.compile.context import Build, BuildContext, open_build
from mlir_offload.driver.compile.outputs import check_outputs
from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.option.command_line import (
    MLIR_SUFFIXES,
    CompileOptions,
    check_input,
    parse_arguments,
)
from mlir_offload.driver.option.subcommand import check_spelled
from mlir_offload.driver.system.parallel import parallel_map
from mlir_offload.driver.tools.choose import (
    FoundTools,
    choose_targets,
    choose_toolkit,
    places_for,
)
from mlir_offload.driver.tools.releases import Releases, learn_llvm, learn_named
from mlir_offload.offload.abi import ANY_CONSUMER, load_abis
from mlir_offload.offload.container.mob_manifest import LlvmRequirement
from mlir_offload.offload.kind_format import CodeMakers, check_targets, format_of, have_one_number
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.llvm import choose_llvm, llvm_probe
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.search import find_llvm
from mlir_offload.toolchain.target import uses_cuda
from mlir_offload.toolchain.tool import Role
from mlir_offload.translate.prefix_map import PrefixMap

_SUBCOMMAND = "bundle"
_WITH_LIBRARIES = "--with-device-libs"
_SUFFIXES = MLIR_SUFFIXES | {".ll", ".bc"}


def bundle(arguments: Sequence[str], runner: Runner) -> int:
    """Run `mlir-offload bundle`; return its exit status.

    Raises UsageError, SourceError for an invalid program, ToolchainError without an LLVM that lowers MLIR.
    """
    options = parse_arguments([word for word in arguments if word != _WITH_LIBRARIES])
    check_spelled(_SUBCOMMAND, options.spelled)
    output = _checked_output(options)
    options = replace(
        options,
        offload_archs=options.offload_archs or _default_archs(),
        prefix_maps=(*_without_places(options), *options.prefix_maps),
    )
    with open_build(options, runner) as opened:
        context, requirement = _with_consumer(_context(opened))
        tasks = [partial(lower_unit, context, *pair) for pair in enumerate(options.inputs)]
        units = parallel_map(tasks)
        made = opened.workspace / "bundle.mob"
        if not options.dry_run:
            library = _library(context, runner, units) if _WITH_LIBRARIES in arguments else None
            made.write_bytes(pack_bundle(context, units, requirement, library))
        context.executor.place(made, output)
    return 0


def _checked_output(options: CompileOptions) -> Path:
    """Return the path of the bundle. Raises UsageError for an input that a bundle cannot contain."""
    for path in options.inputs:
        check_input(path)
        if path.suffix not in _SUFFIXES:
            msg = f"{path}: a bundle holds what was lowered from MLIR, not {path.suffix} files"
            raise UsageError(msg, hint="give it to 'mlir-offload link' with the bundle")
    if options.output is None:
        msg = "bundle needs an output"
        raise UsageError(msg, hint=f"add -o {options.inputs[0].stem}.mob")
    check_outputs(options)
    return options.output


def _default_archs() -> tuple[str, ...]:
    """Return the only target that every host has; the GPUs of this host may differ from those of the link host."""
    show_note("no --offload-arch=: for the CPU of the link host (--offload-arch=host)")
    return ("host",)


def _without_places(options: CompileOptions) -> tuple[PrefixMap, ...]:
    """Return prefix maps that remove the directories of the sources from debug information."""
    here = f"{Path.cwd()}/"
    parents = [f"{path.parent}/" for path in options.inputs if path.is_absolute()]
    return tuple(PrefixMap(place, "") for place in dict.fromkeys((here, *parents)))


def _context(opened: Build) -> BuildContext:
    """Choose the lowering LLVM. The linking LLVM need not be installed on this host."""
    options = opened.options
    places = places_for(options.llvm, options.cuda_path)
    roles = (Role.LOWER,)
    llvm = choose_llvm(find_llvm(places), places.llvm, llvm_probe(opened.runner), roles=roles)
    learn_named(options.for_clang, places, opened.runner, os.environ)
    targets = choose_targets(options.offload_archs)
    kinds = {target.kind for target in targets}
    learn_llvm(llvm, kinds, opened.runner, lowers=True, sources=options.inputs)
    named = options.for_clang.isdecimal()
    releases = Releases(llvm, llvm, int(options.for_clang) if named else llvm.version.major)
    for target in targets:
        if not format_of(target.kind).is_bundled:
            msg = f"--offload-arch={target}: a bundle holds kernels for GPUs of NVIDIA and AMD and the CPU"
            raise UsageError(msg, hint="compile with -c, and link the object there")
    # Report architectures that LLVM does not support before any work.
    for major in {llvm.version.major, releases.consumer}:
        check_targets(targets, CodeMakers(major, major))
    sources = {opened.workspace / str(n): path for n, path in enumerate(options.inputs)}
    return opened.context(FoundTools(places, releases, targets), sources=sources)


def _with_consumer(context: BuildContext) -> tuple[BuildContext, LlvmRequirement]:
    """Return the context for the linking releases, and these releases.

    Without --for-clang= they are as many as possible: those with the entry layout of the lowering LLVM, or any
    release if newer ones have another layout. HIP cannot be compiled for any release, because its enum value
    differs.
    """
    producer = context.mlir.version.major
    if context.options.for_clang:
        return context, llvm_requirement(context.for_clang, producer)
    own = llvm_requirement(str(producer), producer)
    kinds = {target.kind for target in context.targets}
    if own.last is None or not have_one_number(kinds, load_abis(ANY_CONSUMER)):
        return context, own
    options = replace(context.options, for_clang=ANY_CONSUMER)
    return replace(context, options=options), llvm_requirement(ANY_CONSUMER, producer)


def _library(context: BuildContext, runner: Runner, units: Sequence[LoweredUnit]) -> Path | None:
    """Return libdevice if a kernel calls it. Raises ToolchainError if it is not installed."""
    devices = [device for unit in units for device in unit.devices]
    if not any(device.needs_libdevice for device in devices if uses_cuda((device.kind,))):
        return None
    return choose_toolkit(places_for(cuda_path=context.options.cuda_path), runner).libdevice
