"""Builds of LLVM that no table knows: what is learned of them is right, and is all that a build needs."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from support.trunk import REAL, make_trunk, toolchain_in

from mlir_offload.driver.tools import calibration
from mlir_offload.driver.tools.calibration import (
    as_values,
    differing_lists,
    learn_toolchain,
    table_values,
)
from mlir_offload.driver.tools.family import PROGRAM_ROWS, Family
from mlir_offload.driver.tools.releases import kinds_of
from mlir_offload.offload.abi import load_abi
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.learned_row import (
    AmdgpuProgramRow,
    CpuProgramRow,
    EntriesRow,
    MissingPassesRow,
    OffloadKindsRow,
    ProgramsRow,
    list_of,
)
from mlir_offload.toolchain.process import ProcessRunner
from mlir_offload.toolchain.tables import (
    LearnedRelease,
    forget_learned,
    known_release,
    parse_learned,
)
from mlir_offload.translate.pipelines import load_recipe

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
DEVICE = (Family.ABI, Family.NVPTX, Family.AMDGPU)

pytestmark = pytest.mark.llvm(22)


@pytest.fixture(autouse=True)
def _as_shipped(trunk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # What one test asked the build for, another need not ask again.
    monkeypatch.setenv("XDG_CACHE_HOME", str(trunk / "cache"))
    yield
    forget_learned()


@pytest.fixture(scope="module")
def compiled(trunk: Path, mlir_offload: list[str]) -> subprocess.CompletedProcess[str]:
    """Return the first compilation with the build, which asks its tools; it writes `a.o` and `a.json` to the same directory."""
    source = str(EXAMPLES / "saxpy.mlir")
    command = [*mlir_offload, f"--llvm={trunk}", source, "--offload-arch=host,sm_80,gfx90a", "-c"]
    outputs = ["-o", "a.o", "--manifest=a.json"]
    return _run([*command, *outputs], trunk, XDG_CACHE_HOME=str(trunk / "cache"))


@pytest.fixture(scope="module")
def trunk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a build that calls itself 24.0.0git."""
    return make_trunk(tmp_path_factory.mktemp("trunk"))


def _learn(prefix: Path, families: tuple[Family, ...] = (Family.ABI,)) -> LearnedRelease:
    return learn_toolchain(
        toolchain_in(prefix), families, ProcessRunner(), is_fresh=True, is_quiet=True
    )


def _run(
    command: list[str], cwd: Path, *, status: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        cwd=cwd,
        check=False,
        text=True,
        capture_output=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == status, done.stderr
    return done


@pytest.mark.parametrize(
    "major", [pytest.param(one, marks=pytest.mark.llvm(one)) for one in (15, 16, 19, 22)]
)
def test_what_is_learned_of_a_measured_release_is_what_the_tables_say(
    major: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the tools did not tell would be as in another release.
    other = {15: 16, 16: 15, 19: 16, 22: 19}[major]
    monkeypatch.setattr(calibration, "base_release", lambda _: other)
    llvm = toolchain_in(Path(f"/usr/lib/llvm-{major}"))
    families = [*DEVICE, Family.LINKS, *((Family.RECIPE,) if llvm.can_lower else ())]
    # Which images link: of the newest release only, below; those for NVIDIA GPUs in tests/foreign/learned.py.
    release = learn_toolchain(llvm, families, ProcessRunner(), is_fresh=True, is_quiet=True)
    assert (release.assumed, release.refused) == ((), ())
    rows = {list_of(row): row for row in release.rows if not isinstance(row, MissingPassesRow)}
    assert len(rows) >= 15  # clang 15 tells no code object version
    for name, row in rows.items():
        assert (name, as_values(row)) == (name, table_values(row, major))


def test_an_unknown_build_compiles_what_the_release_does_that_it_is_made_from(
    trunk: Path,
    tmp_path: Path,
    mlir_offload: list[str],
    compiled: subprocess.CompletedProcess[str],
) -> None:
    note = "LLVM 24.0.0git: not in the tables; learned from its tools"
    assert f"{note} (37 probes, as LLVM 22)" in compiled.stderr
    release = [*mlir_offload, f"--llvm={trunk}"]
    # Another kind, and a part of the recipe that the first program did not need.
    source = str(ROOT / "driver" / "data" / "micro_bf16.mlir")
    again = _run([*release, source, "--offload-arch=spirv64", "-c", "-o", "intel.o"], tmp_path)
    assert f"{note} (14 probes, as LLVM 22)" in again.stderr
    _run([*mlir_offload, "check", f"--llvm={trunk}", str(trunk / "a.o"), "intel.o"], tmp_path)
    saxpy, host = str(EXAMPLES / "saxpy.mlir"), "--offload-arch=host"
    bundled = _run(
        [*mlir_offload, "bundle", f"--llvm={trunk}", saxpy, "-o", "a.mob", host], tmp_path
    )
    assert "learned" not in bundled.stderr
    _run([*mlir_offload, "link", f"--llvm={trunk}", "a.mob", "-o", "again"], tmp_path)
    assert "saxpy: ok" in _run(["./again"], tmp_path).stdout


def test_learned_rows_travel_with_objects_to_a_machine_that_does_not_ask_again(
    trunk: Path,
    tmp_path: Path,
    mlir_offload: list[str],
    compiled: subprocess.CompletedProcess[str],
) -> None:
    assert compiled.returncode == 0
    record = json.loads((trunk / "a.json").read_text(encoding="utf-8"))
    build = record["predicate"]["buildDefinition"]["internalParameters"]
    assert build["learnedRows"]["version"] == "24.0.0git"
    elsewhere = str(tmp_path / "elsewhere")
    link = [*mlir_offload, f"--llvm={trunk}", str(trunk / "a.o"), "-o", "prog"]
    linked = _run(link, tmp_path, XDG_CACHE_HOME=elsewhere)
    assert linked.stderr == ""
    assert "saxpy: ok" in _run(["./prog"], tmp_path).stdout
    sections = _run([str(REAL / "llvm-readelf"), "-SW", "prog"], tmp_path).stdout
    assert ".mlir_offload.learned" not in sections


def test_rows_that_were_printed_serve_where_the_build_is_not_installed(
    trunk: Path, tmp_path: Path, mlir_offload: list[str]
) -> None:
    command = [*mlir_offload, "--llvm=22", "--for-clang=24", str(EXAMPLES / "saxpy.mlir"), "-c",
               "--offload-arch=host", "-o", "a.o"]  # fmt: skip
    refused = _run(command, tmp_path, status=4)
    assert "the offloading ABI of LLVM 24 is not known" in refused.stderr
    assert "mlir-offload learn --llvm=24 --json" in refused.stderr
    # Links for NVIDIA GPUs are tried by tests/foreign/learned.py.
    learn = [*mlir_offload, "learn", f"--llvm={trunk}", "--json"]
    printed = _run(learn, tmp_path, CUDA_PATH="none")
    learned = parse_learned(printed.stdout, "learn")
    without = "no CUDA toolkit was found: images for NVIDIA GPUs cannot be linked"
    forms, *others = learned.assumed
    assert forms == f"images that link ({without})"
    # The build has no libraries of its own.
    assert all("libmlir_async_runtime.so of LLVM 24" in other for other in others)
    assert differing_lists(learned) == ()
    lists = {list_of(row) for row in learned.rows}
    images = ("host", "amdgcn", "spirv")
    assert {f"offload_abi.linked_images.{device}" for device in images} <= lists
    assert {list_of(row({})) for row in PROGRAM_ROWS.values()} <= lists
    (tmp_path / "rows.json").write_text(printed.stdout, encoding="utf-8")
    _run(command, tmp_path, MLIR_OFFLOAD_LEARNED="rows.json")


def test_learn_prints_a_patch_that_the_tables_take(
    trunk: Path, tmp_path: Path, mlir_offload: list[str]
) -> None:
    learn = [*mlir_offload, "learn", f"--llvm={trunk}"]
    shown = _run(learn, tmp_path).stdout
    assert "offload_abi.offload_kinds: codes" in shown
    assert "the same" in shown
    patch = _run([*learn, "--patch"], tmp_path, SOURCE_DATE_EPOCH="1700000000").stdout
    for layer in ("offload", "toolchain", "translate"):
        (tmp_path / layer / "data").mkdir(parents=True)
        for table in (ROOT / layer / "data").glob("*.yaml"):
            (tmp_path / layer / "data" / table.name).write_bytes(table.read_bytes())
    subprocess.run(["patch", "-p1"], cwd=tmp_path, check=True, input=patch, text=True)
    text = (tmp_path / "offload" / "data" / "offload_abi.yaml").read_text(encoding="utf-8")
    table = yaml.safe_load(text)
    assert table["majors"]["last"] == 24
    assert 24 in table["entries"][-1]["checked"]
    # LLVM 22 writes no version 2 of containers, and a row says that 23 does: 24 is new there.
    assert table["container"]["rows"][-1]["since"] == 24
    assert "mlir-offload learn, LLVM 24.0.0git, 2023-11-14" in text


# What clang prints of the struct of entries and of each entry, and what its linker wrapper does.
_ONE_MORE = r"s/(tgt_offload_entry = type \{ i64.*) \}/\1, i64 }/; s/(ptr null|ptr @mo_managed) \}, section/\1, i64 N }, section/"
_RENAMED = "s/llvm_offload_entries/llvm_offload_table/g"


def _renamed(release: LearnedRelease) -> None:
    row = next(row for row in release.rows if isinstance(row, EntriesRow))
    assert set(row.sections.values()) == {"llvm_offload_table"}
    assert load_abi(24).entry.sections[0][1] == "llvm_offload_table"


def _one_more(release: LearnedRelease) -> None:
    assert differing_lists(release) == ("entries",)
    assert [field.name for field in load_abi(24).entry.fields][-2:] == ["auxiliary", "reserved9"]
    assert load_abi(24).entry.size_bytes == load_abi(22).entry.size_bytes + 8


@pytest.mark.parametrize(
    ("change", "check"),
    [(_RENAMED, _renamed), (_ONE_MORE.replace("N", "0"), _one_more)],
    ids=["a renamed section", "one more field"],
)
def test_altered_entries_are_learned(
    tmp_path: Path, change: str, check: Callable[[LearnedRelease], None]
) -> None:
    release = _learn(make_trunk(tmp_path / "llvm", {"clang": change}))
    assert release.refused == ()
    check(release)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"clang": _ONE_MORE.replace("N", "7")}, "member 9 (i64) of its offload entries is 7"),
        (
            {"clang": r"/^@\.offloading\.entry/s/llvm_offload_entries/llvm_offload_table/"},
            "into llvm_offload_table, and the linker wrapper reads llvm_offload_entries",
        ),
        (
            {"clang": r"/@__hip(Register|Unregister)/d"},
            "its linker wrapper drops images of kind hip",
        ),
        (
            {"clang": r"s/icmp eq i16 %kind, 4/icmp eq i16 %kind, 16/"},
            "gives kind hip the number 4, and the linker wrapper reads 16",
        ),
    ],
    ids=[
        "a field that is not zero",
        "a section of clang alone",
        "an image dropped",
        "a kind misread",
    ],
)
def test_altered_tools_that_cannot_be_followed_are_refused_with_the_reason(
    tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    release = _learn(make_trunk(tmp_path / "llvm", changes))
    assert reason in release.refused[0]
    with pytest.raises(CompatibilityError, match=r"LLVM 24\.0\.0git cannot be linked for: "):
        load_abi(24)


def test_other_numbers_of_kinds_are_learned_from_the_packager_and_held_against_the_wrapper(
    tmp_path: Path,
) -> None:
    # Writes 32 for hip, in the two bytes behind the image kind of each entry.
    renumber = (
        "import pathlib,sys; p=pathlib.Path(sys.argv[sys.argv.index('-o')+1]); b=p.read_bytes(); "
        "p.write_bytes(b.replace(bytes([0,0,4,0,0,0,0,0]),bytes([0,0,32,0,0,0,0,0])))"
    )
    packager = f'!{{real}} "$@" && exec python3 -c "{renumber}" "$@"'
    changes = dict.fromkeys(("llvm-offload-binary", "clang-offload-packager"), packager)
    release = _learn(make_trunk(tmp_path / "llvm", changes))
    row = next(row for row in release.rows if isinstance(row, OffloadKindsRow))
    assert row.codes["hip"] == 32
    assert "hip" in release.refused[0]


def test_a_pass_that_is_gone_is_left_out_or_missed(tmp_path: Path) -> None:
    gone = r"/--(canonicalize|convert-ub-to-llvm) /d"
    _learn(
        make_trunk(tmp_path / "one", {"mlir-opt": gone.replace("canonicalize|", "")}),
        (Family.RECIPE,),
    )
    assert "convert-ub-to-llvm" in load_recipe(22).host
    assert "convert-ub-to-llvm" not in load_recipe(24).host
    forget_learned()
    _learn(make_trunk(tmp_path / "two", {"mlir-opt": r"/--gpu-to-llvm /d"}), (Family.RECIPE,))
    with pytest.raises(CompatibilityError, match="has no pass gpu-to-llvm"):
        load_recipe(24)


# An operation of the kernel becomes another one, and a pass for AMD GPUs fails.
_MISLOWERS = (
    '!out=$(echo "$*" | sed "s/.* -o \\([^ ]*\\).*/\\1/"); '
    'for a; do shift; set -- "$@" "$(echo "$a" | sed "s/chipset=gfx900/chipset=none/g")"; done; '
    '{real} "$@" || exit; case "$*" in *convert-gpu-to-nvvm*) sed -i s/llvm.xor/llvm.or/ "$out";; esac'
)


def test_micro_programs_tell_of_a_recipe_that_fails_or_computes_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    llvm = toolchain_in(make_trunk(tmp_path / "llvm", {"mlir-opt": _MISLOWERS}))
    wrong = "its result 0 is 173 on the CPU, and 127 is right"
    with pytest.raises(
        CompatibilityError, match=f"cannot be used to lower: micro program on the CPU: {wrong}"
    ):
        calibration.calibrate(llvm, kinds_of(["gfx90a"]), ProcessRunner(), lowers=True)
    learned = known_release(24)
    assert learned is not None
    failed = {type(row): row.failed for row in learned.rows if isinstance(row, ProgramsRow)}
    assert failed[CpuProgramRow] == {"results": wrong}
    assert failed[AmdgpuProgramRow]["lowering"].startswith("pass ConvertAMDGPUToROCDLPass fails: ")


def test_two_builds_of_one_number_that_differ_are_not_mixed(
    trunk: Path, tmp_path: Path, mlir_offload: list[str]
) -> None:
    other = make_trunk(tmp_path / "other", {"clang": _RENAMED})
    source = str(EXAMPLES / "saxpy.mlir")
    _run(
        [*mlir_offload, f"--llvm={trunk}", source, "--offload-arch=host", "-c", "-o", "a.o"],
        tmp_path,
    )
    failed = _run([*mlir_offload, f"--llvm={other}", "a.o", "-o", "prog"], tmp_path, status=4)
    assert (
        "two builds call themselves LLVM 24.0.0git and differ in offload_abi.entries"
        in failed.stderr
    )


def test_bitcode_for_an_unmeasured_reader_is_given_to_it_before_the_link(
    trunk: Path, tmp_path: Path, mlir_offload: list[str]
) -> None:
    source = str(EXAMPLES / "saxpy.mlir")
    compiled = ["--offload-arch=sm_80", "--device-code=bitcode", "-c"]
    _run([*mlir_offload, "--llvm=22", source, *compiled, "-o", "released.o"], tmp_path)
    _run([*mlir_offload, f"--llvm={trunk}", source, *compiled, "-o", "own.o"], tmp_path)
    link = [*mlir_offload, f"--llvm={trunk}", "-###", "-o", "prog"]
    assert "misreads" not in _run([*link, "own.o"], tmp_path).stderr
    link.remove("-###")
    said = _run([*link, "released.o"], tmp_path).stderr
    assert "no table says what LLVM 24.0.0git misreads: it has read 1 module of bitcode" in said
    assert "misreads" not in _run([*link, "own.o"], tmp_path).stderr
    # A reader that loses a kernel, and one that refuses.
    shrink = (
        '!case "$*" in *-disable-llvm-passes*) eval out=\\${{$#}}; '
        'echo "target triple = \\"nvptx64-nvidia-cuda\\"" | {real} -x ir -c -emit-llvm - -o "$out";; '
        '*) exec {real} "$@";; esac'
    )
    refuse = '!case "$*" in *-disable-llvm-passes*) echo "x: error: Unknown attribute kind" >&2; exit 1;; *) exec {real} "$@";; esac'
    for name, change, reason in (
        ("shrinks", shrink, "LLVM 24.0.0git misreads it: kernel '"),
        ("refuses", refuse, "LLVM 24.0.0git does not read it: Unknown attribute kind"),
    ):
        other = make_trunk(tmp_path / name, {"clang": change})
        link = [*mlir_offload, f"--llvm={other}", "released.o", "-o", "prog"]
        failed = _run(link, tmp_path, status=4).stderr
        assert reason in failed
        assert "image cuda nvptx64-nvidia-cuda sm_80: " in failed


def test_the_steps_that_are_printed_know_what_was_learned(
    trunk: Path, tmp_path: Path, mlir_offload: list[str]
) -> None:
    source = str(EXAMPLES / "saxpy.mlir")
    command = [*mlir_offload, f"--llvm={trunk}", source, "--offload-arch=host", "-c", "-o", "a.o"]
    printed = _run([*command, "-###", "-save-temps=temps"], tmp_path).stderr
    lines = [
        line
        for line in printed.splitlines()
        if line.startswith(("export ", "mlir-offload step embed"))
    ]
    assert [line.split()[0] for line in lines] == ["export", "mlir-offload"]
    _run([*command, "-save-temps=temps"], tmp_path)
    (tmp_path / "mlir-offload").write_text(f'#!/bin/sh\nexec {shlex.join(mlir_offload)} "$@"\n')
    (tmp_path / "mlir-offload").chmod(0o755)
    _run(["sh", "-ec", "PATH=.:$PATH\n" + "\n".join(lines)], tmp_path)
