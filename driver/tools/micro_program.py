"""Test the pass pipelines of an unknown build on small programs, and compare their output."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.message.report import report
from mlir_offload.driver.system.tool_watch import knowing_versions
from mlir_offload.offload.calibrate.probe import CannotLearnError, Learned, ProbeBench
from mlir_offload.toolchain.errors import (
    InputOutputError,
    MlirOffloadError,
    SourceError,
    ToolFailedError,
    VerificationError,
)
from mlir_offload.toolchain.learned_row import (
    AmdgpuProgramRow,
    AsyncProgramRow,
    Bf16ProgramRow,
    CpuProgramRow,
    NvgpuProgramRow,
    NvptxProgramRow,
    ProgramsRow,
    SpirvProgramRow,
    SubgroupReduceProgramRow,
)
from mlir_offload.toolchain.process import Command, Completed, Runner, describe_status
from mlir_offload.toolchain.target import Kind, parse_offload_arch
from mlir_offload.toolchain.tool import PROBE_LIMIT_S

ProgramsRowType: TypeAlias = type[ProgramsRow]

_FOLDER = Path(__file__).parents[1] / "data"
_EXPECTED = "// prints:"
LOWERING = "lowering"
"""The name of a failure to compile, which concerns only the kind that the program was compiled for."""
RESULTS = "results"
"""The name of a wrong result, which concerns every kind."""
# Imported by name, because that package imports this one, and only unknown builds need it.
_BUILD = "mlir_offload.driver.build.subcommand"
# Options with which mlir-opt names the pass that fails.
_NAMING = ("--mlir-print-ir-after-failure", "--mlir-disable-threading")
_FAILED_PASS = re.compile(r"IR Dump After (?:\w+ \(([\w-]+)\)|(\w+)) Failed")
_WRONG = (SourceError, ToolFailedError, VerificationError)


class _Program(Struct, frozen=True):
    """A program and its target; only a program for the CPU runs.

    A source needs it if it contains one of the `needles`; without any, every source needs it.
    """

    name: str
    arch: str
    needles: tuple[bytes, ...] = ()

    @property
    def path(self) -> Path:
        return _FOLDER / f"micro_{self.name}.mlir"

    @property
    def expected(self) -> list[str]:
        """Return the numbers that it must print."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return next(line for line in lines if line.startswith(_EXPECTED))[len(_EXPECTED) :].split()


_CPU = "host"
# Every supported CUDA has sm_75, and all but those of 2018 have sm_80. No program needs a device library.
_PROGRAMS: Mapping[ProgramsRowType, _Program] = {
    CpuProgramRow: _Program("core", _CPU),
    NvptxProgramRow: _Program("core", "sm_75"),
    AmdgpuProgramRow: _Program("core", "gfx900"),
    SpirvProgramRow: _Program("core", "spirv64"),
    SubgroupReduceProgramRow: _Program("subgroup_reduce", _CPU, (b"subgroup_reduce",)),
    AsyncProgramRow: _Program("async", _CPU, (b"async.",)),
    NvgpuProgramRow: _Program("nvgpu", "sm_80", (b"nvgpu.",)),
    Bf16ProgramRow: _Program("bf16", "spirv64", (b"bf16",)),
}


def micro_programs() -> tuple[Path, ...]:
    """Return the files of the programs."""
    return tuple(dict.fromkeys(program.path for program in _PROGRAMS.values()))


def needed_parts(sources: Iterable[bytes], kinds: Collection[Kind]) -> frozenset[ProgramsRowType]:
    """Return the programs for features that sources may use, detected by words in the sources.

    A program for a GPU is included only if its kind is in use.
    """
    texts = tuple(sources)
    return frozenset(
        row
        for row, program in _PROGRAMS.items()
        if program.arch == _CPU or parse_offload_arch(program.arch).kind in kinds
        if any(needle in text for needle in program.needles for text in texts)
    )


def passed_programs() -> tuple[ProgramsRow, ...]:
    """Return rows in which every program passed, for builds that test one."""
    return tuple(row({}) for row in _PROGRAMS)


def try_program(row: ProgramsRowType) -> Callable[[ProbeBench], Iterator[Callable[[], Learned]]]:
    """Return the probe that tests the program of a row: it compiles it, and runs it on the CPU."""
    program = _PROGRAMS[row]

    def trial(bench: ProbeBench) -> Iterator[Callable[[], Learned]]:
        yield lambda: _run(bench, program, row) if program.arch == _CPU else _compile(bench, [row])

    return trial


def compile_together(
    rows: list[ProgramsRowType],
) -> Callable[[ProbeBench], Iterator[Callable[[], Learned]]]:
    """Return the probe that compiles the program for several GPUs at once."""

    def trial(bench: ProbeBench) -> Iterator[Callable[[], Learned]]:
        yield lambda: _compile(bench, rows)

    return trial


def _compile(bench: ProbeBench, rows: list[ProgramsRowType]) -> Learned:
    """Compile one program for the GPUs of several rows; if that fails, for each to find the failing ones."""
    programs = [_PROGRAMS[row] for row in rows]
    archs = ",".join(program.arch for program in programs)
    reason = _failure(bench, programs[0], archs)
    if not reason:
        return Learned([row({}) for row in rows])
    if len(rows) == 1:
        return Learned([rows[0]({LOWERING: reason})])
    found = Learned()
    for row in rows:
        found.rows.extend(_compile(bench, [row]).rows)
    return found


def _failure(bench: ProbeBench, program: _Program, arch: str) -> str:
    """Return why a program does not compile, empty if it does. Raises CannotLearnError if it cannot be tested."""
    output, trial = str(bench.folder / f"{program.name}.o"), _Trial(bench)
    error = trial.build((f"--offload-arch={arch}", "-c", str(program.path), "-o", output))
    if error is None:
        return ""
    is_of_tool = report().journal.failure_of(error) is not None
    if isinstance(error, InputOutputError) or not (is_of_tool or isinstance(error, _WRONG)):
        raise CannotLearnError(error.message)
    return f"pass {trial.failing} fails: {error.message}" if trial.failing else error.message


def _run(bench: ProbeBench, program: _Program, row: ProgramsRowType) -> Learned:
    """Compile, link and run a program on the CPU, and compare its output."""
    reason = _failure(bench, program, _CPU)
    if reason:
        return Learned([row({LOWERING: reason})])
    made = bench.folder / program.name
    error = _Trial(bench).build((f"{made}.o", "-o", str(made)))
    if error is not None:
        # Something besides LLVM may be missing for the link; the user's own link will report it.
        reason = f"not linked: {error.message}"
        return Learned([row({})], [f"the result of the micro program {program.name} ({reason})"])
    ran = bench.start(made, ())
    reason = _wrong_result(program, ran)
    return Learned([row({RESULTS: reason} if reason else {})])


def _wrong_result(program: _Program, ran: Completed) -> str:
    """Return a description of a wrong result, empty if it is right."""
    if ran.returncode != 0:
        return f"it ends with {describe_status(ran.returncode)} on the CPU"
    expected, printed = program.expected, ran.stdout.split()
    if printed == expected:
        return ""
    pairs = zip(printed, expected, strict=False)
    first = next((n for n, (own, right) in enumerate(pairs) if own != right), len(expected))
    got = printed[first] if first < len(printed) else "nothing"
    right = expected[first] if first < len(expected) else "nothing"
    return f"its result {first} is {got} on the CPU, and {right} is right"


class _Trial(Struct):
    """A build in this process with the tools of a bench, which counts them.

    `failing` is the last pass of mlir-opt that failed, empty if none did.
    """

    bench: ProbeBench
    failing: str = ""

    def build(self, words: tuple[str, ...]) -> MlirOffloadError | None:
        """Run a command line; return the error if it fails."""
        bench = self.bench
        place = str(bench.llvm.prefix)
        cuda = (f"--cuda-path={bench.cuda}",) if bench.cuda else ()
        # Cached results would not show whether the tools work.
        own = ("--no-cache", f"--llvm={place}", f"--for-clang={place}", *cuda)
        build: Callable[[tuple[str, ...], Runner], None]
        build = import_module(_BUILD).build_trial
        try:
            build((*own, *words), self)
        except MlirOffloadError as error:
            return error
        return None

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        """Run a program with the time limit of a probe; record the pass at which mlir-opt fails."""
        limited = replace(command, limit_s=PROBE_LIMIT_S)
        if command.argv[1:] == ("--version",):
            return knowing_versions(self.bench.runner).run(limited)
        self.bench.started.append(command.program)
        completed = self.bench.runner.run(limited, input_text=input_text)
        if completed.returncode != 0 and command.program == "mlir-opt":
            naming = replace(limited, argv=(*command.argv, *_NAMING))
            found = _FAILED_PASS.search(self.bench.runner.run(naming, input_text=input_text).stderr)
            self.failing = (found[1] or found[2]) if found else ""
        return completed
