"""What links lose, and that ours do not: libraries in every place, missing kernels, no wrapper."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.device_image import DeviceImage
from support.hostile import spliced, survives, truncations
from support.link_inputs import CUDA, LinkInputs

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.link.check import check_link
from mlir_offload.offload.link.coverage import (
    check_coverage,
    expected_kernels,
    held_kernels,
    missing_kernels,
    unregistered_kernels,
)
from mlir_offload.offload.link.objects import ObjectContents, read_objects
from mlir_offload.toolchain.errors import CompatibilityError, ToolFailedError, VerificationError
from mlir_offload.toolchain.target import Kind

RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (15, 16, 19, 22)]
KINDS = (Kind.CUDA, Kind.HIP, Kind.OPENMP)

USES_LIBRARIES = """\
void use_early(void), use_first(void), use_grouped(void);
__attribute__((constructor)) void use(void) { use_early(); use_first(); use_grouped(); }
"""

pytestmark = pytest.mark.skipif(not CUDA.exists(), reason="CUDA 13.0 is not installed")


def read(*paths: Path) -> list[ObjectContents]:
    return [item for path in paths for item in read_objects(path)]


def kernels_of(*names: str) -> set[tuple[str, str]]:
    return {(kind, f"k_{name}") for kind in KINDS for name in names}


def held(path: Path) -> set[tuple[str, str]]:
    return {(pair.kind, pair.kernel) for item in read(path) for pair in held_kernels(item)}


@pytest.mark.parametrize("major", RELEASES)
def test_device_code_of_libraries_arrives_from_any_place_on_the_line(
    major: int, tmp_path: Path
) -> None:
    made = LinkInputs(major, tmp_path)
    early = made.library("early", made.simple("early", *KINDS))
    # One member of a thin library needs another one, which precedes it.
    chain = [made.simple("last", *KINDS), made.simple("first", *KINDS, calls=["last"])]
    thin = made.library("thin", *chain, thin=True)
    grouped = made.library("grouped", made.simple("grouped", *KINDS, calls=["back"]))
    back = made.library("back", made.simple("back", *KINDS))
    program = made.c_object("program", USES_LIBRARIES)
    line = ["-Wl,-u,use_early", early, program, thin, f"-L{tmp_path}", "-Wl,--start-group"]
    line += ["-lback", grouped, "-Wl,--end-group", made.runtimes()]
    # Libraries alone have nothing that the wrapper would look for.
    assert held(made.link(*line)) == set()
    contents = read(early, thin, grouped, back)
    linked = made.link(*made.dummy_image(contents), *line)
    assert held(linked) == kernels_of("early", "first", "last", "grouped", "back")
    check_coverage(linked, contents)


@pytest.mark.llvm(16)
def test_an_object_behind_the_library_is_no_dummy_image_to_an_older_release(tmp_path: Path) -> None:
    made = LinkInputs(16, tmp_path)
    library, obj = made.library("k", made.simple("k", *KINDS)), made.simple("a", *KINDS)
    line = ("-Wl,-u,use_k", library, obj, made.runtimes())
    contents = read(library, obj)
    with pytest.raises(
        VerificationError, match="'k_k' for sm_80, 'k_k' for gfx90a, 'k_k' for host"
    ):
        check_coverage(made.link(*line), contents)
    check_coverage(made.link(*made.dummy_image(contents), *line), contents)


@pytest.mark.parametrize("major", RELEASES)
def test_the_driver_links_libraries_of_every_kind_and_whole_ones_too(
    mlir_offload: list[str], major: int, tmp_path: Path
) -> None:
    made = LinkInputs(major, tmp_path)
    early = made.library("early", made.simple("early", *KINDS))
    made.library("whole", made.simple("one", *KINDS), made.simple("two", *KINDS))
    obj = made.simple("obj", *KINDS)
    main = made.c_object(
        "main", "void use_early(void); int main(void) { use_early(); return 0; }\n"
    )
    whole = "--whole-archive,-lwhole,--no-whole-archive"
    if major == RELEASES[-1].values[0]:
        # As CMake writes it (LINK_LIBRARY:WHOLE_ARCHIVE).
        whole = "--push-state,--whole-archive,-lwhole,--pop-state"
    line = [f"-Wl,{whole}", "-L.", early, obj, main]
    argv = [*mlir_offload, f"--llvm={major}", *map(str, line), "-o", "program"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    assert held(tmp_path / "program") == kernels_of("early", "one", "two", "obj")


@pytest.mark.llvm(22)
def test_stubs_that_the_linker_folded_are_an_error(mlir_offload: list[str], tmp_path: Path) -> None:
    made = LinkInputs(22, tmp_path)
    objects = [made.simple(name, Kind.OPENMP) for name in ("one", "two")]
    main = made.c_object("main", "int main(void) { return 0; }\n")
    argv = [*mlir_offload, "--llvm=22", *map(str, objects), str(main), "-o", "program"]
    done = subprocess.run(
        [*argv, "-Wl,--icf=all"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode
    assert "folded the stubs of kernels 'k_one' and 'k_two'" in done.stderr
    assert not (tmp_path / "program").exists()
    # As the hint says.
    subprocess.run([*argv, "-Wl,--icf=safe"], cwd=tmp_path, check=True)


@pytest.mark.parametrize("output", ["program", "shared", "object"])
@pytest.mark.parametrize("major", RELEASES[2:])
def test_a_kernel_that_one_arch_lacks_is_named_whatever_was_linked(
    major: int, output: str, tmp_path: Path
) -> None:
    made = LinkInputs(major, tmp_path)
    kinds = (Kind.CUDA, Kind.HIP)
    archs = {Kind.CUDA: ("sm_80", "sm_90"), Kind.HIP: ("gfx90a", "gfx1030")}
    both = [made.device_image(kind, ["k"], arch) for kind in kinds for arch in archs[kind]]
    one = [made.device_image(kind, ["l"], archs[kind][0]) for kind in kinds]
    objects = (
        made.host_object("both", kinds, ["k"], both),
        made.host_object("one", kinds, ["l"], one),
    )
    option = {"program": made.runtimes(), "shared": "-shared", "object": "-r"}[output]
    linked = made.link(*objects, option, "-Wl,--compress")
    missing = missing_kernels(linked, expected_kernels(read(*objects)))
    assert [str(pair) for pair in missing] == ["'l' for sm_90", "'l' for gfx1030"]
    with pytest.raises(VerificationError) as caught:
        check_coverage(linked, read(*objects))
    assert caught.value.location == str(linked)
    assert caught.value.hint.startswith(f"{objects[1]} is made for")
    assert caught.value.hint.endswith("compile it with --offload-arch=gfx1030,sm_90 too")
    # Such a file tells it of itself, when it is linked into something else.
    (finding,) = check_link(read(linked), load_abi(major))
    assert "lack kernels that it registers: 'l' for sm_90, 'l' for gfx1030" in finding.message


@pytest.mark.llvm(22)
def test_kernels_linked_without_the_wrapper_are_registered_nowhere(tmp_path: Path) -> None:
    made = LinkInputs(22, tmp_path)
    a, b = made.simple("a", *KINDS), made.simple("b", *KINDS)
    joined, library = tmp_path / "joined.o", tmp_path / "libab.so"
    made.run("ld", "-r", a, b, "-o", joined)
    made.run("gcc", "-shared", a, b, "-o", library)
    made.clang("-fuse-ld=lld", "-Wl,--gc-sections", a, made.runtimes(), "-o", "plain")
    lost = kernels_of("a", "b")
    assert {pair for item in read(library) for pair in unregistered_kernels(item)} == lost
    assert {pair for item in read(tmp_path / "plain") for pair in unregistered_kernels(item)} == {
        pair for pair in lost if pair[1] == "k_a"
    }
    (finding,) = check_link(read(library), load_abi(22))
    assert finding.hint == (
        "link it again with mlir-offload -shared, or with clang --offload-link -shared"
    )
    # An object that `ld -r` made has its images still: the next link takes them.
    assert check_link(read(joined), load_abi(22)) == ()
    whole = made.link(joined, made.runtimes())
    assert held(whole) == lost
    assert [unregistered_kernels(item) for item in read(whole)] == [()]


@pytest.mark.llvm(22)
def test_a_damaged_file_is_refused_or_read_by_the_checks(tmp_path: Path) -> None:
    made = LinkInputs(22, tmp_path)
    obj = made.simple("a", *KINDS)
    for path in (obj, made.link(obj, made.runtimes(), "-Wl,--compress")):
        data, broken = path.read_bytes(), tmp_path / "broken"

        def check(variant: bytes, broken: Path = broken) -> None:
            broken.write_bytes(variant)
            contents = read(broken)
            check_link(contents, load_abi(22))
            missing_kernels(broken, expected_kernels(contents))

        assert survives(check, spliced(data, 150)) + survives(check, truncations(data, 997)) > 0


@pytest.mark.llvm(16)
def test_what_an_older_release_links_relocatably_is_refused(tmp_path: Path) -> None:
    made = LinkInputs(16, tmp_path)
    joined = made.link(made.simple("a", Kind.CUDA, Kind.HIP), "-r", output="joined.o")
    (finding,) = check_link(read(joined), load_abi(16))
    assert "its entries are left for another link" in finding.message
    with pytest.raises(ToolFailedError, match="duplicate symbol"):
        made.link(joined, made.runtimes())


@pytest.mark.llvm(16)
@pytest.mark.llvm(22)
def test_the_driver_reports_every_fault_of_a_link_line_at_once(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    made, newer = LinkInputs(16, tmp_path), LinkInputs(22, tmp_path)
    images = [made.device_image(Kind.CUDA, ["k"], arch) for arch in ("sm_80", "sm_90")]
    made.host_object("both", [Kind.CUDA], ["k"], images)
    made.simple("one", Kind.CUDA)
    made.host_object("hostonly", [Kind.HIP], ["h"], [])
    newer.simple("new", Kind.HIP)
    made.library("k", made.host_object("again", [Kind.CUDA], ["k"], [other_image(made)]))
    made.simple("lost", Kind.OPENMP)
    made.run("gcc", "-shared", "lost.o", "-o", "liblost.so")
    line = ["both.o", "one.o", "hostonly.o", "new.o", "libk.a", "liblost.so"]
    argv = [*mlir_offload, "--llvm=16", *line, "-o", "program"]
    result = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == CompatibilityError.exit_status
    assert not (tmp_path / "program").exists()
    for fault in (
        "new.o: its kernels are registered in llvm_offload_entries, which LLVM 16 does not read",
        "new.o: LLVM 16 would not link its hip image for gfx90a: its offload kind has the number 4",
        "liblost.so: nothing registers its kernels",
        "one.o: other objects are made for sm_90, for which nothing has its kernels: 'k_one'",
    ):
        assert f"\n  {fault}" in result.stderr


@pytest.mark.llvm(22)
def test_kernels_of_one_name_in_whole_libraries_are_kept_apart(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    made = LinkInputs(22, tmp_path)
    kinds = (Kind.CUDA, Kind.OPENMP)
    for name, value in (("one", 1), ("two", 2)):
        images = [made.device_image(kind, ["__mo_k"], value=value) for kind in kinds]
        made.library(name, made.host_object(name, kinds, ["__mo_k"], images))
    main = made.c_object("main", "int main(void) { return 0; }\n")
    whole = "-Wl,--whole-archive,libone.a,libtwo.a,--no-whole-archive"
    argv = [*mlir_offload, "--llvm=22", whole, str(main), "-o", "program"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    assert held(tmp_path / "program") == {(kind, "__mo_k") for kind in kinds}


def other_image(made: LinkInputs) -> DeviceImage:
    return made.device_image(Kind.CUDA, ["k"], value=2)
