"""A gpu.binary with device images in a program: accepted and rejected objects."""

from __future__ import annotations

import pytest

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.target import parse_offload_arch
from mlir_offload.translate.gpu_binary import GpuBinary
from mlir_offload.translate.legalize.split import SplitOptions, SplitProgram, split_program
from mlir_offload.translate.mlir.syntax import escape

PTX = """\
.version 7.8
.target {arch}
.address_size 64
.visible .entry {name}(.param .u64 p, .param .f32 a, .param .b32 packed) {{ ret; }}
"""
ASSEMBLY = '.amdgcn_target "amdgcn-amd-amdhsa--gfx90a:xnack-"\n.amdhsa_kernel k\n'


def ptx(arch: str = "sm_80", name: str = "k", *, chip: str = "", more: str = "") -> str:
    content = escape(PTX.format(arch=arch, name=name))
    chosen = f'<chip = "{chip}">' if chip else ""
    return f'#gpu.object<#nvvm.target{chosen}, {more}assembly = "{content}">'


def split(*objects: str, handler: str = "", name: str = "b", more: str = "") -> SplitProgram:
    chosen = f", offloadingHandler = {handler}" if handler else ""
    binary = f'  "gpu.binary"() <{{objects = [{", ".join(objects)}]{chosen}, sym_name = "{name}"}}>'
    text = (
        '#loc = loc("p.mlir":3:4)\n'
        f'"builtin.module"() ({{\n{binary} : () -> () loc(#loc)\n{more}}}) : () -> () loc(#loc)\n'
    )
    return split_program(text, SplitOptions(source_text="", unit_id="p.mlir", llvm_major=22))


def launch(types: str) -> str:
    count = types.count(",") + 1
    values = ", ".join(f"%{number}" for number in range(count))
    segments = f"array<i32: 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, {count}, 0>"
    sizes = ", ".join(["index"] * 6)
    return (
        f'  "func.func"() <{{sym_name = "f"}}> ({{\n    "gpu.launch_func"({", ".join(["%c"] * 6)}, '
        f"{values}) <{{kernel = @b::@k, operandSegmentSizes = {segments}}}> : ({sizes}, {types}) -> () "
        "loc(#loc)\n  }) : () -> () loc(#loc)\n"
    )


def binary(program: SplitProgram) -> GpuBinary:
    (found,) = program.binaries
    return found


@pytest.mark.parametrize(
    ("given", "arch", "compatible"),
    [
        (ptx("sm_80"), "sm_80", True),
        (ptx("sm_80"), "sm_100", True),
        (ptx("sm_90"), "sm_80", False),
        (ptx("sm_90a"), "sm_90a", True),
        (ptx("sm_90a"), "sm_100", False),
        (ptx("sm_80"), "gfx90a", False),
        (ptx("sm_80"), "host", False),
        (f'#gpu.object<#rocdl.target, assembly = "{escape(ASSEMBLY)}">', "gfx90a:xnack-", True),
        (f'#gpu.object<#rocdl.target, assembly = "{escape(ASSEMBLY)}">', "gfx1100", False),
    ],
)
def test_an_object_serves_the_gpus_that_run_it(given: str, arch: str, *, compatible: bool) -> None:
    (item,) = binary(split(given)).objects
    assert item.image.is_compatible(parse_offload_arch(arch)) is compatible


def test_kernels_keep_their_names_and_have_the_types_that_an_object_tells() -> None:
    found = binary(split(ptx(more='properties = {note = "a, ] > \\22"}, ')))
    assert [(kernel.name, kernel.symbol) for kernel in found.kernels] == [("k", "k")]
    # .b32 may be an integer or two halves, so that no C++ type is known to be passed like it.
    assert found.signature("k") == ("i64", "float", "[4 x i8]")


def test_the_host_gets_a_placeholder_in_its_place() -> None:
    assert 'gpu.binary @b [#gpu.object<#rocdl.target, "b">] loc(#loc)' in split(ptx()).host_text


@pytest.mark.parametrize(
    ("handler", "archs"),
    [
        ("#gpu.select_object", ["sm_80", "sm_90"]),
        ("#gpu.select_object<1 : i64>", ["sm_90"]),
        ('#gpu.select_object<#nvvm.target<chip = "sm_80">>', ["sm_80"]),
    ],
)
def test_the_handler_says_which_objects_count(handler: str, archs: list[str]) -> None:
    objects = (ptx("sm_80", chip="sm_80"), ptx("sm_90", chip="sm_90"))
    found = binary(split(*objects, handler=handler))
    assert [item.image.ptx for item in found.objects] == archs


@pytest.mark.parametrize("types", ["!llvm.ptr, f32, i32", "index, f32, vector<4xi8>"])
def test_a_launch_with_arguments_of_these_sizes_is_taken(types: str) -> None:
    assert "gpu.launch_func" in split(ptx(), more=launch(types)).host_text


@pytest.mark.parametrize(
    ("types", "hint"),
    [
        ("!llvm.ptr, f64, i32", "what the gpu.module took"),
        ("!llvm.ptr, f32", "what the gpu.module took"),
        ("memref<?xf32, 1>, f32, i32", "pass its pointer"),
        ("memref<*xf32>, i32", "pass its pointer"),
    ],
)
def test_a_launch_with_other_arguments_is_refused(types: str, hint: str) -> None:
    with pytest.raises(SourceError, match="takes arguments of 8, 4, 4 bytes") as caught:
        split(ptx(), more=launch(types))
    assert hint in caught.value.hint
    assert caught.value.location == "p.mlir:3:4"


@pytest.mark.parametrize(
    ("objects", "handler", "message"),
    [
        (
            (ptx("sm_80", chip="sm_90"),),
            "",
            "expected code for sm_90, found code for sm_80 and newer",
        ),
        (('#gpu.object<#nvvm.target, offload = "x">',), "", "expected offload code, found: "),
        (
            ('#gpu.object<#nvvm.target, "BC\\C0\\DE">',),
            "",
            "expected fatbin code, found: LLVM bit",
        ),
        (
            ('#gpu.object<#spirv.target_env<#x>, bin = "x">',),
            "",
            "target #spirv.target_env of an object is not supported",
        ),
        (
            (ptx(more='kernels = <[#gpu.kernel_metadata<"gone", () -> ()>]>, '),),
            "",
            "kernel gone, which the object for sm_80 and newer lacks",
        ),
        ((ptx(),), "#my.handler<1>", "offloading handler #my.handler"),
        ((ptx(),), "#gpu.select_object<1 : i64>", "selects an object that it does not hold"),
    ],
    ids=["chip", "word", "default", "dialect", "metadata", "handler", "index"],
)
def test_what_cannot_serve_is_refused(objects: tuple[str, ...], handler: str, message: str) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        split(*objects, handler=handler)
    assert caught.value.location == "p.mlir:3:4"
    assert caught.value.hint


@pytest.mark.parametrize("objects", [(ptx(name="other"),), (ptx(), ptx("sm_90", "other"))])
def test_a_kernel_that_is_launched_is_in_every_object(objects: tuple[str, ...]) -> None:
    with pytest.raises(SourceError, match=r"kernel @k is not in the code for sm_[89]0") as caught:
        split(*objects, more=launch("!llvm.ptr, f32, i32"))
    assert "other" in caught.value.hint


def test_kernels_of_one_name_in_two_of_them_are_refused() -> None:
    other = f'  "gpu.binary"() <{{objects = [{ptx()}], sym_name = "c"}}> : () -> () loc(#loc)\n'
    with pytest.raises(SourceError, match=r"kernel @k is in gpu\.binary @c and in gpu\.binary @b"):
        split(ptx(), more=other)
