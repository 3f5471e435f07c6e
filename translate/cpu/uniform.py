"""Which values are the same for all threads of a block, and which can be computed anywhere.

Both analyses err on the safe side.
"""

from __future__ import annotations

from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.translate.cpu.text import CALL, callee_name
from mlir_offload.translate.cpu.values import CASTS, Block, defined_name, opcode, used_names

_PURE = CASTS | frozenset(
    (
        "add",
        "sub",
        "mul",
        "shl",
        "lshr",
        "ashr",
        "and",
        "or",
        "xor",
        "icmp",
        "fcmp",
        "fadd",
        "fsub",
        "fmul",
        "fdiv",
        "fneg",
        "frem",
        "getelementptr",
        "select",
        "extractvalue",
        "insertvalue",
        "extractelement",
        "insertelement",
        "shufflevector",
        "freeze",
    )
)
_DIVISIONS = frozenset({"udiv", "sdiv", "urem", "srem"})
_DIVISOR = ir_pattern(", `divisor:number``item_end`")
_REGISTERS = "mo.read.ptx.sreg."
_OF_THE_ITEM = tuple(_REGISTERS + name for name in ("tid", "laneid", "warpid", "lanemask"))
_OF_THE_BLOCK = (_REGISTERS, "mo.static_shared", "mo.dynamic_shared")
_PURE_INTRINSICS = frozenset(
    [
        "smin", "umin", "smax", "umax", "abs", "fabs", "fma", "fmuladd", "sqrt", "minnum", "maxnum",
        "minimum", "maximum", "copysign", "floor", "ceil", "trunc", "rint", "round", "roundeven", "ctpop",
        "ctlz", "cttz", "bswap", "bitreverse", "fshl", "fshr",
    ]
)  # fmt: skip


def is_pure(line: str) -> bool:
    """Say whether the instruction may run anywhere its operands are known, without an effect."""
    name = opcode(line)
    if name in _DIVISIONS:
        divisor = _DIVISOR.search(line)
        return divisor is not None and int(divisor[1]) > 0
    if name == "call":
        match = CALL.match(line)
        callee = callee_name(match["callee"]) if match else ""
        library, *names = callee.split(".")
        is_pure_intrinsic = library == "llvm" and names[0] in _PURE_INTRINSICS
        return is_pure_intrinsic or callee.startswith(_OF_THE_BLOCK)
    return name in _PURE


def find_uniform(blocks: list[Block], arguments: frozenset[str]) -> frozenset[str]:
    """Return the values that are the same for all threads of a block.

    A phi is uniform only where no divergent branch chooses between its operands; what a loop
    defines is not where threads may leave the loop at different turns.
    """
    defined = {name for block in blocks for line in block.lines if (name := defined_name(line))}
    uniform = set(defined) | arguments
    influenced = _influence(blocks)
    changed = True
    while changed:
        changed = False
        divergent_joins, divergent_loops = _divergent(blocks, uniform, influenced)
        for block in blocks:
            for line in block.lines:
                name = defined_name(line)
                if name not in uniform or name is None:
                    continue
                is_join = opcode(line) == "phi" and block.label in divergent_joins
                if (
                    is_join
                    or block.label in divergent_loops
                    or not _is_uniform(line, uniform, defined)
                ):
                    uniform.discard(name)
                    changed = True
    return frozenset(uniform)


def _is_uniform(line: str, uniform: set[str], defined: set[str]) -> bool:
    if opcode(line) != "phi" and not _computes_from_operands(line):
        return False
    return all(name in uniform for name in used_names(line) if name in defined)


def _computes_from_operands(line: str) -> bool:
    if opcode(line) in _DIVISIONS:
        return True
    if not is_pure(line):
        return False
    match = CALL.match(line)
    return match is None or not callee_name(match["callee"]).startswith(_OF_THE_ITEM)


def _divergent(
    blocks: list[Block], uniform: set[str], influenced: dict[str, _Influence]
) -> tuple[set[str], set[str]]:
    joins: set[str] = set()
    loops: set[str] = set()
    for block in blocks:
        if len(set(block.successors)) < 2:  # noqa: PLR2004
            continue
        condition = used_names(block.lines[-1].split(", label", 1)[0])
        if all(name in uniform for name in condition):
            continue
        inside, meeting = influenced[block.label]
        joins |= inside | meeting
        if block.label in inside:
            loops |= inside
    return joins, loops


_Influence = tuple[frozenset[str], frozenset[str]]


def _influence(blocks: list[Block]) -> dict[str, _Influence]:
    """Return for each branching block the blocks up to where its ways meet, and those there."""
    successors = {block.label: set(block.successors) for block in blocks}
    postdominators = _postdominators(blocks, successors)
    result: dict[str, _Influence] = {}
    for block in blocks:
        if len(successors[block.label]) < 2:  # noqa: PLR2004
            continue
        joins = postdominators[block.label] - {block.label}
        seen: set[str] = set()
        work = list(successors[block.label])
        while work:
            label = work.pop()
            if label in seen:
                continue
            seen.add(label)
            if label not in joins:
                work.extend(successors[label])
        result[block.label] = (frozenset(seen - joins), frozenset(seen & joins))
    return result


def _postdominators(blocks: list[Block], successors: dict[str, set[str]]) -> dict[str, set[str]]:
    everything = set(successors)
    found = {label: set(everything) if after else {label} for label, after in successors.items()}
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            after = successors[block.label]
            if not after:
                continue
            common = set.intersection(*(found[label] for label in after)) | {block.label}
            changed = changed or common != found[block.label]
            found[block.label] = common
    return found
