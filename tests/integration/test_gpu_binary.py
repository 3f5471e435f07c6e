"""Programs whose device code MLIR's own gpu-module-to-binary made, in every form, next to a gpu.module."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cuda_tools import cuda_directory

from mlir_offload.offload.link.objects import read_objects

FORMS = ("llvm", "isa", "bin", "fatbin")
MODULE = """\
module attributes {{gpu.container_module}} {{
  gpu.module @{name} [#{target}<chip = "{chip}">] {{
    gpu.func @{name}(%p: !llvm.ptr, %v: i32) kernel {{
      %t = gpu.thread_id x
      %i = arith.index_cast %t : index to i64
      %q = llvm.getelementptr %p[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i32
      llvm.store %v, %q : i32, !llvm.ptr
      gpu.return
    }}
  }}
}}
"""
PROGRAM = """\
module attributes {{gpu.container_module}} {{
  gpu.module @own {{
    gpu.func @own(%p: !llvm.ptr, %v: i32) kernel {{
      llvm.store %v, %p : i32, !llvm.ptr
      gpu.return
    }}
  }}
{binaries}
  llvm.mlir.global internal constant @where("from MLIR\\00")
  func.func @main() -> i32 {{
    %one = arith.constant 1 : index
    %five = arith.constant 5 : i32
    %p = llvm.mlir.addressof @where : !llvm.ptr
{launches}
    %zero = arith.constant 0 : i32
    return %zero : i32
  }}
}}
"""
LAUNCH = (
    "    gpu.launch_func @{name}::@{name} blocks in (%one, %one, %one) threads in (%one, %one, %one) "
    "args(%p : !llvm.ptr, %five : i32)"
)


def run(*argv: str | Path, text: str = "", status: int = 0) -> str:
    words = [str(word) for word in argv]
    done = subprocess.run(words, capture_output=True, text=True, input=text, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout + (done.stderr if status else "")


def binaries(major: int, target: str, chip: str, toolkit: Path) -> Iterator[str]:
    """Yield a gpu.binary in each form, whose kernel is named after the form."""
    dialect = {"nvvm.target": "nvvm", "rocdl.target": f"rocdl{{chipset={chip}}}"}[target]
    for form in FORMS:
        passes = f"gpu.module(convert-gpu-to-{dialect}),gpu-module-to-binary{{format={form} toolkit={toolkit}}}"
        source = MODULE.format(name=form, target=target, chip=chip)
        opt = f"/usr/lib/llvm-{major}/bin/mlir-opt"
        made = run(opt, f"--pass-pipeline=builtin.module({passes})", text=source)
        yield next(line for line in made.splitlines() if "gpu.binary" in line)


def program(given: list[str], names: tuple[str, ...] = ("own", *FORMS)) -> str:
    launches = "\n".join(LAUNCH.format(name=name) for name in names)
    return PROGRAM.format(binaries="\n".join(given), launches=launches)


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cuda_directory(tmp_path_factory.mktemp("toolkit"), 22)


@pytest.mark.parametrize(
    ("major", "is_bytecode"),
    [
        pytest.param(22, False, marks=pytest.mark.llvm(22)),
        pytest.param(19, True, marks=pytest.mark.llvm(19)),
    ],
    ids=["text of 22", "bytecode of 19"],
)
def test_kernels_in_every_form_are_launched_beside_those_of_a_module(
    mlir_offload: list[str],
    cuda_recorder: Path,
    toolkit: Path,
    tmp_path: Path,
    major: int,
    *,
    is_bytecode: bool,
) -> None:
    source, app = tmp_path / "p.mlir", tmp_path / "app"
    source.write_text(program(list(binaries(major, "nvvm.target", "sm_80", toolkit))))
    if is_bytecode:
        opt = f"/usr/lib/llvm-{major}/bin/mlir-opt"
        run(opt, "--emit-bytecode", source, "-o", tmp_path / "p.mlirbc")
        source = tmp_path / "p.mlirbc"
    compiler = (*mlir_offload, f"--llvm={major}", f"--cuda-path={cuda_recorder}")
    run(*compiler, source, "-o", app)
    made = [line.split(":")[0] for line in run(app).splitlines() if line.endswith("from MLIR 0x5")]
    # What is linked already has a fat binary of its own; the device link makes the third.
    names, owners = zip(*(line.split(" of ") for line in made), strict=True)
    assert names == ("own", *FORMS)
    assert owners[0] == owners[1] == owners[2]
    assert len(set(owners)) == 3
    (contents,) = read_objects(app)
    finished = {entry.name for entry in contents.entries if entry.is_device_linked}
    assert finished == {"bin", "fatbin"}


@pytest.mark.llvm(22)
def test_so_are_those_for_amd_gpus(
    mlir_offload: list[str], rocm_recorder: Path, tmp_path: Path
) -> None:
    root = tmp_path / "rocm"
    (root / "llvm").mkdir(parents=True)
    (root / "llvm" / "bin").symlink_to("/usr/lib/llvm-22/bin")
    (root / "amdgcn").symlink_to(rocm_recorder / "amdgcn")
    source, app = tmp_path / "p.mlir", tmp_path / "app"
    # The code object version of its assembly is not that of the kernels compiled here.
    given = [line for line in binaries(22, "rocdl.target", "gfx90a", root) if "@isa" not in line]
    source.write_text(program(given, ("own", "llvm", "bin", "fatbin")))
    run(*mlir_offload, "--llvm=22", f"--rocm-path={rocm_recorder}", source, "-o", app)
    calls = run("env", "HIP_RECORD_ARGUMENTS=84", app).splitlines()
    launched = [line.split()[1] for line in calls if line.startswith("hipLaunchKernel")]
    assert launched == ["own", "llvm", "bin", "fatbin"]
    registered = [line for line in calls if line.startswith("__hipRegisterFatBinary ")]
    assert len(registered) == 3


@pytest.mark.llvm(22)
def test_linked_code_is_refused_where_a_gpu_that_is_compiled_for_has_none(
    mlir_offload: list[str], toolkit: Path, tmp_path: Path
) -> None:
    source = tmp_path / "p.mlir"
    given = [line for line in binaries(22, "nvvm.target", "sm_80", toolkit) if "@bin" in line]
    source.write_text(program(given, ("own", "bin")))
    for arch, wanted in (("sm_80,sm_90", "sm_90"), ("sm_80,host", "the CPU")):
        compiler = (*mlir_offload, "--llvm=22", f"--offload-arch={arch}", "-c")
        said = run(*compiler, source, "-o", tmp_path / "p.o", status=1)
        assert f"gpu.binary @bin with kernel @bin holds code for sm_80, none for {wanted}" in said
    said = run(*mlir_offload, "bundle", source, "-o", tmp_path / "p.mob", status=1)
    assert "gpu.binary @bin contains precompiled device code, which a bundle" in said


@pytest.mark.llvm(22)
def test_code_for_amd_gpus_that_was_lowered_for_nvidia_gpus_is_refused(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    passes = "gpu.module(convert-gpu-to-nvvm),gpu-module-to-binary{format=llvm}"
    module = MODULE.format(name="llvm", target="rocdl.target", chip="gfx90a")
    opt = "/usr/lib/llvm-22/bin/mlir-opt"
    made = run(opt, f"--pass-pipeline=builtin.module({passes})", text=module)
    source = tmp_path / "p.mlir"
    given = [line for line in made.splitlines() if "gpu.binary" in line]
    source.write_text(program(given, ("own", "llvm")))
    compiler = (*mlir_offload, "--llvm=22", "--offload-arch=gfx90a", "-c")
    said = run(*compiler, source, "-o", tmp_path / "p.o", status=1)
    assert "gpu.binary @llvm holds code for gfx90a that was lowered for NVIDIA GPUs" in said
    assert "by convert-gpu-to-rocdl" in said
