"""The command line of the compiler: options as clang spells them, parsed into one value."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.driver.depfile import DepfileRequest, quote_for_make
from mlir_offload.toolchain.errors import UsageError

if TYPE_CHECKING:
    from mlir_offload.translate.prefix_map import PrefixMap


class Mode(Enum):
    """The last stage that is wanted."""

    LINK = "link"
    OBJECT = "-c"
    ASSEMBLY = "-S"
    LLVM_TEXT = "-S -emit-llvm"
    LLVM_BITCODE = "-c -emit-llvm"
    HEADER = "--emit-header"


class DeviceCode(Enum):
    """The form of GPU code in an object: for device LTO at the link, or assembled already."""

    BITCODE = "bitcode"
    OBJECT = "object"


_ANY = "any"
MLIR_SUFFIXES = frozenset({".mlir", ".mlirbc"})
CUDA_SUFFIX = ".cu"
COMPILED_SUFFIXES = frozenset({".c", ".cc", ".cpp", ".cxx", CUDA_SUFFIX, ".ll", ".bc", ".s"})
LINKED_SUFFIXES = frozenset({".o", ".obj", ".a", ".so"})


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What one call of the compiler asks for.

    `link_items` holds inputs and linker options in the order of the command line, because a linker
    reads archives in that order; `arguments` is the whole command line, `spelled` its options,
    each with its value.
    """

    link_items: tuple[str, ...] = ()
    inputs: tuple[Path, ...] = ()
    output: Path | None = None
    stop_after_compile: bool = False
    assembly: bool = False
    emit_llvm: bool = False
    opt_level: int = 2
    debug: bool = False
    pic: bool = False
    shared: bool = False
    verbose: bool = False
    dry_run: bool = False
    time_report: bool = False
    save_temps: Path | None = None
    offload_archs: tuple[str, ...] = ()
    wanted_device_code: DeviceCode | None = None
    for_clang: str = ""
    llvm: str = ""
    cuda_path: str = ""
    rocm_path: str = ""
    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    launcher: str | None = None
    cache: bool | None = None
    why_rebuilt: bool = False
    compiler_arguments: tuple[str, ...] = ()
    prefix_maps: tuple[PrefixMap, ...] = ()
    depfile: DepfileRequest = field(default_factory=DepfileRequest)
    compile_commands: Path | None = None
    manifest: Path | None = None
    header: Path | None = None
    arguments: tuple[str, ...] = ()
    spelled: tuple[tuple[str, str], ...] = ()
    cuda_arguments: tuple[str, ...] = ()

    @property
    def device_code(self) -> DeviceCode:
        """Return the form of GPU code: bitcode in objects, so that a link optimises over files.

        A call that links at once has nothing to gain from that, and links faster without, but
        clang's code of CUDA C++ links with kernels of other files as bitcode only; no bitcode is
        read by every release.
        """
        if self.wanted_device_code is not None:
            return self.wanted_device_code
        links_at_once = self.mode is Mode.LINK and not self.has_cuda_cpp
        is_final = links_at_once or self.is_for_any_clang
        return DeviceCode.OBJECT if is_final else DeviceCode.BITCODE

    @property
    def has_cuda_cpp(self) -> bool:
        """Return whether there is CUDA C++ to compile."""
        return any(path.suffix == CUDA_SUFFIX for path in self.inputs)

    @property
    def is_for_any_clang(self) -> bool:
        """Return whether several releases of LLVM are to link the object."""
        return self.for_clang == _ANY

    @property
    def mode(self) -> Mode:
        """Return the last stage that is wanted."""
        if self.emit_llvm:
            return Mode.LLVM_TEXT if self.assembly else Mode.LLVM_BITCODE
        if self.assembly:
            return Mode.ASSEMBLY
        if self.stop_after_compile:
            return Mode.OBJECT
        is_alone = self.header is not None and self.output is None and not self.shared
        if is_alone and all(path.suffix in MLIR_SUFFIXES for path in self.inputs):
            return Mode.HEADER
        return Mode.LINK


_Apply = Callable[[CompileOptions, str], CompileOptions]


def _set(**changes: object) -> _Apply:
    return lambda options, _: replace(options, **changes)  # type: ignore[arg-type]  # names checked by the tests


def _link_item(prefix: str) -> _Apply:
    return lambda options, value: replace(options, link_items=(*options.link_items, prefix + value))


def _compiler_argument(prefix: str) -> _Apply:
    return lambda options, value: replace(
        options, compiler_arguments=(*options.compiler_arguments, prefix + value)
    )


def _cuda_argument(name: str) -> _Apply:
    return lambda options, _: replace(options, cuda_arguments=(*options.cuda_arguments, name))


def _store(name: str) -> _Apply:
    return lambda options, value: replace(options, **{name: value})  # type: ignore[arg-type]  # as above


def _path(name: str) -> _Apply:
    return lambda options, value: replace(options, **{name: Path(value)})  # type: ignore[arg-type]  # as above


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
    if value != _ANY and not value.isdecimal():
        msg = f"--for-clang={value}: not a release of LLVM"
        raise UsageError(msg, hint=f"name the release that links, such as 22, or '{_ANY}'")
    return replace(options, for_clang=value)


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
    return lambda options, _: replace(options, depfile=replace(options.depfile, **changes))  # type: ignore[arg-type]  # as above


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
        raise UsageError(msg, hint="files are told apart by their endings; see docs/caching.md")
    return options


_LINK_FLAGS = ("-static", "-static-libgcc", "-static-libstdc++", "-pthread", "-rdynamic", "-s")
_FLAGS: Mapping[str, _Apply] = {
    "-c": _set(stop_after_compile=True),
    "-S": _set(assembly=True, stop_after_compile=True),
    "-emit-llvm": _set(emit_llvm=True, stop_after_compile=True),
    "-O": _set(opt_level=1),
    **{f"-O{level}": _set(opt_level=level) for level in range(4)},
    "-g": _set(debug=True),
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
    **{name: _cuda_argument(name) for name in ("-nocudainc", "-nocudalib")},
    **{name: _link_item(name) for name in _LINK_FLAGS},
}

_JOINED: Mapping[str, _Apply] = {
    "--offload-arch=": _offload_arch,
    "--device-code=": _device_code,
    "--for-clang=": _for_clang,
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
    "-MF": _depfile_name,
    "-MT": _depfile_target,
    "-MQ": _quoted_depfile_target,
    "-MJ": _path("compile_commands"),
}


def parse_arguments(arguments: Sequence[str]) -> CompileOptions:
    """Return what the arguments ask for.

    Raises UsageError for an unknown option, a missing value, and options that exclude each other.
    """
    return _consistent(read_arguments(arguments))


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


def as_operand(name: str) -> str:
    """Return a file name spelled so that no tool takes it for an option."""
    return f"./{name}" if name.startswith(("-", "@")) else name


def _consistent(options: CompileOptions) -> CompileOptions:
    if not options.inputs:
        msg = "no input files"
        raise UsageError(
            msg, hint="name at least one .mlir, .o or .c file; see 'mlir-offload --help'"
        )
    if options.header is not None and MLIR_SUFFIXES.isdisjoint(p.suffix for p in options.inputs):
        msg = "--emit-header= needs a .mlir file to take the functions from"
        raise UsageError(msg)
    if options.mode is not Mode.LINK and options.output is not None and len(options.inputs) > 1:
        msg = f"-o names one file, but {options.mode.value} makes one for each of {len(options.inputs)} inputs"
        raise UsageError(msg, hint="compile each input by its own call, or leave -o out")
    if options.mode is not Mode.LINK and options.shared:
        msg = f"-shared links, {options.mode.value} does not"
        raise UsageError(msg, hint="leave one of them out")
    if options.is_for_any_clang:
        _check_for_any(options)
    if options.has_cuda_cpp:
        _check_cuda_cpp(options)
    return options


def _check_cuda_cpp(options: CompileOptions) -> None:
    """Refuse what needs one module: CUDA C++ has one for the host and one for each device."""
    if options.mode not in {Mode.LINK, Mode.OBJECT}:
        msg = (
            f"{options.mode.value} does not go with CUDA C++, which makes several modules of a file"
        )
        raise UsageError(msg, hint="compile it with -c, or link")


def _check_for_any(options: CompileOptions) -> None:
    """Refuse what one release of LLVM makes for itself: a linked file, and LLVM IR of any kind."""
    what = "a linked file" if options.mode is Mode.LINK else "LLVM IR" if options.emit_llvm else ""
    if options.device_code is DeviceCode.BITCODE:
        what = "device bitcode"
    if options.has_cuda_cpp:
        what = "what clang makes of CUDA C++"
    if what:
        msg = f"--for-clang={_ANY} is for objects: {what} serves one release of LLVM only"
        raise UsageError(msg, hint="use -c, with --device-code=object or none")
