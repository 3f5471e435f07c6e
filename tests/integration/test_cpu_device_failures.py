"""Kernels on the CPU that fail, or that not all threads of a block run to the end."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from mlir_offload.toolchain.llvm import find_llvm_library
from mlir_offload.toolchain.process import Command, Completed, ProcessRunner, run_checked
from mlir_offload.toolchain.target import NVPTX_TRIPLE
from mlir_offload.translate.cpu.module import (
    KernelMode,
    cpu_collapse_command,
    cpu_device_ir,
    cpu_image_command,
    cpu_runtime_command,
    finish_cpu_ir,
)
from mlir_offload.translate.lower import unwrap_device
from mlir_offload.translate.mlir.module import parse_module

INPUTS = Path(__file__).parent / "inputs"
RUNTIME = Path(__file__).parents[2] / "offload" / "runtime"
PIPELINE = (
    "builtin.module(gpu.module(convert-scf-to-cf,expand-strided-metadata,convert-gpu-to-nvvm,"
    "convert-arith-to-llvm),convert-cf-to-llvm,reconcile-unrealized-casts,"
    "ensure-debug-info-scope-on-llvm-func)"
)


@dataclass(frozen=True, slots=True)
class Tools:
    """The programs of one release."""

    prefix: Path

    def tool(self, name: str) -> Path:
        return self.prefix / "bin" / name


def run(*argv: object) -> Completed:
    return run_checked(ProcessRunner(), Command(tuple(map(str, argv))))


@dataclass(frozen=True, slots=True)
class Image:
    """A shared image, a program that runs its kernels, and how their threads are run."""

    launcher: Path
    library: Path
    modes: dict[str, KernelMode]

    def launch(self, kernel: str, block: int) -> Completed:
        command = Command((str(self.launcher), str(self.library), kernel, str(block)))
        return ProcessRunner().run(command)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(False, id="fibers", marks=pytest.mark.llvm(22)),
        pytest.param(True, id="collapsed", marks=pytest.mark.llvm(22)),
    ],
)
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Image:
    prefix = Path("/usr/lib/llvm-22")
    llvm = Tools(prefix)
    work = tmp_path_factory.mktemp("failures")
    low, text = work / "low.mlir", work / "device.ll"
    options = ("--mlir-print-op-generic", "--mlir-print-debuginfo", f"--pass-pipeline={PIPELINE}")
    run(llvm.tool("mlir-opt"), *options, INPUTS / "cpu_device_failures.mlir", "-o", low)
    low.write_text(unwrap_device(parse_module(low.read_text()), NVPTX_TRIPLE, marks_barriers=True))
    run(llvm.tool("mlir-translate"), "--mlir-to-llvmir", low, "-o", text)
    kernels = ("asserts", "guarded", "votes", "parts", "leaves")
    done = cpu_device_ir(text.read_text(), kernels=kernels, for_collapse=request.param)
    before, after, final = (work / f"{name}.ll" for name in ("before", "after", "final"))
    if done.needs_collapse:
        library = find_llvm_library(prefix, 22)
        assert library is not None
        before.write_text(done.text)
        run(*cpu_collapse_command(library, before, after, kernels, "").argv)
        done = finish_cpu_ir(after.read_text(), done)
    final.write_text(done.text)
    runtime, made, library = work / "runtime.bc", work / "image.o", work / "image.so"
    run(*cpu_runtime_command(llvm, runtime).argv)
    run(*cpu_image_command(llvm, final, runtime, made, opt_level=1, extra=("-g",)).argv)
    run(llvm.tool("clang"), "-shared", "-Wl,--no-undefined", made, "-lm", "-o", library)
    launcher = work / "launcher"
    run(llvm.tool("clang"), f"-I{RUNTIME}", INPUTS / "cpu_device_launcher.c", "-o", launcher)
    return Image(launcher, library, {kernel.name: kernel.mode for kernel in done.kernels})


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("asserts", "data fits"),
        ("guarded", "fits before the barrier"),
        ("votes", "fits in the subgroup"),
    ],
)
def test_every_thread_that_fails_an_assertion_is_named(
    image: Image, kernel: str, message: str
) -> None:
    done = image.launch(kernel, 8)
    assert done.returncode == 3
    lines = done.stderr.splitlines()
    expected = [
        rf"\S*cpu_device_failures\.mlir:\d+: \(unknown\): block: \[{block},0,0\], "
        rf"thread: \[{thread},0,0\] Assertion `{message}` failed\."
        for block in range(2)
        for thread in (5, 6, 7)
    ]
    assert all(map(re.fullmatch, expected, sorted(lines[:-1])))
    assert lines[-1] == f"{kernel}: 6 threads failed an assertion"


def test_assertion_that_holds_lets_the_kernel_go_on(image: Image) -> None:
    assert image.launch("asserts", 5).returncode == 0


@pytest.mark.parametrize("size", [0, 1025, 70000])
def test_block_of_a_size_that_no_gpu_has_is_refused(image: Image, size: int) -> None:
    done = image.launch("asserts", size)
    assert done.returncode == 3
    assert f"block size {size} x 1 x 1: a block has 1 to 1024 threads" in done.stderr


@pytest.mark.parametrize("size", [5, 32])
def test_a_barrier_waits_only_for_threads_that_have_not_ended(image: Image, size: int) -> None:
    assert image.launch("parts", size).stdout == "5 5 5 5 5 5 6 7 "


def test_work_items_that_have_ended_are_not_waited_for(image: Image) -> None:
    done = image.launch("leaves", 32)
    assert done.returncode == 0
    # Two blocks, one after the other, turn the same six numbers round.
    assert done.stdout == "0 1 2 3 4 5 6 7 "


def test_line_numbers_of_the_source_reach_the_image(image: Image) -> None:
    lines = set()
    with image.library.open("rb") as stream:
        dwarf = ELFFile(stream).get_dwarf_info()
        for unit in dwarf.iter_CUs():
            program = dwarf.line_program_for_CU(unit)
            entries = program.get_entries() if program else []
            lines |= {entry.state.line for entry in entries if entry.state}
    assert {8, 9, 33, 39} <= lines


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--llvm=22",), id="collapsed"),
        pytest.param(("--llvm=19", "-O0", "-g"), id="fibers"),
    ],
)
def test_threads_that_wait_at_two_barriers_are_reported_with_both_lines(
    mlir_offload: list[str], tmp_path: Path, options: tuple[str, ...]
) -> None:
    source, program = INPUTS / "divergent_barrier.mlir", tmp_path / "program"
    run(*mlir_offload, *options, "--offload-arch=host", source, "-o", program)
    done = ProcessRunner().run(Command((str(program),)))
    assert done.returncode == 70
    first, second = f"{source}:16:7", f"{source}:19:7"
    wait = f"some threads wait at the gpu.barrier of {first} that others do not reach"
    assert f"block: [0,0,0] {wait}: they wait at that of {second}\n" in done.stderr


def _lacking() -> str:
    """Return a processor that this one cannot replace: none has both XOP and AVX512-FP16."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    return "sapphirerapids" if "xop" in flags else "bdver4"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("-O2",), id="O2"),
        pytest.param(("-O0", "-g"), id="debug"),
        pytest.param(("--no-libomptarget",), id="fallback"),
        pytest.param(("--llvm=19",), id="19"),
    ],
)
def test_kernels_for_another_processor_end_with_the_option_that_selects_it(
    mlir_offload: list[str], tmp_path: Path, options: tuple[str, ...]
) -> None:
    program, march = tmp_path / "program", f"-march={_lacking()}"
    source = INPUTS / "divergent_barrier.mlir"
    run(*mlir_offload, *options, march, "--offload-arch=host", source, "-o", program)
    done = ProcessRunner().run(Command((str(program),)))
    assert done.returncode == 70
    assert re.search(r"error: this processor lacks \w+, which the kernels for the CPU", done.stderr)
    assert "hint: compile them with -march=, for example -march=x86-64;" in done.stderr


def test_every_extension_that_clang_may_use_is_checked() -> None:
    checked = (RUNTIME / "cpu_features.c").read_text()
    vectors = re.compile(
        r"#define __((?:SS?SE|AVX|FMA|F16C|BMI|LZCNT|MOVBE|POPCNT|XOP|TBM|GFNI|APX)\w*)__ 1"
    )
    known = set()
    for march in ("diamondrapids", "arrowlake-s", "znver5", "bdver4"):
        command = ("clang-22", f"-march={march}", "-dM", "-E", "-xc", "/dev/null")
        known |= set(vectors.findall(run(*command).stdout))
    # Every x86-64 has SSE2; LLVM never chooses VP2INTERSECT; the processors with AVX10.2 are those with APX.
    base = {"SSE", "SSE_MATH", "SSE2", "SSE2_MATH", "AVX512VP2INTERSECT"}
    base |= {"AVX10_1_512", "AVX10_2", "AVX10_2_512"}
    assert {name for name in known - base if f"(__{name}__)" not in checked} == set()
