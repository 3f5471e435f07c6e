from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from support.clang_entries import (
    RELEASES,
    kernel_address,
    parse_registration,
    recorded,
    render_kernel_handle,
)

from mlir_offload.offload.abi import any_exceptions, load_abi, load_abis, offload_table
from mlir_offload.offload.host.entry import (
    EntryType,
    OffloadEntry,
    append_entries,
    entry_section,
    register_entries,
)
from mlir_offload.offload.image import ImageForm
from mlir_offload.offload.ir_syntax import target_triple
from mlir_offload.offload.kind_format import check_form, check_kinds
from mlir_offload.toolchain.errors import CompatibilityError, SourceError, UsageError
from mlir_offload.toolchain.target import Kind

KERNEL = OffloadEntry(Kind.CUDA, "k", "__device_stub__k")
GLOBAL = OffloadEntry(Kind.CUDA, "v", "v", EntryType.GLOBAL, 4)
COFF_FIRST = 18


def program_entries(kind: Kind) -> list[OffloadEntry]:
    """Return what `golden/entries/program.cu` declares."""
    plain = OffloadEntry(kind, "counter", "counter", EntryType.GLOBAL, 4)
    image = OffloadEntry(kind, "image", "image", EntryType.SURFACE, 8, data=2)
    entries = [
        OffloadEntry(kind, "kernel", kernel_address(kind, "kernel")),
        plain,
        replace(plain, name="table", address="table", size_bytes=128),
        replace(plain, name="factor", address="factor", is_constant=True),
        image,
        replace(image, name="samples", address="samples", type=EntryType.TEXTURE),
        replace(
            image,
            name="normalized",
            address="normalized",
            type=EntryType.TEXTURE,
            data=3,
            is_normalized=True,
        ),
    ]
    if kind is Kind.HIP:
        managed = replace(plain, name="managed", type=EntryType.MANAGED, size_bytes=8)
        entries.append(replace(managed, address="managed.managed", data=8, auxiliary="managed"))
    return entries


def openmp_entries(golden: str) -> list[OffloadEntry]:
    """Return what `golden/entries/program.c` declares; the kernel's name holds the file's number."""
    names = re.findall(r"__omp_offloading_\w+_run_l\d+", golden)
    reference = "linked_decl_tgt_ref_ptr"
    return [
        OffloadEntry(Kind.OPENMP, names[0], kernel_address(Kind.OPENMP, names[0])),
        OffloadEntry(Kind.OPENMP, "counter", "counter", EntryType.GLOBAL, 4),
        OffloadEntry(Kind.OPENMP, "table", "table", EntryType.GLOBAL, 128),
        OffloadEntry(Kind.OPENMP, reference, reference, EntryType.LINK, 8),
    ]


def rendered(entries: list[OffloadEntry], major: int, triple: str = "") -> str:
    host = f'target triple = "{triple}"\n' if triple else ""
    handles = "".join(
        render_kernel_handle(entry.kind, entry.name)
        for entry in entries
        if entry.type is EntryType.KERNEL
    )
    return append_entries(host + handles, entries, load_abi(major))


@pytest.mark.parametrize("major", RELEASES)
@pytest.mark.parametrize("kind", [Kind.CUDA, Kind.HIP, Kind.OPENMP])
def test_entries_are_those_that_clang_of_each_release_emits(kind: Kind, major: int) -> None:
    golden = recorded(kind, major)
    entries = openmp_entries(golden) if kind is Kind.OPENMP else program_entries(kind)
    assert parse_registration(rendered(entries, major)) == parse_registration(golden)


@pytest.mark.parametrize("major", RELEASES)
@pytest.mark.parametrize("kind", [Kind.CUDA, Kind.OPENMP])
def test_on_windows_entries_are_those_of_clang_where_anything_registers_them(
    kind: Kind, major: int
) -> None:
    golden = recorded(f"{kind}-coff", major)
    entries = openmp_entries(golden) if kind is Kind.OPENMP else program_entries(kind)
    triple = "x86_64-pc-windows-msvc"
    if major < COFF_FIRST:
        assert "$OE" not in golden
        with pytest.raises(CompatibilityError, match=f"LLVM {major} registers no device code on"):
            rendered(entries, major, triple)
        return
    assert parse_registration(rendered(entries, major, triple)) == parse_registration(golden)


def test_release_23_is_taken_to_be_as_22() -> None:
    assert rendered(program_entries(Kind.CUDA), 23) == rendered(program_entries(Kind.CUDA), 22)


@pytest.mark.parametrize(
    ("triple", "section"),
    [
        ("", "llvm_offload_entries"),
        ("x86_64-pc-linux-gnu", "llvm_offload_entries"),
        ("aarch64-linux-android", "llvm_offload_entries"),
        ("x86_64-w64-windows-gnu", "llvm_offload_entries$OE"),
        ("x86_64-pc-windows-msvc-elf", "llvm_offload_entries"),
        ("x86_64-unknown-uefi", "llvm_offload_entries$OE"),
    ],
)
def test_the_host_decides_the_name_of_the_section(triple: str, section: str) -> None:
    assert entry_section(Kind.CUDA, load_abi(22), triple) == section


@pytest.mark.parametrize(
    "triple", ["arm64-apple-macosx14.0", "x86_64-apple-darwin", "arm64-ios17.0"]
)
def test_a_host_with_mach_o_is_refused(triple: str) -> None:
    with pytest.raises(CompatibilityError, match="Mach-O has no section named llvm_offload_ent"):
        register_entries(f'target triple = "{triple}"\n', [KERNEL], load_abis("22"))


def test_the_triple_of_a_module_is_read_or_empty() -> None:
    assert target_triple('; x\ntarget triple = "a-b-c"\n') == "a-b-c"
    assert target_triple("define void @f() {\n") == ""


def test_entries_of_kind_sycl_stand_beside_those_of_other_kinds() -> None:
    assert entry_section(Kind.SYCL, load_abi(22)) == entry_section(Kind.CUDA, load_abi(22))
    with pytest.raises(CompatibilityError, match="LLVM 19 has no entries of kind sycl"):
        entry_section(Kind.SYCL, load_abi(19))
    with pytest.raises(CompatibilityError, match="registers no entry of type global and kind sycl"):
        register_entries("", [replace(GLOBAL, kind=Kind.SYCL)], load_abis("22"))


@pytest.mark.parametrize("major", ["15", "19"])
def test_a_kind_that_a_release_does_not_have_is_refused(major: str) -> None:
    with pytest.raises(CompatibilityError, match=f"LLVM {major} has no offload kind sycl"):
        register_entries("", [replace(KERNEL, kind=Kind.SYCL)], load_abis(major))


@pytest.mark.parametrize(
    ("major", "kind", "type_", "is_lost"),
    [
        ("15", Kind.CUDA, EntryType.GLOBAL, False),
        ("15", Kind.OPENMP, EntryType.LINK, False),
        ("16", Kind.HIP, EntryType.SURFACE, True),
        ("17", Kind.HIP, EntryType.TEXTURE, True),
        ("18", Kind.HIP, EntryType.TEXTURE, False),
        ("22", Kind.CUDA, EntryType.TEXTURE, True),
        ("19", Kind.HIP, EntryType.MANAGED, True),
        ("20", Kind.HIP, EntryType.MANAGED, False),
        ("22", Kind.CUDA, EntryType.MANAGED, False),
        ("22", Kind.OPENMP, EntryType.MANAGED, True),
    ],
)
def test_what_a_release_would_lose_in_silence_is_refused(
    *, major: str, kind: Kind, type_: EntryType, is_lost: bool
) -> None:
    entry = replace(GLOBAL, kind=kind, type=type_, auxiliary="p")
    if not is_lost:
        assert "@v" in register_entries("", [entry], load_abis(major))
        return
    with pytest.raises(
        CompatibilityError, match=f"LLVM {major} registers no entry of type {type_} and"
    ):
        register_entries("", [entry], load_abis(major))


@pytest.mark.parametrize(
    "entry",
    [replace(GLOBAL, size_bytes=0), replace(KERNEL, size_bytes=8)],
    ids=["global", "kernel"],
)
def test_a_size_that_would_make_a_kernel_of_a_global_is_refused(entry: OffloadEntry) -> None:
    with pytest.raises(SourceError, match="size 0 marks a kernel"):
        register_entries("", [entry], load_abis("22"))


def test_a_managed_variable_without_its_pointer_is_refused() -> None:
    entry = replace(GLOBAL, type=EntryType.MANAGED)
    with pytest.raises(SourceError, match="'v' has no pointer that the host uses"):
        register_entries("", [entry], load_abis("22"))


def test_an_extern_global_says_so_from_release_18_on() -> None:
    entry = replace(GLOBAL, is_extern=True)
    assert "i32 8, ptr @v" in register_entries("", [entry], load_abis("22"))
    assert "i64 4, i32 8, i32 0 }" in register_entries("", [entry], load_abis("18"))
    assert "i64 4, i32 0, i32 0 }" in register_entries("", [entry], load_abis("17"))


def test_one_name_of_several_kinds_has_an_entry_for_each() -> None:
    other = replace(KERNEL, kind=Kind.OPENMP)
    found = parse_registration(register_entries("", [KERNEL, other], load_abis("22"))).entries
    assert list(found) == [".offloading.entry.k.openmp", ".offloading.entry.k"]


def test_for_any_release_both_forms_stand_side_by_side() -> None:
    text = register_entries("", [KERNEL, GLOBAL], load_abis("any"))
    found = parse_registration(text).entries
    assert {(symbol, len(entry.members), entry.placement) for symbol, entry in found.items()} == {
        (f"{prefix}{name}", members, f', section "{section}", align {align}')
        for prefix, members, section, align in (
            (".omp_offloading.entry.", 5, "cuda_offloading_entries", 1),
            (".offloading.entry.", 9, "llvm_offload_entries", 8),
        )
        for name in ("k", "v")
    }
    defined = re.findall(r"^@(\S+) =", text, re.MULTILINE)
    assert len(defined) == len(set(defined))
    used = next(line for line in text.splitlines() if line.startswith("@llvm.used"))
    assert all(f"ptr @{symbol}" in used for symbol in found)


def test_every_release_but_the_exceptions_reads_just_one_array_of_an_object_for_any() -> None:
    arrays = {abi.entry.section(Kind.CUDA): abi.entry for abi in load_abis("any")}
    releases = offload_table()["majors"]
    for major in range(releases["first"], releases["last"] + 1):
        layout = load_abi(major).entry
        found = arrays.get(layout.section(Kind.CUDA))
        is_read = found is not None and found.fields == layout.fields
        assert is_read != (major in any_exceptions()), major


def test_constants_for_any_release_are_what_the_oldest_one_registers() -> None:
    text = register_entries("", [replace(GLOBAL, is_constant=True)], load_abis("any"))
    entries = parse_registration(text).entries
    assert entries[".omp_offloading.entry.v"].members[3] == "i32 0"
    assert entries[".offloading.entry.v"].members[3] == "i32 16"


def test_kind_hip_is_refused_for_any_release() -> None:
    message = "kind hip has different enum values in these releases: 3 in LLVM 15, 4 in"
    with pytest.raises(CompatibilityError, match=message):
        register_entries("", [replace(KERNEL, kind=Kind.HIP)], load_abis("any"))
    check_kinds([Kind.CUDA, Kind.OPENMP], load_abis("any"))


def test_bitcode_is_for_one_release() -> None:
    for form in ImageForm:
        check_form(form, "k.bc", load_abis("22"))
        if form is not ImageForm.BITCODE:
            check_form(form, "k.o", load_abis("any"))
    with pytest.raises(CompatibilityError, match=r"k\.bc: bitcode is tied to one release"):
        check_form(ImageForm.BITCODE, "k.bc", load_abis("any"))


@pytest.mark.parametrize("word", ["", "all", "22.1", "-1"])
def test_a_consumer_that_is_no_release_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match=f"--for-clang={word}: not a release of LLVM"):
        load_abis(word)
