"""Read the producer, target, types, attributes and globals of an LLVM bitcode module.

LLVM's own reader is not used, because it supports only its own and older releases, and corrupt files may
crash it. Function bodies, constants and metadata are skipped by their size. The modules `body`, `constant`
and `metadata` read them on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.toolchain import lazy
from mlir_offload.toolchain.bitcode.attribute import AttributeTable, read_attributes
from mlir_offload.toolchain.bitcode.bitstream import BitStream, Block, Record, outer_block
from mlir_offload.toolchain.bitcode.block_reader import BlockReader, records_of
from mlir_offload.toolchain.bitcode.code import (
    BlockId,
    IdentificationCode,
    ModuleCode,
    SummaryCode,
    SymbolCode,
)
from mlir_offload.toolchain.bitcode.global_value import (
    STRING_TABLE_VERSION,
    BitcodeFunction,
    BitcodeVariable,
    GlobalReader,
    StringTable,
    Symbol,
    read_strings,
)
from mlir_offload.toolchain.bitcode.repeated import (
    Content,
    Front,
    fronts,
    read_repeated,
    records_in,
)
from mlir_offload.toolchain.bitcode.type import TypeTable
from mlir_offload.toolchain.byte_view import ByteView

MAGIC = b"BC\xc0\xde"
WRAPPER_MAGIC = b"\xde\xc0\x17\x0b"
_PADDING = bytes(len(MAGIC))
_WRAPPER_BYTES = 20
_NEWEST_VERSION = 2
_MAX_MODULES = 1000
_FRONT_BITS = 1 << 15
_GLOBALS = frozenset(
    {
        ModuleCode.GLOBAL_VARIABLE,
        ModuleCode.FUNCTION,
        ModuleCode.ALIAS_OLD,
        ModuleCode.ALIAS,
        ModuleCode.IFUNC,
    }
)


class ModuleContent(Struct, frozen=True):
    """The locations of the parts of a module that are read on demand."""

    stream: BitStream
    module: Block
    constants: tuple[Block, ...]
    metadata: tuple[Block, ...]
    metadata_kinds: tuple[Block, ...]
    bodies: tuple[Block, ...]


class BitcodeModule(Struct, frozen=True, dict=True):
    """One module.

    `producer` is the string in its IDENTIFICATION block; `version` is the version of the record format;
    `source` is the record with the name of the source file. `symbols` are the functions, variables and
    aliases in the order of their value numbers. `thin_summary` and `full_summary` are the versions of the
    summaries for link-time optimization, None if there is none.
    """

    producer: str
    epoch: int
    version: int
    triple: str
    data_layout: str
    source: Record | None
    types: TypeTable
    attributes: AttributeTable
    symbols: tuple[Symbol, ...]
    thin_summary: int | None
    full_summary: int | None
    content: ModuleContent

    @property
    def source_file(self) -> str:
        """Return the name of the source file of the module, or ''."""
        return self.source.string() if self.source else ""

    @lazy
    def functions(self) -> tuple[BitcodeFunction, ...]:
        """Return the functions, including declarations."""
        return tuple([symbol for symbol in self.symbols if isinstance(symbol, BitcodeFunction)])

    @property
    def variables(self) -> Iterator[BitcodeVariable]:
        """Return the global variables, including declarations."""
        return (symbol for symbol in self.symbols if isinstance(symbol, BitcodeVariable))

    def parameter_types(self, function: BitcodeFunction) -> tuple[str, ...]:
        """Return the parameter types of a function, spelled as in textual IR."""
        elements = self.types.function(function.type).elements
        return tuple(self.types.spell(element) for element in elements[1:])


def read_bitcode(view: ByteView) -> BitcodeModule:
    """Return the only module of a file. Raises VerificationError if it is malformed or contains several."""
    modules = read_bitcode_modules(view)
    if len(modules) == 1:
        return modules[0]
    raise view.malformed(0, "modules", f"there are {len(modules)}, where one is expected")


def read_bitcode_modules(view: ByteView) -> tuple[BitcodeModule, ...]:
    """Return all modules of a file. LLVM splits modules for link-time optimization, and `llvm-cat` concatenates them.

    Raises VerificationError if it is not bitcode or is malformed.
    """
    stream = BitStream(unwrapped(view))
    tables: dict[Block | None, StringTable] = {}
    modules = []
    for one in _outer_modules(stream, outer_blocks(stream)):
        if one.strings not in tables:
            tables[one.strings] = StringTable(read_strings(stream, one.strings))
        modules.append(_read_module(stream.anew(), one, tables[one.strings]))
    return tuple(modules)


def read_bitcode_triples(view: ByteView) -> tuple[str, ...]:
    """Return the triple of each module, empty if it has none. The records after the triple are not read.

    Raises VerificationError if the file is not bitcode, or if the part that is read is malformed.
    """
    stream = BitStream(unwrapped(view))
    modules = _outer_modules(stream, outer_blocks(stream))
    return tuple(_triple(BlockReader(stream.anew(), one.module)) for one in modules)


def _triple(reader: BlockReader) -> str:
    found = (one.string() for one in reader.records() if one.code == ModuleCode.TRIPLE)
    return next(found, "")


def unwrapped(view: ByteView) -> ByteView:
    """Return the bitstream, without the wrapper header of Darwin, which contains its offset and size.

    Raises VerificationError if there is no bitcode.
    """
    form = "LLVM bitcode"
    view = view.part(0, view.size, "file", form=form)
    if view.head(4) == WRAPPER_MAGIC:
        header = view.read(0, _WRAPPER_BYTES, "wrapper header")
        begin, size = (int.from_bytes(header[at : at + 4], "little") for at in (8, 12))
        view = view.part(begin, size, "bitcode in its wrapper")
    if view.head(4) != MAGIC:
        raise view.malformed(0, "magic", f"it is {view.head(4).hex()}, not {MAGIC.hex()}")
    return view


class _OuterModule(Struct, frozen=True):
    """A module block, and the top-level blocks that belong to it."""

    module: Block
    identification: Block | None
    strings: Block | None


def outer_blocks(stream: BitStream) -> list[Block]:
    """Return the top-level blocks: modules and the blocks that belong to them."""
    blocks: list[Block] = []
    position = 8 * len(MAGIC)
    while position + 64 <= stream.size:
        # Each concatenated file has its own magic number. Padding at the end of a file is zero.
        at = position >> 3
        word = stream.data[at : at + len(MAGIC)]
        if word == MAGIC:
            position += 32
        elif word == _PADDING and not any(stream.data[at:]):
            break
        else:
            blocks.append(outer_block(stream, position))
            position = blocks[-1].end
    return blocks


def _outer_modules(stream: BitStream, blocks: Sequence[Block]) -> list[_OuterModule]:
    """Return the modules. A string table belongs to all preceding modules that have none."""
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


class _ModuleWalk:
    """One pass over a module. Reads strings, globals and types, and records the positions of all other blocks."""

    def __init__(self, stream: BitStream, module: Block, names: StringTable) -> None:
        self.version = 0
        self.texts: dict[int, str] = {}
        self.source: Record | None = None
        self.types: TypeTable | None = None
        self.symbols: list[Symbol] = []
        self._stream = stream
        self._names = names
        self._sections: list[str] = []
        self._blocks: dict[int, list[Block]] = {}
        self._global_reader: GlobalReader | None = None
        reader = BlockReader(stream, module)
        is_known = self._pass_front(reader)
        blocks = self._blocks
        for entry in reader:
            if isinstance(entry, Block):
                # Not counted against the memory limit, because each block takes at least eight bytes.
                blocks.setdefault(entry.number, []).append(entry)
                if entry.number == BlockId.TYPE:
                    self._take_types(entry)
            elif entry.code in _GLOBALS:
                entry.keep()
                self.symbols.append(self._globals(entry).read(entry))
            else:
                take = self._TAKEN.get(entry.code)
                if take is not None:
                    take(self, entry)
                if entry.code == ModuleCode.DATA_LAYOUT and not is_known:
                    self._note_front(reader)

    def _pass_front(self, reader: BlockReader) -> bool:
        """Reuse the front of a previous module if this one begins with the same bytes. Return whether it does."""
        stream = self._stream
        for known in fronts:
            if known.is_of(stream, reader.block):
                self.version, self.texts = known.version, dict(known.texts)
                self.source = known.source
                stream.shared = dict(known.shared)
                reader.resume(known.position, known.abbreviations)
                self._blocks = {number: list(found) for number, found in known.blocks.items()}
                for block in self._blocks.get(BlockId.TYPE, ()):
                    self.types = TypeTable(BlockReader(stream, block))
                return True
        return False

    def _note_front(self, reader: BlockReader) -> None:
        stream, module = self._stream, reader.block
        is_long = reader.position - module.begin >= _FRONT_BITS
        if is_long or self.symbols or self._sections:
            return
        front = Front(
            module,
            stream.data[module.begin >> 3 : (reader.position + 7) >> 3],
            reader.position,
            self.version,
            dict(self.texts),
            self.source,
            {number: tuple(found) for number, found in self._blocks.items()},
            dict(stream.shared),
            reader.definitions,
        )
        fronts.append(front)

    def blocks(self, number: int) -> tuple[Block, ...]:
        """Return the blocks with an ID."""
        return tuple(self._blocks.get(number, ()))

    def records(self, number: int) -> Iterator[Record]:
        """Return the records of all blocks with an ID."""
        return records_of(self._stream, self.blocks(number))

    def _take_types(self, block: Block) -> None:
        if self.types:
            raise self._stream.malformed(block.begin, "module", "it has two tables of types")
        self.types = TypeTable(BlockReader(self._stream, block))

    def _take_text(self, record: Record) -> None:
        self.texts[record.code] = record.string()

    def _take_source(self, record: Record) -> None:
        self.source = record

    def _take_section(self, record: Record) -> None:
        record.keep()
        self._sections.append(record.string())

    def _take_version(self, record: Record) -> None:
        self.version, self._global_reader = record.operand(0, "version"), None
        if self.version > _NEWEST_VERSION:
            reason = f"version {self.version}; the newest that is known is {_NEWEST_VERSION}"
            raise record.malformed(reason)

    _TAKEN: Mapping[int, Callable[[_ModuleWalk, Record], None]] = {
        ModuleCode.TRIPLE: _take_text,
        ModuleCode.DATA_LAYOUT: _take_text,
        ModuleCode.SOURCE_FILE: _take_source,
        ModuleCode.SECTION_NAME: _take_section,
        ModuleCode.VERSION: _take_version,
    }

    def _globals(self, record: Record) -> GlobalReader:
        if self._global_reader is None:
            if self.types is None:
                reason = "it precedes the table of types"
                raise record.malformed(reason)
            # The list is shared, so that it also contains sections that are named later.
            names = self._names
            self._global_reader = GlobalReader(self.version, self.types, self._sections, names)
        return self._global_reader


def _read_module(stream: BitStream, outer: _OuterModule, names: StringTable) -> BitcodeModule:
    producer, epoch = _read_identification(stream, outer.identification)
    walk = _ModuleWalk(stream, outer.module, names)
    if walk.types is None:
        raise stream.malformed(outer.module.begin, "module", "it has no table of types")
    return BitcodeModule(
        producer=producer,
        epoch=epoch,
        version=walk.version,
        triple=walk.texts.get(ModuleCode.TRIPLE, ""),
        data_layout=walk.texts.get(ModuleCode.DATA_LAYOUT, ""),
        source=walk.source,
        types=walk.types,
        attributes=read_attributes(
            stream, walk.blocks(BlockId.ATTRIBUTE_GROUP), walk.blocks(BlockId.ATTRIBUTE)
        ),
        symbols=_named(walk),
        thin_summary=_summary_version(stream, walk.blocks(BlockId.SUMMARY)),
        full_summary=_summary_version(stream, walk.blocks(BlockId.FULL_LTO_SUMMARY)),
        content=ModuleContent(
            stream,
            outer.module,
            constants=walk.blocks(BlockId.CONSTANTS),
            metadata=walk.blocks(BlockId.METADATA),
            metadata_kinds=walk.blocks(BlockId.METADATA_KIND),
            bodies=walk.blocks(BlockId.FUNCTION),
        ),
    )


def _named(walk: _ModuleWalk) -> tuple[Symbol, ...]:
    """Return the symbols, with names from the module's own symbol table if the module has one (LLVM before 5)."""
    if walk.version >= STRING_TABLE_VERSION:
        return tuple(walk.symbols)
    symbols = walk.symbols
    for record in walk.records(BlockId.VALUE_SYMBOLS):
        if record.code in {SymbolCode.ENTRY, SymbolCode.FUNCTION_ENTRY}:
            number = record.operand(0, "value")
            begin = 1 if record.code == SymbolCode.ENTRY else 2
            if number < len(symbols):
                symbols[number] = replace(symbols[number], name=record.string(begin))
    return tuple(symbols)


def _read_identification(stream: BitStream, block: Block | None) -> tuple[str, int]:
    if block is None:
        return "", 0
    found = read_repeated(stream, (block,), _identification_in)
    return _identification(records_of(stream, (block,))) if found is None else found


@lru_cache(maxsize=8)
def _identification_in(contents: tuple[Content, ...]) -> tuple[str, int]:
    return _identification(records_in(contents))


def _identification(records: Iterable[Record]) -> tuple[str, int]:
    producer, epoch = "", 0
    for record in records:
        if record.code == IdentificationCode.STRING:
            producer = record.string()
        elif record.code == IdentificationCode.EPOCH:
            epoch = record.operand(0, "epoch")
    return producer, epoch


def _summary_version(stream: BitStream, blocks: Sequence[Block]) -> int | None:
    for record in records_of(stream, blocks) if blocks else ():
        if record.code == SummaryCode.VERSION:
            return record.operand(0, "version of the summary")
    return None
