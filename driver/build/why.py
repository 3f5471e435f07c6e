"""Report what changed since the last build of an output: inputs, their parts, flags and tools.

A record contains only names and hashes. A macro of `-D` is recorded without its value, which may be a
secret.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from mlir_offload.driver.compile.context import BuildContext, read_dependencies
from mlir_offload.driver.option.command_line import (
    MLIR_SUFFIXES,
    CompileOptions,
    Mode,
    final_outputs,
)
from mlir_offload.driver.step import split_file
from mlir_offload.driver.system.workspace import replace_file, user_cache
from mlir_offload.driver.tools.choose import build_environment
from mlir_offload.driver.tools.toolchain_id import identify_for
from mlir_offload.toolchain.byte_view import CHUNK_BYTES
from mlir_offload.translate import kernel

_FORMAT = 1
# The section of tools covers the contents of these directories.
_PLACES = frozenset({"CUDA_HOME", "CUDA_PATH", "MLIR_OFFLOAD_LLVM", "ROCM_PATH"})
_SECTIONS = ("input", "part", "flag", "tool")
_Section = Mapping[str, str]


class BuildRecord(Struct, frozen=True):
    """The inputs of an output: four sections, which map names to hashes."""

    sections: tuple[_Section, ...]


def explain_builds(context: BuildContext, outputs: Sequence[Path]) -> Iterator[str]:
    """Write the record of each output; yield the changes since the previous build."""
    sources = list(context.compiled)
    for number, output in enumerate(outputs):
        # A link has one output for all inputs; any other invocation has one output per input.
        own = sources[number : number + 1] if len(outputs) > 1 else sources
        record = _record(context, own, is_only_output=len(outputs) == 1)
        file = _record_file(output)
        yield from (f"{output}: {line}" for line in differences(_load(file), record))
        try:
            replace_file(file, json.dumps([_FORMAT, str(output), record.sections], indent=1))
        except OSError as error:
            # A missing record does not affect the build.
            yield f"{output}: no record is kept in {file.parent}: {error.strerror}"


def _record(context: BuildContext, sources: Sequence[Path], *, is_only_output: bool) -> BuildRecord:
    inputs = context.options.inputs if is_only_output else tuple(sources)
    read = (path for source in sources for path in _read_for(context, source))
    linked = _linked(context) if is_only_output else ()
    return BuildRecord(
        (
            {str(path): _file_digest(path) for path in (*inputs, *read, *linked)},
            {name: digest for source in sources for name, digest in parts(context, source).items()},
            {_flag_name(word): _digest(word.encode()) for word in _flags(context)},
            _tools(context),
        )
    )


def _read_for(context: BuildContext, source: Path) -> tuple[Path, ...]:
    return read_dependencies(source, context.compiled[source], context.dependencies)


def _linked(context: BuildContext) -> Iterator[Path]:
    """Yield the files that a link read in addition to its inputs."""
    if context.options.mode is Mode.LINK:
        for output in final_outputs(context.options):
            yield from (read.path for read in context.dependencies.of(output))


def parts(context: BuildContext, source: Path) -> Mapping[str, str]:
    """Return the hash of the host module and of each device module, without names that do not affect the code."""
    if source not in context.parts:
        context.parts[source] = dict(_split_parts(context, source))
    return context.parts[source]


def _split_parts(context: BuildContext, source: Path) -> Iterator[tuple[str, str]]:
    if source.suffix not in MLIR_SUFFIXES:
        return
    split = split_file.load_split_files(context.compiled[source].parent / "split")
    files = [("the host code", split.host)]
    files += [(module.title, module.path) for module in split.modules]
    for name, path in files:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        hermetic = kernel.hermetic_text(text, keeps_locations=context.options.debug)
        yield f"{name} in {source}", _digest(hermetic.encode("utf-8", "surrogateescape"))
    for module in split.modules:
        for number, given in enumerate(module.objects):
            yield f"object {number} of {module.title} in {source}", _digest(given.path.read_bytes())


def _flags(context: BuildContext) -> Iterator[str]:
    """Yield the options that affect the output, each in one spelling."""
    options = context.options
    yield from (options.mode.value.replace("link", "link a program"), options.opt_flag)
    yield f"-march={options.march}"
    yield from (f"--offload-arch={target}" for target in context.targets)
    yield f"--device-code={options.device_code.value}"
    yield f"--for-clang={context.for_clang}"
    switches = {"-g": options.debug, "-fPIC": options.pic, "-shared": options.shared}
    yield from (name for name, is_on in switches.items() if is_on)
    yield from (*options.compiler_arguments, *options.mlir_arguments)
    yield from (*options.device_flags.arguments, f"--pipeline={options.pipeline}")
    rdc = {None: "", True: "-fgpu-rdc", False: "-fno-gpu-rdc"}
    yield rdc[options.gpu_rdc]
    yield from _linker_arguments(options)
    yield from (f"{name}={value}" for name, value in build_environment() if name not in _PLACES)


def _linker_arguments(options: CompileOptions) -> Iterator[str]:
    inputs = {str(path) for path in options.inputs}
    return (item for item in options.link_items if item.removeprefix("./") not in inputs)


def _flag_name(word: str) -> str:
    return word.partition("=")[0] if word.startswith("-D") else word


def _tools(context: BuildContext) -> _Section:
    kinds = (None, *dict.fromkeys(target.kind for target in context.targets))
    tools = (context.releases, context.cuda, context.rocm)
    identities = (identify_for(kind, *tools) for kind in kinds)
    return {file.name: file.content for identity in identities for file in identity.files}


def differences(before: BuildRecord | None, now: BuildRecord) -> list[str]:
    """Return one line for each added, removed or changed item."""
    if before is None:
        return ["no earlier build of it is on record"]
    lines = [
        f"{section} {change}"
        for section, old, new in zip(_SECTIONS, before.sections, now.sections, strict=True)
        for change in _changes(old, new)
    ]
    return lines or ["nothing changed since it was built last"]


def _changes(old: _Section, new: _Section) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            yield f"added: {name}"
        elif name not in new:
            yield f"removed: {name}"
        elif old[name] != new[name]:
            yield f"changed: {name}"


def _record_file(output: Path) -> Path:
    return (
        user_cache(os.environ) / "builds" / f"{_digest(os.fsencode(output.absolute()))[:32]}.json"
    )


def _load(file: Path) -> BuildRecord | None:
    """Read a record; None if it is damaged or has another format."""
    try:
        known = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(known, list) or len(known) != 3 or known[0] != _FORMAT:  # noqa: PLR2004
        return None
    sections = known[2]
    if not isinstance(sections, list) or len(sections) != len(_SECTIONS):
        return None
    if not all(isinstance(section, dict) for section in sections):
        return None
    return BuildRecord(tuple(sections))


def _file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
