"""Every operation of the gpu dialect, for every device, with every release: what docs/reference/gpu-ops.yaml says."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.operation_executed import is_among, probed_uses
from support.operation_table import TABLE, TARGETS, Case, cases_of, program_of

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.kind_lowering import parse_form
from mlir_offload.translate.legalize.split import SplitOptions, split_program

INPUTS = Path(__file__).parent / "inputs"
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
# What each release compiles for, and the form of a module for it.
GPUS = [
    pytest.param(major, target, form, marks=pytest.mark.llvm(major))
    for major in (19, 22)
    for target, form, since in (
        ("cuda", "nvvm32", 19),
        ("hip", "rocdl64", 19),
        ("spirv", "spirv32", 22),
    )
    if since <= major
]
PRINTING = ("--mlir-print-op-generic", "--mlir-print-debuginfo", "--split-input-file")
_CANDIDATE = re.compile(rb"\0(gpu\.[a-z_0-9]+)(?=\0)")
ENUMERATIONS = ("shuffle_mode", "all_reduce_op", "dim", "mma_element_wise")


def run(*argv: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, input=text, capture_output=True, text=True, check=False)


def mlir_opt(release: int, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    return run(f"/usr/lib/llvm-{release}/bin/mlir-opt", *options, text=text)


def registered_operations(release: int) -> set[str]:
    """Return the operations of the dialect: of all strings that look like one, those that parse."""
    program = Path(f"/usr/lib/llvm-{release}/bin/mlir-opt")
    libraries = sorted(Path(f"/usr/lib/llvm-{release}/lib").glob("libMLIR.so.*"))
    found = {
        name.decode()
        for path in (program, *libraries[:1])
        for name in _CANDIDATE.findall(path.read_bytes())
    }
    text = "\n// -----\n".join(f'"{name}"() : () -> ()' for name in sorted(found))
    said = mlir_opt(release, text, "--split-input-file").stderr
    return found.difference(re.findall(r"unregistered operation '(gpu\.\w+)'", said))


@pytest.mark.parametrize("release", RELEASES)
def test_every_operation_of_the_dialect_has_a_row(release: int) -> None:
    rows = [row for group in yaml.safe_load(TABLE.read_text())["groups"] for row in group["rows"]]
    documented = {
        f"gpu.{name}"
        for row in rows
        if row.get("since", 19) <= release <= row.get("until", release)
        for name in row["op"]
    }
    assert registered_operations(release) == documented


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("enumeration", ENUMERATIONS)
def test_every_variant_of_an_operation_has_a_program(release: int, enumeration: str) -> None:
    text = f'"x.y"() {{a = #gpu<{enumeration} none>}} : () -> ()'
    said = mlir_opt(release, text, "--allow-unregistered-dialect").stderr
    match = re.search(r"to be one of: ([\w, ]+)", said)
    assert match is not None, said
    words = {word for case in cases_of(release) for word in re.findall(r"\w+", case.text)}
    assert set(match[1].split(", ")) <= words


@pytest.mark.parametrize(("release", "target", "form"), GPUS)
def test_what_a_gpu_has_is_compiled(
    release: int, target: str, form: str, mlir_offload: list[str], tmp_path: Path
) -> None:
    del form
    # What test_gpu_cuda_operations.py and test_gpu_amd.py compile and run is not compiled again.
    probed = probed_uses(release) if target != "spirv" else {}
    cases = [
        case
        for case in cases_of(release)
        if target in case.targets and not (case.frame == "device" and is_among(case.text, probed))
    ]
    source = tmp_path / "operations.mlir"
    source.write_text(program_of(cases))
    flags = ("-c", "-O0", f"--llvm={release}", f"--offload-arch={TARGETS[target]}", str(source))
    done = run(*mlir_offload, *flags, "-o", str(tmp_path / "operations.o"))
    assert done.returncode == 0, done.stderr


def refused_cases(release: int, target: str) -> Iterator[tuple[Case, str]]:
    for case in cases_of(release):
        message = dict(case.refused).get(target)
        if message:
            yield case, message


@pytest.mark.parametrize(("release", "target", "form"), GPUS)
def test_what_a_gpu_lacks_is_refused_at_its_line(release: int, target: str, form: str) -> None:
    refused = list(refused_cases(release, target))
    text = "\n// -----\n".join(program_of([case]) for case, _ in refused)
    done = mlir_opt(
        release, text, *PRINTING, "--pass-pipeline=builtin.module(gpu-kernel-outlining)"
    )
    assert done.returncode == 0, done.stderr
    programs = done.stdout.split("// -----\n")
    assert len(programs) == len(refused)
    wrong = defaultdict(list)
    for (case, message), program in zip(refused, programs, strict=True):
        try:
            split_program(
                program,
                SplitOptions(
                    source_text="", unit_id="p.mlir", llvm_major=release, forms=[parse_form(form)]
                ),
            )
        except SourceError as error:
            if message not in str(error) or not re.search(r":\d+:\d+$", error.location):
                wrong[str(error)].append(case.name)
        else:
            wrong["accepted"].append(case.name)
    assert not wrong
