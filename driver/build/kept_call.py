"""A whole call that `--cache` keeps, and that is looked up before any tool runs.

ccache stores it as it stores the result of a step. The compiler that ccache runs only copies the result of this call. A
look-up without a result fails, and ccache does not store a failure.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from mlir_offload.driver.build import why
from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.message.report import report
from mlir_offload.driver.option.compile_options import MLIR_SUFFIXES, CompileOptions, Mode
from mlir_offload.driver.step.launcher import LaunchedSteps
from mlir_offload.driver.tools.choose import build_environment
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.tables import decoded

_FORMAT = "mlir-offload call 1"
# `#nvvm.target` and the like may name libraries.
_ATTACHED = b".target"
_KEY, _MADE, _KEPT = "call.i", "call.made", "call.o"
# The text is the same for each call, because ccache may be configured to hash it.
_COPY = f'#!/bin/sh\nexec cp "${{0%/*}}/{_MADE}" "${{0%/*}}/{_KEPT}"\n'


class _Result(Struct, frozen=True):
    """The object of a call, the files that it read besides its source, and the parts of that."""

    made: bytes
    read: tuple[tuple[str, bool, str], ...]
    parts: Mapping[str, str]


class KeptCall(Struct, frozen=True):
    """A call whose result is looked up under `key`: all that decides about it."""

    context: BuildContext
    launched: LaunchedSteps
    key: str

    def take(self) -> list[Path] | None:
        """Return the finished object in the workspace, and note what was read; None if it is not kept."""
        found = self._ask()
        if found is None:
            return None
        ((source, output),) = self.context.compiled.items()
        self.context.executor.make_directory(output.parent)
        output.write_bytes(found.made)
        for path, is_system, target in found.read:
            self.context.dependencies.add(source, Path(path), is_system=is_system, target=target)
        self.context.parts[source] = found.parts
        return [output]

    def keep(self) -> None:
        """Keep the result of a call that said nothing, unless a file was edited meanwhile."""
        if report().has_messages or _key(self.context, self.launched) != self.key:
            return
        ((source, output),) = self.context.compiled.items()
        log = self.context.dependencies.of(source)
        read = tuple((str(noted.path), noted.is_system, noted.target) for noted in log)
        result = _Result(output.read_bytes(), read, why.parts(self.context, source))
        (self.context.workspace / _MADE).write_bytes(msgspec.json.encode(result))
        self._ask()

    def _ask(self) -> _Result | None:
        """Have ccache give what it has, or keep what was made."""
        place = self.context.workspace.absolute()
        copy, key, kept = place / "keep-call", place / _KEY, place / _KEPT
        copy.write_text(_COPY, encoding="utf-8")
        copy.chmod(0o755)
        key.write_text(self.key, encoding="utf-8")
        words = (*self.launched.launcher.words, str(copy), "-x", "cpp-output")
        environment = self.launched.launcher.environment(self.key, os.environ)
        command = Command((*words, "-c", str(key), "-o", str(kept)), environment)
        self.context.executor.note(command)
        if self.context.executor.runner.run(command).returncode != 0:
            return None
        try:
            return decoded(kept.read_bytes(), _Result)
        except (OSError, msgspec.DecodeError):
            return None


def find_kept(context: BuildContext) -> KeptCall | None:
    """Return the call as one that may be kept; None if it reads or writes what no key tells."""
    launched = context.launched
    if launched is None or not launched.launcher.uses_ccache or not _is_plain(context.options):
        return None
    key = _key(context, launched)
    return KeptCall(context, launched, key) if key else None


def _is_plain(options: CompileOptions) -> bool:
    """Return whether a call makes one object of one program, and all that it reads is known before.

    Options of clang, passes and plugins may name files.
    """
    named = (options.compiler_arguments, options.mlir_arguments, options.pipeline)
    others = (options.header, options.manifest, options.save_temps, report().options.reproduce)
    has_others = any(named) or any(other is not None for other in others)
    makes_more = options.embed_runtime or options.makes_non_rdc_objects or options.dry_run
    is_object = options.mode is Mode.OBJECT and len(options.inputs) == 1
    return (
        is_object
        and options.inputs[0].suffix in MLIR_SUFFIXES
        and not (has_others or makes_more or options.why_rebuilt)
    )


def _key(context: BuildContext, launched: LaunchedSteps) -> str:
    """Return the hash of all that decides about the result, and of the names in it; nothing if that is unknown."""
    kinds = dict.fromkeys(target.kind for target in context.targets)
    libraries = (one.path for one in context.options.device_flags.libraries)
    try:
        sources = [source.read_bytes() for source in context.compiled]
        read = [*sources, *(library.read_bytes() for library in libraries)]
    except OSError:
        # Who reads the file for its content tells what is wrong.
        return ""
    if any(_ATTACHED in source for source in sources):
        return ""
    text = json.dumps(
        [
            _FORMAT,
            [launched.identity(kind) for kind in (None, *kinds)],
            list(map(str, context.targets)),
            context.options.arguments,
            build_environment(),
            list(_places(context)),
            [hashlib.sha256(content).hexdigest() for content in read],
        ]
    )
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _places(context: BuildContext) -> Iterator[str]:
    """Yield the directories that a dependency file, a record or debug information may name."""
    yield os.getcwd()  # noqa: PTH109 (quick)
    yield from (value for _, value in context.releases.environment)
    yield from (str(kit.root) for kit in (context.cuda, context.rocm) if kit is not None)
