"""Probe the linker wrapper: the entries that it reads, and the commands that it runs.

A link with an image of each kind, in a container written by this driver, runs it with `--dry-run` and
`--print-wrapped-module`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from mlir_offload.offload.abi import OffloadAbi, load_abi
from mlir_offload.offload.calibrate.probe import (
    ContradictionError,
    Learned,
    ProbeBench,
)
from mlir_offload.offload.container.packager import ImageRecord, record_parts
from mlir_offload.offload.image import ImageKind
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.learned_row import (
    CudaPathRow,
    DeviceFeatureRow,
    DeviceOptRow,
    EntriesRow,
    EntryValuesRow,
    FatbinaryRow,
    HostBitcodeRow,
    HostLibrariesRow,
    JobsRow,
    LearnedRow,
    OffloadKindsRow,
)
from mlir_offload.toolchain.pattern import ir_line, ir_pattern

_HOST = "x86_64-unknown-linux-gnu"
_DEVICES = {
    "cuda": ("nvptx64-nvidia-cuda", "sm_70"),
    "hip": ("amdgcn-amd-amdhsa", "gfx900"),
    "openmp": (_HOST, "x86-64"),
}
_SECTION = ir_line("@__start_`section:word` = ")
_STRUCT = ir_line("%`dotted?`tgt_offload_entry = type { `members:members` }")
_MASK = ir_line(
    "`indent``masked:local` = and i32 %flags, `mask:number`\n`indent`%`name:word` = lshr i32 `shifted:local`,"
)
_KIND = ir_pattern("icmp eq i16 %kind, `code:number``end`")
_CALL = ir_line("`indent``result`call `word` @__`kind:cuda|hip`Register`what:word`(")
_LIBRARY = "call void @__tgt_register_lib("
_MODULE = "; ModuleID = "
_FATBINARY = re.compile(r'"[^"\n]*\bfatbinary"[^\n]* --(image\d?)=')
# The object in a device link for the CPU; it is in the host link as well.
_IMAGE = re.compile(rf"\S*[.-]{_HOST}[.-]\S*\.o")
# The content is arbitrary, because a dry run does not read it.
_IMAGE_CONTENT = b"image"
_ARGUMENTS_OF_LINK = (" -L ", " -lm")
_CALLS = {
    "Function": "kernel",
    "Var": "global",
    "ManagedVar": "managed",
    "Surface": "surface",
    "Texture": "texture",
}
_OPENMP = ("kernel", "global", "link")
_LIBM = "-lm"


def learn_wrapper(bench: ProbeBench, written: Learned) -> Learned:
    """Compare the entries and containers of clang and the packager with the wrapper; learn its options.

    Raises CannotLearnError if the wrapper cannot be run, ContradictionError if they are inconsistent.
    """
    near = load_abi(bench.base)
    found = Learned()
    found.rows.extend(_option_rows(bench))
    codes = _codes(written, near)
    parts = _printed(bench, near, codes)
    rows = {type(row): row for row in written.rows}
    entries, values = rows.get(EntriesRow), rows.get(EntryValuesRow)
    if isinstance(entries, EntriesRow):
        for kind, text in parts.items():
            _check_entries(kind, text, entries, codes)
        found.rows.append(_with_sycl(entries, codes))
    if isinstance(values, EntryValuesRow):
        found.rows.append(_registered(values, parts, codes))
    libraries = _host_libraries("\n".join(parts.values()))
    if libraries:
        found.rows.append(HostLibrariesRow(libraries))
    option = _FATBINARY.search(parts["cuda"])
    if option is not None:
        found.rows.append(FatbinaryRow(option[1]))
    return found


def _option_rows(bench: ProbeBench) -> Iterator[LearnedRow]:
    """Yield the rows that follow from the options that the wrapper lists."""
    text = bench.output("clang-linker-wrapper", ("--help",))
    jobs = "--wrapper-jobs=" in text
    yield JobsRow("-Wl,--wrapper-jobs={jobs}" if jobs else "", "jobserver" in text)
    has_compiler = "--device-compiler=" in text
    cuda: tuple[str, ...] = ("-Wl,--cuda-path={path}",)
    device = "-Wl,--device-compiler="
    if has_compiler:
        cuda += (f"{device}nvptx64-nvidia-cuda=--cuda-path={{path}}",)
    yield CudaPathRow(cuda)
    level = (
        "-Wl,--opt-level=O{level}" if "--opt-level=" in text else f"{device}{{triple}}=-O{{level}}"
    )
    yield DeviceOptRow(level)
    feature, host = (
        f"{device}{{triple}}=--cuda-feature={{feature}}",
        f"{device}{{triple}}=-fuse-ld=lld",
    )
    yield DeviceFeatureRow(feature if has_compiler else "")
    yield HostBitcodeRow(host if has_compiler else "")


def _codes(written: Learned, near: OffloadAbi) -> Mapping[str, int]:
    row = next((row for row in written.rows if isinstance(row, OffloadKindsRow)), None)
    return row.codes if row is not None else dict(near.kind_codes)


def _printed(bench: ProbeBench, near: OffloadAbi, codes: Mapping[str, int]) -> dict[str, str]:
    """Return the output of the wrapper for each kind: commands, then the module that registers images.

    Raises ContradictionError if the wrapper drops an image.
    """
    binary = b"".join(_container(near, kind, codes) for kind in _DEVICES)
    (bench.folder / "images").write_bytes(binary)
    (bench.folder / "host.c").write_text("int probe;\n", encoding="utf-8")
    embed = ("-Xclang", "-fembed-offload-object=images")
    target = f"--target={_HOST}"
    bench.output("clang", (target, "-c", "host.c", *embed, "-o", "host.o"))
    words = ("-Wl,--dry-run", "-Wl,--print-wrapped-module")
    shared = ("-shared", "-nostdlib", "--offload-link", _LIBM)
    completed = bench.run("clang", (target, *shared, *words, "host.o", "-o", "linked"))
    text = completed.stdout + completed.stderr
    if completed.returncode != 0:
        reason = next((line for line in text.splitlines() if "error:" in line), "no message")
        msg = f"its linker wrapper does not link images that this driver packages: {reason}"
        raise ContradictionError(msg)
    return dict(_parts(text))


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the part of the output for each kind."""
    commands, *modules = text.split(_MODULE)
    whole = {"cuda": "", "hip": "", "openmp": ""}
    before = commands
    for module in modules:
        kind = _kind_of(module)
        if kind:
            whole[kind] += before + module
        # The commands for the next kind follow the module of this one.
        before = "\n".join(line for line in module.splitlines() if line.startswith(' "'))
    for kind, part in whole.items():
        if not part:
            msg = f"its linker wrapper drops images of kind {kind}"
            raise ContradictionError(msg)
        yield kind, part


def _kind_of(module: str) -> str:
    if _LIBRARY in module:
        return "openmp"
    call = _CALL.search(module)
    return call[1] if call else ""


def _container(near: OffloadAbi, kind: str, codes: Mapping[str, int]) -> bytes:
    triple, arch = _DEVICES[kind]
    strings = ((b"triple", triple.encode()), (b"arch", arch.encode()))
    code = codes.get(kind, dict(near.kind_codes)[kind])
    record = ImageRecord(code, ImageKind.OBJECT, strings, memory_view(_IMAGE_CONTENT))
    parts = record_parts(record)
    return b"".join(part if isinstance(part, bytes) else part.whole() for part in parts)


def _check_entries(kind: str, text: str, entries: EntriesRow, codes: Mapping[str, int]) -> None:
    """Raise ContradictionError if the wrapper reads a different entry layout than clang writes."""
    sections = set(_SECTION.findall(text))
    if entries.sections[kind] not in sections:
        read = ", ".join(sorted(sections)) or "no section"
        msg = f"clang puts entries of kind {kind} into {entries.sections[kind]}, and the linker wrapper reads {read}"
        raise ContradictionError(msg)
    struct = _STRUCT.search(text)
    types = ", ".join(field.partition(":")[2] for field in entries.fields)
    if struct is not None and struct[1].replace("i8*", "ptr") != types:
        msg = f"clang writes entries of {types}, and the linker wrapper reads {struct[1]}"
        raise ContradictionError(msg)
    number = _KIND.search(text)
    if number is not None and int(number[1]) != codes[kind]:
        msg = f"the packager gives kind {kind} the number {codes[kind]}, and the linker wrapper reads {number[1]}"
        raise ContradictionError(msg)


def _with_sycl(entries: EntriesRow, codes: Mapping[str, int]) -> EntriesRow:
    """Return the row with a section for kind sycl, if the packager has the kind and all kinds share a section."""
    sections = {kind: name for kind, name in entries.sections.items() if kind != "sycl"}
    shared = set(sections.values())
    if "sycl" in codes and len(shared) == 1:
        sections["sycl"] = shared.pop()
    return replace(entries, sections=sections)


def _registered(
    values: EntryValuesRow, parts: Mapping[str, str], codes: Mapping[str, int]
) -> EntryValuesRow:
    """Return the row with the registered entry types, and the flags that the wrapper tests."""
    masks = {
        name: int(bits)
        for text in parts.values()
        for masked, bits, name, shifted in _MASK.findall(text)
        if masked == shifted
    }
    flags = {**values.flags}
    if "extern" in masks:
        flags["extern"] = masks["extern"]
    else:
        flags.pop("extern", None)
    registered: dict[str, tuple[str, ...]] = {"openmp": _OPENMP}
    for kind in ("cuda", "hip"):
        calls = dict.fromkeys(name for own, name in _CALL.findall(parts[kind]) if own == kind)
        registered[kind] = tuple(_CALLS[name] for name in calls if name in _CALLS)
    registered |= {"sycl": ("kernel",)} if "sycl" in codes else {}
    return replace(values, flags=flags, registered=registered)


def _host_libraries(text: str) -> tuple[str, ...]:
    """Return the libraries for a CPU device link with -lm, depending on the position of the link arguments.

    After the image, -lm also links libmvec. Before it, libmvec is not needed yet and must be named.
    """
    for line in text.splitlines():
        places = [line.find(word) for word in _ARGUMENTS_OF_LINK if word in line]
        image = _IMAGE.search(line)
        if places and image is not None:
            return (_LIBM,) if image.start() < min(places) else (_LIBM, "-lmvec")
    return ()
