"""Lowering for NVIDIA GPUs, and compilation of their LLVM IR to relocatable device code."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mlir_offload.offload.ir_syntax import (
    LLVM_IR,
    concealed,
    kernel_signatures,
    next_metadata_number,
    revealed,
)
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.pattern import ir_line, ir_pattern
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.tables import load_table, table_cache, with_learned
from mlir_offload.toolchain.target import Kind, sm_number
from mlir_offload.translate import signed_conversion
from mlir_offload.translate.device_ir import (
    LINK_LIBRARY,
    codegen_arguments,
    has_bulk_copies,
    internalized,
    with_alignment,
    with_dynamic_shared,
    with_flushing_functions,
    with_target,
    without_barrier_places,
)
from mlir_offload.translate.kernel import ParameterTypeError
from mlir_offload.translate.kind_lowering import DeviceLowering, KindLowering, OtherVendor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mlir_offload.toolchain.cuda import CudaToolkit
    from mlir_offload.toolchain.llvm import LlvmToolchain

_LIBDEVICE_CALL = ir_pattern("@__nv_`word`")
_INTEGER = ir_line("i`number``end`")
_INTEGERS = frozenset({"i1", "i8", "i16", "i32", "i64", "i128"})
_UNKNOWN = frozenset({"fp128", "x86_fp80", "ppc_fp128"})
_EMISSION_KIND = ir_line(
    "!`number:number` = distinct !DICompileUnit(`fields:some` emissionKind: `word`"
)
# The first architecture with the instruction `redux`.
_REDUX_SM = 80
# PTX ISA 9.0, 9.7.4.4 (fma of half precision): "fma.rn.bf16 requires sm_80 or higher".
_BFLOAT_FMA_SM = 80


class DeviceCodegen(Struct, frozen=True):
    """Code generation options of one target: architecture, PTX ISA (83 is 8.3), optimization level, debug.

    The called functions of `libraries` are linked and made internal. `arguments` are passed to clang,
    `ptxas_arguments` to ptxas.
    """

    arch: str
    ptx_isa: int
    opt_level: int
    debug: bool = False
    libraries: tuple[Path, ...] = ()
    arguments: tuple[str, ...] = ()
    ptxas_arguments: tuple[str, ...] = ()


def nvptx_device_ir(
    ll_text: str,
    *,
    kernels: Collection[str],
    llvm_major: int,
    keeps_functions: bool = False,
    flushes_subnormals: bool = False,
) -> str:
    """Prepare a device module for the NVPTX back end of an LLVM release.

    This sets the triple, the data layout, and the calling convention of kernels, which every release
    reads. Everything else becomes internal, so that equal names in two modules do not collide. With
    `keeps_functions`, external functions stay external, for other files. Dynamic workgroup memory becomes
    `.extern .shared`; the launch determines its size. Debug information is reduced to line tables, as
    with nvcc's -lineinfo.
    """
    text = without_barrier_places(concealed(ll_text))
    if flushes_subnormals:
        text = with_flushed_subnormals(text)
    triple, layout = _target(llvm_major)
    text = with_target(text, triple, layout)
    if llvm_major <= _table()["signed_truth"]["until"]:
        text = signed_conversion.with_known_conversions(text)
    copies = has_bulk_copies(ll_text)
    text = with_dynamic_shared(text, has_bulk_copies=copies)
    text = with_alignment(text, has_bulk_copies=copies)
    # Any other kind emits `.target debug`, which ptxas does not optimize. There are only line tables anyway.
    text = _EMISSION_KIND.sub(
        r"!\g<number> = distinct !DICompileUnit(\g<fields> emissionKind: DebugDirectivesOnly", text
    )
    text = internalized(text, kernels, convention="ptx_kernel", keeps_functions=keeps_functions)
    made = revealed(text)
    _check_parameters(made)
    return made


def _check_parameters(ll_text: str) -> None:
    """Raise ParameterTypeError for a parameter type that PTX does not have; the back end emits it anyway, or crashes."""
    for kernel, types in kernel_signatures(ll_text).items():
        for kind in types:
            if kind in _UNKNOWN or (_INTEGER.fullmatch(kind) and kind not in _INTEGERS):
                hint = "pass a wider integer, of 8, 16, 32, 64 or 128 bits, or f64"
                raise ParameterTypeError(kernel, kind, "which PTX does not have", hint=hint)


def with_flushed_subnormals(ll_text: str) -> str:
    """Make a device module flush subnormal f32 numbers to zero, including the code of libdevice."""
    text = with_flushing_functions(ll_text)
    number = next_metadata_number(text)
    flag = f'!{number} = !{{i32 4, !"nvvm-reflect-ftz", i32 1}}'
    return f"{text.rstrip()}\n!llvm.module.flags = !{{!{number}}}\n{flag}\n"


def with_file_times(ptx: str, seconds: int) -> str:
    """Add a time and a size to the `.file` directives of PTX.

    Otherwise ptxas -lineinfo reads the files, and its output depends on them. A size or time of 0 means
    that it is missing (CUDA 13.0).
    """
    mark = f", {max(seconds, 1)}, 1"
    lines = ptx.split("\n")
    for number, line in enumerate(lines):
        if line.lstrip().startswith(".file") and line.rstrip().endswith('"'):
            lines[number] = f"{line.rstrip()}{mark}"
    return "\n".join(lines)


def needs_libdevice(ll_text: str) -> bool:
    """Return whether the module calls NVIDIA's libdevice."""
    return LLVM_IR.search(_LIBDEVICE_CALL, ll_text) is not None


def links_library_into_ir(llvm_major: int) -> bool:
    """Return whether clang links libdevice into LLVM IR. Otherwise llvm-link must do it before."""
    since: int = _table()["links_library_into_ir"]["since"]
    return since <= llvm_major


def library_link_command(
    llvm: LlvmToolchain, source: Path, output: Path, libraries: Sequence[Path]
) -> Command:
    """Return the command that links the called functions of libraries, and makes them internal."""
    flags = ("--only-needed", "--internalize", "--suppress-warnings")
    files = map(str, (source, *libraries))
    return Command((str(llvm.tool("llvm-link")), *flags, *files, "-o", str(output)))


def nvptx_assembly_command(
    llvm: LlvmToolchain, source: Path, output: Path, codegen: DeviceCodegen, libdevice: Path | None
) -> Command:
    """Return the command that compiles a device module to PTX.

    The called functions of `libdevice` are linked and made internal. Pass None if there are none.
    """
    flags = (*_target_flags(codegen), "-S", *codegen_arguments(Kind.CUDA, llvm.version.major))
    return _clang_command(llvm, flags, source, output, codegen, libdevice)


def nvptx_bitcode_command(
    llvm: LlvmToolchain, source: Path, output: Path, codegen: DeviceCodegen, libdevice: Path | None
) -> Command:
    """Return the command that optimizes a device module to bitcode, for code generation at link time."""
    passes = codegen_arguments(Kind.CUDA, llvm.version.major, is_bitcode=True)
    flags = (*_target_flags(codegen), "-c", "-emit-llvm", *passes)
    return _clang_command(llvm, flags, source, output, codegen, libdevice)


def nvptx_object_command(
    llvm: LlvmToolchain, source: Path, output: Path, codegen: DeviceCodegen, libdevice: Path | None
) -> Command:
    """Return the command that compiles a device module to a relocatable cubin, with the ptxas that clang finds."""
    flags = (*_target_flags(codegen), "-c", *codegen_arguments(Kind.CUDA, llvm.version.major))
    return _clang_command(llvm, flags, source, output, codegen, libdevice)


def cubin_command(
    cuda: CudaToolkit,
    source: Path,
    output: Path,
    codegen: DeviceCodegen,
    arguments: tuple[str, ...] = (),
    *,
    is_whole: bool = False,
) -> Command:
    """Return the command that assembles PTX to a cubin, with the user's `-Xptxas`.

    The cubin is relocatable, for a device link. With `is_whole` it is a linked cubin.

    Raises ToolchainError if the toolkit has no ptxas.
    """
    if cuda.ptxas is None:
        msg = f"the CUDA toolkit in {cuda.root} has no ptxas"
        raise ToolchainError(msg, hint="install the nvcc component of the CUDA toolkit")
    debug = ("-lineinfo",) if codegen.debug else ()
    own = (*codegen.ptxas_arguments, *arguments)
    form = () if is_whole else ("-c",)
    flags = (f"-arch={codegen.arch}", *form, f"-O{codegen.opt_level}", *debug, *own)
    return Command((str(cuda.ptxas), *flags, str(source), "-o", str(output)))


@table_cache
def _table() -> dict[str, Any]:
    return with_learned("nvptx_layout", load_table("mlir_offload.translate", "nvptx_layout"))


@table_cache
def _target(llvm_major: int) -> tuple[str, str]:
    table = _table()
    rows = [row["layout"] for row in table["layouts"] if row["since"] <= llvm_major]
    return table["triple"], rows[-1]


def _target_flags(codegen: DeviceCodegen) -> tuple[str, ...]:
    # -nogpulib: otherwise clang links libdevice into every module, and fails if it finds no CUDA.
    # --cuda-feature: otherwise clang selects the PTX ISA of the CUDA that it finds.
    feature = f"--cuda-feature=+ptx{codegen.ptx_isa}"
    return (f"-march={codegen.arch}", f"-O{codegen.opt_level}", "-nogpulib", feature)


def _clang_command(
    llvm: LlvmToolchain,
    flags: tuple[str, ...],
    source: Path,
    output: Path,
    codegen: DeviceCodegen,
    libdevice: Path | None,
) -> Command:
    # libdevice is last, because libraries of the user may call it.
    libraries = (*codegen.libraries, *((libdevice,) if libdevice else ()))
    library = tuple(
        word for path in libraries for word in ("-Xclang", LINK_LIBRARY, "-Xclang", str(path))
    )
    triple = _target(llvm.version.major)[0]
    head = (str(llvm.tool("clang")), f"--target={triple}", "-x", "ir")
    quiet = ("-Wno-unknown-cuda-version", "-Wno-override-module")
    arguments = (*library, *codegen.arguments)
    return Command((*head, *flags, *quiet, *arguments, str(source), "-o", str(output)))


class _Cuda(KindLowering):
    name = Kind.CUDA
    target_dialect = "nvvm"
    # collect-compiler-diagnostics (since 23) only stores the messages of ptxas with the object.
    target_flags = ("fast", "ftz", "collect-compiler-diagnostics")
    other_vendor = OtherVendor(
        ir_line("`define|declare` `some``mark:(``amdgpu_kernel |@llvm.amdgcn.``dotted?``)`"),
        "AMD GPUs",
        "convert-gpu-to-nvvm",
    )

    def has_bfloat_fma(self, arch: str, /) -> bool:
        """Return whether the GPU has `fma.rn.bf16`. For other GPUs LLVM 19 and 22 compute it in f32."""
        return sm_number(arch) >= _BFLOAT_FMA_SM

    def lowering(self, needs: Collection[str], arch: str, /) -> DeviceLowering:
        """Return the lowering variant: with `redux` if the module and the GPU support it."""
        return DeviceLowering(redux="redux" in needs and sm_number(arch) >= _REDUX_SM)


KIND = _Cuda()
