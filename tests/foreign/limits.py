"""Derive the limits of the readers of LLVM 14 to 22, by passing each one record that it may not support.

usage: python tests/foreign/limits.py [--releases=14,15,...] [--root=N=DIR] [--write]

It writes toolchain/data/reader_limits.yaml. Releases that are not installed are downloaded from PyPI.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".importroot")]

from foreign import probe_module as probe  # noqa: E402
from foreign.limit_table import Limits, render  # noqa: E402
from foreign.reader import Reader, put_table, table_arguments  # noqa: E402

TABLE = ROOT / "toolchain" / "data" / "reader_limits.yaml"
# The readers' messages for unknown numbers; for a known number they report missing operands.
_UNKNOWN_KIND = "Unknown attribute kind"
_UNKNOWN_VALUE = "Invalid value"
_NO_POINTERS = "Opaque pointers are only supported"
_SUMMARIES = re.compile(r"in the range \[\d+-(\d+)\]")
_CONVENTION = re.compile(r"^declare (?!cc ?\d)(\S+) void @(\d+)\(\)", re.MULTILINE)
# The attribute in the text of a module, or in the message of the verifier of clang 21, which always runs.
_ATTRIBUTES = re.compile(r"(?:^attributes #0 = \{ |Attribute ')(\w+)", re.MULTILINE)
_MEMORY = re.compile(r"memory\(([^)]*)\)")
# More operands than any node has. A node that accepts as many accepts any number, as do unknown nodes.
_MANY = 40
_MOST_OPERANDS = 28
# How many numbers beyond the newest known one are tried.
_BEYOND = 6
# A number of each list that all releases support, from which the search begins.
_FIRST = {
    "constant_codes": 27,
    "cast_opcodes": 0,
    "atomic_operations": 0,
    "function_codes": 57,
    "type_codes": 20,
}
_FIRST_NODE = 7
_LAST_NODE = 60
_CONVENTIONS = range(1024)
_MEMORY_PLACES = 8
_ANYTHING = 3
_VERSION_BITS = 56


def newest_where(is_known: Callable[[int], bool], first: int) -> int:
    """Return the highest known number, trying numbers in order from `first` on."""
    number, unknown = first, 0
    newest = first
    while unknown < _BEYOND:
        number += 1
        unknown = 0 if is_known(number) else unknown + 1
        newest = newest if unknown else number
    return newest


def attribute_forms(reader: Reader) -> dict[int, tuple[int, ...]]:
    """Return the forms in which a reader supports each attribute kind; kinds without a form are omitted."""
    found: dict[int, tuple[int, ...]] = {}
    kind = unknown = 0
    while unknown < _BEYOND:
        kind += 1
        first = reader.spell(probe.attribute_module(kind, 0))
        unknown = unknown + 1 if _UNKNOWN_KIND in first.message else 0
        if not unknown:
            forms = [form for form in probe.FORMS if takes_form(reader, kind, form)]
            found[kind] = tuple(forms)
    return {kind: forms for kind, forms in found.items() if forms}


def takes_form(reader: Reader, kind: int, form: int) -> bool:
    """Return whether a reader supports an attribute kind in a form."""
    return reader.spell(probe.attribute_module(kind, form)).is_read


def known_by(reader: Reader) -> dict[str, Callable[[int], bool]]:
    """Return, for each list, a function that tests whether the reader supports a number."""

    def known(make: Callable[[int], bytes], unknown: str) -> Callable[[int], bool]:
        return lambda number: unknown not in reader.spell(make(number)).message

    def is_not_undef(make: Callable[[int], bytes]) -> Callable[[int], bool]:
        # The reader treats an unknown constant as undef; a known one lacks operands.
        return lambda number: not reader.spell(make(number)).is_read

    def is_type(code: int) -> bool:
        message = reader.print(probe.type_module(code)).message
        return _UNKNOWN_VALUE not in message and _NO_POINTERS not in message

    def is_operation(number: int) -> bool:
        modules = (probe.atomic_module(number, is_float=is_float) for is_float in (False, True))
        return any(reader.print(module).is_read for module in modules)

    return {
        "constant_codes": is_not_undef(probe.constant_module),
        "cast_opcodes": is_not_undef(probe.cast_module),
        "atomic_operations": is_operation,
        "function_codes": known(probe.instruction_module, _UNKNOWN_VALUE),
        "type_codes": is_type,
    }


def newest_numbers(reader: Reader) -> dict[str, int]:
    """Return the highest number of each list that a reader supports."""
    known = known_by(reader)
    newest = {name: newest_where(known[name], first) for name, first in _FIRST.items()}
    return newest | {"summaries": summary_version(reader)}


def summary_version(reader: Reader) -> int:
    """Return the newest supported version of ThinLTO summaries."""
    found = _SUMMARIES.search(reader.summary(probe.summary_module(99)))
    if found is None:
        msg = f"LLVM {reader.release} does not name the versions of summaries that it reads"
        raise RuntimeError(msg)
    return int(found[1])


def metadata_operands(reader: Reader, most: Mapping[int, int]) -> dict[int, int]:
    """Return the maximum number of operands of each metadata node; nodes that accept any number are omitted.

    Unknown nodes are omitted too: the reader skips them, and then numbers later nodes incorrectly. `most` are
    the values of a newer reader, which are never lower.
    """
    found: dict[int, int] = {}
    for code in most or range(_FIRST_NODE, _LAST_NODE):
        if not takes_node(reader, code, _MANY):
            counts = range(most.get(code, _MOST_OPERANDS), -1, -1)
            found[code] = next((n for n in counts if takes_node(reader, code, n)), 0)
    return found


def takes_node(reader: Reader, code: int, count: int) -> bool:
    """Return whether a reader accepts a metadata node with that many operands."""
    return reader.spell(probe.metadata_module(code, count)).is_read


def conventions(reader: Reader) -> dict[int, str]:
    """Return the calling conventions that a reader has a name for."""
    text = reader.spell(probe.convention_module(_CONVENTIONS)).output.decode()
    return {int(number): word for word, number in _CONVENTION.findall(text)}


def memory_locations(reader: Reader) -> tuple[str, ...]:
    """Return the meaning of each position of memory(...); empty if the reader lacks the attribute."""
    places = []
    for place in range(_MEMORY_PLACES):
        word = _ANYTHING << (2 * place) | 1 << _VERSION_BITS
        printed = _MEMORY.search(reader.spell(probe.memory_module(word)).output.decode())
        if printed is None:
            return ()
        names = [one.partition(":")[0] for one in printed[1].split(", ") if ": readwrite" in one]
        if printed[1] == "none":
            break
        places.append(names[0] if names else "other")
    return tuple(places)


def attribute_name(reader: Reader, kind: int, form: int) -> str:
    """Return the spelling of an attribute kind in a reader's text."""
    answer = reader.spell(probe.attributed_module(kind, form))
    found = _ATTRIBUTES.search(answer.output.decode() or answer.message)
    return found[1] if found else f"kind{kind}"


def measure(reader: Reader, most: Mapping[int, int]) -> Limits:
    """Return all values of the table for a reader; `most` are the operand counts of a newer one."""
    attributes = attribute_forms(reader)
    operands = metadata_operands(reader, most)
    newest = {
        "attribute_kinds": max(attributes),
        "attribute_forms": max(max(forms) for forms in attributes.values()),
        "metadata_codes": max(operands),
        **newest_numbers(reader),
    }
    return Limits(newest, attributes, operands, conventions(reader), memory_locations(reader))


def main() -> int:
    """Test the readers; print the table or write it."""
    readers, table = table_arguments(__doc__, TABLE)
    found: dict[int, Limits] = {}
    for reader in reversed(readers):
        newer = found[min(found)].operands if found else {}
        found[reader.release] = measure(reader, newer)
        print(f"LLVM {reader.release}: {found[reader.release].newest}", file=sys.stderr, flush=True)  # noqa: T201
    newest = found[readers[-1].release].attributes
    names = {kind: attribute_name(readers[-1], kind, forms[0]) for kind, forms in newest.items()}
    text = render(dict(sorted(found.items())), names)
    put_table(text, table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
