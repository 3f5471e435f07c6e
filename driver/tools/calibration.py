"""Ask the tools of a build of LLVM for the rows that no table has, once, and remember what they said."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.system.memo import Memo
from mlir_offload.driver.system.workspace import user_cache
from mlir_offload.driver.tools.llvm_files import llvm_files
from mlir_offload.driver.tools.micro_program import (
    micro_programs,
    try_for_gpu,
    try_on_cpu,
    try_parts,
)
from mlir_offload.offload.abi_table import row_of
from mlir_offload.offload.calibrate.device import learn_amdgpu, learn_nvptx
from mlir_offload.offload.calibrate.entry import learn_entries
from mlir_offload.offload.calibrate.form import learn_forms
from mlir_offload.offload.calibrate.link import learn_links
from mlir_offload.offload.calibrate.packager import learn_packager
from mlir_offload.offload.calibrate.probe import (
    CannotLearnError,
    ContradictionError,
    Learned,
    ProbeBench,
)
from mlir_offload.offload.calibrate.wrapper import learn_wrapper
from mlir_offload.toolchain.errors import CompatibilityError, MlirOffloadError, VerificationError
from mlir_offload.toolchain.learned import (
    LearnedRelease,
    known_release,
    learn_release,
    parse_learned,
)
from mlir_offload.toolchain.learned_row import (
    AmdgpuProgramRow,
    LearnedRow,
    NvptxProgramRow,
    ProgramsRow,
    SpirvProgramRow,
    list_of,
)
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.llvm_tools import Role, load_llvm_table
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.ptx import parse_nvptx_table, support_of
from mlir_offload.toolchain.tables import load_table
from mlir_offload.toolchain.target import Kind, device_kind, sm_number, uses_cuda, uses_rocm
from mlir_offload.translate.calibrate import learn_recipe

_PROBES = (
    "offload/calibrate",
    "translate/calibrate.py",
    "toolchain/learned_row.py",
    "driver/tools/micro_program.py",
    *(f"driver/data/{program.name}" for program in micro_programs()),
)


class Family(StrEnum):
    """Probes that are run together."""

    ABI = "offloading ABI"
    NVPTX = "NVIDIA GPUs"
    AMDGPU = "AMD GPUs"
    RECIPE = "passes"
    LINKS = "groups and libraries of a link"
    FORMS = "images that link"
    CPU_PROGRAM = "micro program on the CPU"
    NVPTX_PROGRAM = "micro program for NVIDIA GPUs"
    AMDGPU_PROGRAM = "micro program for AMD GPUs"
    SPIRV_PROGRAM = "micro program for SPIR-V"
    PART_PROGRAMS = "micro programs for parts of the recipe"


def nearest_release(major: int) -> int:
    """Return the measured release whose rows a build is held against: the newest that is not newer."""
    measured = load_llvm_table().measured
    return max((one for one in measured if one <= major), default=measured[0])


def base_release(major: int) -> int:
    """Return the release whose rows count where tools do not tell: that of the number, else the nearest one."""
    majors = load_table("mlir_offload.offload", "offload_abi")["majors"]
    return major if majors["first"] <= major <= majors["last"] else nearest_release(major)


def calibrate(
    llvm: LlvmToolchain, kinds: Collection[Kind], runner: Runner, *, lowers: bool
) -> None:
    """Learn what compiles, lowers and links for the kinds, as far as the programs for it are there.

    Raises CompatibilityError where the build lowers the smallest program wrongly.
    """
    uses = {Family.NVPTX: uses_cuda(kinds), Family.AMDGPU: uses_rocm(kinds)}
    device = {family for family, is_used in uses.items() if is_used}
    families = {Family.ABI, *device} if llvm.has("clang") else set[Family]()
    passes = {Family.RECIPE} if lowers and llvm.can_lower else set[Family]()
    # Behind what is written: its images are packaged so. Objects take the answers to where they are linked.
    links = [Family.LINKS] if families and llvm.has("clang-linker-wrapper") else []
    chosen = [*sorted(families | passes), *links]
    programs = program_families(llvm, kinds) if passes else []
    # Too long for a build: `learn` asks for it, and what it found is used.
    later = [Family.FORMS, *([Family.PART_PROGRAMS] if passes else [])]
    identity = llvm_identity(llvm)
    chosen += (one for one in later if _remembered(llvm, identity, one) is not None)
    release = learn_toolchain(llvm, [*chosen, *programs], runner)
    _check_programs(release, programs)


def program_families(llvm: LlvmToolchain, kinds: Collection[Kind]) -> list[Family]:
    """Return the micro programs that tell whether a build lowers for these kinds, as far as it can compile them."""
    if not (llvm.can_lower and llvm.can(Role.LINK)):
        return []
    uses = {
        Family.CPU_PROGRAM: True,
        Family.NVPTX_PROGRAM: uses_cuda(kinds),
        Family.AMDGPU_PROGRAM: uses_rocm(kinds),
        Family.SPIRV_PROGRAM: any(device_kind(kind).triple.startswith("spirv") for kind in kinds),
    }
    return [family for family, is_used in uses.items() if is_used]


def _check_programs(release: LearnedRelease, families: Collection[Family]) -> None:
    lists = {_LISTS[family]: family for family in families}
    for row in release.rows:
        family = lists.get(list_of(row))
        if family is None or not isinstance(row, ProgramsRow) or not row.failed:
            continue
        reason = next(iter(row.failed.values()))
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
    """Return what is known of an unmeasured build, asking its tools for what is not known yet.

    `cuda` is the root of a CUDA toolkit, for links for NVIDIA GPUs.

    `is_fresh`: they are asked in any case; `is_quiet`: no note says so. What is learned holds in this process from then on.
    """
    identity = llvm_identity(llvm)
    known = known_release(llvm.version.major)
    if known is not None and known.identity == identity and not is_fresh:
        families = [family for family in families if not _has(known, family)]
    found, asked = _empty(llvm, identity), _empty(llvm, identity)
    for family in families:
        part = None if is_fresh else _remembered(llvm, identity, family)
        if part is None:
            part = _ask(llvm, identity, family, runner, cuda)
            _memo().keep(_subject(llvm, family), _stamp(identity), part.text)
            asked = asked.with_more(part)
        found = found.with_more(part)
        # Later probes build on what earlier ones found.
        learn_release(part)
    if asked.probes and not is_quiet:
        show_note(learned_text(asked))
    return known_release(llvm.version.major) or found


def learned_text(release: LearnedRelease) -> str:
    """Return one line: which build, how it was learned, and where it differs from the nearest release."""
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
    """Return the lists of rows in which a build is not as the nearest release."""
    return tuple(
        list_of(row).partition(".")[2]
        for row in release.rows
        if as_values(row) != table_values(row, release.nearest)
    )


def as_values(row: LearnedRow) -> dict[str, Any]:
    """Return a row as the tables have it, lists whose order says nothing in one order."""
    values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(row))
    del values["list"]
    return {name: _ordered(value) for name, value in values.items()}


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: sorted(v) if isinstance(v, list) else v for key, v in value.items()}
    return value


def table_values(row: LearnedRow, major: int) -> dict[str, Any]:
    """Return what the tables as they are shipped say of a release in the list that a row is of."""
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
    llvm: LlvmToolchain, identity: str, family: Family, runner: Runner, cuda: Path | None
) -> LearnedRelease:
    with tempfile.TemporaryDirectory(prefix="mlir-offload-") as folder:
        base, path = base_release(llvm.version.major), os.environ.get("PATH", "")
        bench = ProbeBench(runner, llvm, Path(folder), base, cuda=cuda, search_path=path)
        release = _empty(llvm, identity)
        for learn in _PROBES_OF[family](bench):
            try:
                found = learn()
            except (CannotLearnError, CompatibilityError) as error:
                release = replace(
                    release, assumed=(*release.assumed, f"{family} ({error.message})")
                )
                continue
            except ContradictionError as error:
                release = replace(release, refused=(*release.refused, error.message))
                continue
            more = replace(release, rows=tuple(found.rows), assumed=tuple(found.assumed))
            release = release.with_more(more)
        return replace(release, probes=bench.count)


def _abi(bench: ProbeBench) -> Iterator[Callable[[], Learned]]:

    written = Learned()

    def keep(learn: Callable[[ProbeBench], Learned]) -> Learned:
        found = learn(bench)
        written.rows.extend(found.rows)
        return found

    yield lambda: keep(learn_packager)
    yield lambda: keep(learn_entries)
    yield lambda: learn_wrapper(bench, written)


def _nvptx(bench: ProbeBench) -> Iterator[Callable[[], Learned]]:

    yield lambda: learn_nvptx(bench)


def _amdgpu(bench: ProbeBench) -> Iterator[Callable[[], Learned]]:

    yield lambda: learn_amdgpu(bench)


def _recipe(bench: ProbeBench) -> Iterator[Callable[[], Learned]]:

    yield lambda: learn_recipe(bench)


def _links(bench: ProbeBench) -> Iterator[Callable[[], Learned]]:
    yield lambda: learn_links(bench)


def _forms(bench: ProbeBench) -> Iterator[Callable[[], Learned]]:
    yield from learn_forms(bench)


_PROBES_OF: Mapping[Family, Callable[[ProbeBench], Iterator[Callable[[], Learned]]]] = {
    Family.ABI: _abi,
    Family.NVPTX: _nvptx,
    Family.AMDGPU: _amdgpu,
    Family.RECIPE: _recipe,
    Family.LINKS: _links,
    Family.FORMS: _forms,
    Family.CPU_PROGRAM: try_on_cpu,
    Family.NVPTX_PROGRAM: try_for_gpu(NvptxProgramRow),
    Family.AMDGPU_PROGRAM: try_for_gpu(AmdgpuProgramRow),
    Family.SPIRV_PROGRAM: try_for_gpu(SpirvProgramRow),
    Family.PART_PROGRAMS: try_parts,
}
_LISTS = {
    Family.ABI: "offload_abi.offload_kinds",
    Family.NVPTX: "nvptx",
    Family.AMDGPU: "amdgpu.",
    Family.RECIPE: "pipelines.missing",
    Family.LINKS: "offload_abi.linker_wrapper.archives",
    Family.FORMS: "offload_abi.linked_images.",
    Family.CPU_PROGRAM: "pipelines.programs.cpu",
    Family.NVPTX_PROGRAM: "pipelines.programs.nvptx",
    Family.AMDGPU_PROGRAM: "pipelines.programs.amdgcn",
    Family.SPIRV_PROGRAM: "pipelines.programs.spirv",
    Family.PART_PROGRAMS: "pipelines.programs.parts",
}


def _has(release: LearnedRelease, family: Family) -> bool:
    return any(list_of(row).startswith(_LISTS[family]) for row in release.rows)


def _empty(llvm: LlvmToolchain, identity: str) -> LearnedRelease:
    major = llvm.version.major
    return LearnedRelease(llvm.spelled, major, nearest_release(major), identity)


def llvm_identity(llvm: LlvmToolchain) -> str:
    """Return the identity of a build of LLVM: equal on all machines that have the same files."""
    try:
        lines = "".join(f"{file.name} {file.content}\n" for file in llvm_files(llvm))
    except MlirOffloadError as error:
        # Nothing tells two builds apart then: each call asks anew.
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


def _memo() -> Memo:
    return Memo(user_cache(os.environ) / "learned")


def _subject(llvm: LlvmToolchain, family: Family) -> str:
    return f"{family} {llvm.prefix}"


def _stamp(identity: str) -> str:
    return f"{identity} {_probes_identity()}"


@cache
def _probes_identity() -> str:
    """Return what tells the probes of this release of ours from those of another."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for name in _PROBES:
        place = root / name
        for file in sorted(place.glob("*.py")) if place.is_dir() else [place]:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
