from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.link_contents import ARRAY_22, bitcode, contents

from mlir_offload.offload.host.object_entry import HostEntry
from mlir_offload.offload.link import coverage
from mlir_offload.offload.link.coverage import (
    ExpectedKernels,
    KernelImage,
    check_coverage,
    check_entries,
    expected_kernels,
    uncovered_kernels,
    unregistered_kernels,
)
from mlir_offload.offload.link.held_image import HeldImage
from mlir_offload.offload.link.objects import ObjectContents
from mlir_offload.toolchain.errors import VerificationError

Held = dict[tuple[str, str], set[str] | None]


def test_expected_are_the_kernels_of_objects_and_the_archs_of_all() -> None:
    expected = expected_kernels(
        [
            contents("a.o", ("k",), (bitcode("sm_80"),)),
            contents("b.a", ("l",), (bitcode("sm_90"),), member="b.o"),
        ]
    )
    assert expected.kernels == {("cuda", "k")}
    assert expected.archs == {("cuda", "sm_80")}
    assert expected.member_archs == {("cuda", "sm_90")}


def test_members_of_a_library_that_is_taken_as_a_whole_count_as_objects() -> None:
    member = contents("b.a", ("l",), (bitcode("sm_90"),), member="b.o")
    expected = expected_kernels([replace(member, is_whole=True)])
    assert expected == ExpectedKernels(frozenset({("cuda", "l")}), frozenset({("cuda", "sm_90")}))


def test_shared_libraries_and_finished_objects_answer_for_themselves() -> None:
    finished = HostEntry("cuda", "k", 0, is_device_linked=True)
    expected = expected_kernels(
        [
            replace(contents("a.so", ("k",), (bitcode("sm_80"),)), is_relocatable=False),
            replace(contents("b.o"), entries=(finished,)),
        ]
    )
    assert expected == ExpectedKernels(frozenset(), frozenset())


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> Held:
    """What the images of the linked file hold, by kind and architecture; it registers kernel `k`."""
    held: Held = {}

    def images(_: ObjectContents) -> Iterator[HeldImage]:
        for (kind, arch), names in held.items():
            yield HeldImage(kind, arch, None if names is None else frozenset(names))

    output = replace(contents("a.out", ("k",), array=ARRAY_22), is_relocatable=False)
    monkeypatch.setattr(coverage, "read_objects", lambda _: (output,))
    monkeypatch.setattr(coverage, "loaded_images", images)
    return held


def test_a_link_that_holds_all_is_accepted(linked: Held) -> None:
    linked["cuda", "sm_90"] = {"k"}
    check_coverage(Path("a.out"), [contents("a.o", ("k",), (bitcode("sm_90"),))])


def test_an_entry_that_the_linker_removed_is_reported(linked: Held) -> None:
    linked["cuda", "sm_90"] = {"k", "l"}
    inputs = [contents("a.o", ("k",)), contents("b.a", ("m",), member="b.o")]
    check_entries(Path("a.out"), inputs)
    with pytest.raises(VerificationError, match="removed the entries that register kernels: l"):
        check_entries(Path("a.out"), [*inputs, contents("b.o", ("l",))])


def test_every_object_that_was_compiled_for_too_few_archs_is_reported(linked: Held) -> None:
    linked["cuda", "sm_80"] = {"k"}
    linked["cuda", "sm_90"] = {"l"}
    inputs = [
        contents("a.o", ("k",), (bitcode("sm_80"),)),
        contents("b.o", ("l",), (bitcode("sm_90"),)),
    ]
    with pytest.raises(VerificationError) as caught:
        check_coverage(Path("linked"), inputs, name="app")
    lines = caught.value.message.splitlines()
    assert lines[0] == "2 errors in the link inputs:"
    assert lines[1:] == [
        "  app: the device images lack kernels that the host registers: 'l' for sm_80",
        "    hint: b.o is made for sm_90: compile it with --offload-arch=sm_80 too",
        "  app: the device images lack kernels that the host registers: 'k' for sm_90",
        "    hint: a.o is made for sm_80: compile it with --offload-arch=sm_90 too",
    ]


def test_the_archs_of_a_library_count_only_if_its_members_were_taken(linked: Held) -> None:
    linked["cuda", "sm_90"] = {"k"}
    member = contents("b.a", ("l",), (bitcode("sm_80"),), member="b.o")
    inputs = [contents("a.o", ("k",), (bitcode("sm_90"),)), member]
    check_coverage(Path("a.out"), inputs)
    linked["cuda", "sm_80"] = {"l"}
    with pytest.raises(VerificationError, match="'k' for sm_80"):
        check_coverage(Path("a.out"), inputs)


@pytest.mark.parametrize("kind", ["cuda", "hip", "openmp"])
def test_a_kernel_that_the_link_lost_is_reported(linked: Held, kind: str) -> None:
    linked["cuda", "sm_90"] = {"k"}
    linked[kind, "sm_90"] = linked.get((kind, "sm_90"), set())
    item = contents("a.o", ("other",), (replace(bitcode("sm_90"), kind=kind),), kind=kind)
    with pytest.raises(VerificationError, match="'other' for sm_90") as caught:
        check_coverage(Path("a.out"), [item])
    assert caught.value.hint == "compile a.o again; its image for sm_90 lost the kernel"
    assert caught.value.location == "a.out"


def test_an_image_that_is_not_looked_into_is_trusted(linked: Held) -> None:
    linked["cuda", "sm_90"] = None
    check_coverage(Path("a.out"), [contents("a.o", ("k",), (bitcode("sm_90"),))])


def test_a_kernel_without_any_image_is_reported(linked: Held) -> None:
    assert not linked
    with pytest.raises(VerificationError, match="'k' for host") as caught:
        check_coverage(Path("a.out"), [])
    assert caught.value.hint == "name the object that defines the kernel on the link line"


def test_a_long_list_of_missing_kernels_is_cut(linked: Held) -> None:
    linked["cuda", "sm_90"] = {"k"}
    names = tuple(f"n{number}" for number in range(20))
    with pytest.raises(VerificationError, match="and 12 more"):
        check_coverage(Path("a.out"), [contents("a.o", names, (bitcode("sm_90"),))])


def shared(*kernels: str) -> ObjectContents:
    return replace(contents("lib.so", kernels, array=ARRAY_22), is_relocatable=False)


def test_a_linked_file_without_its_images_has_unregistered_kernels(linked: Held) -> None:
    assert unregistered_kernels(shared("k", "l")) == (("cuda", "k"), ("cuda", "l"))
    linked["hip", "gfx90a"] = {"k"}
    assert unregistered_kernels(shared("k")) == (("cuda", "k"),)
    linked["cuda", "sm_90"] = {"l"}
    assert unregistered_kernels(shared("k", "l")) == (("cuda", "k"),)
    linked["cuda", "sm_80"] = None
    assert unregistered_kernels(shared("k", "l")) == ()


def test_an_object_that_is_still_to_be_linked_has_no_unregistered_kernel() -> None:
    item = contents("a.o", ("k",))
    assert unregistered_kernels(item) == ()
    finished = replace(item, entries=(HostEntry("cuda", "k", 0, is_device_linked=True),))
    assert unregistered_kernels(finished) == (("cuda", "k"),)


def test_a_linked_file_tells_which_kernels_only_some_archs_have(linked: Held) -> None:
    linked["cuda", "sm_80"] = {"k", "l"}
    linked["cuda", "sm_90"] = {"k"}
    assert [str(pair) for pair in uncovered_kernels(shared("k", "l"))] == ["'l' for sm_90"]


def test_a_kernel_of_an_object_linked_apart_is_not_that_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = [HeldImage("cuda", "sm_80", frozenset({"k"})), HeldImage("cuda", "sm_80", frozenset())]
    output = replace(contents("a.out", ("k",), array=ARRAY_22), is_relocatable=False)
    own = HostEntry("cuda", "k", 0, section="llvm_offload_entries_1", is_device_linked=True)
    output = replace(output, entries=(*output.entries, own))
    monkeypatch.setattr(coverage, "read_objects", lambda _: (output,))
    monkeypatch.setattr(coverage, "loaded_images", lambda item: held if item is output else [])
    inputs = [contents(name, ("k",), (bitcode("sm_80"),)) for name in ("a.o", "b.o")]

    with pytest.raises(VerificationError, match="'k' for sm_80"):
        check_coverage(Path("a.out"), inputs)

    held[1] = HeldImage("cuda", "sm_80", frozenset({"k"}))
    check_coverage(Path("a.out"), inputs)
    # An object that was linked separately has its own image.
    held[1:] = [HeldImage("cuda", "sm_80", frozenset({"other"}))]
    monkeypatch.setattr(coverage, "held_kernels", lambda _: {KernelImage("cuda", "sm_80", "k")})
    with pytest.raises(VerificationError, match="'k' for sm_80"):
        check_coverage(Path("a.out"), [inputs[0], replace(contents("c.o"), entries=(own,))])
