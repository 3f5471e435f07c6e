"""Report what a release of LLVM, CUDA or a driver would reject or misread in files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from mlir_offload.driver.message.report import report, show_error, show_note, show_warning
from mlir_offload.driver.message.skew import counted, is_error, message_of
from mlir_offload.driver.option.click_command import PATH, command
from mlir_offload.driver.tools.choose import choose_toolkit, places_for
from mlir_offload.driver.tools.releases import learn_llvm, learn_named
from mlir_offload.offload.container.file_form import FileForm, file_form
from mlir_offload.offload.skew.check import SkewFinding, check_file
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.cuda import CudaToolkit
from mlir_offload.toolchain.cuda_driver import load_drivers
from mlir_offload.toolchain.errors import (
    CompatibilityError,
    MlirOffloadError,
    ToolchainError,
    UsageError,
    VerificationError,
)
from mlir_offload.toolchain.llvm import choose_llvm, llvm_probe
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.rocm import choose_rocm
from mlir_offload.toolchain.search import SearchPlaces, find_llvm, find_rocm
from mlir_offload.toolchain.skew.fact import Consumer
from mlir_offload.toolchain.skew.limits import load_limits
from mlir_offload.toolchain.tool import Role

_DAMAGED = "BC005"
# Formats that contain neither LLVM IR nor device code.
_NEVER_CHECKED = (FileForm.TEXT, FileForm.MLIR, FileForm.MLIR_BYTECODE)


@command("check", click.Argument(["files"], nargs=-1, type=PATH), for_clang=None)
@click.pass_obj
def check(  # noqa: PLR0913, PLR0917 (one parameter for each option)
    runner: Runner,
    files: tuple[Path, ...],
    llvm: str,
    for_clang: str | None,
    cuda_path: str,
    rocm_path: str,
    driver: str,
) -> int:
    """Report what a release would reject or misread in FILES, by the rules that `explain` lists.

    Exit status 0 if there is no error, 4 if a file is incompatible, 6 if a file is damaged, 7 if a file
    cannot be read.
    """
    if not files:
        msg = "check needs a file"
        raise UsageError(msg, hint="name bitcode, LLVM IR, objects, libraries, programs, PTX")
    if driver:
        load_drivers().cuda_of(driver)
    places = places_for(llvm, cuda_path, rocm_path)
    consumer = Consumer(
        _release(for_clang, places, runner),
        _toolkit(places, runner),
        driver or None,
        choose_rocm(find_rocm(places), places.rocm) if rocm_path else None,
    )
    return max((_checked(path, consumer) for path in files), default=0)


def _release(for_clang: str | None, places: SearchPlaces, runner: Runner) -> int:
    """Return the release that reads the files: the one of `--for-clang=`, or the default."""
    if for_clang is not None:
        if not (for_clang.isascii() and for_clang.isdecimal()):
            msg = f"--for-clang={for_clang}: not a release of LLVM"
            raise UsageError(msg, hint="name the release that reads the files, such as 22")
        learn_named(for_clang, places, runner, os.environ)
        return _named_release(int(for_clang))
    try:
        chosen = choose_llvm(find_llvm(places), places.llvm, llvm_probe(runner), roles=[Role.LINK])
    except ToolchainError as error:
        error.hint += "; or name a release that need not be installed, with --for-clang="
        raise
    learn_llvm(chosen, (), runner)
    return chosen.version.major


def _named_release(release: int) -> int:
    """Return a release that need not be installed. Raises UsageError if no rule covers it."""
    readers = load_limits().readers
    known = f"the rules were measured with LLVM {readers[0]} to {readers[-1]}"
    if release < readers[0]:
        msg = f"--for-clang={release}: {known}"
        raise UsageError(msg, hint="name the release that reads the files, such as 22")
    if release not in readers:
        nearest = max(one for one in readers if one < release)
        show_warning(f"{known}; LLVM {release} is checked as LLVM {nearest}", "--for-clang")
    return release


def _toolkit(places: SearchPlaces, runner: Runner) -> CudaToolkit | None:
    """Return the CUDA toolkit; None if none was requested and none is complete."""
    try:
        return choose_toolkit(places, runner)
    except ToolchainError:
        if places.cuda is not None:
            raise
        return None


def _checked(path: Path, consumer: Consumer) -> int:
    """Report the findings in one file; return the exit status of their class."""
    try:
        findings = counted(check_file(path, consumer), report().options)
        with open_view(path) as view:
            form = file_form(view)
    except MlirOffloadError as error:
        show_error(error)
        return error.exit_status
    if form in _NEVER_CHECKED and not findings:
        show_note(f"{path}: not checked: {form}, without LLVM IR and device code")
    for finding in findings:
        report().add(message_of(finding))
    return _status(findings)


def _status(findings: Sequence[SkewFinding]) -> int:
    errors = [finding.rule for finding in findings if is_error(finding)]
    if not errors:
        return 0
    is_damaged = all(rule == _DAMAGED for rule in errors)
    return (VerificationError if is_damaged else CompatibilityError).exit_status
