"""Types of the values that instructions define, read from LLVM IR."""

from __future__ import annotations

from collections.abc import Callable

from mlir_offload.offload.ir_syntax import LLVM_IR
from mlir_offload.toolchain.pattern import ir_line, ir_pattern, ir_words
from mlir_offload.translate.cpu.text import CALL, first_type

_DEFINITION = ir_line("`indent``local` = `rest:(``tail |musttail |notail ?``opcode:word``rest``)`")
_FLAGS = ir_words(
    *("nuw", "nsw", "nusw", "exact", "disjoint", "nneg", "samesign", "inbounds"),
    *("fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc", "volatile"),
    *("atomic", "inrange", "tail", "musttail", "notail", "weak"),
)
_ATTRIBUTE = ir_pattern("`argument` ")
_CASTS = frozenset(
    [
        "trunc", "zext", "sext", "fptrunc", "fpext", "fptoui", "fptosi", "uitofp", "sitofp", "ptrtoint",
        "inttoptr", "bitcast", "addrspacecast", "ptrtoaddr",
    ]
)  # fmt: skip


def without_flags(operands: str) -> str:
    """Return the text after an opcode without flags such as `nsw`, `contract` and `volatile`."""
    return _FLAGS.sub("", operands)


def result_type(line: str) -> str:
    """Return the type of the value that the instruction defines."""
    match = _DEFINITION.match(line)
    if match is None:
        msg = f"not a definition: {line}"
        raise ValueError(msg)
    name: str = match["opcode"]
    operands = without_flags(match["rest"][len(name) + 1 :])
    if name in _CASTS:
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
