"""Inconsistencies that only the complete file shows."""

from __future__ import annotations

import pytest

from mlir_offload.offload.container.contents import (
    Container,
    Entry,
    Image,
    Part,
    Problem,
    ProblemKind,
    all_problems,
)
from mlir_offload.offload.device.kernel import DeviceCode, DeviceKernel
from mlir_offload.offload.file.verify import verify_contents

OBJECT = "ELF relocatable object, x86-64"
PROGRAM = "ELF executable, x86-64"
BINARY = Container("offload binary", 1, 0, 100)
FATBIN = Container("fat binary", 1, 0, 100)


def image(
    *kernels: str,
    arch: str = "sm_90",
    container: Container = FATBIN,
    form: str = "cubin",
    is_relocatable: bool | None = False,
    kind: str = "cuda",
) -> Image:
    code = DeviceCode(
        form, is_relocatable=is_relocatable, kernels=tuple(map(DeviceKernel, kernels))
    )
    return Image(0, form, 10, container=container, kind=kind, arch=arch, code=code)


def entry(name: str, *, kind: str = "cuda", releases: tuple[int, int] = (21, 23)) -> Entry:
    return Entry(kind, name, "kernel", 0, (), "llvm_offload_entries", 9, *releases)


def kinds(form: str, images: list[Image], entries: list[Entry]) -> list[ProblemKind]:
    part = Part("file", form, 100, images=tuple(images), entries=tuple(entries))
    return [problem.kind for problem in all_problems(verify_contents(part))]


def test_a_sound_program_has_no_problem() -> None:
    images = [image("a", "b", arch="sm_80"), image("a", "b")]
    assert kinds(PROGRAM, images, [entry("a"), entry("b")]) == []


def test_a_registered_kernel_that_one_architecture_lacks_is_named() -> None:
    images = [image("a", "b", arch="sm_80"), image("a")]
    part = Part("f", PROGRAM, 9, images=tuple(images), entries=(entry("a"), entry("b")))
    (problem,) = all_problems(verify_contents(part))
    assert problem.kind is ProblemKind.MISSING_KERNEL
    assert "sm_90" in problem.message
    assert "'b'" in problem.message
    assert "'a'" not in problem.message


def test_entries_without_any_image_of_their_kind_are_registered_by_nothing() -> None:
    unregistered = [ProblemKind.UNREGISTERED_KERNEL]
    assert kinds(PROGRAM, [], [entry("a")]) == unregistered
    assert kinds(PROGRAM, [image("a")], [entry("a"), entry("a", kind="openmp")]) == unregistered
    assert kinds(PROGRAM, [], []) == []


def test_a_damaged_file_is_not_accused_of_what_may_be_in_the_damage() -> None:
    damage = Problem(ProblemKind.DAMAGED, "malformed offload binary", "")
    part = Part("f", PROGRAM, 9, entries=(entry("a"),), problems=(damage,))
    assert tuple(all_problems(verify_contents(part))) == (damage,)


def test_images_of_one_architecture_complete_each_other() -> None:
    assert kinds(PROGRAM, [image("a"), image("b")], [entry("a"), entry("b")]) == []


def test_what_cannot_be_looked_into_is_not_accused() -> None:
    opaque = Image(0, "unknown format", 10, container=FATBIN, kind="cuda", arch="sm_90")
    assert kinds(PROGRAM, [image("a"), opaque], [entry("a"), entry("b")]) == []


def test_an_unregistered_kernel_is_named_where_llvm_registers() -> None:
    assert kinds(PROGRAM, [image("a", "b")], [entry("a")]) == [ProblemKind.UNREGISTERED_KERNEL]
    packaged = image("a", container=BINARY, form="LLVM bitcode", is_relocatable=True)
    assert kinds(OBJECT, [packaged], []) == [ProblemKind.UNREGISTERED_KERNEL]


def test_what_nvcc_registers_by_its_own_calls_is_left_alone() -> None:
    assert kinds(PROGRAM, [image("a", "b")], []) == []
    assert kinds("offload binary", [image("a", container=BINARY, is_relocatable=True)], []) == []


@pytest.mark.parametrize("form", ["cubin", "AMDGPU code object"])
@pytest.mark.parametrize("where", [OBJECT, "offload binary", "LLVM bitcode"])
def test_an_image_that_a_link_would_lose_is_told(form: str, where: str) -> None:
    lost = image("a", container=BINARY, form=form)
    assert kinds(where, [lost], [entry("a")])[0] is ProblemKind.DROPPED_IMAGE


def test_an_image_that_was_linked_is_where_it_belongs() -> None:
    assert kinds(PROGRAM, [image("a", container=BINARY)], [entry("a")]) == []


def test_layouts_of_two_releases_that_say_the_same_are_no_problem() -> None:
    both = [entry("a"), entry("a", releases=(15, 19))]
    images = [image("a", "b", is_relocatable=True)]
    assert kinds(OBJECT, [image("a", is_relocatable=True)], both) == []
    assert kinds(OBJECT, images, [*both, entry("b")]) == [ProblemKind.MIXED_LAYOUTS]
