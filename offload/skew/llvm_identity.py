"""Identify the programs of an LLVM installation by their output, instead of the version that they print."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from mlir_offload.offload.abi import OffloadAbi, load_abi
from mlir_offload.offload.container.binary import read_binary
from mlir_offload.offload.elf import read_elf
from mlir_offload.offload.host.contents import layout_releases, producers
from mlir_offload.offload.host.object_entry import read_entries
from mlir_offload.toolchain.bitcode.module import read_bitcode
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.errors import CompatibilityError, ToolFailedError
from mlir_offload.toolchain.llvm import LlvmInstallation
from mlir_offload.toolchain.process import Command, Runner, run_checked
from mlir_offload.toolchain.skew.identity import (
    Fact,
    Severity,
    ToolFinding,
    ToolIdentity,
    Trial,
    fact_findings,
    identified,
    llvm_findings,
    parse_signature,
    problem_findings,
)
from mlir_offload.toolchain.skew.ir_feature import expected_ir_features, probe_ir_features
from mlir_offload.toolchain.target import Kind, host_triple
from mlir_offload.toolchain.tool import PROBE_LIMIT_S, ProbedVersion

_CLANG, _WRAPPER, _PACKAGER = "clang", "clang-linker-wrapper", "clang-offload-packager"
_LLD = "ld.lld"
_EMPTY_IR = "define void @probe() {\n  ret void\n}\n"
# The declarations from NVIDIA's headers that are required to define a kernel in CUDA C++.
_CUDA_CPP = """\
extern "C" int cudaLaunchKernel(const void *, ...);
__attribute__((global)) void probe() {}
"""
_KERNEL = """\
gpu.module @probe {
  llvm.func @probe() attributes {gpu.kernel, nvvm.kernel} {
    llvm.return
  }
}
"""
# The offset of the producer string: after the magic number and the version, which is one byte.
_BYTECODE_PRODUCER = 5
_START = "__start_"
_NOTHING_NEW = "no newer construct"
# The offload kinds as clang-offload-packager spells them.
_KINDS = ("openmp", "cuda", "hip", "sycl")


class LlvmIdentity(Struct, frozen=True):
    """The programs of an installation as identified by their output, and their inconsistencies."""

    installation: LlvmInstallation
    tools: tuple[ToolIdentity, ...]
    findings: tuple[ToolFinding, ...] = ()


def identify_llvm(
    runner: Runner,
    installation: LlvmInstallation,
    said: Sequence[tuple[str, ProbedVersion]],
    folder: Path,
) -> LlvmIdentity:
    """Run each program with output to `folder`, and read the output. Does not raise if a program fails."""
    folder.mkdir(parents=True, exist_ok=True)
    probe = _Probe(runner, installation, dict(said), folder)
    tools = tuple(
        probe.identify(name, write)
        for name, write in probe.writers().items()
        if installation.path(name) is not None
    )
    findings = (*problem_findings(tools), *llvm_findings(tools), *_expectations(tools))
    return LlvmIdentity(installation, tools, findings)


class _Probe(Struct, frozen=True):
    runner: Runner
    installation: LlvmInstallation
    said: Mapping[str, ProbedVersion]
    folder: Path

    def writers(self) -> dict[str, Callable[[], Trial]]:
        """Return the test of each program, in an order in which the programs and files that it uses come first."""
        return {
            _CLANG: self._clang,
            "opt": self._opt,
            "mlir-opt": self._mlir_opt,
            "mlir-translate": self._mlir_translate,
            _PACKAGER: self._packager,
            _WRAPPER: self._wrapper,
            _LLD: self._lld,
        }

    def identify(self, name: str, write: Callable[[], Trial]) -> ToolIdentity:
        path = self.installation.path(name)
        answer = self.said.get(name)
        version = str(answer.version) if answer and answer.version else ""
        group = f"LLVM in {self.installation.prefix}"
        return identified(group, name, path, version, write)

    def _run(self, name: str, *arguments: str | Path, text: str = "") -> str:
        """Run a program. Raises ToolFailedError if it fails, or without a run if its version query failed."""
        answer = self.said.get(name)
        if answer is not None and answer.version is None:
            raise ToolFailedError(answer.reason)
        argv = (str(self.installation.path(name)), *map(str, arguments))
        command = Command(argv, cwd=self.folder, limit_s=PROBE_LIMIT_S)
        return run_checked(self.runner, command, input_text=text).stdout

    def _bitcode_signature(self, file: str) -> str:
        with open_view(self.folder / file) as view:
            return read_bitcode(view).producer

    def _clang(self) -> Trial:
        self._run(_CLANG, "-x", "ir", "-c", "-emit-llvm", "-", "-o", "clang.bc", text=_EMPTY_IR)
        clang = self.installation.path(_CLANG) or Path(_CLANG)
        read = probe_ir_features(self.runner, clang)
        facts = [Fact("reads", ", ".join(feature.name for feature in read) or _NOTHING_NEW)]
        arguments = ("-triple", "x86_64-unknown-linux-gnu", "-aux-triple", "nvptx64-nvidia-cuda")
        cuda = ("-std=c++17", "--offload-new-driver", "-fgpu-rdc", "-x", "cuda", "-emit-obj")
        self._run(_CLANG, "-cc1", *arguments, *cuda, "-", "-o", "entry.o", text=_CUDA_CPP)
        with open_view(self.folder / "entry.o") as view:
            entries = read_entries(read_elf(view))
        facts += [Fact("writes entries", _layout(entry.section, entry.fields)) for entry in entries]
        return Trial(self._bitcode_signature("clang.bc"), tuple(facts))

    def _opt(self) -> Trial:
        self._run("opt", "-", "-o", "opt.bc", text=_EMPTY_IR)
        return Trial(self._bitcode_signature("opt.bc"))

    def _mlir_opt(self) -> Trial:
        self._run("mlir-opt", "--emit-bytecode", "-", "-o", "probe.mlirbc", text="module {}\n")
        with open_view(self.folder / "probe.mlirbc") as view:
            return Trial(view.text(_BYTECODE_PRODUCER, "producer"))

    def _mlir_translate(self) -> Trial:
        module = _KERNEL.replace("gpu.module @probe", "module").replace("gpu.kernel, ", "")
        text = self._run("mlir-translate", "--mlir-to-llvmir", "-", text=module)
        mark = "ptx_kernel" if "ptx_kernel" in text else "nvvm.annotations"
        return Trial("", (Fact("marks kernels by", mark),))

    def _packager(self) -> Trial:
        (self.folder / "probe.bin").write_bytes(b"")
        keys = (f"--image=file=probe.bin,triple=t,arch=a,kind={kind}" for kind in _KINDS)
        self._run(_PACKAGER, "-o", "kinds.bin", *keys)
        with open_view(self.folder / "kinds.bin") as view:
            images = read_binary(view)
        if len(images) != len(_KINDS):
            msg = f"{_PACKAGER} wrote {len(images)} of {len(_KINDS)} images"
            raise ToolFailedError(msg)
        pairs = zip(_KINDS, images, strict=True)
        known = ", ".join(f"{kind} {image.kind_code}" for kind, image in pairs if image.kind_code)
        versions = {image.version for image in images}
        version = Fact("writes containers of version", ", ".join(map(str, sorted(versions))))
        return Trial("", (version, Fact("numbers of kinds", known)))

    def _wrapper(self) -> Trial:
        """Link a CPU image with the wrapper, and read the section of the entries that it registers."""
        clang = (_CLANG, "-x", "c", "-fPIC", "-c", "-")
        self._run(*clang, "-o", "image.o", text="void probe(void) {}\n")
        target = f"triple={host_triple()},arch=host,kind=openmp"
        self._run(_PACKAGER, "-o", "image.bin", f"--image=file=image.o,{target}")
        embed = ("-Xclang", "-fembed-offload-object=image.bin")
        self._run(*clang, *embed, "-o", "host.o", text="int probe;\n")
        # Run through clang of the same release, which passes the arguments that its wrapper expects.
        linker = (f"--ld-path={self.installation.path(_LLD)}",) if self._has(_LLD) else ()
        self._run(_CLANG, "-shared", "-nostdlib", "--offload-link", *linker, "host.o", "-o", "w.so")
        with open_view(self.folder / "w.so") as view:
            elf = read_elf(view)
            symbols = {symbol.name for symbol in elf.symbols(".symtab")}
        sections = sorted(name.removeprefix(_START) for name in symbols if name.startswith(_START))
        return Trial("", tuple(Fact("registers entries in", name) for name in sections))

    def _lld(self) -> Trial:
        self._run(_CLANG, "-x", "c", "-fPIC", "-c", "-", "-o", "lld.o", text="int probe;\n")
        self._run(_LLD, "-shared", "lld.o", "-o", "lld.so")
        with open_view(self.folder / "lld.so") as view:
            made = [text for text in producers(read_elf(view)) if text.startswith("Linker: ")]
        # The name of a distribution may precede it.
        return Trial(made[0][made[0].index("LLD") :] if made and "LLD" in made[0] else "")

    def _has(self, name: str) -> bool:
        return self.installation.path(name) is not None


def _layout(section: str, members: int) -> str:
    first, last = layout_releases(section, members)
    releases = f", as LLVM {first} to {last} read them" if first else ""
    return f"{members} members in {section}{releases}"


def _expectations(tools: Sequence[ToolIdentity]) -> Iterator[ToolFinding]:
    """Yield a finding for each program that does not read or write the formats of the LLVM release of clang."""
    majors = [parse_signature(tool.written).major for tool in tools if tool.name == _CLANG]
    major = next((major for major in majors if major), None)
    if major is None:
        return
    try:
        abi = load_abi(major)
    except CompatibilityError as error:
        yield ToolFinding("TOOL004", Severity.WARNING, error.message, error.hint)
        return
    hint = "take all programs from one release of LLVM itself"
    yield from fact_findings(tools, _expected_facts(abi), f"LLVM {major}", hint)


def _expected_facts(abi: OffloadAbi) -> dict[tuple[str, str], str]:
    entry = abi.entry
    codes = dict(abi.kind_codes)
    known = (f"{kind} {codes[kind]}" for kind in _KINDS if kind in codes)
    read = ", ".join(feature.name for feature in expected_ir_features(abi.major))
    return {
        (_CLANG, "reads"): read or _NOTHING_NEW,
        (_CLANG, "writes entries"): _layout(entry.section(Kind.CUDA), len(entry.fields)),
        (_PACKAGER, "numbers of kinds"): ", ".join(known),
        (_WRAPPER, "registers entries in"): entry.section(Kind.OPENMP),
    }
