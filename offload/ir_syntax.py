"""The syntax of textual LLVM IR, as far as embedding needs it: names, strings, parts of a module.

A rewrite of several steps works on a `concealed` text: every name in it is a bare word, and no string or
comment can match a pattern for code. `revealed` restores the original text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mlir_offload.toolchain.pattern import Syntax, ir_line, ir_pattern, pattern

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LLVM_IR = Syntax(r'"[^"\n]*"|;[^\n]*')

_PREFIX = "moq."
_BARE_NAME = pattern(r"[-A-Za-z$._][-\w$.]*", re.ASCII)
# Strings that rewrites search for: attribute keys and values, metadata names, file names without blanks.
_PLAIN_STRING = pattern(r"(?!moq\.)[-\w.,+=/]*", re.ASCII)
_OPAQUE = pattern(
    r"""(?P<sigil>[@%$])(?:"(?P<name>[^"\n]*)"|(?P<taken>moq\.[-\w$.]*))
    |^"(?P<label>[^"\n]*)"(?=:)
    |(?P<bytes>\bc)?"(?P<string>[^"\n]*)"
    |;(?P<comment>[^\n]*)""",
    re.VERBOSE,
)
# Matches pairs of digits; a group per pair would take seconds for constants of megabytes.
_CONCEALED = pattern(rf'([@%$"]|;|^){re.escape(_PREFIX)}([0-9a-f]*)(?![-\w$.])')
_LINKAGE = frozenset(
    [
        "private",
        "internal",
        "external",
        "linkonce_odr",
        "linkonce",
        "weak_odr",
        "weak",
        "common",
        "available_externally",
        "extern_weak",
        "dso_local",
        "dso_preemptable",
        "default",
        "hidden",
        "protected",
    ]
)
_ESCAPE = pattern(rb"\\([0-9A-Fa-f]{2}|\\)")
_PLAIN_BYTES = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')


def concealed(text: str) -> str:
    """Return LLVM IR with bare names only, and without code in strings and comments."""
    return "\n".join(
        _OPAQUE.sub(_conceal, line) if '"' in line or ";" in line or _PREFIX in line else line
        for line in text.split("\n")
    )


def revealed(text: str) -> str:
    """Return the text before it was concealed."""
    if _PREFIX not in text:
        return text
    return "\n".join(
        _CONCEALED.sub(_reveal, line) if _PREFIX in line else line for line in text.split("\n")
    )


def reference(name: str) -> str:
    """Return the name of a global or local value in concealed text, without `@`."""
    is_bare = is_bare_name(name) and not name.startswith(_PREFIX)
    return name if is_bare else _hidden(encoded(name))


def is_bare_name(name: str) -> bool:
    """Return whether LLVM IR spells a name without quotes."""
    return _BARE_NAME.fullmatch(name) is not None


def name_of(spelling: str) -> str:
    """Return the name with this spelling in concealed text."""
    match = _CONCEALED.fullmatch(f"@{spelling}")
    return bytes.fromhex(match[2]).decode(errors="surrogateescape") if match else spelling


def string_of(content: str) -> str:
    """Return the original string, with LLVM IR escapes, of a quoted string in concealed text."""
    match = _CONCEALED.fullmatch(f'"{content}')
    return bytes.fromhex(match[2]).decode(errors="surrogateescape") if match else content


def without_linkage(words: str) -> str:
    """Return the words before a type or a name, without linkage, `dso_local` and visibility."""
    while (word := words.split(" ", 1)[0]) in _LINKAGE:
        words = words[len(word) :].lstrip(" ")
    return words


def is_local(words: str) -> bool:
    """Return whether the words of a definition give it local linkage."""
    return words.startswith(("internal ", "private "))


def encoded(text: str) -> bytes:
    """Return the bytes of a name or string."""
    return text.encode(errors="surrogateescape")


def escape_bytes(data: bytes) -> str:
    """Return the bytes as the contents of an LLVM string."""
    return "".join(chr(byte) if byte in _PLAIN_BYTES else f"\\{byte:02X}" for byte in data)


def unescape_bytes(text: str | bytes) -> bytes:
    r"""Return the bytes that the contents of an LLVM string represent (`\0A` is a newline)."""
    return _ESCAPE.sub(
        lambda match: b"\\" if match[1] == b"\\" else bytes.fromhex(match[1].decode()),
        encoded(text) if isinstance(text, str) else text,
    )


def _conceal(match: re.Match[str]) -> str:
    spelled = (match["name"] or match["taken"] or "") if match["sigil"] else match["label"]
    if spelled is not None:
        bare = unescape_bytes(spelled).decode(errors="surrogateescape")
        text = reference(bare)
        return f"{match['sigil'] or ''}{text}"
    if match["comment"] is not None:
        return f";{_hidden(encoded(match['comment']))}"
    if not match["bytes"] and _PLAIN_STRING.fullmatch(match["string"]):
        return match[0]
    return f'{match["bytes"] or ""}"{_hidden(encoded(match["string"]))}"'


def _hidden(data: bytes) -> str:
    return f"{_PREFIX}{data.hex()}"


def _reveal(match: re.Match[str]) -> str:
    mark, data = match[1], bytes.fromhex(match[2])
    if mark in {'"', ";"}:
        return f"{mark}{data.decode(errors='surrogateescape')}"
    return f'{mark}"{escape_bytes(data)}"'


_METADATA_NODE = ir_line("!`number:number` = ")
_KERNEL_ANNOTATION = ir_pattern('!{ptr @`name:name`, !"kernel", i32 1}')
_CONVENTIONS = frozenset(("ptx_kernel", "amdgpu_kernel"))
_DEFINE = ir_line("define `before:head`@`name:name`(")
_VARIABLE = ir_line("@`name:name` = ")
_FUNCTION = ir_line("`define|declare` `head`@`name:name`(")
_NAMED_TYPE = ir_pattern("`local`")
_TYPE_DEFINITION = ir_line("`name:local` = type `body:rest`")
_BYVAL = ir_pattern("byval(")
_ALIGN = ir_pattern("align `bytes:number`")
_ADDRESS_SPACE = ir_pattern(" addrspace(`number`)")
_WORD = ir_pattern("`dotted`")
_USED_LIST = ir_line(
    '@`name:name` = appending global [`number` x ptr] [`members:rest`], section "llvm.metadata"\n'
)
_TRIPLE = ir_line('target triple = "`triple:string`"')
_STRING_CONSTANT = ir_line(
    '`name:global` = `some` constant [`number` x i8] c"`content:string`\\00"'
)


def global_name(symbol: str) -> str:
    """Return a reference to a symbol in LLVM IR syntax, quoted if required."""
    if is_bare_name(symbol):
        return f"@{symbol}"
    return f'@"{escape_bytes(symbol.encode(errors="surrogateescape"))}"'


def symbol_of(spelling: str) -> str:
    """Return the symbol of a reference (without its `@`)."""
    if not spelling.startswith('"'):
        return spelling
    return unescape(spelling[1:-1])


def unescape(text: str) -> str:
    r"""Return the text that the contents of an LLVM string represent (`\0A` is a newline)."""
    return unescape_bytes(text).decode(errors="surrogateescape")


def global_symbols(text: str) -> frozenset[str]:
    """Return the symbols that the module defines or declares."""
    return frozenset(map(symbol_of, (*_VARIABLE.findall(text), *_FUNCTION.findall(text))))


def escape_blob(data: bytes) -> str:
    """Return the bytes as the contents of an LLVM string, all in hexadecimal, which is fast for images."""
    return "\\" + data.hex("\\") if data else ""


def next_metadata_number(text: str) -> int:
    """Return the number after the largest metadata number of the module."""
    return max((int(number) for number in _METADATA_NODE.findall(text)), default=-1) + 1


def with_target(text: str, triple: str, layout: str) -> str:
    """Return the module with this target, unless it already has one."""
    if not layout or target_triple(text):
        return text
    return f'target datalayout = "{layout}"\ntarget triple = "{triple}"\n{text}'


def target_triple(text: str) -> str:
    """Return the target triple of the module; empty if it has none."""
    match = _TRIPLE.search(text)
    return match.group(1) if match else ""


def extend_used_list(text: str, name: str, symbols: Sequence[str]) -> str:
    """Return the module with symbols added to `llvm.used` or `llvm.compiler.used`."""
    members = [f"ptr {global_name(symbol)}" for symbol in symbols]
    present = next((found for found in _USED_LIST.finditer(text) if found["name"] == name), None)
    if present is not None:
        text = text[: present.start()] + text[present.end() :]
        members = [present["members"], *members]
    listed = ", ".join(members)
    count = len(LLVM_IR.split_list(listed))
    return f'{text}@{name} = appending global [{count} x ptr] [{listed}], section "llvm.metadata"\n'


def string_constants(text: str) -> dict[str, str]:
    """Return each NUL-terminated string constant by its reference (`@name`), with its escapes."""
    return dict(_STRING_CONSTANT.findall(text))


def kernel_signatures(device_ll: str) -> dict[str, tuple[str, ...]]:
    """Return the parameter types of each kernel that a device module defines.

    A by-value parameter is `ptr byval(TYPE) align N`. Named types are expanded, and pointers have no address
    space, because the host packs all pointers alike.
    """
    annotated = {symbol_of(spelling) for spelling in _KERNEL_ANNOTATION.findall(device_ll)}
    types = dict(_TYPE_DEFINITION.findall(device_ll))
    signatures = {}
    for match in _DEFINE.finditer(device_ll):
        symbol = symbol_of(match.group(2))
        if not _CONVENTIONS & set(match.group(1).split()) and symbol not in annotated:
            continue
        inside = LLVM_IR.inside(device_ll, match.end() - 1)
        signatures[symbol] = tuple(_parameter(part, types) for part in LLVM_IR.split_list(inside))
    return signatures


def render_kernel_heads(signatures: Mapping[str, tuple[str, ...]]) -> str:
    """Return LLVM IR that defines empty kernels with these parameter types."""
    return "".join(
        f'define ptx_kernel void @"{name}"({", ".join(types)}) {{\n  ret void\n}}\n'
        for name, types in sorted(signatures.items())
    )


def _parameter(text: str, types: dict[str, str]) -> str:
    kind = _type_at(text)
    by_value = _BYVAL.search(text, len(kind))
    if by_value is None:
        return "ptr" if kind.startswith("ptr") else _expand(kind, types)
    inner = _expand(LLVM_IR.inside(text, by_value.end() - 1), types)
    align = _ALIGN.search(text)
    suffix = f" align {align.group(1)}" if align else ""
    return f"ptr byval({inner}){suffix}"


def _expand(kind: str, types: dict[str, str]) -> str:
    """Replace named types by their bodies; types of kernel parameters are never recursive."""
    while (match := _NAMED_TYPE.search(kind)) is not None and match.group() in types:
        kind = kind[: match.start()] + types[match.group()] + kind[match.end() :]
    return kind


def _type_at(text: str) -> str:
    if text[0] in "([{<":
        return text[: LLVM_IR.closing(text, 0) + 1]
    named = _NAMED_TYPE.match(text)
    if named is not None:
        return named.group()
    word = _WORD.match(text)
    end = word.end() if word else len(text)
    space = _ADDRESS_SPACE.match(text, end)
    return text[: space.end() if space else end]
