"""The options of one invocation of the compiler, as one value."""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.target import (
    Target,
    all_kinds,
    cpp_suffixes,
    parse_offload_arch,
    uses_cuda,
)
from mlir_offload.translate.kind_lowering import Contraction

if TYPE_CHECKING:
    from mlir_offload.translate.prefix_map import PrefixMap
    from mlir_offload.translate.sanitizer import Sanitizer

_HOST_BITS, _NARROW_BITS = 64, 32
ALL_PTX, NO_PTX = "all", "none"
_CODE_OBJECT = "-mcode-object-version="


class Mode(Enum):
    """The last stage to run."""

    LINK = "link"
    OBJECT = "-c"
    ASSEMBLY = "-S"
    LLVM_TEXT = "-S -emit-llvm"
    LLVM_BITCODE = "-c -emit-llvm"
    HEADER = "--emit-header"
    SYNTAX = "-fsyntax-only"
    PREPROCESSED = "-E"
    RULE = "-M"
    DEVICE = "--offload-device-only"


class DeviceCode(Enum):
    """The format of GPU code in an object: bitcode for device LTO at link time, or assembled code."""

    BITCODE = "bitcode"
    OBJECT = "object"


ANY_CLANG = "any"
FAT_BINARY = ".fatbin"
MLIR_SUFFIXES = frozenset({".mlir", ".mlirbc"})
GPU_CPP = cpp_suffixes()
"""C++ with kernels: the device kind, by file extension."""
COMPILED_SUFFIXES = frozenset({".c", ".cc", ".cpp", ".cxx", *GPU_CPP, ".ll", ".bc", ".s"})
PREPROCESSED_SUFFIXES = COMPILED_SUFFIXES - {".ll", ".bc", ".s"}
LINKED_SUFFIXES = frozenset({".o", ".obj", ".a", ".so"})


_STAGES = {
    (False, False): Mode.OBJECT,
    (True, False): Mode.ASSEMBLY,
    (True, True): Mode.LLVM_TEXT,
    (False, True): Mode.LLVM_BITCODE,
}


RELOCATABLE_OPTIONS = frozenset({"-r", "-Wl,-r", "-Wl,--relocatable"})


class DepfileRequest(Struct, frozen=True):
    """The `-M` options.

    `targets` are quoted for Make already. `file` is empty if the name of the output determines the name of the
    dependency file.
    """

    is_wanted: bool = False
    has_system_files: bool = True
    file: str = ""
    targets: tuple[str, ...] = ()
    has_phony_targets: bool = False


class DeviceLibrary(Struct, frozen=True):
    """A bitcode library of the user, and the kind or architecture that it is for (empty: all)."""

    selector: str
    path: Path

    def is_compatible(self, target: Target) -> bool:
        """Return whether kernels for the target may call it."""
        return self.selector in {"", str(target.kind), str(target)}


class DeviceFlags(Struct, frozen=True):
    """The options for device code.

    `ptxas` and `device_opt` are arguments for ptxas and for the clang that compiles device code. `ptx` are the
    architectures whose PTX is kept, None by default.
    """

    fast_math: bool = False
    contraction: Contraction = Contraction.ON
    index_bits: int = _HOST_BITS
    ftz: bool = False
    max_registers: int = 0
    ptxas: tuple[str, ...] = ()
    device_opt: tuple[str, ...] = ()
    arch_opt: tuple[tuple[str, str], ...] = ()
    libraries: tuple[DeviceLibrary, ...] = ()
    ptx: tuple[str, ...] | None = None

    @property
    def fp_contract(self) -> Contraction | None:
        """Return the contraction of products and sums; None if operations of the program determine it."""
        return None if self.contraction is Contraction.ON else self.contraction

    @property
    def ptxas_arguments(self) -> tuple[str, ...]:
        """Return the arguments for ptxas; later ones override earlier ones."""
        limit = (f"--maxrregcount={self.max_registers}",) if self.max_registers else ()
        return (*limit, *self.ptxas)

    def device_opt_for(self, arch: str) -> tuple[str, ...]:
        """Return the arguments for the clang that compiles code for an architecture."""
        own = (argument for name, argument in self.arch_opt if name == arch)
        return (*self.device_opt, *own)

    @property
    def code_object(self) -> int:
        """Return the version of AMD code objects that -Xdevice-opt requests, 0 for the default. Raises UsageError."""
        asked = [word for word in self.device_opt if word.startswith(_CODE_OBJECT)]
        version = asked[-1].removeprefix(_CODE_OBJECT) if asked else "0"
        if not (version.isascii() and version.isdecimal()):
            msg = f"-Xdevice-opt {asked[-1]}: not the number of a version"
            raise UsageError(msg, hint=f"write {_CODE_OBJECT}5")
        return int(version)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the command-line arguments for these options."""
        return tuple(self._arguments())

    def _arguments(self) -> Iterator[str]:
        if self.fast_math:
            yield "-ffast-math"
        if self.contraction is not Contraction.ON:
            yield f"-ffp-contract={self.contraction}"
        if self.index_bits != _HOST_BITS:
            yield f"--index-bits={self.index_bits}"
        if self.ftz:
            yield "--ftz"
        if self.max_registers:
            yield f"--maxrregcount={self.max_registers}"
        for argument in self.ptxas:
            yield from ("-Xptxas", argument)
        for argument in self.device_opt:
            yield from ("-Xdevice-opt", argument)
        for arch, argument in self.arch_opt:
            yield from (f"-Xarch_{arch}", argument)
        for library in self.libraries:
            key = f"{library.selector}=" if library.selector else ""
            yield f"--device-lib={key}{library.path}"
        yield from (f"--cuda-include-ptx={arch}" for arch in self.ptx or ())

    def keeps_ptx(self, target: Target, targets: tuple[Target, ...]) -> bool:
        """Return whether the PTX of a target is kept for later GPUs.

        By default, that of the newest architecture whose PTX runs on later GPUs, which excludes sm_90a.
        """
        if not uses_cuda([target.kind]):
            return False
        if self.ptx is not None:
            return ALL_PTX in self.ptx or target.arch in self.ptx
        plain = [item for item in targets if uses_cuda([item.kind]) and item.arch[-1].isdigit()]
        return bool(plain) and target == max(plain, key=lambda item: int(item.arch[3:]))


class CompileOptions(Struct, frozen=True):
    """The options of one invocation of the compiler.

    `compiler_arguments` are for C and C++, `code_arguments` for the host code of MLIR. `unused` are ignored
    arguments. `taken_for` is the replacement of the last option, still to be read. `device_ending` is the
    extension of device code if an option of nvcc requests it. `link_items` contains inputs and linker options in
    command-line order, because a linker reads archives in that order. `arguments` is the complete command line;
    `spelled` contains its options, each with its value.
    """

    link_items: tuple[str, ...] = ()
    inputs: tuple[Path, ...] = ()
    output: Path | None = None
    stop_after_compile: bool = False
    assembly: bool = False
    emit_llvm: bool = False
    opt_level: int = 2
    march: str = "native"
    debug: bool = False
    pic: bool = False
    shared: bool = False
    verbose: bool = False
    dry_run: bool = False
    time_report: bool = False
    save_temps: Path | None = None
    offload_archs: tuple[str, ...] = ()
    pipeline: str = ""
    device_flags: DeviceFlags = field(default_factory=DeviceFlags)
    gpu_rdc: bool | None = None
    embed_runtime: bool = False
    no_libomptarget: bool = False
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
    code_arguments: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    hides_unused: bool = False
    languages: tuple[tuple[Path, str], ...] = ()
    language: str = ""
    last_step: Mode | None = None
    is_host_only: bool = False
    is_device_only: bool = False
    device_ending: str = ""
    opt_spelled: str = ""
    debug_spelled: str = "-g"
    mlir_opt: str = ""
    mlir_translate: str = ""
    mlir_arguments: tuple[str, ...] = ()
    taken_for: tuple[str, ...] = ()
    prefix_maps: tuple[PrefixMap, ...] = ()
    depfile: DepfileRequest = field(default_factory=DepfileRequest)
    compile_commands: Path | None = None
    manifest: Path | None = None
    header: Path | None = None
    arguments: tuple[str, ...] = ()
    spelled: tuple[tuple[str, str], ...] = ()
    gpu_cpp_arguments: tuple[str, ...] = ()
    sanitizer: Sanitizer | None = None

    @property
    def opt_flag(self) -> str:
        """Return clang's optimization option for host code."""
        return f"-O{self.opt_spelled or self.opt_level}"

    @property
    def device_code(self) -> DeviceCode:
        """Return the format of GPU code. By default bitcode, which the device link optimizes across files.

        The default is assembled code if this invocation links, because bitcode gains nothing then and links more
        slowly; also for any LLVM release, because none reads the bitcode of all others. With CUDA C++ or HIP C++,
        or if kernels call functions of other files (-fgpu-rdc), a link needs bitcode.
        """
        if self.wanted_device_code is not None:
            return self.wanted_device_code
        if self.mode is Mode.DEVICE:
            return DeviceCode.BITCODE if self.emit_llvm else DeviceCode.OBJECT
        links_at_once = self.mode is Mode.LINK and not self.has_gpu_cpp and not self.gpu_rdc
        is_final = links_at_once or self.is_for_any_clang or self.makes_non_rdc_objects
        return DeviceCode.OBJECT if is_final else DeviceCode.BITCODE

    @property
    def makes_fat_binary(self) -> bool:
        """Return whether device code is packed into one fat binary for all architectures."""
        return self.device_ending == FAT_BINARY

    @property
    def needs_ptxas(self) -> bool:
        """Return whether this invocation assembles NVIDIA code, rather than leaving bitcode to the link."""
        return self.mode is Mode.LINK or self.device_code is not DeviceCode.BITCODE

    @property
    def links_device_libraries(self) -> bool:
        """Return whether the GPU vendor's device libraries are linked into MLIR kernels.

        With CUDA C++ or HIP C++, -nogpulib and -nocudalib apply only to these sources.
        """
        return self.has_gpu_cpp or not {"-nogpulib", "-nocudalib"}.intersection(
            self.gpu_cpp_arguments
        )

    @property
    def makes_non_rdc_objects(self) -> bool:
        """Return whether the device code of each object is linked separately, so that any linker accepts it."""
        return self.gpu_rdc is False

    @property
    def makes_program(self) -> bool:
        """Return whether a `main` is the entry point of a program; objects for a library may define any `main`."""
        is_program = self.mode is Mode.LINK and not self.links_to_object
        return not self.shared and (is_program or not self.pic)

    @property
    def links_to_object(self) -> bool:
        """Return whether the link writes an object for another link."""
        return not RELOCATABLE_OPTIONS.isdisjoint(self.link_items)

    @property
    def has_gpu_cpp(self) -> bool:
        """Return whether there are CUDA C++ or HIP C++ sources."""
        return any(path.suffix in GPU_CPP for path in self.inputs)

    @property
    def is_for_any_clang(self) -> bool:
        """Return whether any LLVM release may link the object."""
        return self.for_clang == ANY_CLANG

    @property
    def mode(self) -> Mode:
        """Return the last stage to run."""
        if self.last_step is not None:
            return self.last_step
        if self.is_device_only:
            return Mode.DEVICE
        if self.emit_llvm or self.assembly or self.stop_after_compile:
            return _STAGES[self.assembly, self.emit_llvm]
        is_alone = self.header is not None and self.output is None and not self.shared
        if is_alone and all(path.suffix in MLIR_SUFFIXES for path in self.inputs):
            return Mode.HEADER
        return Mode.LINK


def with_library(flags: DeviceFlags, value: str) -> DeviceFlags:
    """Return the flags with `--device-lib=[KIND|ARCH=]FILE`. Raises UsageError for another form."""
    head, equals, tail = value.partition("=")
    selector, name = (head, tail) if equals and _is_selector(head) else ("", value)
    if not name:
        msg = f"--device-lib={value} expects a file name"
        raise UsageError(msg, hint="write --device-lib=FILE, or sm_90=FILE, cuda=FILE, host=FILE")
    library = DeviceLibrary(selector, Path(name))
    return replace(flags, libraries=(*flags.libraries, library))


def _is_selector(word: str) -> bool:
    if word in all_kinds():
        return True
    try:
        parse_offload_arch(word)
    except UsageError:
        return word.startswith("gfx")
    return True


def with_max_registers(flags: DeviceFlags, value: str) -> DeviceFlags:
    """Return the flags with `--maxrregcount`. Raises UsageError if the value is not a number."""
    if not (value.isascii() and value.isdecimal() and int(value) > 0):
        msg = f"--maxrregcount={value}: not a number of registers"
        raise UsageError(msg, hint="use a number from 1, such as 64")
    return replace(flags, max_registers=int(value))


def with_ptx(flags: DeviceFlags, value: str) -> DeviceFlags:
    """Return the flags with `--cuda-include-ptx=`. Raises UsageError if the value is not an architecture."""
    if value not in {ALL_PTX, NO_PTX} and not value.startswith("sm_"):
        msg = f"--cuda-include-ptx={value}: not an architecture"
        raise UsageError(msg, hint=f"use sm_NN, '{ALL_PTX}' or '{NO_PTX}'")
    kept = () if value == NO_PTX else (*(flags.ptx or ()), value)
    return replace(flags, ptx=kept)


def with_ftz(flags: DeviceFlags, value: str) -> DeviceFlags:
    """Return the flags with `--ftz=true` or `--ftz=false`, as in nvcc. Raises UsageError."""
    if value not in {"true", "false"}:
        msg = f"--ftz={value}: not true or false"
        raise UsageError(msg, hint="write --ftz=true: subnormal numbers of 32 bits become zero")
    return replace(flags, ftz=value == "true")


def with_contraction(flags: DeviceFlags, value: str) -> DeviceFlags:
    """Return the flags with `-ffp-contract=`, as in clang. Raises UsageError for another value."""
    word = value.removesuffix("-honor-pragmas")
    if word not in set(Contraction):
        msg = f"-ffp-contract={value}: not off, on or fast"
        raise UsageError(msg, hint="'on' fuses where operations have the flag 'contract'")
    return replace(flags, contraction=Contraction(word))


def with_index_bits(flags: DeviceFlags, value: str) -> DeviceFlags:
    """Return the flags with `--index-bits=`. Raises UsageError for another width."""
    if value not in {str(_HOST_BITS), str(_NARROW_BITS)}:
        msg = f"--index-bits={value}: not 32 or 64"
        raise UsageError(msg, hint="use 32 if no memref has 2147483648 elements or more")
    return replace(flags, index_bits=int(value))
