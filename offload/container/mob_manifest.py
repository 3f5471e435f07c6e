"""The manifest of a bundle (`.mob`): its contents, its producers and its requirements.

`data/mob.schema.json` specifies the format.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from mlir_offload.offload.device.kernel import DeviceKernel, KernelParameter
from mlir_offload.offload.json_field import JsonField
from mlir_offload.offload.kind_format import FORMATS
from mlir_offload.toolchain.byte_view import ByteView
from mlir_offload.toolchain.errors import CompatibilityError, VerificationError
from mlir_offload.toolchain.tables import LearnedRelease, parse_learned
from mlir_offload.toolchain.target import Kind, Target, device_kind

FORMAT = "mlir-offload bundle"
VERSION = 1
MANIFEST = "manifest.json"
_FORM = "bundle manifest"
_LARGEST = 16 << 20
_DIMENSIONS = 3
_DIGEST = re.compile(r"[0-9a-f]{64}")
_RELEASE = re.compile(r"(\d{1,3})\.(\d{1,3})")
# Names that are printed and used as file names: without characters special to terminals or directories.
_NAME = re.compile(r"[A-Za-z0-9_]{1,200}")
_SOURCE = re.compile(r"(?!\.+$)[^/\x00-\x1f\x7f]{1,255}")
_PRODUCER = re.compile(r"[ -~]{1,100}")
_HOST = re.compile(r"[a-z0-9_]+-[a-z0-9_]+-linux-gnu")


class LlvmRequirement(Struct, frozen=True):
    """The LLVM releases that read the contents of the bundle: `first` to `last` (None: and newer)."""

    first: int
    last: int | None = None
    without: tuple[int, ...] = ()

    def admits(self, major: int) -> bool:
        """Return whether a release can be used."""
        is_old_enough = self.last is None or major <= self.last
        return self.first <= major and is_old_enough and major not in self.without

    def __str__(self) -> str:
        """Return the releases as text for messages."""
        others = f" except {', '.join(map(str, self.without))}" if self.without else ""
        if self.last is None:
            return f"{self.first} or newer{others}"
        return (
            str(self.first) if self.first == self.last else f"{self.first} to {self.last}{others}"
        )


class MobDevice(Struct, frozen=True):
    """LLVM IR of a device module for the targets of one kind, and the kernels that it defines.

    `needs_libdevice`: the kernels call the vendor's device library, NVIDIA's or ROCm's.
    """

    file: str
    kind: Kind
    targets: tuple[Target, ...]
    kernels: tuple[DeviceKernel, ...]
    needs_libdevice: bool = False


class MobUnit(Struct, frozen=True):
    """The compiled modules of one source: a host module, and device modules."""

    source: str
    host: str
    devices: tuple[MobDevice, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """Return the members of the archive that belong to the unit."""
        return (self.host, *(device.file for device in self.devices))


class MobManifest(Struct, frozen=True):
    """The manifest of a bundle.

    `producers` are the names and versions of the tools that made it. `runtime` is the hash of the runtime's
    sources. `cuda` is the oldest release that supports the architectures (None: CUDA is not needed).
    `libdevice` is the member that contains it. `files` are the SHA-256 hashes of all members but the
    manifest. `learned` are the rows for releases that the tables do not contain.
    """

    name: str
    producers: tuple[tuple[str, str], ...]
    host_triple: str
    opt_level: int
    debug: bool
    pic: bool
    llvm: LlvmRequirement
    runtime: str
    cuda: tuple[int, int] | None = None
    libdevice: str = ""
    units: tuple[MobUnit, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    learned: tuple[LearnedRelease, ...] = ()

    @property
    def devices(self) -> tuple[MobDevice, ...]:
        """Return the device modules of all units."""
        return tuple(device for unit in self.units for device in unit.devices)

    @property
    def targets(self) -> tuple[Target, ...]:
        """Return all distinct targets, sorted."""
        return tuple(sorted({target for device in self.devices for target in device.targets}))

    @property
    def kinds(self) -> frozenset[Kind]:
        """Return the device kinds of the modules."""
        return frozenset(device.kind for device in self.devices if device.targets)

    def archs(self, kind: Kind) -> tuple[str, ...]:
        """Return the architectures of a kind."""
        return tuple(target.arch for target in self.targets if target.kind is kind)

    @property
    def needs_libdevice(self) -> bool:
        """Return whether a kernel calls NVIDIA's libdevice and the bundle does not contain it."""
        return not self.libdevice and self.calls_library(Kind.CUDA)

    def calls_library(self, kind: Kind) -> bool:
        """Return whether a kernel of a kind calls the device library of the vendor."""
        return any(device.needs_libdevice for device in self.devices if device.kind is kind)


def digest(content: bytes) -> str:
    """Return the hash of a file for the manifest."""
    return hashlib.sha256(content).hexdigest()


def render_manifest(manifest: MobManifest) -> str:
    """Return the manifest as JSON; equal manifests give equal text."""
    llvm = manifest.llvm
    cuda = manifest.cuda
    return (
        json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "name": manifest.name,
                "producers": dict(manifest.producers),
                "host_triple": manifest.host_triple,
                "flags": {
                    "opt_level": manifest.opt_level,
                    "debug": manifest.debug,
                    "pic": manifest.pic,
                },
                "requires": {
                    "llvm": {"first": llvm.first, "last": llvm.last, "without": [*llvm.without]},
                    "cuda": f"{cuda[0]}.{cuda[1]}" if cuda else None,
                    "libdevice": manifest.needs_libdevice,
                },
                "libdevice": manifest.libdevice or None,
                "runtime": manifest.runtime,
                "units": [_unit(unit) for unit in manifest.units],
                "files": dict(manifest.files),
                **_learned(manifest),
            },
            indent=1,
        )
        + "\n"
    )


def _learned(manifest: MobManifest) -> dict[str, Any]:
    rows = [json.loads(release.text) for release in manifest.learned]
    return {"learned": rows} if rows else {}


def _unit(unit: MobUnit) -> dict[str, Any]:
    devices = [_device(device) for device in unit.devices]
    return {"source": unit.source, "host": unit.host, "devices": devices}


def _device(device: MobDevice) -> dict[str, Any]:
    return {
        "file": device.file,
        "kind": str(device.kind),
        "archs": [target.arch for target in device.targets],
        "needs_libdevice": device.needs_libdevice,
        "kernels": [_kernel(kernel) for kernel in device.kernels],
    }


def _kernel(kernel: DeviceKernel) -> dict[str, Any]:
    parameters = kernel.parameters
    return {
        "name": kernel.name,
        "parameters": None if parameters is None else [*map(_parameter, parameters)],
        "max_threads": kernel.max_threads,
        "required_threads": kernel.required_threads and [*kernel.required_threads],
        "shared_bytes": kernel.shared_bytes,
    }


def _parameter(parameter: KernelParameter) -> dict[str, Any]:
    offset, size = parameter.offset, parameter.size_bytes
    return {"offset": offset, "size": size, "type": parameter.type}


def read_manifest(members: Mapping[str, ByteView], location: str) -> MobManifest:
    """Read the manifest and verify the members against it.

    Raises VerificationError if it is corrupt, or if a member is missing, changed or not listed;
    CompatibilityError for an unknown version.
    """
    manifest = _parse(_load(members, location))
    listed = dict(manifest.files)
    for name, expected in listed.items():
        if name not in members:
            raise _damaged(location, f"{name} is missing")
        found = hashlib.sha256()
        for chunk in members[name].chunks():
            found.update(chunk)
        if found.hexdigest() != expected:
            raise _damaged(location, f"{name} is not what the manifest says: its SHA-256 differs")
    extra = sorted(set(members) - set(listed) - {MANIFEST})
    if extra:
        raise _damaged(location, f"{extra[0]} is not named in the manifest")
    used = [manifest.libdevice] if manifest.libdevice else []
    used += [name for unit in manifest.units for name in unit.files]
    absent = [name for name in used if name not in listed]
    if absent:
        raise _damaged(location, f"{absent[0]} is used but not among the files")
    return manifest


def _damaged(location: str, reason: str) -> VerificationError:
    hint = "copy the bundle again, or make it again"
    return VerificationError(f"damaged bundle: {reason}", hint=hint, location=location)


def _load(members: Mapping[str, ByteView], location: str) -> JsonField:
    content = members.get(MANIFEST)
    if content is None:
        raise _damaged(location, f"there is no {MANIFEST}")
    if content.size > _LARGEST:
        raise _damaged(location, f"{MANIFEST} has {content.size} bytes")
    try:
        value = json.loads(content.whole().decode())
    except (ValueError, RecursionError) as error:
        raise _damaged(location, f"{MANIFEST} is not JSON: {error}") from error
    root = JsonField(value, _FORM, "", location)
    if root["format"].text() != FORMAT:
        root["format"].fail(f"not '{FORMAT}'")
    version = root["version"].number()
    if version != VERSION:
        msg = f"bundle of version {version}: this mlir-offload reads version {VERSION}"
        hint = "install a newer mlir-offload, or link with clang as README.md in the bundle says"
        raise CompatibilityError(msg, hint=hint, location=location)
    return root


def _parse(root: JsonField) -> MobManifest:
    flags, requires = root["flags"], root["requires"]
    host_triple = root["host_triple"].text(_HOST)
    return MobManifest(
        name=root["name"].text(_NAME),
        producers=tuple(_producers(root["producers"])),
        host_triple=host_triple,
        opt_level=flags["opt_level"].number(most=3),
        debug=flags["debug"].truth(),
        pic=flags["pic"].truth(),
        llvm=_llvm(requires["llvm"]),
        runtime=root["runtime"].text(_DIGEST),
        cuda=_release(requires["cuda"]),
        libdevice="" if root["libdevice"].is_null else root["libdevice"].text(),
        units=tuple(_read_unit(unit, host_triple) for unit in root["units"].items()),
        files=tuple((name, value.text(_DIGEST)) for name, value in root["files"].members()),
        learned=tuple(_read_learned(root)),
    )


def _read_learned(root: JsonField) -> Iterator[LearnedRelease]:
    members = dict(root.members())
    for item in members["learned"].items() if "learned" in members else ():
        yield parse_learned(json.dumps(item.value), item.location)


def _producers(value: JsonField) -> Iterator[tuple[str, str]]:
    for name, version in value.members():
        if _PRODUCER.fullmatch(name) is None:
            value.fail("not names of programs")
        yield name, version.text(_PRODUCER)


def _llvm(value: JsonField) -> LlvmRequirement:
    last = value["last"]
    without = tuple(item.number() for item in value["without"].items())
    return LlvmRequirement(value["first"].number(), last.number_or_none(), without)


def _release(value: JsonField) -> tuple[int, int] | None:
    if value.is_null:
        return None
    major, minor = value.text(_RELEASE).split(".")
    return int(major), int(minor)


def _read_unit(value: JsonField, host_triple: str) -> MobUnit:
    devices = tuple(_read_device(item, host_triple) for item in value["devices"].items())
    return MobUnit(value["source"].text(_SOURCE), value["host"].text(), devices)


def _read_device(value: JsonField, host_triple: str) -> MobDevice:
    kinds = {str(one.name): one.name for one in FORMATS if one.is_bundled}
    name = value["kind"].text()
    if name not in kinds:
        value["kind"].fail(f"not one of {', '.join(kinds)}")
    kind = kinds[name]
    known = device_kind(kind)
    triple = host_triple if known.is_cpu else known.triple
    archs = [arch.text(known.arch_form) for arch in value["archs"].items()]
    return MobDevice(
        value["file"].text(),
        kind,
        tuple(Target(kind, triple, arch) for arch in archs),
        tuple(_read_kernel(kernel) for kernel in value["kernels"].items()),
        value["needs_libdevice"].truth(),
    )


def _read_kernel(value: JsonField) -> DeviceKernel:
    parameters, threads = value["parameters"], value["required_threads"]
    required = None if threads.is_null else tuple(item.number() for item in threads.items())
    if required is not None and len(required) != _DIMENSIONS:
        threads.fail("not three numbers")
    return DeviceKernel(
        value["name"].text(),
        parameters=None if parameters.is_null else tuple(map(_read_parameter, parameters.items())),
        max_threads=value["max_threads"].number_or_none(),
        required_threads=(required[0], required[1], required[2]) if required else None,
        shared_bytes=value["shared_bytes"].number_or_none(),
    )


def _read_parameter(value: JsonField) -> KernelParameter:
    return KernelParameter(value["offset"].number(), value["size"].number(), value["type"].text())
