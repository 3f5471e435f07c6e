"""Host code: how clang compiles it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.option.command_line import Mode
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.process import Command, as_operand

# These make clang write files next to the object, whose names the object may contain.
_DUMPS = (
    "-gsplit-dwarf",
    "--coverage",
    "-coverage",
    "-ftest-coverage",
    "-fprofile-arcs",
    "-ftime-trace",
)
_RECORD, _STACK_USAGE = "-fsave-optimization-record", "-fstack-usage"
# LLVM 17 added -dumpdir (clang/docs/ReleaseNotes.rst of 17).
_FIRST_WITH_DUMPDIR = 17


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


def dump_arguments(context: BuildContext, source: Path) -> Iterator[str]:
    """Yield how clang names the files that it writes besides the object: those go next to the user's output.

    The object itself is compiled in the workspace. Raises CompatibilityError if clang is too old to be told.
    """
    options = context.options
    words = {word.partition("=")[0] for word in options.compiler_arguments}
    output = options.output or Path(f"{source.stem}.o" if options.stop_after_compile else "a.out")
    is_plain = options.stop_after_compile and output.stem == source.stem
    prefix = f"{output.parent}/" if is_plain else f"{output.with_suffix('')}-"
    if named := words.intersection(_DUMPS):
        if context.consumer < _FIRST_WITH_DUMPDIR:
            msg = f"clang {context.consumer} cannot write the files of {min(named)} next to the output"
            raise CompatibilityError(
                msg, hint="use LLVM 17 or newer, or compile C and C++ with clang"
            )
        yield from ("-dumpdir", prefix)
    if _RECORD in words and "-foptimization-record-file" not in words:
        record = f"{prefix if options.stop_after_compile else ''}{source.stem}.opt.yaml"
        yield f"-foptimization-record-file={record}"
    if _STACK_USAGE in words:
        yield from ("-Xclang", "-stack-usage-file", "-Xclang", f"{prefix}{source.stem}.su")
