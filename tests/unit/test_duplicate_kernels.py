from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.link_contents import bitcode, contents, ptx

from mlir_offload.offload.container.binary import PackagedImage
from mlir_offload.offload.link import duplicate
from mlir_offload.offload.link.duplicate import check_duplicates, find_duplicates
from mlir_offload.offload.link.objects import ObjectContents
from mlir_offload.toolchain.errors import SourceError

FIRST = contents("a.o", ("k",), (ptx("sm_90", "k", note="first"),))


@pytest.mark.parametrize(
    "second",
    [
        contents("b.o", ("k",), (ptx("sm_90", "k", note="second"),)),
        contents("b.a", ("k",), (ptx("sm_90", "k", note="second"),), member="m.o"),
        contents("b.o", ("k",), (bitcode("sm_90"),)),
    ],
    ids=["object", "member", "bitcode"],
)
def test_different_kernels_of_one_name_are_reported_with_both_files(second: ObjectContents) -> None:
    with pytest.raises(SourceError) as caught:
        check_duplicates([FIRST, second])
    assert caught.value.message == (
        f"kernel 'k' is defined twice for sm_90, here and in {second.location}"
    )
    assert caught.value.location == "a.o"


def test_two_members_that_define_one_kernel_are_reported() -> None:
    members = [
        contents("l.a", ("k",), (ptx("sm_90", "k", note=name),), member=name)
        for name in ("a.o", "b.o")
    ]
    (found,) = find_duplicates(members)
    assert (found.first.location, found.second.location) == ("l.a(a.o)", "l.a(b.o)")


@pytest.mark.parametrize(
    "second",
    [
        contents("b.o", ("k",), (ptx("sm_90", "k", note="first"),)),
        contents("b.o", ("k",), (ptx("sm_80", "k"),)),
        contents("b.o", ("l",), (ptx("sm_90", "l"),)),
        contents("b.o", ("k",), (ptx("sm_90", "other"),)),
        contents("b.o", ("k",)),
        replace(contents("b.so", ("k",), (ptx("sm_90", "k"),)), is_relocatable=False),
    ],
    ids=["same image", "other arch", "other name", "only registered", "no image", "linked"],
)
def test_kernels_that_do_not_collide_are_accepted(second: ObjectContents) -> None:
    assert find_duplicates([FIRST, second]) == ()


def test_a_kernel_that_differs_for_several_archs_and_files_is_one_fault_for_each_file() -> None:
    items = [
        contents(name, ("k",), tuple(ptx(arch, "k", note=name) for arch in ("sm_80", "sm_90")))
        for name in ("a.o", "b.o", "c.o")
    ]
    assert len(find_duplicates(items)) == 4
    with pytest.raises(SourceError, match="2 errors") as caught:
        check_duplicates(items)
    assert "defined twice for sm_80, sm_90, here and in b.o" in caught.value.message
    assert "defined twice for sm_80, sm_90, here and in c.o" in caught.value.message


def test_cpp_kernels_may_be_defined_by_several_files() -> None:
    check_duplicates(
        contents(name, ("_Z1kIiEvv",), (ptx("sm_90", "_Z1kIiEvv", note=name),))
        for name in ("a.o", "b.o")
    )


def test_images_are_looked_into_only_where_names_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[PackagedImage] = []

    def kernels(image: PackagedImage) -> frozenset[str]:
        asked.append(image)
        return frozenset({"k"})

    monkeypatch.setattr(duplicate, "packaged_kernels", kernels)
    others = [contents(f"{n}.o", (f"k{n}",), (ptx("sm_90", f"k{n}"),)) for n in range(9)]
    find_duplicates([FIRST, *others])
    assert asked == []
    find_duplicates([FIRST, *others, FIRST])
    assert len(asked) == 2
