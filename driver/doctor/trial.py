"""Test a combination: compile and link a small program, verify it, run it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from enum import StrEnum
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.compile.kind_build import build_of
from mlir_offload.driver.doctor.plan import Combination
from mlir_offload.driver.system.own_program import own_program
from mlir_offload.offload.host.contents import layout_releases
from mlir_offload.offload.link.coverage import held_kernels
from mlir_offload.offload.link.fatbinary_adapter import needs_adapter
from mlir_offload.offload.link.finding import listed
from mlir_offload.offload.link.objects import ObjectContents, read_objects
from mlir_offload.toolchain.errors import (
    CompatibilityError,
    MlirOffloadError,
    ToolchainError,
    ToolFailedError,
    UsageError,
    VerificationError,
)
from mlir_offload.toolchain.process import Command, Completed, Runner, describe_status, tool_failed
from mlir_offload.toolchain.target import device_kind

PROGRAM = Path(__file__).parents[1] / "data" / "doctor.mlir"
# Cached results would not show whether the tools work.
_OWN = ("--message-format=json", "--no-config", "--no-cache")
_MORE_TIME = "give it more time with --timeout=SECONDS"
_KERNELS = frozenset({"decay", "sum"})
_RIGHT = "doctor: right\n"


class Verdict(StrEnum):
    """The result of a trial."""

    WORKS = "works"
    LINKS = "links"
    REFUSED = "refused"
    INCOMPLETE = "incomplete"
    FAILS = "fails"
    DROPS = "loses kernels"
    WRONG = "wrong result"
    LATE = "too slow"

    @property
    def is_good(self) -> bool:
        """Return whether the program is correct, as far as it could be tested."""
        return self in {Verdict.WORKS, Verdict.LINKS}


class Trial(Struct, frozen=True):
    """A trial: its verdict, the reason, a hint, the command that reproduces it, and its time in seconds."""

    verdict: Verdict
    reason: str = ""
    hint: str = ""
    command: str = ""
    exit_status: int = 0
    seconds: float = 0.0


class Cell(Struct, frozen=True):
    """A combination with its trials by mlir-offload and by clang alone.

    `adapters` are what mlir-offload uses to make incompatible tools work together. `alone` is None if it was not
    tested.
    """

    combination: Combination
    ours: Trial
    alone: Trial | None = None
    adapters: tuple[str, ...] = ()


class MadeObject(Struct, frozen=True):
    """An object to be linked by clang alone, or the failed trial that was to compile it."""

    path: Path
    failure: Trial | None = None


class Bench(Struct, frozen=True):
    """Runs trials: in `folder`, each with `jobs` jobs and `limit_s` seconds per program."""

    runner: Runner
    folder: Path
    jobs: int
    limit_s: float
    has_gpu: bool

    def try_combination(
        self, combination: Combination, number: int, made: Future[MadeObject] | None = None
    ) -> Cell:
        """Build the program with mlir-offload; if there is an object, link it with clang alone."""
        folder = self.folder / str(number)
        folder.mkdir(parents=True)
        ours = self._timed(partial(self._try_ours, combination, folder))
        other = None
        if made is not None:
            other = self._timed(partial(self._try_alone, combination, folder, made.result()))
        shutil.rmtree(folder, ignore_errors=True)
        return Cell(combination, ours, other, _adapters(combination))

    def make_object(self, combination: Combination, number: int) -> MadeObject:
        """Compile the program to an object with entries for the lowering release."""
        path = self.folder / f"object{number}.o"
        words = (*self._words(combination, for_consumer=False), "-c", "-fPIC", str(PROGRAM))
        failure = self._timed(partial(self._compile, words, path))
        return MadeObject(path, failure if failure.exit_status else None)

    def _compile(self, words: Sequence[str], output: Path) -> Trial:
        argv = (*own_program(), *_OWN, *words, "-o", str(output))
        completed = self._run(argv, self.folder)
        return _refusal(completed) if completed.returncode else Trial(Verdict.LINKS)

    def _timed(self, attempt: Callable[[], Trial]) -> Trial:
        start = time.monotonic()
        try:
            trial = attempt()
        except ToolFailedError as error:
            status = error.exit_status
            trial = Trial(Verdict.LATE, error.message, _MORE_TIME, error.command, status)
        except (MlirOffloadError, OSError) as error:
            trial = Trial(Verdict.FAILS, str(error), exit_status=ToolFailedError.exit_status)
        return replace(trial, seconds=round(time.monotonic() - start, 3))

    def _run(self, argv: Sequence[str], folder: Path, **environment: str) -> Completed:
        command = Command(tuple(argv), tuple(environment.items()), cwd=folder, limit_s=self.limit_s)
        return self.runner.run(command)

    def _try_ours(self, combination: Combination, folder: Path) -> Trial:
        output = folder / "program"
        words = (*self._words(combination, for_consumer=True), str(PROGRAM), "-o")
        completed = self._run((*own_program(), *_OWN, *words, str(output)), folder)
        shown = " ".join(("mlir-offload", *words, "program"))
        if completed.returncode != 0:
            return replace(_refusal(completed), command=shown)
        return replace(self._judge(combination, output, folder), command=shown)

    def _words(self, combination: Combination, *, for_consumer: bool) -> tuple[str, ...]:
        sdk = combination.sdk
        return (
            f"--llvm={combination.producer.prefix}",
            *(
                (f"--for-clang={combination.consumer.version.major}",)
                if for_consumer and combination.is_mixed
                else ()
            ),
            *((f"{sdk.option}{sdk.path}",) if sdk else ()),
            f"--offload-arch={combination.arch}",
            f"-j{self.jobs}",
        )

    def _judge(self, combination: Combination, output: Path, folder: Path) -> Trial:
        """Verify the linked program, and run it if this host has the device."""
        if lost := _lost(combination, output):
            return Trial(Verdict.DROPS, lost, exit_status=VerificationError.exit_status)
        if not device_kind(combination.kind).is_cpu and not self.has_gpu:
            return Trial(Verdict.LINKS, "not run: there is no such GPU here")
        if not build_of(combination.kind).is_run_by_doctor:
            return Trial(Verdict.LINKS, "not run")
        ran = self._run((str(output),), folder, OMP_TARGET_OFFLOAD="MANDATORY")
        if ran.returncode == 0 and ran.stdout == _RIGHT:
            return Trial(Verdict.WORKS)
        said = next(iter((ran.stdout + ran.stderr).splitlines()), "nothing")
        reason = f"the program ended with {describe_status(ran.returncode)} and said: {said}"
        return Trial(Verdict.WRONG, reason, exit_status=VerificationError.exit_status)

    def _try_alone(self, combination: Combination, folder: Path, made: MadeObject) -> Trial:
        """Link the object with clang of the linking LLVM, without mlir-offload."""
        if made.failure is not None:
            return made.failure
        words = _alone_arguments(combination)
        output = folder / "library.so"
        completed = self._run((*words, str(made.path), "-o", str(output)), folder)
        shown = " ".join((*words, "object.o", "-o", "library.so"))
        if completed.returncode != 0:
            reason = _complaint(completed)
            return Trial(Verdict.FAILS, reason, command=shown, exit_status=completed.returncode)
        lost = _lost(combination, output)
        verdict = Verdict.DROPS if lost else Verdict.LINKS
        return Trial(verdict, lost, command=shown)


def _alone_arguments(combination: Combination) -> tuple[str, ...]:
    consumer, sdk = combination.consumer, combination.sdk
    linker = ("-fuse-ld=lld",) if consumer.has("ld.lld") else ()
    device = build_of(combination.kind).plain_link_arguments(consumer.version.major, sdk)
    return (
        *(str(consumer.tool("clang")), "--offload-link", "-shared", *linker),
        *device,
    )


def _complaint(completed: Completed) -> str:
    """Return the first error, which a tool below the linker wrapper prints before the wrapper's own."""
    lines = [line.strip() for line in completed.stderr.splitlines()]
    first = next((line for line in lines if " fatal " in line), "")
    return first or tool_failed(completed).message.partition(": ")[2]


def _refusal(completed: Completed) -> Trial:
    """Return a trial with the error of the driver."""
    error = next(_errors(completed.stderr), {})
    reason = str(error.get("message") or describe_status(completed.returncode))
    verdicts = {
        ToolchainError.exit_status: Verdict.INCOMPLETE,
        CompatibilityError.exit_status: Verdict.REFUSED,
        UsageError.exit_status: Verdict.REFUSED,
        VerificationError.exit_status: Verdict.DROPS,
    }
    verdict = verdicts.get(completed.returncode, Verdict.FAILS)
    return Trial(verdict, reason, str(error.get("hint", "")), exit_status=completed.returncode)


def _errors(text: str) -> Iterator[dict[str, object]]:
    """Yield the errors of JSON messages, last first; the driver's own error is the last."""
    for line in reversed(text.splitlines()):
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict) and message.get("severity") == "error":
            yield message


def _lost(combination: Combination, output: Path) -> str:
    """Return which kernels a linked file lacks or does not register; empty if there are none."""
    contents = read_objects(output)
    held = {
        image.kernel
        for item in contents
        for image in held_kernels(item)
        if image.kind == combination.kind and _is_for(image.arch, combination)
    }
    if lacking := sorted(_KERNELS - held):
        return f"no device image for {combination.arch} has {listed(lacking)}"
    unread = sorted(_KERNELS - _registered(contents, combination))
    return f"the image is there, but nothing registers {listed(unread)}" if unread else ""


def _is_for(arch: str, combination: Combination) -> bool:
    """Return whether an image is for the combination; a linked CPU image has no architecture."""
    return device_kind(combination.kind).is_cpu or arch == combination.arch


def _registered(contents: Sequence[ObjectContents], combination: Combination) -> set[str]:
    """Return the kernels that have an entry which the linking release reads."""
    major = combination.consumer.version.major
    found = set()
    for item in contents:
        for entry in item.entries:
            first, last = layout_releases(entry.section, entry.fields)
            if entry.is_kernel and entry.kind == combination.kind and first <= major <= last:
                found.add(entry.name)
    return found


def _adapters(combination: Combination) -> tuple[str, ...]:
    """Return the options and adapters by which mlir-offload makes these tools work together."""
    major = combination.consumer.version.major
    cuda = combination.sdk.cuda if combination.sdk else None
    found = []
    if combination.is_mixed:
        found.append(f"--for-clang={major}")
    if cuda is not None and needs_adapter(major, cuda.version):
        found.append("fatbinary --image to --image3")
    return tuple(found)
