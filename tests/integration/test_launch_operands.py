"""Operands of launches arrive in kernels, for every type, device and release; those that cannot are rejected."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from support.amd_emulator import AmdGpu
from support.cuda_emulator import CudaEmulator, run_program
from support.cuda_tools import cuda_root
from support.launch_operands import OPERANDS, SHOW, WIDE, program, wrong

RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
CUDA_HEADER = Path(__file__).parent / "inputs" / "cuda_bare.h"


def _sources(directory: Path, text: str) -> tuple[str, str]:
    source, show = directory / "operands.mlir", directory / "show.c"
    source.write_text(text)
    show.write_text(SHOW)
    return str(source), str(show)


@pytest.mark.parametrize("release", RELEASES)
def test_operands_arrive_on_the_cpu_and_in_ptx(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path, release: int
) -> None:
    made = tmp_path / "program"
    flags = (
        f"--llvm={release}",
        "--offload-arch=sm_90,host",
        *cuda_emulator.options(is_kept=False),
    )
    sources = _sources(tmp_path, program())
    subprocess.run([*mlir_offload, *flags, *sources, "-o", str(made)], check=True)
    for device in ("host", "cuda"):
        ran = run_program(made, device=device)
        assert (list(wrong(ran.stdout)), ran.stderr) == ([], ""), device


@pytest.mark.llvm(22)
def test_operands_arrive_in_code_for_amd_gpus(amd: AmdGpu, tmp_path: Path) -> None:
    made = tmp_path / "program"
    known = [one for one in OPERANDS if not any(kind in one.type for kind in WIDE)]
    amd.build(22, "gfx90a", made, *_sources(tmp_path, program(known)))
    ran = amd.run(made, arch="gfx90a")
    assert (list(wrong(ran.stdout.decode(), known)), ran.stderr) == ([], b"")


# Types of C with the layouts of types of MLIR; what a C++ compiler passes to a kernel.
SAME_AS_IN_C = {
    "char": "i8",
    "bool": "i1",
    "short": "i16",
    "double": "f64",
    "_Float16": "f16",
    "__int128": "i128",
    "float3": "vector<3xf32>",
    "char3": "vector<3xi8>",
    "short5": "vector<5xi16>",
    "plain": "!llvm.struct<(i8, i64)>",
    "packed": "!llvm.struct<packed (i8, i64)>",
    "nested": "!llvm.struct<(i8, struct<(i16, i8)>, array<3 x i8>, i32)>",
}
C_TYPES = """
typedef float float3 __attribute__((ext_vector_type(3)));
typedef char char3 __attribute__((ext_vector_type(3)));
typedef short short5 __attribute__((ext_vector_type(5)));
struct plain { char a; long b; };
struct __attribute__((packed)) packed { char a; long b; };
struct nested { char a; struct { short x; char y; } b; char c[3]; int d; };
"""
# Alignment and size; scalars have a type instead.
PARAMETER = re.compile(r"\.param (?:\.align (\d+) )?\.([bufs]\d+) k_param_\d+(?:\[(\d+)\])?")


@pytest.fixture(scope="module")
def kernel_of_c_types(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("operands") / "kernel.mlir"
    takes = ", ".join(f"%a{at}: {kind}" for at, kind in enumerate(SAME_AS_IN_C.values()))
    path.write_text(f"gpu.module @m {{ gpu.func @k({takes}) kernel {{ gpu.return }} }}\n")
    return path


@pytest.mark.parametrize("release", RELEASES)
def test_parameters_have_the_layout_that_clang_gives_them_in_cuda(
    mlir_offload: list[str], kernel_of_c_types: Path, tmp_path: Path, release: int
) -> None:
    source = tmp_path / "kernel.cu"
    takes = ", ".join(f"{kind} a{at}" for at, kind in enumerate(SAME_AS_IN_C))
    source.write_text(
        f'#include "{CUDA_HEADER}"\n{C_TYPES}extern "C" __global__ void k({takes}) {{}}\n'
    )
    clang = f"/usr/lib/llvm-{release}/bin/clang++"
    flags = (
        "-x",
        "cuda",
        "--cuda-gpu-arch=sm_90",
        "--cuda-device-only",
        "-nocudainc",
        "-nocudalib",
        f"--cuda-path={cuda_root()}",
    )
    theirs, ours = tmp_path / "theirs.s", tmp_path / "ours.s"
    subprocess.run([clang, *flags, "-S", source, "-o", theirs], check=True)
    ask = (f"--llvm={release}", "--offload-device-only", "--offload-arch=sm_90", "-S")
    subprocess.run([*mlir_offload, *ask, str(kernel_of_c_types), "-o", str(ours)], check=True)
    # `.u8` and `.b8` differ between releases only in name.
    found = [
        [(align, kind[1:], size) for align, kind, size in PARAMETER.findall(path.read_text())]
        for path in (ours, theirs)
    ]
    assert len(found[0]) == len(SAME_AS_IN_C)
    assert found[0] == found[1]


@pytest.mark.llvm(22)
def test_parameters_have_the_sizes_of_the_host_in_code_for_amd_gpus(
    mlir_offload: list[str], kernel_of_c_types: Path, tmp_path: Path
) -> None:
    sizes = tmp_path / "sizes.c"
    listed = ", ".join(
        f"sizeof({'struct ' if kind in {'plain', 'packed', 'nested'} else ''}{kind})"
        for kind in SAME_AS_IN_C
    )
    sizes.write_text(
        f"#include <stdbool.h>\n#include <stdio.h>\n{C_TYPES}int main() {{ unsigned long s[] = {{{listed}}};\n"
        f'for (int i = 0; i < {len(SAME_AS_IN_C)}; ++i) printf("%lu ", s[i]); }}\n'
    )
    subprocess.run(["/usr/lib/llvm-22/bin/clang", sizes, "-o", tmp_path / "sizes"], check=True)
    printed = subprocess.run([tmp_path / "sizes"], check=True, capture_output=True, text=True)
    image = tmp_path / "kernel.co"
    ask = ("--offload-device-only", "--offload-arch=gfx90a", "-c", str(kernel_of_c_types))
    subprocess.run([*mlir_offload, *ask, "-o", str(image)], check=True)
    inspect = [*mlir_offload, "inspect", "--json", str(image)]
    shown = subprocess.run(inspect, check=True, capture_output=True)
    (kernel,) = json.loads(shown.stdout)["files"][0]["images"][0]["kernels"]
    found = [one["size_bytes"] for one in kernel["parameters"] if not one["is_hidden"]]
    assert found == list(map(int, printed.stdout.split()))


MANY = 40


@pytest.mark.parametrize("release", RELEASES)
def test_a_launch_passes_the_same_operand_many_times_and_kilobytes(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path, release: int
) -> None:
    kind, big = "memref<?x?x?xi64>", "!llvm.array<640 x i64>"
    takes = ", ".join(f"%a{at}: {kind}" for at in range(MANY))
    loads = "\n".join(
        f"%e{at} = memref.load %a{at}[%z, %z, %o] : {kind}\n%s{at + 1} = arith.addi %s{at}, %e{at} : i64"
        for at in range(MANY)
    )
    passed = ", ".join([f"%a : {kind}"] * MANY)
    text = f"""
llvm.func @show(!llvm.ptr, i64)
gpu.module @device {{
  gpu.func @k({takes}, %big: {big}, %last: i8, %out: memref<3xi64>) kernel {{
    %z = arith.constant 0 : index
    %o = arith.constant 1 : index
    %two = arith.constant 2 : index
    %s0 = arith.constant 0 : i64
    {loads}
    %end = llvm.extractvalue %big[639] : {big}
    %l = arith.extsi %last : i8 to i64
    memref.store %s{MANY}, %out[%z] : memref<3xi64>
    memref.store %end, %out[%o] : memref<3xi64>
    memref.store %l, %out[%two] : memref<3xi64>
    gpu.return
  }}
}}
func.func @main() {{
  %z = arith.constant 0 : index
  %o = arith.constant 1 : index
  %two = arith.constant 2 : index
  %seven = arith.constant 7 : i64
  %last = arith.constant -9 : i8
  %u = llvm.mlir.undef : {big}
  %big = llvm.insertvalue %seven, %u[639] : {big}
  %h = memref.alloc(%o, %o, %two) : {kind}
  memref.store %seven, %h[%z, %z, %o] : {kind}
  %a = gpu.alloc(%o, %o, %two) : {kind}
  gpu.memcpy %a, %h : {kind}, {kind}
  %out = gpu.alloc() : memref<3xi64>
  %t0 = gpu.wait async
  %t1 = gpu.launch_func async [%t0] @device::@k blocks in (%o, %o, %o) threads in (%o, %o, %o)
    args({passed}, %big : {big}, %last : i8, %out : memref<3xi64>)
  gpu.wait [%t1]
  %copy = memref.alloc() : memref<3xi64>
  gpu.memcpy %copy, %out : memref<3xi64>, memref<3xi64>
  %address = memref.extract_aligned_pointer_as_index %copy : memref<3xi64> -> index
  %number = arith.index_cast %address : index to i64
  %pointer = llvm.inttoptr %number : i64 to !llvm.ptr
  %three = arith.constant 3 : i64
  llvm.call @show(%pointer, %three) : (!llvm.ptr, i64) -> ()
  return
}}
"""
    made = tmp_path / "program"
    flags = (
        f"--llvm={release}",
        "--offload-arch=sm_90,host",
        *cuda_emulator.options(is_kept=False),
    )
    sources = _sources(tmp_path, f"module attributes {{gpu.container_module}} {{{text}}}")
    subprocess.run([*mlir_offload, *flags, *sources, "-o", str(made)], check=True)
    for device in ("host", "cuda"):
        ran = run_program(made, device=device)
        assert (ran.stdout, ran.stderr) == (f"{7 * MANY} 7 -9 \n", ""), device


REFUSED = {
    "tuple<i8, i64>": "which has no form in memory",
    "!gpu.async.token": "which is for the host only",
    "() -> i32": "which is a function",
    "vector<[4]xf32>": "which has a size that only the host knows",
    "vector<2xi128>": "which LLVM 19 does not pass to NVIDIA GPUs",
    '!llvm.target<"spirv.Event">': "which has no form in memory",
    "!llvm.struct<()>": "which has no bytes",
    "!llvm.struct<(i8, i128)>": "which contains i128, whose alignment differs between targets",
    "!llvm.struct<(vector<8xi1>)>": "which contains vector<8xi1>, which has another form on a GPU",
    "memref<4x8xi32, affine_map<(d0, d1) -> (d1, d0)>>": "which has a layout that is not strided",
    "memref<4xi136>": "which has elements whose distance differs between targets",
    "memref<4xi32, 3>": "but the host has no memory of this space",
    "!llvm.ptr<271>": "but the host has no memory of this space",
}


@pytest.mark.llvm(22)
@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_passed_is_rejected_at_its_place(
    mlir_offload: list[str], tmp_path: Path, kind: str
) -> None:
    source = tmp_path / "p.mlir"
    source.write_text(f"""\
module attributes {{gpu.container_module}} {{
  gpu.module @m {{ gpu.func @k(%a: {kind}) kernel {{ gpu.return }} }}
  func.func @f(%i: i64) {{
    %one = arith.constant 1 : index
    %a = builtin.unrealized_conversion_cast %i : i64 to {kind}
    gpu.launch_func @m::@k blocks in (%one, %one, %one) threads in (%one, %one, %one) args(%a : {kind})
    return
  }}
}}
""")
    ask = ("--offload-arch=sm_90,gfx90a,host", "-c", str(source), "-o", str(tmp_path / "p.o"))
    ran = subprocess.run([*mlir_offload, *ask], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert re.search(r"p\.mlir:[26]:\d+: error: ", ran.stderr)
    assert REFUSED[kind] in ran.stderr
    assert "  hint: " in ran.stderr
    assert ran.stderr.count("error: ") == 1


LAUNCH = """\
module attributes {gpu.container_module} {
  gpu.module @m {
    gpu.func @k(%out: memref<1xindex>) kernel {
      %zero = arith.constant 0 : index
      BODY
      gpu.return
    }
  }
  func.func @main() {
    %out = gpu.alloc() : memref<1xindex>
    %one = arith.constant 1 : index
    %many = arith.constant 4294967297 : index
    %less = arith.constant -1 : i32
    gpu.launch_func @m::@k blocks in (GRID, %one, %one) threads in (%one, %one, %one)
      DYNAMIC args(%out : memref<1xindex>)
    return
  }
}
"""
STOPPED = {
    ("%many", ""): "with a grid of 4294967297 x 1 x 1\n  hint: every size must be 1 to 4294967295",
    ("%one", "dynamic_shared_memory_size %less"): "with -1 bytes of dynamic workgroup memory",
}


@pytest.mark.llvm(22)
@pytest.mark.parametrize(("grid", "dynamic"), STOPPED)
def test_a_size_that_no_device_has_stops_the_program(
    mlir_offload: list[str], tmp_path: Path, grid: str, dynamic: str
) -> None:
    source = tmp_path / "p.mlir"
    source.write_text(LAUNCH.replace("GRID", grid).replace("DYNAMIC", dynamic).replace("BODY", ""))
    ask = ("--offload-arch=host", str(source), "-o", str(tmp_path / "p"))
    subprocess.run([*mlir_offload, *ask], check=True)
    ran = subprocess.run([tmp_path / "p"], capture_output=True, text=True, check=False)
    assert (ran.returncode, STOPPED[grid, dynamic] in ran.stderr) == (70, True)


@pytest.mark.llvm(22)
def test_the_size_of_dynamic_workgroup_memory_is_rejected(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source, memory = tmp_path / "p.mlir", "memref<?xi8, #gpu.address_space<workgroup>>"
    body = f"%m = gpu.dynamic_shared_memory : {memory} %size = memref.dim %m, %zero : {memory}"
    body += " memref.store %size, %out[%zero] : memref<1xindex>"
    source.write_text(LAUNCH.replace("GRID", "%one").replace("DYNAMIC", "").replace("BODY", body))
    ask = ("--offload-arch=host", str(source), "-o", str(tmp_path / "p"))
    ran = subprocess.run([*mlir_offload, *ask], capture_output=True, text=True, check=False)
    assert (ran.returncode, "p.mlir:5:" in ran.stderr) == (1, True)
    assert "the size of gpu.dynamic_shared_memory is not known in a kernel" in ran.stderr


@pytest.mark.llvm(22)
def test_a_size_in_host_code_is_that_of_the_target(mlir_offload: list[str], tmp_path: Path) -> None:
    source = tmp_path / "p.mlir"
    source.write_text("""\
llvm.func @main() -> i32 {
  %null = llvm.mlir.zero : !llvm.ptr
  %end = llvm.getelementptr %null[1] : (!llvm.ptr) -> !llvm.ptr, !llvm.struct<(i8, i64)>
  %size = llvm.ptrtoint %end : !llvm.ptr to i32
  llvm.return %size : i32
}
""")
    subprocess.run([*mlir_offload, str(source), "-o", str(tmp_path / "p")], check=True)
    assert subprocess.run([tmp_path / "p"], check=False).returncode == 16
