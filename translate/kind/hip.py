"""Lowering for AMD GPUs, and compilation of their LLVM IR to relocatable device code."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.ir_syntax import LLVM_IR, concealed, next_metadata_number, revealed
from mlir_offload.toolchain.amdgpu import (
    DEFAULT_LIMIT,
    GIVEN_LIMIT,
    amdgpu_layout,
    load_code_objects,
    lowering_chip,
    wavefront_size,
)
from mlir_offload.toolchain.pattern import ir_line, ir_pattern
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import AMDGPU_TRIPLE, Kind
from mlir_offload.translate.device_ir import (
    LINK_LIBRARY,
    codegen_arguments,
    internalized,
    with_dynamic_shared,
    with_flushing_functions,
    with_target,
)
from mlir_offload.translate.kind_lowering import (
    ROCDL,
    DeviceForm,
    DeviceLowering,
    KindLowering,
    OtherVendor,
)

if TYPE_CHECKING:
    from pathlib import Path

    from mlir_offload.toolchain.llvm import LlvmToolchain

_LIBRARY_CALL = ir_pattern("@__`ocml|ockl|oclc`_`word`")
# The ocml of ROCm 5.2 returns NaN for the sine of every finite f16.
_HALF_SINE, _SINE = "@__ocml_sin_f16", "@__ocml_sin_f32"
_OWN_SINE = "@mo.sin_f16"
_SINE_IN_SINGLE = f"""
define internal half {_OWN_SINE}(half %x) alwaysinline {{
  %wide = fpext half %x to float
  %sine = call float {_SINE}(float %wide)
  %half = fptrunc float %sine to half
  ret half %half
}}
"""
_ANY_LIMIT = "1,1024"
_LIMIT = '"amdgpu-flat-work-group-size"="{}"'
_STACK = "addrspace(5)"
_ALLOCA = ir_line("  %`name:bare` = alloca `what:some``metadata:metadata``end`")
_COMPILERS = "!llvm.ident"
_FLAGS = ir_line("!llvm.module.flags = !{`flags:members`}`end`")


class AmdgpuCodegen(Struct, frozen=True):
    """Code generation options of one target: target ID (`gfx90a:xnack-`), optimization level, debug.

    The called functions of `libraries` are linked and made internal. `arguments` are passed to clang.
    """

    arch: str
    opt_level: int
    debug: bool = False
    libraries: tuple[Path, ...] = ()
    arguments: tuple[str, ...] = ()


def amdgpu_device_ir(
    ll_text: str,
    *,
    kernels: Collection[str],
    llvm_major: int,
    code_object: int,
    keeps_functions: bool = False,
    flushes_subnormals: bool = False,
) -> str:
    """Prepare a device module for the AMDGPU back end of an LLVM release.

    This sets the triple, the data layout, the code object version and the calling convention of
    kernels, moves stack variables to the private address space, and raises the default limit of threads per
    block to that of all GPUs. Everything else becomes internal; with `keeps_functions`, external functions stay
    external, for other files.
    """
    text = concealed(ll_text)
    if flushes_subnormals:
        text = with_flushing_functions(text)
    text = with_target(text, AMDGPU_TRIPLE, amdgpu_layout(llvm_major))
    text = with_dynamic_shared(text)
    text = text.replace(_LIMIT.format(DEFAULT_LIMIT), _LIMIT.format(_ANY_LIMIT))
    text = text.replace(_LIMIT.format(GIVEN_LIMIT), _LIMIT.format(DEFAULT_LIMIT))
    text = _ALLOCA.sub(_on_the_stack, text)
    text = _with_sine_in_single(text)
    text = internalized(text, kernels, convention="amdgpu_kernel", keeps_functions=keeps_functions)
    text = _with_module_flag(text, load_code_objects(llvm_major).flag, 100 * code_object)
    return revealed(_with_compiler(text, llvm_major))


def _with_sine_in_single(text: str) -> str:
    """Compute the sine of f16 in f32."""
    if f"{_HALF_SINE}(" not in text:
        return text
    declared = f"declare half {_HALF_SINE}("
    lines = (line for line in text.splitlines() if not line.startswith(declared))
    text = "\n".join(lines).replace(f"{_HALF_SINE}(", f"{_OWN_SINE}(")
    known = f"declare float {_SINE}("
    return f"{text}\n{_SINE_IN_SINGLE}{'' if known in text else f'{known}float)'}\n"


def needs_device_libraries(ll_text: str) -> bool:
    """Return whether the module calls ROCm's device libraries."""
    return LLVM_IR.search(_LIBRARY_CALL, ll_text) is not None


def amdgpu_image_command(
    llvm: LlvmToolchain,
    source: Path,
    output: Path,
    codegen: AmdgpuCodegen,
) -> Command:
    """Return the command that compiles a device module to bitcode or to a relocatable object.

    The extension of the output determines the format.
    """
    linked = tuple(
        word
        for library in codegen.libraries
        for word in ("-Xclang", LINK_LIBRARY, "-Xclang", str(library))
    )
    head = (str(llvm.tool("clang")), f"--target={AMDGPU_TRIPLE}", "-x", "ir", "-c")
    is_bitcode = output.suffix == ".bc"
    passes = codegen_arguments(Kind.HIP, llvm.version.major, is_bitcode=is_bitcode)
    form = ("-emit-llvm", *passes) if is_bitcode else passes
    debug = ("-g",) if codegen.debug else ()
    flags = (f"-mcpu={codegen.arch}", f"-O{codegen.opt_level}", "-nogpulib", "-Wno-override-module")
    arguments = (*debug, *linked, *codegen.arguments)
    return Command((*head, *form, *flags, *arguments, str(source), "-o", str(output)))


def _on_the_stack(match: re.Match[str]) -> str:
    name, what, metadata = match.group("name", "what", "metadata")
    if _STACK in what:
        return match[0]
    raw = f"%mo.stack.{name}"
    return (
        f"  {raw} = alloca {what.rstrip()}, {_STACK}{metadata}\n"
        f"  %{name} = addrspacecast ptr {_STACK} {raw} to ptr"
    )


def _with_compiler(text: str, llvm_major: int) -> str:
    """Add the compiler to the module. Otherwise the object contains only those of the linked libraries."""
    if _COMPILERS in text:
        return text
    number = next_metadata_number(text)
    return f'{text}\n{_COMPILERS} = !{{!{number}}}\n!{number} = !{{!"mlir-offload for LLVM {llvm_major}"}}\n'


def _with_module_flag(text: str, name: str, value: int) -> str:
    flag = ir_line(f'!`number` = !{{i32 `number`, !"{name}", i32 `value:number`')
    given = flag.search(text)
    if given is not None:
        # Bitcode of a gpu.binary already has the flag.
        return f"{text[: given.start('value')]}{value}{text[given.end() :]}"
    number = next_metadata_number(text)
    node = f'!{number} = !{{i32 1, !"{name}", i32 {value}}}\n'
    flags = _FLAGS.search(text)
    if flags is None:
        return f"{text}\n!llvm.module.flags = !{{!{number}}}\n{node}"
    listed = f"!llvm.module.flags = !{{{flags.group('flags')}, !{number}}}"
    return f"{text[: flags.start()]}{listed}{text[flags.end() :]}\n{node}"


class _Hip(KindLowering):
    name = Kind.HIP
    target_dialect = "rocdl"
    target_flags = (
        "daz",
        "fast",
        "finite_only",
        "no_wave64",
        "unsafe_math",
        "unsafe_sqrt",
        "wave64",
    )
    other_vendor = OtherVendor(
        ir_line("`define|declare` `some``mark:(``ptx_kernel |@llvm.nvvm.``dotted?``)`"),
        "NVIDIA GPUs",
        "convert-gpu-to-rocdl",
    )

    def form(self, arch: str, /) -> DeviceForm:
        """Return the form with the wavefront size of the GPU."""
        return DeviceForm(ROCDL, wavefront_size(arch))

    def has_bfloat_fma(self, _arch: str, /) -> bool:
        """Return False: LLVM 19 and 22 compute it in f32, even for gfx950."""
        return False

    def lowering(self, _needs: Collection[str], arch: str, /) -> DeviceLowering:
        """Return the lowering variant for the chip."""
        return DeviceLowering(chip=lowering_chip(arch))


KIND = _Hip()
