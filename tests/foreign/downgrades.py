"""Downgrade modules of the corpus for each older release, and read the results with that release.

usage: python tests/foreign/downgrades.py [--releases=15,...,22] [--root=N=DIR] [--only=REGEX] [--every=N] [FILE...]

The files are bitcode to downgrade instead of the corpus. The text of a module is printed by the release that
wrote it. A downgrade is correct if it is rejected with a rule, or if the reader accepts the result and the
newest release finds the same code in it. Exit status 1 if one is not.
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
# Optimization hints that older releases lack or store in metadata, and the origin of branch weights.
_PROMISES = re.compile(
    r"(?<![\w@.])(?:range|initializes|nofpclass|captures)\((?:[^()\n]|\([^()\n]*\))*\) ?"
    r"|^ +(?:#dbg_|call void @llvm\.lifetime)[^\n]*\n"
    r"|(?<= )tail (?=call )|(?<=(?:.zext|itofp) )nneg |(?<=(?:fpext|trunc) )(?:contract|fast) |^!nvvm\.annotations = !\{\}\n"
    r'|, !range !\d+|!"expected", |^!\d+ = !\{i\d+ -?\d+, i\d+ -?\d+\}$'
    # The column of a label, which releases before 21 do not have.
    r"|(?<=\d), column: \d+(?=\)$)|dead_on_return(?:\(\d+\))? "
    r"|\b(?:dead_on_unwind|writable) "
    # A PTX ISA version that a release does not support; it reports that when it generates code.
    r"|\+ptx\d+,"
    # The assignment IDs of stores, which LLVM 15 does not have.
    r"|, !DIAssignID !\d+|^!\d+ = distinct !DIAssignID\(\)\n"
    # Whether a register is reserved, and whether the provenance of a pointer is observed.
    r'|(?<="non-leaf)-no-reserve(?=")|(?<= ptrto)(?:addr|int)(?= )',
    re.MULTILINE,
)
# Debug info fields from LLVM 21 on, which older releases do not have.
_DETAILS = ("atomGroup", "atomRank", "keyInstructions")
_DETAIL = re.compile(rf", (?:{'|'.join(_DETAILS)}): \w+(?=[,)])")
# The blank after a removed attribute at the end of a parameter.
_BEFORE_END = re.compile(r" (?=[,)])")
# The retained nodes of a function, which older releases reject.
_RETAINED = re.compile(r", retainedNodes: !(\d+)")
_DECLARED = re.compile(r"^declare [^\n]*\n", re.MULTILINE)
_RULE = re.compile(r"\[([A-Z]+\d+)\]")


def outcomes(job: Job, writer: Reader, readers: Sequence[Reader]) -> Iterator[tuple[int, str]]:
    """Yield the result of a downgrade for each older reader: `right`, or the kind of error."""
    newest = readers[-1]
    printed = writer.print(job.output.read_bytes(), job.triple)
    text = printed.output.decode(errors="replace")
    # Newer releases print the summary, which is for links and not part of the code.
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
    # The reader may have replaced some intrinsics by its own.
    left = reader.print(made.encode(), triple).output.decode(errors="replace")
    unknown = unknown_names(reader, dict(intrinsics(left)))
    if unknown:
        return f"UNKNOWN: {' '.join(sorted(unknown))}"
    again = newest.spell(written.output).output.decode(errors="replace")
    texts = [_comparable(one) for one in (original, again)]
    wrong = [one for one in differences(*texts) if not one.is_harmless]
    return f"WRONG: {wrong[0].before[:120]} -> {wrong[0].after[:120]}" if wrong else "right"


def _comparable(text: str) -> str:
    """Return a module without optimization hints and with sorted declarations, whose order depends on their names."""
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
