"""What the text of a kernel shows to be beyond a limit: its workgroup memory, and the values it prints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.workgroup_memory import WorkgroupLimit
from mlir_offload.translate.host.memory import element_bytes
from mlir_offload.translate.mlir_syntax import MLIR
from mlir_offload.translate.mlir_text import (
    SYMBOL,
    Locations,
    OperationText,
    function_type,
    parse_operation,
    render_symbol,
    split_signature,
    string_attribute,
    symbol_name,
    unescape,
)

_ATTRIBUTIONS = re.compile(r"\bworkgroup_attributions = (\d+)")
_GLOBAL_TYPE = re.compile(r"\btype = (?=memref<)")
_USE = re.compile(rf'"memref\.get_global"\(\) <\{{name = {SYMBOL}')
_ARGUMENT = re.compile(r"%[\w$.-]+: ")
_STATIC = re.compile(r"memref<((?:\d+x)*)(.*)>", re.DOTALL)
_SPACES = frozenset({"3", "3 : i32", "3 : i64", "#gpu.address_space<workgroup>"})
# C17 7.21.6.1: flags, width and precision, length, conversion.
_CONVERSION = re.compile(
    r"%(?:%|[-+ #0]*(\*|\d*)(?:\.(\*|\d*))?(?:hh|h|ll|l|j|z|t|L)?[diouxXeEfFgGaAcsp])"
)


def workgroup_bytes(module: OperationText) -> dict[str, int]:
    """Return the bytes of workgroup memory that the variables of each function of a module take."""
    shared = {
        symbol_name(operation): _shared_bytes(_global_type(operation))
        for operation in module.body
        if operation.name == "memref.global"
    }
    return {
        symbol_name(operation): _attributed_bytes(operation) + _used_bytes(operation, shared)
        for operation in module.body
        if operation.name == "gpu.func"
    }


def check_workgroup_memory(
    module: OperationText, limits: Sequence[WorkgroupLimit], locations: Locations
) -> None:
    """Raise SourceError for a function whose variables take more than a GPU has."""
    sizes = workgroup_bytes(module) if limits else {}
    for operation in module.body:
        size = sizes.get(symbol_name(operation), 0) if operation.name == "gpu.func" else 0
        limit = next((one for one in limits if size > one.static_bytes), None)
        if limit is not None:
            msg = (
                f"{render_symbol(symbol_name(operation))} has {size} bytes of workgroup memory, "
                f"and {limit.arch} takes {limit.static_bytes}"
            )
            hint = (
                "use gpu.dynamic_shared_memory, whose size the launch gives"
                if size <= limit.all_bytes
                else f"use smaller arrays, or leave {limit.arch} out of --offload-arch"
            )
            raise SourceError(msg, hint=hint, location=locations.of(operation.lines[-1]))


def check_printed(lines: Iterable[str], locations: Locations) -> None:
    """Raise SourceError for a gpu.printf with fewer values than its format has conversions."""
    for line in lines:
        operation = parse_operation(line) if '"gpu.printf"(' in line else None
        if operation is None:
            continue
        wanted = _conversions(string_attribute(operation.rest, "format") or "")
        given = len(split_signature(operation.rest)[1])
        if given < wanted:
            msg = f"gpu.printf has {given} values, and its format has {wanted} conversions"
            hint = "pass a value for each conversion; %% prints a percent sign"
            raise SourceError(msg, hint=hint, location=locations.of(line))


def _conversions(text: str) -> int:
    return sum(
        1 + (match[1] == "*") + (match[2] == "*")
        for match in _CONVERSION.finditer(text)
        if match[0] != "%%"
    )


def _global_type(operation: OperationText) -> str:
    found = MLIR.search(_GLOBAL_TYPE, operation.lines[0])
    if found is None:
        return ""
    text = operation.lines[0][found.end() :]
    return text[: MLIR.closing(text, text.index("<")) + 1]


def _attributed_bytes(operation: OperationText) -> int:
    count = MLIR.search(_ATTRIBUTIONS, operation.attributes)
    if count is None or len(operation.lines) < 2:  # noqa: PLR2004
        return 0
    label = operation.lines[1].strip()
    arguments = MLIR.split_list(MLIR.inside(label, label.index("(")))
    first = len(function_type(operation)[0])
    types = [_ARGUMENT.sub("", text, count=1) for text in arguments]
    return sum(map(_shared_bytes, types[first : first + int(count[1])]))


def _used_bytes(operation: OperationText, shared: Mapping[str, int]) -> int:
    used = {
        unescape(match[1]) if match[1] is not None else match[2]
        for line in operation.lines
        for match in _USE.finditer(line)
    }
    return sum(shared.get(name, 0) for name in used)


def _shared_bytes(kind: str) -> int:
    """Return the bytes of a memref in workgroup memory; 0 where it lies elsewhere, or is not known."""
    if not kind.startswith("memref<"):
        return 0
    match = _STATIC.fullmatch(kind[: MLIR.closing(kind, len("memref")) + 1])
    element, *others = MLIR.split_list(match[2]) if match else ("",)
    if match is None or not others or others[-1] not in _SPACES:
        return 0
    return prod(int(size) for size in match[1].split("x")[:-1]) * element_bytes(element)
