"""Return clang's names of kernel stubs, including those of mangled kernel names.

A C++ name contains the prefix inside: `_ZN2ns5scaleEPf` is launched by `_ZN2ns20__device_stub__scaleEPf`
(`mangleDeviceStubName` in clang/lib/AST/ItaniumMangle.cpp; the grammar is that of the Itanium C++ ABI).
"""

from __future__ import annotations

from mlir_offload.toolchain.pattern import pattern

_PREFIX = "__device_stub__"
_MANGLED = "_Z"
_LENGTH = pattern(r"[1-9]\d*")
_SUBSTITUTION = pattern(r"S(?:[absiod]|[0-9A-Z]*_)")
_PARAMETER = pattern(r"T[0-9A-Z]*_")
_BUILTIN = pattern(r"[a-tv-z]|D(?:[acdefhinsu]|F\d+[b_x]?)")
_QUALIFIED = pattern(r"[rVKPROCG]|Dp|A\d*_|Dv\d+_")
_VALUE = pattern(r"n?[0-9a-f]*E")
_NESTED = pattern(r"N[rVK]*[RO]?")
_INTERNAL = "L"


class _NotUnderstoodError(ValueError):
    """The name uses a part of the grammar that is not supported here."""


def stub_symbol(kernel: str) -> str:
    """Return the symbol that clang calls for `kernel<<<>>>`; for an unsupported name, one that clang never calls."""
    return find_stub_symbol(kernel) or f"{_PREFIX}{kernel}"


def find_stub_symbol(kernel: str) -> str | None:
    """Return the symbol that clang calls for `kernel<<<>>>`.

    None if the mangling is not supported: for a kernel inside a function, or a template instance for an
    expression.
    """
    if not kernel.startswith(_MANGLED):
        return f"{_PREFIX}{kernel}"
    try:
        start, end = _unqualified_name(kernel, len(_MANGLED))
    except (_NotUnderstoodError, IndexError, RecursionError):
        return None
    name = f"{_PREFIX}{kernel[_name_start(kernel, start) : end]}"
    return f"{kernel[:start]}{len(name)}{name}{kernel[end:]}"


def _unqualified_name(text: str, at: int) -> tuple[int, int]:
    """Return the start (at its length) and the end of the source name of the function itself."""
    nested = _NESTED.match(text, at)
    if nested is None:
        if text.startswith("St", at):
            at += 2
        return _source_name(text, at + text.startswith(_INTERNAL, at))
    at = nested.end()
    found = None
    while text[at] != "E":
        start = at + text.startswith(_INTERNAL, at)
        if text[start].isdigit():
            found = _source_name(text, start)
        at = _skip_component(text, at)
    if found is None:
        raise _NotUnderstoodError
    return found


def _source_name(text: str, at: int) -> tuple[int, int]:
    length = _LENGTH.match(text, at)
    if length is None or length.end() + int(length[0]) > len(text):
        raise _NotUnderstoodError
    return at, length.end() + int(length[0])


def _name_start(text: str, at: int) -> int:
    length = _LENGTH.match(text, at)
    return length.end() if length else at


def _skip_component(text: str, at: int) -> int:
    """Return the end of a component of a nested name: a name, a substitution, or template arguments."""
    if text[at] == "I":
        return _skip_arguments(text, at)
    if text.startswith("St", at):
        return at + 2
    known = _SUBSTITUTION.match(text, at) or _PARAMETER.match(text, at)
    if known is not None:
        return known.end()
    # `B` begins an ABI tag.
    return _source_name(text, at + text.startswith((_INTERNAL, "B"), at))[1]


def _skip_arguments(text: str, at: int) -> int:
    at += 1
    while text[at] != "E":
        at = _skip_argument(text, at)
    return at + 1


def _skip_argument(text: str, at: int) -> int:
    if text[at] == "J":
        return _skip_arguments(text, at)
    if text[at] != "L":
        return _skip_type(text, at)
    value = _VALUE.match(text, _skip_type(text, at + 1))
    if value is None:
        raise _NotUnderstoodError
    return value.end()


def _skip_type(text: str, at: int) -> int:
    while (qualifier := _QUALIFIED.match(text, at)) is not None:
        at = qualifier.end()
    builtin = _BUILTIN.match(text, at)
    if builtin is not None:
        return builtin.end()
    match text[at]:
        case "M":
            return _skip_type(text, _skip_type(text, at + 1))
        case "F":
            at += 1
            while text[at] != "E":
                at = _skip_type(text, at)
            return at + 1
        case "N":
            at += 1
            while text[at] != "E":
                at = _skip_component(text, at)
            return at + 1
        case _:
            at = _skip_component(text, at + (2 if text.startswith("St", at) else 0))
            return _skip_arguments(text, at) if text.startswith("I", at) else at
