"""The text output of `mlir-offload inspect`: a tree with one line per item, suitable for grep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from msgspec import Struct, field

from mlir_offload.driver.message.escape import shown
from mlir_offload.offload.container.contents import (
    Container,
    Entry,
    Image,
    Part,
    Problem,
    SourceKernel,
    SourceModule,
)
from mlir_offload.offload.device.kernel import DeviceCode, DeviceKernel, KernelParameter

Span = tuple[str, str]
"""A piece of a line: its style and its text, with control characters escaped."""

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
TIMES = "\N{MULTIPLICATION SIGN}"
_STEP = 1024
_BRANCH, _LAST, _LINE, _GAP = "├── ", "└── ", "│   ", "    "
_DIM, _NAME, _GOOD, _BAD, _PLAIN = "dim", "bold", "cyan", "red", ""
_NOTHING = "contains no device code"
_ELF_FORMS = frozenset({"AMDGPU code object", "ELF"})


class Node(Struct):
    """A line of the tree, and its children."""

    line: tuple[Span, ...]
    children: list[Node] = field(default_factory=list)


def tree_lines(part: Part) -> Iterator[tuple[Span, ...]]:
    """Return the lines of the tree of one file, with their styles."""
    node = _part(part)
    yield node.line
    yield from _below(node, "")


def size_text(size: int) -> str:
    """Return a size in bytes with a unit; exact below 1 KiB."""
    if size < _STEP:
        return "1 byte" if size == 1 else f"{size} bytes"
    value, unit = float(size), 0
    while value >= _STEP and unit + 1 < len(_UNITS):
        value /= _STEP
        unit += 1
    return f"{value:.1f} {_UNITS[unit]}"


def kernel_facts(kernel: DeviceKernel) -> str:
    """Return the limits and resource usage of a kernel, as recorded in an image."""
    facts = (
        _threads(kernel),
        f"≥{kernel.min_blocks} blocks" if kernel.min_blocks else "",
        _registers(kernel),
        _number(kernel.scalar_registers, "scalar registers"),
        f"{size_text(kernel.shared_bytes)} shared" if kernel.shared_bytes else "",
        f"{size_text(kernel.local_bytes)} local" if kernel.local_bytes else "",
        "" if kernel.code_bytes is None else f"{size_text(kernel.code_bytes)} code",
        f"code sha256 {kernel.code_sha256}" if kernel.code_sha256 else "",
    )
    return "  ".join(filter(None, facts))


def _threads(kernel: DeviceKernel) -> str:
    if kernel.required_threads is not None:
        return f"{TIMES.join(map(str, kernel.required_threads))} threads"
    return "" if kernel.max_threads is None else f"≤{kernel.max_threads} threads"


def _registers(kernel: DeviceKernel) -> str:
    if kernel.registers is None and kernel.max_registers is not None:
        return f"≤{kernel.max_registers} registers"
    return _number(kernel.registers, "registers")


def _number(value: int | None, what: str) -> str:
    return "" if value is None else f"{value} {what}"


def parameter_list(parameters: tuple[KernelParameter, ...] | None) -> str:
    """Return the parameters in parentheses, each as type@offset:size, without hidden ones."""
    if parameters is None:
        return "(?)"
    own = (parameter for parameter in parameters if not parameter.is_hidden)
    return f"({', '.join(map(_parameter, own))})"


def _parameter(parameter: KernelParameter) -> str:
    words = (parameter.type, parameter.name, f"@{parameter.offset}:{parameter.size_bytes}")
    return shown(" ".join(word for word in words if word))


def _below(node: Node, prefix: str) -> Iterator[tuple[Span, ...]]:
    for number, child in enumerate(node.children):
        is_last = number + 1 == len(node.children)
        yield ((_DIM, prefix + (_LAST if is_last else _BRANCH)), *child.line)
        yield from _below(child, prefix + (_GAP if is_last else _LINE))


def _part(part: Part) -> Node:
    node = Node(
        ((_NAME, shown(part.name)), (_PLAIN, f": {part.form}, {size_text(part.size_bytes)}"))
    )
    if not part.has_device_code and not part.problems:
        node.line += ((_DIM, f", {_NOTHING}"),)
    node.children += [Node(((_DIM, "made by "), (_PLAIN, shown(name)))) for name in part.producers]
    if part.sections:
        rows = [
            Node(
                _row(
                    section.name,
                    f"{size_text(section.size_bytes)}{_at(section.offset)}"
                    f"{section.type and f', {section.type}'}",
                )
            )
            for section in part.sections
        ]
        node.children.append(_group("sections", rows))
    node.children += [_module(module) for module in part.modules]
    node.children += [_image(image) for image in part.images]
    node.children += list(_entries(part.entries))
    node.children += [
        Node(((_DIM, "function "), (_PLAIN, shown(function.signature))))
        for function in part.functions
    ]
    node.children += [_part(member) for member in part.members if _is_telling(member)]
    silent = sum(not _is_telling(member) for member in part.members)
    if silent:
        what = "member" if silent == 1 else "members"
        node.children.append(Node(((_DIM, f"{silent} {what} without device code"),)))
    node.children += _problems(part.problems)
    return node


def _is_telling(member: Part) -> bool:
    return member.has_device_code or bool(member.functions or member.problems)


def _image(image: Image) -> Node:
    target = " ".join(word for word in (image.kind, image.triple, image.arch) if word)
    line: tuple[Span, ...] = (
        (_PLAIN, f"image {image.index} "),
        (_GOOD, shown(target)),
        (
            _PLAIN,
            f"{': ' if target else ''}{shown(str(image.form))}, {size_text(image.size_bytes)}",
        ),
    )
    if image.stored_bytes is not None:
        line += ((_PLAIN, f" ({image.compression}: {size_text(image.stored_bytes)})"),)
    line += ((_PLAIN, _at(image.offset)),)
    node = Node(line, list(_image_facts(image)))
    code = image.code
    if code is not None:
        node.children += [_kernel(kernel) for kernel in code.kernels]
        if code.undefined:
            node.children.append(Node(_row("undefined", shown(", ".join(code.undefined)))))
    node.children += [_image(inner) for inner in image.images]
    node.children += _problems(image.problems)
    return node


def _image_facts(image: Image) -> Iterator[Node]:
    if image.container is not None:
        yield Node(((_DIM, "in "), (_PLAIN, _container(image.container, image.image_kind))))
    if image.flags:
        yield Node(_row("flags", f"{image.flags:#x}"))
    for key, value in image.strings:
        yield Node(_row(shown(key), shown(value)))
    if image.code is not None and (made := _producer(image.code)):
        yield Node(((_DIM, _made_by(image.code)), (_PLAIN, shown(made))))
    if image.code is not None and image.code.is_relocatable is not None:
        state = "relocatable" if image.code.is_relocatable else "linked"
        yield Node(((_PLAIN, state),))
    if image.sha256:
        yield Node(_row("sha256", image.sha256))


def _container(container: Container, image_kind: str) -> str:
    version = f" version {container.version}" if container.version else ""
    compressed = f" ({container.compression})" if container.compression else ""
    size = size_text(container.size_bytes)
    named = f", as {image_kind}" if image_kind else ""
    return f"{container.form}{version}{compressed}, {size}{_at(container.offset)}{shown(named)}"


def _made_by(code: DeviceCode) -> str:
    """Return the label of the producer: a linked ELF image also names the compilers of its libraries."""
    is_linked_elf = code.form in _ELF_FORMS and not code.is_relocatable
    return "contains code by " if is_linked_elf else "made by "


def _producer(code: DeviceCode) -> str:
    if code.llvm_major is None or str(code.llvm_major) in code.producer:
        return code.producer
    return f"{code.producer} (LLVM {code.llvm_major})".strip()


def _kernel(kernel: DeviceKernel) -> Node:
    facts = kernel_facts(kernel)
    return Node(
        (
            (_DIM, "kernel "),
            (_NAME, shown(kernel.name)),
            (_PLAIN, parameter_list(kernel.parameters)),
            (_DIM, f"  {facts}" if facts else ""),
        )
    )


def _entries(entries: Iterable[Entry]) -> Iterator[Node]:
    for (section, first, last), group in groupby(
        entries, lambda entry: (entry.section, entry.first_release, entry.last_release)
    ):
        rows = [_entry(entry) for entry in group]
        yield _group(f"entries in {shown(section)}, read by {_releases(first, last)}", rows)


def _releases(first: int, last: int) -> str:
    if not first:
        return "no release of LLVM"
    return f"LLVM {first}" if first == last else f"LLVM {first} to {last}"


def _entry(entry: Entry) -> Node:
    size = f"  {size_text(entry.size_bytes)}" if entry.size_bytes else ""
    flags = f"  {' '.join(entry.flags)}" if entry.flags else ""
    linked = "  linked already" if entry.is_device_linked else ""
    return Node(
        (
            (_DIM, "entry "),
            (_GOOD, shown(entry.kind)),
            (_PLAIN, f" {entry.what} "),
            (_NAME, shown(entry.name)),
            (_PLAIN, f"{size}{flags}{linked}"),
        )
    )


def _module(module: SourceModule) -> Node:
    targets = f": {', '.join(module.targets)}" if module.targets else ""
    rows = [_source_kernel(kernel) for kernel in module.kernels]
    return Node(
        ((_DIM, "gpu.module "), (_NAME, shown(module.name)), (_PLAIN, shown(targets))), rows
    )


def _source_kernel(kernel: SourceKernel) -> Node:
    symbol = f"  symbol {kernel.symbol}" if kernel.symbol != kernel.name else ""
    block = kernel.known_block_size
    threads = f"  {TIMES.join(map(str, block))} threads" if block else ""
    return Node(
        (
            (_DIM, "kernel "),
            (_NAME, shown(kernel.name)),
            (_PLAIN, shown(f"({', '.join(kernel.parameter_types)})")),
            (_DIM, shown(threads + symbol)),
        )
    )


def _problems(problems: Iterable[Problem]) -> list[Node]:
    nodes = []
    for problem in problems:
        hint = [Node(((_DIM, "hint: "), (_PLAIN, shown(problem.hint))))] if problem.hint else []
        nodes.append(Node(((_BAD, f"problem: {shown(problem.message)}"),), hint))
    return nodes


def _group(title: str, rows: list[Node]) -> Node:
    return Node(((_PLAIN, title),), rows)


def _row(name: str, value: str) -> tuple[Span, ...]:
    return ((_DIM, f"{name} "), (_PLAIN, value))


def _at(offset: int | None) -> str:
    return "" if offset is None else f" at {offset}"
