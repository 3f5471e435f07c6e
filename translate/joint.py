"""The host text and device modules of a program as one text, so that one mlir-opt lowers them all.

Half of what a small program costs is the start of mlir-opt and of mlir-translate. Each part stays a
module of its own, that of a device in a `gpu.module`, which tells mlir-opt what passes it gets.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir_offload.toolchain.errors import ToolFailedError
from mlir_offload.translate.mlir.module import Module, parse_module

_MODULE_BEGIN, _MODULE_END = '"builtin.module"(', "})"
_HEAD, _TAIL = '"builtin.module"() ({', "}) : () -> ()"
_DEVICES = '"gpu.module"() <{sym_name = "devices"}> ({'
_RESOURCES = "{-#"
_MARK = "; ModuleID = "
# What mlir-translate takes for the border of two inputs.
_BORDER = "\n// -----\n"


def join_program(host: str, devices: Sequence[str]) -> str | None:
    """Return one text of a host text and of device modules; None where they cannot be joined.

    Resources and aliases stand outside of all modules: they cannot be joined where they disagree.
    """
    parts = [_lines(text) for text in (host, *devices)]
    if any(_RESOURCES in tail for _, _, tail in parts) or not _agree(parts):
        return None
    head, tail = ([line for part in parts for line in part[side]] for side in (0, 2))
    (_, first, _), *others = parts
    body = (line for _, module, _ in others for line in module)
    program = (_HEAD, *first, _DEVICES, *body, _TAIL, _TAIL)
    return "\n".join((*dict.fromkeys(head), *program, *dict.fromkeys(tail), ""))


_Part = tuple[list[str], list[str], list[str]]


def _lines(text: str) -> _Part:
    """Return the lines before a module, of it, and behind it."""
    lines = [line for line in text.split("\n") if line]
    begin = next(i for i, line in enumerate(lines) if line.startswith(_MODULE_BEGIN))
    end = next(i for i in range(begin, len(lines)) if lines[i].startswith(_MODULE_END))
    return lines[:begin], lines[begin : end + 1], lines[end + 1 :]


def _agree(parts: Sequence[_Part]) -> bool:
    """Say whether an alias is the same in all parts."""
    lines = {line for head, _, tail in parts for line in (*head, *tail)}
    return len(lines) == len({line.partition(" = ")[0] for line in lines})


def joint_pipeline(host: str, device: str) -> str:
    """Return the pipeline for a joined program, of those for the host text and for a device module."""
    return f"builtin.module({host},gpu.module({device}))"


def separate_program(text: str) -> tuple[Module, tuple[Module, ...]]:
    """Return the host module and the device modules of a joined program that mlir-opt has lowered.

    Raises ToolFailedError for another text.
    """
    whole = parse_module(text)
    found = {operation.name: operation for operation in whole.operations}
    if found.keys() != {"builtin.module", "gpu.module"}:
        msg = f"mlir-opt made of a joined program: {', '.join(found) or 'nothing'}"
        raise ToolFailedError(
            msg, hint="report this with the input and the output of 'mlir-opt --version'"
        )
    devices = (op for op in found["gpu.module"].operations if op.name == "builtin.module")
    host, *others = (
        Module(whole.head, operation, whole.tail)
        for operation in (found["builtin.module"], *devices)
    )
    return host, tuple(others)


def bordered(texts: Sequence[str]) -> str:
    """Return modules as mlir-translate takes several of them, with --split-input-file."""
    return _BORDER.join(texts)


def ir_modules(text: str) -> list[str]:
    """Return the modules of LLVM IR that mlir-translate wrote one behind the other."""
    # A string has its line ends escaped: no line of another meaning begins so.
    _, *modules = f"\n{text}".split(f"\n{_MARK}")
    return [f"{_MARK}{module.rstrip()}\n" for module in modules]
