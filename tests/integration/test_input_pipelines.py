"""Programs above the level of GPU launches, run on the CPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

LEVELS = Path(__file__).parent / "inputs" / "levels"
EVERY_RELEASE = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
LOOP = """func.func @f(%a: memref<8xf32>) {
  affine.parallel (%i) = (0) to (8) {
    %v = affine.load %a[%i] : memref<8xf32>
    affine.store %v, %a[%i] : memref<8xf32>
  }
  return
}
"""


@pytest.mark.parametrize("major", EVERY_RELEASE)
def test_every_level_becomes_kernels_that_compute_what_is_written(
    major: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    program = tmp_path / "levels"
    options = [f"--llvm={major}", "--offload-arch=host", "--pipeline=linalg", "-o", program]
    _run(*mlir_offload, *options, LEVELS / "levels.mlir", LEVELS / "levels.c")

    assert _run(program) == "ok\n"
    assert _run(*mlir_offload, "inspect", program).count("─ kernel ") == 6


@pytest.mark.parametrize("major", EVERY_RELEASE)
def test_scripts_lower_what_no_pass_does(
    major: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    options = [f"--llvm={major}", "--offload-arch=host", "--pipeline=linalg"]
    _run(*mlir_offload, *options, LEVELS / "scripts.mlir", "-o", tmp_path / "scripts")
    _run(tmp_path / "scripts")
    assert "─ kernel " in _run(*mlir_offload, "inspect", tmp_path / "scripts")


# As JAX's fori_loop and while_loop: each iteration yields a new tensor.
_ITERATED = """
#id = affine_map<(d0) -> (d0)>
func.func private @step(%c: tensor<8xf32>, %x: tensor<8xf32>) -> tensor<8xf32> {
  %half = arith.constant 5.0e-01 : f32
  %empty = tensor.empty() : tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
    ins(%c, %x : tensor<8xf32>, tensor<8xf32>) outs(%empty : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %half : f32
    %s = arith.addf %m, %b : f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}
func.func @main() -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  %x = arith.constant dense<16.0> : tensor<8xf32>
  %r = scf.for %i = %c0 to %c5 step %c1 iter_args(%c = %x) -> tensor<8xf32> {
    %n = func.call @step(%c, %x) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    scf.yield %n : tensor<8xf32>
  }
  %bound = arith.constant 3.19e+01 : f32
  %w = scf.while (%c = %r) : (tensor<8xf32>) -> tensor<8xf32> {
    %v = tensor.extract %c[%c1] : tensor<8xf32>
    %less = arith.cmpf olt, %v, %bound : f32
    scf.condition(%less) %c : tensor<8xf32>
  } do {
  ^bb0(%c: tensor<8xf32>):
    %n = func.call @step(%c, %x) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    scf.yield %n : tensor<8xf32>
  }
  // 31.5, and 32 - 16 / 2**8 = 31.9375.
  %e0 = tensor.extract %r[%c0] : tensor<8xf32>
  %e1 = tensor.extract %w[%c5] : tensor<8xf32>
  %sum = arith.addf %e0, %e1 : f32
  %k = arith.constant 16.0 : f32
  %scaled = arith.mulf %sum, %k : f32
  %int = arith.fptosi %scaled : f32 to i32
  %want = arith.constant 1015 : i32
  %d = arith.subi %int, %want : i32
  return %d : i32
}
"""


@pytest.mark.parametrize("sanitizer", ["", "-fsanitize=address"])
@pytest.mark.parametrize("major", EVERY_RELEASE)
def test_a_loop_may_carry_a_new_tensor(
    major: int, sanitizer: str, mlir_offload: list[str], tmp_path: Path
) -> None:
    source, program = tmp_path / "iterated.mlir", tmp_path / "iterated"
    source.write_text(_ITERATED)
    options = [f"--llvm={major}", "--offload-arch=host", "--pipeline=linalg", "-o", program]
    _run(*mlir_offload, *options, *filter(None, [sanitizer]), source)

    # With the sanitizer, buffers that are freed twice or never end the program with another status.
    _run(program)
    assert "─ kernel " in _run(*mlir_offload, "inspect", program)


@pytest.mark.llvm(22)
def test_a_users_own_passes_run_first_and_their_file_is_a_dependency(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    (tmp_path / "a.mlir").write_text(LOOP)
    (tmp_path / "mine.yaml").write_text(
        "passes: [func.func(affine-loop-coalescing)]\nthen: linalg\n"
    )
    options = ["-c", "--offload-arch=host", "--pipeline=mine.yaml", "-MMD", "-MF", "-", "a.mlir"]

    assert _run(*mlir_offload, *options, cwd=tmp_path) == "a.o: a.mlir mine.yaml\n"
    assert "─ kernel " in _run(*mlir_offload, "inspect", tmp_path / "a.o")


@pytest.mark.llvm(22)
def test_bytecode_under_any_name_is_a_program(mlir_offload: list[str], tmp_path: Path) -> None:
    source = LEVELS.parents[3] / "docs" / "examples" / "square.mlir"
    for name in ("a.mlirbc", "b.mlir"):
        _run("/usr/lib/llvm-22/bin/mlir-opt", "--emit-bytecode", source, "-o", tmp_path / name)
        _run(*mlir_offload, "-c", "--offload-arch=host", name, "-o", "a.o", cwd=tmp_path)
        assert "─ kernel " in _run(*mlir_offload, "inspect", tmp_path / "a.o")


@pytest.mark.llvm(22)
def test_a_program_without_gpu_code_stays_on_the_host_and_is_told_so(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    (tmp_path / "a.mlir").write_text(LOOP)
    argv = [*mlir_offload, "-c", "--offload-arch=host", "a.mlir"]
    done = subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, text=True)

    assert "affine.parallel runs on the host; --pipeline=linalg offloads it" in done.stderr
    assert "kernel" not in _run(*mlir_offload, "inspect", tmp_path / "a.o")


OLD_FORMS = {
    "gpu.kernel_module @k {\n}": (1, "write gpu.module"),
    "func.func @f(%a: memref<4xf32>, %i: index) {\n %v = std.load %a[%i] : memref<4xf32>\n return\n}": (
        2,
        "write memref.load",
    ),
    'func.func @f() {\n %x = "gpu.thread_id"() {dimension = "x"} : () -> index\n return\n}': (
        2,
        "write gpu.thread_id x",
    ),
    'func.func @f(%c: index) {\n "gpu.launch_func"(%c, %c, %c, %c, %c, %c) {kernel = "run", kernel_module = @k}'
    " : (index, index, index, index, index, index) -> ()\n return\n}": (
        2,
        "write gpu.launch_func @module::@kernel",
    ),
    "func @f(%a: f32) attributes {gpu.kernel} {\n return\n}": (1, "write func.func"),
    "module {\n module @k attributes {gpu.kernel_module} {\n func.func @f() { return }\n }\n}": (
        2,
        "write gpu.module",
    ),
    'func.func @f(%m: memref<4xf32>, %i: index) {\n %v = "std.load"(%m, %i) : (memref<4xf32>, index) -> f32\n'
    " return\n}": (2, "write memref.load"),
    'func.func @f(%v: f32) {\n %s = "gpu.all_reduce"(%v) ({}) {op = "add"} : (f32) -> f32\n return\n}': (
        2,
        "write gpu.all_reduce add",
    ),
    "func.func @f() {\n %s = gpu.create_stream : !llvm.ptr\n return\n}": (
        2,
        "%t = gpu.wait async",
    ),
    "func.func @f(%s: !llvm.ptr) {\n %m = gpu.alloc <%s : !llvm.ptr> () : memref<4xf32>\n return\n}": (
        2,
        "only gpu.launch_func takes one",
    ),
    "func.func @f(%c: index) {\n gpu.launch blocks(%x, %y, %z) in (%gx = %c, %gy = %c, %gz = %c)\n"
    " threads(%i, %j, %k) in (%bx = %c, %by = %c, %bz = %c)\n args(%a = %c) : index {\n gpu.return\n }\n return\n}": (
        3,
        "leave it out",
    ),
    "module attributes {gpu.container_module} {\n module @k attributes {gpu.kernel_module} {\n"
    " func.func @f() attributes {gpu.kernel} { return }\n }\n func.func @g(%c: index) {\n"
    " gpu.launch_func @k::@f blocks in (%c, %c, %c) threads in (%c, %c, %c)\n return\n }\n}": (
        6,
        "write gpu.module @k",
    ),
    "func.func @f(%c: index) {\n loop.for %i = %c to %c step %c { }\n return\n}": (
        2,
        "write scf.for",
    ),
}


@pytest.mark.parametrize("text", OLD_FORMS)
@pytest.mark.parametrize("major", EVERY_RELEASE)
def test_forms_of_2019_are_told_with_todays_spelling(
    major: int, text: str, mlir_offload: list[str], tmp_path: Path
) -> None:
    (tmp_path / "a.mlir").write_text(text)
    argv = [*mlir_offload, f"--llvm={major}", "-c", "--offload-arch=host", "a.mlir"]
    done = subprocess.run(argv, cwd=tmp_path, check=False, capture_output=True, text=True)
    line, hint = OLD_FORMS[text]

    assert done.returncode == 1
    assert f"a.mlir:{line}:" in done.stderr
    assert hint in done.stderr


FUNCTION = """gpu.module @m {
  %s @scale(%%x: memref<?xf32>, %%n: index)%s {
    %%i = gpu.thread_id x
    %%is_inside = arith.cmpi ult, %%i, %%n : index
    cf.cond_br %%is_inside, ^do, ^end
  ^do:
    %%value = memref.load %%x[%%i] : memref<?xf32>
    %%sum = arith.addf %%value, %%value : f32
    memref.store %%sum, %%x[%%i] : memref<?xf32>
    %s
  ^end:
    %s
  }
}
"""


@pytest.mark.parametrize("major", EVERY_RELEASE)
def test_a_kernel_that_is_a_func_func_is_that_of_a_gpu_func(
    major: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    forms = {
        "func": ("func.func", " attributes {gpu.kernel}", "return", "return"),
        "gpu": ("gpu.func", " kernel", "gpu.return", "gpu.return"),
    }
    for name, words in forms.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.mlir").write_text(FUNCTION % words)
        argv = (*mlir_offload, f"--llvm={major}", "-c", "--offload-arch=host", "a.mlir")
        _run(*argv, cwd=tmp_path / name)
    func, gpu = (tmp_path / name / "a.o" for name in forms)

    assert func.read_bytes() == gpu.read_bytes()


def _run(*argv: object, cwd: Path | None = None) -> str:
    done = subprocess.run(
        list(map(str, argv)), cwd=cwd, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
