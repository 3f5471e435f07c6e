"""External kernel declarations: their lowering, and launches that are rejected."""

from __future__ import annotations

import pytest

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.legalize.split import SplitOptions, SplitProgram, split_program

PROGRAM = """\
"builtin.module"() ({{
  "gpu.module"() <{{sym_name = "cuda"}}> ({{
    {declaration}
    }}) {{gpu.kernel}} : () -> () loc(#loc1)
{defined}  }}) : () -> () loc(#loc1)
  "func.func"() <{{function_type = () -> (), sym_name = "main"}}> ({{
    "gpu.launch_func"(%0, %0, %0, %0, %0, %0, %1, %2) <{{kernel = @cuda::@scale, \
operandSegmentSizes = array<i32: 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 2, 0>}}> : \
(index, index, index, index, index, index, {types}) -> () loc(#loc2)
  }}) : () -> () loc(#loc2)
}}) {{gpu.container_module}} : () -> () loc(#loc)
#loc = loc(unknown)
#loc1 = loc("p.mlir":1:2)
#loc2 = loc("p.mlir":3:4)
"""
OF_LLVM = (
    '"llvm.func"() <{{function_type = !llvm.func<{0}>, linkage = #llvm.linkage<external>, '
    'sym_name = "scale"}}> ({{'
)
OF_FUNC = (
    '"func.func"() <{{function_type = {0}, sym_name = "scale", sym_visibility = "private"}}> ({{'
)
DEFINED = """\
    "gpu.func"() <{function_type = (f32) -> ()}> ({
    ^bb0(%arg0: f32):
      "gpu.return"() : () -> () loc(#loc1)
    }) {gpu.kernel, sym_name = "mine"} : () -> () loc(#loc1)
"""


def split(declaration: str, types: str, *, defined: str = "") -> SplitProgram:
    text = PROGRAM.format(declaration=declaration, types=types, defined=defined)
    return split_program(
        text, SplitOptions(source_text="gpu.module @cuda", unit_id="unit", llvm_major=22)
    )


@pytest.mark.parametrize(
    ("declaration", "types"),
    [
        (OF_LLVM.format("void (ptr, f32)"), "!llvm.ptr, f32"),
        (OF_LLVM.format("void (ptr<1>, i64)"), "!llvm.ptr, index"),
        (OF_LLVM.format("void (struct<(i32, ptr)>, i8)"), "!llvm.struct<(i32, ptr)>, i8"),
        (OF_FUNC.format("(!llvm.ptr, index) -> ()"), "!llvm.ptr<1>, i64"),
    ],
)
def test_the_host_launches_it_by_its_name_and_no_device_code_is_made(
    declaration: str, types: str
) -> None:
    program = split(declaration, types)
    assert program.modules == ()
    assert program.declared == ("scale",)
    assert "gpu.binary @cuda [" in program.host_text
    assert "kernel = @cuda::@scale," in program.host_text


def test_the_kernels_beside_it_are_compiled_without_it() -> None:
    program = split(OF_LLVM.format("void (ptr, f32)"), "!llvm.ptr, f32", defined=DEFINED)
    (module,) = program.modules
    assert [kernel.name for kernel in module.kernels] == ["mine"]
    assert "scale" not in module.text


def test_a_kernel_of_that_name_in_another_module_gives_way() -> None:
    text = PROGRAM.format(
        declaration=OF_LLVM.format("void (ptr, f32)"), types="!llvm.ptr, f32", defined=""
    )
    kernel = DEFINED.replace("mine", "scale")
    other = f'  "gpu.module"() <{{sym_name = "m"}}> ({{\n{kernel}  }}) : () -> () loc(#loc1)\n'
    text = text.replace(
        '  "func.func"() <{function_type = () -> (), sym',
        other + '  "func.func"() <{function_type = () -> (), sym',
    )
    source = "gpu.module @cuda {} gpu.module @m {}"
    program = split_program(text, SplitOptions(source_text=source, unit_id="unit", llvm_major=22))
    assert program.declared == ("scale",)
    (symbol,) = (kernel.symbol for kernel in program.modules[0].kernels)
    assert symbol.startswith("__mo_")
    assert symbol.endswith("_m__scale")


@pytest.mark.parametrize(
    ("declaration", "types", "message", "hint"),
    [
        (
            OF_LLVM.format("void (ptr, f32)"),
            "memref<4xf32>, f32",
            r"@scale is launched with \(memref<4xf32>, f32\), but declared with \(ptr, f32\)",
            "extract_aligned_pointer_as_index",
        ),
        (
            OF_LLVM.format("void (ptr)"),
            "!llvm.ptr, f32",
            r"launched with \(!llvm.ptr, f32\), but declared with \(ptr\)",
            "the types that its author declared",
        ),
        (
            OF_LLVM.format("void (ptr, f64)"),
            "!llvm.ptr, f32",
            r"but declared with \(ptr, f64\)",
            "the types",
        ),
        (
            OF_FUNC.format("(memref<4xf32>, f32) -> ()"),
            "memref<4xf32>, f32",
            r"@scale is declared with memref<4xf32>, which is not one argument in C\+\+",
            "declare !llvm.ptr",
        ),
        (
            OF_LLVM.format("i32 (ptr, f32)"),
            "!llvm.ptr, f32",
            "@scale is declared with a result",
            "kernels return nothing",
        ),
    ],
)
def test_what_cpp_would_take_otherwise_is_refused(
    declaration: str, types: str, message: str, hint: str
) -> None:
    with pytest.raises(SourceError, match=message) as error:
        split(declaration, types)
    assert hint in error.value.hint
    assert error.value.location.startswith("p.mlir:")
