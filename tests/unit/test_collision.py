"""Objects with duplicate kernel names: which are linked separately, and how."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.hostile import bit_flips, extreme_fields, spliced, survives

from mlir_offload.offload.host.embed import HostKernel, render_stub
from mlir_offload.offload.host.object_entry import HostEntry
from mlir_offload.offload.link.collision import (
    Collision,
    KernelStubs,
    LinkInput,
    check_launches,
    detach_object,
    find_collisions,
    objects_to_finish,
    read_stubs,
)
from mlir_offload.offload.link.objects import ObjectContents
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.process import Command, ProcessRunner, run_checked


def contents(
    name: str, *kernels: str, member: str = "", is_device_linked: bool = False
) -> ObjectContents:
    entries = tuple(
        HostEntry("cuda", kernel, 0, is_device_linked=is_device_linked) for kernel in kernels
    )
    return ObjectContents(
        Path(name),
        member,
        is_relocatable=True,
        images=(),
        entries=entries,
        runtime_symbols=frozenset(),
        fatbins=(),
    )


def link_input(
    name: str,
    *kernels: str,
    member: str = "",
    is_own: bool = True,
    launched: frozenset[str] = frozenset(),
) -> LinkInput:
    stubs = frozenset(f"__device_stub__{kernel}" for kernel in kernels)
    own = frozenset(kernels) if is_own else frozenset[str]()
    return LinkInput(
        contents(name, *kernels, member=member), Path(name), KernelStubs(own, stubs, launched)
    )


def finished(*inputs: LinkInput) -> list[int]:
    collisions = find_collisions([item.contents for item in inputs])
    return sorted(objects_to_finish(collisions, inputs))


def test_kernels_of_one_name_and_kind_collide_where_they_are_yet_to_be_linked() -> None:
    objects = [
        contents("a.o", "k", "l"),
        contents("b.o", "l", "l"),
        contents("c.o", "k", is_device_linked=True),
        contents("d.o", "m"),
        contents("e.a", "l", member="l.o"),
    ]
    assert find_collisions(objects) == (Collision("cuda", "l", (0, 1, 4)),)


@pytest.mark.parametrize(
    ("inputs", "apart"),
    [
        ((link_input("a.o", "k"), link_input("b.o", "l")), []),
        ((link_input("a.o", "k"), link_input("b.o", "k"), link_input("c.o", "k")), [1, 2]),
        # An object is linked separately with all of its kernels.
        ((link_input("a.o", "k", "l"), link_input("b.o", "k"), link_input("c.o", "l")), [1, 2]),
        ((link_input("a.o", "k"), link_input("b.o", "k", "l"), link_input("c.o", "l")), [1]),
        # An object remains in the common link in preference to a member of a library, which may not be linked.
        ((link_input("a.a", "k", member="k.o"), link_input("b.o", "k")), [0]),
        # Objects of other compilers remain in the common link.
        ((link_input("a.o", "k"), link_input("b.o", "k", is_own=False)), [0]),
        ((link_input("a.o", "_Z1kv", is_own=False), link_input("b.o", "_Z1kv", is_own=False)), []),
        ((link_input("a.o", "_Z1kv", is_own=False), link_input("b.o", "_Z1kv")), [1]),
    ],
)
def test_all_but_one_of_the_objects_are_finished(
    inputs: tuple[LinkInput, ...], apart: list[int]
) -> None:
    assert finished(*inputs) == apart


@pytest.mark.parametrize("is_own", [True, False])
def test_a_launch_from_elsewhere_must_mean_one_of_them(is_own: bool) -> None:  # noqa: FBT001
    caller = link_input("main.o", launched=frozenset({"__device_stub__k"}))
    inputs = (link_input("a.o", "k"), link_input("b.o", "k", is_own=is_own), caller)
    collisions = find_collisions([item.contents for item in inputs])
    if not is_own:
        # The stub of CUDA C++ is a strong symbol, so that the launch refers to its file.
        check_launches(collisions, inputs)
        return
    with pytest.raises(
        SourceError, match=r"launched here, and defined by a\.o and by b\.o"
    ) as error:
        check_launches(collisions, inputs)
    assert error.value.location == "main.o"


@pytest.fixture(scope="module")
def finished_object(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return an object with stubs of kernels `k` and `_Z1kv`, and an image of a finished link."""
    directory = tmp_path_factory.mktemp("finished")
    source, output = directory / "host.ll", directory / "host.o"
    stubs = "".join(render_stub(HostKernel(name, ("i32",))) for name in ("k", "_Z1kv"))
    image = '@image = private constant [4 x i8] c"abcd", section ".llvm.offloading.relocatable"\n'
    text = f"{image}{stubs}declare void @mlir_offload_launch_stub(ptr, ptr)\n"
    text += "define void @other__device_stub__() {\n  ret void\n}\n"
    source.write_text(text, encoding="utf-8")
    flags = ("-Wno-override-module", "-O0", "-c", str(source), "-o", str(output))
    run_checked(ProcessRunner(), Command(("/usr/lib/llvm-22/bin/clang", *flags)))
    return output.read_bytes()


@pytest.mark.llvm(22)
def test_a_detached_object_gives_way_to_others_and_hides_its_images_from_the_wrapper(
    finished_object: bytes, tmp_path: Path
) -> None:
    assert read_stubs(memory_view(finished_object)) == KernelStubs(
        frozenset({"k", "_Z1kv"}),
        frozenset({"__device_stub__k", "_Z16__device_stub__kv", "other__device_stub__"}),
        frozenset(),
        frozenset({"mlir_offload_launch_stub"}),
    )
    path = tmp_path / "host.o"
    path.write_bytes(detach_object(finished_object))
    said = run_checked(
        ProcessRunner(),
        Command(("/usr/lib/llvm-22/bin/llvm-readelf", "-sSW", str(path))),
    ).stdout.splitlines()
    (section,) = (line for line in said if ".llvm.offloading.relocatable" in line)
    assert " PROGBITS " in section
    bindings = {line.split()[-1]: line.split()[4] for line in said if "__device_stub__" in line}
    assert bindings == {
        "__device_stub__k": "WEAK",
        "_Z16__device_stub__kv": "WEAK",
        "other__device_stub__": "GLOBAL",
    }


@pytest.mark.llvm(22)
@pytest.mark.parametrize("read", [detach_object, lambda data: read_stubs(memory_view(data))])
def test_a_damaged_object_is_read_or_refused(
    finished_object: bytes, read: Callable[[bytes], object]
) -> None:
    assert survives(read, extreme_fields(finished_object, 64)) > 0
    assert survives(read, spliced(finished_object, 200)) > 0
    # The section headers are at the end.
    start = len(finished_object) - 64 * 16
    headers = (
        finished_object[:start] + tail for tail in bit_flips(finished_object[start:], step=3)
    )
    assert survives(read, headers) > 0
