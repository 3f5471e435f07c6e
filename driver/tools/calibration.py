"""Learn the table rows of an unknown LLVM build by probing its tools, once, and cache them."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from mlir_offload.driver.message.report import report, show_note
from mlir_offload.driver.system.memo import Memo
from mlir_offload.driver.system.parallel import parallel_map
from mlir_offload.driver.system.workspace import user_cache
from mlir_offload.driver.tools.family import (
    GPU_PROGRAMS,
    PART_PROGRAMS,
    PROBES,
    PROGRAM_ROWS,
    Family,
    Learners,
    has_family,
    kind_programs,
    program_families,
    waves,
)
from mlir_offload.driver.tools.llvm_files import llvm_files
from mlir_offload.driver.tools.micro_program import (
    RESULTS,
    compile_together,
    micro_programs,
    needed_parts,
    passed_programs,
)
from mlir_offload.offload.abi import row_of
from mlir_offload.offload.calibrate.probe import CannotLearnError, ContradictionError, ProbeBench
from mlir_offload.toolchain.errors import CompatibilityError, MlirOffloadError, VerificationError
from mlir_offload.toolchain.learned_row import LearnedRow, ProgramsRow, list_of
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.ptx import parse_nvptx_table, support_of
from mlir_offload.toolchain.tables import (
    LearnedRelease,
    for_now,
    known_release,
    learn_release,
    load_table,
    parse_learned,
)
from mlir_offload.toolchain.target import Kind, sm_number, uses_cuda, uses_rocm
from mlir_offload.toolchain.tool import load_llvm_table

_PROBES = (
    "offload/calibrate",
    "translate/calibrate.py",
    "toolchain/learned_row.py",
    "driver/tools/family.py",
    "driver/tools/micro_program.py",
    *(f"driver/data/{program.name}" for program in micro_programs()),
)


def nearest_release(major: int) -> int:
    """Return the measured release to compare a build with: the newest that is not newer than it."""
    measured = load_llvm_table().measured
    return max((one for one in measured if one <= major), default=measured[0])


def base_release(major: int) -> int:
    """Return the release whose rows apply if probes fail: that of the same number, else the nearest one."""
    majors = load_table("mlir_offload.offload", "offload_abi")["majors"]
    return major if majors["first"] <= major <= majors["last"] else nearest_release(major)


def calibrate(
    llvm: LlvmToolchain,
    kinds: Collection[Kind],
    runner: Runner,
    *,
    lowers: bool,
    sources: Iterable[Path] = (),
) -> None:
    """Learn how the build compiles, lowers and links for the kinds, as far as its programs are installed.

    Micro programs for rare features are tested only if the sources may need them. Raises CompatibilityError
    if the build miscompiles the smallest program.
    """
    uses = {Family.NVPTX: uses_cuda(kinds), Family.AMDGPU: uses_rocm(kinds)}
    device = {family for family, is_used in uses.items() if is_used}
    families = {Family.ABI, *device} if llvm.has("clang") else set[Family]()
    passes = {Family.RECIPE} if lowers and llvm.can_lower else set[Family]()
    # Learned rows are embedded in objects, and used by the link.
    links = {Family.LINKS} if families and llvm.has("clang-linker-wrapper") else set[Family]()
    programs = program_families(llvm, kinds) if passes else []
    needed = needed_parts(map(_content, sources), kinds) if programs else frozenset()
    parts = {family for family in PART_PROGRAMS if PROGRAM_ROWS[family] in needed}
    # These probes take too long for a build. If `learn` has run them, their cached results are used.
    later = {Family.FORMS, *(PART_PROGRAMS if passes else ())} - parts
    identity = llvm_identity(llvm)
    known = {one for one in later if _remembered(llvm, identity, one) is not None}
    release = learn_toolchain(llvm, families | passes | links | parts | known | {*programs}, runner)
    check_programs(release, kind_programs(kinds))


def _content(source: Path) -> bytes:
    """Return the content of a source, empty if it is unreadable; its compilation will report the error."""
    try:
        return source.read_bytes()
    except OSError:
        return b""


def check_programs(release: LearnedRelease, used: Mapping[Family, bool]) -> None:
    """Raise CompatibilityError if a program failed to lower for a kind in use, or any gave a wrong result."""
    rows = {type(row): row for row in release.rows if isinstance(row, ProgramsRow)}
    for family, is_used in used.items():
        row = rows.get(PROGRAM_ROWS[family])
        for name, reason in row.failed.items() if row is not None else ():
            if not is_used and name != RESULTS:
                continue
            msg = f"LLVM {release.version} cannot be used to lower: {family}: {reason}"
            hint = f"lower with a release that works: --llvm={release.nearest}"
            raise CompatibilityError(msg, hint=hint)


def learn_toolchain(
    llvm: LlvmToolchain,
    families: Collection[Family],
    runner: Runner,
    *,
    is_fresh: bool = False,
    is_quiet: bool = False,
    cuda: Path | None = None,
) -> LearnedRelease:
    """Return what is known of an unmeasured build, after probing its tools for the families not known yet.

    `cuda` is the root of a CUDA toolkit, for links for NVIDIA GPUs. With `is_fresh`, all families are
    probed; with `is_quiet`, no note is printed. The learned rows apply in this process from then on.
    """
    identity = llvm_identity(llvm)
    known = known_release(llvm.version.major)
    if known is not None and known.identity == identity and not is_fresh:
        families = [family for family in families if not has_family(known.rows, family)]
    found, asked = _empty(llvm, identity), _empty(llvm, identity)
    for wave in waves(families):
        own = [family for group in wave for family in group]
        parts = {} if is_fresh else _all_remembered(llvm, identity, own)
        missing = [tuple(one for one in group if one not in parts) for group in wave]
        tasks = [partial(_ask, llvm, identity, group, runner, cuda) for group in missing if group]
        for family, part in _at_once(_empty(llvm, identity), tasks):
            _memo().keep(_subject(llvm, family), _stamp(identity), part.text)
            asked, parts[family] = asked.with_more(part), part
        for family in own:
            found = found.with_more(parts[family])
            learn_release(parts[family])
    if asked.probes and not is_quiet:
        show_note(learned_text(asked))
    return known_release(llvm.version.major) or found


_Answers: TypeAlias = list[tuple[Family, LearnedRelease]]


def _at_once(
    empty: LearnedRelease, tasks: Sequence[Callable[[], _Answers]]
) -> Iterator[tuple[Family, LearnedRelease]]:
    """Yield the answers of tasks that run concurrently.

    A micro program is compiled in this process. Its messages are discarded, and for this compilation all
    micro programs count as passed.
    """
    if not tasks:
        return
    tried = replace(empty, rows=passed_programs())
    with report().set_aside(), for_now(tried):
        answers = parallel_map(tasks)
    for answer in answers:
        yield from answer


def learned_text(release: LearnedRelease) -> str:
    """Return one line: the build, the number of probes, and differences from the nearest release."""
    differences = differing_lists(release)
    compared = f"as LLVM {release.nearest}"
    if differences:
        compared = f"differs from {release.nearest} in {', '.join(differences)}"
    probes = "1 probe" if release.probes == 1 else f"{release.probes} probes"
    text = (
        f"LLVM {release.version}: not in the tables; learned from its tools ({probes}, {compared})"
    )
    assumed = "".join(f"; as in LLVM {release.nearest}: {one}" for one in release.assumed)
    refused = "".join(f"; {one}" for one in release.refused)
    return text + assumed + refused


def differing_lists(release: LearnedRelease) -> tuple[str, ...]:
    """Return the lists of rows in which a build differs from the nearest release."""
    return tuple(
        list_of(row).partition(".")[2]
        for row in release.rows
        if as_values(row) != table_values(row, release.nearest)
    )


def as_values(row: LearnedRow) -> dict[str, Any]:
    """Return a row as in the tables, with lists sorted if their order has no meaning."""
    values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(row))
    del values["list"]
    return {name: _ordered(value) for name, value in values.items()}


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: sorted(v) if isinstance(v, list) else v for key, v in value.items()}
    return value


def table_values(row: LearnedRow, major: int) -> dict[str, Any]:
    """Return the row of a release in the shipped tables, from the list of the given row."""
    table, *keys = list_of(row).split(".")
    if isinstance(row, ProgramsRow):
        return {"failed": {}}
    if table == "pipelines":
        return {"passes": []}
    folder = {"offload_abi": "offload", "nvptx_layout": "translate"}.get(table, "toolchain")
    found: Any = load_table(f"mlir_offload.{folder}", table)
    if table == "nvptx":
        one = support_of(parse_nvptx_table(found).llvm, (major, 0), "LLVM")
        order = [name for name in dict(parse_nvptx_table(found).oldest_isa) if name in one.archs]
        return {"isa": list(one.isa), "arch": sorted(order, key=_sm_order), "oldest_isa": {}}
    for key in keys:
        found = found[key]
    plain = {
        name: value
        for name, value in row_of(found, major).items()
        if name not in {"since", "checked", "source"}
    }
    return {name: _ordered(value) for name, value in plain.items()}


def _sm_order(arch: str) -> tuple[int, str]:

    return sm_number(arch), arch


def _ask(
    llvm: LlvmToolchain,
    identity: str,
    group: tuple[Family, ...],
    runner: Runner,
    cuda: Path | None,
) -> list[tuple[Family, LearnedRelease]]:
    """Return the rows of the families of a group, from its probes."""
    with tempfile.TemporaryDirectory(prefix="mlir-offload-") as folder:
        base, path = base_release(llvm.version.major), os.environ.get("PATH", "")
        bench = ProbeBench(runner, llvm, Path(folder), base, cuda=cuda, search_path=path)
        empty = _empty(llvm, identity)
        if set(group) <= set(GPU_PROGRAMS) and len(group) > 1:
            return _ask_together(bench, empty, group)
        return [(family, _learned(bench, empty, family, PROBES[family])) for family in group]


def _ask_together(
    bench: ProbeBench, empty: LearnedRelease, group: tuple[Family, ...]
) -> list[tuple[Family, LearnedRelease]]:
    """Return the rows of one program for several GPUs; assumptions and errors are in the first."""
    rows = [PROGRAM_ROWS[family] for family in group]
    found = _learned(bench, empty, group[0], compile_together(rows))
    parts: list[tuple[Family, LearnedRelease]] = []
    for family in group:
        own = tuple(row for row in found.rows if isinstance(row, PROGRAM_ROWS[family]))
        parts.append((family, replace(empty if parts else found, rows=own)))
    return parts


def _learned(
    bench: ProbeBench, release: LearnedRelease, family: Family, learners: Learners
) -> LearnedRelease:
    """Return the rows that the probes of a family learn, and why others failed."""
    before = bench.count
    for learn in learners(bench):
        try:
            found = learn()
        except (CannotLearnError, CompatibilityError) as error:
            assumed = f"{family} ({error.message})"
            release = replace(release, assumed=(*release.assumed, assumed))
            continue
        except ContradictionError as error:
            release = replace(release, refused=(*release.refused, error.message))
            continue
        more = replace(release, rows=tuple(found.rows), assumed=tuple(found.assumed))
        release = release.with_more(more)
    return replace(release, probes=bench.count - before)


def _empty(llvm: LlvmToolchain, identity: str) -> LearnedRelease:
    major = llvm.version.major
    return LearnedRelease(llvm.spelled, major, nearest_release(major), identity)


def llvm_identity(llvm: LlvmToolchain) -> str:
    """Return the identity of an LLVM build, which is equal on all hosts with the same files."""
    try:
        lines = "".join(f"{file.name} {file.content}\n" for file in llvm_files(llvm))
    except MlirOffloadError as error:
        # Without an identity, two builds cannot be distinguished, and each invocation probes again.
        return f"unknown: {error.message}"
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _remembered(llvm: LlvmToolchain, identity: str, family: Family) -> LearnedRelease | None:
    text = _memo().find(_subject(llvm, family), _stamp(identity))
    if text is None or identity.startswith("unknown"):
        return None
    try:
        return parse_learned(text, str(family))
    except VerificationError:
        return None


def _all_remembered(
    llvm: LlvmToolchain, identity: str, families: Iterable[Family]
) -> dict[Family, LearnedRelease]:
    found = ((family, _remembered(llvm, identity, family)) for family in families)
    return {family: part for family, part in found if part is not None}


def _memo() -> Memo:
    return Memo(user_cache(os.environ) / "learned")


def _subject(llvm: LlvmToolchain, family: Family) -> str:
    return f"{family} {llvm.prefix}"


def _stamp(identity: str) -> str:
    return f"{identity} {_probes_identity()}"


@cache
def _probes_identity() -> str:
    """Return a hash of the probes' sources, which changes with the release of the driver."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for name in _PROBES:
        place = root / name
        for file in sorted(place.glob("*.py")) if place.is_dir() else [place]:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
