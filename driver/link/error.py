"""Failures of a link whose cause the tools do not tell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from mlir_offload.driver.link.undefined import explain_undefined
from mlir_offload.driver.message.journal import ToolRun
from mlir_offload.driver.message.tool_error import tool_error
from mlir_offload.offload.link.objects import ObjectContents
from mlir_offload.toolchain.errors import CompatibilityError, MlirOffloadError

_NO_STUB = re.compile(r"undefined (?:reference|symbol).*__device_stub__")
_OTHER_CODE_OBJECT = "incompatible ABI version"
# GCC's mark of an object that contains its own IR only, without machine code (gcc/lto-streamer.h).
_SLIM = b"__gnu_lto_slim"
_SLIM_HINT = (
    "compile it with -ffat-lto-objects, by clang, or without -flto (CMake: "
    "INTERPROCEDURAL_OPTIMIZATION)"
)
_UNDEFINED = re.compile(r"undefined", re.IGNORECASE)


def diagnose_link(
    apart: Sequence[str], contents: Sequence[ObjectContents], run: ToolRun
) -> MlirOffloadError:
    """Return the error for a link that failed; `apart` are objects whose device code is not in it."""
    failed, error = run.completed, tool_error(run)
    slim = _slim_object(failed.command.argv) if _UNDEFINED.search(failed.stderr) else ""
    if slim:
        msg = f"{slim} contains only the intermediate code of GCC (-flto), which clang cannot link"
        return CompatibilityError(msg, hint=_SLIM_HINT)
    if _UNDEFINED.search(failed.stderr):
        explain_undefined(error, contents, failed.stderr)
    if _NO_STUB.search(failed.stderr):
        error.hint = (
            "name the object that defines the kernel on the link line; for a kernel of MLIR that "
            "other files launch, pass only integers, float, double and pointers"
        )
    elif _OTHER_CODE_OBJECT in failed.stderr:
        error.hint = (
            "objects for AMD GPUs link only where their code object version is one: compile HIP C++ "
            "with -mcode-object-version=, and make a gpu.binary with #rocdl.target<abi = ...>, as the "
            "calls of clang have it that -v shows"
        )
    elif apart and _UNDEFINED.search(failed.stderr):
        error.hint = (
            f"the device code of {', '.join(apart)} was device-linked separately, because other objects have "
            "kernels of the same names: rename these where other files call its device functions, "
            "or launch its kernels from CUDA C++"
        )
    return error


def _slim_object(words: Sequence[str]) -> str:
    """Return an object or archive of a link that GCC left without machine code; empty if none is."""
    for word in words:
        if word.endswith((".o", ".a")) and Path(word).is_file():
            content = Path(word).read_bytes()
            if _SLIM in content:
                return word
    return ""
