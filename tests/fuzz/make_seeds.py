"""Make the seeds of the fuzzer with the real tools: python tests/fuzz/make_seeds.py

The seeds are committed, so that the fuzzer covers every format even if a tool is not installed.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

SEEDS = Path(__file__).parent / "seeds"
LLVM = Path("/usr/lib/llvm-22/bin")
PTXAS = Path("/usr/local/cuda-13.0/bin/ptxas")
FATBINARY = PTXAS.with_name("fatbinary")
HOST = "int twice(int x) { return 2 * x; }\n"
# A global variable on the host and on devices, for which clang makes an offload entry.
ENTRY = '_Pragma("omp declare target") int number; _Pragma("omp end declare target")\n'
GPU = "__attribute__((amdgpu_kernel)) void k(int *p, float f) { *p = f; }\n"
OPENCL = "kernel void k(global int *p, int n) { p[get_global_id(0)] = n; }\n"
# Members of thin archives: names that could make a reader open the wrong file.
THIN = {
    "nul": b"x\0.o",
    "device": b"/dev/zero",
    "itself": b"thin-itself.a",
    "longer": b"n" * 5000,
    "above": b"../" * 600 + b"x.o",
}
# A fat binary in an object for Windows and in one for macOS.
EMBEDDED = {
    "x86_64-pc-windows-msvc": '.section .nv_fatbin,"dr"\n.incbin "k.fatbin"\n',
    "arm64-apple-macos": '.section __NV_CUDA,__nv_fatbin\n.incbin "k.fatbin"\n',
}
PTX = """\
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n) .maxntid 128, 1, 1 {
  .reg .b64 %rd<2>;
  .shared .align 4 .b8 tile[64];
  ld.param.u64 %rd1, [p];
  st.global.u32 [%rd1], 42;
  ret;
}
"""


def main() -> None:
    """Write one small file of each format."""
    SEEDS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        _make(Path(name))
        for path in sorted(Path(name).iterdir()):
            if path.suffix != ".src":
                (SEEDS / path.name).write_bytes(path.read_bytes())


def _thin_archive(name: bytes) -> bytes:
    """Return a thin archive with one member, whose name is in the table of long names."""
    table = name + b"/\n"
    headers = (b"%-48s%-10d`\n" % (b"//", len(table)), b"%-48s%-10d`\n" % (b"/0", 7))
    return b"!<thin>\n" + headers[0] + table + b"\n" * (len(table) % 2) + headers[1]


def _make(folder: Path) -> None:
    for name, member in THIN.items():
        (folder / f"thin-{name}.a").write_bytes(_thin_archive(member))
    (folder / "host.src").write_text(HOST, encoding="utf-8")
    (folder / "gpu.src").write_text(GPU, encoding="utf-8")
    (folder / "cl.src").write_text(OPENCL, encoding="utf-8")
    (folder / "k.ptx").write_text(PTX, encoding="utf-8")

    def run(program: Path, *arguments: str) -> None:
        subprocess.run([program, *arguments], cwd=folder, check=True)

    clang, amd = LLVM / "clang", ("--target=amdgcn-amd-amdhsa", "-mcpu=gfx90a", "-nogpulib")
    run(clang, "-O1", "-x", "c", "-c", "host.src", "-o", "host.o")
    run(clang, "-O1", *amd, "-x", "c", "-c", "gpu.src", "-o", "amd.o")
    run(clang, "-O1", *amd, "-x", "c", "-c", "-emit-llvm", "gpu.src", "-o", "amd.bc")
    run(LLVM / "ld.lld", "-shared", "amd.o", "-o", "amd.hsaco")
    run(clang, "--target=spirv64", "-cl-std=CL2.0", "-x", "cl", "-c", "cl.src", "-o", "cl.spv")
    run(PTXAS, "-arch=sm_80", "-c", "k.ptx", "-o", "k.cubin")
    images = ("--image3=kind=elf,sm=80,file=k.cubin", "--image3=kind=ptx,sm=80,file=k.ptx")
    run(FATBINARY, "-64", *images, "--create", "k.fatbin")
    image = "file=amd.bc,triple=amdgcn-amd-amdhsa,arch=gfx90a,kind=hip"
    run(LLVM / "llvm-offload-binary", f"--image={image}", "-o", "amd.offload")
    embed = ("-O1", "-x", "c", "-c", "host.src", "-Xclang", "-fembed-offload-object=amd.offload")
    run(clang, *embed, "-o", "embedded.o")
    run(clang, *embed, "-emit-llvm", "-o", "embedded.bc")
    (folder / "entry.src").write_text(ENTRY, encoding="utf-8")
    openmp = ("-fopenmp", "-fopenmp-targets=x86_64-pc-linux-gnu", "--offload-host-only")
    entry = ("-x", "c", "-c", "entry.src", "-Xclang", "-fembed-offload-object=amd.offload")
    run(clang, "-O1", *openmp, *entry, "-o", "entry.o")
    run(LLVM / "llvm-ar", "crD", "embedded.a", "embedded.o", "host.o")
    _foreign_objects(folder, run)
    options = ("-O1", "-g", "-fdebug-compilation-dir=.", "-x", "c", "-c", "host.src", "-o")
    run(clang, "-flto=thin", *options, "thin.bc")
    run(clang, "-flto", "-ffat-lto-objects", *options, "fat.o")
    bundler = ("-type=o", "-input=/dev/null", "-input=amd.hsaco")
    targets = "-targets=host-x86_64-unknown-linux-gnu-,hip-amdgcn-amd-amdhsa--gfx90a"
    run(LLVM / "clang-offload-bundler", *bundler, targets, "-output=amd.hipfb")
    run(LLVM / "clang-offload-bundler", *bundler, targets, "-compress", "-output=amd.ccob")


def _foreign_objects(folder: Path, run: Callable[..., None]) -> None:
    for triple, text in EMBEDDED.items():
        (folder / f"{triple}.src").write_text(text, encoding="utf-8")
        command = (f"--target={triple}", "-x", "assembler", "-c", f"{triple}.src", "-o")
        run(LLVM / "clang", *command, f"{triple}.o")
    coff, mach_o = (f"{triple}.o" for triple in EMBEDDED)
    # Without the option, the output contains the date of the link.
    run(LLVM / "lld-link", "/dll", "/noentry", "/timestamp:0", coff, "/out:embedded.dll")
    run(LLVM / "llvm-lib", coff, "/out:embedded.lib")
    run(LLVM / "llvm-lipo", "-create", "-segalign", "arm64", "8", mach_o, "-output", "universal.o")


if __name__ == "__main__":
    main()
