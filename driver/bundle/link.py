"""Link bundles that were made on another host: check, compile, link, verify."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.build.subcommand import build_with
from mlir_offload.driver.bundle.requirement import find_link_tools
from mlir_offload.driver.compile.context import Build, BuildContext, host_command, open_build
from mlir_offload.driver.compile.kind_build import ImageFile, build_of, builds_of
from mlir_offload.driver.option.checks import OutputFile, check_files, check_kept
from mlir_offload.driver.option.command_line import (
    CompileOptions,
    Mode,
    as_operand,
    check_input,
    final_outputs,
    parse_arguments,
)
from mlir_offload.driver.option.subcommand import check_spelled
from mlir_offload.driver.step.image_file import Package
from mlir_offload.driver.step.split_file import ModuleFile
from mlir_offload.driver.system.parallel import parallel_map
from mlir_offload.driver.system.workspace import check_output, make_directory
from mlir_offload.driver.tools.choose import FoundTools, places_of
from mlir_offload.driver.tools.releases import Releases
from mlir_offload.offload.container.mob_archive import read_archive
from mlir_offload.offload.container.mob_manifest import (
    MobDevice,
    MobManifest,
    MobUnit,
    read_manifest,
)
from mlir_offload.offload.link.finding import raise_findings
from mlir_offload.toolchain.byte_view import copy_view, open_view
from mlir_offload.toolchain.errors import MlirOffloadError, UsageError
from mlir_offload.toolchain.process import Command, Runner
from mlir_offload.toolchain.tables import learn_release
from mlir_offload.toolchain.target import Target
from mlir_offload.translate.gpu_module import GpuModule, Kernel

SUFFIX = ".mob"
_SUBCOMMAND = "link"
# The end of the path of an unpacked file, whose name `bundle` made.
_MEMBER = r"/[\w./-]+"


class UnpackedBundle(Struct, frozen=True):
    """A bundle that matches the hashes of its manifest, and the directory with its files."""

    path: Path
    manifest: MobManifest
    directory: Path


def link_bundles(arguments: Sequence[str], runner: Runner) -> int:
    """Run `mlir-offload link`; return its exit status.

    Raises VerificationError for a damaged bundle, one error that lists everything missing on this host, and
    the errors of a link.
    """
    options = parse_arguments(arguments)
    check_spelled(_SUBCOMMAND, options.spelled)
    _check_inputs(options)
    with open_build(options, runner) as opened:
        bundles = [
            _unpack(path, opened.workspace / f"bundle{number}")
            for number, path in enumerate(_bundles(options))
        ]
        if options.mode is Mode.OBJECT:
            _check_objects(options, [unit for one in bundles for unit in one.manifest.units])
        context = _context(opened, bundles)
        made = {bundle.path: _compile_bundle(context, bundle) for bundle in bundles}
        if options.mode is Mode.OBJECT:
            _place_objects(context, [pair for pairs in made.values() for pair in pairs])
        else:
            objects = {path: [item for _, item in pairs] for path, pairs in made.items()}
            try:
                _link(opened, _with_objects(context.options, objects), context)
            except MlirOffloadError as error:
                for bundle in bundles:
                    error.relocate(partial(_place_of, bundle))
                    for one in error.every:
                        one.message = _named(bundle, one.message)
                        one.hint = _named(bundle, one.hint)
                raise
    return 0


def _place_of(bundle: UnpackedBundle, location: str) -> str:
    """Return the path of the bundle for a location in one of its files, any other location unchanged."""
    return str(bundle.path) if location.startswith(f"{bundle.directory}/") else location


def _named(bundle: UnpackedBundle, text: str) -> str:
    """Return a text that names the bundle for each of its files, which only this process knows."""
    file = re.escape(str(bundle.directory)) + _MEMBER
    return re.sub(file, lambda _: str(bundle.path), text)


def _bundles(options: CompileOptions) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(path for path in options.inputs if path.suffix == SUFFIX))


def _check_inputs(options: CompileOptions) -> None:
    if not _bundles(options):
        msg = "link needs a bundle (.mob)"
        raise UsageError(
            msg, hint="objects alone are linked by 'mlir-offload FILE.o... -o PROGRAM'"
        )
    others = [path for path in options.inputs if path.suffix != SUFFIX]
    if options.mode is Mode.OBJECT and others:
        msg = f"link -c makes objects of bundles: {others[0]} is not a bundle"
        raise UsageError(msg, hint="leave it out, or link without -c")
    for path in others:
        check_input(path)
    if options.output is not None:
        check_output(options.output)
    check_kept(options.save_temps, options.inputs)
    if options.mode is Mode.LINK or options.output is not None:
        # For -c without -o, the objects' names are known only after the bundle has been read.
        check_files(options.inputs, [OutputFile(path, "-o") for path in final_outputs(options)])


def _unpack(path: Path, directory: Path) -> UnpackedBundle:
    """Check a bundle and write its files to a directory. Raises VerificationError."""
    with open_view(path) as view:
        members = read_archive(view)
        manifest = read_manifest(members, str(path))
        for name, content in members.items():
            file = directory / name
            make_directory(file.parent)
            with file.open("wb") as stream:
                copy_view(content, stream.fileno())
    return UnpackedBundle(path, manifest, directory)


def _context(opened: Build, bundles: Sequence[UnpackedBundle]) -> BuildContext:
    """Choose the tools. Raises one error that lists everything missing or incompatible."""
    manifests = [(bundle.path, bundle.manifest) for bundle in bundles]
    places, links = places_of(opened.options), opened.options.mode is Mode.LINK
    for release in (one for bundle in bundles for one in bundle.manifest.learned):
        learn_release(release)
    tools = find_link_tools(manifests, places, opened.runner, links=links)
    raise_findings(tools.findings)
    if tools.llvm is None:
        msg = "no LLVM was found, and no reason why"
        raise AssertionError(msg)
    releases = Releases(tools.llvm, tools.llvm, tools.llvm.version.major)
    fitted = _with_flags(opened.options, [bundle.manifest for bundle in bundles])
    return replace(opened, options=fitted).context(
        FoundTools(places, releases, (), tools.cuda, tools.rocm),
        sources={bundle.directory: bundle.path for bundle in bundles},
    )


def _with_flags(options: CompileOptions, manifests: Sequence[MobManifest]) -> CompileOptions:
    """Return the options with those of the bundles as defaults."""
    given = {key for key, _ in options.spelled}
    level = max(manifest.opt_level for manifest in manifests)
    return replace(
        options,
        opt_level=options.opt_level if any(k.startswith("-O") for k in given) else level,
        debug=options.debug or ("-g0" not in given and any(m.debug for m in manifests)),
        pic=options.pic or any(manifest.pic for manifest in manifests),
    )


def _compile_bundle(context: BuildContext, bundle: UnpackedBundle) -> list[tuple[str, Path]]:
    """Return the name of each source of a bundle, with its object."""
    for build in builds_of(bundle.manifest.kinds):
        build.prepare(context)
    library = bundle.directory / bundle.manifest.libdevice if bundle.manifest.libdevice else None
    context = replace(context, libdevice=library)
    tasks = [partial(_compile_unit, context, bundle, unit) for unit in bundle.manifest.units]
    objects = parallel_map(tasks)
    sources = [unit.source for unit in bundle.manifest.units]
    return list(zip(sources, objects, strict=True))


def _compile_unit(context: BuildContext, bundle: UnpackedBundle, unit: MobUnit) -> Path:
    """Compile the device images of one host module, and the module with the images embedded."""
    tasks = [
        partial(_make_image, context, bundle, device, target)
        for device in unit.devices
        for target in device.targets
    ]
    images = parallel_map(tasks)
    host = bundle.directory / unit.host
    output = host.with_suffix(".o")
    embedded: tuple[str, ...] = ()
    if images:
        binary = host.with_suffix(".offload")
        named, release = tuple(image.packaged for image in images), str(context.consumer)
        context.executor.step(Package(images=named, for_clang=release, output=binary))
        embedded = ("-Xclang", f"-fembed-offload-object={binary}")
    context.executor.tool(host_command(context, host, output, *embedded), output)
    return output


def _make_image(
    context: BuildContext, bundle: UnpackedBundle, device: MobDevice, target: Target
) -> ImageFile:
    text = bundle.directory / device.file
    kernels = tuple(Kernel(kernel.name, kernel.name) for kernel in device.kernels)
    module = ModuleFile(text, GpuModule("", kernels, "", frozenset()))
    return build_of(target.kind).bundled_image(context, bundle.path, module, target)


def _check_objects(options: CompileOptions, units: Sequence[MobUnit]) -> None:
    """Raise UsageError if two objects would have the same path."""
    names = [_object_name(unit.source) for unit in units]
    if options.output is not None and len(names) > 1:
        msg = f"-o names one file, but the bundles hold {len(names)} host modules"
        raise UsageError(msg, hint="leave -o out: each object gets the name of its source")
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        msg = f"two host modules would both become {twice[0]}"
        raise UsageError(msg, hint="link without -c, or give the sources other names")
    if options.output is None:
        check_files(options.inputs, [OutputFile(name, "-c") for name in names])


def _object_name(source: str) -> Path:
    return Path(Path(source).stem + ".o")


def _place_objects(context: BuildContext, made: Sequence[tuple[str, Path]]) -> None:
    for source, item in made:
        context.executor.place(item, context.options.output or _object_name(source))


def _with_objects(options: CompileOptions, objects: dict[Path, list[Path]]) -> CompileOptions:
    """Return the options of the link with the bundles replaced by their objects."""
    operands = {as_operand(str(path)): made for path, made in objects.items()}
    items = [
        word
        for item in options.link_items
        for word in (map(str, operands[item]) if item in operands else (item,))
    ]
    inputs = [made for path in options.inputs for made in objects.get(path, [path])]
    return replace(options, link_items=tuple(items), inputs=tuple(inputs))


def _link(opened: Build, options: CompileOptions, context: BuildContext) -> None:
    """Link the objects like any other build."""
    if options.dry_run:
        # In a dry run no object exists, so that the link inputs cannot be read.
        output = ("-o", str(options.output or "a.out"))
        shared = ("-shared",) if options.shared else ()
        words = ("mlir-offload", *shared, *options.link_items, *output)
        context.executor.note(Command(words))
        return
    directory = context.workspace / "link"
    make_directory(directory)
    chosen = replace(options, llvm=str(context.llvm.prefix))
    build_with(replace(opened, options=chosen, workspace=directory))
