"""NVIDIA architectures and PTX ISA versions that a release of LLVM and a release of CUDA support."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.toolchain import learned_row
from mlir_offload.toolchain.cuda import CudaToolkit
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.tables import learned_releases, load_table, table_cache
from mlir_offload.toolchain.target import sm_number

_Release = tuple[int, int]


class PtxSupport(Struct, frozen=True):
    """The support of one LLVM or CUDA release. `isa` are LLVM's feature numbers, ascending: 83 is PTX ISA 8.3."""

    release: _Release
    isa: tuple[int, ...]
    archs: frozenset[str]


class NvptxTable(Struct, frozen=True):
    """The releases in ascending order, the oldest PTX ISA of each architecture, and renamed architectures."""

    llvm: tuple[PtxSupport, ...]
    cuda: tuple[PtxSupport, ...]
    oldest_isa: tuple[tuple[str, int], ...]
    renamed: tuple[tuple[str, str], ...]


@table_cache
def load_nvptx_table() -> NvptxTable:
    """Return the table that ships with the package."""
    return _with_learned(parse_nvptx_table(load_table("mlir_offload.toolchain", "nvptx")))


def _with_learned(table: NvptxTable) -> NvptxTable:
    """Return the table with the learned rows. Each one applies only to its own release."""
    rows = {row.release: row for row in table.llvm}
    oldest = dict(table.oldest_isa)
    for release in learned_releases():
        for row in release.rows_of("nvptx"):
            if isinstance(row, learned_row.NvptxRow):
                before = support_of(table.llvm, (release.major, 0), "LLVM")
                behind = (release.major + 1, 0)
                rows.setdefault(behind, replace(before, release=behind))
                own = (release.major, 0)
                rows[own] = PtxSupport(own, row.isa, frozenset(row.arch))
                oldest = row.oldest_isa | oldest
    llvm = tuple(rows[key] for key in sorted(rows))
    return replace(table, llvm=llvm, oldest_isa=tuple(oldest.items()))


def ptx_isa_for(
    arch: str,
    llvm_major: int,
    cuda: CudaToolkit | None,
    *,
    is_assembled: bool = True,
    table: NvptxTable | None = None,
) -> int:
    """Return the PTX ISA version to compile for, as LLVM's feature number: 83 is 8.3.

    This is the newest version that LLVM and ptxas both support. Without a CUDA toolkit, it is the
    oldest version with the architecture, which every ptxas that supports the architecture reads. The
    same applies to bitcode (not `is_assembled`) if this ptxas does not support the architecture.
    Raises CompatibilityError if LLVM or ptxas does not support the architecture.
    """
    table = table or load_nvptx_table()
    llvm = support_of(table.llvm, (llvm_major, 0), "LLVM")
    if arch not in llvm.archs:
        raise _unknown_to_llvm(table, arch, llvm_major, llvm)
    oldest = dict(table.oldest_isa)[arch]
    if cuda is None or (not is_assembled and not knows_arch(cuda, arch, table=table)):
        return next(isa for isa in llvm.isa if isa >= oldest)
    release = (cuda.version.major, cuda.version.minor)
    ptxas = support_of(table.cuda, release, "CUDA")
    if arch not in ptxas.archs:
        raise _unknown_to_ptxas(table, arch, cuda, ptxas)
    newest = max((isa for isa in llvm.isa if isa <= ptxas.isa[-1]), default=0)
    if newest < oldest:
        msg = (
            f"{arch} needs PTX ISA {_dotted(oldest)}, but LLVM {llvm_major} and the ptxas of CUDA"
            f" {_release_name(release)} have no version above {_dotted(newest)} in common"
        )
        raise CompatibilityError(msg, hint=_newer_hint(table, arch))
    return newest


def knows_arch(cuda: CudaToolkit, arch: str, *, table: NvptxTable | None = None) -> bool:
    """Return whether the ptxas of a toolkit assembles code for an architecture."""
    release = (cuda.version.major, cuda.version.minor)
    return arch in support_of((table or load_nvptx_table()).cuda, release, "CUDA").archs


def supported_archs(
    llvm_major: int, cuda: CudaToolkit | None, *, table: NvptxTable | None = None
) -> tuple[str, ...]:
    """Return the architectures that this LLVM and, unless it is None, this CUDA support, in ascending order.

    Raises CompatibilityError if either is older than the table.
    """
    table = table or load_nvptx_table()
    archs = support_of(table.llvm, (llvm_major, 0), "LLVM").archs
    if cuda is not None:
        archs &= support_of(table.cuda, (cuda.version.major, cuda.version.minor), "CUDA").archs
    return tuple(sorted(archs, key=_arch_order))


def first_cuda_for(archs: Iterable[str], *, table: NvptxTable | None = None) -> _Release:
    """Return the oldest CUDA release, major and minor, whose ptxas supports all architectures.

    Raises CompatibilityError if the table has none.
    """
    wanted = frozenset(archs)
    for row in (table or load_nvptx_table()).cuda:
        if wanted <= row.archs:
            return row.release
    msg = f"no release of CUDA supports all of {_names(wanted)}"
    raise CompatibilityError(msg, hint="compile for them by calls of their own")


def support_of(rows: Sequence[PtxSupport], release: _Release, name: str) -> PtxSupport:
    """Return the row of a release: the newest row that is not newer. Raises CompatibilityError if there is none."""
    matching = [row for row in rows if row.release <= release]
    if not matching:
        oldest = _release_name(rows[0].release)
        msg = (
            f"{name} {_release_name(release)} is too old: {oldest} is the oldest release supported"
        )
        raise CompatibilityError(msg, hint=f"use {name} {_release_name(rows[-1].release)}")
    return matching[-1]


def _unknown_to_llvm(
    table: NvptxTable, arch: str, major: int, llvm: PtxSupport
) -> CompatibilityError:
    msg = f"LLVM {major} does not know {arch}"
    releases = [row.release for row in table.llvm if arch in row.archs]
    if releases:
        return CompatibilityError(
            msg, hint=f"use LLVM {_release_name(releases[0])} or newer (--llvm=)"
        )
    return CompatibilityError(msg, hint=_other_arch_hint(arch, llvm.archs))


def _unknown_to_ptxas(
    table: NvptxTable, arch: str, cuda: CudaToolkit, ptxas: PtxSupport
) -> CompatibilityError:
    release = _release_name((cuda.version.major, cuda.version.minor))
    where = cuda.ptxas or cuda.root
    msg = f"the ptxas of CUDA {release} ({where}) does not know {arch}"
    hints = []
    releases = [row.release for row in table.cuda if arch in row.archs]
    if releases:
        last = (
            "or newer"
            if releases[-1] == table.cuda[-1].release
            else f"to {_release_name(releases[-1])}"
        )
        hints.append(f"use CUDA {_release_name(releases[0])} {last} (--cuda-path=)")
    else:
        hints.append(_other_arch_hint(arch, ptxas.archs))
    for one, other in table.renamed:
        if arch in {one, other}:
            hints.append(f"{one} and {other} are one architecture, renamed by CUDA")
    return CompatibilityError(msg, hint="; ".join(hints))


def _other_arch_hint(arch: str, archs: Iterable[str]) -> str:
    """Return a hint for the newest older architecture of the same generation, whose code the GPU runs."""
    number = sm_number(arch)
    below = [
        a
        for a in archs
        if sm_number(a) <= number and a[-1].isdigit() and sm_number(a) // 10 == number // 10
    ]
    return f"use {max(below, key=sm_number)}" if below else f"use one of {_names(archs)}"


def _newer_hint(table: NvptxTable, arch: str) -> str:
    oldest = dict(table.oldest_isa)[arch]
    llvm = next((r.release for r in table.llvm if arch in r.archs and r.isa[-1] >= oldest), None)
    cuda = next((r.release for r in table.cuda if arch in r.archs and r.isa[-1] >= oldest), None)
    names = [f"{n} {_release_name(r)} or newer" for n, r in (("LLVM", llvm), ("CUDA", cuda)) if r]
    return f"{arch} needs {' and '.join(names)}"


def _names(archs: Iterable[str]) -> str:
    return ", ".join(sorted(archs, key=_arch_order))


def _arch_order(arch: str) -> tuple[int, str]:
    return sm_number(arch), arch


def _dotted(isa: int) -> str:
    return f"{isa // 10}.{isa % 10}"


def _release_name(release: _Release) -> str:
    """Return `22` for LLVM's (22, 0) and `13.0` for CUDA's (13, 0): LLVM's majors are above 14."""
    major, minor = release
    return f"{major}.{minor}" if major < _FIRST_LLVM else str(major)


_FIRST_LLVM = 15


def parse_nvptx_table(table: Mapping[str, Any]) -> NvptxTable:
    """Parse and check the table; each row of the result is complete.

    Raises ValueError with the name of an invalid row.
    """
    parsed = NvptxTable(
        llvm=_releases(table["llvm"], "llvm"),
        cuda=_releases(table["cuda"], "cuda"),
        oldest_isa=tuple((str(arch), int(isa)) for arch, isa in table["oldest_isa"].items()),
        renamed=tuple((str(one), str(other)) for one, other in table.get("renamed", {}).items()),
    )
    _check(parsed)
    return parsed


def _releases(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[PtxSupport, ...]:
    isa: tuple[int, ...] = ()
    archs: frozenset[str] = frozenset()
    releases = []
    for row in rows:
        _check_row(row, name, archs)
        added = row.get("isa", [])
        isa += tuple(added) if isinstance(added, list) else (added,)
        archs = (archs - frozenset(row.get("drops", []))) | frozenset(row.get("arch", []))
        major, _, minor = str(row["release"]).partition(".")
        releases.append(PtxSupport((int(major), int(minor or 0)), isa, archs))
    return tuple(releases)


def _check_row(row: Mapping[str, Any], name: str, known: frozenset[str]) -> None:
    where = f"nvptx: {name} {row.get('release')}"
    if unknown := set(row) - {"release", "isa", "arch", "drops"}:
        msg = f"{where}: unknown keys {sorted(unknown)}"
        raise ValueError(msg)
    if again := known & set(row.get("arch", [])):
        msg = f"{where}: adds {sorted(again)} again"
        raise ValueError(msg)
    if strangers := set(row.get("drops", [])) - known:
        msg = f"{where}: drops {sorted(strangers)}, which no row before it has"
        raise ValueError(msg)


def _check(table: NvptxTable) -> None:
    problems = []
    oldest = dict(table.oldest_isa)
    for name, rows in (("llvm", table.llvm), ("cuda", table.cuda)):
        releases = [row.release for row in rows]
        if not rows or releases != sorted(set(releases)):
            problems.append(f"{name}: releases must ascend, each once")
        problems += [
            f"{name}: isa of {r.release} descends" for r in rows if list(r.isa) != sorted(r.isa)
        ]
    for row in table.llvm:
        problems += _arch_problems(row, oldest)
    if problems:
        msg = f"nvptx: {'; '.join(problems)}"
        raise ValueError(msg)


def _arch_problems(row: PtxSupport, oldest: Mapping[str, int]) -> list[str]:
    problems = []
    for arch in sorted(row.archs):
        sm_number(arch)
        if arch not in oldest:
            problems.append(f"{arch} has no oldest_isa")
        elif oldest[arch] > row.isa[-1]:
            problems.append(f"llvm {row.release[0]} has {arch} but not its PTX ISA {oldest[arch]}")
    return problems
