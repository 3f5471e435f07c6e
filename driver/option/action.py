"""The effect of each compiler option: rows of the option table name these functions."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver.option import nvcc_action, pipeline_file, row
from mlir_offload.driver.option.compile_options import (
    ANY_CLANG,
    MLIR_SUFFIXES,
    CompileOptions,
    DeviceCode,
    DeviceFlags,
    with_contraction,
)
from mlir_offload.driver.system import depfile as system_depfile
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.translate import prefix_map as translate_prefix_map
from mlir_offload.translate import sanitizer as translate_sanitizer

TEMPS, BESIDE_OUTPUT = Path("mlir-offload-temps"), Path("obj", "mlir-offload-temps")
LANGUAGES = {
    "mlir": ".mlir",
    "c": ".c",
    "c++": ".cpp",
    "cuda": ".cu",
    "cu": ".cu",
    "hip": ".hip",
    "ir": ".ll",
    "assembler": ".s",
    "cpp-output": "",
    "none": "",
}
"""The file name extension of each language; empty to use the extension of the file."""
Apply = Callable[[CompileOptions, str], CompileOptions]


def put(**changes: object) -> Apply:
    """Set fields to constants."""
    return lambda options, _: replace(options, **changes)  # names checked by the tests


def store(name: str) -> Apply:
    """Set a field to the value."""
    return lambda options, value: replace(options, **{name: value})  # as above


def path(name: str) -> Apply:
    """Set a field to the path in the value."""
    return lambda options, value: replace(options, **{name: Path(value)})  # as above


def add(name: str, prefix: str = "") -> Apply:
    """Add the value, after a prefix, to a field with several words."""
    return lambda options, value: replace(
        options, **{name: (*getattr(options, name), prefix + value)}
    )  # as above


def link_item(prefix: str) -> Apply:
    """Pass an option to the link, in its position between the inputs."""
    return add("link_items", prefix)


def compiler_argument(prefix: str) -> Apply:
    """Pass an option to clang for C and C++."""
    return add("compiler_arguments", prefix)


def preprocessor_argument(options: CompileOptions, value: str) -> CompileOptions:
    """Take `-MD,FILE` as `-MD -MF FILE`, as Driver::TranslateInputArgs of clang does; pass on other arguments."""
    option, *files = value.split(",")
    if option not in {"-MD", "-MMD"}:
        return compiler_argument("-Wp,")(options, value)
    named = ("-MF", *files) if len(files) == 1 else ()
    return replace(options, taken_for=(option, *named))


def compiler_and_linker(prefix: str) -> Apply:
    """Pass an option to clang for C and C++, and to the link, as clang does."""
    return each(compiler_argument(prefix), link_item(prefix))


def offload_arch(options: CompileOptions, value: str) -> CompileOptions:
    """Add architectures to --offload-arch=. Raises UsageError for a file name or an empty value."""
    names = tuple(filter(None, (name.strip() for name in value.split(","))))
    file = next((name for name in names if Path(name).suffix in MLIR_SUFFIXES), None)
    if file is not None:
        msg = f"--offload-arch={file}: this is a file, not an architecture"
        raise UsageError(msg, hint=f"write --offload-arch=ARCH {file}, as in --offload-arch=host")
    if not names:
        msg = "--offload-arch= expects an architecture"
        raise UsageError(msg, hint="use sm_NN, 'host' or 'native', several with commas")
    return replace(options, offload_archs=tuple(dict.fromkeys((*options.offload_archs, *names))))


def device_code(options: CompileOptions, value: str) -> CompileOptions:
    """Set the format of device code."""
    forms = {"auto": None, **{form.value: form for form in DeviceCode}}
    return replace(options, wanted_device_code=forms[value])


def for_clang(options: CompileOptions, value: str) -> CompileOptions:
    """Set the linking LLVM. Raises UsageError for another word."""
    is_release = value.isascii() and value.isdecimal()
    if value != ANY_CLANG and not is_release and os.sep not in value:
        msg = f"--for-clang={value}: neither a release of LLVM nor a path"
        raise UsageError(msg, hint=f"name the linking LLVM, such as 22, or '{ANY_CLANG}'")
    return replace(options, for_clang=value)


def device(change: Callable[[DeviceFlags, str], DeviceFlags]) -> Apply:
    """Change the options of device code generation."""
    return lambda options, value: replace(options, device_flags=change(options.device_flags, value))


def device_argument(name: str) -> Apply:
    """Add an argument for a tool that compiles device code."""

    def change(flags: DeviceFlags, value: str) -> DeviceFlags:
        return replace(flags, **{name: (*getattr(flags, name), value)})  # as above

    return device(change)


def put_device(**changes: object) -> Apply:
    """Set options of device code generation to constants."""
    return device(lambda flags, _: replace(flags, **changes))  # as above


def code_argument(prefix: str) -> Apply:
    """Pass an option to clang for all host code: C, C++ and lowered MLIR."""
    return each(compiler_argument(prefix), add("code_arguments", prefix))


def separate(name: str, *fields: str) -> Apply:
    """Pass an option and its value as two words."""

    def apply(options: CompileOptions, value: str) -> CompileOptions:
        words = {field: (*getattr(options, field), name, value) for field in fields}
        return replace(options, **words)

    return apply


def each(*steps: Apply) -> Apply:
    """Apply several functions in order."""

    def apply(options: CompileOptions, value: str) -> CompileOptions:
        for step in steps:
            options = step(options, value)
        return options

    return apply


def optimize(level: int, spelled: str = "") -> Apply:
    """Set the optimization level, and its spelling for host code if clang has another one."""
    return put(opt_level=level, opt_spelled=spelled)


def debug(spelled: str) -> Apply:
    """Request line tables in device code, and this debug option of clang for host code."""
    return put(debug=True, debug_spelled=spelled)


def linker_argument(options: CompileOptions, value: str) -> CompileOptions:
    """Pass one word to the linker, including commas."""
    items = ("-Xlinker", value) if "," in value else (f"-Wl,{value}",)
    return replace(options, link_items=(*options.link_items, *items))


def device_linker_argument(options: CompileOptions, value: str) -> CompileOptions:
    """Pass one word to the device link; `TRIPLE=WORD` passes it for one triple."""
    triple, _, word = value.partition("=")
    key = f"{triple.removeprefix('-')}=" if triple else ""
    return linker_argument(options, f"--device-linker={key}{word}")


def with_ptxas_arguments(flags: DeviceFlags, value: str) -> DeviceFlags:
    """Add arguments for ptxas, a comma-separated list as in nvcc."""
    return replace(flags, ptxas=(*flags.ptxas, *value.split(",")))


def arch_argument(options: CompileOptions, value: str) -> CompileOptions:
    """Pass an option to the compilation for one architecture, given as `ARCH=OPTION`."""
    arch, _, word = value.partition("=")
    if arch in {"host", "x86_64"}:
        return code_argument("")(options, word)
    if arch == "device":
        return device_argument("device_opt")(options, word)
    flags = options.device_flags
    return replace(options, device_flags=replace(flags, arch_opt=(*flags.arch_opt, (arch, word))))


def target(options: CompileOptions, value: str) -> CompileOptions:
    """Accept the triple of this host. Raises UsageError for another one."""
    words = value.split("-")
    if words[0] not in {"x86_64", "amd64"} or "linux" not in words:
        msg = f"--target={value}: host code is for this machine"
        raise UsageError(msg, hint="leave it out; devices are named with --offload-arch=")
    return compiler_and_linker("--target=")(options, value)


def fast_math(option: str) -> Apply:
    """Allow inexact floating-point math on host and device by clang's option, or revert that."""
    return each(put_device(fast_math=option == "-ffast-math"), compiler_argument(option))


def position(word: str) -> Apply:
    """Set the position independence of code; the last of such options applies, as in clang."""
    positions = ("-fPIC", "-fPIE", "-fno-pic")

    def apply(options: CompileOptions, _: str) -> CompileOptions:
        others = tuple(one for one in options.compiler_arguments if one not in positions)
        code = tuple(one for one in options.code_arguments if one not in positions)
        own = () if word == "-fPIC" else (word,)
        return replace(
            options,
            pic=word == "-fPIC",
            compiler_arguments=(*others, *own),
            code_arguments=(*code, *own),
        )

    return apply


def contraction(options: CompileOptions, value: str) -> CompileOptions:
    """Set the contraction of products and sums; clang has the option for host code."""
    flags = with_contraction(options.device_flags, value)
    return replace(code_argument("-ffp-contract=")(options, value), device_flags=flags)


def pipeline(options: CompileOptions, value: str) -> CompileOptions:
    """Set the pipeline. Reads it, and raises the error if it is invalid."""
    pipeline_file.read_pipeline(value)
    return replace(options, pipeline=value)


def sanitizer(options: CompileOptions, value: str) -> CompileOptions:
    """Set a sanitizer, with line tables for its reports; checks only for C and C++ are passed to clang."""
    found, checks = translate_sanitizer.parse_sanitizers(value)
    if checks:
        options = compiler_argument("-fsanitize=")(options, ",".join(checks))
    return replace(options, sanitizer=found, debug=True) if found else options


def no_sanitizer(options: CompileOptions, value: str) -> CompileOptions:
    """Revert sanitizers; those for C and C++ by clang's option."""
    changed = compiler_argument("-fno-sanitize=")(options, value)
    own = changed.sanitizer
    is_off = own is not None and {"all", str(own)}.intersection(value.split(","))
    return replace(changed, sanitizer=None) if is_off else changed


def jobs(options: CompileOptions, value: str) -> CompileOptions:
    """Set the number of concurrent programs."""
    if not value.isdecimal() or int(value) < 1:
        msg = f"-j needs a number from 1, not '{value}'"
        raise UsageError(msg, hint="write -j4, for example")
    return replace(options, jobs=int(value))


def prefix_map(option: str) -> Apply:
    """Map prefixes of file names; clang maps those in C and C++."""

    def apply(options: CompileOptions, value: str) -> CompileOptions:

        maps = (*options.prefix_maps, translate_prefix_map.parse_prefix_map(value, option))
        return replace(compiler_argument(f"{option}=")(options, value), prefix_maps=maps)

    return apply


def save_temps(options: CompileOptions, value: str) -> CompileOptions:
    """Keep the intermediate files: in a directory, in the current one, or next to the output."""
    if value not in {"", "cwd", "obj"}:
        return replace(options, save_temps=Path(value))
    # The directory of the output is known after all options have been read.
    return replace(options, save_temps=BESIDE_OUTPUT if value == "obj" else TEMPS)


def depfile(**changes: object) -> Apply:
    """Set fields of the request for a dependency file."""
    return lambda options, _: replace(
        options, depfile=replace(options.depfile, **changes)
    )  # as above


def depfile_name(options: CompileOptions, value: str) -> CompileOptions:
    """Set the name of the dependency file."""
    return replace(options, depfile=replace(options.depfile, file=value))


def depfile_target(options: CompileOptions, value: str) -> CompileOptions:
    """Add a target of the rule, unquoted."""
    targets = (*options.depfile.targets, value)
    return replace(options, depfile=replace(options.depfile, targets=targets))


def quoted_depfile_target(options: CompileOptions, value: str) -> CompileOptions:
    """Add a target of the rule, quoted for Make."""
    return depfile_target(options, system_depfile.quote_for_make(value))


def language(options: CompileOptions, value: str) -> CompileOptions:
    """Set the language of the following inputs; with `cpp-output`, ccache caches the complete invocation."""
    if value not in LANGUAGES:
        msg = f"-x {value}: unknown language"
        raise UsageError(msg, hint=row.value_hint(value, LANGUAGES))
    return replace(options, language=LANGUAGES[value])


# Options of nvcc that clang would read as an option with a joined value, as `-lib` for the library `ib`.
_AMBIGUOUS = frozenset(
    (
        *("-odir", "-optf", "-objtemp", "-opt-info", "-optix-ir", "-Ofc"),
        *("-arch-ls", "-code-ls", "-lib", "-link", "-lto", "-ltoir", "-ldir", "-jtd", "-jobserver"),
        *("-Wno-deprecated-gpu-targets", "-Wdefault-stream-launch", "-Wmissing-launch-bounds"),
        "-Wext-lambda-captures-this",
    )
)


def of_nvcc(reader: str, *given: str) -> Apply:
    """Return the reader of `nvcc_action` with this name, which is loaded with the first option of nvcc."""

    def apply(options: CompileOptions, value: str) -> CompileOptions:
        read: Apply = getattr(nvcc_action, reader)(*given)
        return read(options, value)

    return apply


def is_ambiguous(argument: str) -> bool:
    """Return whether an option of nvcc could be read as an option of clang with a joined value."""
    return argument.partition("=")[0] in _AMBIGUOUS
