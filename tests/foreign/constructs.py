"""Compare the table of textual constructs with the parser of each release; exit status 1 if they differ.

usage: python tests/foreign/constructs.py [--releases=14,...,22] [--root=N=DIR]

The table is toolchain/data/ir_text.yaml. Each construct is tested by a module in tests/foreign/constructs.ll.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".importroot")]

from foreign.reader import Reader, add_reader_options, chosen_readers  # noqa: E402

from mlir_offload.toolchain.skew.text import Construct, load_constructs  # noqa: E402

EXAMPLES = Path(__file__).with_name("constructs.ll")
_MARK = re.compile(r"^;--- (.*)\n", re.MULTILINE)


def load_examples() -> dict[str, str]:
    """Return a module for each construct, by its name in the table."""
    _, *parts = _MARK.split(EXAMPLES.read_text(encoding="utf-8"))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def mistakes(reader: Reader, construct: Construct, text: str) -> Iterator[str]:
    """Yield an error if a release parses a construct contrary to the table."""
    answer = reader.print(text.encode())
    expected = (construct.since or 0) <= reader.release < (construct.gone or reader.release + 1)
    if answer.is_read != expected:
        what = "parses" if answer.is_read else "rejects"
        lines = answer.message.splitlines()
        yield f"LLVM {reader.release} {what} '{construct.name}' {lines[0] if lines else ''}"


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_reader_options(parser)
    readers = chosen_readers(parser.parse_args())
    examples = load_examples()
    found = [
        line
        for construct in load_constructs()
        for reader in readers
        for line in mistakes(reader, construct, examples[construct.name])
    ]
    for line in found:
        print(line)  # noqa: T201
    print(f"{len(examples)} constructs, {len(readers)} releases, {len(found)} differences")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
