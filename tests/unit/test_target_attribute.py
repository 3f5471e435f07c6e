"""Target attributes of a module."""

from __future__ import annotations

import pytest

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.target import Kind, Target
from mlir_offload.translate.kind_lowering import TargetAttribute, attribute_for, compatible_targets
from mlir_offload.translate.mlir.syntax import Attribute
from mlir_offload.translate.target_attribute import (
    are_variants,
    chips_in_source,
    libraries_in_source,
    read_targets,
)

SM_80, SM_90 = (Target(Kind.CUDA, "nvptx64-nvidia-cuda", arch) for arch in ("sm_80", "sm_90"))
HOST = Target(Kind.OPENMP, "x86_64-pc-linux-gnu", "host")
ON_80, ON_90 = (TargetAttribute(Kind.CUDA, target.arch) for target in (SM_80, SM_90))


def test_every_field_is_read() -> None:
    text = (
        '[#nvvm.target<O = 3, chip = "sm_90a", features = "+ptx80", '
        'flags = {fast, ftz}, link = ["a.bc", "b>.bc"]>, #rocdl.target<chip = "gfx90a">, #nvvm.target]'
    )

    assert read_targets(Attribute(text), "") == (
        TargetAttribute(Kind.CUDA, "sm_90a", "+ptx80", 3, ("a.bc", "b>.bc"), ("fast", "ftz")),
        TargetAttribute(Kind.HIP, "gfx90a"),
        TargetAttribute(Kind.CUDA),
    )


def test_a_flag_is_read_as_mlir_opt_prints_it() -> None:
    (target,) = read_targets(
        Attribute('[#nvvm.target<flags = {"collect-compiler-diagnostics", fast}>]'), ""
    )
    assert target.flags == ("collect-compiler-diagnostics", "fast")


def test_a_flag_that_would_not_be_heeded_is_refused() -> None:
    with pytest.raises(SourceError, match="flag unsafe"):
        read_targets(Attribute('[#nvvm.target<flags = {unsafe = "x"}>]'), "a.mlir:1:1")
    with pytest.raises(SourceError, match="flag no-such of"):
        read_targets(Attribute('[#nvvm.target<flags = {"no-such"}>]'), "a.mlir:1:1")


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        ('triple = "amdgcn-mesa-mesa3d"', "triple amdgcn-mesa-mesa3d"),
        ('abi = "latest"', "abi latest"),
    ],
)
def test_a_field_that_would_not_be_heeded_is_refused(field: str, complaint: str) -> None:
    with pytest.raises(SourceError, match=complaint):
        read_targets(Attribute(f"[#rocdl.target<{field}>]"), "a.mlir:1:1")


def test_the_version_and_the_wavefront_of_an_amd_target_are_read() -> None:
    fields = 'triple = "amdgcn-amd-amdhsa", features = "+xnack,+cumode", abi = "500", flags = {no_wave64}'
    (read,) = read_targets(Attribute(f"[#rocdl.target<{fields}>]"), "")

    assert read.code_object == 5
    assert read.all_features == ("+xnack", "+cumode", "-wavefrontsize64")


def test_what_is_attached_decides_for_its_own_kind() -> None:
    assert compatible_targets([ON_90], [SM_80, SM_90, HOST]) == (SM_90, HOST)
    assert compatible_targets([TargetAttribute(Kind.CUDA)], [SM_80]) == (SM_80,)
    assert attribute_for([TargetAttribute(Kind.CUDA), ON_90], SM_90) == ON_90


def test_modules_for_other_chips_are_variants() -> None:
    assert are_variants([[ON_80], [ON_90]])
    assert not are_variants([[ON_80], [ON_80, ON_90]])
    assert not are_variants([[TargetAttribute(Kind.CUDA)], [ON_90]])


def test_chips_are_found_in_a_text_but_not_in_its_comments() -> None:
    text = b'// #nvvm.target<chip = "sm_70">\n[#nvvm.target<features = "+ptx80", chip = "sm_90">, #rocdl.target<chip = "gfx90a">]'

    assert chips_in_source(text) == ("sm_90", "gfx90a")


def test_libraries_are_found_in_a_text_but_not_in_its_comments() -> None:
    text = b'// link = ["no.bc"]\n#nvvm.target<link = ["a.bc", "d/b.bc"]>, #rocdl.target<link = ["a.bc"]>'

    assert libraries_in_source(text) == ("a.bc", "d/b.bc")
