"""What becomes of device code: final objects, calls across files, libraries, flags, attached targets."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.cuda_tools import cuda_root, cuda_tool

from mlir_offload.offload.container.fatbin import read_fatbins
from mlir_offload.offload.link.objects import read_objects

INPUTS = Path(__file__).parent / "inputs" / "rdc"
EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
RECORDERS = (
    Path(__file__).parent / "runtime" / "recording_cudart.c",
    Path(__file__).parent / "inputs" / "recording_registration.c",
)
SETUP = """\
from setuptools import Extension, setup

kernels = Extension("kernels", ["module.c"], extra_objects=["rdc.o"], libraries=["m"])
setup(name="kernels", version="1", ext_modules=[kernels])
"""
MODULE = "void go(float *);\nfloat run(float x) { go(&x); return x; }\n"


@pytest.mark.parametrize("form", ["object", "bitcode"])
@pytest.mark.llvm(22)
def test_a_final_object_is_linked_by_gcc_and_keeps_ptx(
    form: str, mlir_offload: list[str], tmp_path: Path
) -> None:
    cuda_tool("ptxas")
    form = f"--device-code={form}"
    options = ["-c", "-fno-gpu-rdc", "-g", form, "--offload-arch=sm_80,sm_90,host"]
    _run(*mlir_offload, *options, EXAMPLES / "square.mlir", "-o", "square.o", cwd=tmp_path)
    recorder = ["-shared", "-fPIC", "-w", *RECORDERS, "-o", "libcudart.so"]
    _run("gcc", *recorder, cwd=tmp_path)
    link = ["square.o", EXAMPLES / "main.c", "-L.", "-lcudart", "-lm", "-Wl,-rpath,.", "-o", "app"]
    _run("gcc", *link, cwd=tmp_path)

    on_host = _run("./app", cwd=tmp_path, MLIR_OFFLOAD_DEVICE="host").splitlines()
    assert on_host[-1] == "square: ok, 1000 elements"
    shown = _run(*mlir_offload, "inspect", tmp_path / "app")
    assert [shown.count(f"sm_{arch}: cubin") for arch in (80, 90)] == [1, 1]
    # The PTX of the newest GPU alone: newer ones run it.
    assert [shown.count(f"sm_{arch}: PTX") for arch in (80, 90)] == [0, 1]
    (contents,) = read_objects(tmp_path / "square.o")
    (ptx,) = (part for part in read_fatbins(contents.fatbins[0]) if part.kind == "ptx")
    # With the lines of the program.
    assert b".loc" in ptx.content.whole()
    symbols = _run("/usr/lib/llvm-22/bin/llvm-nm", "square.o", cwd=tmp_path)
    assert " T mgpu" not in symbols
    assert " W mlir_offload_set_stream" in symbols


@pytest.mark.parametrize("major", [16, pytest.param(22, marks=pytest.mark.llvm(22))])
@pytest.mark.llvm(22)
def test_final_objects_for_other_devices_meet_in_a_library_and_a_program(
    major: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    cuda_tool("ptxas")
    release = ["--llvm=22", f"--for-clang={major}", "-c", "-fPIC", "-fno-gpu-rdc"]
    for name, archs in (("scale", "host"), ("shift", "sm_90,host")):
        options = [*release, f"--offload-arch={archs}", "-o", f"{name}.o"]
        _run(*mlir_offload, *options, EXAMPLES / "make" / f"{name}.mlir", cwd=tmp_path)
    _run("gcc", "-shared", "-fPIC", "-w", *RECORDERS, "-o", "libcudart.so", cwd=tmp_path)
    libraries = ["-L.", "-lcudart", "-lm", "-Wl,-rpath,."]
    _run("ar", "rcs", "libscale.a", "scale.o", cwd=tmp_path)
    _run("gcc", "-shared", "shift.o", *libraries, "-o", "libshift.so", cwd=tmp_path)
    main = EXAMPLES / "make" / "main.c"
    link = [main, "-L.", "-lscale", "-lshift", *libraries]
    _run("gcc", *link, "-o", "app", cwd=tmp_path)
    _run("gcc", main, "scale.o", "shift.o", *libraries, "-o", "both", cwd=tmp_path)

    for program in ("./app", "./both"):
        assert "ok" in _run(program, cwd=tmp_path, MLIR_OFFLOAD_DEVICE="host")


@pytest.mark.llvm(22)
def test_setuptools_builds_an_extension_with_a_final_object(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    options = ["-c", "-fPIC", "-fno-gpu-rdc", "--offload-arch=host", "-o", "rdc.o"]
    _run(*mlir_offload, *options, INPUTS / "alone.mlir", cwd=tmp_path)
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "module.c").write_text(MODULE)
    _run(sys.executable, "setup.py", "-q", "build_ext", "--inplace", cwd=tmp_path)

    (extension,) = tmp_path.glob("kernels.*.so")
    run = ctypes.CDLL(str(extension)).run
    run.argtypes, run.restype = (ctypes.c_float,), ctypes.c_float
    assert run(21.0) == 42.0


@pytest.mark.parametrize(
    ("major", "form"),
    [
        pytest.param(19, "bitcode", marks=pytest.mark.llvm(19)),
        pytest.param(22, "object", marks=pytest.mark.llvm(22)),
    ],
)
def test_a_device_function_is_called_from_mlir_and_from_cuda(
    major: int, form: str, mlir_offload: list[str], tmp_path: Path
) -> None:
    cuda_tool("ptxas")
    files = [INPUTS / name for name in ("library.mlir", "kernel.mlir", "thrice.cu", "main.c")]
    options = [f"--llvm={major}", "--offload-arch=sm_90", "-fgpu-rdc", f"--device-code={form}"]
    bare = ["-nocudainc", "-nocudalib", f"--cuda-path={cuda_root()}"]
    _run(*mlir_offload, *options, *bare, *files, "-o", "app", cwd=tmp_path)

    assert "kernel run(" in _run(*mlir_offload, "inspect", tmp_path / "app")


@pytest.mark.llvm(22)
def test_on_the_cpu_a_function_elsewhere_may_wait_where_its_caller_says_so(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    kernel = (INPUTS / "kernel.mlir").read_text()
    files = [INPUTS / name for name in ("library.mlir", "neighbour.mlir", "main.c")]
    options = ["--offload-arch=host", "-fgpu-rdc", "-o", "app", "kernel.mlir", *files]
    (tmp_path / "kernel.mlir").write_text(kernel)
    done = subprocess.run(
        [*mlir_offload, *map(str, options)],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert "kernel.mlir: error: no file has the device function 'thrice' for the CPU" in done.stderr
    assert "has to be declared 'convergent'" in done.stderr
    declared = kernel.replace(
        "@thrice(f32) -> f32\n", "@thrice(f32) -> f32 attributes {convergent}\n"
    )
    (tmp_path / "kernel.mlir").write_text(declared)
    _run(*mlir_offload, *options, cwd=tmp_path)

    assert _run("./app", cwd=tmp_path) == "4 2 8 6\n"


@pytest.mark.llvm(22)
def test_a_library_is_linked_for_each_device_and_runs_on_the_cpu(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    cuda_tool("ptxas")
    _library(tmp_path, "gpu.bc", *_for_gpu("sm_80"))
    _library(tmp_path, "cpu.bc")
    libraries = ["--device-lib=cuda=gpu.bc", "--device-lib=host=cpu.bc"]
    options = ["--offload-arch=sm_90,host", "--device-code=object", *libraries]
    _run(
        *mlir_offload, *options, INPUTS / "kernel.mlir", INPUTS / "main.c", "-o", "a", cwd=tmp_path
    )

    assert _run("./a", cwd=tmp_path, MLIR_OFFLOAD_DEVICE="host") == "6 12 18 24\n"


@pytest.mark.parametrize(
    ("march", "library", "complaint"),
    [
        ("sm_100", "gpu.bc", "gpu.bc is made for sm_100: kernels for sm_90 cannot call it"),
        ("", "gpu.bc", "gpu.bc is bitcode for x86_64"),
        ("sm_80", "absent.bc", "absent.bc"),
        ("sm_80", "kernel.mlir", "is not LLVM bitcode"),
    ],
)
@pytest.mark.llvm(22)
def test_a_library_for_something_else_is_refused(
    march: str, library: str, complaint: str, mlir_offload: list[str], tmp_path: Path
) -> None:
    _library(tmp_path, "gpu.bc", *_for_gpu(march))
    (tmp_path / "kernel.mlir").write_bytes((INPUTS / "kernel.mlir").read_bytes())
    options = ["-c", "--offload-arch=sm_90", f"--device-lib={library}", "kernel.mlir"]
    done = subprocess.run(
        [*mlir_offload, *options], cwd=tmp_path, check=False, capture_output=True, text=True
    )

    assert done.returncode != 0
    assert complaint in done.stderr


@pytest.mark.llvm(22)
def test_flags_reach_the_code_of_the_device(mlir_offload: list[str], tmp_path: Path) -> None:
    cuda_tool("ptxas")
    _library(tmp_path, "library.bc", *_for_gpu("sm_80"))
    flags = ["-ffast-math", "--ftz", "--maxrregcount=40", "-Xptxas", "-v", "-Xdevice-opt", "-O1"]
    options = [
        "-c",
        "--offload-arch=sm_90",
        "--device-code=object",
        "-###",
        "--device-lib=library.bc",
    ]
    shown = _run(*mlir_offload, *options, *flags, INPUTS / "kernel.mlir", cwd=tmp_path, stderr=True)

    assert "--maxrregcount=40 -v" in shown
    assert "--fast-math" in shown
    assert "-mlink-builtin-bitcode -Xclang library.bc -O1" in shown
    kept = ["-save-temps=kept", "-c", "--offload-arch=sm_90", "--device-code=object"]
    argv = [*kept, "-ffast-math", "--ftz", "--device-lib=library.bc", INPUTS / "kernel.mlir"]
    _run(*mlir_offload, *argv, "-o", "a.o", cwd=tmp_path)
    ptx = next((tmp_path / "kept").rglob("*.s")).read_text()
    assert ".f32" in ptx
    # The launch bounds of the program.
    assert ".maxntid 4" in ptx


@pytest.mark.llvm(22)
def test_a_module_serves_the_gpu_that_is_attached_to_it(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    cuda_tool("ptxas")
    _library(tmp_path, "library.bc", *_for_gpu("sm_80"))
    (tmp_path / "a.mlir").write_bytes((INPUTS / "variants.mlir").read_bytes())
    options = ["-c", "--device-code=object", "-save-temps=kept", "a.mlir", "-o", "a.o"]
    _run(*mlir_offload, *options, cwd=tmp_path)

    shown = _run(*mlir_offload, "inspect", tmp_path / "a.o")
    assert shown.count("kernel run(") == 2
    assert shown.count("entry cuda kernel run") == 1
    texts = {path.name: path.read_text() for path in (tmp_path / "kept").rglob("*.s")}
    assert sorted(texts) == ["device0.sm_90.s", "device1.sm_80.s"]
    assert "div.approx.ftz.f32" in texts["device0.sm_90.s"]
    refused = [*mlir_offload, "-c", "--offload-arch=sm_75,sm_90", "a.mlir"]
    done = subprocess.run(refused, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert "with kernel @run is attached to sm_90, not sm_75" in done.stderr


def _for_gpu(march: str) -> list[str]:
    if not march:
        return []
    return ["--target=nvptx64-nvidia-cuda", f"-march={march}", f"--cuda-path={cuda_root()}"]


def _library(folder: Path, name: str, *target: str) -> None:
    (folder / "thrice.c").write_text(
        "float thrice(float x) { return 3 * x; }\nfloat twice(float x) { return 2 * x; }\n"
    )
    flags = ["-c", "-emit-llvm", "-O2", "-nogpulib", "-Wno-unknown-cuda-version", *target]
    _run("/usr/lib/llvm-22/bin/clang", *flags, "thrice.c", "-o", name, cwd=folder)


def _run(*argv: object, cwd: Path | None = None, stderr: bool = False, **environment: str) -> str:
    env = {**os.environ, **environment}
    done = subprocess.run(
        list(map(str, argv)), cwd=cwd, check=False, capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr if stderr else done.stdout
