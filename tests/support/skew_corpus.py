"""Modules of every producer that the skew checker supports, made by the real tools from tests/integration/skew.

The sources are files in parts, each after a line `//--- name word=value...` (as for LLVM's `split-file`):
`only` and `without` name targets, `since` and `until` the releases that write the part, `arch` and `triple`
its target. Text with `raw=yes` is used unchanged; other text is printed by LLVM again.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from llvmlite import binding
from support.bitcode_corpus import RELEASES, tool
from support.cuda_tools import cuda_root

SOURCES = Path(__file__).resolve().parent.parent / "integration" / "skew"
MLIR_RELEASES = (19, 22)
MODULE = ("bc", "ll")
OBJECT = ("o",)
TRIPLES = {
    "nvptx": "nvptx64-nvidia-cuda",
    "amdgpu": "amdgcn-amd-amdhsa",
    "program": "x86_64-pc-linux-gnu",
    "object": "x86_64-pc-linux-gnu",
    "linked": "x86_64-pc-linux-gnu",
}
ARCHS = {"nvptx": "sm_80", "amdgpu": "gfx90a"}
_MARK = re.compile(r"^(?://|;)--- (\w+)(.*)\n", re.MULTILINE)

_CUDA = (
    *("-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_80", "-nocudalib", "-nocudainc"),
    f"--cuda-path={cuda_root()}",
)
_GFX = ("-x", "hip", "-nogpulib", "-nogpuinc", "--offload-arch=gfx90a")
_HIP = (*_GFX, "--cuda-device-only")
_LINKED_HIP = (*_GFX, "--offload-new-driver", "-fgpu-rdc", "-O1")
_EMBED = ("-Xclang", "-fembed-offload-object=device.pkg")
_OPENMP = ("-x", "c", "-fopenmp", "-O1", "-nogpulib")
_TO_NVPTX = (
    *("-fopenmp-targets=nvptx64-nvidia-cuda", "-Xopenmp-target", "-march=sm_80"),
    f"--cuda-path={cuda_root()}",
)
_TO_AMDGPU = ("-fopenmp-targets=amdgcn-amd-amdhsa", "-Xopenmp-target", "-march=gfx90a")
# The target and the options of clang for each file, by the extension of its name.
_CLANG: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "device.cu": {
        "cuda": ("nvptx", (*_CUDA, "-O2")),
        "cuda-O0": ("nvptx", (*_CUDA, "-O0")),
        "cuda-g": ("nvptx", (*_CUDA, "-O1", "-g")),
        "hip": ("amdgpu", (*_HIP, "-O2")),
        "hip-O0-g": ("amdgpu", (*_HIP, "-O0", "-g")),
    },
    "host.c": {
        "c-O0": ("program", ("-x", "c", "-O0")),
        "c-O2": ("program", ("-x", "c", "-O2")),
        "c-g": ("program", ("-x", "c", "-O1", "-g")),
        "c-thin": ("program", ("-x", "c", "-O2", "-flto=thin")),
        "c-full": ("program", ("-x", "c", "-O2", "-flto")),
    },
    "host.cpp": {
        "c++-O0-g": ("program", ("-x", "c++", "-O0", "-g")),
        "c++-O2": ("program", ("-x", "c++", "-O2")),
    },
    "openmp.c": {
        "openmp-host": ("object", (*_OPENMP, "--offload-host-only", *_TO_NVPTX)),
        "openmp-nvptx": ("nvptx", (*_OPENMP, "--offload-device-only", *_TO_NVPTX)),
        "openmp-amdgpu": ("amdgpu", (*_OPENMP, "--offload-device-only", *_TO_AMDGPU)),
    },
    "linked.c": {
        "openmp": ("linked-openmp", (*_OPENMP, "-fopenmp-targets=x86_64-pc-linux-gnu")),
    },
    "linked.hip": {
        "hip-object": ("linked-hip", (*_LINKED_HIP, "--offload-host-only", *_EMBED)),
        "hip-rdc": ("linked-hip", (*_LINKED_HIP, "-fno-offload-lto")),
        "hip-thin": ("linked-hip", (*_LINKED_HIP, "-foffload-lto")),
    },
}
_GPU_PASSES = (
    "convert-vector-to-scf,convert-scf-to-cf,expand-strided-metadata,lower-affine,"
    "convert-index-to-llvm,convert-gpu-to-{dialect},convert-vector-to-llvm,convert-math-to-llvm,"
    "convert-arith-to-llvm,convert-nvvm-to-llvm"
)
_AFTER = "convert-func-to-llvm,convert-cf-to-llvm,canonicalize,cse,reconcile-unrealized-casts"
_HOST_PASSES = (
    "convert-vector-to-scf,convert-scf-to-cf,expand-strided-metadata,lower-affine,"
    "convert-vector-to-llvm,convert-math-to-llvm,convert-math-to-libm,finalize-memref-to-llvm,"
    f"convert-index-to-llvm,convert-arith-to-llvm,{_AFTER}"
)
_GPU_TARGETS = {"nvptx": "nvvm", "amdgpu": "rocdl{chipset=gfx90a}"}


@dataclass(frozen=True, slots=True)
class Case:
    """One module as one kind of producer writes it.

    `target` determines its use: a kernel of `nvptx` or `amdgpu`, a `program` of the host that is run, or
    an `object`, which is only compiled. `linked-openmp` and `linked-hip` are objects with device images,
    which are linked. `releases` are those of LLVM whose tools write it.
    """

    name: str
    maker: str
    target: str
    text: str
    releases: tuple[int, ...]
    arch: str
    triple: str
    options: tuple[str, ...] = ()
    is_raw: bool = False

    @property
    def forms(self) -> tuple[str, ...]:
        """Return the extensions of its files."""
        return OBJECT if self.target.startswith("linked") else MODULE


@dataclass(frozen=True, slots=True)
class Module:
    """A case as one release wrote it, in both formats."""

    case: Case
    release: int
    folder: Path

    @property
    def name(self) -> str:
        """Return its name, unique among all modules."""
        return f"{self.case.name}-{self.release}"

    def form(self, name: str) -> Path:
        """Return the file in one of the formats of its case."""
        return self.folder / self.name / f"module.{name}"


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    text: str
    words: Mapping[str, str]

    def releases(self, known: tuple[int, ...]) -> tuple[int, ...]:
        since, until = (
            int(self.words.get(key, bound)) for key, bound in (("since", 0), ("until", 99))
        )
        return tuple(one for one in known if since <= one <= until)


@cache
def all_cases() -> Mapping[str, Case]:
    """Return the cases of the corpus, by name."""
    cases = (*_mlir_cases(), *_clang_cases(), *_text_cases(), *_llvmlite_cases())
    found = {case.name: case for case in cases}
    assert len(found) == len(cases), "two cases have one name"
    return found


def _read_parts(name: str) -> tuple[str, list[_Part]]:
    """Return the text before the first part, and the parts."""
    pieces = _MARK.split((SOURCES / name).read_text(encoding="utf-8"))
    names, words, texts = pieces[1::3], pieces[2::3], pieces[3::3]
    return pieces[0], [
        _Part(part, text, dict(word.split("=", 1) for word in line.split()))
        for part, line, text in zip(names, words, texts, strict=True)
    ]


def _mlir_cases() -> Iterator[Case]:
    for part in _read_parts("device.mlir")[1]:
        for target in _GPU_TARGETS:
            if part.words.get("only", target) == target:
                yield _case(part, "mlir", target, part.text, MLIR_RELEASES)
    for part in _read_parts("host.mlir")[1]:
        yield _case(part, "mlir", "program", part.text, MLIR_RELEASES)


def _clang_cases() -> Iterator[Case]:
    for file, kinds in _CLANG.items():
        head, parts = _read_parts(file)
        for part in parts:
            for kind, (target, options) in kinds.items():
                yield _case(part, f"clang-{kind}", target, head + part.text, RELEASES, options)


def _text_cases() -> Iterator[Case]:
    for target in ("nvptx", "amdgpu", "program", "object"):
        for part in _read_parts("host.ll" if target == "program" else f"{target}.ll")[1]:
            yield _case(part, "as", target, part.text, RELEASES)


def _llvmlite_cases() -> Iterator[Case]:
    """Return the cases written by llvmlite, which parses text with its own LLVM."""
    release = binding.llvm_version_info[0]
    for target, names in (
        ("nvptx", {"kernel_annotation", "maxntid", "barrier_new", "special_registers", "math"}),
        ("program", {"gep_constant", "memory_errno", "atomics", "captures", "wide_layout"}),
    ):
        for part in _read_parts("host.ll" if target == "program" else f"{target}.ll")[1]:
            if part.name in names:
                yield _case(part, "llvmlite", target, part.text, (release,))


def _case(
    part: _Part,
    maker: str,
    target: str,
    text: str,
    known: tuple[int, ...],
    options: tuple[str, ...] = (),
) -> Case:
    return Case(
        name="-".join(
            (maker, *([target] if maker in {"mlir", "as", "llvmlite"} else []), part.name)
        ),
        maker=maker,
        target=target,
        text=text,
        releases=part.releases(known),
        arch=part.words.get("arch", ARCHS.get(target, "")),
        triple=part.words.get("triple", TRIPLES[target.partition("-")[0]]),
        options=options,
        is_raw="raw" in part.words,
    )


def make_module(case: Case, release: int, folder: Path) -> Module:
    """Return a case as a release writes it, made once per directory, also by concurrent threads."""
    module = Module(case, release, folder)
    final = folder / module.name
    if not final.exists():
        with tempfile.TemporaryDirectory(dir=folder) as own:
            made = Path(own) / "made"
            made.mkdir()
            _write_forms(case, release, made)
            # One rename publishes all files; OpenMP kernels are named by the inode of their source.
            with suppress(OSError):
                made.rename(final)
    return module


def _write_forms(case: Case, release: int, folder: Path) -> None:
    """Write `module.bc` and `module.ll`, or `module.o`."""
    disassemble = (tool(release, "llvm-dis"), "module.bc", "-o", "module.ll")
    if case.maker.startswith("clang"):
        (folder / "source").write_text(case.text, encoding="utf-8")
        if _EMBED[1] in case.options:
            _write_package(release, folder)
        bitcode = () if case.forms == OBJECT else ("-emit-llvm",)
        options = (*case.options, *bitcode, "-w", "-c", "source", "-o", f"module.{case.forms[0]}")
        _run(tool(release, "clang"), *options, folder=folder)
        if case.forms != OBJECT:
            _run(*disassemble, folder=folder)
    elif case.maker == "llvmlite":
        bitcode = binding.parse_assembly(_complete(case, release)).as_bitcode()
        (folder / "module.bc").write_bytes(bitcode)
        _run(*disassemble, folder=folder)
    else:
        text = _lower(case, release, folder) if case.maker == "mlir" else _complete(case, release)
        _run(tool(release, "llvm-as"), "-", "-o", "module.bc", folder=folder, stdin=text)
        if case.maker == "mlir" or case.is_raw:
            (folder / "module.ll").write_text(text, encoding="utf-8")
        else:
            _run(*disassemble, folder=folder)


def _write_package(release: int, folder: Path) -> None:
    """Write the device code of a HIP source as an object in an offload binary."""
    clang, target = (
        tool(release, "clang"),
        ("--target=amdgcn-amd-amdhsa", "-mcpu=gfx90a", "-nogpulib"),
    )
    _run(clang, *_HIP, "-O1", "-w", "-emit-llvm", "-c", "source", "-o", "device.bc", folder=folder)
    _run(clang, *target, "-w", "-c", "device.bc", "-o", "device.o", folder=folder)
    image = "--image=file=device.o,triple=amdgcn-amd-amdhsa,arch=gfx90a,kind=hip"
    _run(tool(release, "clang-offload-packager"), "-o", "device.pkg", image, folder=folder)


def _lower(case: Case, release: int, folder: Path) -> str:
    """Return the LLVM IR of a program as mlir-translate writes it, without a data layout."""
    if case.target == "program":
        return _translated(release, folder, _opted(release, folder, _HOST_PASSES, case.text))
    passes = _GPU_PASSES.format(dialect=_GPU_TARGETS[case.target])
    text = _opted(release, folder, f"gpu.module({passes}),{_AFTER}", case.text)
    # mlir-translate ignores a gpu.module.
    attributes = f'module attributes {{llvm.target_triple = "{case.triple}"}} {{'
    text = re.sub(r"^module .*\{\n((?:.*\n)*?)  gpu\.module .*\{\n", rf"{attributes}\n\1", text)
    return _translated(release, folder, text.rstrip().removesuffix("}"))


def _opted(release: int, folder: Path, passes: str, text: str) -> str:
    pipeline = f"--pass-pipeline=builtin.module({passes})"
    return _run(tool(release, "mlir-opt"), pipeline, "-", folder=folder, stdin=text)


def _translated(release: int, folder: Path, text: str) -> str:
    return _run(tool(release, "mlir-translate"), "--mlir-to-llvmir", "-", folder=folder, stdin=text)


def _complete(case: Case, release: int) -> str:
    """Return the text with the triple, and with the data layout that clang of the release uses for it."""
    layout = _layout(release, case.triple)
    return f'target datalayout = "{layout}"\ntarget triple = "{case.triple}"\n{case.text}'


@cache
def _layout(release: int, triple: str) -> str:
    options = (f"--target={triple}", "-nogpulib", "-x", "c", "-S", "-emit-llvm", "-o", "-")
    text = _run(tool(release, "clang"), *options, os.devnull, folder=Path.cwd())
    found = re.search(r'^target datalayout = "(.*)"', text, re.MULTILINE)
    assert found, triple
    return found[1]


def _run(*argv: str, folder: Path, stdin: str = "") -> str:
    done = subprocess.run(
        argv, cwd=folder, input=stdin, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{argv}\n{done.stderr}"
    return done.stdout
