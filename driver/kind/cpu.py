"""CPU device images, and their link."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.driver.compile import device as device_code
from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.downgrade import not_taken
from mlir_offload.driver.compile.kind_build import (
    ImageFile,
    KindBuild,
    Sdk,
    kernels_of,
    user_libraries,
    with_libraries,
)
from mlir_offload.driver.compile.runtime_cache import compile_runtime_source
from mlir_offload.driver.link.sanitizer import sanitizer_library
from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.step.cpu import CpuFinish, CpuIr
from mlir_offload.driver.step.split_file import ModuleFile
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.image import is_bitcode
from mlir_offload.offload.link.held_image import runs_on_host
from mlir_offload.offload.runtime import runtime_include_directory
from mlir_offload.toolchain.target import HOST, Kind, Target, device_kind
from mlir_offload.toolchain.tool import load_llvm_table
from mlir_offload.translate.cpu import rewrite
from mlir_offload.translate.cpu.launch import runs_fibers
from mlir_offload.translate.cpu.module import (
    cpu_collapse_command,
    cpu_image_command,
    cpu_runtime_command,
)
from mlir_offload.translate.device_ir import LINK_LIBRARY
from mlir_offload.translate.kind.cuda import links_library_into_ir

if TYPE_CHECKING:
    from mlir_offload.offload.container.binary import PackagedImage
    from mlir_offload.offload.container.mob_manifest import MobDevice, MobManifest
    from mlir_offload.toolchain.llvm import LlvmToolchain

_HEAD_BYTES = 4
_RECIPE_RUNTIME, _RECIPE_RUNTIME_OBJECT = "cpu_device.bc", "cpu_device.o"


def _make_image(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    """Make the image of a lowered module for this host's CPU."""
    libraries = user_libraries(context, source, target, lowered)
    prepared = _cpu_ir(context, source, module, lowered, libraries)
    prepared = context.text_for(context.llvm.version.major, prepared, source)
    return _finish_image(context, prepared, _image_file(context, lowered, target), libraries)


def _finish_image(
    context: BuildContext, prepared: Path, image: ImageFile, libraries: Sequence[Path] = ()
) -> ImageFile:
    """Compile prepared IR, with the device runtime and the libraries that it calls."""
    executor, llvm, options = context.executor, context.llvm, context.options
    wanted = (_device_runtime(context), *libraries)
    prepared, left = with_libraries(context, llvm, prepared, wanted)
    runtime, others = next(iter(left), None), left[1:]
    linked = (word for path in others for word in ("-Xclang", LINK_LIBRARY, "-Xclang", str(path)))
    sanitizer = (options.sanitizer.flag,) if options.sanitizer else ()
    debug = ("-g",) if options.debug else ()
    extra = (*debug, *sanitizer, *linked, *options.device_flags.device_opt_for(HOST))
    level = options.opt_level
    command = cpu_image_command(
        llvm, prepared, runtime, image.path, opt_level=level, march=options.march, extra=extra
    )
    executor.tool(command, image.path, diagnose=partial(not_taken, context))
    return image


def _device_runtime(context: BuildContext) -> Path:
    return context.workspace / "cpu_device.bc"


def _compile_device_runtime(context: BuildContext) -> None:
    """Compile the device runtime, which is linked into every CPU image, once per build."""
    executor, output = context.executor, _device_runtime(context)
    options = context.options
    extra = options.sanitizer.runtime_flags if options.sanitizer else ()
    command = cpu_runtime_command(
        context.llvm, output, opt_level=options.opt_level, march=options.march, extra=extra
    )
    source = runtime_include_directory() / "cpu_device.c"
    diagnose = partial(not_taken, context)
    executor.once(
        output,
        partial(compile_runtime_source, executor, command, source, output, diagnose=diagnose),
    )


def _cpu_ir(
    context: BuildContext,
    source: Path,
    module: ModuleFile,
    lowered: Path,
    libraries: Sequence[Path] = (),
) -> Path:
    """Rewrite a lowered module for the CPU; kernels that benefit are collapsed over subgroups.

    Without libLLVM, each thread of a kernel with barriers runs on a fiber, which is slow.
    """
    executor, options = context.executor, context.options
    is_for_debugger = _is_for_debugger(context)
    step = CpuIr(
        source=lowered,
        kernels=kernels_of(module),
        device_libraries=tuple(libraries),
        rdc=bool(options.gpu_rdc),
        sanitizer=options.sanitizer,
        location=str(source),
        collapse=context.llvm.library is not None and not is_for_debugger,
        value_names=module.path if is_for_debugger else None,
        output=lowered.with_suffix(".host.ll"),
    )
    try:
        executor.step(step, decides=True)
    except rewrite.NotOnCpuError as error:
        target = next(one for one in device_code.ordered_targets(context, module) if one.is_cpu)
        raise device_code.with_line(context, source, module, target, step, error) from None
    if step.uncollapsed.exists():
        _collapse(context, source, module, step)
    _note_missing_library(context, step.output)
    return step.output


def _is_for_debugger(context: BuildContext) -> bool:
    """Return whether each thread runs alone, in source order and with its variables (-g -O0)."""
    options = context.options
    return options.debug and options.opt_level == 0 and options.sanitizer is None


def _note_missing_library(context: BuildContext, prepared: Path) -> None:
    """Print a note if kernels run on fibers because libLLVM is missing."""
    llvm, major = context.llvm, context.llvm.version.major
    if llvm.library is not None or context.options.sanitizer or _is_for_debugger(context):
        return
    package = load_llvm_table().library_package_of(major)
    if package and prepared.exists() and runs_fibers(prepared.read_bytes()):
        show_note(
            f"LLVM {major} has no libLLVM here: kernels with barriers or subgroup operations are slow on the CPU"
            f" (apt install {package}; from source, LLVM_BUILD_LLVM_DYLIB=ON)"
        )


def _collapse(context: BuildContext, source: Path, module: ModuleFile, step: CpuIr) -> None:
    """Collapse kernels over subgroups with the libLLVM of the release whose clang reads the result."""
    llvm, collapsed = context.llvm, step.source.with_suffix(".collapsed.ll")
    if llvm.library is None:
        msg = f"no libLLVM for {step.uncollapsed}"
        raise ValueError(msg)
    older = context.text_for(llvm.version.major, step.uncollapsed, source)
    names = [kernel.symbol for kernel in module.module.kernels]
    command = cpu_collapse_command(llvm.library, older, collapsed, names, str(source))
    context.executor.tool(command, collapsed, diagnose=partial(not_taken, context))
    finish = CpuFinish(
        source=collapsed,
        made_from=step.source,
        kernels=step.kernels,
        device_libraries=step.device_libraries,
        rdc=step.rdc,
        sanitizer=step.sanitizer,
        location=step.location,
        output=step.output,
    )
    context.executor.step(finish)


def _image_file(_context: BuildContext, beside: Path, target: Target, /) -> ImageFile:
    """Return the image for a target, with a path next to `beside`."""
    return ImageFile(beside.with_suffix(f".{target.arch}.o"), target)


def _is_host_bitcode(image: PackagedImage) -> bool:
    return runs_on_host(image) and is_bitcode(image.content.head(_HEAD_BYTES))


class CpuBuild(KindBuild):
    """The CPU as a device kind."""

    name = Kind.OPENMP
    modules = (
        "mlir_offload.translate.cpu.module",
        "mlir_offload.offload.device.host_image",
    )
    bundle_ending = "cpu"
    is_run_by_doctor = True
    recipe_makes = (_RECIPE_RUNTIME, _RECIPE_RUNTIME_OBJECT)
    step_programs = ("mlir-opt", "mlir-translate", "clang")
    image_file = staticmethod(_image_file)
    make_image = staticmethod(_make_image)
    prepare = staticmethod(_compile_device_runtime)

    def step_arguments(self, context: BuildContext, /) -> tuple[str, ...]:
        """Return -march=, which affects the code."""
        return (f"-march={context.options.march}",)

    def runtime_library(self, context: BuildContext, /) -> Path | None:
        """Return libomptarget; None if the runtime's fallback replaces it."""
        return context.libomptarget

    def link_arguments(
        self, context: BuildContext, _archs: Collection[str], _directory: Path, /
    ) -> tuple[str, ...]:
        """Return the arguments of the linker wrapper for CPU images."""
        abi, triple = load_abi(context.consumer), device_kind(self.name).triple
        # The wrapper links CPU images with --no-undefined; kernels may call libm.
        arguments = list(abi.host_device_arguments(triple))
        given = (image for item in context.given for image in item.images)
        if context.llvm.has("ld.lld") and any(map(_is_host_bitcode, given)):
            arguments += abi.host_bitcode_arguments(triple)
        # The wrapper would link the static library of a sanitizer into each image again.
        if context.options.sanitizer:
            library = sanitizer_library(context, context.options.sanitizer)
            arguments.append(f"-Wl,--device-linker={triple}={library}")
        return tuple(arguments)

    def lower_bundled(
        self, context: BuildContext, source: Path, module: ModuleFile, lowered: Path
    ) -> Path:
        """Return the LLVM IR, rewritten for the CPU, for the linking LLVM."""
        text = _cpu_ir(context, source, module, lowered)
        return context.text_for(context.consumer, text, source)

    def bundled_image(
        self, context: BuildContext, _bundle: Path, module: ModuleFile, target: Target, /
    ) -> ImageFile:
        """Make the image of a device module of a bundle."""
        image = self.image_file(context, module.path, target)
        return _finish_image(context, module.path, image)

    def recipe_preparation(
        self, manifest: MobManifest, clang: LlvmToolchain, /
    ) -> Iterator[tuple[str, ...]]:
        """Yield the command that compiles the device runtime, to bitcode or to an object.

        It is an object, and a separate image, if clang cannot link it into LLVM IR.
        """
        takes_library = links_library_into_ir(manifest.llvm.first)
        made = _RECIPE_RUNTIME if takes_library else _RECIPE_RUNTIME_OBJECT
        argv = cpu_runtime_command(clang, Path(made), opt_level=manifest.opt_level).argv
        shipped = str(runtime_include_directory() / "cpu_device.c")
        words = ["runtime/cpu_device.c" if word == shipped else word for word in argv]
        if not takes_library:
            unoptimised = words.index("-disable-llvm-passes")
            words = [*words[: unoptimised - 1], *words[unoptimised + 1 :]]
            words.remove("-emit-llvm")
        yield tuple(words)

    def recipe_files(self, manifest: MobManifest, /) -> tuple[str, ...]:
        """Return the object of the device runtime if it is a separate image."""
        return () if links_library_into_ir(manifest.llvm.first) else (_RECIPE_RUNTIME_OBJECT,)

    def recipe_call(
        self,
        manifest: MobManifest,
        clang: LlvmToolchain,
        device: MobDevice,
        _arch: str,
        output: Path,
        /,
    ) -> tuple[str, ...]:
        """Return the clang command that compiles an image to an object."""
        takes_library = links_library_into_ir(manifest.llvm.first)
        library = Path(_RECIPE_RUNTIME) if takes_library else None
        debug = ("-g",) if manifest.debug else ()
        level, source = manifest.opt_level, Path(device.file)
        return cpu_image_command(clang, source, library, output, opt_level=level, extra=debug).argv

    def recipe_link(self, manifest: MobManifest, /) -> tuple[str, str]:
        """Return the device link arguments."""
        arguments = load_abi(manifest.llvm.first).host_device_arguments(manifest.host_triple)
        return "", f"{' '.join(arguments)} "

    def bundle_needs(self, _manifest: MobManifest, /) -> Iterator[str]:
        """Yield a line which states that nothing else is needed."""
        yield (
            "for the CPU nothing else: the code is made for the CPU of the link host"
            " (`-march=native`)"
        )

    def plain_link_arguments(self, _major: int, _sdk: Sdk | None, /) -> tuple[str, ...]:
        """Return the device linker argument for libm, because the wrapper links with --no-undefined."""
        return (f"-Wl,--device-linker={device_kind(self.name).triple}=-lm",)


KIND = CpuBuild()
