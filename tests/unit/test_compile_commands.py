from __future__ import annotations

import json
from pathlib import Path

from mlir_offload.driver.compile.compile_commands import mlir_entry, render_entries
from mlir_offload.driver.option.command_line import parse_arguments


def test_an_entry_compiles_its_file_alone_with_the_options_of_the_call() -> None:
    options = parse_arguments(
        [
            "-O3",
            "-I",
            "inc",
            "a.mlir",
            "--offload-arch=sm_80",
            "-Llib",
            "-lx",
            "-shared",
            "-j4",
            "-MD",
            "-MFa.d",
            "-MJ",
            "a.json",
            "b.c",
            "-o",
            "prog",
            "-Wl,-x",
            "-save-temps=t",
            "-g",
        ]
    )
    entry = mlir_entry(options, Path("a.mlir"), Path("a.o"))
    assert Path(entry.arguments[0]).name == "mlir-offload"
    assert entry.arguments[1:] == (
        *("-O3", "-Iinc", "--offload-arch=sm_80", "-g", "-c", "a.mlir"),
        *("-o", "a.o"),
    )
    again = parse_arguments(entry.arguments[1:])
    assert (again.inputs, again.output, again.debug) == ((Path("a.mlir"),), Path("a.o"), True)


def test_entries_join_to_a_list_as_those_of_clang_do() -> None:
    options = parse_arguments(["-c", "--", "-a.mlir"])
    entry = mlir_entry(options, Path("-a.mlir"), Path("-a.o"))
    text = render_entries([entry, entry], Path("/place"))
    assert [line[-2:] for line in text.splitlines()] == ["},", "},"]
    database = json.loads(f"[{text.rstrip()[:-1]}]")
    assert database[0]["directory"] == "/place"
    assert database[1]["file"] == "-a.mlir"
    assert database[1]["arguments"][-3] == "./-a.mlir"
