"""Programs for what takes SPIR-V, as Intel GPUs do: compiled, looked into, linked, and run.

The device that runs them is the CPU, by Intel's OpenCL; the same programs run by our own device for
the CPU say what is right.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.opencl import opencl_environment

from mlir_offload.offload.device.code import read_device_code
from mlir_offload.offload.device.spirv import read_spirv
from mlir_offload.offload.link.coverage import held_kernels
from mlir_offload.offload.link.kernel_layout import layout_findings
from mlir_offload.offload.link.objects import read_objects
from mlir_offload.toolchain.byte_view import open_view

INPUTS = Path(__file__).parent / "inputs"
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CLANG = Path("/usr/lib/llvm-22/bin/clang")
DEBIAN_LIBRARIES = Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")
KERNELS = {"memory", "atomics", "numbers", "lanes"}
pytestmark = pytest.mark.llvm(22)


def run(*argv: object, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **environment}
    words = [str(word) for word in argv]
    return subprocess.run(words, capture_output=True, text=True, env=variables, check=False)


def built(mlir_offload: list[str], output: Path, *words: object) -> Path:
    done = run(*mlir_offload, "--llvm=22", *words, "-o", output)
    assert done.returncode == 0, done.stderr
    return output


def on_opencl(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(program, *words, MLIR_OFFLOAD_DEVICE="sycl", **opencl_environment())


@pytest.fixture(scope="module")
def for_all(mlir_offload: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one program for every kind of device that there are tools for."""
    amd = ["gfx90a"] if DEBIAN_LIBRARIES.is_dir() else []
    archs = ",".join(["sm_80", *amd, "spirv64", "host"])
    output = tmp_path_factory.mktemp("all") / "program"
    return built(mlir_offload, output, f"--offload-arch={archs}", INPUTS / "spirv64.mlir")


def test_one_program_has_every_kernel_for_every_kind_of_device(for_all: Path) -> None:
    (contents,) = read_objects(for_all)
    held: dict[str, set[str]] = {}
    for kernel in held_kernels(contents):
        held.setdefault(kernel.kind, set()).add(kernel.kernel)
    registered: dict[str, set[str]] = {}
    for entry in contents.entries:
        registered.setdefault(entry.kind, set()).add(entry.name)
    assert {"cuda", "sycl", "openmp"} <= set(held)
    assert all(kernels == KERNELS for kernels in held.values())
    assert {kind: registered[kind] for kind in held} == held


def test_opencl_computes_what_the_cpu_device_does(for_all: Path) -> None:
    ours, right = on_opencl(for_all), run(for_all, MLIR_OFFLOAD_DEVICE="host")
    assert ours.stderr == right.stderr == ""
    assert ours.returncode == right.returncode == len(right.stdout.split()) // 4 == 64
    assert ours.stdout == right.stdout


def test_code_for_a_debugger_computes_the_same(mlir_offload: list[str], tmp_path: Path) -> None:
    source = EXAMPLES / "reduction.mlir"
    options = ("--offload-arch=spirv64", "-O0", "-g", "-ffast-math")
    program = built(mlir_offload, tmp_path / "p", *options, source)
    done = on_opencl(program)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("ok") == 3


def test_a_block_whose_subgroups_would_be_others_is_not_launched(for_all: Path) -> None:
    done = on_opencl(for_all, "high")
    assert done.returncode == 70
    assert "the device makes 32 subgroups of a block that has 2" in done.stderr
    assert "hint: launch blocks of one dimension" in done.stderr


def test_kernels_call_functions_of_other_files_and_of_libraries(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    library = tmp_path / "twice.bc"
    (tmp_path / "twice.c").write_text("float twice(float x) { return x + x; }\n")
    flags = ("--target=spirv64-unknown-unknown", "-O1", "-emit-llvm", "-c")
    assert run(CLANG, *flags, tmp_path / "twice.c", "-o", library).returncode == 0
    arch = ("--offload-arch=spirv64", INPUTS / "spirv64_caller.mlir")
    together = ("-fgpu-rdc", *arch, INPUTS / "spirv64_callee.mlir")
    for words in (together, (f"--device-lib=spirv64={library}", *arch)):
        done = on_opencl(built(mlir_offload, tmp_path / "program", *words))
        assert (done.returncode, done.stderr) == (5, "")
    undefined = run(*mlir_offload, "--llvm=22", *arch, "-o", tmp_path / "none")
    assert undefined.returncode != 0
    assert "the kernels for spirv64 call 'twice', which nothing defines" in undefined.stderr
    assert not (tmp_path / "none").exists()


def test_device_code_of_a_static_library_is_linked(mlir_offload: list[str], tmp_path: Path) -> None:
    member = built(
        mlir_offload, tmp_path / "m.o", "--offload-arch=spirv64", "-c", EXAMPLES / "square.mlir"
    )
    assert run("ar", "rcs", tmp_path / "libm.a", member).returncode == 0
    main = EXAMPLES / "main.c"
    done = on_opencl(built(mlir_offload, tmp_path / "program", main, tmp_path / "libm.a"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "ok" in done.stdout


def test_an_image_is_packaged_and_takes_its_arguments_as_those_that_clang_makes(
    mlir_offload: list[str], tmp_path: Path, for_all: Path
) -> None:
    source = tmp_path / "lanes.mlir"
    source.write_text(
        "module attributes {gpu.container_module} { gpu.module @m {"
        "gpu.func @lanes(%a: f32, %x: !llvm.ptr, %n: i32, %b: i8, %d: f64) kernel { gpu.return } } }"
    )
    made = built(mlir_offload, tmp_path / "lanes.o", "--offload-arch=spirv64", "-c", source)
    (contents,) = read_objects(made)
    (image,) = contents.images
    (tmp_path / "empty.cpp").write_text("")
    said = run(f"{CLANG}++", "-fsycl", "-###", tmp_path / "empty.cpp").stderr
    assert f"triple={image.triple},arch=generic,kind={image.kind}" in said
    (tmp_path / "image.bc").write_bytes(image.data)
    (tmp_path / "lanes.cl").write_text(
        "kernel void lanes(float a, global float *x, int n, char b, double d) {}"
    )
    flags = ("--target=spirv64-unknown-unknown", "-c", "-O1")
    parameters = []
    for name, words in (("image.bc", ("-x", "ir")), ("lanes.cl", ())):
        code = tmp_path / f"{name}.spv"
        done = run(CLANG, *flags, "-Wno-override-module", *words, tmp_path / name, "-o", code)
        assert done.returncode == 0, done.stderr
        with open_view(code) as view:
            (kernel,) = read_spirv(view).kernels
        parameters.append((kernel.name, kernel.parameters))
    assert parameters[0] == parameters[1]
    # The link of a program checks that: it would have made other parameters of this object's kernel.
    (finding,) = layout_findings(for_all, [contents])
    assert "kernel 'lanes' for spirv64 takes its arguments at 0:8, 8:8" in finding.message
    # What was linked there is of another file: this one is compiled again, and linked.
    assert finding.hint == "compile the file that defines it again"
    again = built(mlir_offload, tmp_path / "again.so", "--offload-arch=spirv64", "-shared", source)
    assert layout_findings(again, [contents]) == ()


def test_linked_spirv_is_valid_and_complete(for_all: Path, tmp_path: Path) -> None:
    (contents,) = read_objects(for_all)
    (image,) = (image for image in contents.images if image.kind == "sycl")
    code = read_device_code(image.content)
    assert code is not None
    assert (code.producer, code.undefined) == ("LLVM SPIR-V Backend 22", ())
    assert {kernel.name: kernel.subgroup_size for kernel in code.kernels} == dict.fromkeys(
        KERNELS, 32
    )
    (tmp_path / "image.spv").write_bytes(image.data)
    validator = shutil.which("spirv-val")
    assert validator is not None, "apt install spirv-tools"
    done = run(validator, "--target-env", "spv1.4", tmp_path / "image.spv")
    assert done.returncode == 0, done.stdout + done.stderr


PROGRAM = """\
module attributes {gpu.container_module} { gpu.module @m {
gpu.func @k(%x: memref<?xindex>, %n: i64) kernel {
     BODY
gpu.return }
FUNCTION} }
"""
FUNCTION = """\
func.func private @f() {
%s = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
%c = arith.constant 0 : index
%v = arith.constant 1 : i8
memref.store %v, %s[%c] : memref<?xi8, #gpu.address_space<workgroup>>
return }
"""
REFUSED = {
    "an operation that the device has not": (
        "%c = gpu.cluster_id x\nmemref.store %c, %x[%c] : memref<?xindex>",
        (),
        "p.mlir:3:11: error: gpu.cluster_id is not supported for spirv64",
    ),
    "an operation of NVIDIA's": (
        "%c = nvvm.read.ptx.sreg.clock : i32",
        (),
        "p.mlir:3:11: error: nvvm.read.ptx.sreg.clock is not supported in a kernel for spirv64",
    ),
    "an operation for memory of another kind": (
        (
            "%c = arith.constant 0 : index\n%m = arith.constant dense<[1, 0]> : vector<2xi1>\n"
            "%v = arith.constant dense<1> : vector<2xindex>\n"
            "vector.compressstore %x[%c], %m, %v : memref<?xindex>, vector<2xi1>, vector<2xindex>"
        ),
        (),
        "error: vector.compressstore is not supported for spirv64: SPIR-V has no masked access",
    ),
    "a type that the back end has not": (
        (
            "%v = arith.constant dense<1.0> : vector<5xf32>\n"
            "%p = llvm.inttoptr %n : i64 to !llvm.ptr\n"
            "llvm.store volatile %v, %p : vector<5xf32>, !llvm.ptr"
        ),
        (),
        "error: a kernel cannot be compiled for spirv64: ",
    ),
    "an integer of which the back end leaves upper bits": (
        (
            "%c = arith.constant 0 : index\n%i = arith.index_cast %n : i64 to index\n"
            "%s = arith.trunci %n : i64 to i24\n%f = arith.sitofp %s : i24 to f32\n"
            "%r = arith.fptosi %f : f32 to i64\n%v = arith.index_cast %r : i64 to index\n"
            "memref.store %v, %x[%c] : memref<?xindex>"
        ),
        (),
        "p.mlir:5:6: error: arith.trunci of i24 is not supported for spirv64",
    ),
    "dynamic shared memory of a function": (
        "func.call @f() : () -> ()",
        (),
        "error: function 'f' uses dynamic shared memory, which only kernels have for spirv64",
    ),
    "a stack of unknown size": (
        (
            "%c = arith.constant 1 : i64\n%p = llvm.alloca %n x f32 : (i64) -> !llvm.ptr\n"
            "llvm.store volatile %c, %p : i64, !llvm.ptr"
        ),
        (),
        "error: an allocation on the stack of a size that is not known is not supported",
    ),
    "an older release": (
        "",
        ("--for-clang=19",),
        "the linker wrapper of LLVM 19 links no code for spirv",
    ),
    "several releases": (
        "",
        ("--for-clang=any",),
        "--for-clang=any is for objects: code for spirv64 is for one LLVM release",
    ),
    "an object of device code": (
        "",
        ("--device-code=object",),
        "--device-code=object: clang-linker-wrapper takes no SPIR-V, only bitcode",
    ),
    "a final object": (
        "",
        ("-fno-gpu-rdc",),
        "-fno-gpu-rdc: LLVM 22 cannot link code for spirv64 object by object",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_there_is_no_code_for_is_refused_with_its_cure(
    mlir_offload: list[str], tmp_path: Path, name: str
) -> None:
    body, options, message = REFUSED[name]
    (tmp_path / "p.mlir").write_text(
        PROGRAM.replace("BODY", body).replace("FUNCTION", FUNCTION if "@f" in body else "")
    )
    flags = ("--offload-arch=spirv64", "-c", *options, tmp_path / "p.mlir")
    done = run(*mlir_offload, *flags, "-o", tmp_path / "p.o")
    assert done.returncode != 0
    assert message in done.stderr
    assert "  hint: " in done.stderr
    assert "crash" not in done.stderr
    assert not (tmp_path / "p.o").exists()


def test_two_kernels_of_one_name_are_refused(mlir_offload: list[str], tmp_path: Path) -> None:
    text = (INPUTS / "spirv64_callee.mlir").read_text()
    for name in ("one", "other"):
        (tmp_path / f"{name}.mlir").write_text(text.replace("@lib2", f"@{name}"))
    files = [tmp_path / f"{name}.mlir" for name in ("one", "other")]
    words = ("--offload-arch=spirv64", "-shared", *files, "-o", tmp_path / "p.so")
    done = run(*mlir_offload, *words)
    assert "kernel 'unused' is defined here and in" in done.stderr
    assert "hint: rename one of the kernels" in done.stderr


CONVERSIONS = """
func.func @main() -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %sums = gpu.alloc host_shared () : memref<2xf32>
  gpu.launch blocks(%a, %b, %c) in (%d = %c1, %e = %c1, %f = %c1)
             threads(%i, %j, %k) in (%x = %c2, %y = %c1, %z = %c1) {
    %first = arith.cmpi eq, %i, %c0 : index
    %zero = arith.constant 0 : i32
    %minus = arith.constant -1 : i32
    %extended = arith.extsi %first : i1 to i32
    %chosen = arith.select %first, %minus, %zero : i32
    %short = arith.extsi %first : i1 to i16
    %v0 = arith.sitofp %first : i1 to f32
    %v1 = arith.sitofp %extended : i32 to f32
    %v2 = arith.sitofp %chosen : i32 to f32
    %double = arith.sitofp %chosen : i32 to f64
    %v3 = arith.truncf %double : f64 to f32
    %half = arith.sitofp %short : i16 to f16
    %v4 = arith.extf %half : f16 to f32
    %s1 = arith.addf %v0, %v1 : f32
    %s2 = arith.addf %s1, %v2 : f32
    %s3 = arith.addf %s2, %v3 : f32
    %s4 = arith.addf %s3, %v4 : f32
    memref.store %s4, %sums[%i] : memref<2xf32>
    gpu.terminator
  }
  %sum0 = memref.load %sums[%c0] : memref<2xf32>
  %sum1 = memref.load %sums[%c1] : memref<2xf32>
  %ten = arith.constant 10.0 : f32
  %scaled = arith.mulf %sum1, %ten : f32
  %both = arith.subf %scaled, %sum0 : f32
  %status = arith.fptosi %both : f32 to i32
  return %status : i32
}
"""


def test_a_true_condition_is_minus_one_as_a_signed_number(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "conversions.mlir"
    source.write_text(CONVERSIONS)
    program = built(mlir_offload, tmp_path / "program", "--offload-arch=spirv64", source)
    assert on_opencl(program).returncode == 5


SUMS = """
func.func @main() -> i32 {
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  %sums = gpu.alloc host_shared () : memref<5xindex>
  gpu.launch blocks(%a, %b, %c) in (%d = %c1, %e = %c1, %f = %c1)
             threads(%i, %j, %k) in (%x = %c5, %y = %c1, %z = %c1) {
    %none = arith.constant 0 : index
    %one = arith.constant 1 : index
    %sum = scf.for %number = %none to %i step %one iter_args(%before = %none) -> index {
      %after = arith.addi %before, %number : index
      scf.yield %after : index
    }
    memref.store %sum, %sums[%i] : memref<5xindex>
    gpu.terminator
  }
  %last = arith.constant 4 : index
  %sum = memref.load %sums[%last] : memref<5xindex>
  %status = arith.index_cast %sum : index to i32
  return %status : i32
}
"""


def test_a_sum_over_a_counter_of_64_bits_is_compiled(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    # LLVM multiplies two counters to compute it, in 65 bits.
    source = tmp_path / "sums.mlir"
    source.write_text(SUMS)
    program = built(mlir_offload, tmp_path / "program", "--offload-arch=spirv64", source)
    assert on_opencl(program).returncode == 6
