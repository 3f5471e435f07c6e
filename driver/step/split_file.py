"""Steps on a complete program: split it, join host and device modules for one run; the split on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, json
from msgspec.structs import asdict, replace

from mlir_offload.driver.message.report import show_warning
from mlir_offload.driver.step.step import Step, TextStep, read_text, write_text
from mlir_offload.offload.container import precompiled_image
from mlir_offload.offload.image import ImageForm
from mlir_offload.offload.ir_syntax import render_kernel_heads
from mlir_offload.toolchain.errors import SourceError, ToolFailedError
from mlir_offload.toolchain.target import Kind, Target
from mlir_offload.translate import fast_math as legalize_fast_math
from mlir_offload.translate import prefix_map
from mlir_offload.translate.gpu_module import GpuModule, Kernel
from mlir_offload.translate.host import interface
from mlir_offload.translate.kernel import WIDE, ParameterForm
from mlir_offload.translate.kind_lowering import NVVM_FORM, Contraction, DeviceForm, TargetAttribute
from mlir_offload.translate.legalize.split import SplitOptions, SplitProgram, split_program
from mlir_offload.translate.lower import (
    bordered,
    ir_modules,
    join_program,
    separate_program,
    unwrap_device,
)

if TYPE_CHECKING:
    from mlir_offload.offload.container.precompiled_image import PrecompiledImage
    from mlir_offload.translate.gpu_binary import GpuBinary
    from mlir_offload.translate.mlir.module import Module

INTERFACE_FILE = "interface.json"
_INDEX = "split.json"
_ENDINGS = {ImageForm.BITCODE: "bc", ImageForm.PTX: "s", ImageForm.AMDGPU_ASSEMBLY: "s"}


class ObjectFile(Struct, frozen=True):
    """An object of a `gpu.binary`, in a separate file."""

    path: Path
    image: PrecompiledImage


class ModuleFile(Struct, frozen=True):
    """A device module and the files with its text for mlir-opt, in one form and in others.

    A `gpu.binary` has `objects` instead of text; `path` then contains the declarations of its kernels as
    LLVM IR. `is_only`: the program has no other device module.
    """

    path: Path
    module: GpuModule
    others: tuple[tuple[str, Path], ...] = ()
    objects: tuple[ObjectFile, ...] = ()
    is_only: bool = False

    @property
    def title(self) -> str:
        """Return the operation and symbol for messages."""
        return f"gpu.{'binary' if self.objects else 'module'} @{self.module.name}"

    def text_for(self, form: DeviceForm) -> Path:
        """Return the file with the text in a form."""
        return dict(self.others).get(form.name, self.path)


class SplitFiles(Struct, frozen=True):
    """The host module and the device modules of one program, and the kernels that it only declares.

    `interface` describes the functions for callers in C and Python, if there are any.
    """

    host: Path
    uses_async: bool
    modules: tuple[ModuleFile, ...]
    declared: tuple[str, ...] = ()
    interface: Path | None = None


def write_split(program: SplitProgram, directory: Path) -> None:
    """Write the host text, one file per device module, and an index."""
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / "host.mlir", program.host_text)
    rows = [
        _write_module(module, number, directory) for number, module in enumerate(program.modules)
    ]
    binaries = [
        _write_binary(binary, number, directory) for number, binary in enumerate(program.binaries)
    ]
    index = {
        "binaries": binaries,
        "uses_async": program.uses_async,
        "modules": rows,
        "declared": list(program.declared),
        "has_interface": bool(program.interface),
    }
    if program.interface:
        _write(directory / INTERFACE_FILE, program.interface)
    # `enc_hook=str`, because Kind is a subclass of str.
    (directory / _INDEX).write_bytes(json.format(json.encode(index, enc_hook=str), indent=1))


def load_split_files(directory: Path) -> SplitFiles:
    """Read the output of `write_split`."""
    index = json.decode((directory / _INDEX).read_bytes())
    texts = tuple(_read_module(row, directory) for row in index["modules"])
    modules = (*texts, *(_read_binary(row, directory) for row in index["binaries"]))
    if len(modules) == 1:
        modules = (replace(modules[0], is_only=True),)
    return SplitFiles(
        directory / "host.mlir",
        bool(index["uses_async"]),
        modules,
        tuple(index["declared"]),
        directory / INTERFACE_FILE if index["has_interface"] else None,
    )


def _write_module(module: GpuModule, number: int, directory: Path) -> dict[str, Any]:
    # The file has a number, because the name of a module may contain any character.
    file = f"device{number}.mlir"
    _write(directory / file, module.text)
    others = {name: f"device{number}.{name}.mlir" for name, _ in module.texts}
    for name, text in module.texts:
        _write(directory / others[name], text)
    return {
        "file": file,
        "others": others,
        "name": module.name,
        "kernels": [{"name": kernel.name, "symbol": kernel.symbol} for kernel in module.kernels],
        "needs": sorted(module.needs),
        "targets": [asdict(target) for target in module.targets],
        "leaves": sorted(module.leaves),
    }


def refuse_objects(split: SplitFiles, source: Path, taker: str) -> None:
    """Raise SourceError for a `gpu.binary`, which `taker` does not support."""
    given = next((module for module in split.modules if module.objects), None)
    if given is not None:
        msg = f"{given.title} contains precompiled device code, which {taker} does not support"
        hint = "give the gpu.module that it was made from, or compile the file with mlir-offload -c"
        raise SourceError(msg, hint=hint, location=str(source))


def _write_binary(binary: GpuBinary, number: int, directory: Path) -> dict[str, Any]:
    rows = []
    for index, given in enumerate(binary.objects):
        # The packager detects the format by the extension.
        file = f"binary{number}.object{index}.{_ENDINGS.get(given.image.form, 'o')}"
        (directory / file).write_bytes(given.content)
        rows.append({"file": file, **asdict(given.image)})
    heads = f"binary{number}.kernels.ll"
    signatures = {kernel.symbol: binary.signature(kernel.name) for kernel in binary.kernels}
    _write(directory / heads, render_kernel_heads(signatures))
    names = [kernel.name for kernel in binary.kernels]
    return {"heads": heads, "name": binary.name, "kernels": names, "objects": rows}


def _read_binary(row: dict[str, Any], directory: Path) -> ModuleFile:

    objects = tuple(
        ObjectFile(
            directory / one["file"],
            precompiled_image.PrecompiledImage(
                Kind(one["kind"]),
                ImageForm(one["form"]),
                tuple(one["archs"]),
                one["ptx"],
                one["producer"],
            ),
        )
        for one in row["objects"]
    )
    kernels = tuple(Kernel(name, name) for name in row["kernels"])
    module = GpuModule(row["name"], kernels, "", frozenset())
    return ModuleFile(directory / row["heads"], module, objects=objects)


def _read_module(row: dict[str, Any], directory: Path) -> ModuleFile:
    path = directory / row["file"]
    kernels = tuple(Kernel(kernel["name"], kernel["symbol"]) for kernel in row["kernels"])
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    others = tuple((name, directory / file) for name, file in row["others"].items())
    targets = tuple(map(_read_target, row["targets"]))
    module = GpuModule(
        row["name"],
        kernels,
        text,
        frozenset(row["needs"]),
        targets=targets,
        leaves=frozenset(map(Kind, row["leaves"])),
    )
    return ModuleFile(path, module, others)


def _read_target(row: dict[str, Any]) -> TargetAttribute:
    lists = {"link": tuple(row["link"]), "flags": tuple(row["flags"])}
    return TargetAttribute(**{**row, "kind": Kind(row["kind"]), **lists})


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogateescape")


class Split(Step, frozen=True, kw_only=True, tag="split"):
    """Split a normalised program into its host module and its device modules."""

    source: Path
    made_from: Path
    unit_id: str
    llvm: int
    prefix_maps: tuple[prefix_map.PrefixMap, ...] = ()
    forms: tuple[DeviceForm, ...] = (NVVM_FORM,)
    targets: tuple[Target, ...] = ()
    fast_math: bool = False
    parameters: ParameterForm | None = None
    index_bits: int | None = None
    describe_memory: bool = False
    transformed: bool = False
    rdc: bool = False
    is_program: bool = False
    output: Path

    def _do(self) -> None:
        text = read_text(self.source)
        text = prefix_map.map_locations(text, self.prefix_maps) if self.prefix_maps else text
        split = split_program(
            legalize_fast_math.with_fast_math(text) if self.fast_math else text,
            SplitOptions(
                source_text=_bytes_as_text(self.made_from),
                unit_id=self.unit_id,
                llvm_major=self.llvm,
                forms=self.forms,
                keeps_functions=self.rdc,
                describes_memory=self.describe_memory,
                is_program=self.is_program,
                is_transformed=self.transformed,
                targets=self.targets,
                parameters=self.parameters or ParameterForm.WHOLE,
                index_bits=self.index_bits or WIDE,
            ),
        )
        for warning in split.warnings:
            show_warning(warning.message, warning.location)
        write_split(split, self.output)


class Header(Step, frozen=True, kw_only=True, tag="header"):
    """Write the C header of the functions with llvm.emit_c_interface of normalised programs."""

    sources: tuple[Path, ...]
    programs: tuple[Path, ...]
    output: Path

    def _do(self) -> None:

        texts = [
            (read_text(source), _bytes_as_text(program))
            for source, program in zip(self.sources, self.programs, strict=True)
        ]
        location = str(self.programs[0])
        write_text(
            self.output, interface.render_header_of(texts, self.output.name, location=location)
        )


def _bytes_as_text(path: Path) -> str:
    """Return a program as Latin-1 text, because bytecode is not UTF-8 and each byte must be preserved."""
    return path.read_bytes().decode("latin-1")


class Join(TextStep, frozen=True, kw_only=True, tag="join"):
    """Join the host text and device modules of a program for one run of mlir-opt."""

    devices: tuple[Path, ...]

    def _rewritten(self, text: str) -> str:
        joined = join_program(text, [read_text(device) for device in self.devices])
        if joined is None:
            msg = f"{self.source} and its device modules have aliases or resources that cannot be joined"
            raise ToolFailedError(msg, hint="lower them one by one")
        return joined


class Unwrapping(TextStep, frozen=True, kw_only=True):
    """A step that extracts lowered device modules."""

    triple: str
    rdc: bool = False
    fp_contract: Contraction | None = None
    mark_barriers: bool = False

    def unwrapped(self, module: Module) -> str:
        """Return a lowered device module as a top-level module."""
        return unwrap_device(
            module,
            self.triple,
            keeps_functions=self.rdc,
            contraction=self.fp_contract or Contraction.ON,
            marks_barriers=self.mark_barriers,
        )


class Separate(Unwrapping, frozen=True, kw_only=True, tag="separate"):
    """Separate the modules of a joined program for mlir-translate."""

    def _rewritten(self, text: str) -> str:
        host, devices = separate_program(text)
        texts = map(self.unwrapped, devices)
        return bordered([host.render_part(host.operations), *texts])


class Part(Step, frozen=True, kw_only=True, tag="part"):
    """Write each module in mlir-translate's output of a joined program to a file."""

    source: Path
    parts: tuple[Path, ...]

    def _do(self) -> None:
        texts = ir_modules(read_text(self.source))
        if len(texts) != len(self.parts):
            msg = f"mlir-translate wrote {len(texts)} modules for {len(self.parts)}"
            hint = "report this with the output of 'mlir-translate --version'"
            raise ToolFailedError(msg, hint=hint)
        for text, path in zip(texts, self.parts, strict=True):
            write_text(path, text)
