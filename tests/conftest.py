"""Which tests need which real tools; with --require-tools nothing that needs them may be skipped."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import cast

import hypothesis
import pluggy
import pytest
from support.budget import budget_lines, processor_s
from support.warm_driver import warm_driver

# The compiler as a user starts it, with the interpreter that runs the tests.
COMMAND = [sys.executable, "-m", "mlir_offload.driver"]
ROOT = Path(__file__).resolve().parent.parent
_WORTH_A_SUMMARY = 1000
# The processor that the tests compile kernels for the CPU for, as -march names it; else the own one.
_MARCH = "MLIR_OFFLOAD_TEST_MARCH"
_USED = pytest.StashKey[float]()
_USED_S = "processor_s"


# The tests stay until the end: looking for garbage among them takes half of the collection.
gc.disable()


# The same examples in each run, whatever the machine is busy with.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("fixed")


@pytest.fixture(autouse=True, scope="session")
def _own_modules() -> None:
    """Let child processes import the packages of this tree, and choose nothing by environment."""
    os.environ["PYTHONPATH"] = str(ROOT / ".importroot")
    # As for users, what is imported has been compiled before: else each call would do it for 0.1 s.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(ROOT / ".pytest_cache" / "compiled")
    march = os.environ.get(_MARCH)
    for name in list(os.environ):
        if name.startswith(("MLIR_OFFLOAD_", "CCACHE_")) or name in {"CUDA_PATH", "CUDA_HOME"}:
            del os.environ[name]
    # A make that runs the tests is not the one that a test runs.
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
        os.environ.pop(name, None)
    if march:
        os.environ.update({_MARCH: march, "MLIR_OFFLOAD_MARCH": march})
    # What the user trusts is neither used nor changed.
    os.environ["XDG_STATE_HOME"] = str(ROOT / ".pytest_cache" / "state")
    # What runs the tests in the background has these ignored, and the compiler respects that.
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.fixture(scope="session")
def mlir_offload(_own_modules: None) -> Iterator[list[str]]:
    """Return the command line of the compiler, in a process that has loaded its modules before."""
    with warm_driver(COMMAND) as command:
        yield command


@pytest.fixture(scope="session")
def fresh_mlir_offload() -> list[str]:
    """Return the command line that starts a process for the compiler alone."""
    return COMMAND


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-tools",
        action="store_true",
        help="fail, instead of skipping, where a tool that a test needs is not installed",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    required = config.getoption("--require-tools")
    for item in items:
        for mark in item.iter_markers("llvm"):
            if not _has_llvm(*mark.args) and not required:
                item.add_marker(pytest.mark.skip(reason=f"LLVM {mark.args[0]} is not installed"))


def _has_llvm(major: int) -> bool:
    return Path(f"/usr/lib/llvm-{major}/bin/clang").exists()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look for garbage again, and begin to count: what the first test sets up is part of the sum."""
    gc.freeze()
    gc.enable()
    session.config.stash[_USED] = processor_s()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pluggy.Result[pytest.TestReport]]:
    """Turn a skip into a failure where the tools were promised; note the processor time of the phase."""
    outcome = yield
    report = outcome.get_result()
    used = processor_s()
    report.user_properties.append((_USED_S, used - item.config.stash[_USED]))
    item.config.stash[_USED] = used
    if (
        item.config.getoption("--require-tools")
        and report.skipped
        and not hasattr(report, "wasxfail")
    ):
        report.outcome = "failed"
        report.longrepr = f"skipped although --require-tools was given: {report.longrepr}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the time of each group of tests; a run of a few tests has nothing to compare."""
    reports = [
        report
        for found in terminalreporter.stats.values()
        for report in found
        if isinstance(report, pytest.TestReport)
    ]
    if len(reports) > _WORTH_A_SUMMARY:
        terminalreporter.section("processor time and budget of the tests, in seconds of one core")
        used = (
            (report.nodeid, cast("float", dict(report.user_properties)[_USED_S]))
            for report in reports
        )
        for line in budget_lines(used):
            terminalreporter.write_line(line)
