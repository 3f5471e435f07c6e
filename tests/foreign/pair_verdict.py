"""Judge how a reader treats a module of another release, without the checker and its tables.

The reader reads the module and writes it again. The newest release prints both, and the texts are compared.
The reader must support the called intrinsics, which is tested with a call that no intrinsic accepts. The
reader also compiles device code, which is compared with the output of the newest release.
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
    """How a reader treats a module."""

    SAME = "same"
    # Optimization hints are missing; the code is the same.
    LESS = "less promised"
    REFUSED = "rejected"
    BACK_END = "rejected by the back end"
    WRONG = "wrong"


@dataclass(frozen=True)
class Verdict:
    """An outcome and its evidence."""

    outcome: Outcome
    evidence: str = ""


@dataclass(frozen=True)
class Subject:
    """A module, its text as its own release reads it, and its assembly if it is device code.

    `own_assembly` is that of its own release; the newest release may generate better code.
    """

    job: Job
    data: bytes
    text: str
    assembly: str
    own_assembly: str

    @cached_property
    def has_summary(self) -> bool:
        """Return whether the module has a summary for link-time optimization, as with -flto=thin and rustc."""
        modules = read_bitcode_modules(memory_view(self.data))
        return any(one.thin_summary or one.full_summary for one in modules)

    @cached_property
    def called(self) -> Mapping[str, str]:
        """Return the intrinsics that the module calls, with a declaration of each.

        The newest release renames some; only names that are in the file are returned.
        """
        declared = {
            function.name
            for module in read_bitcode_modules(memory_view(self.data))
            for function in module.functions
        }
        return {name: line for name, line in intrinsics(self.text) if name in declared}


def subject_of(job: Job, writer: Reader, newest: Reader) -> Subject:
    """Return the module of a job. Raises RuntimeError if its own release cannot read it."""
    data = job.output.read_bytes()
    own = writer.write(data, job.triple)
    printed = newest.spell(own.output)
    if not own.is_read or not printed.is_read:
        msg = f"{job.output}: not read: {own.message or printed.message}"
        raise RuntimeError(msg)
    assembly = own_assembly = b""
    if job.triple in _TARGETS:
        own_assembly = writer.compile(data, job.triple, job.cpu).output
        # If its own release cannot compile it, assembly is not compared.
        assembly = newest.compile(data, job.triple, job.cpu).output if own_assembly else b""
    text = printed.output.decode(errors="replace")
    return Subject(job, data, text, assembly.decode(), own_assembly.decode())


def judge(
    subject: Subject, reader: Reader, newest: Reader, unknown: Mapping[int, frozenset[str]]
) -> Verdict:
    """Return how the reader treats a module; `unknown` are the intrinsics that it does not support."""
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
    # Newer readers rename intrinsics of older ones.
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
    # What the backend of the writing release loses too is not an error of the reader.
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
    """Return the names that each reader treats as functions, of all that the modules call."""
    declared = {name: line for subject in subjects for name, line in subject.called.items()}
    return {reader.release: unknown_names(reader, declared) for reader in readers}


def unknown_names(reader: Reader, declared: Mapping[str, str]) -> frozenset[str]:
    """Return the names that the verifier does not list, and whose declarations get no attributes.

    The upgrade of an intrinsic with other types hides it from the verifier; a reader adds attributes to the
    intrinsics that it supports, or rejects their types.
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
