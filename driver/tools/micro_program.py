"""Try the recipe of an unknown build on small programs, and compare what they print with what is right."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from mlir_offload.driver.system.own_program import own_program
from mlir_offload.offload.calibrate.probe import CannotLearnError, Learned, ProbeBench
from mlir_offload.toolchain.errors import (
    SourceError,
    ToolFailedError,
    VerificationError,
)
from mlir_offload.toolchain.learned import LEARNED, known_release
from mlir_offload.toolchain.learned_row import (
    AmdgpuProgramRow,
    CpuProgramRow,
    LearnedRow,
    NvptxProgramRow,
    PartProgramsRow,
    SpirvProgramRow,
)
from mlir_offload.toolchain.process import Completed, describe_status

_FOLDER = Path(__file__).parents[1] / "data"
_CORE = "core"
_PARTS = ("division", "subgroup_reduce", "async")
_EXPECTED = "// prints:"
# Results of a cache would tell nothing of the tools.
_OWN = ("--message-format=json", "--no-config", "--no-cache", "-j1")
_CPU = "host"
_TOLD = ("message", "command", "stage")
# What makes mlir-opt name the pass that fails.
_NAMING = ("--mlir-print-ir-after-failure", "--mlir-disable-threading")
_FAILED_PASS = re.compile(r"IR Dump After (?:\w+ \(([\w-]+)\)|(\w+)) Failed")
# Every CUDA here has sm_75; the program needs no device library.
_GpuRow: TypeAlias = type[NvptxProgramRow | AmdgpuProgramRow | SpirvProgramRow]
_ARCHS: Mapping[_GpuRow, str] = {
    NvptxProgramRow: "sm_75",
    AmdgpuProgramRow: "gfx900",
    SpirvProgramRow: "spirv64",
}
_WRONG = frozenset(error.exit_status for error in (SourceError, ToolFailedError, VerificationError))


def micro_programs() -> tuple[Path, ...]:
    """Return the files of the programs."""
    return tuple(_program(name) for name in (_CORE, *_PARTS))


def try_on_cpu(bench: ProbeBench) -> Iterator[Callable[[], Learned]]:
    """Yield what compiles, links and runs the program that needs what every program needs."""
    yield lambda: _run_on_cpu(bench, (_CORE,), CpuProgramRow)


def try_parts(bench: ProbeBench) -> Iterator[Callable[[], Learned]]:
    """Yield what runs the programs for parts of a recipe that few programs need."""
    yield lambda: _run_on_cpu(bench, _PARTS, PartProgramsRow)


def try_for_gpu(
    row: _GpuRow,
) -> Callable[[ProbeBench], Iterator[Callable[[], Learned]]]:
    """Return what compiles the program for one kind of GPU."""

    def trial(bench: ProbeBench) -> Iterator[Callable[[], Learned]]:
        def compile_core() -> Learned:
            reason = _compile(bench, _CORE, _ARCHS[row])
            return Learned([row({_CORE: reason} if reason else {})])

        yield compile_core

    return trial


def _run_on_cpu(
    bench: ProbeBench, names: tuple[str, ...], row: Callable[[dict[str, str]], LearnedRow]
) -> Learned:
    failed, not_run = {}, []
    for name in names:
        try:
            reason = _compile(bench, name, _CPU) or _run(bench, name)
        except CannotLearnError as error:
            not_run.append(f"the result of the micro program {name} ({error.message})")
            continue
        if reason:
            failed[name] = reason
    return Learned([row(failed)], not_run)


def _compile(bench: ProbeBench, name: str, arch: str) -> str:
    """Return why a program does not compile, empty if it does. Raises CannotLearnError where it cannot be tried."""
    output = f"{name}.o"
    (bench.folder / output).unlink(missing_ok=True)
    words = (f"--offload-arch={arch}", "-c", str(_program(name)), "-o", output)
    completed = _drive(bench, words)
    if completed.returncode == 0:
        return ""
    complaint = _complaint(completed)
    reason = complaint["message"]
    if completed.returncode not in _WRONG and not complaint["stage"]:
        raise CannotLearnError(reason)
    failing = _failing_pass(bench, words)
    return f"{failing}: {reason}" if failing else reason


def _run(bench: ProbeBench, name: str) -> str:
    """Return in which way a compiled program is wrong, empty if it is right."""
    completed = _drive(bench, (f"{name}.o", "-o", name))
    if completed.returncode != 0:
        # What a link needs besides LLVM may be missing; a link of the user's tells more.
        msg = f"not linked: {_complaint(completed)['message']}"
        raise CannotLearnError(msg)
    ran = bench.start(bench.folder / name, ())
    if ran.returncode != 0:
        return f"it ends with {describe_status(ran.returncode)} on the CPU"
    expected, printed = _expected(name), ran.stdout.split()
    pairs = zip(printed, expected, strict=False)
    first = next((n for n, (own, right) in enumerate(pairs) if own != right), len(expected))
    if printed == expected:
        return ""
    got = printed[first] if first < len(printed) else "nothing"
    right = expected[first] if first < len(expected) else "nothing"
    return f"its result {first} is {got} on the CPU, and {right} is right"


def _program(name: str) -> Path:
    return _FOLDER / f"micro_{name}.mlir"


def _expected(name: str) -> list[str]:
    lines = _program(name).read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(_EXPECTED))[len(_EXPECTED) :].split()


def _drive(bench: ProbeBench, words: tuple[str, ...]) -> Completed:
    """Call this driver with the build, and with what is known of it: it asks nothing again."""
    release = known_release(bench.llvm.version.major)
    if release is None:
        msg = "nothing else was learned"
        raise CannotLearnError(msg)
    tried = (CpuProgramRow({}), PartProgramsRow({}), *(row({}) for row in _ARCHS))
    text = release.with_rows(tried).text
    cuda = (f"--cuda-path={bench.cuda}",) if bench.cuda else ()
    program, *own = own_program()
    environment = ((LEARNED, text), ("MLIR_OFFLOAD_FOR_CLANG", ""))
    arguments = (*own, *_OWN, f"--llvm={bench.llvm.prefix}", *cuda, *words)
    return bench.start(Path(program), arguments, environment=environment)


def _failing_pass(bench: ProbeBench, words: tuple[str, ...]) -> str:
    """Return which pass of mlir-opt fails, empty if none does: the call that fails is made again on kept files."""
    again = _drive(bench, (*words, "-save-temps=temps"))
    program, *arguments = shlex.split(_complaint(again)["command"]) or [""]
    if Path(program).name != "mlir-opt":
        return ""
    said = bench.start(Path(program), (*arguments, *_NAMING)).stderr
    found = _FAILED_PASS.search(said)
    return f"pass {found[1] or found[2]} fails" if found else ""


def _complaint(completed: Completed) -> dict[str, str]:
    """Return what the driver says is wrong, the command and the stage that failed, empty if none did."""
    for line in reversed(completed.stderr.splitlines()):
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict) and message.get("severity") == "error":
            return {name: str(message.get(name, "")) for name in _TOLD}
    status = describe_status(completed.returncode)
    return dict.fromkeys(_TOLD, "") | {"message": f"mlir-offload ended with {status}"}
