"""Check for conflicting options, for outputs that overwrite inputs, and for unused arguments.

An invocation never writes a file that it reads, nor writes a file twice, also if it is named by another
path, through a link, or as a standard stream.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.message.report import report, show_note, show_warning
from mlir_offload.driver.option import subcommand
from mlir_offload.driver.option.compile_options import (
    ALL_PTX,
    ANY_CLANG,
    MLIR_SUFFIXES,
    PREPROCESSED_SUFFIXES,
    CompileOptions,
    DeviceCode,
    Mode,
)
from mlir_offload.driver.option.table import COMPILER
from mlir_offload.toolchain.errors import InputOutputError, UsageError, joined
from mlir_offload.toolchain.target import (
    HOST,
    SPIRV,
    Kind,
    Target,
    all_kinds,
    device_kind,
    kind_of_image,
    uses_cuda,
)

if TYPE_CHECKING:
    from mlir_offload.offload.link.objects import ObjectContents

_STREAM = "-"
_HINT = "write to another file"
_LINKER_MAP = "-Wl,-Map"
_CONFIGURATION = "--config="

_Key = tuple[object, ...]


class OutputFile(Struct, frozen=True):
    """A file to write, and the option that names it or another description."""

    path: Path
    option: str


def check_files(inputs: Iterable[Path], outputs: Iterable[OutputFile]) -> None:
    """Raise UsageError if an output is an input, or if two outputs are the same file.

    The message file and the reproducer are compared too. Files are the same if they have the same inode;
    devices and pipes are ignored, because writing destroys nothing in them.
    """
    read: dict[_Key, Path] = {}
    for path in dict.fromkeys((*report().sources, *inputs)):
        key = _key(path)
        if key is not None:
            read.setdefault(key, path)
    written: dict[_Key, OutputFile] = {}
    for output in outputs:
        _add(output, read, written)
    try:
        for output in _message_outputs():
            _add(output, read, written)
    except UsageError:
        # Unlike after other errors, do not write these files at the end of the invocation.
        report().options = replace(report().options, file=None, reproduce=None)
        raise


def check_kept(directory: Path | None, inputs: Iterable[Path]) -> None:
    """Raise UsageError if an input is in the directory of -save-temps, where files are replaced."""
    if directory is None:
        return
    root = os.path.realpath(directory)
    for path in (*report().sources, *inputs):
        if str(path) != _STREAM and Path(os.path.realpath(path)).is_relative_to(root):
            msg = f"input file '{path}' is in '{directory}', where -save-temps replaces files"
            hint = f"keep them in another directory: -save-temps={directory / 'temps'}"
            raise UsageError(msg, hint=hint)


def _add(output: OutputFile, read: Mapping[_Key, Path], written: dict[_Key, OutputFile]) -> None:
    key = _key(output.path)
    if key is None:
        return
    if key in read:
        raise _same_as_input(read[key], output)
    if key in written:
        raise _same_as_output(written[key], output)
    written[key] = output


def _same_as_input(path: Path, output: OutputFile) -> UsageError:
    named = "" if path == output.path else f" '{output.path}'"
    msg = f"input file '{path}' is the same as output file{named}"
    return UsageError(msg, hint=f"{output.option} names it; {_HINT}")


def _same_as_output(first: OutputFile, second: OutputFile) -> UsageError:
    names = f"'{first.path}'" if first.path == second.path else f"'{first.path}', '{second.path}',"
    msg = f"output file {names} is named twice: by {first.option} and by {second.option}"
    return UsageError(msg, hint=_HINT)


def _message_outputs() -> Iterator[OutputFile]:
    options = report().options
    if options.file is not None:
        yield OutputFile(options.file, "--message-file=")
    if options.reproduce is not None:
        yield OutputFile(options.reproduce, "--reproduce=")


def _key(path: Path) -> _Key | None:
    """Return the identity of a file; None for standard streams, devices and pipes."""
    name = str(path)
    if name == _STREAM:
        return None
    try:
        found = os.stat(name)  # noqa: PTH116 (faster, for each input)
    except (OSError, ValueError):
        return ("path", os.path.realpath(path))
    return ("inode", found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def check_message_outputs(arguments: Sequence[str]) -> None:
    """Raise UsageError if --message-file= or --reproduce= names another file of the command line.

    Works before the command line is parsed, so that it may be invalid.
    """
    check_files(map(Path, _named(arguments)), ())


def configuration_files(arguments: Sequence[str]) -> tuple[Path, ...]:
    """Return the configuration files that the command line names."""
    words = (word for word in arguments if word.startswith(_CONFIGURATION))
    return tuple(Path(word.removeprefix(_CONFIGURATION)) for word in words)


def _named(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the words, and the parts of option values, that may be names of inputs."""
    before = ""
    outputs = _output_options()
    for word in arguments:
        if before not in outputs:
            if not word.startswith("-"):
                yield word
            elif not word.startswith("-D") and word.partition("=")[0] not in outputs:
                yield from (part for piece in word.split("=")[1:] for part in piece.split(","))
        before = word


def _output_options() -> frozenset[str]:
    """Return the options whose value is an output, of all subcommands."""
    rows = (
        row
        for one in subcommand.every_subcommand().values()
        for row in one.rows
        if row.path == "output"
    )
    return frozenset((_LINKER_MAP, *(name.rstrip("=") for row in rows for name in row.names)))


def _check_words(inputs: Iterable[Path]) -> None:
    """Raise InputOutputError for an input that was probably the value of an option, as in -O fast."""
    for path in inputs:
        if "." not in path.name and not path.exists():
            msg = f"cannot read {path}: No such file or directory"
            raise InputOutputError(msg, hint="attach the value of an option: -Ofast, -g2")


def consistent(options: CompileOptions) -> CompileOptions:
    """Return the options, without repeated inputs. Raises UsageError for conflicts."""
    if not options.inputs:
        msg = "no input files"
        raise UsageError(
            msg, hint="name at least one .mlir, .o or .c file; see 'mlir-offload --help'"
        )
    if options.header is not None and MLIR_SUFFIXES.isdisjoint(p.suffix for p in options.inputs):
        msg = "--emit-header= needs a .mlir file to take the functions from"
        raise UsageError(msg, hint="name it: mlir-offload --emit-header=FILE.h FILE.mlir")
    if options.mode is not Mode.LINK and options.output is not None and len(options.inputs) > 1:
        _check_words(options.inputs)
        msg = f"-o names one file, but {options.mode.value} makes one for each of {len(options.inputs)} inputs"
        raise UsageError(msg, hint="compile each input by its own call, or leave -o out")
    _check_stage(options)
    if options.is_for_any_clang:
        _check_for_any(options)
    if options.has_gpu_cpp:
        _check_gpu_cpp(options)
    if options.sanitizer is not None and any(arch != HOST for arch in options.offload_archs):
        msg = f"{options.sanitizer.flag} is not supported for GPU kernels"
        raise UsageError(msg, hint="compile the kernels for the CPU: --offload-arch=host")
    if options.mode is not Mode.LINK:
        # An input that is named twice has one output.
        return replace(options, inputs=tuple(dict.fromkeys(options.inputs)))
    return options


def _check_stage(options: CompileOptions) -> None:
    """Raise UsageError for options that need a link, or that exclude one."""
    if options.mode is not Mode.LINK and options.shared:
        msg = f"-shared links, {options.mode.value} does not"
        raise UsageError(msg, hint="leave one of them out")
    if options.mode is Mode.LINK and options.embed_runtime:
        msg = "--embed-runtime is for -c, -S and -emit-llvm: a link contains the runtime"
        raise UsageError(msg, hint="leave --embed-runtime out")
    if options.mode is Mode.LINK and options.output == Path("-"):
        msg = "-o -: a link writes a file"
        raise UsageError(
            msg, hint="name the file; -c, -S, -E and -emit-llvm write to the standard output"
        )


def _check_gpu_cpp(options: CompileOptions) -> None:
    """Raise UsageError for modes with one output module: C++ with kernels yields one per device as well."""
    if options.mode not in {Mode.LINK, Mode.OBJECT, Mode.DEVICE, Mode.RULE, Mode.SYNTAX}:
        msg = f"{options.mode.value} does not go with CUDA C++ and HIP C++, which make several modules of a file"
        raise UsageError(msg, hint="compile it with -c, or link")


def _check_for_any(options: CompileOptions) -> None:
    """Raise UsageError for outputs that only one LLVM release can read, such as linked files and LLVM IR."""
    what = "a linked file" if options.mode is Mode.LINK else "LLVM IR" if options.emit_llvm else ""
    if options.device_code is DeviceCode.BITCODE:
        what = "device bitcode"
    if options.has_gpu_cpp:
        what = "what clang makes of CUDA C++ and HIP C++"
    if SPIRV in options.offload_archs:
        what = f"code for {SPIRV}"
    if what:
        msg = f"--for-clang={ANY_CLANG} is for objects: {what} is for one LLVM release only"
        raise UsageError(msg, hint="use -c, with --device-code=object or none")


_HIDDEN = "-Wno-unused-command-line-argument"
# For clang, these are inputs of the linker.
_LINKER_INPUTS = frozenset(("-l", "-Wl,", "-Xlinker"))
_ERRORS = frozenset(("-Werror", "-Werror=unused-command-line-argument"))
_NO_ERRORS = frozenset(("-Wno-error", "-Wno-error=unused-command-line-argument"))
UNUSED = "[-Wunused-command-line-argument]"


def warn_of_unused(options: CompileOptions) -> None:
    """Warn of arguments that the inputs and the stage do not use. Raises UsageError with -Werror."""
    warn_of_arguments(options, _unused(options))


def warn_of_arguments(options: CompileOptions, texts: Iterable[str]) -> None:
    """Warn of unused arguments, unless the options disable it. Raises UsageError with -Werror."""
    arguments = options.compiler_arguments
    if options.hides_unused or _HIDDEN in arguments:
        return
    if not _ERRORS.isdisjoint(arguments) and _NO_ERRORS.isdisjoint(arguments):
        errors = [UsageError(f"{text} {UNUSED.replace('[', '[-Werror,')}") for text in texts]
        if errors:
            raise joined(errors)
        return
    for text in texts:
        show_warning(f"{text} {UNUSED}", "")


def _unused(options: CompileOptions) -> Iterator[str]:
    is_linked = options.mode is Mode.LINK
    for name, value in options.spelled:
        found = COMPILER.find(name)
        inputs = found[0].inputs if found else ""
        if (inputs == "preprocessor" and not _is_preprocessed(options)) or (
            inputs == "link" and not is_linked
        ):
            shown = _as_clang_shows(name.rstrip(" "), value)
            if name in _LINKER_INPUTS:
                yield f"{shown}: 'linker' input unused"
            else:
                yield f"argument unused during compilation: '{shown}'"
    if options.mode is Mode.PREPROCESSED:
        endings = dict(options.languages)
        others = (
            path
            for path in options.inputs
            if endings.get(path, path.suffix) not in PREPROCESSED_SUFFIXES
        )
        yield from (f"{path}: previously preprocessed input" for path in others)
    unused = [*options.unused]
    if not options.depfile.is_wanted and options.mode is not Mode.RULE:
        unused += [f"-MF {options.depfile.file}"] if options.depfile.file else []
        unused += [f"-MT {target}" for target in options.depfile.targets]
    yield from (f"argument unused during compilation: '{word}'" for word in unused)


def _is_preprocessed(options: CompileOptions) -> bool:
    return any(path.suffix in PREPROCESSED_SUFFIXES for path in options.inputs)


def _as_clang_shows(name: str, value: str) -> str:
    """Return an argument as clang prints it: the value as a separate word if it may be one."""
    is_one_word = name.endswith(("=", ",")) or name in {"-l", "-L"} or not value
    return f"{name}{value}" if is_one_word else f"{name} {value}"


def check_flags(
    options: CompileOptions, targets: Sequence[Target], given: Sequence[ObjectContents]
) -> None:
    """Raise UsageError for options that the target devices do not support; warn about unused ones."""
    if not targets and not given:
        return
    images = [image for item in given for image in item.images]
    _check_ptx(options, targets)
    held = [(kind_of_image(image.kind, image.triple), image.arch) for image in images]
    used = [*((target.kind, target.arch) for target in targets), *held]
    kinds = {kind for kind, _ in used if kind is not None}
    for known in filter(kinds.__contains__, all_kinds()):
        device_kind(known).check_archs([arch for kind, arch in used if kind is known])
    _check_ptxas(options, kinds)


def _check_ptxas(options: CompileOptions, kinds: set[Kind]) -> None:
    """Warn of arguments for ptxas if this invocation does not run ptxas."""
    arguments = options.device_flags.ptxas_arguments
    if not arguments or not kinds:
        return
    if not uses_cuda(kinds):
        names = " ".join(arguments)
        show_warning(f"arguments for ptxas unused during compilation: '{names}' {UNUSED}", "")
    elif not options.needs_ptxas:
        show_note(
            f"-Xptxas {arguments[0]} is unused: the object contains bitcode, which the link compiles;"
            " with --device-code=object, -c runs ptxas"
        )


def _check_ptx(options: CompileOptions, targets: Sequence[Target]) -> None:
    wanted = options.device_flags.ptx or ()
    archs = {target.arch for target in targets}
    missing = next((arch for arch in wanted if arch not in {ALL_PTX, *archs}), None)
    if missing and targets:
        msg = f"--cuda-include-ptx={missing}: nothing is compiled for {missing}"
        raise UsageError(msg, hint=f"add {missing} to --offload-arch=")
    if wanted and not options.makes_non_rdc_objects:
        show_note("--cuda-include-ptx= is unused: without -fno-gpu-rdc NVIDIA's tools drop PTX")
