"""Kernels of equal sources, compiled by mlir-offload, by clang and by nvcc, and what they are counted by."""

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
    """The names of operations that say what a loop does, and what is counted in it."""

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
    """A loop of a kernel: what it has and has not, and what is done once for each element.

    A kernel of which no loop is left, because they are unrolled, `is_whole`.
    """

    kernel: str
    unit: str
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    is_whole: bool = False

    def find(self, kernels: Mapping[str, Code], vendor: Vendor) -> Code:
        """Return its body; of several, such as the rest of an unrolled one, that with the most elements."""
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
        """Return its instructions for one element."""
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
    """What is compared: an architecture, fused or not, with indices of some width."""

    arch: str
    contraction: str = "fast"
    bits: int = 64

    @property
    def vendor(self) -> Vendor:
        """Return the names of its operations."""
        return NVIDIA if self.is_nvidia else AMD

    @property
    def is_nvidia(self) -> bool:
        """Say whether it is for GPUs of NVIDIA's."""
        return self.arch.startswith("sm_")


class Tools(Struct, frozen=True):
    """The programs: clang, and for NVIDIA GPUs also ptxas, nvdisasm and, if it is compared with, nvcc."""

    driver: Sequence[str]
    clang: Path
    ptxas: Path | None = None
    libdevice: Path | None = None
    nvdisasm: Path | None = None
    nvcc: Path | None = None

    def own(self, case: Case, directory: Path) -> Path:
        """Return the code that mlir-offload makes: a cubin, or assembly for AMD."""
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
        """Return the code that clang makes of C++, by the same ptxas."""
        output = directory / "clang.s"
        language = "cuda" if case.is_nvidia else "hip"
        # No header of the vendor's: what the kernels need of them is declared.
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
        """Return the cubin that nvcc makes of C++."""
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
    """Return NVIDIA's disassembler, of the toolkit or of a wheel, if there is one."""
    beside = next(Path(sys.prefix).glob("lib/python*/site-packages/nvidia/*/bin/nvdisasm"), None)
    found = shutil.which("nvdisasm") or beside
    return Path(found) if found else None
