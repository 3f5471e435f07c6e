"""Generate the reference pages, the manual page and the tables of other pages from their sources.

usage: python docs/generate.py [--check]     with --check: exit status 1 and the names of pages that are out of date
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from support.operation_executed import is_executed

from mlir_offload.driver.explain import render_rules
from mlir_offload.driver.option.clang_option import clang_source, judge, known_options, own_row
from mlir_offload.driver.option.manual import render_manual
from mlir_offload.driver.option.nvcc_option import NvccOption, nvcc_options, nvcc_source
from mlir_offload.driver.option.table import COMPILER, SETTINGS
from mlir_offload.offload.abi import offload_table
from mlir_offload.offload.container.bundle_writer import bundle_table

DOCS = Path(__file__).parent
PAGE = DOCS / "reference" / "file-formats.md"
SOURCES = DOCS / "design" / "overview.md"
OPERATIONS = DOCS / "reference" / "gpu-ops.md"
OPERATION_TABLE = DOCS / "reference" / "gpu-ops.yaml"
DIAGNOSTICS = DOCS / "reference" / "diagnostics.md"
MANUAL = DOCS / "man" / "mlir-offload.1"
COMMAND_LINE = DOCS / "reference" / "command-line.md"
CONFIGURATION = DOCS / "reference" / "configuration.md"
CLANG_OPTIONS = DOCS / "reference" / "clang-options.md"
NVCC_OPTIONS = DOCS / "reference" / "nvcc-options.md"
_VERDICTS = {
    "ours": "Ours",
    "passed": "Passed on",
    "ignored": "Ignored",
    "rejected": "Rejected",
}
_PASSED_TO = {
    "c": "for C and C++ inputs",
    "code": "for C and C++ inputs and the host code of `.mlir` inputs",
    "link": "for the link",
    "c link": "for C and C++ inputs and the link",
}
_CLANG_PAGE = """\
# Options of clang

How the driver treats each option that `{source}` lists. Its own options are in [command-line.md](command-line.md). An
option that begins with `-f`, `-m`, `-g`, `-W` or `-R` and that clang does not list is passed on for C and C++ inputs; clang
rejects unknown options. For an unused argument, the driver prints clang's warning (`-Wno-unused-command-line-argument`
disables it).
"""
_NVCC_PAGE = """\
# Options of nvcc

How the driver treats the options that `{source}` lists. For each, it prints a note with the option that it uses. Options
with the same spelling in nvcc, clang and this driver are not listed; `-arch`, `-code`, `-gencode`, `-ptx`, `-cubin`, `-fatbin`, `-dc`,
`-rdc=`, `-G`, `-lineinfo`, `-use_fast_math`, `-maxrregcount`, `-Xcompiler` and `-ccbin` are in
[command-line.md](command-line.md).
"""
Row = Mapping[str, Any]


def main() -> int | str:
    """Write the pages, or compare them; return the exit status."""
    made = {
        PAGE: filled(PAGE, tables()),
        COMMAND_LINE: filled(COMMAND_LINE, {"options": option_table()}),
        CONFIGURATION: filled(CONFIGURATION, {"settings": setting_table()}),
        CLANG_OPTIONS: clang_option_page(),
        NVCC_OPTIONS: nvcc_option_page(),
        SOURCES: filled(SOURCES, {"sources": source_table()}),
        OPERATIONS: operations_page(),
        DIAGNOSTICS: filled(DIAGNOSTICS, {"rules": render_rules()}),
        MANUAL: render_manual(),
    }
    if "--check" in sys.argv[1:]:
        stale = [
            str(path)
            for path, text in made.items()
            if not path.exists() or path.read_text(encoding="utf-8") != text
        ]
        return f"run 'python docs/generate.py': out of date: {', '.join(stale)}" if stale else 0
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
    return 0


def filled(page: Path, new: Mapping[str, str]) -> str:
    """Return the page with new tables, each between its two comments. Raises ValueError if they are missing."""
    text = page.read_text(encoding="utf-8")
    for name, table in new.items():
        begin, end = f"<!-- table {name} -->\n", f"<!-- end of {name} -->"
        head, _, rest = text.partition(begin)
        _, found, tail = rest.partition(end)
        if not found:
            msg = f"{page}: no place for the table {name}"
            raise ValueError(msg)
        text = f"{head}{begin}\n{table}\n{end}{tail}"
    return text


def tables() -> dict[str, str]:
    """Return the tables of file-formats.md as Markdown, by name."""
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


def option_table() -> str:
    """Return the table of the compiler's options; options with the same meaning share a row."""
    meanings: dict[str, list[str]] = {}
    for row in COMPILER.rows:
        said = row.doc or row.help
        meanings.setdefault(said, []).extend(f"`{row.spelled(name)}`" for name in row.names)
    return _table(
        ("option", "meaning"),
        ((_cell(", ".join(names)), _cell(said)) for said, names in meanings.items()),
    )


def clang_option_page() -> str:
    """Return the page with the treatment of each option of clang."""
    groups: dict[str, dict[str, list[str]]] = {title: {} for title in _VERDICTS.values()}
    for one in known_options():
        verdict = "ours" if own_row(one.label) else judge(one.label).verdict
        found = judge(one.label)
        reason = _PASSED_TO.get(" ".join(found.to), found.reason) if verdict != "ours" else ""
        groups[_VERDICTS[verdict]].setdefault(reason, []).append(f"`{one.label}`")
    parts = [_CLANG_PAGE.format(source=clang_source()).rstrip()]
    for title, reasons in groups.items():
        parts.append(f"## {title}")
        parts += (
            f"**{reason}**: {', '.join(names)}" if reason else ", ".join(names)
            for reason, names in reasons.items()
        )
    return "\n\n".join(parts) + "\n"


def nvcc_option_page() -> str:
    """Return the page with the treatment of each option of nvcc."""
    rows = ((f"`{', '.join(row.names)}`", _cell(_becomes(row))) for row in nvcc_options())
    head = _NVCC_PAGE.format(source=nvcc_source())
    return f"{head}\n{_table(('option', 'what the driver does'), rows)}\n"


def _becomes(row: NvccOption) -> str:
    if row.rejected:
        return f"rejects it: {row.rejected}"
    if row.none or not row.ours:
        return f"ignores it: {row.none}"
    if isinstance(row.ours, str):
        return f"uses `{row.ours.format(row.value)}`"
    pairs = ((value, words.format(row.value)) for value, words in row.ours.items())
    return "; ".join(
        f"{row.value if value == '*' else value}: " + (f"uses `{words}`" if words else "ignores it")
        for value, words in pairs
    )


def setting_table() -> str:
    """Return the table of the settings in configuration files."""
    kinds = {str: "string", int: "number", bool: "true or false", tuple: "list of strings"}
    return _table(
        ("key", "option", "variable", "value"),
        (
            (
                f"`{setting.key}`",
                f"`{setting.option or setting.off}`",
                ", ".join(f"`{name}`" for name in setting.variables),
                ", ".join(setting.choices)
                or kinds[setting.kind] + ("; a path is relative to the file" * setting.is_path),
            )
            for setting in SETTINGS
        ),
    )


def _cell(text: str) -> str:
    """Return the text of a table cell, with escaped bars."""
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def source_table() -> str:
    """Return the table of the source folders, with the first line of each package docstring."""
    root = Path(__file__).resolve().parent.parent
    folders = [
        path.parent
        for layer in ("toolchain", "offload", "translate", "driver")
        for path in sorted((root / layer).rglob("__init__.py"))
    ]
    return _table(("folder", "content"), map(_source_row, folders))


def _source_row(folder: Path) -> tuple[str, str]:
    written = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    said = (written or "").partition("\n")[0].rstrip(".")
    place = folder.relative_to(Path(__file__).resolve().parent.parent)
    return (f"`{place}/`", said) if len(place.parts) > 1 else (f"**`{place}/`**", f"**{said}**")


def operations_page() -> str:
    """Return the page on the operations of the gpu dialect."""
    table = yaml.safe_load(OPERATION_TABLE.read_text(encoding="utf-8"))
    checked = " and ".join(map(str, table["checked"]))
    parts = [
        "# Operations of the gpu dialect",
        (
            f"Generated from docs/reference/gpu-ops.yaml, each row of which the tests compile with LLVM {checked}. "
            "**executed**: tests run each operation of the row in every variant, and compare the numbers of all "
            "threads. For `cuda` an interpreter executes the PTX, for `hip` one executes the linked LLVM IR with "
            "the intrinsics of the AMDGPU back end, in lockstep waves; for `spirv64` (LLVM 22) an OpenCL device "
            "runs the examples; `host` is this CPU. **compiled**: the tests did not execute all variants. If a "
            "device does not support the operation, the table shows the error, which names the line (on the CPU: the file)."
        ),
    ]
    for group in table["groups"]:
        head = ("operation", "with", "LLVM", "cuda", "hip", "spirv64", "host (CPU)", "how")
        parts += [
            f"## {group['title']}",
            _table(head, (_operation_row(row, table["checked"]) for row in group["rows"])).rstrip(),
        ]
    return "\n\n".join(parts) + "\n"


def _operation_row(row: Row, checked: Sequence[int]) -> tuple[str, ...]:
    variants = [", ".join(map(str, values)) for values in row.get("each", {}).values()]
    # Quantifiers that repeat the names of the operations say nothing new.
    shown = [text for text in variants if text != ", ".join(row["op"]) and " : " not in text]
    written = "; ".join(filter(None, (row.get("variant", ""), *shown)))
    release = f"to {row['until']}" if "until" in row else f"from {row.get('since', 19)}"
    devices = ("cuda", "hip", "spirv", "cpu")
    linked = row.get("linked", devices)
    verdicts = (
        "-"
        if target == "spirv" and "until" in row
        else f"no: {row[target]}"
        if target in row
        else ("executed" if is_executed(row, target, checked) else "compiled")
        if target in linked
        else "no: rejected at link"
        for target in devices
    )
    names = ", ".join(f"`{name}`" for name in row["op"])
    return names, written.replace("|", "\\|"), release, *verdicts, row.get("how", "")


def _containers(rows: Sequence[Row], last: int) -> str:
    return _table(
        ("LLVM", "version read", "order of the strings", "run", "source"),
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
        ("LLVM", "fields", "symbol", "section", "align", "run", "source"),
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
        ("triple", "LLVM", "formats that a link accepts, with file suffixes", "run"),
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
