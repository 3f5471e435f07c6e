"""Find constructs in textual IR that another release of LLVM rejects or misreads."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.amdgpu import hidden_layout
from mlir_offload.toolchain.pattern import ir_line, ir_pattern
from mlir_offload.toolchain.skew.fact import HIDDEN_ARGUMENTS, ORDERED_ACCESS, Consumer, Skew
from mlir_offload.toolchain.skew.limits import code_object_of, load_limits
from mlir_offload.toolchain.skew.parameter import has_copied_parameter
from mlir_offload.toolchain.skew.retained import unread_node
from mlir_offload.toolchain.skew.symbol import (
    annotation_values,
    check_intrinsic,
    check_openmp,
    check_openmp_structure,
    lost_values,
)
from mlir_offload.toolchain.tables import load_table

_WORD = r"(?<![\w@%$.\"!-])"
_LABEL = r"(?m:^[-\w$.]+:)"
_SKIPPED = r"|\"[^\"\n]*\"?|;[^\n]*"
_TRIPLE = ir_line('target triple = "`triple:string`"')
_LAYOUT = ir_line('target datalayout = "`layout:string`"')
_FUNCTION = ir_line("`keyword:declare|define` `head`@`name:name`(`rest:rest`")
_DEFINED = ir_line("define `head`@`name:name`(`rest:rest`{`end`\n`body:lines`}")
_ATTRIBUTE = ir_pattern('"`name:bare`"="`value:string`"')
_EXPRESSION = ir_pattern("!DIExpression(`operations:some`)")
_GROUP = ir_line("attributes #`number:number` = {`attributes:rest`}")
_LAUNCH = ir_pattern('"`bound:(`nvvm.`word``)`"')
_ANNOTATION = ir_line("!`number` = `distinct ?`!{ptr @`name:name`, `values:rest`}")
_ANNOTATED = ir_pattern('!"`name:word`"')
_USED_GROUP = ir_pattern("#`number:number`")
_CODE_OBJECT = ir_pattern(
    '!"`flag:amdhsa_code_object_version|amdgpu_code_object_version`", i32 `value:number`'
)
_HIDDEN_ARGUMENTS = ir_pattern(f"call `rest` @{HIDDEN_ARGUMENTS}(")
_NAMED_STRUCT = ir_line("%`name:bare` = type { `members:some` }")
_WIDE_INTEGER = ir_pattern("i128")
_TARGET_CPU = ir_pattern('"target-cpu"="`arch:string`"')
_KERNEL = ir_line("define `words`ptx_kernel ")
_ORDERED = ir_line(
    "`indent``result``fence|load atomic|store atomic``rest` `acquire|release|acq_rel|seq_cst`"
)
_DYNAMIC_ALLOCA = ir_line("`indent``local` = alloca `rest`, i`number` %")
_BFLOAT = ir_line("`indent``local` = `fadd|fsub|fmul|fdiv|frem|fneg|fcmp|atomicrmw f``rest` bfloat")
# Constructs that NVPTX back ends reject: the name in the table, a pattern, and the name in messages.
_STOPS = (
    ("fence", _ORDERED, ORDERED_ACCESS),
    ("alloca", _DYNAMIC_ALLOCA, "an alloca whose size is not a constant"),
    ("bfloat", _BFLOAT, "arithmetic of bfloat"),
)
_TYPE = (
    r"(?:ptr(?: addrspace\(\d+\))?|<[^<>@\n]*>|\[[^\n@\]]*\]|\{[^{}\n@]*\}"
    r'|target\("[^@\n)]*\)|(?:void|i\d+|half|bfloat|float|double|fp128|ppc_fp128|x86_\w+|token|metadata)\b)'
)
_RESULT = re.compile(rf"(?<![\w.])({_TYPE}) @")
_FIRST_TYPE = re.compile(rf"\.\.\.|{_TYPE}")
_DECIMAL = re.compile(r'"[^"\n]*"|;[^\n]*|(?<![\w.%@$])(half|bfloat|float) (-?\d+\.\d+e[+-]\d+)')
_X86 = ("x86_64", "i386", "i686")
_STRUCT = ir_pattern("{ `elements:(``members`i128`members``)` }")
_SCALAR = re.compile(r"(?:\[(\d{1,9}) x )?(i\d{1,3}|float|double|ptr|half)\b")
_WORD_BYTES = 8
_FLOAT_BYTES = {"half": 2, "float": 4, "double": 8, "ptr": 8}


class Construct(Struct, frozen=True):
    """A construct, the first release that parses it, and the first release that no longer does."""

    name: str
    pattern: str
    since: int | None
    gone: int | None


@cache
def load_constructs() -> tuple[Construct, ...]:
    """Return the table that ships with the package."""
    return parse_constructs(load_table("mlir_offload.toolchain", "ir_text"))


def parse_constructs(table: Mapping[str, Any]) -> tuple[Construct, ...]:
    """Parse and check the table. Raises ValueError with the name of an invalid row."""
    found: dict[str, Construct] = {}
    for row in table["constructs"]:
        name = str(row["construct"])
        since, gone = (int(row[key]) if key in row else None for key in ("since", "gone"))
        if name in found or (since is None) is (gone is None):
            wrong = "is listed twice" if name in found else "needs one of since and gone"
            msg = f"ir_text: {name} {wrong}"
            raise ValueError(msg)
        try:
            groups = re.compile(row["pattern"]).groups
        except re.error as error:
            msg = f"ir_text: the pattern of {name} is wrong: {error}"
            raise ValueError(msg) from error
        if groups:
            msg = f"ir_text: the pattern of {name} has a group, which must be (?:...)"
            raise ValueError(msg)
        found[name] = Construct(name, str(row["pattern"]), since, gone)
    return tuple(found.values())


def check_text(text: str, consumer: Consumer) -> Iterator[Skew]:
    """Yield the constructs of a textual module that the consumer rejects or misreads."""
    yield from _constructs(text, consumer)
    yield from _numbers(text, consumer)
    yield from _debug_operations(text, consumer)
    yield from _retained_nodes(text, consumer)
    yield from _attributes_gone(text, consumer)
    triple = text_triple(text)
    groups = {match[1]: match[2] for match in _GROUP.finditer(text)}
    for match in _FUNCTION.finditer(text):
        name = match[2].strip('"')
        if match[1] != "declare":
            continue
        if name.startswith("llvm."):
            skew = check_intrinsic(name, _signature(match[0], match[3]), consumer, triple)
        else:
            skew = check_openmp(name, len(_parameters(match[3])), consumer)
        # Declarations without a call have no effect.
        if skew is not None and text.count(f"@{name}") > 1:
            yield _at(skew, text, match.start())
    for match in _NAMED_STRUCT.finditer(text):
        skew = check_openmp_structure(match[1], len(_parameters(match[2] + ")")), consumer)
        if skew is not None:
            yield _at(skew, text, match.start())
    if triple.startswith("nvptx"):
        yield from _launch_bounds(text, groups, consumer)
        yield from _marked_parameters(text, consumer)
        yield from _back_end_stops(text, triple, consumer)
    elif triple.startswith("amdgcn"):
        yield from _code_object(text, consumer)
    elif triple.startswith(_X86):
        yield from _wide_integers(text, consumer)
        yield from _narrow_integers(text, consumer)


def text_triple(text: str) -> str:
    """Return the target triple of a textual module, an empty string if there is none."""
    return _first(_TRIPLE, text)


def _constructs(text: str, consumer: Consumer) -> Iterator[Skew]:
    pattern, rows = _unreadable(consumer.llvm)
    seen = set()
    for match in pattern.finditer(text):
        # Comments and strings, which are skipped, do not match a group.
        if match.lastindex is None or match.lastindex in seen:
            continue
        seen.add(match.lastindex)
        row = rows[match.lastindex - 1]
        values = {"construct": row.name, "consumer": consumer.llvm}
        if row.since is not None:
            yield _at(Skew("LL001", values | {"needed": row.since}), text, match.start())
        else:
            yield _at(Skew("LL002", values | {"gone": row.gone}), text, match.start())


def _numbers(text: str, consumer: Consumer) -> Iterator[Skew]:
    """Report the first decimal literal that is not exact in its type: LLVM 23 writes it, older releases reject it."""
    since = load_limits().rounded_decimals_since
    if consumer.llvm >= since:
        return
    for match in _DECIMAL.finditer(text):
        if match[1] and not _is_exact(float(match[2]), match[1]):
            values = {"construct": match[0], "needed": since, "consumer": consumer.llvm}
            yield _at(Skew("LL001", values), text, match.start())
            return


def _attributes_gone(text: str, consumer: Consumer) -> Iterator[Skew]:
    """Report the first attribute that a release ignores, unless its value has no effect."""
    rows = load_limits().text_attributes_gone
    gone = {name: row for name, row in rows.items() if row.gone <= consumer.llvm and name in text}
    for match in _ATTRIBUTE.finditer(text) if gone else ():
        row = gone.get(match["name"])
        if row is not None and not row.same.issuperset(match["value"].split(",")):
            values = {"construct": row.attribute, "gone": row.gone, "effect": row.effect}
            yield _at(Skew("LL003", values | {"consumer": consumer.llvm}), text, match.start())
            return


def _debug_operations(text: str, consumer: Consumer) -> Iterator[Skew]:
    """Report the first DIExpression with an operation that the release does not have."""
    rows = load_limits().debug_operations.values()
    newer = {row.name: row.since for row in rows if row.since > consumer.llvm}
    if not any(name in text for name in newer):
        return
    for match in _EXPRESSION.finditer(text):
        for word in match[1].split(", "):
            if word in newer:
                values = {"construct": word, "needed": newer[word], "consumer": consumer.llvm}
                yield _at(Skew("BC034", values), text, match.start())
                return


def _retained_nodes(text: str, consumer: Consumer) -> Iterator[Skew]:
    """Report the first node in retainedNodes that the release rejects."""
    found = unread_node(text, consumer.llvm)
    if found is not None:
        row, place = found
        values = {"construct": f"{row.node} in retainedNodes", "needed": row.since}
        yield _at(Skew("BC034", values | {"consumer": consumer.llvm}), text, place)


def _is_exact(value: float, kind: str) -> bool:
    if kind == "half":
        return bool(struct.unpack("e", struct.pack("e", value))[0] == value)
    packed = struct.pack("<f", value)
    is_short = kind == "float" or packed[:2] == b"\0\0"
    return is_short and bool(struct.unpack("<f", packed)[0] == value)


@cache
def _unreadable(release: int) -> tuple[re.Pattern[str], tuple[Construct, ...]]:
    """Return a pattern of the constructs that a release does not parse, with a group for each construct."""
    rows = tuple(
        row
        for row in load_constructs()
        if (row.since is not None and row.since > release)
        or (row.gone is not None and row.gone <= release)
    )
    words = "|".join(f"({row.pattern})" for row in rows)
    return re.compile(f"{_LABEL}|{_WORD}(?:{words or '(?!)'}){_SKIPPED}"), rows


def _marked_parameters(text: str, consumer: Consumer) -> Iterator[Skew]:
    """Report constant-memory parameters that a release copies, or whose annotation crashes its back end."""
    for row in load_limits().parameters:
        if consumer.llvm >= row.since or row.annotation not in text:
            continue
        annotated = set()
        for match in _ANNOTATION.finditer(text):
            if row.annotation not in _ANNOTATED.findall(match[2]):
                continue
            annotated.add(match[1])
            if consumer.llvm < row.annotation_since:
                values = annotation_values(row, consumer)
                yield _at(Skew("BC025", values, match[1].strip('"')), text, match.start())
        for match in _DEFINED.finditer(text):
            is_read = match["name"] in annotated and consumer.llvm >= row.annotation_since
            parameters = match["rest"]
            if not is_read and has_copied_parameter(parameters, match["body"], row.attribute):
                values = {"name": row.attribute, "consumer": consumer.llvm}
                yield _at(Skew("BC033", values, match["name"].strip('"')), text, match.start())


def _launch_bounds(text: str, groups: Mapping[str, str], consumer: Consumer) -> Iterator[Skew]:
    table = load_limits()
    annotated: dict[str, set[str]] = {}
    for match in _ANNOTATION.finditer(text):
        annotated.setdefault(match[1].strip('"'), set()).update(_ANNOTATED.findall(match[2]))
    for match in _FUNCTION.finditer(text):
        if match[1] != "define":
            continue
        name = match[2].strip('"')
        # No release uses the launch bounds of a function that is not a kernel.
        if not _KERNEL.search(match[0]) and "kernel" not in annotated.get(name, ()):
            continue
        own = " ".join(groups.get(number, "") for number in _USED_GROUP.findall(match[3]))
        given = dict.fromkeys(_LAUNCH.findall(own + match[3]))
        if {"nvvm.maxntid", "nvvm.reqntid"} <= set(given):
            yield _at(Skew("NV009", {}, name), text, match.start())
        lost = table.lost_bounds(given, annotated.get(name, ()), consumer.llvm)
        if lost:
            yield _at(Skew("BC015", lost_values(lost, given, consumer), name), text, match.start())


def _back_end_stops(text: str, triple: str, consumer: Consumer) -> Iterator[Skew]:
    for name, pattern, construct in _STOPS:
        since = load_limits().back_end_since(triple, name)
        match = pattern.search(text) if consumer.llvm < since else None
        if match:
            values = {"construct": construct, "needed": since, "consumer": consumer.llvm}
            yield _at(Skew("BC025", values), text, match.start())


def _code_object(text: str, consumer: Consumer) -> Iterator[Skew]:
    match, reads = _CODE_OBJECT.search(text), _HIDDEN_ARGUMENTS.search(text)
    made = code_object_of(consumer.llvm)
    if match is None:
        if reads:
            values = {"consumer": consumer.llvm, "default": made.versions[-1]}
            yield _at(Skew("AM008", values), text, reads.start())
        return
    wanted = int(match[2]) // 100
    version = made.made(match[1], wanted)
    if version != wanted:
        values = {"wanted": wanted, "consumer": consumer.llvm, "default": version}
        is_other = reads and hidden_layout(wanted) != hidden_layout(version)
        yield _at(Skew("AM004" if is_other else "AM007", values), text, match.start())


def _wide_integers(text: str, consumer: Consumer) -> Iterator[Skew]:
    since = load_limits().wide_integer_since
    match = _WIDE_INTEGER.search(text)
    if match and consumer.llvm < since and "i128:128" in _first(_LAYOUT, text):
        skew = Skew("BC018", {"consumer": consumer.llvm, "since": since})
        yield _at(skew, text, match.start())


def text_target_cpus(text: str) -> tuple[str, ...]:
    """Return the target CPUs of the functions in a textual module."""
    return tuple(dict.fromkeys(_TARGET_CPU.findall(text)))


def _narrow_integers(text: str, consumer: Consumer) -> Iterator[Skew]:
    """Report the first structure that grows if a newer release replaces the data layout of the module.

    Only structures of numbers, pointers and arrays of these are checked.
    """
    since, layout = load_limits().wide_integer_since, _first(_LAYOUT, text)
    if consumer.llvm < since or not layout or "i128:128" in layout:
        return
    for match in _STRUCT.finditer(text):
        before, after = (_struct_bytes(match[1], alignment) for alignment in (8, 16))
        if before != after:
            values = {"consumer": consumer.llvm, "since": since}
            skew = Skew("BC024", values | {"before": before, "after": after})
            yield _at(skew, text, match.start())
            return


def _struct_bytes(elements: str, wide_alignment: int) -> int:
    """Return the size of a structure in bytes, 0 if an element has an unsupported type."""
    offset, largest = 0, 1
    for element in re.split(r", (?![^\[]*\])", elements):
        found = _SCALAR.match(element)
        if found is None:
            return 0
        name = found[2]
        size = _FLOAT_BYTES.get(name) or max(1, -(-int(name[1:]) // 8))
        alignment = wide_alignment if size > _WORD_BYTES else min(size, _WORD_BYTES)
        offset = -(-offset // alignment) * alignment + size * int(found[1] or 1)
        largest = max(largest, alignment)
    return -(-offset // largest) * largest


def _signature(declaration: str, parameters: str) -> str:
    """Return the type of a declared function in LLVM's syntax, an empty string if it cannot be parsed."""
    result = _RESULT.search(declaration)
    types = [_FIRST_TYPE.match(one) for one in _parameters(parameters)]
    if result is None or None in types:
        return ""
    return f"{result[1]} ({', '.join(one[0] for one in types if one)})"


def _parameters(text: str) -> list[str]:
    """Return the parameters in the text of a declaration after the opening parenthesis."""
    depth = begin = 0
    found = []
    for place, character in enumerate(text):
        if not depth and character in ",)":
            found.append(text[begin:place].strip())
            begin = place + 1
            if character == ")":
                break
        depth += (character in "([{<") - (character in ")]}>")
    return [one for one in found if one]


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


def _at(skew: Skew, text: str, place: int) -> Skew:
    return Skew(skew.rule, skew.values, skew.function, text.count("\n", 0, place) + 1)
