"""Options of nvcc and hipcc: understood, with a note that tells how they are spelled here."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.option.compile_options import CompileOptions, Mode
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.pattern import pattern

_ARCH = pattern(r"(?:sm|compute)_(\d+[af]?)")
_LIST_MARKS = str.maketrans("", "", "[]\"'")
_EVERY = frozenset(("all", "all-major"))
# Spelled as the joined value of an option of clang: nobody means a library `ib` by `-lib`.
_AMBIGUOUS = frozenset(
    (
        *("-odir", "-optf", "-objtemp", "-opt-info", "-optix-ir", "-Ofc"),
        *("-arch-ls", "-code-ls", "-lib", "-link", "-lto", "-ltoir", "-ldir", "-jtd", "-jobserver"),
        *("-Wno-deprecated-gpu-targets", "-Wdefault-stream-launch", "-Wmissing-launch-bounds"),
        "-Wext-lambda-captures-this",
    )
)
_READ = Callable[[CompileOptions, str], CompileOptions]


def translated(option: str, ours: str) -> _READ:
    """Return what takes an option of nvcc for options of ours, which `{}` in them gives the value."""

    def apply(options: CompileOptions, value: str) -> CompileOptions:
        return _read(options, _as_given(option, value), ours.format(value))

    return apply


def _as_given(option: str, value: str) -> str:
    """Return an option of nvcc with its value, which is the next word unless a `=` joins it."""
    return f"{option}{value}" if option.endswith("=") or not value else f"{option} {value}"


def _read(options: CompileOptions, given: str, ours: str) -> CompileOptions:
    """Return the options with what others mean, which the user is told."""
    show_note(f"{given} is taken for {ours}")
    return replace(options, taken_for=tuple(ours.split(" ")))


def architecture(option: str) -> _READ:
    """Return what reads the architectures of nvcc's `-arch` and `-code`."""

    def apply(options: CompileOptions, value: str) -> CompileOptions:
        given = _as_given(option, value)
        words = value.translate(_LIST_MARKS).split(",")
        names = dict.fromkeys(_arch_of(given, word) for word in words)
        return _read(options, given, f"--offload-arch={','.join(names)}")

    return apply


def _arch_of(given: str, word: str) -> str:
    found = _ARCH.fullmatch(word)
    if found is not None:
        return f"sm_{found[1]}"
    if word == "native":
        return word
    if word in _EVERY:
        msg = f"{given}: name each architecture"
        raise UsageError(msg, hint="write --offload-arch=sm_80,sm_90")
    msg = f"{given}: not an architecture of NVIDIA's"
    raise UsageError(msg, hint="write --offload-arch=sm_90, several with commas")


def generated_code(option: str) -> _READ:
    """Return what reads nvcc's `-gencode arch=compute_90,code=sm_90`."""

    def apply(options: CompileOptions, value: str) -> CompileOptions:
        # A list is in quotes or brackets, which reach us if the shell leaves them.
        parts = value.translate(_LIST_MARKS).split(",")
        codes = [part.rpartition("=")[2] for part in parts if not part.startswith("arch=")]
        codes = codes or [parts[0].rpartition("=")[2]]
        names = [_arch_of(f"{option} {value}", code) for code in codes]
        archs = ",".join(dict.fromkeys(names))
        words = [f"--offload-arch={archs}"]
        words += [
            f"--cuda-include-ptx={name}"
            for name, code in zip(names, codes, strict=True)
            if code.startswith("compute_") and options.makes_final_objects
        ]
        return _read(options, f"{option} {value}", " ".join(words))

    return apply


def relocatable(option: str) -> _READ:
    """Return what reads nvcc's `-rdc=true`."""

    def apply(options: CompileOptions, value: str) -> CompileOptions:
        ours = "-fgpu-rdc" if value == "true" else "-fno-gpu-rdc"
        return _read(options, _as_given(option, value), ours)

    return apply


def host_arguments(options: CompileOptions, value: str) -> CompileOptions:
    """Take nvcc's `-Xcompiler a,b` for options of clang."""
    return _read(options, f"-Xcompiler {value}", value.replace(",", " "))


def no_effect(option: str, reason: str) -> _READ:
    """Return what ignores an option, and says why."""

    def apply(options: CompileOptions, value: str) -> CompileOptions:
        show_note(f"{option}{value} has no effect: {reason}")
        return options

    return apply


def device_form(option: str, ours: str, ending: str) -> _READ:
    """Return what reads `-ptx`, `-cubin` and `-fatbin`; one file of device code has nvcc's ending."""

    def apply(options: CompileOptions, value: str) -> CompileOptions:
        del value
        if ours:
            show_note(f"{option} is taken for --offload-device-only {ours}")
        return replace(
            options,
            last_step=Mode.DEVICE,
            is_host_only=False,
            assembly=ours == "-S",
            stop_after_compile=True,
            device_ending=ending,
        )

    return apply


def is_ambiguous(argument: str) -> bool:
    """Return whether an option of nvcc would be taken for an option of clang and its value."""
    return argument.partition("=")[0] in _AMBIGUOUS
