"""Write the tables of docs/formats.md, docs/rules.md and the manual page from what the compiler reads.

usage: python docs/generate.py [--check]     with --check: exit status 1 where a page is out of date
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlir_offload.driver.explain import render_rules
from mlir_offload.driver.manual import render_manual
from mlir_offload.offload.abi import offload_table
from mlir_offload.offload.bundle_writer import bundle_table

PAGE = Path(__file__).parent / "formats.md"
RULES = Path(__file__).parent / "rules.md"
MANUAL = Path(__file__).parent / "man" / "mlir-offload.1"
Row = Mapping[str, Any]


def main() -> int:
    """Write the pages, or compare them; return the exit status."""
    page = filled(PAGE.read_text(encoding="utf-8"))
    made = {PAGE: page, RULES: render_rules(), MANUAL: render_manual()}
    if "--check" in sys.argv[1:]:
        old = {path: path.read_text(encoding="utf-8") for path in made if path.exists()}
        return 0 if old == made else 1
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
    return 0


def filled(text: str) -> str:
    """Return the page with each table, between its two comments, made again."""
    for name, table in tables().items():
        begin, end = f"<!-- table {name} -->\n", f"<!-- end of {name} -->"
        head, _, rest = text.partition(begin)
        _, found, tail = rest.partition(end)
        if not found:
            msg = f"{PAGE}: no place for the table {name}"
            raise ValueError(msg)
        text = f"{head}{begin}\n{table}\n{end}{tail}"
    return text


def tables() -> dict[str, str]:
    """Return each table of the page as Markdown."""
    table = offload_table()
    last = table["majors"]["last"]
    return {
        "containers": _containers(table["container"]["rows"], last),
        "kinds": _by_release(table["offload_kinds"], last, "codes"),
        "entries": _entries(table["entries"], last),
        "registered": _by_release(table["entry_values"], last, "registered"),
        "flags": _by_release(table["entry_values"], last, "flags"),
        "images": _images(table["linked_images"], last),
        "bundles": _bundles(bundle_table()["compressed"], last),
    }


def _containers(rows: Sequence[Row], last: int) -> str:
    return _table(
        ("LLVM", "reads version", "order of the strings", "run", "source"),
        (
            (
                _releases(rows, row, last),
                ", ".join(map(str, row["reads"])),
                " into ".join(row["containers"]),
                *_evidence(row),
            )
            for row in rows
        ),
    )


def _by_release(rows: Sequence[Row], last: int, column: str) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row[column]))
    return _table(
        ("LLVM", *names, "run", "source"),
        (
            (
                _releases(rows, row, last),
                *(_value(row[column].get(name, "-")) for name in names),
                *_evidence(row),
            )
            for row in rows
        ),
    )


def _entries(rows: Sequence[Row], last: int) -> str:
    return _table(
        ("LLVM", "members", "symbol", "section", "align", "run", "source"),
        (
            (
                _releases(rows, row, last),
                ", ".join(field.replace(":", " ") for field in row["fields"]),
                f"`{row['symbol_prefix']}NAME`",
                ", ".join(f"`{name}`" for name in dict.fromkeys(row["sections"].values())),
                str(row["align"]),
                *_evidence(row),
            )
            for row in rows
        ),
    )


def _images(devices: Mapping[str, Sequence[Row]], last: int) -> str:
    return _table(
        ("triple", "LLVM", "what a link takes, under which endings", "run"),
        (
            (
                "of the host" if device == "host" else f"`{device}*`",
                _releases(rows, row, last),
                "; ".join(f"{form} ({', '.join(row['forms'][form])})" for form in row["forms"])
                or "nothing",
                _evidence(row)[0],
            )
            for device, rows in devices.items()
            for row in rows
        ),
    )


def _bundles(rows: Sequence[Row], last: int) -> str:
    return _table(
        ("LLVM", "writes compressed bundles of version", "run", "source"),
        ((_releases(rows, row, last), str(row["version"] or "-"), *_evidence(row)) for row in rows),
    )


def _releases(rows: Sequence[Row], row: Row, last: int) -> str:
    later = [other["since"] for other in rows if other["since"] > row["since"]]
    end = min(later) - 1 if later else last
    return str(end) if end == row["since"] else f"{row['since']} to {end}"


def _evidence(row: Row) -> tuple[str, str]:
    return ", ".join(map(str, row["checked"])) or "-", row["source"]


def _value(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
