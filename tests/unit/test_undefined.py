"""Undefined device functions in a link: the file that calls them, and the device."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.link_contents import contents, image

from mlir_offload.driver.link.error import diagnose_link
from mlir_offload.driver.message.journal import ToolRun
from mlir_offload.offload.link.objects import ObjectContents
from mlir_offload.toolchain.errors import CompatibilityError, MlirOffloadError
from mlir_offload.toolchain.process import Command, Completed

CALLER = "float twice(float); float k(float x) { return twice(x); }"
CALLEE = "float twice(float x) { return 2 * x; }"
CPU_CALLER = 'float t(float) __asm__("mo.device.twice"); float k(float x) { return t(x); }'
LLD = "ld.lld: error: undefined symbol: twice\n>>> referenced by x.o\n"
NVLINK = "nvlink error   : Undefined reference to 'twice' in '/tmp/k.cubin'\n"
LD = "LLVMDialectModule:(.text+0xbd): undefined reference to `mo.device.twice'\n"

pytestmark = pytest.mark.llvm(22)


def compiled(
    folder: Path, name: str, source: str, archs: tuple[str, ...], *form: str
) -> ObjectContents:
    images = []
    for arch in archs:
        triple = "amdgcn-amd-amdhsa" if arch else "x86_64-pc-linux-gnu"
        target = (f"--target={triple}", *((f"-mcpu={arch}", "-nogpulib") if arch else ()))
        output = folder / f"{name}.{arch}"
        argv = ["/usr/lib/llvm-22/bin/clang", "-x", "c", "-", "-c", *target, *form, "-o", output]
        subprocess.run(argv, input=source, text=True, check=True)
        kind = "hip" if arch else "openmp"
        images.append(image(output.read_bytes(), arch, kind=kind, triple=triple))
    return contents(name, images=tuple(images))


def diagnosed(inputs: list[ObjectContents], stderr: str) -> MlirOffloadError:
    failed = Completed(Command(("clang", "-o", "app")), 1, "", stderr)
    return diagnose_link((), inputs, ToolRun(failed, Path("/work"), {}))


@pytest.mark.parametrize("form", [("-emit-llvm",), ()], ids=["bitcode", "object"])
@pytest.mark.parametrize("stderr", [LLD, NVLINK])
def test_the_file_and_the_gpu_are_named(stderr: str, form: tuple[str, ...], tmp_path: Path) -> None:
    caller = compiled(tmp_path, "caller.o", CALLER, ("gfx90a", "gfx1100"), *form)
    callee = compiled(tmp_path, "callee.o", CALLEE, ("gfx90a",), *form)
    error = diagnosed([callee, caller], stderr)

    assert error.message == "no file has the device function 'twice' for gfx1100"
    assert error.location == "caller.o"
    assert "-fgpu-rdc" in error.hint
    assert "convergent" not in error.hint


def test_for_the_cpu_the_error_tells_what_a_caller_has_to_declare(tmp_path: Path) -> None:
    error = diagnosed([compiled(tmp_path, "caller.o", CPU_CALLER, ("",))], LD)

    assert error.message == "no file has the device function 'twice' for the CPU"
    assert "convergent" in error.hint


def test_an_undefined_function_of_the_host_is_the_linkers_to_tell(tmp_path: Path) -> None:
    caller = compiled(tmp_path, "caller.o", CALLER, ("gfx90a",))
    callee = compiled(tmp_path, "callee.o", CALLEE, ("gfx90a",))
    assert "undefined symbol 'twice'" in diagnosed([caller, callee], LLD).message


def test_an_object_of_gccs_link_time_optimisation_is_named(tmp_path: Path) -> None:
    source, made = tmp_path / "m.c", tmp_path / "m.o"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-flto", "-c", source, "-o", made], check=True)
    failed = Completed(Command(("clang", str(made))), 1, "", "error: undefined symbol: main")
    error = diagnose_link((), [], ToolRun(failed, tmp_path, {}))
    assert isinstance(error, CompatibilityError)
    assert error.message.startswith(f"{made} contains only the intermediate code of GCC")
    assert "-ffat-lto-objects" in error.hint
