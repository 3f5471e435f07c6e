"""The files that a link read, from the dependency file of the linker."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.compile.context import BuildContext, notes_dependencies
from mlir_offload.driver.option.command_line import final_outputs
from mlir_offload.driver.option.link_line import parse_link_line
from mlir_offload.driver.system import depfile

_OTHER_LINKER = "-fuse-ld="
_LLD = frozenset({"-fuse-ld=lld", "-fuse-ld=ld.lld"})


def uses_lld(context: BuildContext) -> bool:
    """Return whether the linker is lld, by default or by an option of the user."""
    chosen = [item for item in context.options.link_items if item.startswith(_OTHER_LINKER)]
    return chosen[-1] in _LLD if chosen else context.llvm.has("ld.lld")


def noting_arguments(context: BuildContext) -> tuple[str, ...]:
    """Return the option by which lld writes the files that it reads; not every other linker has one."""
    if not uses_lld(context) or not notes_dependencies(context.options):
        return ()
    return (f"-Wl,--dependency-file={_rule(context)}",)


def note_read_files(context: BuildContext) -> None:
    """Add the inputs of the link to the dependencies: objects, libraries, linker scripts.

    Objects that this invocation compiled are excluded. If the linker wrote no dependency file, only the files
    on the command line are added.
    """
    (output,) = final_outputs(context.options)
    items = parse_link_line(context.options.link_items)
    named = dict.fromkeys(item.path for item in items if item.path)
    made = set(context.compiled)
    for path in (*named, *_read(context)):
        if path not in made:
            context.dependencies.add(output, path, is_system=path not in named)


def _read(context: BuildContext) -> list[Path]:
    rule = _rule(context)
    if not rule.is_file():
        return []
    text = rule.read_text(encoding="utf-8", errors="surrogateescape")
    own = context.workspace.absolute()
    found = map(Path, depfile.read_prerequisites(text))
    # Exclude the temporary files of the linker wrapper, which it has removed.
    return [path for path in found if own not in path.absolute().parents and path.exists()]


def _rule(context: BuildContext) -> Path:
    return context.workspace / "linked.d"
