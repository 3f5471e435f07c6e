"""Real code as bitcode, by every available writer: Debian's sources, the examples, crates and Zig's library.

A module that a writer cannot compile is omitted: old releases lack options, and some files lack headers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from foreign.reader import Reader
from foreign.source_package import default_cache, fetch_source

ROOT = Path(__file__).resolve().parents[2]
_HOST = "x86_64-pc-linux-gnu"
# Debian's source packages, and their C and C++ files that require no configuration.
SOURCES = {
    "bzip2": ("blocksort.c", "bzlib.c", "compress.c", "decompress.c", "huffman.c"),
    "cjson": ("cJSON.c", "cJSON_Utils.c"),
    "lz4": ("lib/lz4frame.c", "lib/xxhash.c", "programs/datagen.c", "programs/timefn.c"),
    "lua5.4": tuple(
        f"src/{name}.c"
        for name in (
            *("lauxlib", "lcode", "lctype", "ldblib", "ldebug", "ldo", "lfunc", "lgc", "llex"),
            *("lmathlib", "lobject", "lstate", "lstring", "lstrlib", "ltable", "lutf8lib", "lzio"),
        )
    ),
    "zlib": ("adler32.c", "crc32.c", "inffast.c", "inflate.c", "trees.c"),
    "tinyxml2": ("tinyxml2.cpp", "xmltest.cpp"),
}
# Each clang compiles a file with one of these sets of options, in turn.
_OPTIONS = (("-O2",), ("-O0",), ("-O2", "-g"), ("-O1", "-flto=thin"), ("-O3", "-march=haswell"))
_EXAMPLES = ("saxpy", "reduction", "histogram", "stencil", "matmul", "printf", "dynamic_shared")
_ARCHS = {"sm_80": "nvptx64-nvidia-cuda", "gfx90a": "amdgcn-amd-amdhsa"}
_DEVICE_SOURCES = ("tests/integration/skew/device.cu", "tests/integration/inputs/cuda_caller.cu")
_CRATES = ("itoa", "ryu", "hex", "fnv", "adler", "cfg-if", "memchr", "smallvec", "percent-encoding")
_ZIG_SOURCES = ("compiler_rt.zig", "std/ascii.zig", "std/base64.zig", "std/sort.zig")
# The CPUs for which vectors.c is compiled.
_CPUS = {
    "riscv64-unknown-linux-gnu": "rv64gcv",
    "aarch64-unknown-linux-gnu": "armv8.6-a+sve2",
    _HOST: "sapphirerapids",
}
_SYSTEM = ("-isystem", "/usr/include", "-isystem", "/usr/include/x86_64-linux-gnu")
_OLDEST_WRITER = 15
_SECONDS = 120


@dataclass(frozen=True)
class Job:
    """A module to compile: `command` writes it to `output`."""

    name: str
    writer: str
    release: int
    triple: str
    cpu: str
    command: tuple[str, ...]
    output: Path


def make_corpus(folder: Path, readers: Sequence[Reader]) -> list[Job]:
    """Return the modules of these releases in a fixed order; modules that exist in the directory are kept."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    host, device = _clang_jobs(folder, readers), _device_jobs(folder, readers)
    own = {reader.release for reader in readers}
    vectors = _vector_jobs(folder, readers)
    every = [*host, *vectors, *device, *_mlir_jobs(folder), *_other_jobs(folder, readers)]
    jobs = [job for job in every if job.release in own]
    with ThreadPoolExecutor(2) as pool:
        made = pool.map(_make, jobs)
        return [job for job, is_made in zip(jobs, made, strict=True) if is_made]


def _make(job: Job) -> bool:
    if not job.output.exists():
        partial = job.output.with_suffix(".partial")
        command = [word.replace("%o", str(partial)) for word in job.command]
        try:
            subprocess.run(
                command, cwd=partial.parent, capture_output=True, check=False, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            partial.unlink(missing_ok=True)
        # An empty file records that the module cannot be compiled.
        partial.touch()
        partial.rename(job.output)
    return job.output.stat().st_size > 0


def _clang(reader: Reader) -> tuple[str, ...]:
    """Return the clang command of a release; clang of a wheel or another root uses its own headers."""
    if reader.is_clang:
        headers = reader.program.parent / "lib" / "include"
        own = (str(reader.program), "clang", "-target", _HOST, "-nostdlibinc", f"-I{headers}")
        return (*own, *_SYSTEM)
    headers = reader.program.parents[1] / "lib" / "clang" / str(reader.release)
    resources = (f"-resource-dir={headers}",) if reader.loader else ()
    return (*reader.tool("clang"), *resources)


def _clang_jobs(folder: Path, readers: Sequence[Reader]) -> Iterator[Job]:
    files = [(package, name) for package, names in SOURCES.items() for name in names]
    for number, (package, name) in enumerate(files):
        source = _unpacked(package) / name
        for reader in readers:
            release = reader.release
            if release < _OLDEST_WRITER:
                continue
            # A release compiles each file with other options than the previous file.
            chosen = _OPTIONS[(release - number) % len(_OPTIONS)]
            label = f"{package}-{Path(name).stem}{''.join(chosen)}"
            output = folder / f"{label}.clang{release}.bc"
            command = (*_clang(reader), "-w", *chosen, "-emit-llvm", "-c", str(source))
            include = (f"-I{source.parent}", "-o", "%o")
            yield Job(label, "clang", release, _HOST, "", (*command, *include), output)


def _vector_jobs(folder: Path, readers: Sequence[Reader]) -> Iterator[Job]:
    source = Path(__file__).with_name("vectors.c")
    for triple, cpu in _CPUS.items():
        for reader in readers:
            for level in ("-O0", "-O2"):
                label = f"{source.stem}-{triple.partition('-')[0]}{level}"
                output = folder / f"{label}.clang{reader.release}.bc"
                target = ("-target", triple, f"-march={cpu}", "-ffreestanding", level)
                command = (*_clang(reader), *target, "-w", "-emit-llvm", "-c", str(source))
                if reader.release >= _OLDEST_WRITER:
                    words = (*command, "-o", "%o")
                    yield Job(label, "clang", reader.release, triple, "", words, output)


def _unpacked(package: str) -> Path:
    """Return the root of a source package, downloaded and unpacked once."""
    folder = default_cache() / "sources" / package
    if not folder.exists():
        archive = fetch_source(package, default_cache() / "sources")
        partial = folder.with_name(f"{package}.partial")
        with tarfile.open(archive) as stream:
            stream.extractall(partial, filter="data")
        partial.rename(folder)
    inside = [path for path in folder.iterdir() if path.is_dir()]
    return inside[0] if len(inside) == 1 else folder


def _device_jobs(folder: Path, readers: Sequence[Reader]) -> Iterator[Job]:
    cuda = ("-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_80", "-nocudalib", "-nocudainc")
    hip = ("-x", "hip", "--cuda-device-only", "--offload-arch=gfx90a", "-nogpulib", "-nogpuinc")
    # Only an installed clang has the headers for CUDA and HIP, not that of a wheel.
    own = [one for one in readers if not one.is_clang and one.release >= _OLDEST_WRITER]
    for source in (*_DEVICE_SOURCES, *_kernels(folder)):
        for kind, arch in ((cuda, "sm_80"), (hip, "gfx90a")):
            for reader in own:
                for level in ("-O0", "-O2"):
                    label = f"{Path(source).stem}-{arch}{level}"
                    output = folder / f"{label}.clang{reader.release}.bc"
                    path = "--cuda-path=/nonexistent" if arch == "sm_80" else "-w"
                    ptx = ("-Xclang", "-target-feature", "-Xclang", "+ptx70")
                    feature = ptx if arch == "sm_80" else ()
                    command = (
                        *_clang(reader),
                        *kind,
                        path,
                        *feature,
                        "-w",
                        level,
                        "-emit-llvm",
                        "-c",
                    )
                    words = (*command, str(ROOT / source), "-o", "%o")
                    yield Job(label, "clang", reader.release, _ARCHS[arch], arch, words, output)


def _kernels(folder: Path) -> list[str]:
    """Write the device code of the readers' corpus to a file, and return it."""
    from support.bitcode_corpus import DEVICE

    path = folder / "corpus.cu"
    path.write_text(DEVICE, encoding="utf-8")
    return [str(path)]


def _mlir_jobs(folder: Path) -> Iterator[Job]:
    driver = str(Path(sys.executable).with_name("mlir-offload"))
    for name in _EXAMPLES:
        for release in (19, 22):
            for arch, triple in _ARCHS.items():
                label = f"{name}-mlir-{arch}"
                output = folder / f"{label}.mlir{release}.bc"
                source = str(ROOT / "docs" / "examples" / f"{name}.mlir")
                device = (f"--offload-arch={arch}", "--offload-device-only", "-emit-llvm", "-c")
                command = (driver, f"--llvm={release}", *device, "-nogpulib", source, "-o", "%o")
                yield Job(label, "mlir", release, triple, arch, command, output)


def _other_jobs(folder: Path, readers: Sequence[Reader]) -> Iterator[Job]:
    """Yield the jobs of rustc and Zig, which contain their own LLVM writers."""
    for crate in _CRATES:
        source = _crate(crate)
        for number, level in enumerate(("0", "3")):
            label = f"{crate}-O{level}"
            options = ("--crate-type=lib", "--edition=2021", "--cap-lints=allow", "--emit=llvm-bc")
            unit = ("-Ccodegen-units=1", f"-Copt-level={level}", f"-Cdebuginfo={2 * number}")
            command = ("rustc", *options, *unit, "--crate-name", crate.replace("-", "_"))
            output = folder / f"{label}.rustc.bc"
            if source is not None:
                yield Job(
                    label, "rustc", 22, _HOST, "", (*command, str(source), "-o", "%o"), output
                )
    yield from _zig_jobs(folder, readers)


def _zig_jobs(folder: Path, readers: Sequence[Reader]) -> Iterator[Job]:
    options = ("-fno-emit-bin", "-fllvm", "-OReleaseSmall", "-target", "x86_64-linux-gnu")
    for reader in readers:
        if not reader.is_clang:
            continue
        zig = str(reader.program)
        for name in _ZIG_SOURCES:
            source = str(reader.program.parent / "lib" / name)
            label = f"zig-{Path(name).stem}"
            output = folder / f"{label}.zig{reader.release}.bc"
            words = (zig, "build-obj", *options, "-femit-llvm-bc=%o", source)
            yield Job(label, "zig", reader.release, _HOST, "", words, output)


def _crate(name: str) -> Path | None:
    """Return the library file of a crate that Debian packages; None if it is not available."""
    folder = default_cache() / "sources" / f"librust-{name}-dev"
    if not folder.exists():
        folder.mkdir(parents=True)
        fetch = ("apt-get", "download", "-qq", f"librust-{name}-dev")
        subprocess.run(fetch, cwd=folder, check=False, capture_output=True, env=dict(os.environ))
        for package in folder.glob("*.deb"):
            subprocess.run(("dpkg-deb", "-x", package.name, "."), cwd=folder, check=False)
    found: Sequence[Path] = sorted(folder.glob("usr/share/cargo/registry/*/src/lib.rs"))
    return found[0] if found else None
