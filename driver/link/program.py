"""Link objects into a program or shared library, and verify that every registered kernel has an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver.compile.context import BuildContext, host_command
from mlir_offload.driver.compile.kind_build import (
    DeviceModule,
    ImageFile,
    build_of,
    builds_of,
    runtime_libraries,
)
from mlir_offload.driver.compile.linked_image import (
    linked_images,
    override_arguments,
    with_linked_images,
)
from mlir_offload.driver.link import error as link_error
from mlir_offload.driver.link import to_object
from mlir_offload.driver.link.c_name import c_name_findings
from mlir_offload.driver.link.device_link import DeviceLink, device_link, link_directory
from mlir_offload.driver.link.read_files import note_read_files, noting_arguments, uses_lld
from mlir_offload.driver.link.relocatable_links import DeviceLinkedInputs, isolate_duplicates
from mlir_offload.driver.link.runner_library import (
    explain_missing,
    runner_library_arguments,
    runner_library_folders,
)
from mlir_offload.driver.link.runtime import HostRuntime, host_runtime, memref_copy_objects
from mlir_offload.driver.link.sanitizer import check_arguments, sanitizer_arguments
from mlir_offload.driver.link.whole_archive import without_whole_archives
from mlir_offload.driver.message.journal import ToolRun
from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.option.command_line import CPP_SUFFIXES, as_operand, sources
from mlir_offload.driver.option.link_line import parse_link_line
from mlir_offload.driver.step import image_file, object_file
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.kind_format import formats_of
from mlir_offload.offload.link import folded
from mlir_offload.offload.link.check import check_link, kind_notes, repeated_objects
from mlir_offload.offload.link.coverage import (
    check_coverage,
    check_entries,
    check_resolved,
    has_sections,
)
from mlir_offload.offload.link.dummy_image import (
    empty_image_command,
    is_bitcode_target,
    targets_needing_dummy,
)
from mlir_offload.offload.link.finding import raise_findings
from mlir_offload.offload.link.kernel_layout import check_layouts
from mlir_offload.offload.link.objects import ObjectContents, read_inputs
from mlir_offload.offload.runtime import runtime_link_arguments
from mlir_offload.offload.sparse_runtime import (
    sparse_compile_command,
    sparse_link_arguments,
    sparse_parts,
)
from mlir_offload.toolchain.errors import MlirOffloadError
from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.process import Command, Completed
from mlir_offload.toolchain.target import kind_of_triple

_LINKER = "lld"
# The prefix of linker options for identical code folding, which merges functions with the same code.
_FOLDING = "--icf"
_LAZY = "-start-lib"
# The messages of lld, GNU ld, nvlink and llvm-link.
_SEVERAL = pattern("(?i)duplicate symbol|multiple definition|multiply defined")
# lld removes offload entries, because they are only referenced by the symbols of their section; other linkers
# keep them.
_COLLECTING, _KEEPING = "-gc-sections", "-Wl,-z,nostart-stop-gc"


def link(context: BuildContext, device: Sequence[DeviceModule] = ()) -> Path:
    """Link the compiled sources and all other inputs, verify the result, and return its path.

    `device` are the device modules of the sources. Raises VerificationError if the result lacks a kernel; the
    result is then not kept.
    """
    # Errors name the source, not the object in the temporary directory.
    compiled = [
        replace(item, path=source)
        for source, path in context.compiled.items()
        if path.exists()
        for item in read_inputs(path)
    ]
    made = [item for item in compiled if item.has_offloading]
    called = context.library_functions.union(*(item.library_functions for item in compiled))
    context = replace(context, library_functions=called)
    given = (item for item in context.given if item.path not in context.compiled)
    paths = _paths_on_line(context)
    contents = _in_line_order(paths, (*given, *made))
    linked_here = linked_images(context, device)
    # If the device code is linked already (`linked_images`), the wrapper links none, so it can drop none.
    _check_inputs(context, () if linked_here else contents)
    if not context.options.dry_run:
        contents = with_linked_images(contents, linked_here)
    runtime = host_runtime(context)
    context.wait_for(runtime.object)
    directory = link_directory(context)
    for build in builds_of(runtime.kinds):
        build.prepare_link(context, directory, device=device)
    wrapper = device_link(context, runtime, directory)
    prepared = isolate_duplicates(context, contents, wrapper)
    dummy = _make_dummy_image(context, prepared.remaining)
    replaced = {
        **prepared.replaced,
        **_objects_by_name(context, contents, prepared.replaced),
    }
    line = without_whole_archives(context, contents, _link_items(context, replaced))
    line = (*_keeping_arguments(context), *map(str, dummy), *line)
    diagnose = partial(_diagnose, context, contents, prepared)
    if context.options.links_to_object:
        linked = to_object.link_to_object(context, prepared, line, wrapper, diagnose)
    else:
        linked = context.workspace / "linked"
        overrides = override_arguments(context, linked_here)
        wrapper = replace(wrapper, arguments=(*wrapper.arguments, *overrides))
        command = _link_command(context, line, contents, runtime, wrapper, linked)
        is_shown = "-v" in context.options.device_flags.ptxas
        context.executor.tool(command, linked, diagnose=diagnose, is_shown=is_shown)
    note_read_files(context)
    if linked.exists():
        _verify(context, linked, contents, prepared, runtime)
    return linked


def _verify(
    context: BuildContext,
    linked: Path,
    contents: Sequence[ObjectContents],
    prepared: DeviceLinkedInputs,
    runtime: HostRuntime,
) -> None:
    """Raise VerificationError if the linked file lacks a kernel, or a launch would run the wrong one."""
    name = str(context.options.output or "a.out")
    if not has_sections(linked):
        show_note(f"{name} has no section headers: its device code cannot be verified")
        return
    check_coverage(linked, contents, name=name)
    if _removes_sections(context) and not _has_lazy_objects(context):
        check_entries(linked, contents, name=name)
    if any(one.links_undefined for one in formats_of(runtime.kinds)):
        check_resolved(linked, name=name)
    check_layouts(linked, prepared.remaining, name=name)
    if any(_FOLDING in item for item in context.options.link_items):
        folded.check_folded(linked, name=name)


def _in_line_order(
    paths: Sequence[Path], contents: Sequence[ObjectContents]
) -> tuple[ObjectContents, ...]:
    """Return the objects in link order, in which the linker wrapper groups their images."""
    places: dict[Path, int] = {}
    for number, path in enumerate(paths):
        places.setdefault(path, number)
    return tuple(sorted(contents, key=lambda item: places.get(item.path, -1)))


def _keeping_arguments(context: BuildContext) -> tuple[str, ...]:
    """Return the option by which lld keeps offload entries, if the link removes unused sections."""
    return (_KEEPING,) if _removes_sections(context) and uses_lld(context) else ()


def _removes_sections(context: BuildContext) -> bool:
    return any(_COLLECTING in item for item in context.options.link_items)


def _has_lazy_objects(context: BuildContext) -> bool:
    """Return whether objects on the line are linked only if they define a symbol that is needed."""
    return any(_LAZY in item for item in context.options.link_items)


def _paths_on_line(context: BuildContext) -> list[Path]:
    items = parse_link_line(context.options.link_items)
    return [item.path for item in items if item.path is not None]


def _diagnose(
    context: BuildContext,
    contents: Sequence[ObjectContents],
    prepared: DeviceLinkedInputs,
    completed: Completed,
) -> MlirOffloadError:
    """Return the error for a failed link. The tables of releases are loaded only here."""
    failed = partial(link_error.diagnose_link, prepared.apart, prepared.remaining)
    run = ToolRun(completed, context.workspace, context.executor.sources)
    error = link_error.diagnose_rejected(context, contents, failed, run)
    folders = runner_library_folders(context)
    explain_missing(error, completed.stderr, context.mlir.version.major, folders)
    twice = repeated_objects(contents, _paths_on_line(context))
    if twice and _SEVERAL.search(completed.stderr):
        for one in error.every:
            one.hint = f"name {' and '.join(map(str, twice))} once"
    return error


def _check_inputs(context: BuildContext, contents: Sequence[ObjectContents]) -> None:
    """Raise one error for everything that the link would drop; print notes."""
    findings = check_link((*contents, *context.linked), load_abi(context.consumer))
    raise_findings((*findings, *c_name_findings(contents)))
    for note in kind_notes(contents):
        show_note(note)


def _make_dummy_image(
    context: BuildContext, contents: Sequence[ObjectContents]
) -> tuple[Path, ...]:
    """Make the dummy image object, without which the wrapper drops device code that only libraries contain."""
    executor, directory = context.executor, context.workspace / "dummy"
    targets = targets_needing_dummy(contents, load_abi(context.consumer))
    if not targets:
        return ()
    executor.make_directory(directory)
    images = []
    for number, target in enumerate(targets):
        path = directory / f"empty{number}.{'bc' if is_bitcode_target(target) else 'o'}"
        compiling = kind_of_triple(target.triple)
        feature = build_of(compiling).dummy_image_feature(context, target) if compiling else ""
        executor.tool(empty_image_command(context.llvm, target, path, feature=feature), path)
        images.append(ImageFile(path, target).packaged)
    binary, text, dummy = (directory / f"dummy.{ending}" for ending in ("offload", "ll", "o"))
    consumer = str(context.consumer)
    executor.step(image_file.Package(images=tuple(images), for_clang=consumer, output=binary))
    executor.step(object_file.DummyImage(source=binary, output=text))
    executor.tool(host_command(context, text, dummy), dummy)
    return (dummy,)


def _objects_by_name(
    context: BuildContext, contents: Sequence[ObjectContents], replaced: Mapping[str, str]
) -> dict[str, str]:
    """Return the paths for objects named by `-l:NAME`; the wrapper would link their host code into CPU images."""
    objects = {item.path for item in contents if item.is_relocatable and not item.member}
    items = parse_link_line(context.options.link_items)
    named = {item.text: item.path for item in items if item.text.startswith("-l:")}
    found = {text: as_operand(str(path)) for text, path in named.items() if path in objects}
    return {text: replaced.get(path, path) for text, path in found.items()}


def _link_items(context: BuildContext, prepared: Mapping[str, str]) -> list[str]:
    """Return the link line with the objects of the sources and the replaced inputs."""
    made = {as_operand(str(path)): str(made) for path, made in context.compiled.items()}
    made |= prepared
    items: Sequence[str] = context.options.link_items
    if prepared:
        # A library may be between other options in one `-Wl,`.
        items = [word.text for word in parse_link_line(items)]
    return [made.get(item, item) for item in items]


def _link_command(
    context: BuildContext,
    items: Sequence[str],
    contents: Sequence[ObjectContents],
    runtime: HostRuntime,
    device: DeviceLink,
    output: Path,
) -> Command:
    """Return the clang command; it runs the linker wrapper only if there is device code."""
    options = context.options
    dry = options.dry_run
    has_device = any(item.images for item in contents) or (dry and bool(context.targets))
    # The linker wrapper generates registration code that calls the runtime library of the kind.
    has_runtime = has_device or any(item.calls_device or item.is_device_linked for item in contents)
    has_runtime = (has_runtime or options.has_gpu_cpp) and bool(runtime.kinds)
    arguments = [
        *(("--offload-link",) if has_device else ()),
        *(("-shared",) if options.shared else ()),
        *(sanitizer_arguments(context, options.sanitizer) if options.sanitizer else ()),
        *check_arguments(context),
        *((f"-fuse-ld={_LINKER}",) if context.llvm.has(f"ld.{_LINKER}") else ()),
        *items,
        *noting_arguments(context),
        *(_runtime_arguments(context, runtime) if has_runtime else ()),
        *(_sparse_arguments(context, contents, runtime) if has_runtime else ()),
        *map(str, memref_copy_objects(context, contents, context.workspace)),
        *runner_library_arguments(context),
        *(device.arguments if has_device else ()),
        *(_language_arguments(sources(options))),
    ]
    argv = (str(context.llvm.tool("clang")), *arguments, "-o", str(output))
    return Command(argv, environment=device.environment if has_device else ())


def _runtime_arguments(context: BuildContext, runtime: HostRuntime) -> tuple[str, ...]:
    found = runtime_libraries(context, runtime.kinds)
    libraries = runtime_link_arguments(runtime.kinds, found)
    return (str(runtime.object), *libraries)


def _sparse_arguments(
    context: BuildContext, contents: Sequence[ObjectContents], runtime: HostRuntime
) -> tuple[str, ...]:
    """Compile the called parts of the runtime for sparse matrices; return the arguments to link them."""
    symbols = frozenset().union(*(item.runtime_symbols for item in contents))
    parts = sparse_parts(symbols, runtime.kinds)
    if context.cuda is None:
        return ()
    arguments: list[str] = []
    for part in parts:
        output = context.workspace / Path(part.source).with_suffix(".o")
        command = sparse_compile_command(context.llvm.tool("clang"), part, output)
        context.executor.tool(command, output)
        arguments += (str(output), *sparse_link_arguments(part, context.cuda.root))
    return tuple(arguments)


def _language_arguments(inputs: Sequence[Path]) -> tuple[str, ...]:
    return ("-lm", *(("-lstdc++",) if any(path.suffix in CPP_SUFFIXES for path in inputs) else ()))
