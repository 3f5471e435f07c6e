"""Probe which targets a device link groups together, and how it searches static libraries.

With `--dry-run`, the linker wrapper prints the commands that it would run; their inputs show its choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import structs

from mlir_offload.offload.abi import OffloadAbi, TargetGroups, load_abi
from mlir_offload.offload.calibrate.probe import CannotLearnError, Learned, ProbeBench
from mlir_offload.offload.container.packager import ImageRecord, record_parts
from mlir_offload.offload.image import ImageKind
from mlir_offload.offload.link.grouping import group_targets
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.learned_row import ArchivesRow, HostArchRow, TargetGroupsRow

_AMDGPU = "amdgcn-amd-amdhsa"
_HIP_ARCHS = ("gfx90a", "gfx90a:xnack+", "gfx90a:xnack-", "gfx942")
_HOST_ARCHS = ("x86-64", "generic")
_RULES = (
    TargetGroups(None, has_target_ids=False),
    TargetGroups(None, has_target_ids=True),
    TargetGroups("generic", has_target_ids=True),
    TargetGroups(None, has_target_ids=True, into_specific=True),
)
# The temporary file of the wrapper for an image, named after the target: host-TRIPLE-ARCH-1a2b3c.o
_INPUT = r"\S*?-{triple}-([\w:+-]*)-\w{{6}}\.\w+"
_OWN_ARCH = re.compile(r"--image=[^\" ]*,arch=([^,\" ]*)")
_CALLER = "void mo_callee(void); void mo_kernel(void) { mo_callee(); }\n"
_CALLEE = "void mo_callee(void) {}\n"
_FLAGS = ("-pic-level", "2", "-mrelocation-model", "pic", "-emit-obj")
_Groups = list[tuple[str, ...]]


def learn_links(bench: ProbeBench) -> Learned:
    """Learn which images are linked together, and in which order static libraries are searched."""
    abi = load_abi(bench.llvm.version.major)
    caller, callee = (_device_code(bench, text) for text in (_CALLER, _CALLEE))
    found = Learned()
    groups = _target_groups(bench, abi, callee)
    if groups is not None:
        found.rows.append(TargetGroupsRow(*structs.astuple(groups)))
        arch = "" if groups.wildcard is not None else _own_arch(bench)
        found.rows.append(HostArchRow(arch))
    else:
        found.assumed.append("offload_abi.linker_wrapper.target_groups: no known rule")
    found.rows.append(_archives(bench, abi, caller, callee))
    return found


def _own_arch(bench: ProbeBench) -> str:
    """Return the arch that clang gives its own CPU images, with which images of this driver must be linked."""
    words = ("-fopenmp", f"-fopenmp-targets={bench.host}", "-c", "host.c", "-o", "host.o", "-###")
    match = _OWN_ARCH.search(bench.run("clang", words).stderr)
    return match[1] if match else ""


def _device_code(bench: ProbeBench, text: str) -> bytes:
    (bench.folder / "device.c").write_text(text, encoding="utf-8")
    bench.output("clang", ("-cc1", "-triple", bench.host, *_FLAGS, "device.c", "-o", "device.o"))
    return (bench.folder / "device.o").read_bytes()


def _image(abi: OffloadAbi, kind: str, triple: str, arch: str, content: bytes) -> bytes:
    strings = ((b"triple", triple.encode()), (b"arch", arch.encode()))
    code = dict(abi.kind_codes)[kind]
    parts = record_parts(ImageRecord(code, ImageKind.OBJECT, strings, memory_view(content)))
    return b"".join(part if isinstance(part, bytes) else part.whole() for part in parts)


def _embedded(bench: ProbeBench, name: str, images: Iterable[bytes]) -> str:
    """Return the name of an object that embeds the images."""
    (bench.folder / "images").write_bytes(b"".join(images))
    (bench.folder / "host.c").write_text(f"int {name};\n", encoding="utf-8")
    embed = ("-Xclang", "-fembed-offload-object=images")
    bench.output("clang", ("-fPIC", "-c", "host.c", *embed, "-o", f"{name}.o"))
    return f"{name}.o"


def _dry_run(bench: ProbeBench, files: Sequence[str]) -> str:
    words = ("-shared", "-nostdlib", "--offload-link", "-Wl,--dry-run", *files, "-o", "linked")
    done = bench.run("clang", words)
    return done.stdout + done.stderr


def _inputs(text: str, triple: str) -> Iterator[tuple[str, ...]]:
    """Yield the architectures of the images in each device link for a triple."""
    pattern = re.compile(_INPUT.format(triple=re.escape(triple)))
    for line in text.splitlines():
        archs = tuple(sorted(_plain(match[1]) for match in pattern.finditer(line)))
        if archs and "bundler" not in line and "fatbinary" not in line:
            yield archs


def _target_groups(bench: ProbeBench, abi: OffloadAbi, content: bytes) -> TargetGroups | None:
    """Return the rule by which the wrapper groups the targets of an object; None if no known rule applies."""
    host = bench.host
    images = [_image(abi, "hip", _AMDGPU, arch, content) for arch in _HIP_ARCHS]
    images += [_image(abi, "openmp", host, arch, content) for arch in _HOST_ARCHS]
    text = _dry_run(bench, [_embedded(bench, "groups", images)])
    seen = (sorted(_inputs(text, _AMDGPU)), sorted(_inputs(text, host)))
    for rules in _RULES:
        if seen == (_grouped(_AMDGPU, _HIP_ARCHS, rules), _grouped(host, _HOST_ARCHS, rules)):
            return rules
    return None


def _grouped(triple: str, archs: Sequence[str], rules: TargetGroups) -> _Groups:
    """Return the groups that a rule makes, with `-` for `:`, as some releases write it in file names."""
    groups = group_targets([(triple, arch) for arch in archs], rules).values()
    return sorted(tuple(sorted(_plain(archs[one]) for one in members)) for members in groups)


def _plain(arch: str) -> str:
    return arch.replace(":", "-")


def _archives(bench: ProbeBench, abi: OffloadAbi, caller: bytes, callee: bytes) -> ArchivesRow:
    """Return whether the link ignores a library that precedes the object that needs its code."""
    first, member = (
        _embedded(bench, name, [_image(abi, "openmp", bench.host, "", content)])
        for name, content in (("first", caller), ("member", callee))
    )
    library = "library.a"
    Path(bench.folder / library).unlink(missing_ok=True)
    bench.output("llvm-ar", ("rcs", library, member))
    if _taken(bench, (library, first)):
        return ArchivesRow(in_order=False)
    if not _taken(bench, (first, library)):
        msg = "a device link takes no member of a static library"
        raise CannotLearnError(msg)
    return ArchivesRow(in_order=True)


def _taken(bench: ProbeBench, files: Sequence[str]) -> bool:
    """Return whether a device link uses both the object and the member of the library."""
    return max(map(len, _inputs(_dry_run(bench, files), bench.host)), default=0) == 2  # noqa: PLR2004
