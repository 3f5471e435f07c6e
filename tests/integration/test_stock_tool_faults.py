"""Faults of LLVM's tools and libraries that programs must not show; others have tests where they are avoided.

* `omp_get_num_devices` is that of libgomp if both libraries are linked: here, two OpenMP libraries.
* No reader takes attribute kind 95: tests/unit/test_reader_limits.py, unread attributes.
* Launch bounds are attributes since LLVM 21, which older ones drop: BC015 in tests/unit/test_skew_check.py, and
  "launch bounds" in tests/support/skew_cases.py, read by each release in tests/unit/test_skew_bitcode.py.
* lld keeps a metadata note for each AMD object: tests/unit/test_code_object.py, all objects that lld has linked.
* sccache takes the driver for clang and caches none of its steps: tests/integration/test_cache.py.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mlir_offload.offload.device.code import read_device_code
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.skew.fact import Consumer
from mlir_offload.toolchain.skew.symbol import check_intrinsic
from mlir_offload.toolchain.target import NVPTX_TRIPLE
from mlir_offload.toolchain.tool import ToolVersion
from mlir_offload.translate.device_ir import LINK_LIBRARY
from mlir_offload.translate.pipelines import load_recipe
from mlir_offload.translate.spirv.module import spirv_bitcode_command

LEVELS = Path(__file__).parent / "inputs" / "levels"
MODULE = """\
module attributes {gpu.container_module} {
  gpu.module @NAME {
    gpu.func @NAME_first() kernel {
      gpu.printf "NAME first\\n"
      gpu.return
    }
    gpu.func @NAME_second() kernel {
      gpu.printf "NAME second\\n"
      gpu.return
    }
  }
  func.func @run_NAME() {
    %c1 = arith.constant 1 : index
    gpu.launch_func @NAME::@NAME_first blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
    gpu.launch_func @NAME::@NAME_second blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
    return
  }
}
"""
CALLER = """\
#include <omp.h>
void run_a(void);
void run_b(void);
int main(void) {
  int threads = 0;
#pragma omp parallel reduction(+ : threads) num_threads(2)
  threads++;
  run_a();
  run_b();
  return threads - 2;
}
"""


def run(*argv: str | Path, **environment: str) -> str:
    variables = {**os.environ, **environment}
    done = subprocess.run(argv, capture_output=True, text=True, env=variables, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.llvm(22)
def test_entries_of_two_kinds_and_two_openmp_libraries_give_each_launch_its_own_kernel(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    """libomptarget 22 counts entries of other kinds; libgomp has functions of the same names."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.mlir").write_text(MODULE.replace("NAME", name))
    (tmp_path / "main.c").write_text(CALLER)
    run("gcc", "-fopenmp", "-c", tmp_path / "main.c", "-o", tmp_path / "main.o")
    files = (tmp_path / "main.o", "-lgomp", tmp_path / "a.mlir", tmp_path / "b.mlir")
    options = ("--llvm=22", "--offload-arch=sm_90,host", "-o", tmp_path / "program")
    run(*mlir_offload, *options, *files)
    said = run(tmp_path / "program", MLIR_OFFLOAD_DEVICE="host")
    assert said == "a first\na second\nb first\nb second\n"


@pytest.mark.parametrize(
    "major", [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
)
def test_parallel_loops_with_steps_do_what_is_written(
    major: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    """scf-parallel-loop-tiling{no-min-max-bounds} tests the bounds of steps other than 1 wrongly."""
    options = (f"--llvm={major}", "--pipeline=linalg", "--offload-arch=host")
    run(*mlir_offload, *options, LEVELS / "steps.mlir", "-o", tmp_path / "steps")
    run(tmp_path / "steps")


@pytest.mark.parametrize("name", ["llvm.va_start.p0", "llvm.va_end.p0", "llvm.va_copy.p0"])
def test_an_intrinsic_with_a_type_in_its_name_is_unknown_to_older_readers(name: str) -> None:
    found = [check_intrinsic(name, "", Consumer(release)) for release in (16, 18, 19, 22)]
    assert [skew.rule if skew else "" for skew in found] == ["BC014", "BC014", "", ""]


@pytest.mark.parametrize("release", [20, 21])
def test_an_intrinsic_that_an_older_reader_takes_for_another_is_reported(release: int) -> None:
    # Taken for llvm.vector.splice, `left` does the same.
    for side, rule in (("left", ""), ("right", "BC028")):
        skew = check_intrinsic(f"llvm.vector.splice.{side}.nxv4i32", "", Consumer(release))
        assert (skew.rule if skew else "") == rule


def test_spirv_is_never_made_of_code_that_keeps_pointers_in_structs() -> None:
    llvm = LlvmToolchain(Path("/llvm"), ToolVersion(22, 1, 0), (("clang", Path("/llvm/clang")),))
    for level, expected in ((0, "-O1"), (1, "-O1"), (3, "-O3")):
        command = spirv_bitcode_command(llvm, Path("a.ll"), Path("a.bc"), opt_level=level)
        assert expected in command.argv
        assert "-O0" not in command.argv


@pytest.mark.parametrize("major", [19, 22])
def test_no_recipe_has_a_pass_form_that_miscompiles(major: int) -> None:
    recipe = load_recipe(major)
    pipelines = (
        recipe.host_pipeline(uses_async=True, debug=False),
        recipe.device_pipeline(needs=frozenset(), redux=True, debug=False),
        recipe.amdgpu_pipeline(needs=frozenset(), chip="gfx90a", debug=False),
    )
    assert not any("no-min-max-bounds" in text or "format=offload" in text for text in pipelines)


def test_lto_ir_of_nvidia_is_no_code_that_is_known() -> None:
    assert read_device_code(memory_view(b"\xed\x43\x4e\x7f" + bytes(60))) is None


TWICE = """
module attributes {{gpu.container_module}} {{
  gpu.module @m {{
    gpu.func @k(%x: !llvm.ptr) kernel {{ gpu.return }}
  }}
  func.func @{name}(%x: !llvm.ptr) {{
    %c1 = arith.constant 1 : index
    gpu.launch_func @m::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%x : !llvm.ptr)
    return
  }}
}}
"""


@pytest.mark.llvm(22)
def test_kernels_of_one_name_for_spirv_are_refused_since_clang_cannot_link_one_file_apart(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    for name in ("a", "b"):
        source, output = tmp_path / f"{name}.mlir", tmp_path / f"{name}.o"
        source.write_text(TWICE.format(name=name))
        options = ("--llvm=22", "-c", "-fPIC", "--offload-arch=spirv64")
        run(*mlir_offload, *options, source, "-o", output)
    first, second = tmp_path / "a.o", tmp_path / "b.o"
    apart = (
        "/usr/lib/llvm-22/bin/clang",
        "-r",
        "--offload-link",
        first,
        "-o",
        tmp_path / "apart.o",
    )
    assert subprocess.run(apart, capture_output=True, check=False).returncode != 0
    output = tmp_path / "ab.so"
    line = [*mlir_offload, "--llvm=22", "-shared", *map(str, (first, second, "-o", output))]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "LLVM 22 cannot tell two kernels of the same name apart for kind sycl" in done.stderr


LIBRARY = """target triple = "{triple}"
define i32 @seven() {{
  ret i32 7
}}
"""
USER = """target triple = "{triple}"
declare i32 @seven()
define i32 @user() {{
  %x = call i32 @seven()
  ret i32 %x
}}
"""


@pytest.mark.parametrize(
    ("major", "is_linked"),
    [
        pytest.param(15, False, marks=pytest.mark.llvm(15)),
        pytest.param(16, False, marks=pytest.mark.llvm(16)),
        pytest.param(19, True, marks=pytest.mark.llvm(19)),
        pytest.param(22, True, marks=pytest.mark.llvm(22)),
    ],
)
def test_device_libraries_are_linked_by_clang_where_it_links_them_into_ir(
    major: int, tmp_path: Path, *, is_linked: bool
) -> None:
    """Clang 15 and 16 ignore the option for IR."""
    clang = f"/usr/lib/llvm-{major}/bin/clang"
    library, user, made = (tmp_path / name for name in ("l.ll", "u.ll", "made.ll"))
    library.write_text(LIBRARY.format(triple=NVPTX_TRIPLE))
    user.write_text(USER.format(triple=NVPTX_TRIPLE))
    bitcode = ("-x", "ir", "-emit-llvm", "-c", library, "-o", library.with_suffix(".bc"))
    target = ("--target=nvptx64-nvidia-cuda", "-nogpulib")
    run(clang, *target, *bitcode)
    with_library = ("-Xclang", LINK_LIBRARY, "-Xclang", library.with_suffix(".bc"))
    run(clang, *target, *with_library, "-S", "-emit-llvm", "-x", "ir", user, "-o", made)
    assert ("declare i32 @seven()" not in made.read_text()) is is_linked


MATH = """\
module attributes {gpu.container_module} {
  gpu.module @m {
    gpu.func @k(%x: memref<?xf32>, %y: memref<?xbf16>, %i: memref<?xi32>) kernel {
      %t = gpu.thread_id x
      %v = memref.load %x[%t] : memref<?xf32>
      %b = memref.load %y[%t] : memref<?xbf16>
      %n = memref.load %i[%t] : memref<?xi32>
      %s, %c = math.sincos %v : f32
      %f = math.clampf %s to [%c, %v] : f32
      memref.store %f, %x[%t] : memref<?xf32>
      %fused = math.fma %b, %b, %b : bf16
      memref.store %fused, %y[%t] : memref<?xbf16>
      %infinite = math.isinf %v : f32
      %normal = math.isnormal %v : f32
      %either = arith.ori %infinite, %normal : i1
      %word = arith.extui %either : i1 to i32
      %power = math.ipowi %n, %word : i32
      memref.store %power, %i[%t] : memref<?xi32>
      gpu.return
    }
  }
}
"""


@pytest.mark.llvm(22)
def test_math_that_a_lowering_lacks_is_compiled_for_every_kind_of_device(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    (tmp_path / "math.mlir").write_text(MATH)
    archs = "--offload-arch=sm_90,gfx90a,spirv64,host"
    run(*mlir_offload, "-c", archs, tmp_path / "math.mlir", "-o", tmp_path / "o")
