"""Find kernel parameters in textual IR that must stay in constant memory and that an older LLVM copies."""

from __future__ import annotations

from collections.abc import Collection

from mlir_offload.toolchain.pattern import ir_line, ir_pattern

_LOCAL = ir_pattern("`local`")
_READ = ir_line("`indent``name:local` = `operation:load|getelementptr` ")
_DEBUG = ir_line("`indent``#dbg_|call void @llvm.dbg.``rest`")


def has_copied_parameter(parameters: str, body: str, attribute: str) -> bool:
    """Return whether a parameter with an attribute has uses of its address other than loads.

    Every release loads from the parameter itself. For other uses, a release that does not read the attribute copies it.
    """
    quoted = f'"{attribute}"'
    parts = [part.partition(quoted)[2] for part in parameters.split(",") if quoted in part]
    named = [match[0] for match in map(_LOCAL.search, parts) if match]
    # LLVM prints a name for each parameter; handwritten text may have none.
    return len(named) < len(parts) or _escapes(named, body)


def _escapes(names: Collection[str], body: str) -> bool:
    """Return whether one of the values, or an address derived from it, is used by anything but a load."""
    addresses, before = set(names), 0
    # Iterate, because a block may precede its dominator in the text.
    while before < len(addresses):
        before = len(addresses)
        for line in body.splitlines():
            read = _READ.match(line)
            used = _LOCAL.findall(line[read.end() :] if read else line)
            if addresses.isdisjoint(used) or _DEBUG.match(line):
                continue
            if read is None:
                return True
            if read["operation"] == "getelementptr":
                addresses.add(read["name"])
    return False
