"""The runtime's source files and the command lines for compiling them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlir_offload.offload.runtime import (
    EXIT_STATUS,
    embed_runtime_command,
    runtime_compile_command,
    runtime_include_directory,
    runtime_link_arguments,
    runtime_source,
)
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.target import DEVICE_KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Collection

ALL = (Kind.CUDA, Kind.HIP, Kind.SYCL, Kind.OPENMP)
CUDART = Path("/cuda/lib/libcudart_static.a")
OMPTARGET = Path("/llvm/lib/libomptarget.so")
SYSTEM_HEADERS = {
    "dlfcn.h", "errno.h", "fcntl.h", "limits.h", "pthread.h", "sched.h", "setjmp.h", "signal.h", "stdarg.h", "stdatomic.h", "stdbool.h",
    "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h", "strings.h", "sys/mman.h",
    "sys/stat.h", "sys/types.h", "time.h", "unistd.h",
}  # fmt: skip

ROOT = runtime_source()
INCLUDED = set(re.findall(r'#include "(.*\.c)"', ROOT.read_text(encoding="utf-8")))
# These are compiled separately: for CPU images, and for programs with sparse matrices.
ALONE = {
    "cpu_async.c",
    "cpu_device.c",
    "cpu_features.c",
    "cpu_math.c",
    "cpu_tensor.c",
    "sparse.c",
    "sparse_lt.c",
}


def test_the_first_file_includes_the_others() -> None:
    every = {path.name for path in runtime_include_directory().glob("*.c")}
    assert {ROOT.name, *INCLUDED, *ALONE} == every


@pytest.mark.llvm(22)
def test_every_definition_of_an_embedded_runtime_is_weak(tmp_path: Path) -> None:
    clang, output = Path("/usr/lib/llvm-22/bin/clang"), tmp_path / "runtime.ll"
    command = embed_runtime_command(clang, [], output, kinds=ALL, archs={})
    subprocess.run(command.argv, check=True, cwd=command.cwd)
    text = output.read_text(encoding="utf-8")
    defined = re.findall(r"^(?:define|@\S+ =) (\w+)", text, re.MULTILINE)
    assert set(defined) == {"weak", "internal", "private", "extern_weak", "external", "appending"}


def test_only_headers_of_the_c_library_are_needed() -> None:
    directory = runtime_include_directory()
    sources = (ROOT, *(directory / name for name in INCLUDED), *directory.glob("*.h"))
    texts = [path.read_text(encoding="utf-8") for path in sources]
    headers = {name for text in texts for name in re.findall(r"#include <(.*)>", text)}
    assert headers <= SYSTEM_HEADERS


def test_the_compile_command_defines_what_is_linked() -> None:
    command = runtime_compile_command(
        Path("clang"),
        Path("rt.o"),
        kinds=ALL,
        archs={Kind.CUDA: ("sm_80", "sm_90a"), Kind.HIP: ("gfx90a", "gfx1030")},
        fallback=True,
        libraries={Kind.HIP: Path("/rocm/lib/libamdhip64.so.6")},
    )
    assert command.argv[0] == "clang"
    assert command.argv[-4:] == ("-c", str(ROOT), "-o", "rt.o")
    assert [word for word in command.argv if word.startswith("-D")] == [
        "-DMLIR_OFFLOAD_HAVE_CUDA",
        "-DMLIR_OFFLOAD_HAVE_HIP",
        "-DMLIR_OFFLOAD_HAVE_OPENMP",
        "-DMLIR_OFFLOAD_HAVE_SYCL",
        "-DMLIR_OFFLOAD_ARCHS=sm_80,sm_90a",
        "-DMLIR_OFFLOAD_HIP_ARCHS=gfx90a,gfx1030",
        "-DMLIR_OFFLOAD_HIP_LIBRARY=libamdhip64.so.6",
        "-DMLIR_OFFLOAD_OMPTARGET_FALLBACK",
    ]


def test_a_program_for_the_cpu_knows_nothing_of_cuda() -> None:
    command = runtime_compile_command(
        Path("clang"), Path("rt.o"), kinds=(Kind.OPENMP,), archs={}, fallback=False
    )
    assert [word for word in command.argv if word.startswith("-D")] == [
        "-DMLIR_OFFLOAD_HAVE_OPENMP"
    ]


def test_a_runtime_for_no_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one offload kind"):
        runtime_compile_command(Path("clang"), Path("rt.o"), kinds=(), archs={}, fallback=False)


@pytest.mark.parametrize(
    ("kinds", "cudart", "libomptarget", "arguments"),
    [
        ((Kind.CUDA,), CUDART, None, (str(CUDART), "-lrt")),
        ((Kind.CUDA,), Path("/c/libcudart.so"), None, ("/c/libcudart.so", "-Wl,-rpath,/c")),
        (
            (Kind.CUDA,),
            Path("/c/libcudart.so.12"),
            OMPTARGET,
            ("/c/libcudart.so.12", "-Wl,-rpath,/c"),
        ),
        ((Kind.OPENMP,), CUDART, OMPTARGET, (str(OMPTARGET), "-Wl,-rpath,/llvm/lib")),
        ((Kind.OPENMP,), CUDART, None, ()),
        ((Kind.SYCL,), CUDART, OMPTARGET, ()),
        (ALL, CUDART, OMPTARGET, (str(CUDART), "-lrt", str(OMPTARGET), "-Wl,-rpath,/llvm/lib")),
    ],
)
def test_each_kind_adds_its_library(
    kinds: Collection[Kind],
    cudart: Path | None,
    libomptarget: Path | None,
    arguments: tuple[str, ...],
) -> None:
    found = runtime_link_arguments(kinds, {Kind.CUDA: cudart, Kind.OPENMP: libomptarget})
    assert found == (*arguments, "-ldl", "-lpthread")


def test_cuda_without_its_runtime_library_is_refused() -> None:
    with pytest.raises(ToolchainError, match="CUDA runtime library") as caught:
        runtime_link_arguments((Kind.CUDA,), {})
    assert "--cuda-path" in caught.value.hint


def test_the_header_tells_the_exit_status() -> None:
    header = (runtime_include_directory() / "mlir_offload.h").read_text(encoding="utf-8")
    assert f"#define MLIR_OFFLOAD_EXIT_STATUS {EXIT_STATUS}\n" in header


def test_the_words_for_devices_are_those_of_the_runtime() -> None:
    source = (runtime_include_directory() / "device_name.c").read_text()
    names = re.search(r"names\[\] = \{([^}]*)\}", source)
    assert names is not None
    assert re.findall(r'"(\w+)"', names[1]) == [
        kind.word for kind in sorted(DEVICE_KINDS, key=lambda kind: kind.is_cpu)
    ]


def test_the_files_for_opencl_use_each_other_in_one_order() -> None:
    folder = runtime_include_directory()
    names = ("sycl_load.c", "sycl_error.c", "sycl_device.c", "sycl_stream.c")
    texts = [(folder / name).read_text(encoding="utf-8") for name in names]
    defined = [
        set(re.findall(r"^\w[\w *]*?\b(mo_sycl_\w+)\([^;]*?\) \{", text, re.MULTILINE))
        for text in texts
    ]
    assert all(defined)
    for index, text in enumerate(texts):
        later = set().union(*defined[index + 1 :])
        assert {name for name in later if f"{name}(" in text} == set(), names[index]
