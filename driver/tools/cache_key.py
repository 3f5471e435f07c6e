"""The cache key of a complete invocation under ccache, for everything that ccache does not hash.

ccache hashes the command line and the source. `--print-cache-key` prints a hash of the rest. Under ccache,
the driver rejects an invocation whose result would be stored under another key.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlir_offload.driver.option.command_line import (
    MLIR_SUFFIXES,
    CompileOptions,
    read_arguments,
    read_besides,
)
from mlir_offload.driver.option.table import COMPILER
from mlir_offload.driver.system.file_identity import content_identity
from mlir_offload.driver.tools.choose import build_environment, choose_targets
from mlir_offload.driver.tools.llvm_files import own_memo
from mlir_offload.driver.tools.toolchain_id import RememberingRunner, identify_options
from mlir_offload.toolchain.errors import CompatibilityError, UsageError
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.target import HOST
from mlir_offload.translate.target_attribute import libraries_in_source

PRINT = "--print-cache-key"
_DIGITS = 32
# ccache sets CCACHE_DISABLE for the compiler that it runs.
_UNDER_CCACHE, _CHECK = "CCACHE_DISABLE", "CCACHE_COMPILERCHECK"
_WHOLE_CALL = ("-x", "cpp-output")
# These variables name tools, whose identity is in the key.
_TOOL_PLACES = frozenset(
    ("CUDA_HOME", "CUDA_PATH", "MLIR_OFFLOAD_FOR_CLANG", "MLIR_OFFLOAD_LLVM", "ROCM_PATH")
)


def show_cache_key(arguments: Sequence[str], runner: Runner) -> int:
    """Print the key for invocations with these options. Raises UsageError for an input."""
    options = read_arguments([word for word in arguments if word != PRINT])
    if options.inputs:
        msg = f"{PRINT} takes the options of the call and no input: {options.inputs[0]}"
        raise UsageError(msg, hint="ccache hashes the input itself")
    sys.stdout.write(f"{_cache_key(options, runner)}\n")
    return 0


def check_cache_key(
    options: CompileOptions, environment: Mapping[str, str], runner: Runner
) -> None:
    """Check that the result of a complete invocation under ccache will be stored under the right key.

    Raises CompatibilityError for another key, UsageError for a source that reads files which ccache does not
    hash.
    """
    if _WHOLE_CALL not in options.spelled or not environment.get(_UNDER_CCACHE):
        return
    for source in options.inputs:
        _check_source(source)
    key = _cache_key(options, runner)
    given = environment.get(_CHECK, "").removeprefix("string:")
    if given != key:
        msg = f"{_CHECK} is not the key of this call: '{given}' instead of '{key}'"
        hint = (
            f'export {_CHECK}="string:$(mlir-offload {PRINT} OPTIONS)" with the options of the call'
        )
        raise CompatibilityError(msg, hint=hint)


def _check_source(source: Path) -> None:
    if source.suffix not in MLIR_SUFFIXES:
        msg = f"ccache does not see what {source} includes"
        raise UsageError(msg, hint="let ccache run clang on it", location=str(source))
    attached = libraries_in_source(source.read_bytes())
    if attached:
        msg = f"ccache does not see the device library {attached[0]}, which this program names"
        hint = "compile it without ccache, or name the library with --device-lib="
        raise UsageError(msg, hint=hint, location=str(source))


def _counts(name: str) -> bool:
    """Return whether an option affects the output."""
    found = COMPILER.find(name)
    return found is None or found[0].in_key


def _cache_key(options: CompileOptions, runner: Runner) -> str:
    targets = choose_targets(options.offload_archs)
    identity = identify_options(
        options, RememberingRunner(runner), uses_processor=HOST in map(str, targets)
    )
    files = read_besides(options)
    counted = [pair for pair in options.spelled if _counts(pair[0])]
    environment = [pair for pair in build_environment() if pair[0] not in _TOOL_PLACES]
    contents = [(str(file), content_identity(file, own_memo())) for file in files]
    parts = [str(identity), list(map(str, targets)), counted, environment, contents]
    text = json.dumps(parts).encode("utf-8", "surrogateescape")
    return hashlib.sha256(text).hexdigest()[:_DIGITS]
