"""What the LLVM IR of a device module for any GPU needs before its back end compiles it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mlir_offload.offload.ir_syntax import name_of

if TYPE_CHECKING:
    from collections.abc import Collection

LINK_LIBRARY = "-mlink-builtin-bitcode"
"""The option of `clang -cc1` that links what is called of a library, and makes it internal."""

_TARGET_LINE = re.compile(r"^target (?:datalayout|triple) = .*\n", re.MULTILINE)
_SOURCE_LINE = re.compile(r"^source_filename = .*\n", re.MULTILINE)
_LINKAGE = (
    "(?:private|internal|external|linkonce_odr|linkonce|weak_odr|weak|common|available_externally)"
)
_VISIBILITY = "(?:default|hidden|protected)"
_PREFIX = rf"(?:{_LINKAGE} +)?(?:dso_local +|dso_preemptable +)?(?:{_VISIBILITY} +)?"
_DEFINE = re.compile(rf"^define {_PREFIX}(?P<rest>[^@\n]*)@(?P<name>[-\w$.]+)", re.MULTILINE)
# A declared variable says `external` (or `extern_weak`) and is left alone.
_VARIABLE = re.compile(
    rf"^(?P<name>@(?!llvm\.)[-\w$.]+) = (?!extern(?:al|_weak)\b){_PREFIX}"
    r"(?P<rest>(?:[a-z_]+(?:\([^)\n]*\))? +)*(?:global|constant) )",
    re.MULTILINE,
)
_DEFINITION = re.compile(
    r"^(?P<head>@(?!llvm\.)[^\n=]+ = (?!extern(?:al|_weak)\b)[^\n]*?\b(?:global|constant) [<{\[%][^\n]*?)"
    r"(?P<tail>(?:, ![\w.]+ !\d+)*)$",
    re.MULTILINE,
)
_ALIGNED = re.compile(r", align \d+$")
_VECTOR = re.compile(r"<(\d+) x ([a-z]+)(\d*)>")
_BITS = {"half": 16, "bfloat": 16, "float": 32, "ptr": 64, "double": 64}
_DEFINE_END = re.compile(r"^(define [^\n]*?\)[^\n)]*?)((?: ![\w.]+ ![\d]+)* \{)$", re.MULTILINE)
_FLUSHING = '"denormal-fp-math-f32"="preserve-sign,preserve-sign"'
_OF_OTHERS = re.compile(
    r'^(?:declare [^\n@]*@(?!"?llvm\.)|@[^\n=]+ = (?:[a-z_()0-9]+ )*(?:external|extern_weak) )',
    re.MULTILINE,
)
_LOCAL = re.compile(r"define +(?:private|internal)\b")
_DYNAMIC_SHARED = re.compile(
    r"^(?P<head>@[-\w$.]+ = )(?:internal|private) (?P<body>addrspace\(3\) global \[0 x \w+\]) undef"
    r"(?P<align>, align \d+)?",
    re.MULTILINE,
)
_BULK_COPY = re.compile(r"\bcp\.async\.bulk\b")


def with_target(text: str, triple: str, layout: str) -> str:
    """Return the module with this triple and data layout."""
    target = f'target datalayout = "{layout}"\ntarget triple = "{triple}"\n'
    text = _TARGET_LINE.sub("", text)
    source = _SOURCE_LINE.search(text)
    position = source.end() if source else 0
    return text[:position] + target + text[position:]


def calls_others(text: str) -> bool:
    """Return whether a module uses a function or a variable that it does not define."""
    return _OF_OTHERS.search(text) is not None


def has_bulk_copies(text: str) -> bool:
    """Return whether a device module copies in bulk, by an intrinsic or by inline PTX."""
    return _BULK_COPY.search(text) is not None


def with_dynamic_shared(text: str, *, has_bulk_copies: bool = False) -> str:
    """Return the module with dynamic shared memory of the size that the launch says.

    Any array of no elements stands for it, of whatever type.

    Bulk copies write to multiples of 128 bytes, and swizzled ones to multiples of 1024, which a program
    cannot ask for.
    """
    align = ", align 1024" if has_bulk_copies else r"\g<align>"
    return _DYNAMIC_SHARED.sub(rf"\g<head>external \g<body>{align}", text)


def with_alignment(text: str, *, has_bulk_copies: bool = False) -> str:
    """Return the module with an alignment for each variable that it defines without one.

    LLVM takes variables of more than 16 bytes without an alignment for aligned to 16 bytes
    (llvm::DataLayout::getPreferredAlign), and loads vectors from them. The NVPTX back end writes the
    alignment of their type into PTX, which ptxas uses. Bulk copies need 128 bytes in shared memory.
    """

    def aligned(match: re.Match[str]) -> str:
        head, tail = match.group("head", "tail")
        if _ALIGNED.search(head):
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
    """Return the module with functions that take subnormal 32-bit numbers for zero."""
    return _DEFINE_END.sub(rf"\1 {_FLUSHING}\2", text)


def internalized(
    text: str, kernels: Collection[str], *, convention: str, keeps_functions: bool = False
) -> str:
    """Return the concealed module with nothing but kernels visible, marked by their calling convention.

    Equal names in two modules never meet then. With `keeps_functions` what is external stays so,
    for files that call it.
    """
    text = _VARIABLE.sub(r"\g<name> = internal \g<rest>", text)
    wanted = frozenset(kernels)

    def relinked(match: re.Match[str]) -> str:
        name, rest = match.group("name"), match.group("rest")
        if name_of(name) not in wanted:
            if keeps_functions and not _LOCAL.match(match[0]):
                return match[0]
            return f"define internal {rest}@{name}"
        marked = rest if convention in rest.split() else f"{convention} {rest}"
        return f"define {marked}@{name}"

    return _DEFINE.sub(relinked, text)
