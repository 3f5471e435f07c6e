"""Functions of MLIR called from C, C++ and Python, by what their objects and headers say of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

INPUTS = Path(__file__).parent / "calling"
EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
RELEASES = [
    pytest.param(major, marks=pytest.mark.llvm(major), id=f"llvm{major}") for major in (19, 22)
]
Build = Callable[..., Path]


@pytest.fixture
def build(mlir_offload: list[str], tmp_path: Path) -> Build:
    """Return what makes a file of the given arguments for the CPU, next to the header `NAME.h`."""

    def made(*arguments: object, header: str = "", output: str = "made") -> Path:
        named = [f"--emit-header={tmp_path / header}", f"-I{tmp_path}"] if header else []
        place = tmp_path / output
        words = ("--offload-arch=host", *named, *map(str, arguments), "-o", str(place))
        subprocess.run([*mlir_offload, *words], check=True)
        return place

    return made


def _said(*argv: object, **environment: str) -> str:
    done = subprocess.run(
        tuple(map(str, argv)), capture_output=True, text=True, check=False, env=environment or None
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("release", RELEASES)
def test_c_and_python_call_functions_of_every_type(build: Build, release: int) -> None:
    shared = ("-shared", "-fPIC", INPUTS / "every_type.mlir")
    library = build(f"--llvm={release}", *shared, header="every_type.h", output="lib.so")
    program = library.with_name("program")
    sources = (INPUTS / "every_type.c", INPUTS / "check.c")
    clang = f"/usr/lib/llvm-{release}/bin/clang"
    flags = ("-O2", "-Wall", "-Werror", "-I", library.parent)
    _said(clang, *flags, *sources, library, "-o", program)
    assert _said(program) == ""
    assert _said(sys.executable, INPUTS / "every_type.py", library) == "ok\n"


@pytest.mark.parametrize("release", RELEASES)
def test_c_of_the_same_call_includes_the_header_and_defines_what_mlir_calls(
    build: Build, release: int
) -> None:
    sources = (INPUTS / "asks_c.mlir", INPUTS / "asks_c.c")
    # clang -O2 relies on the upper bits of registers that contain small integers.
    assert _said(build(f"--llvm={release}", "-O2", *sources, header="asks_c.h")).splitlines() == [
        "42",
        "-123 200 1 -32635 50000 -123 1 ",
        "-32635 32901000877 -32634999123 -32634999123 -123",
    ]


@pytest.mark.llvm(22)
def test_the_header_is_plain_c_and_c_plus_plus(mlir_offload: list[str], tmp_path: Path) -> None:
    header = tmp_path / "every_type.h"
    source = str(INPUTS / "every_type.mlir")
    subprocess.run([*mlir_offload, "--llvm=22", f"--emit-header={header}", source], check=True)
    (tmp_path / "use.c").write_text('#include "every_type.h"\n#include "every_type.h"\n')
    for compiler, language in (("gcc", "c"), ("g++", "c++")):
        flags = ("-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", language)
        _said(compiler, *flags, tmp_path / "use.c")


@pytest.mark.parametrize("release", RELEASES)
def test_the_example_runs_from_c_c_plus_plus_and_python(build: Build, release: int) -> None:
    shared = ("-shared", "-fPIC", EXAMPLES / "calling.mlir")
    library = build(f"--llvm={release}", *shared, header="calling.h", output="libcalling.so")
    for compiler, name in (("gcc", "calling.c"), ("g++", "calling.cpp")):
        program = library.with_name(compiler)
        _said(compiler, EXAMPLES / name, "-I", library.parent, library, "-o", program)
        assert _said(program).startswith("calling: ok, scaled and counted")
    assert "calling: ok, scaled and counted in Python\n" in _said(
        sys.executable, EXAMPLES / "calling.py", library
    )
    assert "function count(n: index) -> (memref<?xi64>, i64)\n" in _said(
        sys.executable, "-m", "mlir_offload.driver", "inspect", library
    )
    assert _said(sys.executable, INPUTS / "without_numpy.py", library) == "ok\n"


@pytest.mark.llvm(22)
def test_a_header_alone_is_reproducible_and_has_its_dependency_file(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    texts = []
    for name in ("here", "elsewhere"):
        place = tmp_path / name
        place.mkdir()
        (place / "calling.mlir").write_bytes((EXAMPLES / "calling.mlir").read_bytes())
        words = ("--llvm=22", "--emit-header=k.h", "-MD", "--manifest=m")
        subprocess.run([*mlir_offload, *words, "calling.mlir"], check=True, cwd=place)
        assert {path.name for path in place.iterdir()} == {"calling.mlir", "k.h", "k.d", "m"}
        assert (place / "k.d").read_text() == "k.h: calling.mlir\n"
        assert "k.h" in (place / "m").read_text()
        texts.append((place / "k.h").read_text())
    assert texts[0] == texts[1]
    assert "/* calling.mlir:10: scale(a: f32, x: memref<" in texts[0]


@pytest.mark.llvm(22)
def test_an_older_header_goes_when_a_new_one_cannot_be_made(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source, header = tmp_path / "k.mlir", tmp_path / "k.h"
    source.write_text(
        "func.func @f(%v: vector<4xf32>) attributes {llvm.emit_c_interface} { return }\n"
    )
    header.write_text("old")
    done = subprocess.run(
        [*mlir_offload, "--llvm=22", f"--emit-header={header}", str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"{source}:1:1: error: @f cannot be declared in C" in done.stderr
    assert not header.exists()


@pytest.mark.llvm(22)
def test_a_callers_stream_carries_the_work_of_its_thread_and_is_never_destroyed(
    build: Build, cuda_recorder: Path
) -> None:
    library = build(
        "--llvm=22",
        "--offload-arch=sm_90",
        f"--cuda-path={cuda_recorder}",
        *("-shared", "-fPIC", EXAMPLES / "calling.mlir"),
        output="libcalling.so",
    )
    parts = _said(sys.executable, INPUTS / "streams.py", library).split("--\n")
    by_token, by_stream, by_threads, on_device = (part.splitlines() for part in parts)
    assert by_token == ["cudaLaunchKernel on 0x1234"]
    assert [line for line in by_stream if " on " in line] == [
        "cudaMallocAsync 16 on 0x5678",
        "cudaMemcpyAsync 16 bytes kind 4 on 0x5678",
        "cudaLaunchKernel on 0x5678",
        "cudaMemcpyAsync 16 bytes kind 4 on 0x5678",
        "cudaFreeAsync memory on 0x5678",
    ]
    assert "cudaStreamSynchronize 0x5678" in by_stream
    assert sorted(by_threads) == sorted(
        f"cudaLaunchKernel on {thread:#x}" for thread in (0x1000, 0x2000) for _ in range(50)
    )
    assert on_device[0] == "cudaSetDevice 1"
    everything = "\n".join((*by_token, *by_stream, *by_threads, *on_device))
    assert "Destroy" not in everything
