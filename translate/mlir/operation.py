"""Operations, regions and blocks of MLIR's generic form.

An operation keeps the text of its attributes, types and location, and parses it on first access. After that, it is
printed from the parsed parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from mlir_offload.toolchain.pattern import pattern
from mlir_offload.translate.mlir.syntax import (
    MLIR,
    Attribute,
    Signature,
    parse_signature,
    rename_values,
    render_signature,
    split_types,
)

_INDENT = "  "
_LLVM_TYPE = pattern(r"(?:ptr|struct|array|vec|target|x86_amx|ppc_fp128|x86_fp80)\b")
_NOTHING = Attribute("")


class Value(Struct, frozen=True, gc=False):
    """A value: its name, including the percent sign, and its type."""

    name: str
    type: str


class BlockArgument(Struct, frozen=True, gc=False):
    """A block argument. The location is empty or begins with `loc(`."""

    name: str
    type: str
    location: str = ""


def entry_label(arguments: Iterable[BlockArgument]) -> str:
    """Return the label of an entry block with these arguments, an empty string for none."""
    shown = ", ".join(f"{one.name}: {one.type} {one.location}".rstrip() for one in arguments)
    return f"^bb0({shown}):" if shown else ""


class Block(Struct, eq=False, gc=False):
    """A block: the text of its label, which may be empty, and its operations."""

    label: str = ""
    operations: list[Operation] = []

    @property
    def arguments(self) -> tuple[BlockArgument, ...]:
        """Return its arguments."""
        start = self.label.find("(")
        if start < 0 or self.label[:start].endswith(":"):
            return ()
        return tuple(map(_block_argument, MLIR.split_list(MLIR.inside(self.label, start))))

    def drop_locations(self) -> None:
        """Remove the locations of its arguments."""
        if " loc(" in self.label:
            end = MLIR.closing(self.label, self.label.index("("))
            shown = ", ".join(f"{one.name}: {one.type}" for one in self.arguments)
            self.label = f"{self.label[: self.label.index('(')]}({shown}{self.label[end:]}"

    def add_argument(self, value: Value) -> None:
        """Add an argument behind those that it has; it has one."""
        end = MLIR.closing(self.label, self.label.index("("))
        self.label = f"{self.label[:end]}, {value.name}: {value.type}{self.label[end:]}"

    @classmethod
    def with_arguments(cls, arguments: Iterable[Value]) -> Block:
        """Return an entry block with arguments of these names and types."""
        return cls(f"^bb0({', '.join(f'{one.name}: {one.type}' for one in arguments)}):")


class Region(Struct, eq=False, gc=False):
    """The blocks of a region."""

    blocks: list[Block] = []

    def walk(self) -> list[Operation]:
        """Return its operations and those in nested regions, in pre-order."""
        found: list[Operation] = []
        self.collect(found)
        return found

    def collect(self, found: list[Operation]) -> None:
        """Append the result of `walk`."""
        for block in self.blocks:
            for operation in block.operations:
                found.append(operation)
                for region in operation.regions:
                    region.collect(found)

    def clone(self) -> Region:
        """Return a deep copy."""
        return Region(
            [Block(one.label, [op.clone() for op in one.operations]) for one in self.blocks]
        )

    def rename(self, names: dict[str, str]) -> None:
        """Rename the operands of its operations."""
        for operation in self.walk() if names else ():
            operation.rename_operands(names)


class Operation(Struct, eq=False, gc=False):
    """An operation in generic form. `result_text` is `%0:2` for two results with one name.

    `head` is the text after the operands up to the first region, `end` the text after the last region.
    Both are obsolete after the `signature` has been parsed.
    """

    name: str
    result_text: str = ""
    operand_text: str = ""
    head: str = ""
    end: str = ""
    regions: list[Region] = []
    _signature: Signature | None = None

    def copy_without_regions(self) -> Operation:
        """Return a copy without regions."""
        self._print_signature()
        return type(self)(self.name, self.result_text, self.operand_text, self.head, self.end)

    def clone(self) -> Operation:
        """Return a deep copy."""
        copy = self.copy_without_regions()
        copy.regions = [region.clone() for region in self.regions]
        return copy

    @property
    def signature(self) -> Signature:
        """Return the parsed part after the operands, which may be changed."""
        if self._signature is None:
            self._signature = parse_signature(self.head, self.end if self.regions else None)
        return self._signature

    @property
    def properties(self) -> dict[str, Attribute]:
        """Return the properties (inherent attributes)."""
        return self.signature.properties

    @property
    def attributes(self) -> dict[str, Attribute]:
        """Return the discardable attributes."""
        return self.signature.attributes

    @property
    def operand_types(self) -> list[str]:
        """Return the types of its operands."""
        return self.signature.operand_types

    @property
    def result_types(self) -> list[str]:
        """Return the types of its results."""
        return self.signature.result_types

    @property
    def location(self) -> str:
        """Return its location, `loc(...)`, an empty string if it has none."""
        if self._signature is not None:
            return self._signature.location
        text = self.end if self.regions else self.head
        return text[_location_start(text) + 1 :]

    def drop_locations(self) -> None:
        """Remove its location, and the locations of its block arguments."""
        if self._signature is not None:
            self._signature.location = ""
        elif self.regions:
            self.end = self.end[: _location_start(self.end)]
        else:
            self.head = self.head[: _location_start(self.head)]
        for region in self.regions:
            for block in region.blocks:
                block.drop_locations()

    def attribute(self, name: str) -> Attribute:
        """Return a property or attribute, an empty one if the operation does not have it."""
        signature = self.signature
        return signature.properties.get(name) or signature.attributes.get(name) or _NOTHING

    @property
    def known_block_size(self) -> Sequence[int]:
        """Return the known block size of a GPU function, an empty sequence if it has none.

        It is a property, or the attribute `gpu.known_block_size`.
        """
        return (
            self.attribute("known_block_size").integers
            or self.attribute("gpu.known_block_size").integers
        )

    def has(self, name: str) -> bool:
        """Return whether the operation has a property or attribute with this name."""
        return name in self.signature.properties or name in self.signature.attributes

    def set_attribute(self, name: str, value: Attribute) -> None:
        """Set a property or attribute. A new name is added as an attribute."""
        signature = self.signature
        is_own = name in signature.properties
        (signature.properties if is_own else signature.attributes)[name] = value

    @property
    def operand_names(self) -> list[str]:
        """Return the names of its operands."""
        return self.operand_text.split(", ") if self.operand_text else []

    @property
    def operands(self) -> tuple[Value, ...]:
        """Return its operands."""
        return tuple(map(Value, self.operand_names, self.operand_types))

    @operands.setter
    def operands(self, values: Sequence[Value]) -> None:
        self.operand_text = ", ".join(value.name for value in values)
        self.signature.operand_types = [value.type for value in values]

    @property
    def result_names(self) -> list[str]:
        """Return the names of its results, as operands refer to them."""
        if ":" not in self.result_text:
            return self.result_text.split(", ") if self.result_text else []
        groups = (group.partition(":") for group in self.result_text.split(", "))
        return [
            f"{name}#{index}" if count else name
            for name, _, count in groups
            for index in range(int(count or 1))
        ]

    @property
    def results(self) -> tuple[Value, ...]:
        """Return its results."""
        return tuple(map(Value, self.result_names, self.result_types))

    @property
    def operations(self) -> list[Operation]:
        """Return the operations of the first block in its first region."""
        blocks = self.regions[0].blocks if self.regions else ()
        return blocks[0].operations if blocks else []

    @property
    def symbol(self) -> str:
        """Return the symbol that it defines, an empty string if it defines none."""
        return self.attribute("sym_name").string

    @property
    def is_declaration(self) -> bool:
        """Return whether it has no body, like a function that is defined elsewhere."""
        return not self.regions or not self.regions[0].blocks

    def walk_inside(self) -> list[Operation]:
        """Return the operations in its regions, in pre-order."""
        found: list[Operation] = []
        for region in self.regions:
            region.collect(found)
        return found

    def rename_operands(self, names: Mapping[str, str]) -> None:
        """Rename its operands."""
        if self.operand_text:
            self.operand_text = ", ".join(names.get(name, name) for name in self.operand_names)

    def edit_text(self, edit: Callable[[str], str]) -> None:
        """Edit the text of attributes, types and locations, including those in its regions."""
        self._print_signature()
        head, end = edit(self.head), edit(self.end)
        if (head, end) != (self.head, self.end):
            self.head, self.end, self._signature = head, end, None
        for region in self.regions:
            for block in region.blocks:
                block.label = edit(block.label)
                for operation in block.operations:
                    operation.edit_text(edit)

    def lines(self, indent: str = "") -> list[str]:
        """Return its lines as mlir-opt prints them."""
        out: list[str] = []
        self.render(indent, out)
        return out

    def render(self, indent: str, out: list[str]) -> None:
        """Append its lines to `out`."""
        self._print_signature()
        results = f"{self.result_text} = " if self.result_text else ""
        first = f'{indent}{results}"{self.name}"({self.operand_text}){self.head}'
        if not self.regions:
            out.append(first)
            return
        out.append(f"{first} ({{")
        inside = indent + _INDENT
        for number, region in enumerate(self.regions):
            if number:
                out.append(f"{indent}}}, {{")
            for block in region.blocks:
                if block.label:
                    out.append(indent + block.label)
                for operation in block.operations:
                    operation.render(inside, out)
        out.append(f"{indent}}}){self.end}")

    def _print_signature(self) -> None:
        if self._signature is not None:
            self.head, self.end = render_signature(self._signature, has_regions=bool(self.regions))


class CustomOperation(Operation, eq=False, gc=False):
    """An operation in custom form, `head`, for operations whose generic form depends on the release.

    `end` is its location.
    """

    @classmethod
    def parse(cls, result_text: str, text: str) -> CustomOperation:
        """Parse an operation on one line, without its results."""
        start = _location_start(text)
        return cls(text.partition(" ")[0], result_text, "", text[:start], text[start + 1 :])

    def drop_locations(self) -> None:
        """Remove its location."""
        self.end = ""

    @property
    def signature(self) -> Signature:
        """Return a signature with only the location."""
        return Signature(location=self.end)

    def rename_operands(self, names: Mapping[str, str]) -> None:
        """Rename its operands."""
        self.head = rename_values(self.head, names)

    def render(self, indent: str, out: list[str]) -> None:
        """Append its line to `out`."""
        results = f"{self.result_text} = " if self.result_text else ""
        out.append(f"{indent}{results}{self.head} {self.end}".rstrip())


def _location_start(text: str) -> int:
    """Return the start of the location at the end of a text, including its space; the end if there is none."""
    start = text.rfind(" loc(")
    if start >= 0 and '"' in text[start:]:
        start = MLIR.blanked(text).rfind(" loc(")
    # A location in an attribute is not at the end of the text.
    is_last = start >= 0 and MLIR.closing(text, start + len(" loc")) == len(text) - 1
    return start if is_last else len(text)


def _block_argument(text: str) -> BlockArgument:
    name, _, rest = text.partition(": ")
    start = rest.find(" loc(")
    return (
        BlockArgument(name, rest)
        if start < 0
        else BlockArgument(name, rest[:start], rest[start + 1 :])
    )


def function_type(operation: Operation) -> tuple[list[str], list[str]]:
    """Return the parameter and result types of a function, empty lists for another operation."""
    text = operation.attribute("function_type")
    if text.startswith("("):
        end = MLIR.closing(text, 0)
        return MLIR.split_list(text[1:end]), split_types(text[end + len(" -> ") + 1 :])
    if text.name != "!llvm.func":
        return [], []
    body = text.body
    start = MLIR.enclosing(body, len(body) - 1)[-1]
    result = body[:start].strip()
    takes = MLIR.split_list(body[start + 1 : -1])
    return [_spelled(kind) for kind in takes], [] if result == "void" else [_spelled(result)]


def _spelled(kind: str) -> str:
    """Return a type of the LLVM dialect in the form that it has outside of LLVM types."""
    return f"!llvm.{kind}" if _LLVM_TYPE.match(kind) else kind
