"""Write lowered units into a bundle, with its manifest, README and link script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver import __version__
from mlir_offload.driver.bundle.readme import render_readme
from mlir_offload.driver.bundle.recipe import IMAGES, RUNTIME, Recipe
from mlir_offload.driver.bundle.requirement import cuda_requirement
from mlir_offload.driver.bundle.unit import LoweredDevice, LoweredUnit
from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.kind_build import build_of
from mlir_offload.offload.container.mob_archive import MobMember, serialize_archive
from mlir_offload.offload.container.mob_manifest import (
    MANIFEST,
    LlvmRequirement,
    MobDevice,
    MobManifest,
    MobUnit,
    digest,
    render_manifest,
)
from mlir_offload.offload.device.bitcode import llvm_major, read_device_bitcode
from mlir_offload.offload.device.kernel import DeviceKernel
from mlir_offload.offload.llvm_ir import in_process_llvm_major, write_bitcode_in_process
from mlir_offload.offload.runtime import runtime_digest, runtime_files
from mlir_offload.toolchain.bitcode.module import read_bitcode
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.tables import LearnedRelease, known_release
from mlir_offload.toolchain.target import host_triple
from mlir_offload.translate.kind.cuda import nvptx_device_ir

_LIBDEVICE = "lib/libdevice.bc"


def pack_bundle(
    context: BuildContext,
    units: Sequence[LoweredUnit],
    requirement: LlvmRequirement,
    libdevice: Path | None,
) -> bytes:
    """Return the archive. Equal sources, options and tools give equal bytes in any directory."""
    members: dict[str, bytes] = {}
    listed = [_pack_unit(context, number, unit, members) for number, unit in enumerate(units)]
    kinds = {device.kind for unit in listed for device in unit.devices}
    if kinds:
        members |= {f"{RUNTIME}/{name}": content for name, content in runtime_files()}
    if libdevice is not None:
        members[_LIBDEVICE] = libdevice.read_bytes()
    targets = {target for unit in listed for device in unit.devices for target in device.targets}
    manifest = MobManifest(
        name=_plain(units[0].source.stem) or "program",
        producers=(("mlir-offload", __version__), ("llvm", str(context.mlir.version))),
        host_triple=host_triple(),
        opt_level=context.options.opt_level,
        debug=context.options.debug,
        pic=context.options.pic,
        llvm=replace(requirement, first=max(requirement.first, *_bitcode_releases(units))),
        runtime=runtime_digest(),
        cuda=cuda_requirement(targets),
        libdevice=_LIBDEVICE if libdevice is not None else "",
        units=tuple(listed),
        learned=tuple(_learned(context)),
    )
    return _archive(manifest, members)


def _learned(context: BuildContext) -> Iterator[LearnedRelease]:
    """Yield the learned data of releases that are not in the tables and that made the bundle."""
    for major in sorted({context.mlir.version.major, context.consumer}):
        release = known_release(major)
        if release is not None:
            yield release


def _archive(manifest: MobManifest, members: Mapping[str, bytes]) -> bytes:
    recipe = Recipe(replace(manifest, files=_digests(members)))
    texts = {"README.md": render_readme(recipe), "link.sh": recipe.render_script()}
    if recipe.images:
        texts[IMAGES] = recipe.render_images()
    files = {**members, **{name: text.encode() for name, text in texts.items()}}
    files[MANIFEST] = render_manifest(replace(manifest, files=_digests(files))).encode()
    packed = {name: MobMember(content, name == "link.sh") for name, content in files.items()}
    return serialize_archive(manifest.name, packed)


def _digests(files: Mapping[str, bytes]) -> tuple[tuple[str, str], ...]:
    return tuple((name, digest(content)) for name, content in sorted(files.items()))


def _pack_unit(
    context: BuildContext, number: int, unit: LoweredUnit, members: dict[str, bytes]
) -> MobUnit:
    """Add the files of a unit to the members, and return its manifest entry."""
    stem = f"{number}-{_plain(unit.source.stem)}"
    host = f"host/{stem}{'.bc' if unit.source.suffix == '.bc' else '.ll'}"
    members[host] = unit.host.read_bytes()
    devices = []
    for index, device in enumerate(unit.devices):
        file = f"device/{stem}.{index}.{build_of(device.kind).bundle_ending}.ll"
        members[file] = device.path.read_bytes()
        kernels = _kernels(context, device)
        needs = device.needs_libdevice
        devices.append(MobDevice(file, device.kind, device.targets, kernels, needs))
    return MobUnit(unit.source.name, host, tuple(devices))


def _kernels(context: BuildContext, device: LoweredDevice) -> tuple[DeviceKernel, ...]:
    """Return the kernels with their parameters; only the names if llvmlite cannot read the IR."""
    names = [kernel.symbol for kernel in device.module.module.kernels]
    major = context.mlir.version.major
    if (in_process_llvm_major() or 0) < major:
        return tuple(DeviceKernel(name) for name in names)
    from_ready = build_of(device.kind).bundles_final_code
    path = device.path if from_ready else device.lowered
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    ready = text if from_ready else nvptx_device_ir(text, kernels=names, llvm_major=major)
    code = read_device_bitcode(memory_view(write_bitcode_in_process(ready)))
    return tuple(code.kernel(name) or DeviceKernel(name) for name in names)


def _bitcode_releases(units: Sequence[LoweredUnit]) -> Iterator[int]:
    """Yield the LLVM releases that wrote bitcode among the sources, and 0."""
    yield 0
    for unit in units:
        if unit.source.suffix == ".bc":
            module = read_bitcode(memory_view(unit.host.read_bytes(), location=str(unit.source)))
            yield llvm_major(module.producer) or 0


def _plain(stem: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in stem)
