"""Host code: how clang compiles it."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.option.command_line import Mode
from mlir_offload.toolchain.process import Command, as_operand


def host_command(context: BuildContext, source: Path, output: Path, *extra: str) -> Command:
    """Return the command by which the consumer's clang compiles a host file, of any language."""
    options = context.options
    form = {
        Mode.LLVM_BITCODE: ("-c", "-emit-llvm"),
        Mode.LLVM_TEXT: ("-S", "-emit-llvm"),
        Mode.ASSEMBLY: ("-S",),
    }.get(options.mode, ("-c",))
    flags = (
        options.opt_flag,
        *((options.debug_spelled,) if options.debug else ()),
        *(("-fPIC",) if options.pic or options.shared else ()),
        *((options.sanitizer.flag,) if options.sanitizer else ()),
        # The triple and layout that mlir-translate leaves out are this clang's own.
        *(("-Wno-override-module",) if source.suffix in {".ll", ".bc"} else ()),
    )
    is_ir = source.suffix in {".ll", ".bc"}
    arguments = options.code_arguments if is_ir else options.compiler_arguments
    clang = str(context.llvm.tool("clang"))
    return Command(
        (clang, *form, *flags, *arguments, *extra, as_operand(str(source)), "-o", str(output))
    )
