"""Identify the format of a file, or of a part of one, by its content, not by its name."""

from __future__ import annotations

import re
from enum import StrEnum

from mlir_offload.offload import foreign_object
from mlir_offload.offload.container import bundle, fatbin, mob_archive
from mlir_offload.offload.container.archive import ARCHIVE_MAGIC, THIN_MAGIC
from mlir_offload.offload.container.packager import MAGIC as BINARY_MAGIC
from mlir_offload.offload.elf import ELF_MAGIC, Machine
from mlir_offload.offload.image import PTX_BEGIN
from mlir_offload.toolchain.byte_view import ByteView
from mlir_offload.toolchain.pattern import ir_line_bytes
from mlir_offload.toolchain.pattern import pattern as lazy_pattern

_HEAD_BYTES = 1 << 16
_LONGEST_CHARACTER = 4
_MACHINE_AT = 18
_DEVICE_MACHINES = (Machine.CUDA, Machine.AMDGPU)
# SPIR-V modules of either byte order: 0x07230203.
_SPIRV_MAGICS = (b"\x03\x02\x23\x07", b"\x07\x23\x02\x03")
_BITCODE_MAGICS = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
_MLIR_MAGIC = b"ML\xefR"
_LTO_IR_MAGIC = b"\xedCN\x7f"
_LLVM_IR = (
    ir_line_bytes(
        "`; ModuleID = |source_filename = |target triple = |target datalayout = |!llvm.`"
    ),
    ir_line_bytes("`define|declare` `head`@"),
    ir_line_bytes("`global` = `words``global|constant|alias` "),
)
# Every LLVM IR file begins with one of these. Text and code of other languages may contain lines like the
# above, but further down.
_LLVM_IR_BEGIN = lazy_pattern(
    rb"(?:\s++|;[^\n]*+)*(?:source_filename|target|define|declare|attributes|module asm|[%@$!^])"
)
_MLIR_BEGIN = lazy_pattern(
    rb'\s*(?:module\b|[#!][\w.$-]+ = |\{-#|(?:%[\w.$#:, %-]+ = )?"?[a-z_]\w*\.[\w.$]+)'
)
_MLIR = lazy_pattern(
    rb'^\s*(?:module\s*(?:[{@]|attributes\b)|"?builtin\.module|"?gpu\.(?:module|container_module)|func\.func\b|"func\.func"'
    rb'|llvm\.(?:func|mlir\.global)\b|memref\.global\b|gpu\.binary\b|"[a-z_]+\.[a-z_.]+"\(|#\w+ = |!\w+ = [!<])',
    re.MULTILINE,
)
_COMMENT = lazy_pattern(rb"//[^\n]*")


class FileForm(StrEnum):
    """The file formats that are distinguished."""

    EMPTY = "empty file"
    ARCHIVE = "archive"
    THIN_ARCHIVE = "thin archive"
    HOST_ELF = "ELF file"
    FOREIGN_ELF = "foreign ELF file"
    DEVICE_ELF = "device ELF file"
    PE = "PE file"
    COFF = "COFF object"
    MACH_O = "Mach-O file"
    UNIVERSAL = "universal Mach-O file"
    OFFLOAD_BINARY = "offload binary"
    FAT_BINARY = "fat binary"
    BUNDLE = "offload bundle"
    MOB = "bundle for another machine"
    BITCODE = "LLVM bitcode"
    LLVM_IR = "LLVM IR"
    MLIR = "MLIR"
    MLIR_BYTECODE = "MLIR bytecode"
    LTO_IR = "NVIDIA LTO-IR"
    PTX = "PTX"
    SPIRV = "SPIR-V"
    TEXT = "text"
    UNKNOWN = "unknown format"


_MAGICS = (
    (ARCHIVE_MAGIC, FileForm.ARCHIVE),
    (THIN_MAGIC, FileForm.THIN_ARCHIVE),
    (BINARY_MAGIC, FileForm.OFFLOAD_BINARY),
    (_MLIR_MAGIC, FileForm.MLIR_BYTECODE),
    (_LTO_IR_MAGIC, FileForm.LTO_IR),
    *((magic, FileForm.BITCODE) for magic in _BITCODE_MAGICS),
    *((magic, FileForm.SPIRV) for magic in _SPIRV_MAGICS),
)


def file_form(view: ByteView) -> FileForm:
    """Return the format of a file, identified by its first bytes."""
    if not view.size:
        return FileForm.EMPTY
    head = view.head(64)
    for magic, form in _MAGICS:
        if head.startswith(magic):
            return form
    if head.startswith(ELF_MAGIC):
        return _elf_form(head)
    return _deeper_form(view, head) or _text_form(view.head(_HEAD_BYTES))


def _deeper_form(view: ByteView, head: bytes) -> FileForm | None:
    """Return the format of a file whose magic alone is ambiguous; None for text and unknown formats."""
    heads = (
        (foreign_object.is_pe, FileForm.PE),
        (foreign_object.is_mach_o, FileForm.MACH_O),
        (foreign_object.is_universal, FileForm.UNIVERSAL),
    )
    deeper = (
        (fatbin.is_fatbin, FileForm.FAT_BINARY),
        (bundle.is_bundle, FileForm.BUNDLE),
        (mob_archive.is_tar, FileForm.MOB),
        (foreign_object.is_coff, FileForm.COFF),
    )
    begun = (form for begins, form in heads if begins(head))
    return next(begun, None) or next((form for is_it, form in deeper if is_it(view)), None)


def _elf_form(head: bytes) -> FileForm:
    if head[4:6] != b"\x02\x01":
        return FileForm.FOREIGN_ELF
    machine = int.from_bytes(head[_MACHINE_AT : _MACHINE_AT + 2], "little")
    return FileForm.DEVICE_ELF if machine in _DEVICE_MACHINES else FileForm.HOST_ELF


def _text_form(head: bytes) -> FileForm:
    if b"\0" in head.rstrip(b"\0"):
        return FileForm.UNKNOWN
    if PTX_BEGIN.match(head):
        return FileForm.PTX
    if _LLVM_IR_BEGIN.match(head) and any(pattern.search(head) for pattern in _LLVM_IR):
        return FileForm.LLVM_IR
    code = _COMMENT.sub(b"", head)
    if _MLIR_BEGIN.match(code) and _MLIR.search(code):
        return FileForm.MLIR
    try:
        head.decode()
    except UnicodeDecodeError as error:
        # A character may be cut at the end of the bytes read.
        is_cut = len(head) == _HEAD_BYTES and error.start > len(head) - _LONGEST_CHARACTER
        return FileForm.TEXT if is_cut else FileForm.UNKNOWN
    return FileForm.TEXT
