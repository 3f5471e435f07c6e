"""Brackets, lists and strings of LLVM IR and MLIR; no rewrite changes a string, a name or a comment."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlir_offload.offload.abi import load_abis
from mlir_offload.offload.host.embed import HostKernel, embed_offload_data
from mlir_offload.offload.ir_syntax import (
    LLVM_IR,
    concealed,
    escape_bytes,
    kernel_signatures,
    name_of,
    reference,
    revealed,
    unescape_bytes,
)
from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.toolchain.target import NVPTX_TRIPLE, Kind
from mlir_offload.translate.cpu.module import cpu_device_ir, finish_cpu_ir
from mlir_offload.translate.fast_math import with_fast_math
from mlir_offload.translate.host.module import legalize_host_ir
from mlir_offload.translate.kernel import hermetic_text
from mlir_offload.translate.kind.cuda import needs_libdevice, nvptx_device_ir
from mlir_offload.translate.kind.hip import amdgpu_device_ir, needs_device_libraries
from mlir_offload.translate.kind_lowering import parse_form
from mlir_offload.translate.legalize.split import SplitOptions, split_program
from mlir_offload.translate.lower import unwrap_device
from mlir_offload.translate.mlir.module import Locations, parse_module, parse_operations
from mlir_offload.translate.mlir.operation import function_type
from mlir_offload.translate.mlir.syntax import MLIR, escape
from mlir_offload.translate.prefix_map import PrefixMap, map_locations
from mlir_offload.translate.sanitizer import Sanitizer, instrumented
from mlir_offload.translate.spirv.module import spirv_device_ir

# Text that a rewrite could mistake for code.
CODE = (
    *(" : (", ") -> ", " loc(", "= ", ", ", ">", "<", "(", ")", "{", "}", "[", "]", "-> ", "//", ";"),
    *('"', "\\", "%0", "%arg0", "%2", "@g", "@k", '@"', "!0", "#loc", "moq.41", "\n", "é", "c"),
    *("= #arith.fastmath<none>", "linkage = #llvm.linkage<external>", 'sym_name = "k"', "gpu.kernel"),
    *("known_block_size = array<i32: 9, 9, 99>", '"gpu.launch_func"(', "kernel = @a::@b", " = "),
    *("call void @vprintf(", "define void @main(", "ptr addrspace(3)", "ret void", "@__nv_sinf("),
    *("@__ocml_sin_f32(", "bfloat", "atomicrmw fadd", " asm ", "@mgpuLaunchKernel(", "noinline ", "@mgpuModuleGetFunction(ptr null, ptr @n)"),
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(CODE) | st.text(max_size=4), max_size=6).map(
    lambda parts: "".join(parts).replace("\0", "").encode("utf-8", "ignore").decode()
)
CHECKED = settings(max_examples=30, derandomize=True, deadline=None, database=None)

DEVICE = """\
; {comment}
source_filename = "LLVMDialectModule"

@g = internal constant [{size} x i8] c"{string}", align 1

declare i32 @vprintf(ptr, ptr)

define void {name}(ptr %0) {{
  store i32 1, ptr %0, align 4
  ret void
}}

define ptx_kernel void @k(ptr %0) {{
  %2 = alloca i32, i64 1, align 4
  %3 = load i8, ptr @g, align 1
  store i8 %3, ptr %2, align 1
  call void {name}(ptr %0)
  ret void
}}

!named = !{{!0}}
!0 = !{{!"{string}"}}
"""
HOST = """\
; {comment}
%t = type {{ ptr }}
@s = private constant [{size} x i8] c"{string}"
@n = internal constant [2 x i8] c"k\\00"

declare ptr @mgpuModuleGetFunction(ptr, ptr)
declare ptr @mgpuStreamCreate()
declare void @mgpuLaunchKernel(ptr, i64, i64, i64, i64, i64, i64, i32, ptr, ptr, ptr, i64)

define void {name}(ptr %0) {{
  br label %1

1:
  %2 = alloca %t, align 8
  %3 = alloca ptr, i64 1, align 8
  %4 = call ptr @mgpuModuleGetFunction(ptr null, ptr @n)
  %5 = call ptr @mgpuStreamCreate()
  call void @mgpuLaunchKernel(ptr %4, i64 1, i64 1, i64 1, i64 1, i64 1, i64 1, i32 0, ptr %5, ptr %3, ptr null, i64 1)
  ret void
}}

define void @main() {{
  call void {name}(ptr @s)
  ret void
}}

!named = !{{!0}}
!0 = !{{!"{string}"}}
"""


def spelled(name: str) -> str:
    is_bare = re.fullmatch(r"[-A-Za-z$._][-\w$.]*", name, re.ASCII)
    return f"@{name}" if is_bare else f'@"{escape_bytes(name.encode())}"'


def filled(template: str, name: str, string: str) -> str:
    """Return LLVM IR with a function of this name, and the string in every other place."""
    data = string.encode()
    comment = string.replace("\n", " ").replace("\r", " ")
    comment = " ".join(comment.splitlines())
    return template.format(
        comment=comment, size=len(data), string=escape_bytes(data), name=spelled(name)
    )


def annotated(text: str) -> str:
    kernels = [HostKernel("k", ("ptr",))]
    return embed_offload_data(
        legalize_host_ir(text),
        kernels=kernels,
        kinds=[Kind.CUDA],
        binary=b"x",
        abis=load_abis("22"),
    )


def finished_for_the_cpu(text: str) -> str:
    """Return what is made of a kernel with a barrier if nothing of it is collapsed."""
    waits = "  call void @llvm.nvvm.barrier0()\n  %3 = load"
    source = cpu_device_ir(text.replace("  %3 = load", waits), kernels=["k"], for_collapse=True)
    assert source.needs_collapse
    return finish_cpu_ir(source.text, source).text


DEVICE_REWRITES: dict[str, Callable[[str], str]] = {
    "cuda": lambda text: nvptx_device_ir(
        text, kernels=["k"], llvm_major=22, flushes_subnormals=True
    ),
    "hip": lambda text: amdgpu_device_ir(
        text, kernels=["k"], llvm_major=22, code_object=5, flushes_subnormals=True
    ),
    "sycl": lambda text: spirv_device_ir(text, kernels=["k"], llvm_major=22),
    "openmp": lambda text: cpu_device_ir(text, kernels=["k"]).text,
    "openmp, in regions": finished_for_the_cpu,
}
HOST_REWRITES: dict[str, Callable[[str], str]] = {
    "fix": legalize_host_ir,
    "annotate": annotated,
    "sanitize": lambda text: instrumented(text, Sanitizer.ADDRESS),
}


@CHECKED
@given(name=TEXTS, string=TEXTS)
def test_what_was_concealed_is_revealed(name: str, string: str) -> None:
    for template in (DEVICE, HOST):
        text = filled(template, f"n{name}", string)
        hidden = concealed(text)
        assert revealed(hidden) == text
        assert not re.search(r'[@%]"', hidden)
    assert name_of(reference(name)) == name


@pytest.mark.parametrize("kind", DEVICE_REWRITES)
@CHECKED
@given(name=TEXTS, string=TEXTS)
def test_a_rewrite_of_device_ir_changes_no_string_and_no_name(
    kind: str, name: str, string: str
) -> None:
    made = DEVICE_REWRITES[kind](filled(DEVICE, f"n{name}", string))
    data = escape_bytes(string.encode())
    assert f' c"{data}"' in made
    assert f'!{{!"{data}"}}' in made
    assert made.count(f" {spelled(f'n{name}')}(") == 2


@pytest.mark.parametrize("rewrite", HOST_REWRITES)
@CHECKED
@given(name=TEXTS, string=TEXTS)
def test_a_rewrite_of_host_ir_changes_no_string_and_no_name(
    rewrite: str, name: str, string: str
) -> None:
    text = filled(HOST, f"n{name}", string)
    made = HOST_REWRITES[rewrite](text)
    data = escape_bytes(string.encode())
    assert f' c"{data}"' in made
    assert f'!{{!"{data}"}}' in made
    assert text.splitlines()[0] in made
    assert made.count(f" {spelled(f'n{name}')}(") == 2
    if rewrite != "sanitize":
        assert "define i32 @main()" in made
        assert "call void @llvm.stackrestore.p0(" in made
        assert "call void @mgpuStreamDestroy(" in made


@CHECKED
@given(name=TEXTS, string=TEXTS)
def test_no_string_asks_for_a_device_library(name: str, string: str) -> None:
    text = filled(DEVICE, f"n{name}", string)
    assert not needs_libdevice(text)
    assert not needs_device_libraries(text)
    assert kernel_signatures(text) == {"k": ("ptr",)}


PROGRAM = """\
#loc1 = loc("{string}":1:2)
"builtin.module"() ({{
  "gpu.module"() <{{sym_name = "m"}}> ({{
    "llvm.mlir.global"() <{{addr_space = 0 : i32, constant, global_type = !llvm.array<1 x i8>, linkage = #llvm.linkage<external>, note = "{string}", sym_name = "{name}", value = "{string}"}}> ({{
    }}) : () -> () loc("{string}":3:4)
    "gpu.func"() <{{function_type = (!llvm.struct<"{string}", (i32)>, f32) -> ()}}> ({{
    ^bb0(%arg0: !llvm.struct<"{string}", (i32)> loc("{string}":3:4), %arg1: f32 loc("{string}":3:5)):
      %0 = "arith.addf"(%arg1, %arg1) <{{fastmath = #arith.fastmath<none>}}> {{note = "{string}"}} : (f32, f32) -> f32 loc(#loc1)
      "gpu.printf"(%0) <{{format = "{string}"}}> : (f32) -> () loc(#loc1)
      "gpu.return"() : () -> () loc(#loc1)
    }}) {{gpu.kernel, note = "{string}", sym_name = "k"}} : () -> () loc(#loc1)
  }}) : () -> () loc(#loc1)
  "func.func"() <{{function_type = (!llvm.struct<"{string}", (i32)>, f32) -> (), sym_name = "{name}"}}> ({{
  ^bb0(%arg0: !llvm.struct<"{string}", (i32)> loc(#loc1), %arg1: f32 loc(#loc1)):
    %0 = "arith.constant"() <{{value = 1 : index}}> : () -> index loc(#loc1)
    %1 = "gpu.wait"() {{note = "{string}"}} : () -> !gpu.async.token loc(#loc1)
    %2 = "gpu.launch_func"(%1, %0, %0, %0, %0, %0, %0, %arg0, %arg1) <{{kernel = @m::@k, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 2, 0>}}> {{note = "{string}"}} : (!gpu.async.token, index, index, index, index, index, index, !llvm.struct<"{string}", (i32)>, f32) -> !gpu.async.token loc("{string}":5:6)
    "gpu.wait"(%2) : (!gpu.async.token) -> () loc(#loc1)
    "func.return"() : () -> () loc(#loc1)
  }}) {{note = "{string}"}} : () -> () loc(#loc1)
}}) : () -> () loc(#loc1)
"""


def generic(name: str, string: str) -> str:
    return PROGRAM.format(name=escape(name), string=escape(string))


@CHECKED
@given(name=TEXTS, string=TEXTS)
def test_a_program_is_split_without_a_change_in_its_strings_and_names(
    name: str, string: str
) -> None:
    text = with_fast_math(map_locations(generic(f"n{name}", string), [PrefixMap("\0", "x")]))
    assert text.count("fastmath = #arith.fastmath<fast>") == 1
    forms = [parse_form(form) for form in ("nvvm32", "rocdl64", "spirv32")]
    program = split_program(
        text, SplitOptions(source_text="", unit_id="p", llvm_major=22, forms=forms)
    )
    (module,) = program.modules
    whole = generic(f"n{name}", string)
    quoted = f'"{escape(string)}"'
    device, host = whole.split('  "func.func"')
    for made in (module.text, *(other for _, other in module.texts)):
        assert made.count(quoted) == device.count(quoted)
        assert f'sym_name = "{escape(f"n{name}")}"' in made
    assert program.host_text.count(quoted) >= host.count(quoted)
    assert f'sym_name = "{escape(f"n{name}")}"' in program.host_text
    assert hermetic_text(module.text, keeps_locations=True).count(quoted) == device.count(quoted)
    body = parse_module(module.text).operations[0].operations
    assert function_type(body[1]) == ([f"!llvm.struct<{quoted}, (i32)>", "f32"], [])


@CHECKED
@given(name=TEXTS, string=TEXTS)
def test_a_lowered_module_is_unwrapped_without_a_change_in_its_strings(
    name: str, string: str
) -> None:
    text = f"""\
"builtin.module"() ({{
  "gpu.module"() <{{sym_name = "m"}}> ({{
    "llvm.func"() <{{function_type = !llvm.func<void ()>, note = "{escape(string)}", linkage = #llvm.linkage<external>, sym_name = "{escape("n" + name)}"}}> ({{
      "llvm.return"() : () -> () loc("{escape(string)}":1:1)
    }}) : () -> () loc(#loc)
  }}) : () -> () loc(#loc)
}}) : () -> () loc(#loc)
#loc = loc(unknown)
"""
    made = unwrap_device(parse_module(text), NVPTX_TRIPLE)
    assert made.count(f'"{escape(string)}"') == text.count(f'"{escape(string)}"')
    assert f'sym_name = "{escape("n" + name)}"' in made
    assert ", linkage = #llvm.linkage<internal>," in made


@CHECKED
@given(string=TEXTS)
def test_a_string_is_one_element_of_a_list(string: str) -> None:
    quoted = f'"{escape(string)}"'
    parts = ["a", f"!t<{quoted}, b>", "(c, d) -> e", f"affine_set<(d0) : (d0 - 1 >= 0)>{quoted}"]
    assert MLIR.split_list(", ".join(parts)) == parts
    assert MLIR.inside(f"x<{quoted}>, y", 1) == quoted
    spelled_parts = ["a", f'<{{ i8, ptr }}> c"{escape_bytes(string.encode())}"', "[2 x i32] zero"]
    assert LLVM_IR.split_list(", ".join(spelled_parts)) == spelled_parts
    line = f'"x.y"(%0, %1) <{{a = {quoted}}}> : (!t<{quoted}>, i32) -> f32 loc({quoted}(#loc1))'
    (operation,) = parse_operations([line])
    assert operation.location == f"loc({quoted}(#loc1))"
    assert operation.properties == {"a": quoted}
    assert (operation.operand_types, operation.result_types) == ([f"!t<{quoted}>", "i32"], ["f32"])
    assert operation.location == f"loc({quoted}(#loc1))"
    assert operation.lines() == [line]
    assert Locations({"#loc1": '"f":1:2'}).of(operation) == "f:1:2"


def test_a_bracket_that_nothing_closes_is_an_error() -> None:
    with pytest.raises(ValueError, match="unbalanced"):
        MLIR.closing('(")"', 0)


def test_the_brackets_around_a_place_are_found() -> None:
    text = 'f(a, "(", [b], {c, d})'
    assert LLVM_IR.enclosing(text, text.index("d")) == [1, text.index("{")]
    assert LLVM_IR.enclosing(text, text.index("b")) == [1, text.index("[b")]


def test_a_backslash_is_not_the_begin_of_the_escape_that_follows() -> None:
    # LLVM prints a backslash as two.
    assert unescape_bytes(r"a\\0A\0A") == b"a\\0A\n"


@pytest.mark.parametrize(
    ("template", "text", "found"),
    [
        ("store `type:word` `value:local`, ptr `address:global`", 'store i8 %"a b", ptr @x.y', ("i8", '%"a b"', "@x.y")),
        ("align `bytes:number`", "load i8, ptr %alignalign 1, align 16", ("16",)),
        ("`row|col`.`type:f16|bf16``stride:.stride?`", "col.bf16", ("bf16", "")),
        ("convergent ", "noconvergent x", None),
        ("i128", "%i128", None),
    ],
)  # fmt: skip
def test_a_pattern_is_the_text_that_it_matches(
    template: str, text: str, found: tuple[str, ...] | None
) -> None:
    match = ir_pattern(template).search(text)
    assert (match.groups() if match else None) == found
