"""A module of LLVM bitcode, as far as it says who wrote it, what for and what is in it.

Independent of LLVM's own reader, which knows only its own and older releases, and which files that
are damaged may crash. Bodies of functions, constants and metadata are passed over by their length;
`bitcode_constant`, `bitcode_metadata` and `bitcode_census` look into them when they are asked to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mlir_offload.toolchain.bit_array import bits
from mlir_offload.toolchain.bitcode_attribute import AttributeTable
from mlir_offload.toolchain.bitcode_code import (
    BlockId,
    IdentificationCode,
    ModuleCode,
    SummaryCode,
    SymbolCode,
)
from mlir_offload.toolchain.bitcode_global import (
    BitcodeFunction,
    BitcodeVariable,
    GlobalReader,
    StringTable,
    Symbol,
)
from mlir_offload.toolchain.bitcode_type import TypeTable
from mlir_offload.toolchain.bitstream import BitStream, Block, BlockReader, Record, outer_block
from mlir_offload.toolchain.byte_view import ByteView

MAGIC = b"BC\xc0\xde"
WRAPPER_MAGIC = b"\xde\xc0\x17\x0b"
_WRAPPER_BYTES = 20
_NEWEST_VERSION = 2
_MAX_MODULES = 1000
_GLOBALS = frozenset(
    {
        ModuleCode.GLOBAL_VARIABLE,
        ModuleCode.FUNCTION,
        ModuleCode.ALIAS_OLD,
        ModuleCode.ALIAS,
        ModuleCode.IFUNC,
    }
)


@dataclass(frozen=True, slots=True)
class ModuleContent:
    """Where the parts of a module lie that are read on demand."""

    stream: BitStream
    module: Block
    constants: tuple[Block, ...]
    metadata: tuple[Block, ...]
    metadata_kinds: tuple[Block, ...]
    bodies: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class BitcodeModule:
    """One module.

    `producer` is what wrote it, as it says; `version` is that of the format of its records. `symbols`
    are functions, variables and aliases in the order that gives them their numbers as values.
    `thin_summary` and `full_summary` are the versions of its summaries for link-time optimisation,
    None where there is none.
    """

    producer: str
    epoch: int
    version: int
    triple: str
    data_layout: str
    source_file: str
    types: TypeTable
    attributes: AttributeTable
    symbols: tuple[Symbol, ...]
    thin_summary: int | None
    full_summary: int | None
    content: ModuleContent

    @property
    def functions(self) -> Iterator[BitcodeFunction]:
        """Return the functions, declarations included."""
        return (symbol for symbol in self.symbols if isinstance(symbol, BitcodeFunction))

    @property
    def variables(self) -> Iterator[BitcodeVariable]:
        """Return the global variables, declarations included."""
        return (symbol for symbol in self.symbols if isinstance(symbol, BitcodeVariable))

    def parameter_types(self, function: BitcodeFunction) -> tuple[str, ...]:
        """Return the types of the parameters of a function, as LLVM's text spells them."""
        elements = self.types.function(function.type).elements
        return tuple(self.types.spell(element) for element in elements[1:])


def read_bitcode(view: ByteView) -> BitcodeModule:
    """Return the module of a file. Raises VerificationError where it is malformed, or has several."""
    modules = read_bitcode_modules(view)
    if len(modules) == 1:
        return modules[0]
    raise view.malformed(0, "modules", f"there are {len(modules)}, where one is expected")


def read_bitcode_modules(view: ByteView) -> tuple[BitcodeModule, ...]:
    """Return all modules of a file: LLVM splits one for link-time optimisation, `llvm-cat` joins some.

    Raises VerificationError where it is no bitcode, or malformed.
    """
    stream = BitStream(unwrapped(view))
    outer = _outer_modules(stream, outer_blocks(stream))
    return tuple(_read_module(stream.anew(), one) for one in outer)


def unwrapped(view: ByteView) -> ByteView:
    """Return the bitstream: Darwin puts a header before it that tells offset and size."""
    form = "LLVM bitcode"
    view = view.part(0, view.size, "file", form=form)
    if view.head(4) == WRAPPER_MAGIC:
        header = view.read(0, _WRAPPER_BYTES, "wrapper header")
        begin, size = (int.from_bytes(header[at : at + 4], "little") for at in (8, 12))
        view = view.part(begin, size, "bitcode in its wrapper")
    if view.head(4) != MAGIC:
        raise view.malformed(0, "magic", f"it is {view.head(4).hex()}, not {MAGIC.hex()}")
    return view


@dataclass(frozen=True, slots=True)
class _OuterModule:
    """What stands outside of a module and belongs to it."""

    module: Block
    identification: Block | None
    strings: Block | None


def outer_blocks(stream: BitStream) -> list[Block]:
    """Return what stands outside of all other blocks: modules and what belongs to them."""
    blocks: list[Block] = []
    position = 8 * len(MAGIC)
    while position + 64 <= stream.size:
        # Modules that are joined keep their magic; what fills up the end of a file is zero.
        word = bits(stream.data, position, 32)
        if word == int.from_bytes(MAGIC, "little"):
            position += 32
        elif not word and not any(stream.data[position >> 3 :]):
            break
        else:
            blocks.append(outer_block(stream, position))
            position = blocks[-1].end
    return blocks


def _outer_modules(stream: BitStream, blocks: Sequence[Block]) -> list[_OuterModule]:
    """Return the modules. A string table belongs to all modules before it that have none."""
    modules: list[_OuterModule] = []
    waiting: list[Block] = []
    identification: dict[int, Block | None] = {}
    latest = None
    for block in blocks:
        if block.number == BlockId.IDENTIFICATION:
            latest = block
        elif block.number == BlockId.MODULE:
            waiting.append(block)
            identification[block.begin] = latest
            latest = None
        elif block.number == BlockId.STRINGS:
            modules += [_OuterModule(one, identification[one.begin], block) for one in waiting]
            waiting = []
    modules += [_OuterModule(one, identification[one.begin], None) for one in waiting]
    if not modules or len(modules) > _MAX_MODULES:
        raise stream.malformed(0, "modules", f"there are {len(modules)}")
    return modules


@dataclass(slots=True)
class _ModuleParts:
    """What a walk over a module has found so far."""

    version: int = 0
    strings: dict[int, str] = field(default_factory=dict)
    sections: list[str] = field(default_factory=list)
    globals: list[Record] = field(default_factory=list)
    blocks: dict[int, list[Block]] = field(default_factory=dict)

    def found(self, number: BlockId) -> tuple[Block, ...]:
        return tuple(self.blocks.get(number, ()))


_TEXTS = frozenset({ModuleCode.TRIPLE, ModuleCode.DATA_LAYOUT, ModuleCode.SOURCE_FILE})


def _read_module(stream: BitStream, outer: _OuterModule) -> BitcodeModule:
    producer, epoch = _read_identification(stream, outer.identification)
    parts = _walk(stream, outer.module)
    types = _read_types(stream, parts)
    attributes = AttributeTable(
        _records(stream, parts.found(BlockId.ATTRIBUTE_GROUP)),
        _records(stream, parts.found(BlockId.ATTRIBUTE)),
    )
    names = StringTable(_read_strings(stream, outer.strings), _value_names(stream, parts))
    reader = GlobalReader(parts.version, types, parts.sections, names)
    return BitcodeModule(
        producer=producer,
        epoch=epoch,
        version=parts.version,
        triple=parts.strings.get(ModuleCode.TRIPLE, ""),
        data_layout=parts.strings.get(ModuleCode.DATA_LAYOUT, ""),
        source_file=parts.strings.get(ModuleCode.SOURCE_FILE, ""),
        types=types,
        attributes=attributes,
        symbols=tuple(reader.read(record, place) for place, record in enumerate(parts.globals)),
        thin_summary=_summary_version(stream, parts.found(BlockId.SUMMARY)),
        full_summary=_summary_version(stream, parts.found(BlockId.FULL_LTO_SUMMARY)),
        content=ModuleContent(
            stream,
            outer.module,
            constants=parts.found(BlockId.CONSTANTS),
            metadata=parts.found(BlockId.METADATA),
            metadata_kinds=parts.found(BlockId.METADATA_KIND),
            bodies=parts.found(BlockId.FUNCTION),
        ),
    )


def _walk(stream: BitStream, module: Block) -> _ModuleParts:
    parts = _ModuleParts()
    for entry in BlockReader(stream, module):
        if isinstance(entry, Block):
            parts.blocks.setdefault(entry.number, []).append(entry)
        elif entry.code in _GLOBALS:
            parts.globals.append(entry)
        elif entry.code in _TEXTS:
            parts.strings[entry.code] = entry.string()
        elif entry.code == ModuleCode.SECTION_NAME:
            parts.sections.append(entry.string())
        elif entry.code == ModuleCode.VERSION:
            parts.version = entry.operand(0, "version")
            if parts.version > _NEWEST_VERSION:
                reason = f"version {parts.version}; the newest that is known is {_NEWEST_VERSION}"
                raise entry.malformed(reason)
    return parts


def _records(stream: BitStream, blocks: Iterable[Block]) -> Iterator[Record]:
    return (record for block in blocks for record in BlockReader(stream, block).records())


def _read_identification(stream: BitStream, block: Block | None) -> tuple[str, int]:
    producer, epoch = "", 0
    for record in _records(stream, [block] if block else []):
        if record.code == IdentificationCode.STRING:
            producer = record.string()
        elif record.code == IdentificationCode.EPOCH:
            epoch = record.operand(0, "epoch")
    return producer, epoch


def _read_types(stream: BitStream, parts: _ModuleParts) -> TypeTable:
    blocks = parts.found(BlockId.TYPE)
    if len(blocks) == 1:
        return TypeTable(BlockReader(stream, blocks[0]))
    raise stream.malformed(0, "module", f"it has {len(blocks)} tables of types")


def _read_strings(stream: BitStream, block: Block | None) -> bytes:
    if block is None:
        return b""
    record = next(BlockReader(stream, block).records(), None)
    return record.text() if record else b""


def _value_names(stream: BitStream, parts: _ModuleParts) -> dict[int, bytes]:
    """Return the names of values by number, where the module keeps them itself (LLVM before 5)."""
    names: dict[int, bytes] = {}
    if parts.version == _NEWEST_VERSION:
        return names
    for record in _records(stream, parts.found(BlockId.VALUE_SYMBOLS)):
        if record.code in {SymbolCode.ENTRY, SymbolCode.FUNCTION_ENTRY}:
            begin = 1 if record.code == SymbolCode.ENTRY else 2
            names[record.operand(0, "value")] = record.text(begin)
    return names


def _summary_version(stream: BitStream, blocks: Sequence[Block]) -> int | None:
    for record in _records(stream, blocks):
        if record.code == SummaryCode.VERSION:
            return record.operand(0, "version of the summary")
    return None
