"""Messages of the tools, verbatim, and their parsed form."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlir_offload.toolchain.process import Command, Completed
from mlir_offload.translate.tool_message import (
    Severity,
    ToolMessage,
    has_crashed,
    parse_messages,
    source_of_ptx,
)

ERROR, WARNING, NOTE, REMARK = Severity.ERROR, Severity.WARNING, Severity.NOTE, Severity.REMARK

# Printed by LLVM 22, GNU ld 2.40 and CUDA 13.0 for small invalid inputs.
PRINTED = {
    "mlir-opt, with a note": (
        "mlir-opt",
        (
            "bad.mlir:3:19: error: use of value '%0' expects different type\n"
            "  %1 = arith.addi %0, %0 : i64\n"
            "                  ^\n"
            "bad.mlir:2:3: note: prior use here\n"
        ),
        [
            ToolMessage(
                ERROR,
                "use of value '%0' expects different type",
                "mlir-opt",
                "bad.mlir",
                3,
                19,
                ("  %1 = arith.addi %0, %0 : i64", "                  ^"),
            ),
            ToolMessage(NOTE, "prior use here", "mlir-opt", "bad.mlir", 2, 3),
        ],
    ),
    "mlir-opt, without a file": (
        "mlir-opt",
        "<unknown>:0: error: failed to legalize\n",
        [ToolMessage(ERROR, "failed to legalize", "mlir-opt")],
    ),
    "a location as MLIR writes it": (
        "mlir-translate",
        'loc("k.mlir":2:8): error: unsupported\n',
        [ToolMessage(ERROR, "unsupported", "mlir-translate", "k.mlir", 2, 8)],
    ),
    "clang, with its count": (
        "clang",
        (
            "u.c:1:40: warning: unused variable 'x' [-Wunused-variable]\n"
            "    1 | int main(void){int x;}\n"
            "1 warning generated.\n"
        ),
        [
            ToolMessage(
                WARNING,
                "unused variable 'x' [-Wunused-variable]",
                "clang",
                "u.c",
                1,
                40,
                ("    1 | int main(void){int x;}",),
            )
        ],
    ),
    "GNU ld below clang": (
        "clang",
        (
            "/usr/bin/ld: /tmp/u.o: in function `main':\n"
            "u.c:(.text+0x10): undefined reference to `f'\n"
            "clang: error: linker command failed with exit code 1 (use -v to see invocation)\n"
        ),
        [
            ToolMessage(ERROR, "undefined reference to `f'", "clang", "u.c"),
            ToolMessage(
                ERROR,
                "linker command failed with exit code 1 (use -v to see invocation)",
                "clang",
            ),
        ],
    ),
    "lld below clang": (
        "clang",
        "ld.lld: error: undefined symbol: f\n>>> referenced by u.c\n",
        [ToolMessage(ERROR, "undefined symbol: f", "ld.lld", details=(">>> referenced by u.c",))],
    ),
    "ptxas": (
        "ptxas",
        (
            "ptxas bad.ptx, line 5; error   : Unknown modifier '.bar'\n"
            "ptxas fatal   : Ptx assembly aborted due to errors\n"
        ),
        [
            ToolMessage(ERROR, "Unknown modifier '.bar'", "ptxas", "bad.ptx", 5),
            ToolMessage(ERROR, "Ptx assembly aborted due to errors", "ptxas"),
        ],
    ),
    "ptxas, what it used": (
        "ptxas",
        "ptxas info    : Used 24 registers, used 0 barriers\n",
        [ToolMessage(REMARK, "Used 24 registers, used 0 barriers", "ptxas")],
    ),
    "nvlink below the wrapper": (
        "clang",
        (
            "nvlink error   : Undefined reference to 'nosuch' in 'x.o'\n"
            "clang-linker-wrapper: error: 'nvlink' failed\n"
        ),
        [
            ToolMessage(ERROR, "Undefined reference to 'nosuch' in 'x.o'", "nvlink"),
            ToolMessage(ERROR, "'nvlink' failed", "clang-linker-wrapper"),
        ],
    ),
    "the back end": (
        "opt",
        "LLVM ERROR: Cannot select: intrinsic\n",
        [ToolMessage(ERROR, "Cannot select: intrinsic", "opt")],
    ),
    "a file in the place of a program": (
        "clang",
        "lib/x.o: warning: section without a name\n",
        [ToolMessage(WARNING, "section without a name", "clang", "lib/x.o")],
    ),
    "nothing of a known form": ("clang", "hello\n\n", []),
}


@pytest.mark.parametrize(("program", "printed", "messages"), PRINTED.values(), ids=PRINTED.keys())
def test_each_tool_is_understood(program: str, printed: str, messages: list[ToolMessage]) -> None:
    assert list(parse_messages(program, printed)) == messages


@pytest.mark.parametrize(
    ("status", "stderr", "crashed"),
    [
        (-11, "", True),
        (139, "", True),
        (1, "PLEASE submit a bug report to https://llvm.org\n", True),
        (1, "clang: error: unable to execute command: Segmentation fault\n", True),
        (255, "ptxas fatal : Internal Compiler Error\n", True),
        (255, "ptxas fatal   : Input file could not be opened\n", False),
        (1, "k.mlir:1:1: error: no\n", False),
        (-15, "", False),
        (-2, "", False),
    ],
)
def test_a_crash_is_told_from_an_error(*, status: int, stderr: str, crashed: bool) -> None:
    assert has_crashed(Completed(Command(("tool",)), status, "", stderr)) is crashed


def test_a_line_of_ptx_leads_to_the_line_that_it_was_made_from(tmp_path: Path) -> None:
    assembly = tmp_path / "k.s"
    assembly.write_text('.file 1 "/src" "k.mlir"\n.func f\n.loc 1 7 3\nadd;\n.loc 1 9 5\nfoo;\n')
    assert source_of_ptx(assembly, 4) == ("/src/k.mlir", 7, 3)
    assert source_of_ptx(assembly, 6) == ("/src/k.mlir", 9, 5)
    assert source_of_ptx(assembly, 2) is None
    assert source_of_ptx(tmp_path / "gone.s", 2) is None
