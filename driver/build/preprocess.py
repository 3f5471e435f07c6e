"""Modes that end before compilation: `-E`, `-M`, `-MM` and `-fsyntax-only`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from mlir_offload.driver.compile import gpu_cpp
from mlir_offload.driver.compile.clang_error import clang_error
from mlir_offload.driver.compile.context import BuildContext, clang_depfile_arguments
from mlir_offload.driver.compile.normalize import normalized
from mlir_offload.driver.option.command_line import read_besides
from mlir_offload.driver.option.compile_options import GPU_CPP, PREPROCESSED_SUFFIXES, Mode
from mlir_offload.driver.system.depfile import quote_for_make, render_rule
from mlir_offload.driver.system.parallel import parallel_map
from mlir_offload.toolchain.process import Command, as_operand


def check_syntax(context: BuildContext) -> None:
    """Parse and verify each input. Raises SourceError for an invalid one."""
    parallel_map([partial(_check, context, *pair) for pair in context.compiled.items()])


def _check(context: BuildContext, source: Path, output: Path) -> None:
    if source.suffix in GPU_CPP:
        context.executor.make_directory(output.parent)
        gpu_cpp.compile_gpu_cpp(context, source, output)
    elif source.suffix in PREPROCESSED_SUFFIXES:
        rule = clang_depfile_arguments(context.options, source, output)
        if rule:
            context.executor.make_directory(output.parent)
        command = _clang(context, source, "-fsyntax-only", *rule)
        context.executor.tool(command, None, diagnose=clang_error)
    else:
        context.wait_for(normalized(output.parent))


def preprocess(context: BuildContext) -> list[Path]:
    """Return the preprocessed inputs, or for -M and -MM a Make rule per input; with -MF one file with all rules."""
    parallel_map([partial(_preprocess, context, *pair) for pair in context.compiled.items()])
    made = list(context.compiled.values())
    if context.options.mode is not Mode.RULE or not context.options.depfile.file:
        return made
    first, *others = made
    if not context.options.dry_run:
        with first.open("ab") as stream:
            stream.writelines(other.read_bytes() for other in others)
    return [first]


def _preprocess(context: BuildContext, source: Path, output: Path) -> None:
    options = context.options
    context.executor.make_directory(output.parent)
    wants_rule = options.mode is Mode.RULE
    if source.suffix not in PREPROCESSED_SUFFIXES or source.suffix in GPU_CPP:
        output.write_bytes(os.fsencode(_rule(context, source, output) if wants_rule else ""))
        return
    forms = ("-M" if options.depfile.has_system_files else "-MM", *_targets(context, source))
    phony = ("-MP",) if options.depfile.has_phony_targets else ()
    rule = clang_depfile_arguments(options, source, output)
    stage = (*forms, *phony) if wants_rule else ("-E", *rule)
    command = _clang(context, source, *stage, "-o", str(output))
    context.executor.tool(command, output if wants_rule else None, diagnose=clang_error)


def _clang(context: BuildContext, source: Path, *stage: str) -> Command:
    clang = str(context.llvm.tool("clang"))
    return Command((clang, *stage, *context.options.compiler_arguments, as_operand(str(source))))


def _targets(context: BuildContext, source: Path) -> tuple[str, ...]:
    named = context.options.depfile.targets or (quote_for_make(f"{source.stem}.o"),)
    return tuple(word for target in named for word in ("-MT", target))


def _rule(context: BuildContext, source: Path, output: Path) -> str:
    """Return the rule of a source that clang does not preprocess, or preprocesses several times."""
    options = context.options
    targets = options.depfile.targets or (quote_for_make(f"{source.stem}.o"),)
    if source.suffix in GPU_CPP:
        others = gpu_cpp.read_files(context, source, output)
    else:
        others = tuple(map(str, read_besides(options)))
    return render_rule(targets, [str(source)], others, phony=options.depfile.has_phony_targets)
