"""What an older release of LLVM would refuse, or read wrongly, in a bitcode module."""

from __future__ import annotations

from collections.abc import Iterator

from mlir_offload.toolchain.bitcode import BitcodeModule
from mlir_offload.toolchain.bitcode_attribute import Attribute
from mlir_offload.toolchain.bitcode_code import BlockId
from mlir_offload.toolchain.bitcode_producer import llvm_major
from mlir_offload.toolchain.bitstream import Block, BlockReader
from mlir_offload.toolchain.skew import Consumer, Skew
from mlir_offload.toolchain.skew_limits import ReaderLimits, load_limits

_CONSTANTS = {
    31: "getelementptr with inrange",
    32: "getelementptr",
    33: "ptrauth",
    34: "ptrauth",
}


def check_module(module: BitcodeModule, consumer: Consumer) -> Iterator[Skew]:
    """Return all that the consumer would refuse or misread in a module."""
    if module.epoch:
        yield Skew("BC001", {"epoch": module.epoch})
    limits = load_limits().of(consumer.llvm)
    found = [
        *_summary(module, consumer, limits),
        *_attributes(module, consumer, limits),
        *_constants(module, consumer, limits),
    ]
    yield from found
    major = llvm_major(module.producer)
    if not found and major is not None and major > consumer.llvm:
        yield Skew("BC002", {"producer": module.producer, "consumer": consumer.llvm})


def _summary(module: BitcodeModule, consumer: Consumer, limits: ReaderLimits) -> Iterator[Skew]:
    version = max(module.thin_summary or 0, module.full_summary or 0)
    if version > limits.summaries:
        values = {"version": version, "consumer": consumer.llvm, "newest": limits.summaries}
        yield Skew("BC006", values)


def _attributes(module: BitcodeModule, consumer: Consumer, limits: ReaderLimits) -> Iterator[Skew]:
    users: dict[int | str, str] = {}
    for function in module.functions:
        for group in module.attributes[function.attributes].groups.values():
            for kind in group.attributes:
                users.setdefault(kind, function.name)
    seen = set()
    for group in module.attributes.groups():
        for one in group.attributes.values():
            if not isinstance(one.kind, int) or one.kind in seen:
                continue
            if one.kind > limits.attribute_kinds or one.form > limits.attribute_forms:
                seen.add(one.kind)
                yield _attribute(one, one.kind, users.get(one.kind, ""), consumer, limits)


def _attribute(
    one: Attribute, kind: int, function: str, consumer: Consumer, limits: ReaderLimits
) -> Skew:
    table = load_limits()
    name = table.attribute_names.get(kind, f"number {kind}")
    values: dict[str, object] = {"name": name, "kind": kind, "consumer": consumer.llvm}
    if kind > limits.attribute_kinds:
        needed = table.first_release("attribute_kinds", kind) or "of a later release"
        values |= {"needed": needed, "newest": limits.attribute_kinds}
        return Skew("BC010", values, function)
    values |= {"form": one.form, "newest": limits.attribute_forms}
    return Skew("BC011", values, function)


def _constants(module: BitcodeModule, consumer: Consumer, limits: ReaderLimits) -> Iterator[Skew]:
    major = llvm_major(module.producer)
    if major is not None and major <= consumer.llvm:
        return
    stream = module.content.stream
    seen: set[int] = set()
    defined = [function.name for function in module.functions if not function.is_declaration]
    places = [("", block) for block in module.content.constants]
    for name, body in zip(defined, module.content.bodies, strict=False):
        for entry in BlockReader(stream, body):
            if isinstance(entry, Block) and entry.number == BlockId.CONSTANTS:
                places.append((name, entry))
    for name, block in places:
        for record in BlockReader(stream, block).records():
            if record.code > limits.constant_codes and record.code not in seen:
                seen.add(record.code)
                construct = _CONSTANTS.get(record.code, "of a later release")
                values: dict[str, object] = {"construct": construct, "code": record.code}
                yield Skew("BC012", values | {"consumer": consumer.llvm}, name)
