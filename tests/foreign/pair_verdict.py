"""What a reader makes of a module that another release wrote, judged without our checker and its tables.

The reader reads the module and writes it again; the newest release prints both, and the texts are compared.
The intrinsics that are called must be known to the reader, which is asked with a call that no intrinsic
takes. Device code is compiled by the reader too, and compared with what the newest release compiles.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property

from foreign.intrinsics import known_names
from foreign.module_text import differences, intrinsics
from foreign.pair_corpus import Job
from foreign.reader import Answer, Reader
from support.skew_fingerprint import read_fingerprint

from mlir_offload.toolchain.bitcode.module import read_bitcode_modules
from mlir_offload.toolchain.byte_view import memory_view

_TARGETS = {"nvptx64-nvidia-cuda": "nvptx", "amdgcn-amd-amdhsa": "amdgpu"}
_ATTRIBUTED = re.compile(r"\) #\d")
_BAD_SUMMARY = "Invalid summary"
_CODE_OBJECT = "_code_object_version"
_READS_HIDDEN = re.compile(r"\bcall\b[^\n]* @llvm\.amdgcn\.implicitarg\.ptr\(")


class Outcome(StrEnum):
    """How a reader takes a module."""

    SAME = "same"
    # Promises to the optimizer are gone; the code is the same.
    LESS = "less promised"
    REFUSED = "rejected"
    BACK_END = "rejected by the back end"
    WRONG = "wrong"


@dataclass(frozen=True)
class Verdict:
    """An outcome, and what shows it."""

    outcome: Outcome
    evidence: str = ""


@dataclass(frozen=True)
class Subject:
    """A module, its text as the release that wrote it reads it, and its assembly if it is for a device.

    `own_assembly` is that of the release that wrote it, which the newest may do better.
    """

    job: Job
    data: bytes
    text: str
    assembly: str
    own_assembly: str

    @cached_property
    def has_summary(self) -> bool:
        """Return whether there is a summary for link-time optimization, as of -flto=thin and of rustc."""
        modules = read_bitcode_modules(memory_view(self.data))
        return any(one.thin_summary or one.full_summary for one in modules)

    @cached_property
    def called(self) -> Mapping[str, str]:
        """Return the intrinsics that it calls, with a declaration of each.

        The newest release gives some other names; those that the file has count.
        """
        declared = {
            function.name
            for module in read_bitcode_modules(memory_view(self.data))
            for function in module.functions
        }
        return {name: line for name, line in intrinsics(self.text) if name in declared}


def subject_of(job: Job, writer: Reader, newest: Reader) -> Subject:
    """Return the module of a job. Raises RuntimeError if the release that wrote it does not read it."""
    data = job.output.read_bytes()
    own = writer.write(data, job.triple)
    printed = newest.spell(own.output)
    if not own.is_read or not printed.is_read:
        msg = f"{job.output}: not read: {own.message or printed.message}"
        raise RuntimeError(msg)
    assembly = own_assembly = b""
    if job.triple in _TARGETS:
        own_assembly = writer.compile(data, job.triple, job.cpu).output
        # What its own release does not compile is not compared.
        assembly = newest.compile(data, job.triple, job.cpu).output if own_assembly else b""
    text = printed.output.decode(errors="replace")
    return Subject(job, data, text, assembly.decode(), own_assembly.decode())


def judge(
    subject: Subject, reader: Reader, newest: Reader, unknown: Mapping[int, frozenset[str]]
) -> Verdict:
    """Return what the reader makes of a module; `unknown` are the intrinsics that it does not know."""
    written = reader.write(subject.data, subject.job.triple)
    if not written.is_read:
        return Verdict(Outcome.REFUSED, _first_line(written))
    summary = reader.summary(subject.data) if subject.has_summary else ""
    if _BAD_SUMMARY in summary:
        return Verdict(Outcome.REFUSED, _first_line(Answer(b"", summary)))
    again = newest.spell(written.output)
    found = differences(subject.text, again.output.decode(errors="replace"))
    wrong = next((one for one in found if not one.is_harmless), None)
    if wrong is not None:
        return Verdict(Outcome.WRONG, f"{wrong.before} -> {wrong.after}")
    # A newer reader renames what older ones knew.
    missing = sorted(set(subject.called) & unknown[reader.release])
    if missing and reader.release < subject.job.release:
        return Verdict(Outcome.WRONG, f"unknown: {' '.join(missing)}")
    if subject.assembly:
        verdict = _judge_device(subject, reader)
        if verdict is not None:
            return verdict
    return Verdict(Outcome.LESS if found else Outcome.SAME)


def _judge_device(subject: Subject, reader: Reader) -> Verdict | None:
    target = _TARGETS[subject.job.triple]
    made = reader.compile(subject.data, subject.job.triple, subject.job.cpu)
    if not made.is_read:
        return Verdict(Outcome.BACK_END, _first_line(made))
    expected = read_fingerprint(target, subject.assembly)
    found = read_fingerprint(target, made.output.decode())
    # What the writer's own back end does not make either is not a matter of the reader.
    own = read_fingerprint(target, subject.own_assembly)
    own_lost = Counter(expected.lost(own))
    lost = sorted((Counter(expected.lost(found)) - own_lost).elements())
    if lost:
        return Verdict(Outcome.WRONG, f"lost: {'; '.join(lost[:3])}")
    meant = expected if _CODE_OBJECT in subject.text else own
    conflict = meant.hidden_conflict(found)
    if conflict and _READS_HIDDEN.search(subject.text):
        return Verdict(Outcome.WRONG, conflict)
    return None


def unknown_intrinsics(
    readers: Iterable[Reader], subjects: Iterable[Subject]
) -> dict[int, frozenset[str]]:
    """Return the names that a reader takes for functions, of all that the modules call."""
    declared = {name: line for subject in subjects for name, line in subject.called.items()}
    return {reader.release: unknown_names(reader, declared) for reader in readers}


def unknown_names(reader: Reader, declared: Mapping[str, str]) -> frozenset[str]:
    """Return the names that the verifier does not list, and whose declaration gets no attributes.

    The upgrade of an intrinsic with other types hides it from the verifier; a reader gives those that it
    knows attributes of their own, or stops at their types.
    """
    names = frozenset(declared)
    left = names - known_names(reader, sorted(names))
    answers = {name: reader.print(declared[name].encode()) for name in left}
    return frozenset(
        name
        for name, answer in answers.items()
        if answer.is_read and not _ATTRIBUTED.search(answer.output.decode())
    )


@cache
def _first_line(answer: Answer) -> str:
    lines = [line for line in answer.message.splitlines() if "error" in line.lower()]
    return (lines or answer.message.splitlines() or [""])[0].split("error: ")[-1][:120]
