"""Objects that LLVM writes in this process, and links of them with recorded tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest
from llvmlite import binding
from support.device_image import DeviceImage, image_kind_of, serialize_binary
from support.recorded import RecordedTools

from mlir_offload.driver import cli
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.host.embed import HostKernel, embed_offload_data
from mlir_offload.toolchain.target import (
    HOST,
    NVPTX_TRIPLE,
    SPIRV_TRIPLE,
    Kind,
    Target,
    host_triple,
)
from mlir_offload.translate.kind.cuda import nvptx_device_ir

NVIDIA = Target(Kind.CUDA, NVPTX_TRIPLE, "sm_90")
CPU = Target(Kind.OPENMP, host_triple(), HOST)
SPIRV = Target(Kind.SYCL, SPIRV_TRIPLE, "spirv64")
NOTHING: Mapping[str, str] = MappingProxyType({})
LINKED = {'".llvm.offloading"': '".llvm.offloading.relocatable"'}
_KERNEL = "define ptx_kernel void @{name}(ptr %p) {{\n  store i32 {value}, ptr %p\n  ret void\n}}\n"


def device_code(names: Sequence[str], value: int) -> bytes:
    kernels = "".join(_KERNEL.format(name=name, value=value) for name in names)
    text = nvptx_device_ir(kernels, kernels=names, llvm_major=22)
    code: bytes = binding.parse_assembly(text).as_bitcode()
    return code


def calling_code(target: Target, names: Sequence[str], called: str, parameters: str) -> bytes:
    """Return bitcode for the CPU or for SPIR-V, whose kernels call a function that nothing defines."""
    convention = "spir_kernel " if target == SPIRV else ""
    kernels = "".join(
        f"define {convention}void @{name}({parameters}) {{\n  call void @{called}()\n  ret void\n}}\n"
        for name in names
    )
    text = f'target triple = "{target.triple}"\n{kernels}declare void @{called}()\n'
    code: bytes = binding.parse_assembly(text).as_bitcode()
    return code


def make_object(  # noqa: PLR0913 (what differs between objects)
    name: str,
    kernels: Sequence[str],
    *,
    value: int = 1,
    major: int = 22,
    more: str = "",
    replaced: Mapping[str, str] = NOTHING,
    target: Target = NVIDIA,
    calls: str = "",
    parameters: str = "ptr %p",
) -> str:
    """Write an object, or host bitcode, that registers kernels for a device; return its name.

    `more` is further host code, and `replaced` is replaced in all of it. Kernels for other devices than NVIDIA GPUs
    have the `parameters`, and call the function `calls`.
    """
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    abi, kind = load_abi(major), target.kind
    code = device_code(kernels, value)
    if target.kind is not Kind.CUDA:
        code = calling_code(target, kernels, calls, parameters)
    images = [DeviceImage(target, code, image_kind_of(code))] if kernels else []
    text = embed_offload_data(
        f"define void @use_{Path(name).stem}() {{\n  ret void\n}}\n{more}",
        kernels=[HostKernel(kernel, ("ptr",)) for kernel in kernels],
        kinds=[kind],
        binary=serialize_binary(images, abi),
        abis=(abi,),
    )
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    host = binding.parse_assembly(text)
    machine = binding.Target.from_default_triple().create_target_machine(reloc="pic")
    host.triple, host.data_layout = machine.triple, str(machine.target_data)
    is_bitcode = name.endswith(".bc")
    Path(name).write_bytes(host.as_bitcode() if is_bitcode else machine.emit_object(host))
    return name


def link(tools: RecordedTools, *words: str, major: int = 22) -> int:
    places = (f"--llvm={tools.root}/llvm-{major}", f"--cuda-path={tools.root}/cuda")
    return cli._guarded(("-j2", *places, *words))


def make_library(name: str, *objects: str) -> str:
    """Write a static library of objects."""
    data = b"!<arch>\n"
    for item in objects:
        content = Path(item).read_bytes()
        head = f"{item + '/':<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(content):<10}`\n"
        data += head.encode() + content + b"\n" * (len(content) % 2)
    Path(name).write_bytes(data)
    return name


def shown(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str], *words: str, **more: int
) -> str:
    """Return the steps of a link, without the places of this machine."""
    status = link(tools, *words, "-o", "program", "-###", "-save-temps=temps", **more)
    said = capsys.readouterr().err
    assert status == 0, said
    return said.replace(f"{Path.cwd()}/", "").replace(f"{tools.root}/", "")


def last_link(said: str) -> str:
    """Return the command that links the program."""
    (line,) = [line for line in said.splitlines() if line.endswith(" -o temps/linked")]
    return line


def calling(function: str) -> str:
    """Return host code that calls a function of another file."""
    return f"declare void @{function}()\ndefine void @g() {{\n  call void @{function}()\n  ret void\n}}\n"
