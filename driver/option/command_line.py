"""The command line of the compiler: options as clang spells them, parsed into one value."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver.option.checks import consistent
from mlir_offload.driver.option.compile_options import (
    ANY_CLANG,
    COMPILED_SUFFIXES,
    GPU_CPP,
    LINKED_SUFFIXES,
    MLIR_SUFFIXES,
    CompileOptions,
    DeviceCode,
    Mode,
)
from mlir_offload.driver.option.device_flags import (
    DeviceFlags,
    with_ftz,
    with_library,
    with_max_registers,
    with_ptx,
)
from mlir_offload.driver.system.depfile import quote_for_make
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.process import as_operand

__all__ = [
    "COMPILED_SUFFIXES",
    "GPU_CPP",
    "LINKED_SUFFIXES",
    "MLIR_SUFFIXES",
    "CompileOptions",
    "DeviceCode",
    "Mode",
    "as_operand",
    "parse_arguments",
    "read_arguments",
]

_Apply = Callable[[CompileOptions, str], CompileOptions]


def _set(**changes: object) -> _Apply:
    return lambda options, _: replace(options, **changes)


def _link_item(prefix: str) -> _Apply:
    return lambda options, value: replace(options, link_items=(*options.link_items, prefix + value))


def _compiler_argument(prefix: str) -> _Apply:
    return lambda options, value: replace(
        options, compiler_arguments=(*options.compiler_arguments, prefix + value)
    )


def _gpu_cpp_argument(name: str) -> _Apply:
    return lambda options, _: replace(options, gpu_cpp_arguments=(*options.gpu_cpp_arguments, name))


def _compiler_and_linker(prefix: str) -> _Apply:
    """Take an option as clang takes it: for C and C++, and for the link."""

    def apply(options: CompileOptions, value: str) -> CompileOptions:
        return _link_item(prefix)(_compiler_argument(prefix)(options, value), value)

    return apply


def _store(name: str) -> _Apply:
    return lambda options, value: replace(options, **{name: value})


def _path(name: str) -> _Apply:
    return lambda options, value: replace(options, **{name: Path(value)})


def _offload_arch(options: CompileOptions, value: str) -> CompileOptions:
    names = tuple(filter(None, (name.strip() for name in value.split(","))))
    if not names:
        msg = "--offload-arch= names no architecture"
        raise UsageError(msg, hint="use sm_NN, 'host' or 'native', several with commas")
    return replace(options, offload_archs=tuple(dict.fromkeys((*options.offload_archs, *names))))


def _device_code(options: CompileOptions, value: str) -> CompileOptions:
    forms = {"auto": None, **{form.value: form for form in DeviceCode}}
    if value not in forms:
        msg = f"--device-code={value}: unknown form of device code"
        raise UsageError(msg, hint=f"use one of {', '.join(forms)}")
    return replace(options, wanted_device_code=forms[value])


def _for_clang(options: CompileOptions, value: str) -> CompileOptions:
    if value != ANY_CLANG and not value.isdecimal() and os.sep not in value:
        msg = f"--for-clang={value}: neither a release of LLVM nor a path"
        raise UsageError(msg, hint=f"name the release that links, such as 22, or '{ANY_CLANG}'")
    return replace(options, for_clang=value)


def _device(change: Callable[[DeviceFlags, str], DeviceFlags]) -> _Apply:
    return lambda options, value: replace(options, device_flags=change(options.device_flags, value))


def _device_argument(name: str) -> _Apply:
    def change(flags: DeviceFlags, value: str) -> DeviceFlags:
        return replace(flags, **{name: (*getattr(flags, name), value)})

    return _device(change)


def _fast_math(options: CompileOptions, value: str) -> CompileOptions:
    """Host and device: clang has the option for C and C++."""
    del value
    flags = replace(options.device_flags, fast_math=True)
    arguments = (*options.compiler_arguments, "-ffast-math")
    return replace(options, device_flags=flags, compiler_arguments=arguments)


def _pipeline(options: CompileOptions, value: str) -> CompileOptions:
    from mlir_offload.driver.option.pipeline_file import read_pipeline

    read_pipeline(value)
    return replace(options, pipeline=value)


def _sanitizer(options: CompileOptions, value: str) -> CompileOptions:
    from mlir_offload.translate.sanitizer import parse_sanitizer

    # A report names the places in the source, for which it needs the line tables.
    return replace(options, sanitizer=parse_sanitizer(value), debug=True)


def _jobs(options: CompileOptions, value: str) -> CompileOptions:
    if not value.isdecimal() or int(value) < 1:
        msg = f"-j needs a number from 1, not '{value}'"
        raise UsageError(msg)
    return replace(options, jobs=int(value))


def _prefix_map(option: str) -> _Apply:
    def apply(options: CompileOptions, value: str) -> CompileOptions:
        from mlir_offload.translate.prefix_map import parse_prefix_map

        maps = (*options.prefix_maps, parse_prefix_map(value, option))
        # Host files in C and C++ are mapped by clang.
        arguments = (*options.compiler_arguments, f"{option}={value}")
        return replace(options, prefix_maps=maps, compiler_arguments=arguments)

    return apply


def _depfile(**changes: object) -> _Apply:
    return lambda options, _: replace(options, depfile=replace(options.depfile, **changes))


def _depfile_name(options: CompileOptions, value: str) -> CompileOptions:
    return replace(options, depfile=replace(options.depfile, file=value))


def _depfile_target(options: CompileOptions, value: str) -> CompileOptions:
    targets = (*options.depfile.targets, value)
    return replace(options, depfile=replace(options.depfile, targets=targets))


def _quoted_depfile_target(options: CompileOptions, value: str) -> CompileOptions:
    return _depfile_target(options, quote_for_make(value))


def _language(options: CompileOptions, value: str) -> CompileOptions:
    """Accept what makes ccache wrap a whole call; the ending of a file says what it is."""
    if value not in {"cpp-output", "none"}:
        msg = f"-x {value}: unknown language"
        raise UsageError(msg, hint="leave it out: the ending of a file selects its language")
    return options


_BARE_GPU_CPP = ("-nocudainc", "-nocudalib", "-nogpuinc", "-nogpulib")
_LINK_FLAGS = ("-static", "-static-libgcc", "-static-libstdc++", "-pthread", "-rdynamic", "-s")
_FLAGS: Mapping[str, _Apply] = {
    "-c": _set(stop_after_compile=True),
    "-S": _set(assembly=True, stop_after_compile=True),
    "-emit-llvm": _set(emit_llvm=True, stop_after_compile=True),
    "-O": _set(opt_level=1),
    **{f"-O{level}": _set(opt_level=level) for level in range(4)},
    "-g": _set(debug=True),
    "-fgpu-rdc": _set(gpu_rdc=True),
    "-fno-gpu-rdc": _set(gpu_rdc=False),
    "--embed-runtime": _set(embed_runtime=True),
    "--no-libomptarget": _set(no_libomptarget=True),
    "-ffast-math": _fast_math,
    "--ftz": _device(lambda flags, _: replace(flags, ftz=True)),
    "-g0": _set(debug=False),
    **dict.fromkeys(("-fPIC", "-fpic"), _set(pic=True)),
    "-shared": _set(shared=True),
    "-v": _set(verbose=True),
    "-###": _set(dry_run=True),
    "-ftime-report": _set(time_report=True),
    "-save-temps": _set(save_temps=Path("mlir-offload-temps")),
    "--cache": _set(cache=True),
    "--no-cache": _set(cache=False),
    "--why-rebuilt": _set(why_rebuilt=True),
    "-MD": _depfile(is_wanted=True, has_system_files=True),
    "-MMD": _depfile(is_wanted=True, has_system_files=False),
    "-MP": _depfile(has_phony_targets=True),
    **{name: _gpu_cpp_argument(name) for name in _BARE_GPU_CPP},
    **{name: _link_item(name) for name in _LINK_FLAGS},
    **{name: _compiler_and_linker(name) for name in ("-fopenmp", "-flto", "-fno-lto")},
}

_JOINED: Mapping[str, _Apply] = {
    "--offload-arch=": _offload_arch,
    "--device-code=": _device_code,
    "--for-clang=": _for_clang,
    "--pipeline=": _pipeline,
    "--device-lib=": _device(with_library),
    "--cuda-include-ptx=": _device(with_ptx),
    "--maxrregcount=": _device(with_max_registers),
    "-march=": _store("march"),
    "--ftz=": _device(with_ftz),
    "--llvm=": _store("llvm"),
    "--cuda-path=": _store("cuda_path"),
    "--rocm-path=": _store("rocm_path"),
    "--launcher=": _store("launcher"),
    "-save-temps=": _path("save_temps"),
    "--emit-header=": _path("header"),
    "--manifest=": _path("manifest"),
    "-ffile-prefix-map=": _prefix_map("-ffile-prefix-map"),
    "-fdebug-prefix-map=": _prefix_map("-fdebug-prefix-map"),
    "-fmacro-prefix-map=": _compiler_argument("-fmacro-prefix-map="),
    "-ffile-compilation-dir=": _compiler_argument("-ffile-compilation-dir="),
    "-Wl,": _link_item("-Wl,"),
    "-fuse-ld=": _link_item("-fuse-ld="),
    "-fsanitize=": _sanitizer,
    "-fopenmp=": _compiler_and_linker("-fopenmp="),
    "-flto=": _compiler_and_linker("-flto="),
    "-W": _compiler_argument("-W"),
    "-std=": _compiler_argument("-std="),
}

# The value is joined to the option, or the next argument.
_JOINED_OR_SEPARATE: Mapping[str, _Apply] = {
    "-o": _path("output"),
    "-L": _link_item("-L"),
    "-l": _link_item("-l"),
    "-I": _compiler_argument("-I"),
    "-D": _compiler_argument("-D"),
    "-j": _jobs,
    "-x": _language,
    "-Xptxas": _device_argument("ptxas"),
    "-Xdevice-opt": _device_argument("device_opt"),
    "-MF": _depfile_name,
    "-MT": _depfile_target,
    "-MQ": _quoted_depfile_target,
    "-MJ": _path("compile_commands"),
}


def parse_arguments(arguments: Sequence[str]) -> CompileOptions:
    """Return what the arguments ask for.

    Raises UsageError for an unknown option, a missing value, and options that exclude each other.
    """
    return consistent(read_arguments(arguments))


def read_arguments(arguments: Sequence[str]) -> CompileOptions:
    """Return what the arguments say, whether or not it makes sense together.

    Raises UsageError for an unknown option and a missing value.
    """
    options = CompileOptions()
    rest = list(reversed(arguments))
    only_inputs = False
    while rest:
        argument = rest.pop()
        if argument == "--" and not only_inputs:
            only_inputs = True
        elif only_inputs or not argument.startswith("-"):
            options = _input(options, argument)
        else:
            options = _option(options, argument, rest)
    return replace(options, arguments=tuple(arguments))


def _option(options: CompileOptions, argument: str, rest: list[str]) -> CompileOptions:
    key, apply, value = _find_option(argument, rest)
    return replace(apply(options, value), spelled=(*options.spelled, (key, value)))


def _find_option(argument: str, rest: list[str]) -> tuple[str, _Apply, str]:
    """Return an option, what it does, and its value: joined, or the next of the rest."""
    if argument in _FLAGS:
        return argument, _FLAGS[argument], ""
    for prefix, apply in _JOINED.items():
        if argument.startswith(prefix):
            return prefix, apply, argument[len(prefix) :]
    for prefix, apply in _JOINED_OR_SEPARATE.items():
        if argument == prefix:
            if not rest:
                msg = f"option '{argument}' needs a value"
                raise UsageError(msg)
            return prefix, apply, rest.pop()
        if argument.startswith(prefix):
            return prefix, apply, argument[len(prefix) :]
    raise _unknown(argument)


def _unknown(argument: str) -> UsageError:
    known = [*_FLAGS, *_JOINED, *_JOINED_OR_SEPARATE]
    import difflib

    near = difflib.get_close_matches(
        argument.partition("=")[0], [k.rstrip("=") for k in known], n=1, cutoff=0.8
    )
    hint = f"did you mean '{near[0]}'?" if near else "see 'mlir-offload --help'"
    return UsageError(f"unknown option '{argument}'", hint=hint)


def _input(options: CompileOptions, name: str) -> CompileOptions:
    path = Path(name)
    return replace(
        options, inputs=(*options.inputs, path), link_items=(*options.link_items, as_operand(name))
    )
