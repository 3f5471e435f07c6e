"""Changes to the LLVM IR of a device module for any GPU before its back end compiles it."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from mlir_offload.offload.ir_syntax import is_local, name_of, symbol_of, without_linkage
from mlir_offload.toolchain.pattern import ir_line, ir_pattern
from mlir_offload.toolchain.tables import load_table
from mlir_offload.toolchain.target import Kind

if TYPE_CHECKING:
    from collections.abc import Collection

LINK_LIBRARY = "-mlink-builtin-bitcode"
"""The option of `clang -cc1` that links the called functions of a library and makes them internal."""

BARRIER_PLACES = "mo.barriers"
"""The function attribute with the source locations of its barriers (barrier_place.py)."""
BARRIER_MARK = ir_pattern(f'"{BARRIER_PLACES}"="`places:string`"` ?`')

_TARGET_LINE = ir_line("target `datalayout|triple` = `rest`\n")
_SOURCE_LINE = ir_line("source_filename = `rest`\n")
_DEFINE = ir_line("define `before:head`@`name:bare`")
_VARIABLE = ir_line("`name:global` = `words:words``kind:global|constant` ")
_DEFINITION = ir_line(
    "`name:global` = `words:words``global|constant` `value:some``tail:metadata``end`"
)
_ALIGNED = ir_pattern("`align``end`")
_VECTOR = ir_pattern("<`count:number` x `type:letters``bits:number?`>")
_BITS = {"half": 16, "bfloat": 16, "float": 32, "ptr": 64, "double": 64}
_DEFINE_END = ir_line("define `head:some``tail:attachments` {`end`")
_FLUSHING = '"denormal-fp-math-f32"="preserve-sign,preserve-sign"'
_DECLARED_FUNCTION = ir_line("declare `head`@`name:name`")
_DECLARED_VARIABLE = ir_line("`global` = `words``external|extern_weak` ")
_DYNAMIC_SHARED = ir_line(
    "`name:global` = `internal|private` addrspace(3) global [0 x `type:word`] undef`align:align?`"
)
_BULK_COPY = "cp.async.bulk"


def _internal_variable(match: re.Match[str]) -> str:
    if _is_foreign(match["name"], match["words"]):
        return match[0]
    return f"{match['name']} = internal {without_linkage(match['words'])}{match['kind']} "


def _is_foreign(name: str, words: str) -> bool:
    """Return whether a variable is one of LLVM's own or is defined in another module."""
    return name.startswith("@llvm.") or words.startswith(("external ", "extern_weak "))


def without_barrier_places(text: str) -> str:
    """Remove the locations of barriers from concealed text. LLVM rejects an attribute group that is empty then."""
    if BARRIER_PLACES not in text:
        return text
    return BARRIER_MARK.sub("", text).replace(" = { }", " = { nounwind }")


def with_target(text: str, triple: str, layout: str) -> str:
    """Set the triple and the data layout of the module."""
    target = f'target datalayout = "{layout}"\ntarget triple = "{triple}"\n'
    text = _TARGET_LINE.sub("", text)
    source = _SOURCE_LINE.search(text)
    position = source.end() if source else 0
    return text[:position] + target + text[position:]


@cache
def codegen_arguments(kind: Kind, llvm_major: int, *, is_bitcode: bool = False) -> tuple[str, ...]:
    """Return the arguments of clang in a release that improve the code, or the bitcode, for GPUs."""
    rows = load_table("mlir_offload.translate", "device_codegen")["arguments"]
    return tuple(
        word
        for row in rows
        if llvm_major in row["releases"] and kind in row["kinds"]
        if not is_bitcode or row.get("passes", False)
        for word in row["arguments"]
    )


def calls_others(text: str, *, known: tuple[str, ...] = ()) -> bool:
    """Return whether a module uses a function or a variable that it does not define.

    Functions whose names begin with one of `known` do not count.
    """
    defined = ("llvm.", *known)
    functions = map(symbol_of, _DECLARED_FUNCTION.findall(text))
    return (
        any(not name.startswith(defined) for name in functions)
        or _DECLARED_VARIABLE.search(text) is not None
    )


def has_bulk_copies(text: str) -> bool:
    """Return whether a device module has bulk copies, as intrinsics or inline PTX."""
    return _BULK_COPY in text


def with_dynamic_shared(text: str, *, has_bulk_copies: bool = False) -> str:
    """Turn arrays without elements in workgroup memory into external ones, whose size the launch determines.

    Such an array is the dynamic workgroup memory, whatever its type. Bulk copies require destinations
    aligned to 128 bytes, swizzled ones to 1024 bytes, which a program cannot specify.
    """
    align = ", align 1024" if has_bulk_copies else r"\g<align>"
    made = rf"\g<name> = external addrspace(3) global [0 x \g<type>]{align}"
    return _DYNAMIC_SHARED.sub(made, text)


def with_alignment(text: str, *, has_bulk_copies: bool = False) -> str:
    """Add an alignment to each variable that is defined without one.

    LLVM assumes that variables of more than 16 bytes without an alignment are aligned to 16 bytes
    (llvm::DataLayout::getPreferredAlign), and loads vectors from them. But the NVPTX back end writes the
    alignment of their type to PTX, which ptxas uses. Bulk copies require 128 bytes in workgroup memory.
    """

    def aligned(match: re.Match[str]) -> str:
        tail = match["tail"]
        head = match[0].removesuffix(tail)
        is_single = not match["value"].startswith(("<", "{", "[", "%"))
        if is_single or _is_foreign(match["name"], match["words"]) or _ALIGNED.search(head):
            return match[0]
        least = 128 if has_bulk_copies and "addrspace(3)" in head else 16
        return f"{head}, align {max(least, _vector_alignment(head))}{tail}"

    return _DEFINITION.sub(aligned, text)


def _vector_alignment(variable: str) -> int:
    widths = [
        int(count) * (int(bits or 0) or _BITS.get(name, 64))
        for count, name, bits in _VECTOR.findall(variable)
    ]
    return max((1 << (width // 8 - 1).bit_length() for width in widths), default=1)


def with_flushing_functions(text: str) -> str:
    """Make all functions flush subnormal f32 numbers to zero."""
    return _DEFINE_END.sub(rf"define \g<head> {_FLUSHING}\g<tail> {{", text)


def internalized(
    text: str, kernels: Collection[str], *, convention: str, keeps_functions: bool = False
) -> str:
    """Give the kernels of a concealed module their calling convention, and make everything else internal.

    Equal names in two modules therefore do not collide. With `keeps_functions`, external functions stay
    external, for other files.
    """
    text = _VARIABLE.sub(_internal_variable, text)
    wanted = frozenset(kernels)

    def relinked(match: re.Match[str]) -> str:
        name, rest = match["name"], without_linkage(match["before"])
        if name_of(name) not in wanted:
            if keeps_functions and not is_local(match["before"]):
                return match[0]
            return f"define internal {rest}@{name}"
        marked = rest if convention in rest.split() else f"{convention} {rest}"
        return f"define {marked}@{name}"

    return _DEFINE.sub(relinked, text)
