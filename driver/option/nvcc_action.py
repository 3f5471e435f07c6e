"""The effect of options of nvcc and hipcc, with a note that names the option of mlir-offload."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.option.compile_options import CompileOptions
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.pattern import pattern

Apply = Callable[[CompileOptions, str], CompileOptions]
_ARCH = pattern(r"(?:sm|compute)_(\d+[af]?)")
_LIST_MARKS = str.maketrans("", "", "[]\"'")
_EVERY = frozenset(("all", "all-major"))


def translated(option: str, ours: str) -> Apply:
    """Return a reader that replaces an option of nvcc by `ours`, in which `{}` is the value."""

    def apply(options: CompileOptions, value: str) -> CompileOptions:
        return _read(options, _as_given(option, value), ours.format(value))

    return apply


def _as_given(option: str, value: str) -> str:
    """Return an option of nvcc with its value, as the next word unless it is joined by `=`."""
    return f"{option}{value}" if option.endswith("=") or not value else f"{option} {value}"


def _read(options: CompileOptions, given: str, ours: str) -> CompileOptions:
    """Replace an option of nvcc by options of mlir-offload, and print a note that names them."""
    show_note(f"{given} is taken for {ours}")
    return replace(options, taken_for=tuple(ours.split(" ")))


def architecture(option: str) -> Apply:
    """Return a reader for the architectures of nvcc's `-arch` and `-code`."""

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


def generated_code(option: str) -> Apply:
    """Return a reader for nvcc's `-gencode arch=compute_90,code=sm_90`."""

    def apply(options: CompileOptions, value: str) -> CompileOptions:
        # nvcc's lists are in quotes or brackets, which remain if the shell did not remove them.
        parts = value.translate(_LIST_MARKS).split(",")
        codes = [part.rpartition("=")[2] for part in parts if not part.startswith("arch=")]
        codes = codes or [parts[0].rpartition("=")[2]]
        names = [_arch_of(f"{option} {value}", code) for code in codes]
        archs = ",".join(dict.fromkeys(names))
        words = [f"--offload-arch={archs}"]
        words += [
            f"--cuda-include-ptx={name}"
            for name, code in zip(names, codes, strict=True)
            if code.startswith("compute_") and options.makes_non_rdc_objects
        ]
        return _read(options, f"{option} {value}", " ".join(words))

    return apply


def relocatable(option: str) -> Apply:
    """Return a reader for nvcc's `-rdc=true`."""

    def apply(options: CompileOptions, value: str) -> CompileOptions:
        ours = "-fgpu-rdc" if value == "true" else "-fno-gpu-rdc"
        return _read(options, _as_given(option, value), ours)

    return apply


def host_arguments() -> Apply:
    """Return a reader that replaces nvcc's `-Xcompiler a,b` by options of clang."""
    return lambda options, value: _read(options, f"-Xcompiler {value}", value.replace(",", " "))


def no_effect(option: str, reason: str) -> Apply:
    """Return a reader that ignores an option and prints the reason."""

    def apply(options: CompileOptions, value: str) -> CompileOptions:
        show_note(f"{option}{value} has no effect: {reason}")
        return options

    return apply


def device_form(option: str, ours: str, ending: str) -> Apply:
    """Return a reader for `-ptx`, `-cubin` and `-fatbin`. If there is one output, it has nvcc's extension."""

    def apply(options: CompileOptions, value: str) -> CompileOptions:
        del value
        if ours:
            show_note(f"{option} is taken for --offload-device-only {ours}")
        return replace(
            options,
            is_device_only=True,
            is_host_only=False,
            assembly=ours == "-S",
            stop_after_compile=True,
            device_ending=ending,
        )

    return apply
