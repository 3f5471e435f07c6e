"""Pipelines in a file of the user: `--pipeline=FILE.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlir_offload.toolchain.errors import InputOutputError, UsageError
from mlir_offload.translate.input_pipeline import (
    DEFAULT_PIPELINE,
    InputPipeline,
    check_passes,
    parse_pipeline,
    pipeline_names,
)

PIPELINE_SUFFIXES = frozenset({".yaml", ".yml"})
_KEYS = ("passes", "then", "plugins")
_FORM = "a pipeline file has the keys passes (a list), then (a name) and plugins (a list)"
_MOST_BYTES = 1 << 20


def read_pipeline(text: str) -> InputPipeline:
    """Return the pipeline of a `--pipeline=` value: a name, a list of passes, or a file.

    Raises UsageError for an invalid value or file, InputOutputError if the file cannot be read.
    """
    if Path(text).suffix not in PIPELINE_SUFFIXES:
        return parse_pipeline(text)
    path = Path(text)
    content = _read(path)
    plugins = tuple(path.parent / name for name in _texts(content, "plugins", path))
    for plugin in plugins:
        if not plugin.is_file():
            msg = f"{plugin}: no such file"
            raise InputOutputError(
                msg, hint="paths in plugins: are relative to this file", location=str(path)
            )
    passes = _texts(content, "passes", path)
    check_passes(passes, str(path))
    then = content.get("then", DEFAULT_PIPELINE)
    if not isinstance(then, str) or then not in pipeline_names():
        msg = f"then: {str(then)[:80] if isinstance(then, str) else 'this'} is not a pipeline"
        raise UsageError(msg, hint=f"use {', '.join(pipeline_names())}", location=str(path))
    return InputPipeline(then, passes, plugins, (path, *plugins))


def pipeline_paths(text: str) -> tuple[Path, ...]:
    """Return the files that a `--pipeline=` value names. Raises UsageError, InputOutputError."""
    return read_pipeline(text).files if text else ()


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            text = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise InputOutputError(msg, hint="check the name of the pipeline file") from error
    if len(text) > _MOST_BYTES:
        msg = f"{path} has more than {_MOST_BYTES} bytes"
        raise UsageError(msg, hint=_FORM)
    import yaml

    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        place = getattr(error, "problem_mark", None)
        line = f":{place.line + 1}:{place.column + 1}" if place else ""
        reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
        msg = f"invalid YAML: {reason}"
        raise UsageError(msg, hint=_FORM, location=f"{path}{line}") from error
    if not isinstance(content, dict):
        msg = "no mapping"
        raise UsageError(msg, hint=_FORM, location=str(path))
    unknown = [key for key in content if key not in _KEYS]
    if unknown:
        msg = f"unknown key '{str(unknown[0])[:80]}'"
        raise UsageError(msg, hint=_FORM, location=str(path))
    return content


def _texts(content: dict[str, Any], key: str, path: Path) -> tuple[str, ...]:
    given = content.get(key) or []
    if not isinstance(given, list) or not all(isinstance(item, str) for item in given):
        msg = f"{key}: is not a list of texts"
        raise UsageError(msg, hint=_FORM, location=str(path))
    return tuple(given)
