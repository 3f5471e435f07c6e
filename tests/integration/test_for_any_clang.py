"""One object, compiled once, in programs that several releases of LLVM link."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.cuda_tools import cuda_root

from mlir_offload.offload.link.fatbinary_adapter import CudaTools, write_cuda_directory
from mlir_offload.offload.link.objects import read_objects
from mlir_offload.offload.runtime import runtime_compile_command, runtime_link_arguments
from mlir_offload.toolchain.process import Command, ProcessRunner, run_checked
from mlir_offload.toolchain.target import Kind
from mlir_offload.toolchain.tool import ToolVersion

pytestmark = pytest.mark.llvm(22)

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "reduction.mlir"
CUDA = cuda_root()
DRIVEN = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (16, 19, 22)]


@pytest.fixture(scope="module")
def shared_object(mlir_offload: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not CUDA.exists():
        pytest.skip("CUDA 13.0 is not installed")
    output = tmp_path_factory.mktemp("any") / "reduction.o"
    options = ("-c", "--for-clang=any", "--llvm=22", "--offload-arch=sm_90,host")
    run_checked(
        ProcessRunner(), Command((*mlir_offload, *options, str(EXAMPLE), "-o", str(output)))
    )
    return output


def run_on_cpu(program: Path) -> list[str]:
    command = Command((str(program),), (("MLIR_OFFLOAD_DEVICE", "host"),))
    return run_checked(ProcessRunner(), command).stdout.splitlines()


@pytest.mark.parametrize("major", DRIVEN)
def test_the_object_runs_when_the_driver_links_it(
    mlir_offload: list[str], shared_object: Path, major: int, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    arguments = (str(shared_object), f"--llvm={major}", "-o", str(program))
    run_checked(ProcessRunner(), Command((*mlir_offload, *arguments)))
    assert [line.split(":")[1][:3] for line in run_on_cpu(program)] == [" ok"] * 3


@pytest.mark.llvm(15)
def test_the_object_runs_when_clang_of_an_old_release_links_it(
    shared_object: Path, tmp_path: Path
) -> None:
    clang, kinds = Path("/usr/lib/llvm-15/bin/clang"), (Kind.CUDA, Kind.OPENMP)
    runtime, program = tmp_path / "runtime.o", tmp_path / "program"
    run_checked(
        ProcessRunner(),
        runtime_compile_command(
            clang, runtime, kinds=kinds, archs={Kind.CUDA: ("sm_90",)}, fallback=True
        ),
    )
    ptxas, nvlink, fatbinary = (CUDA / "bin" / name for name in ("ptxas", "nvlink", "fatbinary"))
    tools = CudaTools(ToolVersion(13, 0), ptxas, nvlink, fatbinary)
    cuda = write_cuda_directory(tmp_path / "cuda", tools, 15)
    cudart = next(CUDA.glob("lib*/libcudart_static.a"))
    libraries = runtime_link_arguments(kinds, {Kind.CUDA: cudart})
    command = ("--offload-link", "-fuse-ld=lld", "-Wl,--gc-sections", str(shared_object))
    options = (str(runtime), *libraries, "-lm", f"-Wl,--cuda-path={cuda}", "-o", str(program))
    path = (("PATH", f"{cuda / 'bin'}:{os.environ['PATH']}"),)
    run_checked(ProcessRunner(), Command((str(clang), *command, *options), path))
    assert [line.split(":")[1][:3] for line in run_on_cpu(program)] == [" ok"] * 3


def test_gpu_code_for_any_release_is_no_bitcode(shared_object: Path) -> None:
    (contents,) = read_objects(shared_object)
    assert {(image.kind, image.data[:4]) for image in contents.images} == {
        ("cuda", b"\x7fELF"),
        ("openmp", b"\x7fELF"),
    }
    arrays = ("omp_offloading_entries", "cuda_offloading_entries", "llvm_offload_entries")
    assert {entry.section for entry in contents.entries} == set(arrays)


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--for-clang=any"], 2, "--for-clang=any is for objects: a linked file is for one"),
        (["--for-clang=any", "-c", "-emit-llvm"], 2, "LLVM IR is for one LLVM release"),
        (
            ["--for-clang=any", "-c", "--device-code=bitcode"],
            2,
            "device bitcode is for one LLVM release only",
        ),
        (["--for-clang=new", "-c"], 2, "--for-clang=new: neither a release of LLVM nor a path"),
    ],
)
def test_what_cannot_serve_several_releases_is_refused(
    mlir_offload: list[str], options: list[str], status: int, message: str, tmp_path: Path
) -> None:
    command = [*mlir_offload, *options, "--llvm=22", "--offload-arch=host", str(EXAMPLE)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == status, result.stderr
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_steps_take_any_release_and_device_globals(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    image, binary, host, output = (tmp_path / name for name in ("k.o", "k.offload", "h.ll", "o.ll"))
    # The head of a relocatable x86-64 object, which is all that packaging looks at.
    image.write_bytes(b"\x7fELF\2\1\1" + bytes(9) + b"\1\0\x3e\0")
    host.write_text("@shadow = global i32 0\n", encoding="utf-8")
    described = f"--image=file={image},triple=x86_64-pc-linux-gnu,arch=host,kind=openmp"
    variable = "kind=openmp,name=counter,address=shadow,size=4"
    steps = (
        ("package", described, "--for-clang=any", "-o", str(binary)),
        (
            *("embed", str(host), f"--binary={binary}", f"--variable={variable}"),
            *("--for-clang=any", "-o", str(output)),
        ),
    )
    for step in steps:
        run_checked(ProcessRunner(), Command((*mlir_offload, "step", *step)))
    text = output.read_text(encoding="utf-8")
    assert 'ptr @.omp_offloading.entry_name, i64 4, i32 0, i32 0 }, section "omp_' in text
    assert "i16 1, i32 0, ptr @shadow, ptr @.offloading.entry_name, i64 4, i64 0" in text


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("kind=cuda,name=v,address=v", "no size"),
        ("kind=cuda,name=v,address=v,size=x", "invalid literal"),
        ("kind=cuda,name=v,address=v,size=4,type=label", "'label' is not a valid EntryType"),
        ("kind=cuda,name=v,address=v,size=4,constant,big", "unknown big"),
        ("kind=cuda,name=v,address=v,size=4,align=4", "unknown align"),
        ("kind=hip,name=v,address=v,size=4", "kind hip has different enum values"),
    ],
)
def test_a_wrong_device_global_is_refused(
    mlir_offload: list[str], variable: str, message: str, tmp_path: Path
) -> None:
    host = tmp_path / "h.ll"
    host.write_text("@v = global i32 0\n", encoding="utf-8")
    options = (f"--variable={variable}", "--for-clang=any", "-o", str(tmp_path / "o.ll"))
    command = [*mlir_offload, "step", "embed", str(host), *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode in {2, 4}
    assert message in result.stderr
