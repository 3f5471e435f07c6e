"""Downgrade modules of the corpus to each older release, and let that release read the result.

usage: python tests/foreign/downgrades.py [--releases=15,...,22] [--root=N=DIR] [--only=REGEX] [--every=N] [FILE...]

The files are bitcode to be downgraded instead of the corpus. The text of a module is that of the release that wrote it. A downgrade is right if it is refused with a rule, or if the
reader takes the result and the newest release finds the same code in it. Exit status 1 if one is not.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".importroot")]

from foreign.module_text import differences, intrinsics  # noqa: E402
from foreign.pair_corpus import Job, make_corpus  # noqa: E402
from foreign.pair_verdict import unknown_names  # noqa: E402
from foreign.reader import Reader, add_reader_options, chosen_readers  # noqa: E402
from foreign.source_package import default_cache  # noqa: E402

from mlir_offload.offload.device.bitcode import llvm_major  # noqa: E402
from mlir_offload.toolchain.bitcode.module import read_bitcode  # noqa: E402
from mlir_offload.toolchain.byte_view import memory_view  # noqa: E402
from mlir_offload.toolchain.errors import CompatibilityError  # noqa: E402
from mlir_offload.translate.downgrade.text import downgrade  # noqa: E402

_OLDEST = 15
# Promises that older releases have no word for, or put into metadata; and where weights come from.
_PROMISES = re.compile(
    r"(?<![\w@.])(?:range|initializes|nofpclass|captures)\((?:[^()\n]|\([^()\n]*\))*\) ?"
    r"|^ +(?:#dbg_|call void @llvm\.lifetime)[^\n]*\n"
    r"|(?<= )tail (?=call )|(?<=(?:.zext|itofp) )nneg |(?<=(?:fpext|trunc) )(?:contract|fast) |^!nvvm\.annotations = !\{\}\n"
    r'|, !range !\d+|!"expected", |^!\d+ = !\{i\d+ -?\d+, i\d+ -?\d+\}$'
    # Of a label, the column, which releases before 21 do not have.
    r"|(?<=\d), column: \d+(?=\)$)|dead_on_return(?:\(\d+\))? "
    r"|\b(?:dead_on_unwind|writable) "
    # A version of PTX that a release does not write; it reports that when it generates code.
    r"|\+ptx\d+,"
    # Which stores assign a variable, which LLVM 15 does not have.
    r"|, !DIAssignID !\d+|^!\d+ = distinct !DIAssignID\(\)\n"
    # Whether a register is kept free, and whether the provenance of a pointer counts.
    r'|(?<="non-leaf)-no-reserve(?=")|(?<= ptrto)(?:addr|int)(?= )',
    re.MULTILINE,
)
# Details for debuggers, from LLVM 21 on, that older releases have no field for.
_DETAILS = ("atomGroup", "atomRank", "keyInstructions")
_DETAIL = re.compile(rf", (?:{'|'.join(_DETAILS)}): \w+(?=[,)])")
# What the last promise of a parameter leaves behind.
_BEFORE_END = re.compile(r" (?=[,)])")
# What a function retains for debuggers, which older releases do not take.
_RETAINED = re.compile(r", retainedNodes: !(\d+)")
_DECLARED = re.compile(r"^declare [^\n]*\n", re.MULTILINE)
_RULE = re.compile(r"\[([A-Z]+\d+)\]")


def outcomes(job: Job, writer: Reader, readers: Sequence[Reader]) -> Iterator[tuple[int, str]]:
    """Return for each older reader what comes of a downgrade: `right`, or in which way it is not."""
    newest = readers[-1]
    printed = writer.print(job.output.read_bytes(), job.triple)
    text = printed.output.decode(errors="replace")
    # What a newer release keeps of the summary is for links, and is not part of the code.
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("^"))
    original = newest.spell(writer.write(text.encode(), job.triple).output).output.decode()
    for reader in readers:
        if _OLDEST <= reader.release < job.release:
            yield reader.release, _outcome(text, original, reader, newest, job.triple)


def _outcome(text: str, original: str, reader: Reader, newest: Reader, triple: str) -> str:
    try:
        made = downgrade(text, reader=reader.release)
    except CompatibilityError as error:
        rule = _RULE.search(str(error))
        return f"refused {rule[1] if rule else 'by a row'}"
    written = reader.write(made.encode(), triple)
    if not written.is_read:
        return f"REJECTED: {written.message.splitlines()[0][:160]}"
    # The reader may have replaced some by those of its own.
    left = reader.print(made.encode(), triple).output.decode(errors="replace")
    unknown = unknown_names(reader, dict(intrinsics(left)))
    if unknown:
        return f"UNKNOWN: {' '.join(sorted(unknown))}"
    again = newest.spell(written.output).output.decode(errors="replace")
    texts = [_comparable(one) for one in (original, again)]
    wrong = [one for one in differences(*texts) if not one.is_harmless]
    return f"WRONG: {wrong[0].before[:120]} -> {wrong[0].after[:120]}" if wrong else "right"


def _comparable(text: str) -> str:
    """Return a module without promises, and with its declarations in order: another name has another place."""
    lists = tuple(f"!{number} = " for number in set(_RETAINED.findall(text)))
    text = _BEFORE_END.sub("", _DETAIL.sub("", _PROMISES.sub("", _RETAINED.sub("", text))))
    lines = _DECLARED.sub("", text).splitlines(keepends=True)
    others = (line for line in lines if line.strip() and not line.startswith((";", *lists)))
    declared = sorted(_DECLARED.findall(text), key=lambda line: line.partition("@")[2])
    return "".join((*declared, *others))


def _job(path: Path) -> Job:
    module = read_bitcode(memory_view(path.read_bytes(), location=str(path)))
    release = llvm_major(module.producer)
    if release is None:
        msg = f"{path}: written by '{module.producer}', which names no release of LLVM"
        raise ValueError(msg)
    return Job(path.name, "", release, module.triple, "", (), path)


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_reader_options(parser)
    parser.add_argument("--only", default="", metavar="REGEX", help="only modules that match")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth module")
    options = parser.parse_args()
    readers = chosen_readers(options)
    own = {reader.release: reader for reader in readers}
    every = [_job(path) for path in options.files]
    every = every or make_corpus(default_cache() / "pairs", readers)
    jobs = [job for job in every if re.search(options.only, job.output.name)]
    counts: Counter[str] = Counter()
    for job in jobs[:: options.every]:
        for release, outcome in outcomes(job, own[job.release], readers):
            counts[outcome.partition(":")[0]] += 1
            if outcome[0].isupper():
                print(f"{job.output.name} -> {release}: {outcome}", flush=True)  # noqa: T201
    print("\n".join(f"{count:6} {outcome}" for outcome, count in counts.most_common()))  # noqa: T201
    return 1 if any(outcome[0].isupper() for outcome in counts) else 0


if __name__ == "__main__":
    raise SystemExit(main())
