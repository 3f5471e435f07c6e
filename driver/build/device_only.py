"""Compile device code only, to one file per device: `--offload-device-only`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.build.source import split_source
from mlir_offload.driver.compile import gpu_cpp
from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.device import compile_device
from mlir_offload.driver.compile.kept_ptx import assembly_file
from mlir_offload.driver.compile.kind_build import ImageFile, build_of
from mlir_offload.driver.compile.normalize import normalized
from mlir_offload.driver.option.checks import OutputFile, check_files
from mlir_offload.driver.option.command_line import GPU_CPP, MLIR_SUFFIXES, STANDARD_OUTPUT
from mlir_offload.driver.system.parallel import parallel_map
from mlir_offload.driver.system.workspace import check_output
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.target import Kind, Target

_ASSEMBLY, _TEXT = ".s", ".ll"
_FAT_BINARY_OPTION = "-fatbin"
_PTX = ".ptx"
# The options of nvcc and hipcc that request each format of device code.
_FORMS = {_PTX: "-ptx", ".cubin": "-cubin", ".hsaco": "--genco"}
_FORM_HINTS = {
    ".cubin": "name an NVIDIA GPU, as in --offload-arch=sm_90",
    ".hsaco": "name an AMD GPU, as in --offload-arch=gfx90a",
}


class DeviceFile(Struct, frozen=True):
    """The device code of a module or of a CUDA or HIP source for one target.

    `ptx` is its PTX, if a fat binary is to contain that too.
    """

    source: Path
    module: str
    target: Target
    path: Path
    ptx: Path | None = None


def compile_device_only(context: BuildContext) -> None:
    """Compile each source for each device and publish the files.

    Raises UsageError if an input has no device code, or if -o names one file for several outputs.
    """
    _check_inputs(context)
    tasks = [partial(_compile, _for_text(context), *pair) for pair in context.compiled.items()]
    made = [file for files in parallel_map(tasks) for file in files]
    _check_made(context, made)
    if context.options.makes_fat_binary:
        made = _fat_binaries(context, made)
    outputs = _outputs(context, made)
    check_files(context.options.inputs, [OutputFile(path, "-o") for path in outputs])
    for file, output in zip(made, outputs, strict=True):
        if output != STANDARD_OUTPUT:
            check_output(output)
        context.executor.place(file.path, output)


def _check_inputs(context: BuildContext) -> None:
    for path in context.options.inputs:
        if path.suffix not in MLIR_SUFFIXES | GPU_CPP.keys():
            msg = f"{path} has no device code of its own"
            raise UsageError(msg, hint="--offload-device-only takes .mlir, .cu and .hip files")
    ending = context.options.device_ending
    if not ending or context.options.makes_fat_binary:
        return
    for target in context.targets:
        code = ".cubin" if ending == _PTX else ending
        if build_of(target.kind).code_ending != code:
            msg = f"{_FORMS[ending]}: there is no such code for {target.arch}"
            raise UsageError(msg, hint=_FORM_HINTS[code])


def _check_made(context: BuildContext, made: Sequence[DeviceFile]) -> None:
    """Raise UsageError if an input yields no device code."""
    for source in context.compiled:
        if all(file.source != source for file in made):
            archs = ", ".join(target.arch for target in context.targets)
            msg = f"{source} has no device code for {archs}"
            hint = (
                "name GPUs that it has kernels for; -fgpu-rdc keeps functions that no kernel calls"
            )
            raise UsageError(msg, hint=hint)


def _for_text(context: BuildContext) -> BuildContext:
    """Return the context in which clang emits device code as text, if -S was given."""
    options = context.options
    if not options.assembly:
        return context
    flags = options.device_flags
    return replace(
        context,
        options=replace(options, device_flags=replace(flags, device_opt=(*flags.device_opt, "-S"))),
    )


def _compile(context: BuildContext, source: Path, output: Path) -> list[DeviceFile]:
    if source.suffix in GPU_CPP:
        return list(_compile_gpu_cpp(context, source, output))
    context.wait_for(normalized(output.parent))
    split = split_source(context, source, output.parent)
    modules = compile_device(context, source, split.modules)
    return [
        DeviceFile(
            source,
            made.module.path.stem,
            image.target,
            build_of(image.target.kind).code_alone(context, image),
            _ptx_of(context, image),
        )
        for made in modules
        for image in (*made.images, *made.linked_images)
    ]


def _compile_gpu_cpp(context: BuildContext, source: Path, output: Path) -> Iterator[DeviceFile]:

    context.executor.make_directory(output.parent)
    for target in context.targets_of(GPU_CPP[source.suffix]):
        alone = replace(context, targets=(target,))
        made = output.with_suffix(f".{target.arch.replace(':', '.')}{_ending(context, target)}")
        gpu_cpp.compile_gpu_cpp(alone, source, made)
        yield DeviceFile(source, "", target, made)


def _ptx_of(context: BuildContext, image: ImageFile) -> Path | None:
    """Return the PTX of an image, if the fat binary is to contain it for later GPUs."""
    is_kept = context.options.device_flags.keeps_ptx(image.target, context.targets)
    return assembly_file(image) if is_kept else None


def _fat_binaries(context: BuildContext, made: Sequence[DeviceFile]) -> list[DeviceFile]:
    """Pack the files of each module and kind into one. Raises UsageError if the kind has no fat binaries."""
    groups: dict[tuple[Path, str, Kind], list[DeviceFile]] = {}
    for file in made:
        groups.setdefault((file.source, file.module, file.target.kind), []).append(file)
    return [_fat_binary(context, files) for files in groups.values()]


def _fat_binary(context: BuildContext, files: Sequence[DeviceFile]) -> DeviceFile:
    first = files[0]
    kind = build_of(first.target.kind)
    if not kind.fat_binary_ending:
        msg = f"{_FAT_BINARY_OPTION}: there are no fat binaries for {first.target.arch}"
        hint = "name architectures of NVIDIA or AMD GPUs, or use --offload-device-only"
        raise UsageError(msg, hint=hint)
    output = first.path.with_suffix(kind.fat_binary_ending)
    code = [(file.target, file.path) for file in files]
    ptx = [(file.target, file.ptx) for file in files if file.ptx is not None]
    kind.pack(context, first.source, code, output, ptx=ptx)
    return replace(first, path=output)


def _ending(context: BuildContext, target: Target) -> str:
    options = context.options
    if options.makes_fat_binary:
        return build_of(target.kind).fat_binary_ending
    if options.emit_llvm:
        return _TEXT if options.assembly else ".bc"
    return _ASSEMBLY if options.assembly else build_of(target.kind).code_ending


def _outputs(context: BuildContext, made: Sequence[DeviceFile]) -> list[Path]:
    """Return the output paths. Raises UsageError if -o names one file for several outputs."""
    named = context.options.output
    if named is not None and len(made) > 1 and named != STANDARD_OUTPUT:
        msg = f"-o names one file, but there are {len(made)} files of device code"
        raise UsageError(msg, hint="name one architecture, or leave -o out")
    if named is not None:
        return [named] * len(made)
    several = len({file.module for file in made if file.module}) > 1
    counts = Counter(file.source for file in made)
    return [_output(context, file, counts[file.source], has_module=several) for file in made]


def _output(context: BuildContext, file: DeviceFile, count: int, *, has_module: bool) -> Path:
    """Return the path of an output, named as by nvcc if one of its options was given, else as by clang."""
    options = context.options
    words = [file.source.stem, *((file.module,) if has_module else ())]
    if options.makes_fat_binary:
        return Path("-".join(words) + _ending(context, file.target))
    if options.device_ending and count == 1:
        return Path(file.source.stem + options.device_ending)
    words += [str(file.target.kind), file.target.triple, file.target.arch.replace(":", ".")]
    return Path("-".join(words) + _ending(context, file.target))
