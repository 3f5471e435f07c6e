"""Bitcode of every installed LLVM release, for every kind of input of offloading."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from support.cuda_tools import cuda_root

RELEASES = (15, 16, 19, 22)

DEVICE = """
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
struct Mixed { char c; double d; int a[3]; };
struct alignas(16) Four { float x, y, z, w; };
typedef float Three __attribute__((ext_vector_type(3)));
extern "C" __device__ float outside(float);
extern "C" __device__ float unused(float);
extern __device__ int elsewhere;
__device__ int counter;
__attribute__((constant)) float table[16];
static __shared__ float tile[32][33];
static __shared__ double pair[2];
static __device__ float helper(float value) { return value * 1.5f + table[3]; }
template <class T> __global__ void store(T *place, T value) { *place = value; }
template __global__ void store<double>(double *, double);
__global__ void __attribute__((launch_bounds(256, 2))) bounded(float *a, const float *b, int n, Mixed s) {
  tile[n & 31][1] = a[n];
  for (int i = 0; i < n; i++) a[i] += tile[1][i & 31] + s.d + helper(*b);
  counter = n;
}
__global__ void calls(Four v, char c, short h, long long l, Four *out, Three three, bool f) {
  *out = v;
  out->x += c + h + l + f + three.y + outside(out->y) + elsewhere;
}
__global__ void doubles(double *p, int n) { pair[n & 1] = *p; p[1] = pair[0]; }
"""

HOST = """
typedef struct { int a; double b; } Pair;
extern int printf(const char *, ...);
static const char *const words[] = {"one", "two", "three"};
_Thread_local int counter;
__attribute__((section("mine"), aligned(64))) int placed = 7;
__attribute__((weak)) int weak(Pair p) { return p.a + (int)p.b; }
__attribute__((visibility("hidden"))) int hidden(float *restrict a, int n, Pair *q) {
  switch (n) { case 3: return 1; case 70000: return printf("%s", words[n & 1]); }
  for (int i = 0; i < n; i++) a[i] = a[i] * 2 + q->a;
  return weak(*q);
}
extern int other(void) __attribute__((alias("placed_twice")));
int placed_twice(void) { return counter++; }
"""

OPENMP = """
void scale(float *a, int n) {
#pragma omp target teams distribute parallel for map(tofrom : a[0 : n])
  for (int i = 0; i < n; i++) a[i] *= 2;
}
#pragma omp declare target
int shared_with_device = 3;
#pragma omp end declare target
"""

CPLUSPLUS = """
struct Base { virtual int get() const { return 1; } virtual ~Base() {} };
template <class T> struct Holder : Base { T value; int get() const override { return sizeof(T); } };
struct Node { Node *next; Holder<Node *> held; };
int count(Node *node) { int n = 0; for (; node; node = node->next) n += node->held.get(); return n; }
Base *make(int n) { static Holder<long> holder; return n ? new Holder<Node> : (Base *)&holder; }
inline namespace v1 { [[gnu::noinline]] long double wide(long double x, _Complex double z) { return x; } }
long double caller() { return wide(1.0L, 2.0); }
"""

# Without CUDA, clang selects a PTX ISA version that is too old for the architecture.
_CUDA = (
    *("-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_80", "-nocudalib", "-nocudainc"),
    f"--cuda-path={cuda_root()}",
)
_HIP = ("-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc")
_OPENMP = ("-x", "c", "-fopenmp", "-fopenmp-targets=x86_64-pc-linux-gnu")
# Sources and options of each case; `-emit-llvm -c` is added.
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "cuda-O0": (DEVICE, (*_CUDA, "-O0")),
    "cuda-O2-g": (DEVICE, (*_CUDA, "-O2", "-g")),
    "hip-gfx90a": (DEVICE, (*_HIP, "--offload-arch=gfx90a", "-O2")),
    "hip-gfx1100": (DEVICE, (*_HIP, "--offload-arch=gfx1100", "-O0", "-g")),
    "host-O0": (HOST, ("-x", "c", "-O0")),
    "host-O2-g": (HOST, ("-x", "c", "-O2", "-g")),
    "openmp-host": (OPENMP, (*_OPENMP, "-O1", "--offload-host-only")),
    "openmp-device": (OPENMP, (*_OPENMP, "-O1", "--offload-device-only")),
    "c++-O0-g": (CPLUSPLUS, ("-x", "c++", "-O0", "-g", "-fno-exceptions")),
    "thin": (HOST, ("-x", "c", "-O2", "-flto=thin")),
    "full": (CPLUSPLUS, ("-x", "c++", "-O2", "-flto", "-fno-exceptions")),
}


def tool(release: int, name: str) -> str:
    return f"/usr/lib/llvm-{release}/bin/{name}"


@cache
def compile_bitcode(release: int, case: str, session: Path) -> Path:
    """Return the bitcode of a case, written by clang of a release once per session.

    `session` is the directory that all tests share.
    """
    source, options = CASES[case]
    folder = session / f"bitcode-{release}-{case}"
    folder.mkdir()
    path = folder / f"{case}.bc"
    (folder / "source").write_text(source, encoding="utf-8")
    command = [tool(release, "clang"), *options, "-w", "-emit-llvm", "-c", "source"]
    subprocess.run([*command, "-o", path.name], check=True, cwd=folder)
    return path


def assemble(release: int, text: str, *options: str) -> bytes:
    """Return the bitcode of textual LLVM IR."""
    command = [tool(release, "llvm-as"), *options, "-", "-o", "-"]
    return subprocess.run(command, input=text.encode(), check=True, stdout=subprocess.PIPE).stdout


def disassemble(release: int, path: Path) -> str:
    """Return the module as textual LLVM IR."""
    command = [tool(release, "llvm-dis"), str(path), "-o", "-"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def analyze(release: int, path: Path) -> str:
    """Return the output of llvm-bcanalyzer."""
    command = [tool(release, "llvm-bcanalyzer"), str(path)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
