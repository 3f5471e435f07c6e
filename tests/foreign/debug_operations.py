"""Compare debug operations and retained nodes in skew_limits.yaml with each reader; exit status 1 if they differ.

usage: python tests/foreign/debug_operations.py [--releases=14,...,22] [--root=N=DIR]

A reader drops all debug information if it finds an unknown operation. The oldest and the newest release
determine the existing operations and their number of arguments; each release is tested with the operations
that the oldest does not have. The same applies to a function that retains a node of an unsupported kind; each
release is tested with all kinds.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".importroot")]

from foreign.reader import Reader, print_differences  # noqa: E402

from mlir_offload.toolchain.skew.limits import load_limits  # noqa: E402

# The operations of DWARF and of LLVM.
_NUMBERS = (*range(1, 0x100), *range(0x1000, 0x1020))
_MOST_ARGUMENTS = 2
# A number that is not an operation.
_ARGUMENT = 9
_INVALID = re.compile(r"!DIExpression\(([^)]*)\)")
_UNIT = b"!DICompileUnit"
# A node of each kind that a function could retain. No release accepts the kinds without a row in the table.
_RETAINED = {
    "DILocalVariable": "scope: !4, type: !5",
    "DILabel": 'scope: !4, name: "x", file: !2, line: 1',
    "DIImportedEntity": "tag: DW_TAG_imported_module, scope: !4, entity: !2",
    "DIGlobalVariable": 'name: "x", scope: !4, type: !5, isLocal: true, isDefinition: true',
    "DIGlobalVariableExpression": "var: !6, expr: !DIExpression()",
    "DIBasicType": 'name: "x", size: 8, encoding: DW_ATE_signed',
    "DIDerivedType": "tag: DW_TAG_typedef, scope: !4, baseType: !5",
    "DICompositeType": "tag: DW_TAG_structure_type, scope: !4, size: 32",
    "DISubroutineType": "types: !{null}",
    "DIStringType": 'name: "x", size: 32',
    "DISubrangeType": 'name: "x", size: 32, baseType: !5',
    "DIFixedPointType": "size: 32, kind: Binary, factor: -4",
    "DIEnumerator": 'name: "x", value: 1',
    "DISubrange": "count: 4",
    "DISubprogram": 'name: "x", scope: !4, type: !3, spFlags: 0',
    "DILexicalBlock": "scope: !4, line: 1",
    "DICommonBlock": 'scope: !4, declaration: null, name: "x"',
    "DINamespace": 'name: "x", scope: null',
    "DIModule": 'name: "x", scope: null',
    "DITemplateTypeParameter": 'name: "x", type: !5',
    "DIFile": 'filename: "x", directory: "/"',
    "DIExpression": "",
}
_DISTINCT = frozenset({"DILexicalBlock"})
_TAKEN = frozenset({"DILocalVariable", "DILabel"})
_FUNCTION = """!3 = !DISubroutineType(types: !{})
!4 = distinct !DISubprogram(name: "f", scope: !2, file: !2, type: !3, spFlags: DISPFlagDefinition, unit: !1, retainedNodes: !{!7})
!5 = !DIBasicType(name: "i", size: 32, encoding: DW_ATE_signed)
!6 = distinct !DIGlobalVariable(name: "s", scope: !4, type: !5, isLocal: true, isDefinition: true)
define void @f() !dbg !4 {
  ret void
}
"""
_MODULE = """!llvm.module.flags = !{!0}
!llvm.dbg.cu = !{!1}
!0 = !{i32 2, !"Debug Info Version", i32 3}
!1 = distinct !DICompileUnit(language: DW_LANG_C99, file: !2, emissionKind: FullDebug)
!2 = !DIFile(filename: "a.c", directory: "/")
"""


def operations(reader: Reader) -> frozenset[tuple[int, int]]:
    """Return the operations of an installed release, as pairs of a number and its argument count."""
    tried = {
        ", ".join(map(str, (number, *[_ARGUMENT] * count))): (number, count)
        for number in _NUMBERS
        for count in range(_MOST_ARGUMENTS + 1)
    }
    command = (*reader.tool("opt"), "-passes=verify", "-disable-output", "-")
    text = _module(list(tried))
    done = subprocess.run(command, input=text, capture_output=True, check=False)
    invalid = set(_INVALID.findall(done.stderr.decode()))
    # The verifier prints unknown operations as numbers, and names no others.
    return frozenset(one for words, one in tried.items() if words not in invalid)


def reads(reader: Reader, number: int, count: int) -> bool:
    """Return whether a release keeps the debug information of a module with an operation."""
    words = ", ".join(map(str, (number, *[_ARGUMENT] * count)))
    return _UNIT in reader.print(_module([words])).output


def retains(reader: Reader, kind: str) -> bool:
    """Return whether a release keeps the debug information of a module with a function that retains a node."""
    distinct = "distinct " if kind in _DISTINCT else ""
    text = f"{_MODULE}{_FUNCTION}!7 = {distinct}!{kind}({_RETAINED[kind]})\n"
    return _UNIT in reader.print(text.encode()).output


def _module(expressions: Sequence[str]) -> bytes:
    listed = ", ".join(f"!DIExpression({words})" for words in expressions)
    return f"{_MODULE}!x = !{{{listed}}}\n".encode()


def mistakes(readers: Sequence[Reader]) -> Iterator[str]:
    """Yield the differences between the table and the readers of the releases."""
    limits = load_limits()
    oldest, newest = (operations(reader) for reader in (readers[0], readers[-1]))
    known = limits.debug_operations
    added = {number for number, _ in newest - oldest}
    if added != known.keys():
        yield f"operations since LLVM {readers[0].release}: {sorted(added ^ known.keys())} differ"
    for number, count in sorted(newest):
        # If an operation is given more numbers than it has arguments, the rest may be parsed as operations.
        if count < limits.debug_arguments.get(number, 0):
            yield f"operation {number:#x} needs {count} numbers"
    for reader in readers:
        for row in known.values():
            is_read = reads(reader, row.number, limits.debug_arguments.get(row.number, 0))
            if is_read != (reader.release >= row.since):
                yield f"LLVM {reader.release}: {row.name} is {'' if is_read else 'not '}read"
    nodes = {row.node: row.since for row in limits.retained_nodes.values()}
    for reader, kind in product(readers, _RETAINED):
        is_expected = kind in _TAKEN or reader.release >= nodes.get(kind, reader.release + 1)
        if retains(reader, kind) != is_expected:
            yield f"LLVM {reader.release}: {kind} is {'not ' * is_expected}taken in retainedNodes"


if __name__ == "__main__":
    raise SystemExit(print_differences(__doc__, mistakes))
