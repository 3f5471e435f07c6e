"""Options that exclude each other, and arguments that have no effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mlir_offload.driver.message.report import show_note, show_warning
from mlir_offload.driver.option.compile_options import (
    ANY_CLANG,
    MLIR_SUFFIXES,
    PREPROCESSED_SUFFIXES,
    CompileOptions,
    DeviceCode,
    Mode,
)
from mlir_offload.driver.option.device_flags import ALL_PTX
from mlir_offload.driver.option.table import COMPILER
from mlir_offload.toolchain.errors import InputOutputError, UsageError, joined
from mlir_offload.toolchain.target import (
    DEVICE_KINDS,
    HOST,
    SPIRV,
    Kind,
    Target,
    kind_of_image,
    uses_cuda,
)

if TYPE_CHECKING:
    from mlir_offload.offload.link.objects import ObjectContents


def _check_words(inputs: Iterable[Path]) -> None:
    """Raise InputOutputError for the value of an option that is the next word, as in -O fast: an input, as for clang."""
    for path in inputs:
        if "." not in path.name and not path.exists():
            msg = f"cannot read {path}: No such file or directory"
            raise InputOutputError(msg, hint="attach the value of an option: -Ofast, -g2")


def consistent(options: CompileOptions) -> CompileOptions:
    """Return the options. Raises UsageError where they exclude each other."""
    if not options.inputs:
        msg = "no input files"
        raise UsageError(
            msg, hint="name at least one .mlir, .o or .c file; see 'mlir-offload --help'"
        )
    if options.header is not None and MLIR_SUFFIXES.isdisjoint(p.suffix for p in options.inputs):
        msg = "--emit-header= needs a .mlir file to take the functions from"
        raise UsageError(msg)
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
        # Named twice, an input has one output.
        return replace(options, inputs=tuple(dict.fromkeys(options.inputs)))
    return options


def _check_stage(options: CompileOptions) -> None:
    """Refuse what only a link does, if there is none, and the reverse."""
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
    """Refuse what needs one module: C++ with kernels has one for the host and one for each device."""
    if options.mode not in {Mode.LINK, Mode.OBJECT, Mode.DEVICE}:
        msg = f"{options.mode.value} does not go with CUDA C++ and HIP C++, which make several modules of a file"
        raise UsageError(msg, hint="compile it with -c, or link")


def _check_for_any(options: CompileOptions) -> None:
    """Refuse what one release of LLVM makes for itself: a linked file, and LLVM IR of any kind."""
    what = "a linked file" if options.mode is Mode.LINK else "LLVM IR" if options.emit_llvm else ""
    if options.device_code is DeviceCode.BITCODE:
        what = "device bitcode"
    if options.has_gpu_cpp:
        what = "what clang makes of CUDA C++ and HIP C++"
    if SPIRV in options.offload_archs:
        what = f"code for {SPIRV}"
    if what:
        msg = f"--for-clang={ANY_CLANG} is for objects: {what} serves one release of LLVM only"
        raise UsageError(msg, hint="use -c, with --device-code=object or none")


_HIDDEN = "-Wno-unused-command-line-argument"
# clang takes these for inputs of the linker.
_LINKER_INPUTS = frozenset(("-l", "-Wl,", "-Xlinker"))
_ERRORS = frozenset(("-Werror", "-Werror=unused-command-line-argument"))
_NO_ERRORS = frozenset(("-Wno-error", "-Wno-error=unused-command-line-argument"))
UNUSED = "[-Wunused-command-line-argument]"


def warn_of_unused(options: CompileOptions) -> None:
    """Warn of arguments that say nothing for these inputs and this stage. Raises UsageError with -Werror."""
    warn_of_arguments(options, _unused(options))


def warn_of_arguments(options: CompileOptions, texts: Iterable[str]) -> None:
    """Warn of what nothing uses, unless the options hide it. Raises UsageError with -Werror."""
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
    is_preprocessed = any(path.suffix in PREPROCESSED_SUFFIXES for path in options.inputs)
    is_linked = options.mode is Mode.LINK
    for name, value in options.spelled:
        found = COMPILER.find(name)
        inputs = found[0].inputs if found else ""
        if (inputs == "preprocessor" and not is_preprocessed) or (
            inputs == "link" and not is_linked
        ):
            shown = _as_clang_shows(name.rstrip(" "), value)
            if name in _LINKER_INPUTS:
                yield f"{shown}: 'linker' input unused"
            else:
                yield f"argument unused during compilation: '{shown}'"
    if options.mode is Mode.PREPROCESSED:
        others = (path for path in options.inputs if path.suffix not in PREPROCESSED_SUFFIXES)
        yield from (f"{path}: previously preprocessed input" for path in others)
    yield from (f"argument unused during compilation: '{word}'" for word in options.unused)


def _as_clang_shows(name: str, value: str) -> str:
    """Return an argument as clang spells it: what can be the next word is."""
    is_one_word = name.endswith(("=", ",")) or name in {"-l", "-L"} or not value
    return f"{name}{value}" if is_one_word else f"{name} {value}"


def check_flags(
    options: CompileOptions, targets: Sequence[Target], given: Sequence[ObjectContents]
) -> None:
    """Raise UsageError where the options ask for what these devices do not have; note what is unused."""
    if not targets and not given:
        return
    images = [image for item in given for image in item.images]
    _check_ptx(options, targets)
    held = [(kind_of_image(image.kind, image.triple), image.arch) for image in images]
    used = [*((target.kind, target.arch) for target in targets), *held]
    for known in DEVICE_KINDS:
        known.check_archs([arch for kind, arch in used if kind is known.name])
    kinds = {kind for kind, _ in used if kind is not None}
    _check_ptxas(options, kinds)


def _check_ptxas(options: CompileOptions, kinds: set[Kind]) -> None:
    """Warn of arguments for ptxas if no device or no step of this call uses them."""
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
    if wanted and not options.makes_final_objects:
        show_note("--cuda-include-ptx= is unused: without -fno-gpu-rdc NVIDIA's tools drop PTX")
