"""The passes that create GPU functions and launches: a named pipeline, or passes of the user."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.errors import (
    CompatibilityError,
    InputOutputError,
    SourceError,
    UsageError,
)
from mlir_offload.toolchain.pattern import compiled, pattern
from mlir_offload.toolchain.tables import load_table
from mlir_offload.translate.mlir.module import Locations, Module
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import MLIR

DEFAULT_PIPELINE = "gpu"
_SCRIPTS = Path(__file__).parent / "data" / "scripts.mlir"
TENSOR_PIPELINE = "linalg"
_ON_MODULE = pattern(r"(?:builtin\.)?module\((?P<passes>.*)\)", re.DOTALL)
_PASS = pattern(r"[A-Za-z][\w.:-]*(?:[({].*[)}])?", re.DOTALL)
_BRACKETS = {")": "(", "}": "{"}
_COMMENT = pattern(rb"//[^\n]*")
_REDUCTION = b"vector.multi_reduction"
_WITHOUT_DIMENSIONS = pattern(
    rb"vector\.multi_reduction\s*<[^\[:]*\[\s*\]|\breduction_dims\s*=\s*array<i64>"
)
_GPU_CODE = pattern(rb"\bgpu\.(?:launch|module|binary|container_module)")
_TENSOR = pattern(rb"\btensor<")
_PARALLEL = pattern(rb"\b(?:scf\.parallel|affine\.parallel|linalg\.\w+)")

BYTECODE_MAGIC = b"ML\xefR"
_BINARY = pattern(rb"[\x00-\x08\x0e-\x1f]")
_LOOK_AT_BYTES = 65536
_MAGIC = (
    (b"\x7fELF", "an ELF object"),
    (b"BC\xc0\xde", "LLVM bitcode"),
    (b"!<arch>\n", "an archive"),
    (b"\x1f\x8b", "a compressed file"),
)
# Byte order marks, their encodings, and commands that convert the file.
_BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "UTF-8", r"sed '1s/^\xef\xbb\xbf//'"),
    (b"\xff\xfe", "UTF-16", "iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "UTF-16", "iconv -f UTF-16 -t UTF-8"),
)
# Words at the start of lines in other languages but never in MLIR, the language, and a hint.
_OTHER_TEXT = (
    (
        ("#include ", "#define ", "#pragma "),
        "C or C++",
        "name the file .c or .cpp, or put -x c before it",
    ),
    (
        (
            "; ModuleID",
            "source_filename =",
            "target datalayout",
            "target triple",
            "define ",
            "declare ",
        ),
        "LLVM IR",
        "name the file .ll, or put -x ir before it",
    ),
)


class InputPipeline(Struct, frozen=True):
    """The passes before a program is split: the passes of the user, then those of the named pipeline `base`.

    `plugins` are shared libraries with passes and dialects, `files` the files that were read for the
    pipeline, `arguments` further arguments of mlir-opt.
    """

    base: str = DEFAULT_PIPELINE
    passes: tuple[str, ...] = ()
    plugins: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()
    arguments: tuple[str, ...] = ()


class NamedPipeline(Struct, frozen=True):
    """A row of input_pipelines.yaml, which describes the fields."""

    name: str
    help: str
    passes: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    is_final: bool = False
    is_on_host_memory: bool = False


class Script(Struct, frozen=True):
    """An entry point of scripts.mlir; input_pipelines.yaml describes the fields."""

    entry: str
    is_on_buffers: bool = False

    @property
    def run(self) -> str:
        """Return the pass that runs the script."""
        return f"{INTERPRETER}{{entry-point={self.entry}}}"


@functools.cache
def pipeline_names() -> tuple[str, ...]:
    """Return the names of the pipelines, in the order of the table."""
    return tuple(dict.fromkeys(row["name"] for row in _rows()))


@functools.cache
def load_pipeline(name: str, llvm_major: int) -> NamedPipeline:
    """Return a pipeline for a release. Raises CompatibilityError if the release is older than its rows."""
    rows = [row for row in _rows() if row["name"] == name and int(row["since"]) <= llvm_major]
    if not rows:
        msg = f"--pipeline={name} requires passes that LLVM {llvm_major} does not have"
        raise CompatibilityError(msg, hint="choose a later release with --llvm=MAJOR")
    row = max(rows, key=lambda row: int(row["since"]))
    return NamedPipeline(
        name,
        str(row["help"]),
        tuple(row["passes"]),
        tuple(row.get("tensors", ())),
        is_final=bool(row.get("is_final", False)),
        is_on_host_memory=bool(row.get("is_on_host_memory", False)),
    )


def parse_pipeline(text: str) -> InputPipeline:
    """Parse the name of a pipeline, or a list of passes in the syntax of mlir-opt.

    A name at the end of a list is the pipeline that follows the passes, by default `gpu`. Raises
    UsageError if the text is not a list of passes.
    """
    whole = _ON_MODULE.fullmatch(text.strip())
    passes = MLIR.split_list(whole["passes"] if whole else text)
    _check_name(text)
    base = passes.pop() if passes and passes[-1] in pipeline_names() else DEFAULT_PIPELINE
    check_passes(passes, f"--pipeline={text}")
    if not text.strip():
        msg = "--pipeline= expects a pass"
        raise UsageError(msg, hint=f"use {', '.join(pipeline_names())}, a .yaml file or passes")
    return InputPipeline(base, tuple(passes))


def _check_name(text: str) -> None:
    """Raise UsageError for a misspelled name of a pipeline."""
    import difflib

    near = difflib.get_close_matches(text, pipeline_names(), n=1, cutoff=0.75)
    if near and near[0] != text:
        msg = f"--pipeline={text}: unknown pipeline"
        raise UsageError(msg, hint=f"did you mean '{near[0]}'?")


def check_passes(passes: Iterable[str], what: str) -> None:
    """Raise UsageError for a text that is not a pass; mlir-opt checks the names of passes later."""
    for name in passes:
        if name in pipeline_names():
            msg = f"{what}: '{name}' must be the last in the list"
            raise UsageError(msg, hint="list the passes first, then the name of a pipeline")
        if not _PASS.fullmatch(name) or not _is_balanced(name):
            msg = f"{what}: '{name}' is not a pass"
            hint = "write passes as for mlir-opt: canonicalize,func.func(affine-loop-tile{tile-size=8})"
            raise UsageError(msg, hint=hint)


def _is_balanced(text: str) -> bool:
    still_open: list[str] = []
    for character in text:
        if character in _BRACKETS.values():
            still_open.append(character)
        elif character in _BRACKETS and (
            not still_open or still_open.pop() != _BRACKETS[character]
        ):
            return False
    return not still_open


def render_pipeline(
    pipeline: InputPipeline,
    named: NamedPipeline,
    common: Sequence[str],
    *,
    has_tensors: bool,
    scripts: Sequence[Script] = (),
) -> str:
    """Return the value of `--pass-pipeline=` for the pipeline and, unless it is final, the `common` passes.

    `scripts` run after the passes of the user, or at the placeholder `$buffers` of the named pipeline.
    """
    passes = [*pipeline.passes]
    if scripts:
        passes.append(f'transform-preload-library{{transform-library-paths="{_SCRIPTS}"}}')
    passes += [script.run for script in scripts if not script.is_on_buffers]
    placeholders = {
        "$common": tuple(common),
        "$tensors": named.tensors if has_tensors else (),
        "$buffers": tuple(script.run for script in scripts if script.is_on_buffers),
    }
    passes += [name for step in named.passes for name in placeholders.get(step, (step,))]
    if not named.is_final:
        passes += common
    return f"builtin.module({','.join(passes)})"


def needed_scripts(content: bytes, name: str, llvm_major: int) -> tuple[Script, ...]:
    """Return the scripts that the text of a program requires. Bytecode is not searched."""
    code = _COMMENT.sub(b"", content)
    has_gpu = _GPU_CODE.search(code) is not None
    return tuple(
        Script(row["entry"], is_on_buffers=bool(row.get("is_on_buffers", False)))
        for row in _table()["scripts"]
        if name in row["pipelines"]
        and llvm_major >= row["since"]
        and not (has_gpu and row.get("is_without_gpu", False))
        and compiled(row["when"].encode()).search(code)
    )


def has_tensors(content: bytes) -> bool:
    """Return whether the text of a program contains tensors. Bytecode is not searched."""
    return _TENSOR.search(_COMMENT.sub(b"", content)) is not None


def detect_pipeline(content: bytes) -> str:
    """Return the default pipeline for a program.

    A program on tensors requires the tensor pipeline. If it also contains GPU code, the user must
    select a pipeline, so that the driver does not offload other code implicitly.
    """
    code = _COMMENT.sub(b"", content)
    is_high = _TENSOR.search(code) is not None and _GPU_CODE.search(code) is None
    return TENSOR_PIPELINE if is_high else DEFAULT_PIPELINE


def offloadable(content: bytes) -> str:
    """Return the first operation that `linalg` would offload, an empty string if the program has GPU code."""
    code = _COMMENT.sub(b"", content)
    found = _PARALLEL.search(code)
    return found[0].decode() if found and not _GPU_CODE.search(code) else ""


@functools.cache
def _rows() -> Sequence[dict[str, Any]]:
    rows: Sequence[dict[str, Any]] = _table()["pipelines"]
    return rows


@functools.cache
def _table() -> dict[str, Any]:
    return load_table("mlir_offload.translate", "input_pipelines")


def check_source(path: Path) -> bytes:
    """Read a program, MLIR text or bytecode.

    Raises InputOutputError if the file cannot be read, SourceError if it is empty or not MLIR.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        hint = (
            "name a .mlir file, not a directory"
            if path.is_dir()
            else "check the name and the permissions"
        )
        raise InputOutputError(msg, hint=hint, location=str(path)) from error
    if not content.strip():
        msg = "the file is empty"
        raise SourceError(
            msg, hint="there is nothing to compile: write a program into it", location=str(path)
        )
    if content.startswith(BYTECODE_MAGIC):
        return content
    _check_encoding(content, path)
    kind = next((name for magic, name in _MAGIC if content.startswith(magic)), "")
    if kind or _BINARY.search(content, 0, _LOOK_AT_BYTES):
        msg = f"not an MLIR program but {kind or 'a binary file'}"
        raise SourceError(msg, hint="give MLIR text or MLIR bytecode", location=str(path))
    _check_language(content, path)
    if _REDUCTION in content:
        _check_reductions(content, path)
    return content


def _check_reductions(content: bytes, path: Path) -> None:
    """Raise SourceError for a reduction of no dimension, whose accumulator mlir-opt drops when it folds it."""
    code = _COMMENT.sub(lambda comment: b" " * len(comment[0]), content)
    if found := _WITHOUT_DIMENSIONS.search(code):
        line = code.count(b"\n", 0, found.start()) + 1
        msg = "vector.multi_reduction without dimensions: mlir-opt drops the accumulator"
        hint = "combine the two vectors by an operation of arith"
        raise SourceError(msg, hint=hint, location=f"{path}:{line}")


def _check_encoding(content: bytes, path: Path) -> None:
    for mark, encoding, command in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            msg = f"the file begins with a byte order mark ({encoding}), which MLIR does not read"
            hint = f"write it without: {command} {shlex.quote(str(path))} > NEW.mlir"
            raise SourceError(msg, hint=hint, location=f"{path}:1:1")


def _check_language(content: bytes, path: Path) -> None:
    start = content.lstrip()[:_LOOK_AT_BYTES].decode("utf-8", "replace")
    for beginnings, language, hint in _OTHER_TEXT:
        if start.startswith(beginnings):
            msg = f"not an MLIR program but {language}"
            raise SourceError(msg, hint=hint, location=str(path))


INTERPRETER = "transform-interpreter"
"""The pass that runs transform scripts."""

_DIALECT = "transform."
_MODULE = "builtin.module"


def drop_scripts(module: Module, locations: Locations, *, are_run: bool) -> None:
    """Remove transform scripts from a program, and modules that contain nothing else.

    Raises SourceError for a script that no pass runs.
    """
    scripts = [operation for operation in module.operations if _is_script(operation)]
    left = next((one for one in scripts if one.name != _MODULE or one.operations), None)
    if left is not None and not are_run:
        msg = "the program has a transform script, but no pass runs it"
        hint = f"compile it with --pipeline={INTERPRETER},gpu, or ...,linalg"
        raise SourceError(msg, hint=hint, location=locations.of(left))
    for operation in scripts:
        module.operations.remove(operation)


def _is_script(operation: Operation) -> bool:
    if operation.name == _MODULE:
        return all(inner.name.startswith(_DIALECT) for inner in operation.operations)
    return operation.name.startswith(_DIALECT)
