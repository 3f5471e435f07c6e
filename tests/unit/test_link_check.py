from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from support.link_contents import (
    ARRAY_19,
    ARRAY_20,
    ARRAY_22,
    bitcode,
    contents,
    image,
    ptx,
)

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.host.object_entry import HostEntry
from mlir_offload.offload.image import ImageKind
from mlir_offload.offload.link.check import check_link, kind_notes, repeated_objects
from mlir_offload.offload.link.finding import Finding, raise_findings
from mlir_offload.offload.link.objects import ObjectContents
from mlir_offload.toolchain.errors import CompatibilityError, VerificationError
from mlir_offload.toolchain.target import host_triple

AMD = "amdgcn-amd-amdhsa"


def check(*items: ObjectContents, major: int = 19) -> list[str]:
    """Return what is wrong, each as errors are printed."""
    found = check_link(items, load_abi(major))
    return [f"{finding.location}: {finding.message}" for finding in found]


def dual(name: str) -> ObjectContents:
    """Return an object made with --for-clang=any."""
    arrays = (ARRAY_19, ARRAY_22)
    entries = tuple(
        HostEntry("cuda", "k", 0, section=section, fields=fields) for section, fields in arrays
    )
    return replace(contents(name, (), (bitcode("sm_90"),)), entries=entries)


@pytest.mark.parametrize(
    ("major", "array"),
    [(19, ARRAY_22), (22, ARRAY_19), (20, ARRAY_19), (19, ARRAY_20), (22, ARRAY_20)],
)
@pytest.mark.parametrize("member", ["", "m.o"])
def test_an_object_registered_for_another_release_is_refused(
    major: int, array: tuple[str, int], member: str
) -> None:
    item = contents("a", ("k",), (bitcode("sm_90"),), array=array, member=member)
    (finding,) = check_link([item], load_abi(major))
    assert finding.message == (
        f"its kernels are registered in {array[0]}, which LLVM {major} does not read"
    )
    assert finding.location == ("a(m.o)" if member else "a")
    assert finding.error is CompatibilityError


@pytest.mark.parametrize(
    ("major", "array"), [(15, ARRAY_19), (19, ARRAY_19), (20, ARRAY_20), (21, ARRAY_22)]
)
def test_an_object_registered_for_this_release_is_accepted(
    major: int, array: tuple[str, int]
) -> None:
    assert check(contents("a.o", ("k",), (bitcode("sm_90"),), array=array), major=major) == []


def test_an_object_for_any_release_is_accepted_by_all_but_one() -> None:
    refused = [major for major in range(15, 24) if check(dual("a.o"), major=major)]
    assert refused == [20]


def test_an_object_that_is_already_linked_is_accepted() -> None:
    entry = HostEntry(
        "cuda", "k", 0, section="llvm_offload_entries_1a", fields=9, is_device_linked=True
    )
    finished = replace(ptx("sm_90", "k"), image_kind=ImageKind.CUBIN)
    item = replace(contents("a.o"), entries=(entry,), linked_images=(finished,))
    assert check(item, major=22) == []
    assert check(item, major=16) == []


@pytest.mark.parametrize(
    ("major", "changes", "reason"),
    [
        (19, {"version": 2}, "it is in an offload binary of version 2"),
        (22, {"version": 3}, "it is in an offload binary of version 3"),
        (19, {"code": 4, "kind": "hip", "triple": AMD}, "its offload kind has the number 4"),
        (22, {"code": 3, "kind": "hip", "triple": AMD}, "its offload kind has the number 3"),
        (19, {"code": 8, "kind": "sycl"}, "its offload kind has the number 8"),
        (19, {"code": 0, "kind": "none"}, "its offload kind has the number 0"),
        (22, {"triple": AMD}, "kind cuda has no device link for amdgcn-amd-amdhsa"),
        (22, {"arch": ""}, "it has no architecture"),
        (22, {"data": b"\x50\xed\x55\xba"}, "it is a fat binary of CUDA"),
        (16, {"image_kind": ImageKind.OBJECT}, "but is packaged as image kind 1"),
    ],
)
def test_an_image_that_a_release_would_not_link_is_refused(
    major: int, changes: dict[str, object], reason: str
) -> None:
    arguments: dict[str, object] = {"data": b"BC\xc0\xde", **changes}
    item = contents("a.o", (), (image(**arguments),))  # type: ignore[arg-type] # the test's own words
    (found,) = check(item, major=major)
    assert found.startswith(f"a.o: LLVM {major} would not link its ")
    assert reason in found


@pytest.mark.parametrize(("major", "lost"), [(15, True), (16, False), (19, False), (22, True)])
def test_ptx_is_linked_by_some_releases_only(*, major: int, lost: bool) -> None:
    array = ARRAY_22 if major == 22 else ARRAY_19
    found = check(contents("a.o", ("k",), (ptx("sm_90", "k"),), array=array), major=major)
    assert bool(found) is lost


def test_objects_made_for_other_archs_are_all_named() -> None:
    found = check(
        contents("a.o", ("k",), (ptx("sm_80", "k"),)),
        contents("b.o", ("l", "m"), (ptx("sm_90", "l", "m"),)),
    )
    assert found == [
        "a.o: other objects are made for sm_90, for which nothing has its kernels: 'k' for sm_90",
        (
            "b.o: other objects are made for sm_80, for which nothing has its kernels: "
            "'l' for sm_80, 'm' for sm_80"
        ),
    ]


def test_the_image_of_another_file_may_hold_the_kernel() -> None:
    host_only = contents("a.o", ("k",))
    assert check(host_only, contents("b.o", (), (ptx("sm_80", "k"),))) == []
    assert check(host_only, contents("b.a", (), (ptx("sm_80", "k"),), member="m.o")) == []
    assert check(host_only, contents("b.o", (), (bitcode("sm_80"),))) == []
    (found,) = check(host_only, contents("b.o", (), (ptx("sm_80", "other"),)))
    assert found.endswith("for which nothing has its kernels: 'k' for sm_80")


def _for_host(name: str, arch: str, major: int) -> ObjectContents:
    """Return an object with a kernel of its name for the CPU, as clang of a release gives it an arch."""
    array = ARRAY_22 if major > 20 else ("omp_offloading_entries", 5)
    text = f".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry {name}()\n{{ ret; }}\n"
    packaged = image(text.encode(), arch, code=1, kind="openmp", triple=host_triple())
    return contents(name, (name,), (packaged,), kind="openmp", array=array)


def _missed(*items: ObjectContents, major: int) -> list[str]:
    found = check_link(items, load_abi(major))
    return [finding.location for finding in found if "other objects are made" in finding.message]


@pytest.mark.parametrize(("major", "missed"), [(16, ["second"]), (19, []), (22, [])])
def test_generic_code_for_the_cpu_is_linked_with_any_other_from_llvm_19_on(
    major: int, missed: list[str]
) -> None:
    for first, second in (("", "generic"), ("generic", "")):
        items = (_for_host("first", first, major), _for_host("second", second, major))
        assert _missed(*items, major=major) == missed


def test_code_for_two_processors_of_the_host_is_not_linked_together() -> None:
    items = (_for_host("first", "x86-64-v2", 22), _for_host("second", "x86-64-v3", 22))
    assert _missed(*items, major=22) == ["second"]
    *_, last = check_link(items, load_abi(22))
    assert (
        last.hint
        == "compile all objects with the same -march= and --for-clang=; the image here is for x86-64-v3"
    )


def test_objects_for_llvm_22_and_for_23_are_to_be_compiled_for_the_release_that_links() -> None:
    items = (_for_host("first", "", 23), _for_host("second", "generic", 23))
    assert _missed(*items, major=23) == ["second"]
    *_, last = check_link(items, load_abi(23))
    assert last.hint.startswith("compile all objects with --for-clang=23, ")
    assert last.hint.endswith("; the image here is for generic")


def test_an_object_that_is_named_twice_is_found_if_it_has_device_code() -> None:
    items = (contents("a", ("k",), (bitcode("sm_90"),)), contents("b"))
    line = [Path("a"), Path("b"), Path("a"), Path("b")]
    assert repeated_objects(items, line) == (Path("a"),)


def test_a_kernel_that_is_only_registered_is_named() -> None:
    (finding,) = check_link([contents("a.o", ("k",))], load_abi(19))
    assert finding.message == (
        "it registers 'k', but no file on the link line has device code of kind cuda"
    )
    assert finding.error is VerificationError


def test_a_member_that_the_linker_may_leave_out_is_not_asked_for_archs() -> None:
    member = contents("b.a", ("l",), (ptx("sm_90", "l"),), member="b.o")
    item = contents("a.o", ("k",), (ptx("sm_80", "k"),))
    assert check(item, member) == []
    assert len(check(item, replace(member, is_whole=True))) == 2


def test_variables_need_no_image() -> None:
    variable = HostEntry("cuda", "v", 4, section=ARRAY_19[0], fields=5)
    assert check(replace(contents("a.o"), entries=(variable,))) == []


def ours(name: str, *kinds: str) -> ObjectContents:
    """Return an object of mlir-offload with a kernel for several kinds of devices."""
    entries = tuple(HostEntry(kind, f"k_{name}", 0) for kind in kinds)
    symbols = frozenset({"mlir_offload_launch_stub"})
    return replace(contents(name), entries=entries, runtime_symbols=symbols)


def test_an_object_without_code_for_a_device_that_others_have_is_noted() -> None:
    both, gpu = ours("both.o", "cuda", "openmp"), ours("gpu.o", "cuda")
    (note,) = kind_notes([both, gpu])
    assert note.startswith("gpu.o has no device code of kind openmp, which other objects have")
    assert kind_notes([gpu, ours("cpu.o", "openmp")]) == ()
    assert kind_notes([both, replace(gpu, runtime_symbols=frozenset())]) == ()
    assert kind_notes([both, replace(gpu, member="m.o")]) == ()
    assert kind_notes([both, ours("plain.o")]) == ()


def finding(name: str, error: type[VerificationError | CompatibilityError]) -> Finding:
    return Finding("it is wrong", name, "correct it", error)


def test_findings_are_raised_together_as_the_class_of_the_first() -> None:
    raise_findings(())
    one, two = finding("a.o", CompatibilityError), finding("b.o", VerificationError)
    with pytest.raises(CompatibilityError) as caught:
        raise_findings([one, one])
    assert (caught.value.location, caught.value.hint) == ("a.o", "correct it")
    with pytest.raises(CompatibilityError, match="2 errors") as caught:
        raise_findings([one, two])
    assert caught.value.message.splitlines()[1:] == [
        "  a.o: it is wrong",
        "    hint: correct it",
        "  b.o: it is wrong",
        "    hint: correct it",
    ]
    with pytest.raises(VerificationError, match="and 5 more"):
        raise_findings(finding(f"{number}.o", VerificationError) for number in range(25))
