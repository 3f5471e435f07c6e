"""Options that say how device code is generated, and nothing of the host's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.target import Target, all_kinds, parse_offload_arch, uses_cuda
from mlir_offload.translate.kind_lowering import Contraction

_HOST_BITS, _NARROW_BITS = 64, 32
ALL_PTX, NO_PTX = "all", "none"
_CODE_OBJECT = "-mcode-object-version="


class DeviceLibrary(Struct, frozen=True):
    """A bitcode library of the user, and the kind or architecture that it is for (empty: each)."""

    selector: str
    path: Path

    def is_compatible(self, target: Target) -> bool:
        """Say whether kernels for the target may call it."""
        return self.selector in {"", str(target.kind), str(target)}


class DeviceFlags(Struct, frozen=True):
    """What the command line says of device code.

    `ptxas` and `device_opt` are arguments for ptxas and for the clang that compiles device code;
    `ptx` are the architectures whose PTX is kept, None where the user did not say.
    """

    fast_math: bool = False
    contraction: Contraction = Contraction.ON
    index_bits: int = _HOST_BITS
    ftz: bool = False
    max_registers: int = 0
    ptxas: tuple[str, ...] = ()
    device_opt: tuple[str, ...] = ()
    arch_opt: tuple[tuple[str, str], ...] = ()
    libraries: tuple[DeviceLibrary, ...] = ()
    ptx: tuple[str, ...] | None = None

    @property
    def fp_contract(self) -> Contraction | None:
        """Return where products and sums are fused, unless it is where the program allows it."""
        return None if self.contraction is Contraction.ON else self.contraction

    @property
    def ptxas_arguments(self) -> tuple[str, ...]:
        """Return the arguments for ptxas, in the order in which it heeds them."""
        limit = (f"--maxrregcount={self.max_registers}",) if self.max_registers else ()
        return (*limit, *self.ptxas)

    def device_opt_for(self, arch: str) -> tuple[str, ...]:
        """Return the arguments for the clang that compiles code for an architecture."""
        own = (argument for name, argument in self.arch_opt if name == arch)
        return (*self.device_opt, *own)

    @property
    def code_object(self) -> int:
        """Return the version of AMD code objects that clang is asked for, 0 for the usual one."""
        asked = [word for word in self.device_opt if word.startswith(_CODE_OBJECT)]
        version = asked[-1].removeprefix(_CODE_OBJECT) if asked else "0"
        if not (version.isascii() and version.isdecimal()):
            msg = f"-Xdevice-opt {asked[-1]}: not the number of a version"
            raise UsageError(msg, hint=f"write {_CODE_OBJECT}5")
        return int(version)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the command line that says the same."""
        return tuple(self._arguments())

    def _arguments(self) -> Iterator[str]:
        if self.fast_math:
            yield "-ffast-math"
        if self.contraction is not Contraction.ON:
            yield f"-ffp-contract={self.contraction}"
        if self.index_bits != _HOST_BITS:
            yield f"--index-bits={self.index_bits}"
        if self.ftz:
            yield "--ftz"
        if self.max_registers:
            yield f"--maxrregcount={self.max_registers}"
        for argument in self.ptxas:
            yield from ("-Xptxas", argument)
        for argument in self.device_opt:
            yield from ("-Xdevice-opt", argument)
        for arch, argument in self.arch_opt:
            yield from (f"-Xarch_{arch}", argument)
        for library in self.libraries:
            key = f"{library.selector}=" if library.selector else ""
            yield f"--device-lib={key}{library.path}"
        yield from (f"--cuda-include-ptx={arch}" for arch in self.ptx or ())

    def keeps_ptx(self, target: Target, targets: tuple[Target, ...]) -> bool:
        """Say whether the PTX of one of the targets is kept for GPUs to come.

        By default it is that of the newest one that newer GPUs run: code for sm_90a is none.
        """
        if not uses_cuda([target.kind]):
            return False
        if self.ptx is not None:
            return ALL_PTX in self.ptx or target.arch in self.ptx
        plain = [item for item in targets if uses_cuda([item.kind]) and item.arch[-1].isdigit()]
        return bool(plain) and target == max(plain, key=lambda item: int(item.arch[3:]))


def with_library(flags: DeviceFlags, value: str) -> DeviceFlags:
    """Return the flags with `--device-lib=[KIND|ARCH=]FILE`. Raises UsageError for another form."""
    head, equals, tail = value.partition("=")
    selector, name = (head, tail) if equals and _is_selector(head) else ("", value)
    if not name:
        msg = f"--device-lib={value} expects a file name"
        raise UsageError(msg, hint="write --device-lib=FILE, or sm_90=FILE, cuda=FILE, host=FILE")
    library = DeviceLibrary(selector, Path(name))
    return replace(flags, libraries=(*flags.libraries, library))


def _is_selector(word: str) -> bool:
    if word in all_kinds():
        return True
    try:
        parse_offload_arch(word)
    except UsageError:
        return word.startswith("gfx")
    return True


def with_max_registers(flags: DeviceFlags, value: str) -> DeviceFlags:
    """Return the flags with `--maxrregcount`. Raises UsageError where the value is not a number."""
    if not (value.isascii() and value.isdecimal() and int(value) > 0):
        msg = f"--maxrregcount={value}: not a number of registers"
        raise UsageError(msg, hint="use a number from 1, such as 64")
    return replace(flags, max_registers=int(value))


def with_ptx(flags: DeviceFlags, value: str) -> DeviceFlags:
    """Return the flags with `--cuda-include-ptx=`. Raises UsageError for what is not an architecture."""
    if value not in {ALL_PTX, NO_PTX} and not value.startswith("sm_"):
        msg = f"--cuda-include-ptx={value}: not an architecture"
        raise UsageError(msg, hint=f"use sm_NN, '{ALL_PTX}' or '{NO_PTX}'")
    kept = () if value == NO_PTX else (*(flags.ptx or ()), value)
    return replace(flags, ptx=kept)


def with_ftz(flags: DeviceFlags, value: str) -> DeviceFlags:
    """Return the flags with `--ftz=true` or `--ftz=false`, as nvcc has it. Raises UsageError."""
    if value not in {"true", "false"}:
        msg = f"--ftz={value}: not true or false"
        raise UsageError(msg, hint="write --ftz=true: subnormal numbers of 32 bits become zero")
    return replace(flags, ftz=value == "true")


def with_contraction(flags: DeviceFlags, value: str) -> DeviceFlags:
    """Return the flags with `-ffp-contract=`, as clang has it. Raises UsageError for another value."""
    word = value.removesuffix("-honor-pragmas")
    if word not in set(Contraction):
        msg = f"-ffp-contract={value}: not off, on or fast"
        raise UsageError(msg, hint="'on' fuses where operations have the flag 'contract'")
    return replace(flags, contraction=Contraction(word))


def with_index_bits(flags: DeviceFlags, value: str) -> DeviceFlags:
    """Return the flags with `--index-bits=`. Raises UsageError for another width."""
    if value not in {str(_HOST_BITS), str(_NARROW_BITS)}:
        msg = f"--index-bits={value}: not 32 or 64"
        raise UsageError(msg, hint="use 32 if no memref has 2147483648 elements or more")
    return replace(flags, index_bits=int(value))
