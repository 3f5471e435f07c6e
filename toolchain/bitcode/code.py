"""The enum values of LLVM bitcode (llvm/Bitcode/LLVMBitCodes.h). LLVM never changes an assigned value.

They are plain integers, because an IntEnum takes longer to define than the rest of the reader, and its
members are slower to compare.
"""

from __future__ import annotations


class BlockId:
    """Block IDs."""

    MODULE = 8
    ATTRIBUTE = 9
    ATTRIBUTE_GROUP = 10
    CONSTANTS = 11
    FUNCTION = 12
    IDENTIFICATION = 13
    VALUE_SYMBOLS = 14
    METADATA = 15
    METADATA_ATTACHMENT = 16
    TYPE = 17
    SUMMARY = 20
    METADATA_KIND = 22
    STRINGS = 23
    FULL_LTO_SUMMARY = 24


class IdentificationCode:
    """Record codes of an IDENTIFICATION block."""

    STRING = 1
    EPOCH = 2


class ModuleCode:
    """Record codes of a MODULE block."""

    VERSION = 1
    TRIPLE = 2
    DATA_LAYOUT = 3
    SECTION_NAME = 5
    GLOBAL_VARIABLE = 7
    FUNCTION = 8
    ALIAS_OLD = 9
    ALIAS = 14
    SOURCE_FILE = 16
    IFUNC = 18


class SymbolCode:
    """Record codes of a VALUE_SYMTAB block."""

    ENTRY = 1
    FUNCTION_ENTRY = 3


class AttributeCode:
    """Record codes of PARAMATTR and PARAMATTR_GROUP blocks."""

    LIST = 2
    GROUP = 3


class AttributeForm:
    """The encodings of an attribute in a group."""

    FLAG = 0
    INTEGER = 1
    STRING = 3
    STRING_VALUE = 4
    TYPE_FLAG = 5
    TYPE = 6
    RANGE = 7
    RANGES = 8


class AttributeKind:
    """The attributes that determine how a parameter is passed to a kernel."""

    ALIGN = 1
    BYVAL = 3
    BYREF = 69


class TypeCode:
    """Record codes of a TYPE block."""

    COUNT = 1
    VOID = 2
    FLOAT = 3
    DOUBLE = 4
    LABEL = 5
    OPAQUE = 6
    INTEGER = 7
    POINTER = 8
    FUNCTION_OLD = 9
    HALF = 10
    ARRAY = 11
    VECTOR = 12
    X86_FP80 = 13
    FP128 = 14
    PPC_FP128 = 15
    METADATA = 16
    X86_MMX = 17
    STRUCT_ANONYMOUS = 18
    STRUCT_NAME = 19
    STRUCT_NAMED = 20
    FUNCTION = 21
    TOKEN = 22
    BFLOAT = 23
    X86_AMX = 24
    OPAQUE_POINTER = 25
    TARGET = 26


class ConstantCode:
    """Record codes of a CONSTANTS block that the initializers of offload data use."""

    SET_TYPE = 1
    NULL = 2
    INTEGER = 4
    AGGREGATE = 7
    STRING = 8
    C_STRING = 9
    CAST = 11
    GEP_OLD = 12
    INBOUNDS_GEP_OLD = 20
    DATA = 22
    GEP_IN_RANGE_INDEX_OLD = 24
    GEP_IN_RANGE = 31
    GEP = 32


class MetadataCode:
    """Record codes of METADATA blocks that module flags, named metadata and attachments use."""

    STRING_OLD = 1
    VALUE = 2
    NODE = 3
    NAME = 4
    DISTINCT_NODE = 5
    KIND = 6
    NAMED_NODE = 10
    ATTACHMENT = 11
    STRINGS = 35
    GLOBAL_ATTACHMENT = 36
    INDEX_OFFSET = 38
    INDEX = 39


# Records without a metadata ID: names, kinds, named metadata, attachments and the index.
UNNUMBERED_METADATA = frozenset(
    {
        MetadataCode.NAME,
        MetadataCode.KIND,
        MetadataCode.NAMED_NODE,
        MetadataCode.ATTACHMENT,
        MetadataCode.GLOBAL_ATTACHMENT,
        MetadataCode.INDEX_OFFSET,
        MetadataCode.INDEX,
    }
)


class SummaryCode:
    """Record codes of a module summary for link-time optimization."""

    VERSION = 10
