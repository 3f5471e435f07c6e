"""Every nvcc option is translated, ignored or rejected, and the table lists all of them."""

from __future__ import annotations

import re
import subprocess

import pytest
from support.cuda_tools import cuda_root

from mlir_offload.driver.option.action import is_ambiguous
from mlir_offload.driver.option.command_line import read_arguments
from mlir_offload.driver.option.nvcc_option import (
    NvccOption,
    nvcc_options,
    options_of_the_same_name,
)
from mlir_offload.driver.option.table import COMPILER
from mlir_offload.toolchain.errors import UsageError


def words_of(row: NvccOption, name: str) -> list[str]:
    """Return an option as a user gives it, with a value that it has."""
    named = row.ours.items() if isinstance(row.ours, dict) else ()
    values = ["7" if value == "*" else value for value, ours in named if ours]
    return [name, *(values or ["1"])[:1]] if row.value else [name]


def test_an_option_of_nvcc_does_what_the_table_says(capsys: pytest.CaptureFixture[str]) -> None:
    for row in nvcc_options():
        for name in row.names:
            if COMPILER.find(name) and not is_ambiguous(name):
                # nvcc has -Xlinker=a,b, and clang has -Xlinker a.
                continue
            words = words_of(row, name)
            if row.rejected:
                with pytest.raises(UsageError, match=re.escape(f"'{name}' of nvcc")) as caught:
                    read_arguments(words)
                assert row.rejected in f"{caught.value.message} {caught.value.hint}"
                continue
            assert read_arguments(words).inputs == (), words
            said = capsys.readouterr().err
            assert "has no effect" in said if row.none or not row.ours else "is taken" in said, name


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ("-ftz=true", "--ftz=true"),
        ("--fmad=false", "-ffp-contract=off"),
        ("-t4", "-j4"),
        ("-t=0", ""),
        ("--threads 2", "-j2"),
        ("-lto", "--device-code=bitcode"),
        ("-Xlinker=-z,now", "-Wl,-z,now"),
        ("-std c++17", "-std=c++17"),
        ("-rdc true", "-fgpu-rdc"),
        ("-code=[sm_80,compute_80]", "--offload-arch=sm_80"),
        ("--include-path a,b", "-Ia -Ib"),
        ("-res-usage", "-Xptxas -v"),
        ("-dopt=on", "-O2"),
        # Long names that clang has too.
        ("--output=x", "-o x"),
        ("--define-macro A=1", "-DA=1"),
        ("--include-directory-after=d", "-idirafter d"),
        ("--compile --optimize=3", "-c -O3"),
        ("--hip-link", "--offload-link"),
    ],
)
def test_a_spelling_of_nvcc_or_a_long_one_means_ours(given: str, ours: str) -> None:
    taken, expected = read_arguments(given.split()), read_arguments(ours.split())
    assert taken.spelled == expected.spelled or given == "--hip-link"
    assert (taken.device_flags, taken.jobs, taken.output) == (
        expected.device_flags,
        expected.jobs,
        expected.output,
    )


@pytest.mark.parametrize("given", ["-ftz=maybe", "--fmad=on", "-Ofc most", "-cudart", "--output"])
def test_a_value_that_nvcc_does_not_have_is_refused(given: str) -> None:
    with pytest.raises(UsageError):
        read_arguments(given.split())


def test_the_table_has_what_nvcc_lists() -> None:
    nvcc = cuda_root() / "bin/nvcc"
    listed = subprocess.run([nvcc, "--help"], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^(--\S+)(?: \S.*?)?\s{2,}\(?(--?\S+?)\)?\s*$", listed, re.MULTILINE)
    assert len(found) > 100
    ours = {name for row in nvcc_options() for name in row.names}
    named = {name for name, _ in found}
    assert named <= ours | set(options_of_the_same_name())
    assert set(options_of_the_same_name()) <= named
    # The command line handles -h and -V before the options are read.
    assert [short for _, short in found if is_unknown(short)] == ["-h", "-V"]


def is_unknown(name: str) -> bool:
    try:
        read_arguments([name, "1"])
    except UsageError as error:
        return error.message.startswith("unknown option")
    return False
