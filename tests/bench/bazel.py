"""Compare the overhead of `build --remote=` and of Bazel for the same actions on the same workers.

usage: python tests/bench/bazel.py [--modules N] [--workers N] [--directory DIR]

Bazel is Debian's: apt install bazel-bootstrap. Its actions are those of `build --emit=ninja`, one Starlark
rule per step, with other output directories. Both clients run 64 actions concurrently. The processor time of
a client is that of its process and its children, without the startup. For Bazel, whose server ends with the
client, the startup is measured by a call that only performs analysis.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".importroot"), str(ROOT / "tests")]

from bench.remote import COMMAND, MANIFEST, Relay, relayed, run_bench, say  # noqa: E402 (found by the line above)
from support.project import digests, write_project  # noqa: E402
from support.remote_server import INSTANCE, BuildGrid, build_grid, write_command  # noqa: E402

_JOBS = "64"
_STEP = re.compile(r"^build (.+): (?:step|noting) (.+)\n  arguments = (.+)$", re.MULTILINE)
_BUILT = "build/default/"
# On the worker, the driver is where `write_command` puts it, and no environment variables are inherited.
_RULE = """\
def _step(ctx):
    place = ctx.bin_dir.path + "/build/default/"
    ctx.actions.run(
        executable = "/usr/local/bin/mlir-offload",
        arguments = [word.replace("build/default/", place) for word in ctx.attr.words],
        inputs = ctx.files.srcs,
        outputs = ctx.outputs.outs,
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        mnemonic = "Step",
    )
    return [DefaultInfo(files = depset(ctx.outputs.outs))]

step = rule(implementation = _step, attrs = {
    "srcs": attr.label_list(allow_files = True),
    "outs": attr.output_list(),
    "words": attr.string_list(),
})
"""


@dataclass(frozen=True)
class Cost:
    """The cost of a client for a number of actions: processor seconds, bytes sent and received."""

    actions: int
    cpu_s: float
    sent: int
    received: int

    def show(self, name: str) -> None:
        cpu, sent, received = (
            number * 1000 / self.actions
            for number in (self.cpu_s, self.sent / 1e6, self.received / 1e6)
        )
        say(
            f"{name}: {self.actions} actions, {cpu:.1f} ms of processor time,"
            f" {sent:.1f} kB sent and {received:.1f} kB received per action"
        )


def processor_time(folder: Path, words: list[str]) -> float:
    """Run a program that must succeed, and return its processor time in seconds."""
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(words, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit((folder / "log").read_text(errors="replace"))
    return usage.ru_utime + usage.ru_stime


def write_workspace(project: Path) -> int:
    """Write the files that Bazel requires into the project; return the number of steps."""
    subprocess.run([*COMMAND, "--emit=ninja"], cwd=project, check=True)
    steps = _STEP.findall((project / "build/build.ninja").read_text())
    rules = [_rule(number, *step) for number, step in enumerate(steps)]
    (project / "BUILD").write_text('load(":step.bzl", "step")\n' + "\n".join(rules))
    (project / "step.bzl").write_text(_RULE)
    (project / "WORKSPACE").write_text("")
    shutil.rmtree(project / "build")
    return len(steps)


def _rule(number: int, outputs: str, inputs: str, words: str) -> str:
    name = f'name = "step{number}"'
    return (
        f"step({name}, srcs = {inputs.split()}, outs = {outputs.split()}, words = {words.split()})"
    )


def bazel(place: Path, grid: BuildGrid, port: int) -> tuple[list[str], list[str]]:
    """Return the commands that build all steps, and that only analyze them."""
    # With --batch, the process itself is the server of Bazel, so its time is counted.
    start = ["bazel", "--batch", f"--output_user_root={place}", "build"]
    remote = (
        *(f"--remote_executor=grpc://127.0.0.1:{port}", f"--remote_instance_name={INSTANCE}"),
        f"--remote_header=authorization=Bearer {grid.token.read_text().strip()}",
        *("--spawn_strategy=remote", f"--jobs={_JOBS}", "--noshow_progress"),
    )
    return [*start, *remote, "//..."], [*start, *remote, "--nobuild", "//..."]


def _ours(folder: Path, grid: BuildGrid, relay: Relay, steps: int) -> Cost:
    url = f"--remote=grpc://127.0.0.1:{relay.port}/{INSTANCE}"
    words = [*COMMAND, "-j", _JOBS, url, grid.options[1]]
    relay.take()
    spent = processor_time(folder, words)
    taken = relay.take()
    # A build without work measures the startup and the check of all files.
    return Cost(steps, spent - processor_time(folder, words), *taken)


def _bazel(folder: Path, place: Path, grid: BuildGrid, relay: Relay, steps: int) -> Cost:
    words, analysis = bazel(place, grid, relay.port)
    start = processor_time(folder, analysis)
    relay.take()
    spent = processor_time(folder, words)
    return Cost(steps, spent - start, *relay.take())


def measure(place: Path, modules: int, workers: int) -> None:
    project = write_project(place / "first", MANIFEST, modules)
    steps = write_workspace(project)
    shutil.copytree(project, place / "second")
    (place / "grid").mkdir()
    with contextlib.ExitStack() as stack:
        grid = stack.enter_context(build_grid(place / "grid"))
        relay = stack.enter_context(relayed(grid.port))
        with _farm(grid, place, workers):
            _ours(project, grid, relay, steps).show("mlir-offload, workers")
            _bazel(project, place / "bazel-first", grid, relay, steps).show("Bazel, workers")
        second = place / "second"
        _ours(second, grid, relay, steps).show("mlir-offload, results of the server")
        _bazel(second, place / "bazel-second", grid, relay, steps).show(
            "Bazel, results of the server"
        )
    made = digests(project / _BUILT, ".images")
    same = digests(project / "bazel-bin" / _BUILT, ".images") == made
    say(f"device images of both equal: {len(made)} {same}")


@contextlib.contextmanager
def _farm(grid: BuildGrid, place: Path, workers: int) -> Iterator[None]:
    command = write_command(place / "command")
    with contextlib.ExitStack() as farm:
        for number in range(workers):
            farm.enter_context(grid.worker(f"worker{number}", command))
        yield


if __name__ == "__main__":
    run_bench(__doc__, measure)
