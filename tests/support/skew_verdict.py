"""Run the real tools of a release on a module of another one, and judge the result."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess

from support.bitcode_corpus import RELEASES, tool
from support.cuda_tools import cuda_root
from support.skew_corpus import OBJECT, Case, Module, make_module
from support.skew_fingerprint import Fingerprint, read_fingerprint
from support.skew_link import link
from support.tool_call import call, first_error

_LOST_CONSTANT = re.compile(r"\b(?:undef|poison)\b")
_CODE_OBJECT = re.compile(r'"amd\w+_code_object_version", i32 (\d+)00\b')
# A call in textual IR; bitcode contains only the name.
_READS_HIDDEN = re.compile(
    rb"call [^\n]*@llvm\.amdgcn\.implicitarg\.ptr\(|(?<!@)llvm\.amdgcn\.implicitarg\.ptr"
)
_RECORDED_HIDDEN = re.compile(r"^hidden_(\w+)\n", re.MULTILINE)
_RECORDED_ABI = re.compile(r"^code object of ABI (\d+)\n", re.MULTILINE)
_RUNTIME_CALL = re.compile(r"^declare [^@]*@(__kmpc_\w+)\((.*)\)", re.MULTILINE)
_RUNTIME_TYPE = re.compile(r"^%struct\.(__tgt_\w+) = type \{ (.*) \}", re.MULTILINE)
_UNKNOWN_CPU = "is not a recognized processor"


class Outcome(StrEnum):
    """The result of a release for a module of another one."""

    SAME = "same"
    # The instructions differ as by optimization, or AMD's code object version, on which nothing depends.
    DIFFERS = "differs"
    OTHER_ABI = "other ABI"
    # Rejected: by the reader or the verifier, by the back end, or by ptxas or the host linker.
    READER = "reader"
    BACK_END = "back end"
    LATER = "later"
    # Accepted, with another meaning.
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome and the evidence for it."""

    outcome: Outcome
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class _Product:
    """The output of a release for a module: a fingerprint, or an error message."""

    fingerprint: Fingerprint | None = None
    refused_by: Outcome | None = None
    message: str = ""
    later: str = ""


def judge(module: Module, form: str, consumer: int, folder: Path) -> Verdict | None:
    """Return the verdict on a pair; None if the producer itself cannot process its module."""
    expected = _baseline(module, folder)
    if expected.fingerprint is None and module.case.forms == OBJECT:
        return None
    if expected.fingerprint is None:
        return _judge_reading(module, form, consumer)
    product = _make(module, form, consumer, folder)
    if product.refused_by is not None:
        return Verdict(product.refused_by, product.message)
    assert product.fingerprint is not None
    return _compare(module, form, consumer, expected, product)


def _compare(
    module: Module, form: str, consumer: int, expected: _Product, product: _Product
) -> Verdict:
    assert expected.fingerprint is not None
    assert product.fingerprint is not None
    refusal, constants = _read_constants(module, form, consumer)
    if refusal:
        return Verdict(Outcome.READER, refusal)
    wrong = [
        *(word for word in (product.message, constants) if word),
        *(f"lost: {one}" for one in expected.fingerprint.lost(product.fingerprint)),
        *(one for one in product.fingerprint.fixed if one.startswith("call of llvm")),
        *_other_runtime(module, consumer),
    ]
    if wrong:
        return Verdict(Outcome.WRONG, "; ".join(wrong))
    if product.later and not expected.later:
        return Verdict(Outcome.LATER, product.later)
    abi = _judge_abi(module, form, expected.fingerprint, product.fingerprint)
    if abi:
        return abi
    changed = expected.fingerprint.changed(product.fingerprint)
    return Verdict(Outcome.DIFFERS if changed else Outcome.SAME, "; ".join(changed))


def _judge_abi(
    module: Module, form: str, expected: Fingerprint, found: Fingerprint
) -> Verdict | None:
    """Compare AMD code objects: the hidden arguments that a kernel reads, then the version."""
    conflict = _meant(module, form, expected).hidden_conflict(found)
    if conflict and _READS_HIDDEN.search(module.form(form).read_bytes()):
        return Verdict(Outcome.WRONG, conflict)
    if found.code_object == expected.code_object:
        return None
    evidence = f"code object version {found.code_object} in place of {expected.code_object}"
    return Verdict(Outcome.OTHER_ABI, evidence)


def _meant(module: Module, form: str, expected: Fingerprint) -> Fingerprint:
    """Return the fingerprint for the code object version of the module.

    The producer's own back end may ignore the flag, but the newest one does not. Text without a flag has the
    version of the release that compiles it.
    """
    if module.case.target != "amdgpu":
        return expected
    if _CODE_OBJECT.search(_text(module)):
        return _make(module, form, RELEASES[-1], module.folder).fingerprint or expected
    return Fingerprint(Counter(), Counter()) if form == "ll" else expected


def _baseline(module: Module, folder: Path) -> _Product:
    return _make(module, module.case.forms[0], module.release, folder)


@cache
def _make(module: Module, form: str, consumer: int, folder: Path) -> _Product:
    path = module.form(form)
    program = folder / f"{module.name}.{form}.{consumer}.exe"
    if module.case.target == "program":
        return _run_program(module, path, consumer, program)
    if module.case.forms == OBJECT:
        return _link_program(module, consumer, program)
    done = call(tool(consumer, "llc"), "-O2", *_cpu(module.case), str(path), "-o", "-")
    if done.returncode != 0:
        return _refusal(path, consumer, done)
    fingerprint = read_fingerprint(module.case.target, done.stdout)
    message = f"LLVM {consumer} ignores {module.case.arch}" if _UNKNOWN_CPU in done.stderr else ""
    later = _ptxas(done.stdout, module.case.arch) if module.case.target == "nvptx" else ""
    return _Product(fingerprint, message=message, later=later)


def _cpu(case: Case) -> list[str]:
    return [f"-mcpu={case.arch}"] if case.arch else []


def _run_program(module: Module, path: Path, consumer: int, output: Path) -> _Product:
    options = ("-x", "ir", "-O2", "-w", "-fuse-ld=lld", str(path), "-o", str(output))
    name = "clang++" if "c++" in module.case.maker else "clang"
    done = call(tool(consumer, name), *options, "-lm")
    if done.returncode != 0:
        return _refusal(path, consumer, done)
    return _run(output)


def _link_program(module: Module, consumer: int, output: Path) -> _Product:
    message = link(module, consumer, output)
    if message:
        # The wrapper reads device code in bitcode.
        by_reader = re.search(r"Invalid|Unknown attribute", message)
        return _Product(refused_by=Outcome.READER if by_reader else Outcome.LATER, message=message)
    return _run(output)


def _run(program: Path) -> _Product:
    ran = call(str(program))
    program.unlink()
    versions = _RECORDED_ABI.findall(ran.stdout)
    hidden = {("", place): name for place, name in enumerate(_RECORDED_HIDDEN.findall(ran.stdout))}
    output = _RECORDED_HIDDEN.sub("", _RECORDED_ABI.sub("", ran.stdout))
    words = f"exit status {ran.returncode}, output {output!r}"
    return _Product(Fingerprint(Counter([words]), Counter(), " ".join(versions), hidden))


def _refusal(path: Path, consumer: int, done: CompletedProcess[str]) -> _Product:
    """Return which stage rejected the module; the reader is run separately."""
    read = _read(path, consumer)
    if read:
        return _Product(refused_by=Outcome.READER, message=read)
    stage = Outcome.LATER if "undefined symbol" in done.stderr else Outcome.BACK_END
    return _Product(refused_by=stage, message=first_error(done.stderr))


def _judge_reading(module: Module, form: str, consumer: int) -> Verdict | None:
    """Return the verdict of the reader only."""
    message = _read(module.form(form), consumer)
    if message:
        return Verdict(Outcome.READER, message)
    refusal, constants = _read_constants(module, form, consumer)
    if refusal:
        return Verdict(Outcome.READER, refusal)
    return Verdict(Outcome.WRONG, constants) if constants else None


def _read(path: Path, consumer: int) -> str:
    """Return the error message of the reader or the verifier; empty if they accept the module."""
    options = ("-passes=verify", "-disable-output", str(path))
    done = call(tool(consumer, "opt"), *options)
    return first_error(done.stderr) if done.returncode != 0 else ""


def _read_constants(module: Module, form: str, consumer: int) -> tuple[str, str]:
    """Return the error message of the reader for bitcode, and a message about constants that became undefined.

    A program may still run with undefined constants by chance. `clang -x ir` ignores summaries for link-time
    optimization, which all other tools read.
    """
    if form != "bc" or consumer >= module.release:
        return "", ""
    done = call(tool(consumer, "llvm-dis"), str(module.form("bc")), "-o", "-")
    if done.returncode != 0:
        return first_error(done.stderr), ""
    before = _LOST_CONSTANT.findall(_without_names(_text(module)))
    after = _LOST_CONSTANT.findall(_without_names(done.stdout))
    count = len(after) - len(before)
    return "", f"{count} constants became undefined" if count > 0 else ""


def _other_runtime(module: Module, consumer: int) -> list[str]:
    """Return the calls of the OpenMP library whose types differ from those of the consumer's own code."""
    if module.case.forms == OBJECT or not module.case.maker.startswith("clang-openmp"):
        return []
    own = make_module(module.case, consumer, module.folder)
    types, known = (_runtime_types(_text(one)) for one in (module, own))
    return [
        f"{name}({form}) is ({known[name]}) in LLVM {consumer}"
        for name, form in types.items()
        if known.get(name, form) != form
    ]


def _runtime_types(text: str) -> dict[str, str]:
    """Return the types of the OpenMP library: structures, and parameters without attributes."""
    calls = {
        name: " ".join(word.split()[0] for word in parameters.split(",") if word)
        for name, parameters in _RUNTIME_CALL.findall(text)
    }
    return dict(_RUNTIME_TYPE.findall(text)) | calls


def _text(module: Module) -> str:
    return module.form("ll").read_text(encoding="utf-8", errors="replace")


def _without_names(text: str) -> str:
    return re.sub(r'[@%!][\w.$-]+|"[^"]*"|^(?:attributes|;).*', "", text, flags=re.MULTILINE)


def _ptxas(ptx: str, arch: str) -> str:
    """Return the error message of ptxas; empty if it succeeds."""
    command = (
        str(cuda_root() / "bin/ptxas"),
        f"-arch={arch}",
        "-c",
        "-o",
        "/dev/null",
        "/dev/stdin",
    )
    done = call(*command, stdin=ptx)
    return first_error(done.stderr) if done.returncode != 0 else ""
