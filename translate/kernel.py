"""The kernels of a program: their symbol names, and how their parameters are passed.

A symbol is unique in any program. If the author did not name the module, it contains a hash of its text. The text of
a module that is split off depends on its position: on line numbers, and on the numbers of values and aliases.
`hermetic_text` removes these, so that the text changes only with its own code and caches hit. A kernel takes only
those parts of a memref descriptor that it reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from mlir_offload.toolchain.byte_view import sha256
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.gpu_module import KernelKey
from mlir_offload.translate.mlir.module import Module, parse_module
from mlir_offload.translate.mlir.operation import Operation, function_type
from mlir_offload.translate.mlir.syntax import MLIR, Attribute, parse_shaped, replace_names, tokens

# The device lowering of this operation stores file, line and function.
_LOCATED = "cf.assert"
_RESOURCE_USE = "dense_resource<"
_FUNCTIONS = frozenset({"func.func", "llvm.func"})
_UNIT_DIGITS = 10
_NAME_BYTES = frozenset(byte for byte in range(128) if chr(byte).isalnum() or chr(byte) == "_")


def hermetic_text(text: str, *, keeps_locations: bool = False) -> str:
    """Return a program in generic form with names that depend only on its own content.

    Values, blocks and aliases are renumbered in the order of their first use. Unused aliases and
    resources are removed, and also source locations, unless `keeps_locations` is set or a location
    becomes part of the code.
    """
    module = parse_module(text)
    program = module.operation
    for operation in () if keeps_locations else (program, *program.walk_inside()):
        if operation.name != _LOCATED:
            operation.drop_locations()
    names = _Names(module.aliases)
    body = [names.renamed(line) for line in program.lines()]
    used = {key for line in body for key in _resources_in(line)}
    resources = _used_resources(module.resources, used) if used else []
    return "\n".join((*names.definitions, *body, *resources)) + "\n"


class _Names(Struct):
    """New names for values, blocks and aliases, in the order of their first use.

    `definitions` are the used aliases; each one follows those that it refers to.
    """

    aliases: dict[str, str]
    definitions: list[str] = []
    _new: dict[str, str] = {}

    def renamed(self, line: str) -> str:
        return replace_names(line, self._name)

    def _name(self, old: str) -> str:
        if old in self._new:
            return self._new[old]
        if old[0] in "%^":
            new = f"%{len(self._new)}" if old[0] == "%" else f"^bb{len(self._new)}"
        elif old in self.aliases:
            # The recursion terminates, because aliases are not recursive.
            definition = self.renamed(self.aliases[old])
            new = f"{old[0]}a{len(self.definitions)}"
            self.definitions.append(f"{new} = {definition}")
        else:
            new = old
        self._new[old] = new
        return new


def _resources_in(line: str) -> Iterator[str]:
    return (piece.partition(">")[0] for piece in line.split(_RESOURCE_USE)[1:])


def _used_resources(lines: Iterable[str], used: set[str]) -> list[str]:
    """Remove unused entries from the section of resources."""
    kept: list[str] = []
    for line in lines:
        key, _, value = line.strip().partition(": ")
        if key.startswith('"'):
            key, value = tokens(line)[0], tokens(line)[2]
        if not value.startswith('"0x'):
            if line.strip().startswith("}") and kept:
                kept[-1] = kept[-1].rstrip(",")
            kept.append(line)
        elif key in used:
            kept.append(line.rstrip(",") + ",")
    return kept


def owner_of(module: Module, source_text: str) -> str:
    """Return the name of a function that the file exports, or its source text if it exports none."""
    exported = (op.symbol for op in module.operations if _is_exported(op))
    return min(exported, default=source_text)


def unit_of(module: Module, device_module: Operation, *, file: str, owner: str) -> str:
    """Return the text whose hash makes the kernel names of a device module unique in any program.

    It consists of the file name, the device module and its `owner`, an exported function of the file.
    Two files with the same exported function cannot be linked, so the text is unique. If other code
    changes, the names and cached results stay valid. The `owner` of a file without exported functions
    is its content.
    """
    text = hermetic_text(module.render_part([device_module]))
    return f"{file}\0{owner}\0{text}"


def _is_exported(operation: Operation) -> bool:
    if operation.name not in _FUNCTIONS or operation.is_declaration:
        return False
    linkage = operation.attribute("linkage").enumerator
    is_private = operation.attribute("sym_visibility").string == "private"
    return not is_private and linkage in {"", "external"}


def assign_symbols(
    modules: Mapping[str, tuple[str, ...]],
    *,
    named: frozenset[str],
    unit_of: Callable[[str], str],
    declared: Iterable[KernelKey] = (),
    variants: frozenset[str] = frozenset(),
) -> dict[KernelKey, str]:
    """Return the symbol of each kernel, which is unique in the program and valid for every target.

    A kernel in a module that the author named keeps its name if no other module of the program has a
    kernel of that name and NVPTX accepts it. The name of any other kernel consists of a hash of
    `unit_of(module)`, the module and the kernel, so that two files outlined from equal sources can be
    linked. Kernels with one name in `variants`, which are modules for different GPUs, are one kernel. A
    declared kernel keeps its name, because another file defines it.
    """
    foreign = {key: key[1] for key in declared}
    counts = Counter(kernel for kernels in modules.values() for kernel in kernels)
    counts.update(set(foreign.values()))
    common: dict[str, str] = {}
    symbols: dict[KernelKey, str] = {}
    taken: set[str] = set()
    for module, kernels in modules.items():
        for kernel in kernels:
            if module in variants and kernel in common:
                symbols[module, kernel] = common[kernel]
                continue
            is_only = counts[kernel] == sum(kernel in modules[name] for name in variants | {module})
            keeps = module in named and is_only and hex_coded(kernel) == kernel
            symbol = kernel if keeps else _unit_symbol(unit_of(module), module, kernel)
            while symbol in taken:
                symbol += "_"
            taken.add(symbol)
            symbols[module, kernel] = symbol
            if module in variants:
                common[kernel] = symbol
    return symbols | foreign


def _unit_symbol(unit: str, module: str, kernel: str) -> str:
    digest = sha256(unit.encode("utf-8", errors="surrogateescape")).hexdigest()
    return f"__mo_{digest[:_UNIT_DIGITS]}_{hex_coded(module)}__{hex_coded(kernel)}"


def hex_coded(name: str) -> str:
    """Return a C identifier; bytes other than letters, digits and underscores become hexadecimal.

    NVPTX rejects dots and dashes ("Symbol name with unsupported characters").
    """
    coded = "".join(
        chr(byte) if byte in _NAME_BYTES else f"_{byte:02x}"
        for byte in name.encode("utf-8", errors="surrogateescape")
    )
    return f"_{coded}" if coded[:1].isdigit() else coded


def host_symbols(modules: Iterable[str]) -> dict[str, str]:
    """Return for each module the symbol of its `gpu.binary` in the host module, which needs no quotes."""
    symbols: dict[str, str] = {}
    taken = set(modules)
    for module in modules:
        symbol = hex_coded(module)
        while symbol != module and symbol in taken:
            symbol += "_"
        taken.add(symbol)
        symbols[module] = symbol
    return symbols


class ParameterTypeError(SourceError):
    """A kernel has a parameter type that its target does not support, found in LLVM IR."""

    def __init__(self, kernel: str, kind: str, why: str, *, hint: str) -> None:
        """Store the symbol of the kernel in the image."""
        super().__init__(f"kernel '{kernel}' has a parameter of type {kind}, {why}", hint=hint)
        self.kernel = kernel


class ParameterForm(StrEnum):
    """The form in which a kernel takes memrefs.

    `whole`: as memrefs. `parts`: as all parts of their descriptors, which equals the upstream lowering.
    `needed`: as the parts that it reads; only for kernels that no other file launches.
    """

    WHOLE = "whole"
    PARTS = "parts"
    NEEDED = "needed"


Place = tuple[int, ...]
"""The position of a part in a descriptor, as in llvm.extractvalue."""


def position_of(place: Place) -> dict[str, str]:
    """Return a position as attribute of llvm.extractvalue and llvm.insertvalue."""
    return {"position": f"array<i64: {', '.join(map(str, place))}>"}


WIDE = 64
"""The width of `index` on the host in bits."""
ALLOCATED, POINTER, OFFSET = (0,), (1,), (2,)
_SIZES, _STRIDES = 3, 4
_GLOBAL = frozenset({"1", "1 : i32", "1 : i64", "#gpu.address_space<global>"})
# Operations that do not read the sizes of a memref, and the index of the memref operand.
_ACCESSES = {
    "affine.load": 0,
    "affine.store": 1,
    "memref.atomic_rmw": 1,
    "memref.generic_atomic_rmw": 0,
    "memref.load": 0,
    "memref.store": 1,
    "vector.load": 0,
    "vector.store": 1,
}
_READS = frozenset({"affine.load", "memref.dim", "memref.load", "vector.load"})
# Operations that read the allocated pointer.
_FREES = frozenset({"memref.dealloc", "memref.realloc"})


class Descriptor(Struct, frozen=True):
    """The parts of a memref descriptor that its type determines; None for parts known only at run time."""

    element: str
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    offset: int | None = 0
    is_global: bool = False

    @property
    def pointer_type(self) -> str:
        """Return the type of the pointers."""
        return "!llvm.ptr<1>" if self.is_global else "!llvm.ptr"

    def struct_type(self, bits: int) -> str:
        """Return the struct type of the lowered memref, with integers of `bits` bits."""
        pointer, rank = self.pointer_type.removeprefix("!llvm."), len(self.sizes)
        lists = f", array<{rank} x i{bits}>" * 2 if rank else ""
        return f"!llvm.struct<({pointer}, {pointer}, i{bits}{lists})>"

    def places(self) -> Iterator[tuple[Place, int | None]]:
        """Yield the position of each integer, and its value, None if it is unknown."""
        yield OFFSET, self.offset
        for first, numbers in ((_SIZES, self.sizes), (_STRIDES, self.strides)):
            for index, number in enumerate(numbers):
                yield (first, index), number


class Parameter(Struct, frozen=True):
    """The parts of a memref descriptor that are passed; `is_read_only` if the kernel only reads the memref."""

    descriptor: Descriptor
    parts: tuple[Place, ...]
    is_read_only: bool = False

    def part_type(self, place: Place) -> str:
        """Return the parameter type of a part."""
        return self.descriptor.pointer_type if place in {ALLOCATED, POINTER} else "i64"


KernelParameters = tuple[Parameter | None, ...]
"""The form of each kernel parameter; None for a parameter that is passed unchanged."""


def plan_parameters(kernel: Operation, *, only_needed: bool) -> KernelParameters:
    """Return the form of each parameter of a `gpu.func`."""
    names = [one.name for one in kernel.regions[0].blocks[0].arguments]
    inside = kernel.walk_inside()
    frees = any(operation.name in _FREES for operation in inside)
    found: list[Parameter | None] = []
    for name, kind in zip(names, function_type(kernel)[0], strict=False):
        descriptor = parse_descriptor(kind)
        if descriptor is None:
            found.append(None)
            continue
        users = [operation for operation in inside if name in operation.operand_names]
        needs_all = frees or not only_needed
        parts = _all_parts(descriptor) if needs_all else _needed_parts(descriptor, name, users)
        is_read_only = all(user.name in _READS for user in users)
        found.append(Parameter(descriptor, parts, is_read_only))
    return tuple(found)


def parse_descriptor(kind: str) -> Descriptor | None:
    """Parse a memref type. Return None for other types and for memory spaces that a launch cannot pass."""
    memref = parse_shaped(kind, "memref")
    if memref is None:
        return None
    layout, space = _layout_and_space(memref.parameters)
    if space and space not in _GLOBAL:
        return None
    is_global = bool(space)
    if not layout:
        strides = _packed_strides(memref.sizes)
        return Descriptor(memref.element, memref.sizes, strides, 0, is_global)
    strided = Attribute(layout)
    if strided.name != "strided":
        return None
    listed, *others = MLIR.split_list(strided.body)
    strides = tuple(map(_number, MLIR.split_list(listed[1:-1])))
    offset = _number(others[0].removeprefix("offset: ")) if others else 0
    return Descriptor(memref.element, memref.sizes, strides, offset, is_global)


def _layout_and_space(parameters: Sequence[str]) -> tuple[str, str]:
    if len(parameters) > 1:
        return parameters[0], parameters[1]
    one = parameters[0] if parameters else ""
    is_layout = one.startswith(("strided<", "affine_map<", "#map"))
    return (one, "") if is_layout else ("", one)


def _number(text: str) -> int | None:
    return None if text == "?" else int(text)


def _packed_strides(sizes: Sequence[int | None]) -> tuple[int | None, ...]:
    strides: list[int | None] = [1]
    for size in reversed(sizes[1:]):
        last = strides[-1]
        strides.append(None if size is None or last is None else size * last)
    return tuple(reversed(strides)) if sizes else ()


def _all_parts(descriptor: Descriptor) -> tuple[Place, ...]:
    return (ALLOCATED, POINTER, *(place for place, _ in descriptor.places()))


def _needed_parts(
    descriptor: Descriptor, name: str, users: Sequence[Operation]
) -> tuple[Place, ...]:
    if not users:
        return ()
    needs_sizes = not all(_is_access(user, name) for user in users)
    numbers = (
        place
        for place, number in descriptor.places()
        if number is None and (needs_sizes or place[0] != _SIZES)
    )
    return (POINTER, *numbers)


def _is_access(user: Operation, name: str) -> bool:
    names = user.operand_names
    place = _ACCESSES.get(user.name)
    return place is not None and names.count(name) == 1 and names.index(name) == place
