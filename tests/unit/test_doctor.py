"""The plan, the verdicts and the output of the doctor; no program is started."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import replace
from support.doctor import release, report

from mlir_offload.driver.doctor.examination import Examination, exit_status
from mlir_offload.driver.doctor.json import render_json, schema_text
from mlir_offload.driver.doctor.machine import Machine, machine_findings
from mlir_offload.driver.doctor.plan import Combination, known_kinds, plan_combinations
from mlir_offload.driver.doctor.report import show_report, summary
from mlir_offload.driver.doctor.trial import Bench, Cell, MadeObject, Trial, Verdict
from mlir_offload.toolchain.cuda import CudaToolkit
from mlir_offload.toolchain.errors import ToolFailedError
from mlir_offload.toolchain.inventory import Inventory, ProbedLlvm
from mlir_offload.toolchain.llvm import LlvmInstallation, LlvmToolchain
from mlir_offload.toolchain.process import Command, Completed
from mlir_offload.toolchain.rocm import RocmInstallation
from mlir_offload.toolchain.target import Kind, all_kinds
from mlir_offload.toolchain.tool import ToolVersion


def toolkit(root: str, version: tuple[int, int] = (13, 0)) -> CudaToolkit:
    where = Path(root)
    return CudaToolkit(
        where,
        ToolVersion(*version, 88),
        ptxas=where / "ptxas",
        nvlink=where / "nvlink",
        fatbinary=where / "fatbinary",
        libdevice=where / "libdevice.10.bc",
        cudart=where / "libcudart.so",
    )


def installation_of(llvm: LlvmToolchain) -> LlvmInstallation:
    return LlvmInstallation(llvm.prefix, tuple((name, str(path)) for name, path in llvm.tools), "")


def inventory(
    *majors: int, cuda: tuple[CudaToolkit, ...] = (), gpus: tuple[str, ...] = ()
) -> Inventory:
    releases = [release(major) for major in majors]
    probed = tuple(ProbedLlvm(installation_of(one), one) for one in releases)
    return Inventory(
        probed, cuda, (), gpus, releases[0] if releases else None, next(iter(cuda), None)
    )


@dataclass
class Answers:
    """Every program ends so, having said so."""

    returncode: int = 0
    stdout: str = ""
    stderr: str = ""
    asked: list[Command] = field(default_factory=list)

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        assert input_text is None
        self.asked.append(command)
        return Completed(command, self.returncode, self.stdout, self.stderr)


class Slow:
    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        msg = f"{command.program} did not end within {command.limit_s} s, {input_text}"
        raise ToolFailedError(msg)


def pairs(planned: tuple[Combination, ...], kind: Kind) -> list[tuple[int, int]]:
    return [
        (one.producer.version.major, one.consumer.version.major)
        for one in planned
        if one.kind is kind
    ]


def test_each_release_that_lowers_is_paired_with_each_that_links() -> None:
    planned = plan_combinations(inventory(22, 19, 16), (Kind.OPENMP,))
    # LLVM 16 is too old to lower.
    assert pairs(planned, Kind.OPENMP) == [
        (22, 22), (22, 19), (22, 16), (19, 22), (19, 19), (19, 16)
    ]  # fmt: skip
    assert [one.label for one in planned if one.is_default] == ["openmp host, LLVM 22"]


def test_a_second_release_of_one_number_is_tried_with_itself_and_told_apart() -> None:
    found = inventory(22, 19)
    other = replace(release(22), prefix=Path("/opt/other"))
    probed = ProbedLlvm(installation_of(other), other)
    planned = plan_combinations(replace(found, llvm=(probed, *found.llvm)), (Kind.OPENMP,))
    assert [one.label for one in planned] == [
        "openmp host, LLVM 22 in /llvm-22",
        "openmp host, LLVM 22 in /llvm-22 for 19",
        "openmp host, LLVM 22 in /opt/other",
        "openmp host, LLVM 22 in /opt/other for 19",
        "openmp host, LLVM 19 for 22",
        "openmp host, LLVM 19",
    ]
    assert {str(one.consumer.prefix) for one in planned} == {"/llvm-22", "/llvm-19", "/opt/other"}
    assert [one.is_default for one in planned] == [True, *[False] * 5]


def test_each_toolkit_is_tried_and_those_of_one_release_are_told_apart() -> None:
    cuda = (toolkit("/usr/local/cuda"), toolkit("/a/long/way/to/site/cu13"))
    planned = plan_combinations(inventory(22, cuda=cuda), known_kinds())
    assert [one.sdk.name for one in planned if one.sdk] == [
        "CUDA 13.0.88 in /usr/local/cuda",
        "CUDA 13.0.88 in .../to/site/cu13",
    ]
    assert [one.is_default for one in planned if one.kind is Kind.CUDA] == [True, False]


@pytest.mark.parametrize(
    ("majors", "gpus", "arch"),
    [((22,), (), "sm_121"), ((22, 15), (), "sm_86"), ((22, 15), ("sm_90",), "sm_90")],
    ids=["newest", "common", "of-the-gpu"],
)
def test_the_architecture_is_that_of_the_gpu_or_one_that_all_know(
    majors: tuple[int, ...], gpus: tuple[str, ...], arch: str
) -> None:
    found = inventory(*majors, cuda=(toolkit("/cuda"),), gpus=gpus)
    assert {one.arch for one in plan_combinations(found, (Kind.CUDA,))} == {arch}


def test_an_incomplete_toolkit_is_not_tried() -> None:
    cuda = replace(toolkit("/cuda"), libdevice=None)
    assert plan_combinations(inventory(22, cuda=(cuda,)), (Kind.CUDA,)) == ()


def bench(runner: Answers | Slow, folder: Path) -> Bench:
    return Bench(runner, folder, 1, 5, has_gpu=False)


def mixed() -> Combination:
    return plan_combinations(inventory(22, 19), (Kind.OPENMP,))[1]


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (1, Verdict.FAILS),
        (2, Verdict.REFUSED),
        (3, Verdict.INCOMPLETE),
        (4, Verdict.REFUSED),
        (5, Verdict.FAILS),
        (6, Verdict.DROPS),
        (-11, Verdict.FAILS),
    ],
)
def test_a_refusal_is_told_in_the_words_of_the_driver(
    status: int, verdict: Verdict, tmp_path: Path
) -> None:
    said = '{"severity": "error", "message": "no way", "hint": "another"}\nnoise\n'
    answers = Answers(status, "", said)
    ours = bench(answers, tmp_path).try_combination(mixed(), 0).ours
    assert (ours.verdict, ours.reason, ours.hint) == (verdict, "no way", "another")
    assert ours.command.startswith("mlir-offload --llvm=/llvm-22 --for-clang=19 ")
    assert answers.asked[0].limit_s == 5


def test_a_driver_that_only_dies_is_told_by_its_status(tmp_path: Path) -> None:
    cell = bench(Answers(-9, "", "[1]\n"), tmp_path).try_combination(mixed(), 0)
    assert cell.ours.reason == "killed by SIGKILL"


def test_success_without_an_output_is_no_success(tmp_path: Path) -> None:
    cell = bench(Answers(), tmp_path).try_combination(mixed(), 0)
    assert cell.ours.verdict is Verdict.FAILS
    assert cell.ours.exit_status != 0


def test_a_trial_has_a_limit(tmp_path: Path) -> None:
    ours = bench(Slow(), tmp_path).try_combination(mixed(), 0).ours
    assert ours.verdict is Verdict.LATE
    assert "--timeout" in ours.hint


def test_what_cannot_be_compiled_is_not_linked_by_clang_alone(tmp_path: Path) -> None:
    made: Future[MadeObject] = Future()
    failure = Trial(Verdict.INCOMPLETE, "no ptxas", exit_status=3)
    made.set_result(MadeObject(tmp_path / "object.o", failure))
    answers = Answers(3)
    cell = bench(answers, tmp_path).try_combination(mixed(), 0, made)
    assert cell.alone is not None
    assert cell.alone.reason == "no ptxas"
    assert len(answers.asked) == 1


def test_without_a_release_that_lowers_the_status_is_that_of_something_missing() -> None:
    found = Examination(Answers(), Inventory((), (), (), ()), 1, 5).report((Kind.OPENMP,))
    assert found.exit_status == 3
    assert "incomplete" in summary(found)
    assert any("mlir-22-tools" in one.command for one in found.to_install)


@pytest.mark.parametrize(
    ("verdicts", "native", "status"),
    [
        ({Kind.OPENMP: Verdict.WORKS, Kind.CUDA: Verdict.LINKS}, Kind.OPENMP, 0),
        ({Kind.OPENMP: Verdict.WORKS, Kind.HIP: Verdict.INCOMPLETE}, Kind.OPENMP, 0),
        ({Kind.OPENMP: Verdict.WORKS, Kind.HIP: Verdict.DROPS}, Kind.OPENMP, 7),
        ({Kind.OPENMP: Verdict.WORKS, Kind.CUDA: Verdict.INCOMPLETE}, Kind.CUDA, 7),
        ({Kind.OPENMP: Verdict.WORKS}, Kind.CUDA, 3),
        ({Kind.OPENMP: Verdict.WORKS}, None, 0),
        ({}, None, 3),
    ],
)
def test_the_status_is_that_of_what_a_build_here_would_use(
    verdicts: Mapping[Kind, Verdict], native: Kind | None, status: int
) -> None:
    one = release(22)
    cells = [
        Cell(Combination(kind, "", one, one, is_default=True), Trial(verdict, exit_status=7))
        for kind, verdict in verdicts.items()
    ]
    assert exit_status(cells, native) == status


def test_the_json_is_as_its_schema_says() -> None:
    document = json.loads(render_json(report()))
    schema = json.loads(schema_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
    assert [one["mlir_offload"]["verdict"] for one in document["combinations"]] == [
        "links", "refused", "links", "refused"
    ]  # fmt: skip


def test_the_schema_knows_every_verdict_and_kind() -> None:
    definitions = json.loads(schema_text())["$defs"]
    assert definitions["trial"]["properties"]["verdict"]["enum"] == [str(v) for v in Verdict]
    assert set(definitions["combination"]["properties"]["kind"]["enum"]) == set(all_kinds())


def test_the_text_has_the_matrix_the_reasons_and_what_to_install() -> None:
    stream = io.StringIO()
    with redirect_stdout(stream):
        show_report(report("[bold]odd[/bold]"), verbose=True)
    text = stream.getvalue()
    # Output of tools is not interpreted as markup.
    assert "[bold]odd[/bold]" in text
    assert "error TOOL006" in text
    assert "clang alone: cuda sm_90, LLVM 22" in text
    assert text.splitlines()[-1].startswith("The default toolchain works: cuda sm_90")


def machine(
    found: Inventory, environment: Mapping[str, str], answers: Answers | None = None
) -> Machine:
    releases = tuple(release(major) for major in (22, 19))
    return Machine(answers or Answers(), found, environment, releases)


def rules(one: Machine) -> dict[str, str]:
    return {finding.rule: finding.message for finding in machine_findings(one)}


def test_what_to_install_names_what_is_missing_and_its_role() -> None:
    found = Examination(Answers(), inventory(22), 1, 5).report((Kind.OPENMP,))
    (one,) = [one for one in found.to_install if "libomptarget" in one.purpose]
    assert (one.purpose, one.command) == ("libomptarget (cpu)", "apt install liboffload-22")


def test_a_libomptarget_of_another_release_on_the_library_path_is_found(tmp_path: Path) -> None:
    for major in (19, 22):
        (tmp_path / f"libomptarget.so.{major}.1").touch()
    found = rules(machine(inventory(22), {"LD_LIBRARY_PATH": f":{tmp_path}:/nowhere"}))
    assert f"{tmp_path}/libomptarget.so.19.1 of LLVM 19" in found["ENV001"]
    assert "ENV001" not in rules(machine(inventory(19), {"LD_LIBRARY_PATH": "/nowhere"}))


@pytest.mark.parametrize(("version", "found"), [("V12.4.131", ["ENV002"]), ("V13.0.88", [])])
def test_an_older_ptxas_first_on_the_path_is_found(
    version: str, found: list[str], tmp_path: Path
) -> None:
    ptxas = tmp_path / "bin" / "ptxas"
    ptxas.parent.mkdir()
    ptxas.touch(mode=0o755)
    answers = Answers(0, f"Cuda compilation tools, release 1.0, {version}\n")
    path = {"PATH": f"/nowhere:{ptxas.parent}"}
    said = rules(machine(inventory(22, cuda=(toolkit("/cuda"),)), path, answers))
    assert [rule for rule in said if rule == "ENV002"] == found


@pytest.mark.parametrize(
    ("driver", "severity"),
    [((12, 4), "error"), ((13, 0), "warning"), ((13, 1), None), ((14, 0), None), (None, None)],
)
def test_a_driver_older_than_the_toolkit_is_found(
    driver: tuple[int, int] | None, severity: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = "mlir_offload.driver.doctor.machine.probe_cuda_driver"
    monkeypatch.setattr(place, lambda: driver)
    found = machine_findings(machine(inventory(22, cuda=(toolkit("/cuda", (13, 1)),)), {}))
    assert [str(f.severity) for f in found if f.rule == "ENV003"] == (
        [severity] if severity else []
    )


def test_what_clang_says_of_cuda_and_rocm_is_told_once(tmp_path: Path) -> None:
    libs = RocmInstallation(tmp_path, tmp_path, (400, 500), None, "")
    found = replace(inventory(22, cuda=(toolkit("/a"), toolkit("/b"))), rocm=(libs,))
    said = (
        "clang: warning: CUDA version is newer than the latest partially supported version 12.9 [-W]\n"
        "clang: error: cannot find ROCm device library for ABI version 6, which requires ROCm 6.3\n"
    )
    findings = machine_findings(machine(found, {}, Answers(0, "", said)))
    assert [finding.rule for finding in findings] == ["ENV004", "ENV005", "ENV005", "ENV006"]
    assert "clang 22 knows CUDA up to 12.9, clang 19 knows" in findings[0].message
    assert "compile for one of 4, 5" in findings[1].hint
    assert findings[3].hint == "apt install lld-22"
