"""Compile equal kernels with mlir-offload, clang and nvcc, and count their instructions."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from support.gpu_code import Code, read_amd, read_sass

from mlir_offload.offload.device.code import read_device_code
from mlir_offload.offload.device.kernel import DeviceKernel
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.process import Command, ProcessRunner, run_checked

SOURCES = Path(__file__).resolve().parents[1] / "bench" / "gpu"
MLIR, CPP = SOURCES / "kernels.mlir", SOURCES / "kernels.cu"
_RUNNER = ProcessRunner()
_FUSIBLE = re.compile(r"arith\.(addf|mulf) %\w+, %\w+")
_INDEX_TYPES = {64: "long", 32: "int"}


class Vendor(Struct, frozen=True):
    """Patterns for the operations of a vendor that identify a loop, or are counted in it."""

    load: re.Pattern[str]
    store: re.Pattern[str]
    exponential: re.Pattern[str]
    sum: re.Pattern[str]
    fused: re.Pattern[str]
    wide_load: re.Pattern[str]
    wide_index: re.Pattern[str]


NVIDIA = Vendor(
    load=re.compile("LDG"),
    store=re.compile("STG"),
    exponential=re.compile("MUFU.EX2"),
    sum=re.compile("FADD|FFMA"),
    fused=re.compile("FFMA"),
    wide_load=re.compile(r"LD[GS]\S*\.(64|128)"),
    wide_index=re.compile(
        r"U?IADD3\.X|U?IADD\.64|IMAD\.X|IMAD\.WIDE|U?LEA\.HI\.X|ISETP\S*\.EX|USHF\S*U64"
    ),
)
AMD = Vendor(
    load=re.compile("(global|flat)_load"),
    store=re.compile("(global|flat)_store"),
    exponential=re.compile("v_exp_f32"),
    sum=re.compile("v_(pk_|dual_)?(add|fma|fmac|mac)_f32"),
    fused=re.compile("v_(pk_|dual_)?(fma|fmac|mac)_f32"),
    wide_load=re.compile(
        r"(global|flat)_load_(dwordx|b64|b96|b128)|ds_(load|read)2?_(b64|b96|b128)"
    ),
    wide_index=re.compile(
        r"[sv]_addc|v_add_co|v_lshl\w*_b64|s_lshl_b64|v_mad_[iu]64|[sv]_cmp\w*_[iu]64|v_lshl_add_u64"
    ),
)


class Loop(Struct, frozen=True):
    """A loop of a kernel: the operations that it has and lacks, and the one that is done once per element.

    `is_whole` is set if all loops of the kernel are unrolled.
    """

    kernel: str
    unit: str
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    is_whole: bool = False

    def find(self, kernels: Mapping[str, Code], vendor: Vendor) -> Code:
        """Return the body; if several match, such as the remainder of an unrolled loop, the one with most elements."""
        code = kernels[self.kernel]
        bodies = [code] if self.is_whole else code.loops()
        unit = getattr(vendor, self.unit)
        fitting = [
            body
            for body in bodies
            if all(body.operations(getattr(vendor, name)) for name in (self.unit, *self.has))
            and not any(body.operations(getattr(vendor, name)) for name in self.lacks)
        ]
        return max(fitting, key=lambda body: body.elements(unit))

    def per_element(self, kernels: Mapping[str, Code], vendor: Vendor) -> float:
        """Return the number of instructions per element."""
        body = self.find(kernels, vendor)
        return body.size / body.elements(getattr(vendor, self.unit))


LOOPS = {
    "saxpy": Loop("saxpy", "store"),
    "matmul": Loop("matmul", "sum"),
    "reduction": Loop("reduction", "load"),
    "transpose": Loop("transpose", "store", is_whole=True),
    "stencil": Loop("stencil", "store"),
    "softmax, maximum": Loop("softmax", "load", lacks=("exponential", "store")),
    "softmax, sum": Loop("softmax", "load", has=("exponential",), lacks=("store",)),
    "softmax, quotient": Loop("softmax", "load", has=("exponential", "store")),
}


class Case(Struct, frozen=True):
    """The parameters of a comparison: architecture, contraction and index width in bits."""

    arch: str
    contraction: str = "fast"
    bits: int = 64

    @property
    def vendor(self) -> Vendor:
        """Return the patterns for its operations."""
        return NVIDIA if self.is_nvidia else AMD

    @property
    def is_nvidia(self) -> bool:
        """Return whether it is for NVIDIA GPUs."""
        return self.arch.startswith("sm_")


class Tools(Struct, frozen=True):
    """The programs: clang, and for NVIDIA GPUs also ptxas, nvdisasm and optionally nvcc."""

    driver: Sequence[str]
    clang: Path
    ptxas: Path | None = None
    libdevice: Path | None = None
    nvdisasm: Path | None = None
    nvcc: Path | None = None

    def own(self, case: Case, directory: Path) -> Path:
        """Return the output of mlir-offload: a cubin, or assembly for AMD."""
        output = directory / ("own.cubin" if case.is_nvidia else "own.s")
        options = (f"-ffp-contract={case.contraction}", f"--index-bits={case.bits}")
        form = "-c" if case.is_nvidia else "-S"
        arch = f"--offload-arch={case.arch}"
        source = MLIR
        if case.contraction == "on":
            # In C++ all products and sums of an expression may be fused then; in MLIR those with a flag.
            source = directory / MLIR.name
            source.write_text(_FUSIBLE.sub(r"\g<0> fastmath<contract>", MLIR.read_text()))
        run(*self.driver, arch, "--offload-device-only", form, *options, source, "-o", output)
        return output

    def by_clang(self, case: Case, directory: Path) -> Path:
        """Return the output of clang for C++, assembled by the same ptxas."""
        output = directory / "clang.s"
        language = "cuda" if case.is_nvidia else "hip"
        # Without vendor headers: the source declares what the kernels need.
        library = ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", self.libdevice)
        cuda = ("--cuda-feature=+ptx86", *library) if case.is_nvidia else ()
        options = (f"-ffp-contract={case.contraction}", f"-DINDEX={_INDEX_TYPES[case.bits]}")
        arch = f"--offload-arch={case.arch}"
        head = (
            self.clang,
            "-x",
            language,
            "--cuda-device-only",
            arch,
            "-nogpuinc",
            "-nogpulib",
            *cuda,
        )
        run(*head, *options, "-O2", "-S", CPP, "-o", output)
        if not case.is_nvidia:
            return output
        cubin = output.with_suffix(".cubin")
        run(self.ptxas, f"-arch={case.arch}", "-O2", output, "-o", cubin)
        return cubin

    def by_nvcc(self, case: Case, directory: Path) -> Path:
        """Return the cubin of nvcc for C++."""
        output = directory / "nvcc.cubin"
        fused = "false" if case.contraction == "off" else "true"
        index = f"-DINDEX={_INDEX_TYPES[case.bits]}"
        head = (self.nvcc, "-O2", f"-arch={case.arch}", f"-fmad={fused}", "-cubin")
        run(*head, index, CPP, "-o", output)
        return output

    def resources(self, case: Case, path: Path) -> dict[str, DeviceKernel]:
        """Return the registers and parameters of the kernels in a cubin, or in assembly for AMD."""
        image = path
        if not case.is_nvidia:
            image = path.with_suffix(".o")
            target = ("--target=amdgcn-amd-amdhsa", f"-mcpu={case.arch}", "-nogpulib")
            run(self.clang, *target, "-c", path, "-o", image)
        code = read_device_code(memory_view(image.read_bytes()))
        assert code is not None, image
        return {kernel.name: kernel for kernel in code.kernels}

    def read(self, path: Path) -> dict[str, Code]:
        """Return the kernels in a cubin, or in assembly for AMD."""
        if path.suffix == ".cubin":
            return read_sass(run(self.nvdisasm, "-c", path))
        return read_amd(path.read_text(encoding="utf-8"))


def run(*argv: object) -> str:
    command = Command(tuple(map(str, argv)), cwd=Path(tempfile.gettempdir()))
    return run_checked(_RUNNER, command).stdout


def nvdisasm() -> Path | None:
    """Return NVIDIA's disassembler from the toolkit or a wheel; None if it is not installed."""
    beside = next(Path(sys.prefix).glob("lib/python*/site-packages/nvidia/*/bin/nvdisasm"), None)
    found = shutil.which("nvdisasm") or beside
    return Path(found) if found else None
