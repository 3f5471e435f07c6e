"""Cache the result of a complete invocation with `--cache`; the lookup runs no other tool.

ccache stores it like the result of a step. The "compiler" that ccache runs only copies the result that this
process left for it. A lookup without a result fails, and ccache does not store failures.
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
# Attributes such as `#nvvm.target` may name libraries.
_ATTACHED = b".target"
_KEY, _MADE, _KEPT = "call.i", "call.made", "call.o"
# The script is the same for each invocation, because ccache may be configured to hash it.
_COPY = f'#!/bin/sh\nexec cp "${{0%/*}}/{_MADE}" "${{0%/*}}/{_KEPT}"\n'


class _Result(Struct, frozen=True):
    """The object, the files that were read besides the source, and the hashes of the source's parts."""

    made: bytes
    read: tuple[tuple[str, bool, str], ...]
    parts: Mapping[str, str]


class KeptCall(Struct, frozen=True):
    """An invocation whose result is cached under `key`, the hash of everything that the result depends on."""

    context: BuildContext
    launched: LaunchedSteps
    key: str

    def take(self) -> list[Path] | None:
        """Return the cached object in the workspace and note its dependencies; None if it is not cached."""
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
        """Cache the result, unless the invocation printed messages or a file was edited meanwhile."""
        if report().has_messages or _key(self.context, self.launched) != self.key:
            return
        ((source, output),) = self.context.compiled.items()
        log = self.context.dependencies.of(source)
        read = tuple((str(noted.path), noted.is_system, noted.target) for noted in log)
        result = _Result(output.read_bytes(), read, why.parts(self.context, source))
        (self.context.workspace / _MADE).write_bytes(msgspec.json.encode(result))
        self._ask()

    def _ask(self) -> _Result | None:
        """Return ccache's result, after storing the one in the workspace if there is one; None if there is none."""
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
    """Return the invocation if it can be cached; None if it may read or write files outside the key."""
    launched = context.launched
    if launched is None or not launched.launcher.uses_ccache or not _is_plain(context.options):
        return None
    key = _key(context, launched)
    return KeptCall(context, launched, key) if key else None


def _is_plain(options: CompileOptions) -> bool:
    """Return whether the invocation compiles one program to one object and all its input files are known.

    Options of clang, passes and plugins may name further files.
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
    """Return the hash of everything that the result depends on; empty if that is not known."""
    kinds = dict.fromkeys(target.kind for target in context.targets)
    libraries = (one.path for one in context.options.device_flags.libraries)
    try:
        sources = [source.read_bytes() for source in context.compiled]
        read = [*sources, *(library.read_bytes() for library in libraries)]
    except OSError:
        # The step that reads the file will report the error.
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
    """Yield the directories that a dependency file, a build record or debug information may contain."""
    yield os.getcwd()  # noqa: PTH109 (quick)
    yield from (value for _, value in context.releases.environment)
    yield from (str(kit.root) for kit in (context.cuda, context.rocm) if kit is not None)
