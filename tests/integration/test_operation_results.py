"""What the operations of the gpu dialect give on the CPU, number by number."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from support.host_operations import HOST, LEFT, PRINTED, caller_of_host
from support.operation_batch import Results, read_results, write_batch, wrong_threads
from support.operation_executed import ADDED
from support.operation_probe import Dim3, Probe, text_of
from support.operation_results import PROBES
from support.operation_table import TABLE, TARGETS

from mlir_offload.offload.runtime import EXIT_STATUS

RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]


@dataclass(frozen=True, slots=True)
class Built:
    """A program of all probes of a release with what they leave, and one of host operations."""

    release: int
    results: Results
    hosted: Path

    def run(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run one function of inputs/host_operations.mlir, which prints what it leaves."""
        return run(str(self.hosted), name)


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module", params=RELEASES)
def built(
    request: pytest.FixtureRequest,
    mlir_offload: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Built:
    release = request.param
    folder = tmp_path_factory.mktemp(f"results{release}")
    probes = [probe for probe in PROBES if probe.of(release)]
    program, hosted, caller = (folder / name for name in ("program", "hosted", "hosted.c"))
    caller.write_text(caller_of_host())
    for output, sources in (
        (program, write_batch(folder, probes, release)),
        (hosted, (HOST, caller)),
    ):
        flags = (f"--llvm={release}", "--offload-arch=host", "-O1", *map(str, sources))
        done = run(*mlir_offload, *flags, "-o", str(output))
        assert done.returncode == 0, done.stderr
    ran = subprocess.run([program], capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")
    return Built(release, read_results(ran.stdout, probes, release), hosted)


@pytest.mark.parametrize(
    ("probe", "block"),
    [
        pytest.param(probe, block, id=f"{probe.name} {block}")
        for probe in PROBES
        for block in probe.blocks
    ],
)
def test_every_thread_gets_what_the_dialect_defines(
    built: Built, probe: Probe, block: Dim3
) -> None:
    rows = built.results.get((probe.name, block), [])
    assert wrong_threads(probe, built.release, block, rows) == {}


@pytest.mark.parametrize("release", [19, 22])
def test_every_operation_that_the_cpu_has_is_run(release: int) -> None:
    texts = (path.read_text() for path in (HOST, *ADDED["cpu"]))
    text = "".join((*texts, text_of(PROBES, release)))
    rows = [row for group in yaml.safe_load(TABLE.read_text())["groups"] for row in group["rows"]]
    wanted = {
        name
        for row in rows
        if row.get("since", 19) <= release <= row.get("until", release)
        and "cpu" not in row
        and "cpu" in row.get("linked", TARGETS)
        for name in row["op"]
    }
    # The end of a module before LLVM 20, which is never written.
    assert wanted - {"module_end"} <= set(re.findall(r"\bgpu\.(\w+)", text))


@pytest.mark.parametrize("name", LEFT)
def test_memory_holds_what_the_host_and_kernels_wrote(built: Built, name: str) -> None:
    assert built.run(name).stdout.split() == [name, *map(str, LEFT[name])]


def test_a_kernel_prints_numbers_of_every_type(built: Built) -> None:
    assert built.run("print").stdout == f"{PRINTED}print\n"


STOPPED = {
    "asserted": r"host_operations\.mlir:\d+: \(unknown\): block: \[0,0,0\], thread: \[2,0,0\] "
    "Assertion `thread too large` failed",
    "absent_device": "there is no device 99: 'host' has",
    "too_many": "a block has more than 1024 threads",
}


@pytest.mark.parametrize("name", STOPPED)
def test_what_cannot_go_on_stops_the_program_with_its_reason(built: Built, name: str) -> None:
    stopped = built.run(name)
    assert stopped.returncode == EXIT_STATUS
    assert stopped.stdout == ""
    assert re.search(STOPPED[name], stopped.stderr)
