"""Steps of a compilation as values: the fields describe the work, and the command line is derived from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Self, get_type_hints

from msgspec import Struct
from msgspec.structs import fields

from mlir_offload.driver.option.row import Option
from mlir_offload.offload.container.packager import ImageArgument, image_argument
from mlir_offload.toolchain.errors import MlirOffloadError
from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.target import device_kind, kind_of_image
from mlir_offload.translate.kind import cuda as cuda_lowering
from mlir_offload.translate.mlir import symbol as mlir_symbol

# A comma separates parts; two commas are a literal comma.
_PARTS = pattern(r"(?:[^,]|,,)+")
_PATH = "FILE"
_IMAGE = "file=FILE,triple=TRIPLE,arch=ARCH,kind=KIND"
_WRITTEN = frozenset(("output", "kernel_heads", "weak"))


class Keyed(Struct, frozen=True):
    """A value spelled as `key=value,...`, with a key per field. A flag is only its name; a tuple repeats the key."""

    def __str__(self) -> str:
        """Return the spelling."""
        return ",".join(part.replace(",", ",,") for part in self._parts())

    @property
    def values(self) -> tuple[object, ...]:
        """Return the values of the fields."""
        return tuple(getattr(self, key) for key in self.__struct_fields__)

    def _parts(self) -> Iterator[str]:
        names, defaults = self.__struct_fields__, self.__struct_defaults__
        default = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        for key in names:
            value = getattr(self, key)
            if value is True:
                yield key
            elif isinstance(value, tuple):
                yield from (f"{key}={item}" for item in value)
            elif value is False:
                continue
            # 0 is omitted only if it is the default: a size may be 0.
            elif value not in {0, ""} or value != default.get(key):
                yield f"{key}={value}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a spelling. Raises ValueError for a missing, invalid or unknown key."""
        hints = get_type_hints(cls)
        values: dict[str, object] = {}
        for part in _PARTS.findall(text):
            key, _, value = part.replace(",,", ",").partition("=")
            if key not in hints:
                msg = f"unknown {key}"
                raise ValueError(msg)
            values[key] = _read(hints[key], value, values.get(key))
        missing = [one.name for one in fields(cls) if one.required and one.name not in values]
        if missing:
            msg = f"no {' or '.join(missing)}"
            raise ValueError(msg)
        return cls(**values)


def _read(hint: type, text: str, before: object) -> object:
    """Return the value of a field. `before` is the value of earlier repetitions of the key."""
    if hint is bool:
        return True
    if hint == tuple[str, ...]:
        return (*(before if isinstance(before, tuple) else ()), text)
    found: object = hint(text)
    return found


class PackagedImage(Keyed, frozen=True):
    """A device image to package, with the keys of clang-offload-packager."""

    file: Path
    triple: str
    arch: str
    kind: str
    feature: str = ""

    @property
    def argument(self) -> ImageArgument:
        """Return the argument for the packager; containers omit the architecture of CPU images."""
        kind = kind_of_image(self.kind, self.triple)
        arch = self.arch if kind is None else device_kind(kind).container_arch(self.arch)
        words = [f"file={self.file}", f"triple={self.triple}", f"arch={arch}", f"kind={self.kind}"]
        return image_argument((*words, f"feature={self.feature}") if self.feature else words)


def _flag(name: str, text: str) -> Option:
    return Option((name,), text)


def _value(name: str, text: str, value: str = _PATH) -> Option:
    return Option((f"{name}=",), text, value=value)


STEP_OPTIONS: Mapping[str, Option] = {
    "source": Option((), "the input", value=_PATH),
    "sources": Option((), "the inputs", value=_PATH),
    "assembly": Option((), "the PTX to check", value=_PATH),
    "output": Option(("-o",), "the output", value=_PATH),
    "flags": Option((), "options of the compiler", value="OPTION"),
    "toolchain_id": _value("--toolchain-id", "the required id of the tools", "ID"),
    "needs": _value("--needs", "a requirement of the device module for its lowering", "WORD"),
    "library_id": _value("--library-id", "the required id of the device libraries", "ID"),
    "uses_async": _flag("--async", "the host module has asynchronous operations"),
    "depfiles": _value("--depfile", "the dependency file to write"),
    "program": _value("--program", "the original source file"),
    "device": _value("--device", "the device modules of a program"),
    "image_files": _value("--images", "the images of all device modules for an architecture"),
    "mark_barriers": _flag("--mark-barriers", "record the locations of barriers in functions"),
    "members": _value("--member", "a further member of the library"),
    "arch": _value("--arch", "the architecture", "ARCH"),
    "binary": _value("--binary", "the offload binary to embed"),
    "code_object": _value("--code-object", "the code object version: 4, 5, 6", "N"),
    "collapse": _flag("--collapse", "prepare kernels for the collapse over subgroups"),
    "cubins": _value("--cubin", "a linked cubin", "arch=sm_NN,file=FILE"),
    "cuda_version": _value("--cuda-version", "the release of CUDA", "VERSION"),
    "declared": _value("--declared", "a kernel that another file defines", "NAME"),
    "describe_memory": _flag("--describe-memory", "describe memrefs for launches on host memory"),
    "devices": _value("--device", "LLVM IR of a device module"),
    "device_libraries": _value("--device-lib", "bitcode that kernels may call"),
    "fast_math": _flag("--fast-math", "allow inexact floating point"),
    "fatbinary": _value("--fatbinary", "fatbinary of CUDA"),
    "fibers": _flag("--fibers", "run each thread on a fiber instead of splitting kernels"),
    "linked_images": Option(
        # Builds and archives of earlier releases use the second name.
        ("--linked-image=", "--finished="),
        "linked device code, as the runtime of the kind loads it, and its kernels",
        value="kind=KIND,file=FILE,kernel=NAME,...",
    ),
    "for_clang": _value("--for-clang", "the linking LLVM", "RELEASE|any"),
    "forms": _value("--form", "a form of the device modules: nvvm32, rocdl64, ...", "FORM"),
    "fp_contract": _value("--fp-contract", "which products and sums are fused", "WHERE"),
    "ftz": _flag("--ftz", "flush subnormal numbers to zero"),
    "images": _value("--image", "a device image", _IMAGE),
    "index_bits": _value("--index-bits", "the width of index in device code", "N"),
    "interface": _value("--interface", "the functions for callers in C and Python"),
    "ir": _value("--ir", "the LLVM IR that it was compiled from"),
    "is_program": _flag("--program", "main is the entry point of a program"),
    "kernel_heads": _value("--kernels", "the output for the kernel declarations, as LLVM IR"),
    "kernels": _value("--kernel", "a kernel of the module", "NAME"),
    "kinds": _value("--kind", "an offload kind", "KIND"),
    "libraries": _value("--library", "a device library that it was compiled with"),
    "linker": _value("--linker", "the linker that it calls"),
    "llvm": _value("--llvm", "the release of LLVM", "N"),
    "location": _value("--location", "the file that errors name"),
    "made_from": _value("--from", "the file that the input was made from"),
    "nvlink": _value("--nvlink", "nvlink of CUDA"),
    "others": _value("--other", "another file that was read"),
    "parameters": _value("--parameters", "the parameters of memrefs: whole, parts, needed", "FORM"),
    "parts": _value("--part", "the output of a module, in the order of the modules"),
    "phony": _flag("--phony", "write a phony rule for each dependency, as -MP"),
    "programs": _value("--from", "the original source of each input"),
    "prefix_maps": _value("--prefix-map", "NEW replaces OLD in locations", "OLD=NEW"),
    "ptx": _value("--ptx", "PTX to add to fat binaries", "arch=sm_NN,file=FILE"),
    "ptxas": _value("--ptxas", "ptxas of CUDA"),
    "ptxas_arguments": _value("--ptxas-arg", "an argument for each call of ptxas", "ARGUMENT"),
    "rdc": _flag("--rdc", "keep functions that other files may call"),
    "reader": _value("--reader", "the release of LLVM that reads the output", "N"),
    "replaced": _value("--replace", "an object, and one for it", "file=FILE,by=FILE"),
    "rules": _value("--from-clang", "a dependency file of clang to merge"),
    "sanitizer": _value("--sanitize", "the sanitizer of the code", "NAME"),
    "targets": _value("--arch", "a target, whose limits are checked", "ARCH"),
    "made": _value("--target", "a target as in the rule", "TARGET"),
    "time": _value("--time", "the time to write into outputs: seconds since 1970", "SECONDS"),
    "transformed": _flag("--transformed", "a pass has run the transform scripts"),
    "triple": _value("--triple", "the target of the module", "TRIPLE"),
    "unit_id": _value("--unit-id", "the name of the program", "NAME"),
    "value_names": _value("--variables", "the MLIR module with the value names for gdb"),
    "variables": _value(
        "--variable",
        "a device global with its shadow; also type=, extern, constant, normalized, data=, auxiliary=",
        "kind=KIND,name=NAME,address=SHADOW,size=BYTES",
    ),
    "weak": _value("--weak", "the output for the names of public symbols"),
}


class Step(Struct, frozen=True, kw_only=True):
    """A step that runs in process or as a command, so that the output of `-###` can be executed.

    It reads and writes files, and does not depend on the rest of the build.
    """

    def run(self) -> None:
        """Run the step. Raises MlirOffloadError, with the step's location if the error has none."""
        try:
            self._do()
        except MlirOffloadError as error:
            file = getattr(self, "location", "")
            error.location = error.location or mlir_symbol.place_of_symbol(error.message, file)
            raise

    def _do(self) -> None:
        raise NotImplementedError

    @property
    def name(self) -> str:
        """Return the name of the step on the command line."""
        return str(self.__struct_config__.tag)

    @property
    def writes(self) -> tuple[str, ...]:
        """Return the files and directories that it writes."""
        return tuple(self._files(_WRITTEN))

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the other files in its fields."""
        return tuple(self._files(frozenset(self.__struct_fields__) - _WRITTEN))

    def _files(self, names: Collection[str]) -> Iterator[str]:
        values = (getattr(self, name) for name in self.__struct_fields__ if name in names)
        for item in (item for value in values for item in _items(value)):
            parts = item.values if isinstance(item, Keyed) else (item,)
            yield from (str(part) for part in parts if isinstance(part, PurePath))

    @property
    def argv(self) -> tuple[str, ...]:
        """Return the words that `parse_step` parses to this step."""
        operands = [
            str(item)
            for field in self.__struct_fields__
            if not STEP_OPTIONS[field].names
            for item in _items(getattr(self, field))
        ]
        # The output is last by convention.
        options = sorted(self.__struct_fields__, key="output".__eq__)
        words = spelled_options(self, options)
        if any(operand.startswith("-") for operand in operands):
            return (self.name, *words, "--", *operands)
        return (self.name, *operands, *words)


def spelled_options(step: Step, names: Iterable[str]) -> tuple[str, ...]:
    """Return the command-line words of the fields with these names that are options."""
    return tuple(
        word
        for field in names
        for name in STEP_OPTIONS[field].names[:1]
        for item in _items(getattr(step, field))
        for word in _spelled(name, item)
    )


def _items(value: object) -> tuple[object, ...]:
    """Return the items to spell; none for an unset flag or an empty value."""
    if isinstance(value, tuple):
        return value
    return () if value is None or value is False or value == "" else (value,)


def _spelled(name: str, item: object) -> tuple[str, ...]:
    if item is True:
        return (name,)
    return (f"{name}{item}",) if name.endswith("=") else (name, str(item))


class TextStep(Step, frozen=True, kw_only=True):
    """A step that rewrites a text."""

    source: Path
    output: Path

    def _do(self) -> None:
        write_text(self.output, self._rewritten(read_text(self.source)))

    def _rewritten(self, text: str) -> str:
        raise NotImplementedError


class DeviceIrStep(TextStep, frozen=True, kw_only=True):
    """A step that prepares the LLVM IR of a device module for a back end."""

    kernels: tuple[str, ...] = ()
    rdc: bool = False
    llvm: int


def read_text(path: Path) -> str:
    """Return the text of a file; bytes that are not UTF-8 are preserved."""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def write_text(path: Path, text: str) -> None:
    """Write text from `read_text`."""
    path.write_text(text, encoding="utf-8", errors="surrogateescape")


class PtxTime(TextStep, frozen=True, kw_only=True, tag="ptx-time"):
    """Set time and size of the source files in PTX, so that ptxas does not read them from the file system."""

    time: int

    def _rewritten(self, text: str) -> str:
        return cuda_lowering.with_file_times(text, self.time)


class NvptxIr(DeviceIrStep, frozen=True, kw_only=True, tag="nvptx-ir"):
    """Prepare the LLVM IR of a device module for the NVPTX back end."""

    ftz: bool = False

    def _rewritten(self, text: str) -> str:
        return cuda_lowering.nvptx_device_ir(
            text,
            kernels=self.kernels,
            llvm_major=self.llvm,
            keeps_functions=self.rdc,
            flushes_subnormals=self.ftz,
        )
