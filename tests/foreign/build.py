"""Compile, link, inspect, run and check one program for one target, as a user would."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foreign.program import Program
from foreign.result import NO, NONE, YES, Result
from support.opencl import opencl_environment

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("nvidia", "gfx90a", "spirv64", "host")
# The targets that support tensor core operations.
DEVICE_FUNCTION_TARGETS = frozenset({"nvidia", "host"})
_EXECUTED = frozenset({"spirv64", "host"})
# Releases that cannot link for a target, and the release that links their output instead.
_LINKING = {("19", "spirv64"): "22"}
# Programs with errors of their own; a GPU that schedules threads differently may still print the expected
# text.
_OWN_FAULTS = {
    "GPU/CUDA/sm90/gemm_f32_f16_f16_128x128x128.mlir": "no barrier between writing and reading accShmem",
    "GPU/CUDA/sm90/gemm_pred_f32_f16_f16_128x128x128.mlir": "no barrier between writing and reading accShmem",
    "GPU/CUDA/sm90/tma_load_128x64_swizzle128b.mlir": "expects 8192 bytes at its mbarrier, and copies 16384",
}
_BUILD_SECONDS = 300
_RUN_SECONDS = 60
_TIMEOUT = 124
_FIRST_ERROR = re.compile(r"error: (.*)")
_FILES = re.compile(r"(?:/[\w.+-]+)+/")
_MOST_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings for all programs: the release of LLVM, additional files to link, FileCheck, options."""

    llvm: str
    libraries: tuple[str, ...]
    filecheck: Path
    options: tuple[str, ...] = ()


def try_program(program: Program, target: str, setting: Setting, folder: Path) -> Result:
    """Return the result for a program and a target; `folder` is an empty directory for its files."""
    name = program.nvidia if target == "nvidia" else target
    result = Result(program.name, name)
    binary = folder / "program"
    built = _compile(program, name, setting, binary)
    if built.returncode:
        return replace(result, reason=_reason(built))
    inspected = _driver(("inspect", str(binary)), folder)
    result = replace(result, linked=YES, verified=NO if inspected.returncode else YES)
    if inspected.returncode:
        return replace(result, reason=_reason(inspected))
    if name not in _EXECUTED or not (program.is_run and program.has_main):
        return result
    return _run(program, name, setting, binary, result)


def _compile(
    program: Program, target: str, setting: Setting, output: Path
) -> subprocess.CompletedProcess[str]:
    pipeline = (f"--pipeline={program.pipeline},gpu",) if program.pipeline else ()
    linked = () if program.has_main else ("-shared", "-fPIC")
    form = ("-c", "-fgpu-rdc") if program.is_device else linked
    inputs = (str(program.path), *(() if program.is_device else setting.libraries))
    llvm = (f"--llvm={setting.llvm}", f"--offload-arch={target}")
    linking = _LINKING.get((setting.llvm, target))
    for_clang = (f"--for-clang={linking}",) if linking else ()
    options = (*llvm, *for_clang, *setting.options, *pipeline, *form)
    return _driver((*options, *inputs, "-o", str(output)), output.parent)


def _driver(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    argv = (sys.executable, "-m", "mlir_offload.driver", *arguments)
    environment = {"PYTHONPATH": str(ROOT / ".importroot"), "PATH": "/usr/bin:/bin"}
    return _call(argv, environment, _BUILD_SECONDS, folder)


def _run(program: Program, target: str, setting: Setting, binary: Path, result: Result) -> Result:
    environment = {**os.environ, **(opencl_environment() if target == "spirv64" else {})}
    done = _call((str(binary),), environment, _RUN_SECONDS, binary.parent)
    if done.returncode == _TIMEOUT:
        return replace(result, ran=NO, reason=f"did not end in {_RUN_SECONDS} s")
    expected = " (expected)" if program.fails and done.returncode else ""
    status = f"{done.returncode}{expected}"
    result = replace(result, ran=YES, status=status, reason=_reason(done))
    if not program.prefixes:
        return result
    printed = done.stdout + (done.stderr if program.merges_stderr else "")
    checked = _filecheck(program, setting.filecheck, printed)
    if checked.returncode == 0:
        return replace(result, checked=YES)
    own_fault = _OWN_FAULTS.get(program.name)
    reason = f"fault of the program: {own_fault}" if own_fault else result.reason
    return replace(result, checked=NO, reason=reason or _reason(checked))


def _filecheck(program: Program, filecheck: Path, printed: str) -> subprocess.CompletedProcess[str]:
    prefixes = ",".join(program.prefixes)
    argv = (str(filecheck), str(program.path), f"--check-prefixes={prefixes}")
    return subprocess.run(argv, input=printed, capture_output=True, text=True, check=False)


def _call(
    argv: Sequence[str], environment: Mapping[str, str], seconds: int, folder: Path
) -> subprocess.CompletedProcess[str]:
    # A new session, so that children of the command can be killed too, and a separate directory, because
    # crash reports are written to the working directory.
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=dict(environment),
        cwd=folder,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            message = f"error: no end in {seconds} s"
            return subprocess.CompletedProcess(argv, _TIMEOUT, "", message)
        return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """Return the first error, without the parts that differ between hosts."""
    found = _FIRST_ERROR.search(done.stderr)
    if found is None:
        return "" if done.returncode == 0 else f"status {done.returncode}"
    return _FILES.sub("", found[1])[:_MOST_CHARACTERS].strip()


__all__ = ["DEVICE_FUNCTION_TARGETS", "NONE", "TARGETS", "Setting", "try_program"]
