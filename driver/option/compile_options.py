"""What one call of the compiler asks for, as one value."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from mlir_offload.driver.option.device_flags import DeviceFlags
from mlir_offload.toolchain.target import DEVICE_KINDS

if TYPE_CHECKING:
    from mlir_offload.translate.prefix_map import PrefixMap
    from mlir_offload.translate.sanitizer import Sanitizer


class Mode(Enum):
    """The last stage that is wanted."""

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
    """The form of GPU code in an object: for device LTO at the link, or assembled already."""

    BITCODE = "bitcode"
    OBJECT = "object"


ANY_CLANG = "any"
FAT_BINARY = ".fatbin"
MLIR_SUFFIXES = frozenset({".mlir", ".mlirbc"})
GPU_CPP = {kind.cpp_suffix: kind.name for kind in DEVICE_KINDS if kind.cpp_suffix}
"""C++ with kernels: the kind that they are for, by the ending of the file."""
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
    """What the `-M` options ask for.

    `targets` stand as they are written in the rule; `file` is empty where the name of the output
    gives that of the dependency file.
    """

    is_wanted: bool = False
    has_system_files: bool = True
    file: str = ""
    targets: tuple[str, ...] = ()
    has_phony_targets: bool = False


class CompileOptions(Struct, frozen=True):
    """What one call of the compiler asks for.

    `compiler_arguments` are for C and C++, `code_arguments` for the host code of MLIR too; `unused` are
    those that nothing takes; `taken_for` the words that the last option represents, still to be read.
    `device_ending` is the ending by which nvcc names device code, where one of its options asks for it. `link_items` holds inputs and linker options in the order of the command line, because a linker
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
        """Return how clang is told to optimise host code."""
        return f"-O{self.opt_spelled or self.opt_level}"

    @property
    def device_code(self) -> DeviceCode:
        """Return the form of GPU code: bitcode in objects, so that a link optimises over files.

        A call that links at once has nothing to gain from that, and links faster without, unless
        kernels call functions of other files. Clang's code of C++ links with kernels of other
        files as bitcode only; no bitcode is read by every release.
        """
        if self.wanted_device_code is not None:
            return self.wanted_device_code
        if self.mode is Mode.DEVICE:
            return DeviceCode.BITCODE if self.emit_llvm else DeviceCode.OBJECT
        links_at_once = self.mode is Mode.LINK and not self.has_gpu_cpp and not self.gpu_rdc
        is_final = links_at_once or self.is_for_any_clang or self.makes_final_objects
        return DeviceCode.OBJECT if is_final else DeviceCode.BITCODE

    @property
    def makes_fat_binary(self) -> bool:
        """Return whether device code alone is packed into a file for all architectures."""
        return self.device_ending == FAT_BINARY

    @property
    def needs_ptxas(self) -> bool:
        """Return whether this call assembles code for NVIDIA GPUs; else it leaves bitcode to a link."""
        return self.mode is Mode.LINK or self.device_code is not DeviceCode.BITCODE

    @property
    def links_device_libraries(self) -> bool:
        """Return whether the libraries of the GPU's vendor are linked into kernels of MLIR.

        With CUDA C++ or HIP C++ the options that prevent it are for that.
        """
        return self.has_gpu_cpp or not {"-nogpulib", "-nocudalib"}.intersection(
            self.gpu_cpp_arguments
        )

    @property
    def makes_final_objects(self) -> bool:
        """Return whether device code is linked object by object, so that any linker takes them."""
        return self.gpu_rdc is False

    @property
    def makes_program(self) -> bool:
        """Return whether a `main` is what starts a program: code for a library may have any."""
        is_program = self.mode is Mode.LINK and not self.links_to_object
        return not self.shared and (is_program or not self.pic)

    @property
    def links_to_object(self) -> bool:
        """Return whether the link makes an object for another link."""
        return not RELOCATABLE_OPTIONS.isdisjoint(self.link_items)

    @property
    def has_gpu_cpp(self) -> bool:
        """Return whether there is CUDA C++ or HIP C++ to compile."""
        return any(path.suffix in GPU_CPP for path in self.inputs)

    @property
    def is_for_any_clang(self) -> bool:
        """Return whether several releases of LLVM are to link the object."""
        return self.for_clang == ANY_CLANG

    @property
    def mode(self) -> Mode:
        """Return the last stage that is wanted."""
        if self.last_step is not None:
            return self.last_step
        if self.emit_llvm or self.assembly or self.stop_after_compile:
            return _STAGES[self.assembly, self.emit_llvm]
        is_alone = self.header is not None and self.output is None and not self.shared
        if is_alone and all(path.suffix in MLIR_SUFFIXES for path in self.inputs):
            return Mode.HEADER
        return Mode.LINK
