"""Metadata of kernel entry points: debug locations, and loop metadata for the vectorizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from mlir_offload.offload.ir_syntax import next_metadata_number
from mlir_offload.toolchain.pattern import ir_line, ir_pattern
from mlir_offload.translate.cpu.launch import Metadata
from mlir_offload.translate.cpu.text import DeviceModule, Function

_SUBPROGRAM = ir_pattern("!dbg `node:node``end`")
_LINE = ir_pattern("line: `line:number`")
_SUBPROGRAM_NODE = " = distinct !DISubprogram("
_SCOPE = ir_pattern("scope: `node:node`")
_RETAINED = ir_pattern(", retainedNodes: `node:node`")
_NODE = ir_pattern("`node`")
_LINKAGE_NAME = ir_pattern(', linkageName: "`string`"')
_LOCATION = ir_line("`node` = !DILocation(line: `line:number`,`some` scope: `scope:node`)`end`")


def with_retained_variables(metadata: Iterable[str]) -> list[str]:
    """Add local variables to the `retainedNodes` of their subprograms, as clang does for optimized code.

    Collapsed code has no locations of their values. A debugger reports retained variables as optimized out.
    """
    nodes = {line.partition(" = ")[0]: line for line in metadata}
    variables: dict[str, list[str]] = {}
    for name, line in nodes.items():
        scope = _SCOPE.search(line) if " = !DILocalVariable(" in line else None
        while scope and (owner := nodes.get(scope["node"], "")):
            if _SUBPROGRAM_NODE in owner:
                variables.setdefault(scope["node"], []).append(name)
                break
            scope = _SCOPE.search(owner)
    free = next_metadata_number("\n".join(nodes.values()))
    for subprogram, names in variables.items():
        if _RETAINED.search(nodes[subprogram]) is None:
            nodes[subprogram] = nodes[subprogram].removesuffix(")") + f", retainedNodes: !{free})"
            nodes[f"!{free}"] = f"!{free} = !{{{', '.join(names)}}}"
            free += 1
    return list(nodes.values())


class DebugNodes:
    """Metadata nodes of the generated code, with numbers after those of the module."""

    def __init__(self, device: DeviceModule, attributes: Sequence[str]) -> None:
        """Add the access group and the loop metadata of vectorized loops."""
        self._attributes = "".join(f" {attribute}" for attribute in attributes)
        self._nodes = {line.partition(" = ")[0]: line for line in device.tail}
        # Line numbers of the debug locations, by scope.
        self._places: dict[str, list[str]] = {}
        for place in filter(None, map(_LOCATION.match, device.tail)):
            self._places.setdefault(place[2], []).append(place[1])
        first = self._next = device.next_metadata_id()
        self.lines: list[str] = []
        self._add("distinct !{}")
        self._add(f"distinct !{{!{first + 1}, !{first + 2}, !{first + 3}}}")
        self._add(f'!{{!"llvm.loop.parallel_accesses", !{first}}}')
        self._add('!{!"llvm.loop.vectorize.enable", i1 true}')
        self._group, self._loop = f", !llvm.access.group !{first}", f", !llvm.loop !{first + 1}"

    def _add(self, node: str) -> str:
        number = self._next
        self._next += 1
        self.lines.append(f"!{number} = {node}")
        return f"!{number}"

    def vector(self, debug: Metadata) -> Metadata:
        """Return the metadata with a parallel loop: threads of a block do not depend on each other."""
        return replace(debug, access_group=self._group, loop=self._loop)

    def debug_of(self, item: Function) -> Metadata:
        """Return metadata that gives the entry point of a kernel a copy of the kernel's subprogram.

        Without a subprogram in the entry point, the inlined kernel would lose its line numbers.
        """
        match = _SUBPROGRAM.search(item.head)
        line = self._nodes.get(match[1]) if match else None
        if line is None:
            return Metadata(self._attributes)
        at = _LINE.search(line)
        scope = self._copy_of(_LINKAGE_NAME.sub("", line.split(" = ", 1)[1]))
        location = self._add(f"!DILocation(line: {at[1] if at else 0}, scope: {scope})")
        lines = self._lines_of(match[1], scope) if match else ()
        return Metadata(self._attributes, f" !dbg {scope}", f", !dbg {location}", lines=lines)

    def _copy_of(self, subprogram: str) -> str:
        """Add a copy of a subprogram, with copies of its retained variables."""
        retained = _RETAINED.search(subprogram)
        if retained is None:
            return self._add(subprogram)
        variables = _NODE.findall(self._nodes[retained["node"]].partition(" = ")[2])
        listed = ", ".join(f"!{self._next + 2 + n}" for n in range(len(variables)))
        scope = self._add(_RETAINED.sub(f", retainedNodes: !{self._next + 1}", subprogram))
        self._add(f"!{{{listed}}}")
        for variable in variables:
            text = self._nodes[variable].partition(" = ")[2]
            self._add(_SCOPE.sub(f"scope: {scope}", text, count=1))
        return scope

    def _lines_of(self, subprogram: str, scope: str) -> tuple[str, ...]:
        """Return a location in the generated function for each line of the kernel."""
        own = dict.fromkeys(self._places.get(subprogram, ()))
        return tuple(
            f", !dbg {self._add(f'!DILocation(line: {number}, scope: {scope})')}"
            for number in own
            if number != "0"
        )
