from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest
from support.cuda_tools import assemble, cuda_tool
from support.hostile import assert_bounded, bit_flips, spliced, survives, truncations

from mlir_offload.offload.device.cubin import read_cubin
from mlir_offload.offload.device.kernel import DeviceCode, DeviceKernel, KernelParameter
from mlir_offload.offload.device.ptx_image import is_ptx, ptx_kernel_names, read_ptx
from mlir_offload.toolchain.byte_view import memory_view, open_view
from mlir_offload.toolchain.errors import VerificationError

CUDA = """
#ifndef __CUDACC_RTC__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#endif
struct S { int a[5]; char c; };
struct __attribute__((aligned(16))) V { float x[4]; };
extern "C" __device__ int other(int);
extern "C" __device__ extern int far;
__device__ int defined = 7;
extern "C" __global__ void __launch_bounds__(256, 2)
bounded(float *p, int n, S s, char c, double d, short h, V v, S *q)
{ __shared__ float mine[100]; __shared__ double more[3]; mine[n] = d + c; more[n & 1] = h;
  p[0] = mine[n + 1] + s.a[2] + more[0] + v.x[1] + q->c; }
extern "C" __global__ void plain() {}
template <class T> __global__ void generic(T *t) { *t = other(3) + far + defined; }
template __global__ void generic<int>(int *);
"""
BOUNDED = [(0, 8), (8, 4), (12, 24), (36, 1), (40, 8), (48, 2), (64, 16), (80, 8)]
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (15, 16, 19, 22)]
HEADER = ".version 8.0\n.target sm_80, debug\n.address_size 64\n"


def read_text(text: str) -> DeviceCode:
    return read_ptx(memory_view(text.encode()))


def read(data: bytes) -> DeviceCode:
    return read_ptx(memory_view(data))


def only_kernel(text: str) -> DeviceKernel:
    (kernel,) = read_text(HEADER + text).kernels
    return kernel


def assert_as_written(code: DeviceCode) -> None:
    assert (code.form, code.triple, code.is_relocatable) == ("PTX", "nvptx64-nvidia-cuda", None)
    assert {kernel.name for kernel in code.kernels} == {"bounded", "plain", "_Z7genericIiEvPT_"}
    assert set(code.undefined) == {"other", "far"}
    bounded = code.kernel("bounded")
    assert bounded is not None
    assert [(p.offset, p.size_bytes) for p in bounded.parameters or ()] == BOUNDED
    assert [p.name for p in bounded.parameters or ()][:2] == ["bounded_param_0", "bounded_param_1"]
    assert (bounded.max_threads, bounded.min_blocks, bounded.shared_bytes) == (256, 2, 424)
    assert code.kernel("plain") == DeviceKernel("plain", parameters=(), shared_bytes=0)


@pytest.mark.parametrize("major", RELEASES)
def test_ptx_of_each_clang_is_read(major: int, tmp_path: Path) -> None:
    output = tmp_path / "k.ptx"
    argv = [f"/usr/lib/llvm-{major}/bin/clang", "-x", "cuda", "-", "--cuda-device-only", "--cuda-gpu-arch=sm_70", "-nocudainc", "-nocudalib", "-S", "-O1", "-w", "-Xclang", "-target-feature", "-Xclang", "+ptx63", "-o", str(output)]  # fmt: skip
    subprocess.run(argv, input=CUDA, text=True, check=True)
    with open_view(output) as view:
        assert is_ptx(view)
        code = read_ptx(view)
        assert set(ptx_kernel_names(view)) == {kernel.name for kernel in code.kernels}
    assert_as_written(code)
    assert (code.producer, code.arch) == ("LLVM NVPTX Back-End", "sm_70")


def test_ptx_of_nvcc_is_read(tmp_path: Path) -> None:
    nvcc = Path(cuda_tool("ptxas")).with_name("nvcc")
    if not nvcc.exists():
        pytest.skip("no nvcc is installed")
    source, output = tmp_path / "k.cu", tmp_path / "k.ptx"
    source.write_text(CUDA.replace("#ifndef __CUDACC_RTC__", "#ifndef __NVCC__"))
    options = ["-arch=sm_90", "-rdc=true", "-lineinfo", "-ptx"]
    subprocess.run([nvcc, *options, source, "-o", output], check=True)
    with open_view(output) as view:
        assert is_ptx(view)
        code = read_ptx(view)
    assert_as_written(code)
    assert code.arch == "sm_90"
    assert re.fullmatch(
        r"NVIDIA NVVM Compiler, Cuda compilation tools, release [\d.]+, V[\d.]+", code.producer
    )


PARAMETERS = {
    "scalars": ".param .u8 a, .param .f64 b, .param .s16 c, .param .b32 d, .param .f16 e, .param .u64 f",
    "arrays": ".param .b8 a[3], .param .u16 b[5], .param .align 32 .b8 c[64], .param .f64 d[0x3]",
    "pointers": ".param .u32 a, .param .u64 .ptr .global .align 64 b, .param .u8 c, .param .u64 .ptr d",
    "several": ".param .u8 a, .param .b64 b[6], .param .align 4 .u8 c, .param .u32 d",
    "handles": ".param .texref a, .param .u8 b, .param .samplerref c, .param .surfref d, .param .u64 e",
    "comments": "/* (, */ .param .u32 a, // )\n .param/**/.u64 b",
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_lie_where_ptxas_puts_them(name: str, tmp_path: Path) -> None:
    texture = name == "handles"
    ptx = HEADER.replace(", debug", ", texmode_independent" if texture else "")
    ptx += f".visible .entry k({PARAMETERS[name]}) {{ ret; }}"
    assemble(ptx, tmp_path / "k.cubin", "-arch=sm_80")
    with open_view(tmp_path / "k.cubin") as view:
        (assembled,) = read_cubin(view).kernels
    (kernel,) = read_text(ptx).kernels
    assert kernel.parameters
    assert assembled.parameters == tuple(
        KernelParameter(one.offset, one.size_bytes) for one in kernel.parameters
    )
    assert bool(texture) == (len(kernel.parameters) < PARAMETERS[name].count(".param"))


def test_types_and_names_of_parameters_are_kept() -> None:
    kernel = only_kernel(".entry $k_1(.param .f16x2 %a$, .param .u64 .ptr .shared .align 8 _b) { }")
    assert kernel.name == "$k_1"
    assert kernel.parameters == (
        KernelParameter(0, 4, ".f16x2", "%a$"),
        KernelParameter(8, 8, ".u64", "_b"),
    )


@pytest.mark.parametrize(
    ("directives", "expected"),
    [
        (".maxntid 8", (8, None, None, None)),
        (".maxntid 8, 4 , 2", (64, None, None, None)),
        (".maxntid 0x10,1,1\n.minnctapersm 3", (16, None, 3, None)),
        (".reqntid 32", (None, (32, 1, 1), None, None)),
        (".reqntid 32,2 .maxnreg 64", (None, (32, 2, 1), None, 64)),
        ('.pragma "nounroll; .maxntid 5"; .maxnreg 0b11U', (None, None, None, 3)),
        (".reqnctapercluster 2,1,1 .explicitcluster .maxntid 010", (8, None, None, None)),
    ],
)
def test_bounds_of_launches_are_read(directives: str, expected: tuple[object, ...]) -> None:
    kernel = only_kernel(f".entry k() {directives} {{ ret; }}")
    bounds = kernel.max_threads, kernel.required_threads, kernel.min_blocks, kernel.max_registers
    assert bounds == expected


def test_only_what_a_kernel_declares_counts_as_its_memory() -> None:
    kernel = only_kernel("""
    .shared .align 16 .b8 module_scope[4096];
    .extern .shared .b8 dynamic[];
    .func f() { .shared .b8 not_mine[64]; ret; }
    .entry k() {
      // .shared .b8 comment[1000];
      .shared .align 4 .b8 a[5]; { .shared .f64 b; } .shared .v4 .f32 c[2];
      /* .shared .b8 x[1]; } */ st.shared.u32 [a], 1; mov.u32 %shared.x, a;
      ret; }
    """)
    assert kernel.shared_bytes == 8 + 8 + 32


def test_undefined_are_the_functions_and_variables_of_other_modules() -> None:
    code = read_text(HEADER + """
    .extern .func (.param .b32 r) a(.param .b32 x);
    .extern .func b();
    .extern .global .align 4 .u32 g[]; .extern .const .u32 h;
    .extern .shared .b8 dynamic[];
    .global .align 4 .u32 own[3] = {1, 2, 3}; .global .u32 one = 5, two;
    .func forward();
    .weak .func b() { ret; }
    .visible .func (.param .b32 r) c(.param .b32 x) { ret; }
    .entry declared();
    .func .attribute(.unified(1, 2)) d() { ret; }
    """)  # fmt: skip
    assert code.undefined == ("a", "g", "h")
    assert code.kernels == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", False),
        (".version 8.0\n", True),
        ("\n\n// Generated\n/* a * b ** */ .version 8.0", True),
        (" /* open .version 8.0", False),
        ("#include <a>\n.version 8.0", False),
        ("// .version 8.0", False),
        ("\x7fELF", False),
    ],
)
def test_ptx_is_told_by_its_first_directive(text: str, expected: bool) -> None:  # noqa: FBT001
    assert is_ptx(memory_view(text.encode())) == expected


def test_padding_of_fat_binaries_does_not_belong_to_the_text() -> None:
    assert read((HEADER + ".entry k() { ret; }\n").encode() + bytes(7)).kernels[0].name == "k"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"header at offset \d+: it lacks \.version or \.target"),
        (".version 8.0\n", r"header at offset \d+: it lacks"),
        (HEADER + ".entry", "function name at offset"),
        (HEADER + ".entry k(", "parameters at offset"),
        (HEADER + ".entry k(.u32 a) { }", "parameters at offset 64: '.u32' is not .param"),
        (HEADER + ".entry k(.param .u32) { }", "variable at offset.*no type or no name"),
        (HEADER + ".entry k(.param .u33 a) { }", "variable at offset.*'a' has no type or no name"),
        (HEADER + ".entry k(.param .b8 a[x]) { }", "extent at offset.*'x' is not a number"),
        (HEADER + ".entry k(.param .b8 a[089]) { }", "extent at offset.*'089' is not a number"),
        (HEADER + ".entry k(.param .b8 a[1}) { }", "extent at offset.*bracket is not closed"),
        (
            HEADER + ".entry k(.param .align x .b8 a) { }",
            "alignment at offset.*'x' is not a number",
        ),
        (HEADER + ".entry k() .maxntid x { }", r"\.maxntid at offset.*'x' is not a number"),
        (HEADER + ".entry k() ", "function k at offset"),
        (HEADER + ".entry k() { {", "body of k at offset.*no end"),
        (HEADER + ".entry k() { /* }", "comment at offset.*no end"),
        (HEADER + ".func (", "bracket at offset"),
        (HEADER + "}", "brace at offset.*it closes nothing"),
        (HEADER + "{", "body at offset.*no end"),
        (HEADER + ".address_size a", r"\.address_size at offset.*'a' is not a number"),
    ],
)
def test_errors_name_what_is_wrong_and_where(text: str, reason: str) -> None:
    with pytest.raises(VerificationError, match=f"malformed PTX: {reason}"):
        read_text(text)


def test_damaged_ptx_is_refused_or_read() -> None:
    text = HEADER + """
    .extern .func (.param .b32 r) a(.param .b32 x);
    .visible .entry k(.param .u64 p, .param .align 8 .b8 s[24]) .maxntid 8, 1, 1
    { .shared .align 4 .b8 m[100]; /* c */ st.shared.u32 [m], 1; // d
      ret; }
    """  # fmt: skip
    data = text.encode()
    assert survives(read, truncations(data)) > 0
    survives(read, bit_flips(data))
    survives(read, spliced(data, 500))


@pytest.mark.parametrize(
    "piece",
    [
        ".entry a ", "(", "/*", "/* */", "//\n", '"', '""', "{", "}", "{}", ".shared ", ";", "a", ".align ",
        ".entry k(.param .b8 a[", "[1]", ".extern .func ", ".pragma ", "/", "*", ".", ".maxntid 1,", "\n", "\0", "\xff",
        ".shared .b8 x;", ".param .u8 a,",
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", ["", ".entry k(.param .u8 a", ".entry k() {", ".entry k() "])
def test_reading_is_linear_whatever_is_repeated(piece: str, before: str) -> None:
    def seconds(count: int) -> float:
        data = (HEADER + before + piece * count).encode()
        begin = time.process_time()
        survives(read, iter([data]))
        return time.process_time() - begin

    # If it were quadratic, 16 times the text would take 256 times as long.
    assert seconds(8_000) < 0.5 + 100 * seconds(500)


def test_memory_stays_within_a_multiple_of_the_text() -> None:
    many = HEADER + ".entry k(" + ",".join([".param .u8 a"] * 15_000) + ") { ret; }"
    assert_bounded(read, many.encode(), 24)
    assert_bounded(read, (HEADER + ".entry k() { " + "a" * (4 << 20) + "}").encode(), 3)


def test_many_parameters_are_all_read() -> None:
    kernel = only_kernel(".entry k(" + ",".join(f".param .u64 a{i}" for i in range(4000)) + ") { }")
    assert len(kernel.parameters or ()) == 4000


@pytest.mark.parametrize(
    "body",
    [
        "{ .shared .b8 a[8]; ret; }",
        "{ // }\n .shared .b8 a[8]; ret;\n}",
        "{ /* } */ .shared .b8 a[8]; /* { */ ret; }",
        '{ .pragma "}"; .shared .b8 a[8]; ret; }',
        '{ .pragma "nounroll"; { .shared .b8 a[8]; }\n{ ld.shared.b8 %r1, [a]; } ret; }',
        "{ mov.b64 {%r1, %r2}, %rd1; { .shared .b8 a[8]; } ret; } .shared .b8 other[4];",
    ],
    ids=["plain", "comment", "long-comment", "string", "nested", "vector"],
)
def test_memory_of_a_block_is_found_whatever_stands_around_it(body: str) -> None:
    assert only_kernel(f".entry k()\n{body}\n.func f() {{ ret; }}").shared_bytes == 8


def test_data_after_a_kernel_may_hold_braces() -> None:
    text = ".entry k() { ret; }\n.section .debug_str { .b8 1 // {\n}\n.global .b8 g[2] = {1, 2};\n.entry l() { ret; }"
    assert [kernel.name for kernel in read_text(HEADER + text).kernels] == ["k", "l"]
