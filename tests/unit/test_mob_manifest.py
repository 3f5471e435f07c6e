"""The manifest of a bundle: it is read as written, and invalid ones are rejected."""

from __future__ import annotations

import copy
import json
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace
from support.hostile import bit_flips, survives

from mlir_offload.driver.bundle.recipe import Recipe
from mlir_offload.driver.bundle.requirement import llvm_requirement
from mlir_offload.offload.container.mob_manifest import (
    MANIFEST,
    LlvmRequirement,
    MobDevice,
    MobManifest,
    MobUnit,
    digest,
    read_manifest,
    render_manifest,
)
from mlir_offload.offload.device.kernel import DeviceKernel, KernelParameter
from mlir_offload.toolchain.byte_view import ByteView, memory_view
from mlir_offload.toolchain.errors import CompatibilityError, VerificationError
from mlir_offload.toolchain.target import NVPTX_TRIPLE, Kind, Target

HOST = "x86_64-pc-linux-gnu"
CONTENT = {
    "host/0-k.ll": b"host",
    "device/0-k.0.nvptx.ll": b"device",
    "device/0-k.1.cpu.ll": b"cpu",
    "lib/libdevice.bc": b"BC",
}
KERNEL = DeviceKernel(
    "k",
    parameters=(KernelParameter(0, 8, "ptr"), KernelParameter(8, 4, "i32")),
    max_threads=64,
    required_threads=(8, 8, 1),
    shared_bytes=256,
)


def written() -> MobManifest:
    gpus = tuple(Target(Kind.CUDA, NVPTX_TRIPLE, arch) for arch in ("sm_80", "sm_90"))
    devices = (
        MobDevice("device/0-k.0.nvptx.ll", Kind.CUDA, gpus, (KERNEL,), needs_libdevice=True),
        MobDevice(
            "device/0-k.1.cpu.ll",
            Kind.OPENMP,
            (Target(Kind.OPENMP, HOST, "host"),),
            (DeviceKernel("k"),),
        ),
    )
    return MobManifest(
        name="k",
        producers=(("mlir-offload", "1.0"), ("llvm", "19.1.7")),
        host_triple=HOST,
        opt_level=2,
        debug=False,
        pic=True,
        llvm=LlvmRequirement(19, None, (20,)),
        runtime="0" * 64,
        cuda=(11, 8),
        libdevice="lib/libdevice.bc",
        units=(MobUnit("k.mlir", "host/0-k.ll", devices),),
        files=tuple((name, digest(content)) for name, content in sorted(CONTENT.items())),
    )


def members(manifest: bytes, **changed: bytes | None) -> dict[str, ByteView]:
    content = {**CONTENT, MANIFEST: manifest, **changed}
    return {name: memory_view(data) for name, data in content.items() if data is not None}


def document() -> Any:
    return json.loads(render_manifest(written()))


def read(value: Any, **changed: bytes | None) -> MobManifest:
    return read_manifest(members(json.dumps(value).encode(), **changed), "k.mob")


def test_what_is_written_is_read() -> None:
    assert read(document()) == written()


def test_the_schema_describes_what_is_written() -> None:
    schema = json.loads(
        files("mlir_offload.offload").joinpath("data", "mob.schema.json").read_text()
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document(), schema)
    for field in document():
        without = {key: value for key, value in document().items() if key != field}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(without, schema)
        with pytest.raises(VerificationError, match=f"{field} is missing"):
            read(without)


def changed(path: str, value: object) -> Any:
    """Return the document with the value at a path such as `units.0.host`."""
    made = copy.deepcopy(document())
    *parents, last = path.split(".")
    place = made
    for key in parents:
        place = place[int(key) if isinstance(place, list) else key]
    place[int(last) if isinstance(place, list) else last] = value
    return made


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("format", "zip", "format is 'zip'"),
        ("units", {}, "units is {}: not an array"),
        ("units.0", [], r"units\[0\] is \[\]: not an object"),
        ("units.0.devices.0.kind", "sycl", r"units\[0\].devices\[0\].kind is 'sycl'"),
        ("units.0.devices.0.archs.0", "sm_90;rm", r"archs\[0\] is 'sm_90;rm'"),
        ("units.0.devices.0.kernels.0.parameters.1.size", -4, "size is -4"),
        ("units.0.devices.0.kernels.0.required_threads", [1], "not three numbers"),
        ("units.0.devices.0.kernels.0.max_threads", True, "max_threads is True"),
        ("flags.opt_level", 9, "opt_level is 9"),
        ("flags.debug", 0, "debug is 0"),
        ("host_triple", "x; y", "host_triple"),
        ("requires.llvm.first", "19", "first is '19'"),
        ("requires.cuda", "new", "cuda is 'new'"),
        ("runtime", "abc", "runtime is 'abc'"),
        ("name", "../k", "name is '../k'"),
        ("units.0.source", "..", "source is '..'"),
        ("units.0.source", "a/b", "source is 'a/b'"),
        ("producers.llvm", "\x1b[2J", "producers.llvm is"),
        ("producers", {"\x1b[2J": "1"}, "not names of programs"),
        ("units.0.host", "/etc/passwd", "/etc/passwd is used but not among the files"),
        ("libdevice", "manifest.json", "manifest.json is used but not"),
    ],
)
def test_a_wrong_field_is_named(path: str, value: object, said: str) -> None:
    with pytest.raises(VerificationError, match=said):
        read(changed(path, value))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"host/0-k.ll": b"hosT"}, "host/0-k.ll is not what the manifest says"),
        ({"host/0-k.ll": None}, "host/0-k.ll is missing"),
        ({"extra": b""}, "extra is not named in the manifest"),
        ({MANIFEST: None}, "there is no manifest.json"),
        ({MANIFEST: b"{"}, "manifest.json is not JSON"),
        ({MANIFEST: b"[" * 100_000}, "manifest.json is not JSON"),
        ({MANIFEST: b"9" * 5000}, "manifest.json is not JSON"),
        ({MANIFEST: b"\xff"}, "manifest.json is not JSON"),
        ({MANIFEST: b"3"}, "the document is 3: not an object"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_members_must_be_what_it_says(changes: dict[str, bytes | None], said: str) -> None:
    with pytest.raises(VerificationError, match=said):
        read(document(), **changes)


def test_a_later_version_is_another_thing_than_damage() -> None:
    with pytest.raises(CompatibilityError, match="bundle of version 2"):
        read({"format": "mlir-offload bundle", "version": 2, "news": []})


def test_no_flipped_bit_brings_it_down() -> None:
    text = render_manifest(written()).encode()
    survives(lambda data: read_manifest(members(data), "k.mob"), bit_flips(text, 13))


@pytest.mark.parametrize(
    ("for_clang", "producer", "first", "last", "without"),
    [
        ("any", 19, 19, None, (20,)),
        ("any", 22, 22, None, ()),
        ("22", 22, 22, None, ()),
        ("22", 19, 21, None, ()),
        ("19", 19, 19, 19, ()),
        ("20", 19, 20, 20, ()),
        ("16", 22, 16, 19, ()),
        ("16", 19, 16, 19, ()),
        ("19", 22, 19, 19, ()),
    ],
)
def test_who_can_read_a_bundle(
    for_clang: str, producer: int, first: int, last: int | None, without: tuple[int, ...]
) -> None:
    required = llvm_requirement(for_clang, producer)
    assert required == LlvmRequirement(first, last, without)
    assert required.admits(first)
    assert not required.admits(first - 1)


def test_the_line_for_clang_names_no_place_and_each_image_once() -> None:
    recipe = Recipe(written())
    line = recipe.render_line()
    assert "/usr/" not in line.replace("/usr/local/cuda", "")
    for image in recipe.images:
        assert line.count(f"-o {image.file} ") == 1
        assert f'.incbin "{image.file}"' in recipe.render_images()
    assert "-mlink-builtin-bitcode -Xclang lib/libdevice.bc" in line


@pytest.mark.parametrize(("major", "arch"), [(22, ""), (23, "generic")])
def test_images_for_the_cpu_have_the_arch_that_clang_of_the_release_gives_its_own(
    major: int, arch: str
) -> None:
    recipe = Recipe(replace(written(), llvm=LlvmRequirement(major, None, ())))
    (cpu,) = [number for number, (_, target) in enumerate(recipe.packaged) if target.is_cpu]
    assert f'.Lvalue{cpu}a: .asciz "{arch}"' in recipe.render_images()
