"""The process that collapses the kernels of one module through LLVM's C API, and reports errors as diagnostics.

usage: python -m mlir_offload.translate.cpu.collapse --library LIBLLVM INPUT.ll -o OUTPUT.ll --kernel NAME...
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mlir_offload.offload.ir_syntax import next_metadata_number
from mlir_offload.toolchain.errors import MlirOffloadError
from mlir_offload.toolchain.llvmc.ir import Context
from mlir_offload.toolchain.llvmc.library import LlvmError, LlvmLibrary
from mlir_offload.toolchain.llvmc.module import parse_module
from mlir_offload.translate.cpu.collapse.frame import GROUP_NODE, WORKGROUP_NODE
from mlir_offload.translate.cpu.collapse.kernel import Outcome, collapse_module

_LAYOUT = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"


def main() -> None:
    """Read LLVM IR, collapse kernels, write LLVM IR; print a remark for each kernel."""
    parser = argparse.ArgumentParser()
    parser.add_argument("input", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--kernel", action="append", default=[])
    parser.add_argument("--location", default="")
    parser.add_argument("--lanes", type=int, help="threads of a strip; 1024: a row, however long")
    options = parser.parse_args()
    try:
        outcomes = collapse_file(
            options.input, options.output, options.library, options.kernel, options.lanes
        )
    except (LlvmError, MlirOffloadError) as error:
        sys.exit(f"{options.input}: error: {str(error).splitlines()[0]}")
    for outcome in outcomes:
        sys.stderr.write(_remark(outcome, options.location))


def collapse_file(
    source: Path,
    output: Path,
    library: Path,
    kernels: Sequence[str],
    lanes: int | None = None,
) -> list[Outcome]:
    """Collapse the kernels of a module in this process."""
    text = source.read_text(encoding="utf-8", errors="surrogateescape")
    with Context(LlvmLibrary(library)) as context:
        module = parse_module(context, _with_nodes(text), source.name)
        outcomes = collapse_module(module, kernels, lanes)
        output.write_text(str(module), encoding="utf-8", errors="surrogateescape")
    return outcomes


def _with_nodes(text: str) -> str:
    """Add distinct metadata nodes, which the C API cannot create: an access group and an alias scope."""
    number = next_metadata_number(text)
    scopes, scope, domain = range(number + 1, number + 4)
    # On the first line, so that the line numbers in LLVM's errors stay those of the text.
    layout = "" if "target datalayout" in text else f'target datalayout = "{_LAYOUT}" '
    nodes = (
        f"!{GROUP_NODE} = !{{!{number}}}",
        f"!{number} = distinct !{{}}",
        f"!{WORKGROUP_NODE} = !{{!{scopes}}}",
        f"!{scopes} = !{{!{scope}}}",
        f"!{scope} = distinct !{{!{scope}, !{domain}}}",
        f"!{domain} = distinct !{{!{domain}}}\n",
    )
    return f"{layout}{text}\n" + "\n".join(nodes)


def _remark(outcome: Outcome, location: str) -> str:
    place = f"{location}:{outcome.line}" if location and outcome.line else location or "remark"
    how = "collapsed over subgroups" if outcome.is_collapsed else "not collapsed over subgroups"
    return f"{place}: remark: kernel {outcome.kernel}: {how}: {outcome.reason} [-Rpass=collapse]\n"


if __name__ == "__main__":
    main()
