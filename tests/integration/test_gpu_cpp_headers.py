"""CUDA C++ and HIP C++ in modes without an object: the headers and the errors of the host and of each architecture."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mlir_offload.driver.system.depfile import read_prerequisites

# The headers by the condition under which a source includes them.
HEADERS = {
    "host.h": "!defined(__CUDA_ARCH__) && !defined(__HIP_DEVICE_COMPILE__)",
    "first 1.h": "__CUDA_ARCH__ == 800 || defined(__gfx906__)",
    "second.h": "1",
}
SOURCES = {"k.cu": "sm_80,sm_90", "k.hip": "gfx906,gfx90a"}
BARE = ("-nogpuinc", "-nogpulib")


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    cases = [f"#elif {test}\n#include <{name}>\n" for name, test in HEADERS.items()]
    made = tmp_path / str(request.param)
    made.write_text(f'#include "own.h"\n#if 0\n{"".join(cases)}#endif\n')
    (tmp_path / "system").mkdir()
    for name in ("own.h", *(f"system/{name}" for name in HEADERS)):
        (tmp_path / name).touch()
    return made


def call(mlir_offload: list[str], source: Path, *words: str, status: int = 0) -> str:
    archs = f"--offload-arch={SOURCES[source.name]}"
    command = [*mlir_offload, archs, *BARE, "-I.", "-isystem", "system", *words, source.name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=source.parent)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "major", [pytest.param(n, marks=pytest.mark.llvm(n)) for n in (16, 19, 22)]
)
@pytest.mark.parametrize(
    ("sides", "left_out"),
    [
        ((), set()),
        (("--offload-host-only",), {"first 1.h", "second.h"}),
        (("--offload-device-only",), {"host.h"}),
    ],
)
def test_a_rule_has_the_headers_of_the_host_and_of_each_architecture(
    mlir_offload: list[str], source: Path, sides: tuple[str, ...], left_out: set[str], major: int
) -> None:
    options = (f"--for-clang={major}", *sides)
    found = {f"system/{name}" for name in HEADERS.keys() - left_out}
    rule = call(mlir_offload, source, *options, "-M", "-MT", "made")
    assert rule.startswith("made: ")
    assert set(read_prerequisites(rule)) == {source.name, "own.h", *found}
    assert set(read_prerequisites(call(mlir_offload, source, "-MM", *options))) == {
        source.name,
        "own.h",
    }


@pytest.mark.llvm(22)
@pytest.mark.parametrize("stage", ["-c", "--offload-device-only", "-fsyntax-only"])
def test_dependency_files_have_the_headers_of_each_compilation(
    mlir_offload: list[str], source: Path, stage: str
) -> None:
    found = {f"system/{name}" for name in HEADERS if "device" not in stage or name != "host.h"}
    for option, system in (("-MD", found), ("-MMD", set[str]())):
        assert "k.d" in call(mlir_offload, source, "-###", stage, option, "-MF", "k.d")
        call(mlir_offload, source, stage, option, "-MF", "k.d")
        rule = (source.parent / "k.d").read_text()
        assert set(read_prerequisites(rule)) == {source.name, "own.h", *system}


@pytest.mark.llvm(22)
def test_the_syntax_of_host_and_device_code_is_checked(
    mlir_offload: list[str], source: Path
) -> None:
    assert call(mlir_offload, source, "-fsyntax-only") == ""
    assert [path.name for path in source.parent.glob("k*")] == [source.name]
    for name in HEADERS:
        header = source.parent / "system" / name
        header.write_text("#error of this header\n")
        said = call(mlir_offload, source, "-fsyntax-only", status=1)
        assert f"{name}:1:2: error: of this header" in said
        header.write_text("")
