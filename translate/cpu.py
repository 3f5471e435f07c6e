"""Device code for the CPU: NVVM IR text in, an ELF object that exports the kernels out.

The steps, each text to text or files to files:
1. `cpu_device_ir`: work-item context in place of NVVM intrinsics, code around each kernel.
2. `cpu_prepare_command` and `finish_cpu_ir`, only where `CpuDeviceSource.needs_prepare`: kernels
   with barriers, inlined and in memory form, are split into regions between the barriers.
3. `cpu_runtime_command`: the device runtime as bitcode, the same for all images.
4. `cpu_image_command`: one compiler call; the runtime is linked in and made local.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.process import Command
from mlir_offload.translate.cpu_intrinsics import (
    ITEM_TYPE,
    RUNTIME_DECLARATIONS,
    Sync,
    libm_attributes,
)
from mlir_offload.translate.cpu_launch import (
    KERNEL_TYPE,
    KernelMode,
    Metadata,
    fiber_definition,
    item_name,
    launch_definition,
    loop_definition,
)
from mlir_offload.translate.cpu_rewrite import RewrittenModule, rewrite_functions
from mlir_offload.translate.cpu_text import DeviceModule, Function, parse_device_module, symbol

_PASSES = "always-inline,sroa,early-cse,simplifycfg,instnamer,reg2mem"
_GLOBAL_LINKAGE = re.compile(
    r"^(?P<name>@\S+ = )(?:(?:private|internal|linkonce_odr|linkonce|weak_odr|weak|common|dso_local|"
    r"hidden|protected|unnamed_addr|local_unnamed_addr) )*"
)
_TARGET_ATTRIBUTES = re.compile(r'"target-(?:cpu|features)"="[^"]*" ?')
_INLINE_HINDRANCES = re.compile(r"\b(?:noinline|optnone|convergent) ")
_SUBPROGRAM = re.compile(r"!dbg (!\d+)$")


class ToolPaths(Protocol):
    """Where the programs of an LLVM release are."""

    def tool(self, name: str) -> Path:
        """Return the path of a program of this release."""


@dataclass(frozen=True, slots=True)
class CpuKernel:
    """A kernel of the image and how its work-items are run."""

    name: str
    mode: KernelMode


@dataclass(frozen=True, slots=True)
class CpuDeviceSource:
    """LLVM IR for the CPU; where `needs_prepare`, not yet whole (see `finish_cpu_ir`)."""

    text: str
    kernels: tuple[CpuKernel, ...]
    shared_bytes: int
    needs_prepare: bool = False


def cpu_device_ir(
    ll_text: str, *, kernels: Sequence[str], attributes: Sequence[str] = ()
) -> CpuDeviceSource:
    """Rewrite NVVM IR, as mlir-translate prints it, for the CPU.

    `attributes` go to every device function (`sanitize_address`, for example: the compiler adds
    it only where it compiles a source language). Raises SourceError at operations that the CPU
    does not have and for kernels that the module does not define.
    """
    module = parse_device_module(ll_text)
    missing = sorted(set(kernels) - {function.name for function in module.functions})
    if missing:
        msg = f"the device module defines no kernel {missing[0]!r}"
        raise SourceError(msg)
    rewritten = rewrite_functions(module)
    modes = tuple(CpuKernel(name, _mode(rewritten.sync_of(name))) for name in kernels)
    functions = _name_items(rewritten, frozenset(kernels), tuple(attributes))
    parts = [
        ITEM_TYPE,
        KERNEL_TYPE,
        *module.types,
        *_plain_globals(module, rewritten),
        RUNTIME_DECLARATIONS,
        *_declarations(module, rewritten),
        *(r.definition for r in rewritten.replacements if r.definition),
        *_shared_definitions(rewritten),
        *(function.render() for function in functions.values()),
        *_kernel_definitions(module, modes, functions, rewritten),
        *_tail(module),
    ]
    return CpuDeviceSource("\n".join(parts) + "\n", modes, rewritten.layout.size_bytes)


def _mode(sync: Sync) -> KernelMode:
    return KernelMode.LOOPS if sync is Sync.NONE else KernelMode.FIBERS


def _name_items(
    rewritten: RewrittenModule, kernels: frozenset[str], attributes: tuple[str, ...]
) -> dict[str, Function]:
    """Free the kernels' names for the exported functions; ask for everything to be inlined."""
    renamed = {symbol(name): symbol(item_name(name)) for name in kernels}
    functions: dict[str, Function] = {}
    for function in rewritten.functions:
        head, body = function.head, function.body
        for old, new in renamed.items():
            reference = re.compile(re.escape(old) + r"(?![-\w.$])")
            head = reference.sub(new, head)
            body = tuple(reference.sub(new, line) if old in line else line for line in body)
        name = item_name(function.name) if function.name in kernels else function.name
        marked = replace(function, name=name, head=_with_attributes(head, attributes), body=body)
        functions[name] = marked
    return functions


def _with_attributes(head: str, attributes: tuple[str, ...]) -> str:
    words = " ".join(("alwaysinline", "nounwind", *attributes))
    bare, separator, debug = head.partition(" !dbg ")
    return f"{bare} {words}{separator}{debug}"


def _plain_globals(module: DeviceModule, rewritten: RewrittenModule) -> list[str]:
    lines = []
    for name, line in module.globals:
        if name in rewritten.layout.names:
            continue
        if " external " in line.split("=", 1)[1][:40]:
            msg = f"the device global {name!r} is declared but not defined in this module"
            raise SourceError(msg, hint="define it in the gpu.module that uses it")
        text, quote, rest = line.partition(' c"')
        lines.append(
            _GLOBAL_LINKAGE.sub(r"\g<name>internal ", re.sub(r" addrspace\(\d+\)", "", text)) + quote + rest
        )
    return lines


def _declarations(module: DeviceModule, rewritten: RewrittenModule) -> list[str]:
    """Declare what comes from libm and libc, with the types of the source."""
    from mlir_offload.translate.cpu_intrinsics import find_replacement

    known = {r.name for r in rewritten.replacements if not r.definition}
    lines: dict[str, str] = {}
    for name, line in module.declarations:
        found = None if name.startswith("llvm.") else find_replacement(name)
        if found is None or found.name not in known or found.name.startswith("mo_cpu_"):
            continue
        end = line.index(")", line.index("@")) + 1
        head = re.sub(r"!dbg !\d+ ", "", line[:end]).replace(symbol(name), symbol(found.name))
        lines[found.name] = f"{head} {libm_attributes(found.name)}".rstrip()
    return list(lines.values())


def _shared_definitions(rewritten: RewrittenModule) -> list[str]:
    if not rewritten.layout.names:
        return []
    return [
        f"define internal ptr @mo.{name}_shared(ptr %c) alwaysinline nounwind {{\n"
        f"  %p = getelementptr inbounds %mo.item, ptr %c, i32 0, i32 {field}\n"
        "  %v = load ptr, ptr %p, align 8\n  ret ptr %v\n}"
        for name, field in (("static", 5), ("dynamic", 6))
    ]


def _kernel_definitions(
    module: DeviceModule,
    kernels: tuple[CpuKernel, ...],
    functions: dict[str, Function],
    rewritten: RewrittenModule,
) -> list[str]:
    number = module.next_metadata_id()
    has_arrays = any(" alloca " in line for f in functions.values() for line in f.body)
    nodes = [
        f"!{number} = distinct !{{}}",
        f"!{number + 1} = distinct !{{!{number + 1}, !{number + 2}, !{number + 3}}}",
        f'!{number + 2} = !{{!"llvm.loop.parallel_accesses", !{number}}}',
        f'!{number + 3} = !{{!"llvm.loop.vectorize.enable", i1 true}}',
    ]
    vector = Metadata() if has_arrays else Metadata(
        access_group=f", !llvm.access.group !{number}", loop=f", !llvm.loop !{number + 1}"
    )
    number += 4
    texts: list[str] = []
    for kernel in kernels:
        item = functions[item_name(kernel.name)]
        metadata, debug = _debug_metadata(module, item, number)
        number += len(debug)
        nodes += debug
        if kernel.mode is KernelMode.FIBERS:
            texts.append(fiber_definition(kernel.name, item, metadata))
        else:
            marked = replace(vector, subprogram=metadata.subprogram, location=metadata.location)
            texts.append(loop_definition(kernel.name, item, marked))
        texts.append(launch_definition(
            kernel.name, kernel.mode, shared_bytes=rewritten.layout.size_bytes, state_bytes=0
        ))
    return [*texts, *nodes]


def _debug_metadata(
    module: DeviceModule, item: Function, number: int
) -> tuple[Metadata, list[str]]:
    """Give the code around a kernel the kernel's place in the source.

    Without one of its own the inlined body would lose its lines.
    """
    match = _SUBPROGRAM.search(item.head)
    line = next((t for t in module.tail if match and t.startswith(f"{match[1]} = ")), None)
    if line is None:
        return Metadata(), []
    at = re.search(r"\bline: (\d+)", line)
    node = re.sub(r", linkageName: \"[^\"]*\"", "", line.split(" = ", 1)[1])
    return Metadata(f" !dbg !{number}", f", !dbg !{number + 1}"), [
        f"!{number} = {node}",
        f"!{number + 1} = !DILocation(line: {at[1] if at else 0}, scope: !{number})",
    ]


def _tail(module: DeviceModule) -> list[str]:
    """Keep metadata and attributes; `nvvm.annotations` would be upgraded to `ptx_kernel`."""
    lines = []
    for line in module.tail:
        if line.startswith(("!nvvm.annotations", "!nvvmir.version")):
            continue
        if line.startswith("attributes "):
            line = _INLINE_HINDRANCES.sub("", _TARGET_ATTRIBUTES.sub("", line))  # noqa: PLW2901
        lines.append(line)
    return lines


def cpu_runtime_command(
    llvm: ToolPaths, output: Path, *, opt_level: int = 2, march: str = "native", extra: Sequence[str] = ()
) -> Command:
    """Compile the device runtime to bitcode; one file serves every image of a build."""
    source = str(files("mlir_offload.offload").joinpath("runtime", "cpu_device.c"))
    return Command((
        str(llvm.tool("clang")), "-c", "-emit-llvm", f"-O{max(1, opt_level)}", *_march(march), "-fPIC",
        *extra, source, "-o", str(output),
    ))


def cpu_image_command(
    llvm: ToolPaths,
    source: Path,
    runtime: Path,
    output: Path,
    *,
    opt_level: int = 2,
    march: str = "native",
    extra: Sequence[str] = (),
) -> Command:
    """Compile a finished module to a relocatable ELF object that exports its kernels only.

    `march` is `native` by default because the image runs where it was built in the common case, and
    vector width decides the speed. A program that will be moved wants a name such as `x86-64-v3`.
    """
    return Command((
        str(llvm.tool("clang")), "-c", f"-O{opt_level}", *_march(march), "-fPIC", "-fveclib=libmvec",
        "-Wno-override-module", "-Wno-pass-failed",
        "-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(runtime),
        *extra, str(source), "-o", str(output),
    ))


def _march(march: str) -> tuple[str, ...]:
    return (f"-march={march}",) if march else ()
