"""The hints of the checks before and after a link, carried out on real objects: nothing is found then.

`test_link_hints.py` carries out those that take the whole driver.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.device_image import DeviceImage, image_kind_of
from support.link_inputs import CUDA, LinkInputs, target_of

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.link.check import check_link
from mlir_offload.offload.link.collision import (
    LinkInput,
    check_launches,
    check_targets,
    find_collisions,
    read_stubs,
)
from mlir_offload.offload.link.coverage import coverage_findings
from mlir_offload.offload.link.duplicate import check_duplicates
from mlir_offload.offload.link.objects import ObjectContents, read_objects
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.errors import MlirOffloadError
from mlir_offload.toolchain.target import Kind

# As `-c` makes it by default.
DEVICE_IR = """\
target triple = "nvptx64-nvidia-cuda"
target datalayout = "e-i64:64-i128:128-v16:16-v32:32-n16:32:64"
define void @k_b() "target-cpu"="sm_80" "target-features"="+ptx75,+sm_80" { ret void }
!nvvm.annotations = !{!0}
!0 = !{ptr @k_b, !"kernel", i32 1}
"""

pytestmark = [
    pytest.mark.llvm(16),
    pytest.mark.llvm(19),
    pytest.mark.llvm(22),
    pytest.mark.skipif(not CUDA.exists(), reason="CUDA 13.0 is not installed"),
]


def _read(paths: Sequence[Path]) -> list[ObjectContents]:
    return [item for path in paths for item in read_objects(path)]


def _hints(major: int, *paths: Path) -> set[str]:
    """Return the hints for objects and linked files on the link line of a release."""
    return {finding.hint for finding in check_link(_read(paths), load_abi(major))}


def _inputs(*paths: Path) -> list[LinkInput]:
    inputs = []
    for path in paths:
        with open_view(path) as view:
            inputs += [LinkInput(item, path, read_stubs(view)) for item in read_objects(path)]
    return inputs


def _refusal(*paths: Path) -> str:
    """Return the hint where kernels of one name cannot be kept apart."""
    inputs = _inputs(*paths)
    objects = [item.contents for item in inputs]
    collisions = find_collisions(objects)
    try:
        check_targets(collisions, objects)
        check_launches(collisions, inputs)
    except MlirOffloadError as error:
        return error.hint
    return ""


@pytest.mark.parametrize(("made_with", "linked_with"), [(16, 22), (22, 16)])
def test_an_object_is_compiled_again_or_linked_with_its_own_release(
    made_with: int, linked_with: int, tmp_path: Path
) -> None:
    foreign = LinkInputs(made_with, tmp_path).simple("k", Kind.HIP)

    (hint,) = _hints(linked_with, foreign)

    expected = r"compile it again with LLVM (\d+), or link with the release that made it"
    found = re.fullmatch(expected, hint)
    assert found
    assert _hints(made_with, foreign) == set()
    assert _hints(int(found[1]), LinkInputs(int(found[1]), tmp_path).simple("k", Kind.HIP)) == set()


def test_a_half_linked_object_is_made_with_a_newer_release_or_its_parts_are_named(
    tmp_path: Path,
) -> None:
    old = LinkInputs(16, tmp_path)
    part = old.simple("a", Kind.CUDA)

    (hint,) = _hints(16, old.link(part, "-r", output="joined.o"))

    found = re.fullmatch(
        r"make it with LLVM (\d+) or newer, or name the objects that it was made of", hint
    )
    assert found
    assert _hints(16, part) == set()
    newer = LinkInputs(int(found[1]), tmp_path)
    joined = newer.link(newer.simple("a", Kind.CUDA), "-r", output="joined.o")
    assert _hints(newer.major, joined) == set()


def test_a_linked_file_is_made_of_parts_for_the_same_architectures(tmp_path: Path) -> None:
    made = LinkInputs(22, tmp_path)
    line = ("-shared", made.runtimes())
    images = [made.device_image(Kind.CUDA, ["k_a"], arch) for arch in ("sm_80", "sm_90")]
    both = made.host_object("a", [Kind.CUDA], ["k_a"], images)
    library = made.link(both, made.simple("b", Kind.CUDA), *line, output="lib.so")

    expected = "compile all that is in it for the same architectures, and link it again"
    assert _hints(22, library) == {expected}

    images = [made.device_image(Kind.CUDA, ["k_b"], arch) for arch in ("sm_80", "sm_90")]
    other = made.host_object("b", [Kind.CUDA], ["k_b"], images)
    assert _hints(22, made.link(both, other, *line, output="lib.so")) == set()


def test_the_object_with_the_device_code_is_named_or_the_file_compiled_as_a_whole(
    tmp_path: Path,
) -> None:
    made = LinkInputs(22, tmp_path)
    host = made.host_object("h", [Kind.CUDA], ["k_h"], [])

    (hint,) = _hints(22, host)

    expected = "name the object that has the device code too, or compile the file again as a whole"
    assert hint == expected
    device = made.host_object("d", [Kind.CUDA], [], [made.device_image(Kind.CUDA, ["k_h"])])
    assert _hints(22, host, device) == set()
    assert _hints(22, made.simple("h", Kind.CUDA)) == set()


def test_objects_for_the_cpu_are_compiled_for_one_processor(tmp_path: Path) -> None:
    def objects(*archs: str, major: int = 22) -> list[Path]:
        made = LinkInputs(major, tmp_path)
        paths = []
        for name, arch in zip(("one", "two"), archs, strict=True):
            image = made.device_image(Kind.OPENMP, [name])
            packaged = DeviceImage(replace(image.target, arch=arch), image.data, image.image_kind)
            paths.append(made.host_object(name, [Kind.OPENMP], [name], [packaged]))
        return paths

    hints = _hints(22, *objects("x86-64-v2", "x86-64-v3"))
    assert [hint.partition(";")[0] for hint in hints] == [
        "compile all objects with the same -march= and --for-clang="
    ]
    assert _hints(22, *objects("x86-64-v3", "x86-64-v3")) == set()
    # Of LLVM 16 an object has no arch, clang 21 writes its own.
    (hint,) = _hints(16, *objects("", "generic", major=16))
    assert hint.startswith("compile all objects with --for-clang=16, ")
    assert _hints(16, *objects("", "", major=16)) == set()


def test_an_object_whose_image_lost_its_kernel_is_compiled_again(tmp_path: Path) -> None:
    made = LinkInputs(22, tmp_path)
    image = made.device_image(Kind.CUDA, ["other"])
    lost = made.host_object("k", [Kind.CUDA], ["k_k"], [image])
    line = (made.runtimes(), "-Wl,-u,use_k")

    (finding,) = coverage_findings(made.link(lost, *line), _read([lost]))

    assert finding.hint == f"compile {lost} again; its image for sm_80 lost the kernel"
    again = made.simple("k", Kind.CUDA)
    assert coverage_findings(made.link(again, *line), _read([again])) == ()


@pytest.mark.llvm(15)
def test_an_object_in_bitcode_is_compiled_to_the_form_of_the_others(tmp_path: Path) -> None:
    made = LinkInputs(15, tmp_path)
    text = DEVICE_IR.encode()
    assembled = subprocess.run(
        [made.llvm.prefix / "bin" / "llvm-as"], input=text, stdout=subprocess.PIPE, check=True
    ).stdout
    image = DeviceImage(target_of(Kind.CUDA), assembled, image_kind_of(assembled))
    mixed = made.host_object("b", [Kind.CUDA], ["k_b"], [image])
    objects, line = made.simple("a", Kind.CUDA), (made.runtimes(), "-Wl,-u,use_a,-u,use_b")

    (finding,) = coverage_findings(made.link(mixed, objects, *line), _read([mixed, objects]))

    assert finding.hint.startswith(f"compile {mixed} with --device-code=object")
    again = made.simple("b", Kind.CUDA)
    assert coverage_findings(made.link(again, objects, *line), _read([again, objects])) == ()


def test_the_object_that_defines_a_kernel_is_named(tmp_path: Path) -> None:
    made = LinkInputs(22, tmp_path)
    host = made.host_object("h", [Kind.CUDA], ["k_h"], [])
    other, line = made.simple("a", Kind.CUDA), (made.runtimes(),)

    (finding,) = coverage_findings(made.link(other, host, *line), _read([other]))

    assert finding.hint == "name the object that defines the kernel on the link line"
    named = (other, made.simple("h", Kind.CUDA))
    assert coverage_findings(made.link(*named, *line), _read(named)) == ()


def test_one_of_two_kernels_of_one_name_is_renamed(tmp_path: Path) -> None:
    made = LinkInputs(22, tmp_path)

    def defining(name: str, kernel: str, value: int) -> Path:
        image = made.device_image(Kind.CUDA, [kernel], value=value)
        return made.host_object(name, [Kind.CUDA], [kernel], [image])

    paths = (defining("one", "k", 1), defining("two", "k", 2))
    with pytest.raises(MlirOffloadError) as refused:
        check_duplicates(_read(paths))
    assert refused.value.hint == "rename one of the kernels, or make it private"
    check_duplicates(_read((paths[0], defining("two", "other", 2))))

    launcher = made.c_object(
        "c", "void __device_stub__k(void); void use(void) { __device_stub__k(); }"
    )
    caller = made.host_object(
        "caller", [Kind.CUDA], ["mine"], [made.device_image(Kind.CUDA, ["mine"])]
    )
    both = made.directory / "both.o"
    made.run("ld", "-r", caller, launcher, "-o", both)
    again = defining("two", "k", 2)
    hint = "rename one of the kernels: the launch is ambiguous"
    assert _refusal(paths[0], again, both) == hint
    assert _refusal(paths[0], defining("two", "other", 2), both) == ""


def test_kernels_of_one_name_are_compiled_for_the_same_architectures(tmp_path: Path) -> None:
    made = LinkInputs(22, tmp_path)

    def defining(name: str, *archs: str) -> Path:
        images = [made.device_image(Kind.CUDA, ["k"], arch) for arch in archs]
        return made.host_object(name, [Kind.CUDA], ["k"], images)

    one = defining("one", "sm_80", "sm_90")
    assert _refusal(one, defining("two", "sm_80")) == (
        "compile both files with the same --offload-arch="
    )
    assert _refusal(one, defining("two", "sm_80", "sm_90")) == ""
