"""Blocks and values of a function in SSA form, as much as splitting at barriers needs."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from mlir_offload.offload.ir_syntax import LLVM_IR
from mlir_offload.toolchain.pattern import ir_line, ir_pattern, ir_words
from mlir_offload.translate.cpu.text import CALL, Function, first_type, label_of, type_end

TOKEN = ir_pattern("`local`")
_DEFINITION = ir_line(
    "`indent``name:local` = `rest:(``tail |musttail |notail ?``opcode:word``rest``)`"
)
_SUCCESSOR = ir_pattern("label `label:local`")
INCOMING = ir_pattern("[ `value:incoming`, `block:local` ]")
_POISON = ("nuw", "nsw", "nusw", "exact", "disjoint", "nneg", "samesign", "inbounds")
POISON_FLAGS = ir_words(*_POISON)
_FLAGS = ir_words(
    *(*_POISON, "fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc", "volatile"),
    *("atomic", "inrange", "tail", "musttail", "notail", "weak"),
)
_ATTRIBUTE = ir_pattern("`argument` ")
_CALL_MARKS = frozenset({"tail", "musttail", "notail"})
CASTS = frozenset(
    (
        "trunc",
        "zext",
        "sext",
        "fptrunc",
        "fpext",
        "fptoui",
        "fptosi",
        "uitofp",
        "sitofp",
        "ptrtoint",
        "inttoptr",
        "bitcast",
        "addrspacecast",
        "ptrtoaddr",
    )
)


class Block(Struct):
    """A basic block: its label as it is written after `%`, and its instructions."""

    label: str
    lines: list[str] = field(default_factory=list)

    @property
    def successors(self) -> tuple[str, ...]:
        """Return the labels to which the last instruction may go."""
        return tuple(name[1:] for name in _SUCCESSOR.findall(self.lines[-1]))


def parse_blocks(function: Function) -> list[Block]:
    """Return the blocks in order; debug records are dropped."""
    blocks: list[Block] = []
    for line in function.body:
        label = label_of(line)
        if label is not None:
            blocks.append(Block(label))
        elif not line.lstrip().startswith("#dbg_"):
            blocks[-1].lines.append(line)
    return blocks


def defined_name(line: str) -> str | None:
    """Return the value that the instruction defines, `%` included."""
    match = _DEFINITION.match(line)
    return str(match["name"]) if match else None


def opcode(line: str) -> str:
    """Return the name of the instruction."""
    match = _DEFINITION.match(line)
    words = line.split(maxsplit=2)
    return str(match["opcode"]) if match else words[1] if words[0] in _CALL_MARKS else words[0]


def used_names(line: str) -> list[str]:
    """Return the local names behind the definition: operands, labels and named types."""
    match = _DEFINITION.match(line)
    return TOKEN.findall(match["rest"] if match else line)


def parameter_name(parameter: str) -> str:
    """Return the name of a parameter, `%` included."""
    return str(TOKEN.findall(parameter)[-1])


def result_type(line: str) -> str:
    """Return the type of the value that the instruction defines."""
    match = _DEFINITION.match(line)
    if match is None:
        msg = f"not a definition: {line}"
        raise ValueError(msg)
    name: str = match["opcode"]
    operands = _FLAGS.sub("", match["rest"][len(name) + 1 :])
    if name in CASTS:
        return first_type(operands.rsplit(" to ", 1)[1])
    special = _RESULTS.get(name)
    return special(operands, line) if special else first_type(operands)


def _of_comparison(operands: str, _: str) -> str:
    compared = first_type(operands.split(" ", 1)[1])
    return f"<{compared[1:].split(' ', 1)[0]} x i1>" if compared.startswith("<") else "i1"


def _of_call(_: str, line: str) -> str:
    match = CALL.match(line)
    if match is None:
        msg = f"not a call: {line}"
        raise ValueError(msg)
    return first_type(_ATTRIBUTE.sub("", _FLAGS.sub("", match["type"])))


def _of_extractvalue(operands: str, _: str) -> str:
    aggregate, *indices = LLVM_IR.split_list(operands)
    type_ = first_type(aggregate)
    for index in indices:
        if not index.isdigit():
            break
        if type_.startswith("["):
            type_ = type_[1:-1].split(" x ", 1)[1]
        else:
            type_ = LLVM_IR.split_list(type_.strip("<>").strip()[1:-1])[int(index)]
    return type_


def _of_exchange(operands: str, _: str) -> str:
    return f"{{ {first_type(LLVM_IR.split_list(operands)[1])}, i1 }}"


def _of_shuffle(operands: str, _: str) -> str:
    first, _second, mask = LLVM_IR.split_list(operands)[:3]
    return (
        f"<{first_type(mask)[1:].split(' ', 1)[0]} x {first_type(first)[1:-1].split(' x ', 1)[1]}>"
    )


_RESULTS: dict[str, Callable[[str, str], str]] = {
    "icmp": _of_comparison,
    "fcmp": _of_comparison,
    "call": _of_call,
    "select": lambda operands, _: first_type(LLVM_IR.split_list(operands)[1]),
    "extractvalue": _of_extractvalue,
    "getelementptr": lambda _, __: "ptr",
    "alloca": lambda _, __: "ptr",
    "atomicrmw": lambda operands, _: first_type(LLVM_IR.split_list(operands)[1]),
    "cmpxchg": _of_exchange,
    "extractelement": lambda operands, _: first_type(operands)[1:-1].split(" x ", 1)[1],
    "shufflevector": _of_shuffle,
}


def incoming(line: str) -> list[tuple[str, str]]:
    """Return (value, block label) of a phi."""
    text = line[line.index("phi ") + 4 :]
    text = text[type_end(_FLAGS.sub("", text)) :]
    return [(match["value"], match["block"][1:]) for match in INCOMING.finditer(text)]


class Liveness(Struct, frozen=True):
    """Names live at the beginning of each block."""

    live_in: dict[str, frozenset[str]]


def find_liveness(blocks: list[Block], values: frozenset[str]) -> Liveness:
    """Return which of `values` are live where each block begins, its phis' results excluded."""
    uses, definitions, at_edges = _local_sets(blocks, values)
    live_in: dict[str, frozenset[str]] = {block.label: frozenset() for block in blocks}
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            live = set(at_edges[block.label])
            for successor in block.successors:
                live |= live_in[successor]
            found = frozenset(uses[block.label] | (live - definitions[block.label]))
            changed = changed or found != live_in[block.label]
            live_in[block.label] = found
    return Liveness(live_in)


_Sets = dict[str, set[str]]


def _local_sets(blocks: list[Block], values: frozenset[str]) -> tuple[_Sets, _Sets, _Sets]:
    uses: _Sets = {block.label: set() for block in blocks}
    definitions: _Sets = {block.label: set() for block in blocks}
    at_edges: _Sets = {block.label: set() for block in blocks}
    for block in blocks:
        for line in block.lines:
            if opcode(line) == "phi":
                for value, label in incoming(line):
                    at_edges[label].update(values.intersection(TOKEN.findall(value)))
            else:
                used = values.intersection(used_names(line))
                uses[block.label] |= used - definitions[block.label]
            name = defined_name(line)
            if name is not None:
                definitions[block.label].add(name)
    return uses, definitions, at_edges
