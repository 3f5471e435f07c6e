"""Arguments that nothing uses, as clang warns of them."""

from __future__ import annotations

from collections.abc import Iterator

from mlir_offload.driver.message.report import show_warning
from mlir_offload.driver.option.compile_options import PREPROCESSED_SUFFIXES, CompileOptions, Mode
from mlir_offload.driver.option.table import COMPILER

_HIDDEN = "-Wno-unused-command-line-argument"
# clang takes these for inputs of the linker.
_LINKER_INPUTS = frozenset(("-l", "-Wl,", "-Xlinker"))
UNUSED = "[-Wunused-command-line-argument]"


def warn_of_unused(options: CompileOptions) -> None:
    """Warn of arguments that say nothing for these inputs and this stage."""
    if options.hides_unused or _HIDDEN in options.compiler_arguments:
        return
    for text in _unused(options):
        show_warning(f"{text} {UNUSED}", "")


def _unused(options: CompileOptions) -> Iterator[str]:
    is_preprocessed = any(path.suffix in PREPROCESSED_SUFFIXES for path in options.inputs)
    is_linked = options.mode is Mode.LINK
    for name, value in options.spelled:
        found = COMPILER.find(name)
        inputs = found[0].inputs if found else ""
        if (inputs == "preprocessor" and not is_preprocessed) or (
            inputs == "link" and not is_linked
        ):
            shown = _as_clang_shows(name.rstrip(" "), value)
            if name in _LINKER_INPUTS:
                yield f"{shown}: 'linker' input unused"
            else:
                yield f"argument unused during compilation: '{shown}'"
    if options.mode is Mode.PREPROCESSED:
        others = (path for path in options.inputs if path.suffix not in PREPROCESSED_SUFFIXES)
        yield from (f"{path}: previously preprocessed input" for path in others)
    yield from (f"argument unused during compilation: '{word}'" for word in options.unused)


def _as_clang_shows(name: str, value: str) -> str:
    """Return an argument as clang spells it: what can be the next word is."""
    is_one_word = name.endswith(("=", ",")) or name in {"-l", "-L"} or not value
    return f"{name}{value}" if is_one_word else f"{name} {value}"
