"""Add the source lines of kernels to the host's line table, so that debuggers know them before the load.

If a debugger finds no code for a line, it takes the next line in the file that has some. Without this, a
breakpoint in a kernel would stop in a host function further down.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir_offload.offload.ir_syntax import extend_used_list, next_metadata_number
from mlir_offload.toolchain.pattern import ir_line, ir_pattern

_FUNCTION = "__mo_lines"
_NODE = ir_line("!`number:number` = `distinct ?``node:rest`")
_UNIT = ir_line("!`number:number` = distinct !DICompileUnit(`some` file: !`file:number`")
_PLACE = ir_line("!DILocation(line: `line:number`,`some` scope: !`scope:number`")
_FILE = ir_pattern("file: !`file:number`")


def with_kernel_lines(host: str, devices: Sequence[str]) -> str:
    """Return the host module with the lines of the device code, in a function that is never called.

    A host module without debug information is returned unchanged.
    """
    unit = _UNIT.search(host)
    nodes = dict(_NODE.findall(host))
    own = nodes[unit[2]] if unit else None
    lines = sorted({line for text in devices for file, line in _lines(text) if file == own})
    if not lines or unit is None:
        return host
    scope = next_metadata_number(host)
    head = f'name: "{_FUNCTION}", scope: !{unit[2]}, file: !{unit[2]}, line: {lines[0]}'
    tail = f"scopeLine: {lines[0]}, spFlags: DISPFlagDefinition, unit: !{unit[1]}"
    made = [
        f"!{scope} = distinct !DISubprogram({head}, type: !{scope + 1}, {tail})",
        f"!{scope + 1} = !DISubroutineType(types: !{scope + 2})",
        f"!{scope + 2} = !{{}}",
    ]
    first = scope + len(made)
    made += [
        f"!{first + n} = !DILocation(line: {line}, scope: !{scope})" for n, line in enumerate(lines)
    ]
    body = "".join(_instruction(first + n) for n in range(len(lines)))
    head = f"define internal void @{_FUNCTION}() noinline nounwind !dbg !{scope}"
    text = f"{host}\n{head} {{\n{body}  ret void, !dbg !{first}\n}}\n\n" + "\n".join(made) + "\n"
    return extend_used_list(text, "llvm.used", [_FUNCTION])


def _instruction(location: int) -> str:
    return f'  call void asm sideeffect "nop", ""(), !dbg !{location}\n'


def render_line_nodes(device: str) -> str:
    """Return metadata with the same lines as the device module, for a module that replaces it."""
    by_file: dict[str, list[int]] = {}
    for file, line in sorted(_lines(device)):
        by_file.setdefault(file, []).append(line)
    nodes: list[str] = []
    for file, lines in by_file.items():
        scope = len(nodes) + 1
        nodes += [file, f'distinct !DISubprogram(name: "{_FUNCTION}", file: !{scope - 1})']
        nodes += [f"!DILocation(line: {line}, scope: !{scope})" for line in lines]
    return "".join(f"!{number} = {node}\n" for number, node in enumerate(nodes))


def _lines(device: str) -> set[tuple[str, int]]:
    """Return the source lines of the instructions of a device module, each with its file node."""
    nodes = dict(_NODE.findall(device))
    found = set()
    for node in nodes.values():
        place = _PLACE.match(node)
        named = _FILE.search(nodes.get(place[2], "")) if place else None
        if place and place[1] != "0" and named and named[1] in nodes:
            found.add((nodes[named[1]], int(place[1])))
    return found
