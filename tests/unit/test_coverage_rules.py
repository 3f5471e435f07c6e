from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mlir_offload.offload import coverage
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.binary import PackagedImage
from mlir_offload.offload.coverage import (
    ExpectedKernels,
    KernelImage,
    check_coverage,
    check_duplicates,
    check_entry_layout,
    expected_kernels,
)
from mlir_offload.offload.host_entry import HostEntry
from mlir_offload.offload.image import ImageKind
from mlir_offload.offload.objects import ObjectContents
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import CompatibilityError, VerificationError

ARRAY_22 = ("llvm_offload_entries", 9)
ARRAY_19 = ("cuda_offloading_entries", 5)


def bitcode(arch: str, data: bytes = b"BC") -> PackagedImage:
    return PackagedImage("cuda", ImageKind.BITCODE, 0, (("arch", arch),), memory_view(data))


def contents(
    name: str,
    kernels: tuple[str, ...] = (),
    images: tuple[PackagedImage, ...] = (),
    array: tuple[str, int] = ARRAY_22,
    member: str = "",
) -> ObjectContents:
    entries = tuple(
        HostEntry("cuda", kernel, 0, section=array[0], fields=array[1]) for kernel in kernels
    )
    return ObjectContents(
        Path(name),
        member,
        is_relocatable=True,
        images=images,
        entries=entries,
        runtime_symbols=frozenset(),
        fatbins=(),
    )


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


def test_shared_libraries_and_finished_objects_answer_for_themselves() -> None:
    finished = HostEntry("cuda", "k", 0, is_finished=True)
    expected = expected_kernels(
        [
            replace(contents("a.so", ("k",), (bitcode("sm_80"),)), is_relocatable=False),
            replace(contents("b.o"), entries=(finished,)),
        ]
    )
    assert expected == ExpectedKernels(frozenset(), frozenset())


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> set[KernelImage]:
    """What the images of the linked file hold; it registers kernel `k`."""
    held: set[KernelImage] = set()
    monkeypatch.setattr(coverage, "read_objects", lambda _: (contents("a.out", ("k",)),))
    monkeypatch.setattr(coverage, "held_kernels", lambda _: frozenset(held))
    return held


def test_a_link_that_holds_all_is_accepted(linked: set[KernelImage]) -> None:
    linked.add(KernelImage("cuda", "sm_90", "k"))
    check_coverage(Path("a.out"), [contents("a.o", ("k",), (bitcode("sm_90"),))])


def test_a_kernel_compiled_for_fewer_archs_than_others_is_reported(
    linked: set[KernelImage],
) -> None:
    linked |= {KernelImage("cuda", "sm_80", "k"), KernelImage("cuda", "sm_90", "l")}
    inputs = [
        contents("a.o", ("k",), (bitcode("sm_80"),)),
        contents("b.o", ("l",), (bitcode("sm_90"),)),
    ]
    with pytest.raises(VerificationError) as caught:
        check_coverage(Path("a.out"), inputs)
    assert "'l' for sm_80, 'k' for sm_90" in caught.value.message
    assert caught.value.hint == "b.o is made for sm_90: compile it with --offload-arch=sm_80 too"
    assert caught.value.location == "a.out"


def test_the_archs_of_a_library_count_only_if_its_members_were_taken(
    linked: set[KernelImage],
) -> None:
    linked.add(KernelImage("cuda", "sm_90", "k"))
    member = contents("b.a", ("l",), (bitcode("sm_80"),), member="b.o")
    inputs = [contents("a.o", ("k",), (bitcode("sm_90"),)), member]
    check_coverage(Path("a.out"), inputs)
    linked.add(KernelImage("cuda", "sm_80", "l"))
    with pytest.raises(VerificationError, match="'k' for sm_80"):
        check_coverage(Path("a.out"), inputs)


def test_a_kernel_that_the_link_lost_is_reported(linked: set[KernelImage]) -> None:
    linked.add(KernelImage("cuda", "sm_90", "other"))
    with pytest.raises(VerificationError, match="'k' for sm_90") as caught:
        check_coverage(Path("a.out"), [contents("a.o", ("k",), (bitcode("sm_90"),))])
    assert "compile a.o again" in caught.value.hint


def test_a_kernel_without_any_image_is_reported(linked: set[KernelImage]) -> None:
    assert not linked
    with pytest.raises(VerificationError, match="'k' for host"):
        check_coverage(Path("a.out"), [])


def test_a_long_list_of_missing_kernels_is_cut(linked: set[KernelImage]) -> None:
    linked.add(KernelImage("cuda", "sm_90", "k"))
    names = tuple(f"n{number}" for number in range(20))
    with pytest.raises(VerificationError, match="and 12 more"):
        check_coverage(Path("a.out"), [contents("a.o", names, (bitcode("sm_90"),))])


def test_different_kernels_of_one_name_are_reported_with_both_files() -> None:
    inputs = [
        contents("a.o", ("k",), (bitcode("sm_90", b"BC1"),)),
        contents("b.o", ("k",), (bitcode("sm_90", b"BC2"),)),
    ]
    with pytest.raises(
        VerificationError, match=r"'k' is defined twice for sm_90, here and in b\.o"
    ) as e:
        check_duplicates(inputs)
    assert e.value.location == "a.o"


@pytest.mark.parametrize(
    "second",
    [
        contents("b.o", ("k",), (bitcode("sm_90", b"BC1"),)),
        contents("b.o", ("k",), (bitcode("sm_80", b"BC2"),)),
        contents("b.o", ("l",), (bitcode("sm_90", b"BC2"),)),
        contents("b.a", ("k",), (bitcode("sm_90", b"BC2"),), member="b.o"),
    ],
    ids=["same content", "other arch", "other name", "member of a library"],
)
def test_kernels_that_do_not_collide_are_accepted(second: ObjectContents) -> None:
    check_duplicates([contents("a.o", ("k",), (bitcode("sm_90", b"BC1"),)), second])


def test_cpp_kernels_may_be_defined_by_several_files() -> None:
    check_duplicates(
        contents(name, ("_Z1kIiEvv",), (bitcode("sm_90", name.encode()),))
        for name in ("a.o", "b.o")
    )


@pytest.mark.parametrize(("major", "array"), [(19, ARRAY_22), (22, ARRAY_19), (20, ARRAY_19)])
def test_an_object_registered_for_another_release_is_refused(
    major: int, array: tuple[str, int]
) -> None:
    item = contents("a.o", ("k",), (bitcode("sm_90"),), array)
    with pytest.raises(CompatibilityError, match=f"which LLVM {major} does not read") as caught:
        check_entry_layout([item], load_abi(major))
    assert caught.value.location == "a.o"


@pytest.mark.parametrize(("major", "array"), [(16, ARRAY_19), (19, ARRAY_19), (22, ARRAY_22)])
def test_an_object_registered_for_this_release_is_accepted(
    major: int, array: tuple[str, int]
) -> None:
    check_entry_layout([contents("a.o", ("k",), (bitcode("sm_90"),), array)], load_abi(major))


def test_an_object_that_is_already_linked_is_accepted() -> None:
    check_entry_layout(
        [contents("a.o", ("k",), (), ("llvm_offload_entries_1a2b", 9))], load_abi(22)
    )
