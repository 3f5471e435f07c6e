"""Debug variables of kernels: values of the IR under their names in the MLIR source.

Only for unoptimized code. Each variable has a stack slot, as with clang -O0, so that a debugger can read it on
every line after its definition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from mlir_offload.offload.ir_syntax import concealed, name_of, revealed
from mlir_offload.toolchain.pattern import ir_line, ir_pattern
from mlir_offload.translate.cpu.debug_types import DebugTypes, memref_pieces
from mlir_offload.translate.cpu.result_type import result_type
from mlir_offload.translate.cpu.source_names import Parameter, SourceNames, read_parameters
from mlir_offload.translate.cpu.text import Function, first_type, label_of

_SUBPROGRAM = ir_line("define `head`@`name:bare`(`some` !dbg !`id:number` {`end`")
_NODE = ir_line("!`number:number` = `node:rest`")
_PLACE = ir_line(
    "!DILocation(line: `line:number`, column: `column:number`, scope: !`scope:number`)"
)
_FILE, _LINE = ir_pattern("file: `file:node`"), ir_pattern("line: `line:number`")
_DEFINITION = ir_line("  `name:local` = `rest:some`, !dbg !`at:number``end`")
_DECLARE = "declare void @llvm.dbg.declare(metadata, metadata, metadata)"
_OPTIMISED = ("isOptimized: true, ", " | DISPFlagOptimized")
_INLINED = ir_line("define `head:some` alwaysinline `tail:some`!dbg `node:node` {`end`")


def with_variables(text: str, device: str, source: str, name: str) -> str:
    """Add debug variables for parameters and local values to the functions of `text`, as mlir-translate prints it.

    `device` is the device module before its lowering, `source` the text of the file that has the name `name` in
    debug information. Functions of other files get no variables.
    """
    nodes = {match[1]: match[2] for line in text.splitlines() if (match := _NODE.match(line))}
    lines = concealed(text).splitlines()
    names = SourceNames(source)
    writer = _Writer(nodes, names, read_parameters(device, names))
    files = {
        key
        for key, node in nodes.items()
        if node.startswith("!DIFile(") and f'filename: "{name}"' in node
    }
    made: list[str] = []
    rest = iter(lines)
    for line in rest:
        head = _SUBPROGRAM.match(line)
        if head is None or not any(f"file: !{key}," in nodes[head["id"]] for key in files):
            made.append(_unoptimised(line))
            continue
        body = list(_until_brace(rest))
        made += [
            line,
            *writer.function(name_of(head["name"]), line, head["id"], body),
            "}",
        ]
    declared = [_DECLARE] if writer.has_variables else []
    return revealed("\n".join((*made, *declared, *writer.types.lines)) + "\n")


def steppable(text: str) -> str:
    """Replace `alwaysinline` by `noinline` in functions with debug information, so that each has a stack frame."""
    return _INLINED.sub(r"define \g<head> noinline \g<tail>!dbg \g<node> {", text)


def _until_brace(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if line == "}":
            return
        yield line


def _unoptimised(line: str) -> str:
    if line.startswith("!"):
        for word in _OPTIMISED:
            line = line.replace(word, "")
        line = line.replace("emissionKind: LineTablesOnly", "emissionKind: FullDebug")
    return line


class _Frame(Struct):
    """The debug variables of one function.

    `start` are the instructions that allocate and declare them, `stores` the stores after each line of the body.
    """

    scope: str
    file: str
    line: str
    start: list[str] = field(default_factory=list)
    stores: dict[int, list[str]] = field(default_factory=dict)


class _Writer:
    """Adds debug variables to functions, which share the nodes of types."""

    def __init__(
        self,
        nodes: Mapping[str, str],
        names: SourceNames,
        parameters: Mapping[str, Sequence[Parameter]],
    ) -> None:
        self._nodes = nodes
        self._names = names
        self._parameters = parameters
        self.types = DebugTypes(1 + max(map(int, nodes), default=-1))
        self.has_variables = False

    def function(self, name: str, head: str, scope: str, body: Sequence[str]) -> list[str]:
        """Return the body of a function with its debug variables added."""
        file, line = (pattern.search(self._nodes[scope]) for pattern in (_FILE, _LINE))
        frame = _Frame(scope, file[1] if file else "null", line[1] if line else "0")
        self._add_parameters(frame, name, head)
        for index, (variable, value, type_, row) in self._locals(scope, body):
            place = self._place(frame, variable, type_, self.types.of_value(type_), line=row)
            frame.stores.setdefault(index, []).append(f"  store {type_} {value}, ptr {place}")
        made = list(body)
        for index in sorted(frame.stores, reverse=True):
            made[index + 1 : index + 1] = frame.stores[index]
        first = 1 if made and label_of(made[0]) is not None else 0
        return [*made[:first], *frame.start, *made[first:]]

    def _add_parameters(self, frame: _Frame, name: str, head: str) -> None:
        given = Function(name, head.removesuffix(" {"), ()).parameters
        parameters = self._parameters.get(name, ())
        sizes = [len(memref_pieces(parameter.type)) or 1 for parameter in parameters]
        if sum(sizes) != len(given):
            return
        operands = iter(given)
        for number, (parameter, size) in enumerate(zip(parameters, sizes, strict=True), 1):
            pieces = [next(operands) for _ in range(size)]
            if parameter.name:
                self._add_parameter(frame, parameter, number, pieces)

    def _add_parameter(
        self, frame: _Frame, parameter: Parameter, number: int, pieces: Sequence[str]
    ) -> None:
        layout = memref_pieces(parameter.type)
        values = [(first_type(piece), piece.rsplit(" ", 1)[-1]) for piece in pieces]
        if not layout:
            type_, value = values[0]
            if "byval(" not in pieces[0] and self.types.is_known(type_):
                node = self.types.of_source(parameter.type, type_)
                place = self._place(frame, parameter.name, type_, node, number=number)
                frame.start.append(f"  store {type_} {value}, ptr {place}")
            return
        node = self.types.of_memref(parameter.type)
        whole = f"[{len(layout)} x i64]"
        place = self._place(frame, parameter.name, whole, node, number=number)
        for index, (type_, value) in enumerate(values):
            piece = f"{place}.{index}"
            frame.start.append(f"  {piece} = getelementptr inbounds i64, ptr {place}, i64 {index}")
            frame.start.append(f"  store {type_} {value}, ptr {piece}")

    def _locals(
        self, scope: str, body: Sequence[str]
    ) -> Iterator[tuple[int, tuple[str, str, str, str]]]:
        """Yield the local values that have a name in the source.

        An item is the index of the body line after which the value can be stored, and the value's name in the
        source, name in the IR, type and line.
        """
        found: dict[str, tuple[int, tuple[str, str, str, str]]] = {}
        for index, line in enumerate(body):
            match = _DEFINITION.match(line)
            place = _PLACE.match(self._nodes.get(match["at"], "")) if match else None
            if match is None or place is None or place[3] != scope:
                continue
            name = self._names.defined_at(int(place[1]), int(place[2]))
            type_ = result_type(line) if name else ""
            if self.types.is_known(type_):
                found[match["at"]] = (
                    _behind_phis(body, index),
                    (name, match["name"], type_, place[1]),
                )
        yield from found.values()

    def _place(
        self, frame: _Frame, name: str, type_: str, node: str, *, number: int = 0, line: str = ""
    ) -> str:
        self.has_variables = True
        place = f"%mo.var.{sum(' = alloca ' in start for start in frame.start)}"
        argument = f"arg: {number}, " if number else ""
        variable = self.types.add(
            f'!DILocalVariable(name: "{name}", {argument}scope: !{frame.scope}, '
            f"file: {frame.file}, line: {line or frame.line}, type: {node})"
        )
        location = self.types.add(f"!DILocation(line: {frame.line}, scope: !{frame.scope})")
        declared = f"metadata ptr {place}, metadata {variable}, metadata !DIExpression()"
        frame.start.append(f"  {place} = alloca {type_}")
        frame.start.append(f"  call void @llvm.dbg.declare({declared}), !dbg {location}")
        return place


def _behind_phis(body: Sequence[str], index: int) -> int:
    while " = phi " in body[index] and " = phi " in body[index + 1]:
        index += 1
    return index
