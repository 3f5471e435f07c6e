"""Copies and barriers that threads wait for later, on the CPU: every form compiles, and what cannot go on ends the program."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlir_offload.offload.runtime import runtime_include_directory
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.process import Command, ProcessRunner, run_checked
from mlir_offload.toolchain.tool import ToolVersion
from mlir_offload.translate.cpu.module import (
    KernelMode,
    cpu_device_ir,
    cpu_image_command,
    cpu_runtime_command,
)

PREFIX = Path("/usr/lib/llvm-22")
INPUTS = Path(__file__).parent / "inputs"
LLVM = LlvmToolchain(PREFIX, ToolVersion(22, 1, 0), (("clang", PREFIX / "bin" / "clang"),))
SHARED = "ptr addrspace(3)"
WAIT = (
    "{\\0A\\09.reg .pred       P1; \\0A\\09LAB_WAIT: \\0A\\09mbarrier.try_wait.parity.shared.b64 P1, [$0], $1, $2; "
    "\\0A\\09@P1 bra.uni DONE; \\0A\\09bra.uni     LAB_WAIT; \\0A\\09DONE: \\0A\\09}"
)
pytestmark = pytest.mark.llvm(22)


Form = tuple[str, str, tuple[str, ...]]
"""Result, name and parameters of an intrinsic, as releases 19 and 22 declare it."""


def _copies() -> Iterator[Form]:
    for size in (4, 8, 16):
        for cache in ("ca", "cg") if size == 16 else ("ca",):
            name = f"cp.async.{cache}.shared.global.{size}"
            yield "void", name, (SHARED, "ptr addrspace(1)")
            yield "void", f"{name}.s", (SHARED, "ptr addrspace(1)", "i32")
    for name, operands in {"commit.group": (), "wait.all": (), "wait.group": ("i32",)}.items():
        yield "void", f"cp.async.{name}", operands
    for noinc in ("", ".noinc"):
        yield "void", f"cp.async.mbarrier.arrive{noinc}.shared", (SHARED,)


def _arrivals() -> Iterator[Form]:
    for drop in ("", ".drop"):
        yield "i64", f"mbarrier.arrive{drop}.shared", (SHARED,)
        yield "i64", f"mbarrier.arrive{drop}.noComplete.shared", (SHARED, "i32")
        for scope, space in (("cta", "cta"), ("cluster", "cta"), ("cluster", "cluster")):
            result = "i64" if space == "cta" else "void"
            for expect in ("", ".expect.tx"):
                name = f"mbarrier.arrive{drop}{expect}.relaxed.scope.{scope}.space.{space}"
                yield result, name, (SHARED, "i32")
    for change in ("expect", "complete"):
        yield "void", f"mbarrier.{change}.tx.scope.cta.space.cta", (SHARED, "i32")


def _waits() -> Iterator[Form]:
    yield "i1", "mbarrier.test.wait.shared", (SHARED, "i64")
    for test, limit in (("test", ()), ("try", ()), ("try", ("i32",))):
        for parity, state in (("", "i64"), (".parity", "i32")):
            name = f"mbarrier.{test}.wait{parity}{'.tl' if limit else ''}.scope.cta.space.cta"
            yield "i1", name, (SHARED, state, *limit)
    yield "i32", "mbarrier.pending.count", ("i64",)
    yield "void", "mbarrier.inval.shared", (SHARED,)


def _of_sm_90() -> Iterator[Form]:
    for rank in range(1, 6):
        place, ranks = "ptr addrspace(7)", ("i32",) * rank
        rest = ("i16", "i64", "i1", "i1", "i32")
        yield (
            "void",
            f"cp.async.bulk.tensor.g2s.tile.{rank}d",
            (place, SHARED, "ptr", *ranks, *rest),
        )
        yield "void", f"cp.async.bulk.tensor.s2g.tile.{rank}d", (SHARED, "ptr", *ranks, "i64", "i1")
    yield "void", "prefetch.tensormap.p0", ("ptr",)
    for name, operands in {"fence": (), "commit_group": (), "wait_group": ("i64",)}.items():
        yield "void", f"wgmma.{name}.sync.aligned", operands


def _fences() -> Iterator[Form]:
    for scope in ("cta", "cluster", "gpu", "sys"):
        name = "fence.proxy.tensormap_generic"
        yield "void", f"{name}.acquire.{scope}", ("ptr", "i32")
        yield "void", f"{name}.release.{scope}", ()
    for name in ("mbarrier_init.release.cluster", "sc.cluster", "proxy.alias", "proxy.async"):
        yield "void", f"fence.{name}", ()


def _module(*bodies: tuple[str, str], declared: str = "") -> str:
    kernels = (
        f"define ptx_kernel void @{name}(ptr %in, ptr %out) {{\n{body}\n  ret void\n}}"
        for name, body in bodies
    )
    head = 'target triple = "nvptx64-nvidia-cuda"\n@bar = private addrspace(3) global i64 undef'
    init = f"declare void @llvm.nvvm.mbarrier.init.shared({SHARED}, i32)"
    return "\n".join((head, *kernels, init, declared))


def _compile(text: str, kernels: tuple[str, ...], folder: Path) -> Path:
    source = cpu_device_ir(text, kernels=kernels)
    final, runtime, made = folder / "final.ll", folder / "runtime.bc", folder / "image.o"
    final.write_text(source.text)
    run_checked(ProcessRunner(), cpu_runtime_command(LLVM, runtime))
    run_checked(ProcessRunner(), cpu_image_command(LLVM, final, runtime, made, opt_level=0))
    library = made.with_suffix(".so")
    argv = (str(PREFIX / "bin/clang"), "-shared", "-Wl,--no-undefined", str(made), "-lm", "-o")
    run_checked(ProcessRunner(), Command((*argv, str(library))))
    return library


def test_every_form_compiles(tmp_path: Path) -> None:
    forms = [*_copies(), *_arrivals(), *_waits(), *_of_sm_90(), *_fences()]
    calls, declared = [], []
    for number, (result, name, parameters) in enumerate(forms):
        given = f"%r{number} = " if result != "void" else ""
        operands = ", ".join(
            f"{type_} {'null' if type_.startswith('ptr') else '0'}" for type_ in parameters
        )
        calls.append(f"  {given}call {result} @llvm.nvvm.{name}({operands})")
        declared.append(f"declare {result} @llvm.nvvm.{name}({', '.join(parameters)})")
    text = _module(("all", "\n".join(calls)), declared="\n".join(declared))
    _compile(text, ("all",), tmp_path)


def test_copies_alone_need_no_stack_for_each_thread() -> None:
    name = "llvm.nvvm.cp.async.ca.shared.global.4"
    call = f"  call void @{name}({SHARED} @bar, ptr addrspace(1) null)"
    declared = f"declare void @{name}({SHARED}, ptr addrspace(1))"
    source = cpu_device_ir(_module(("k", call), declared=declared), kernels=("k",))
    assert source.kernels[0].mode is KernelMode.LOOPS


STUCK = {
    "waits": (
        f'  call void asm sideeffect "{WAIT}", "r,n,r"({SHARED} @bar, i32 0, i32 1000)',
        "threads wait at an mbarrier for a phase that no thread can complete",
    ),
    "arrives": (
        f"  %s = call i64 @llvm.nvvm.mbarrier.arrive.noComplete.shared({SHARED} @bar, i32 3)",
        "more threads arrive at an mbarrier than it was initialized with",
    ),
    "copies": (
        f"  call void @llvm.nvvm.cp.async.bulk.tensor.s2g.tile.1d({SHARED} @bar, ptr %in, i32 0, i64 0, i1 0)",
        "a copy by a tensor map of another rank, or that the program did not encode",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def stuck(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a launcher, and an image with kernels that cannot go on."""
    folder = tmp_path_factory.mktemp("stuck")
    init = f"  call void @llvm.nvvm.mbarrier.init.shared({SHARED} @bar, i32 2)\n"
    declared = (
        f"declare i64 @llvm.nvvm.mbarrier.arrive.noComplete.shared({SHARED}, i32)\n"
        f"declare void @llvm.nvvm.cp.async.bulk.tensor.s2g.tile.1d({SHARED}, ptr, i32, i64, i1)"
    )
    text = _module(*((name, init + body) for name, (body, _) in STUCK.items()), declared=declared)
    launcher, runtime = folder / "launcher", runtime_include_directory()
    source = str(INPUTS / "cpu_device_launcher.c")
    compiler = (str(PREFIX / "bin/clang"), f"-I{runtime}", source, "-o", str(launcher))
    subprocess.run(compiler, check=True)
    return launcher, _compile(text, tuple(STUCK), folder)


@pytest.mark.parametrize("name", STUCK)
def test_what_cannot_go_on_ends_the_program(stuck: tuple[Path, Path], name: str) -> None:
    launcher, image = stuck
    argv = [str(launcher), str(image), name, "40"]
    ran = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=600)
    assert (ran.returncode, ran.stderr) == (3, f"{name}: {STUCK[name][1]}\n")
