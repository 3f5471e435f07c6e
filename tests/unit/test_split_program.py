"""Split a program into host and device modules, and reject unsupported programs before any pass runs."""

from __future__ import annotations

from functools import partial

import pytest

from mlir_offload.driver.option.command_line import parse_arguments
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.gpu_module import named_modules
from mlir_offload.translate.kernel import assign_symbols
from mlir_offload.translate.kind_lowering import parse_form
from mlir_offload.translate.legalize.split import SplitOptions, SplitProgram, split_program

LOCATIONS = """
#loc = loc(unknown)
#loc1 = loc("p.mlir":1:2)
#loc2 = loc("p.mlir":3:4)
"""
SOURCE = "gpu.module @m { }"


def module(*body: str) -> str:
    return "\n".join(
        [
            '"builtin.module"() ({',
            *body,
            "}) {gpu.container_module} : () -> () loc(#loc)",
            LOCATIONS,
        ]
    )


def gpu_module(*body: str, name: str = "m", kernel: str = "k") -> str:
    return "\n".join(
        (
            f'  "gpu.module"() <{{sym_name = "{name}"}}> ({{',
            '    "gpu.func"() <{function_type = (f32) -> ()}> ({',
            '    ^bb0(%arg0: f32 loc("p.mlir":1:9)):',
            *(f"      {line}" for line in body),
            '      "gpu.return"() : () -> () loc(#loc1)',
            f'    }}) {{gpu.kernel, sym_name = "{kernel}"}} : () -> () loc(#loc1)',
            "  }) : () -> () loc(#loc1)",
        )
    )


def host(*body: str) -> str:
    return "\n".join(
        (
            '  "func.func"() <{function_type = () -> (), sym_name = "main"}> ({',
            *(f"    {line}" for line in body),
            '    "func.return"() : () -> () loc(#loc2)',
            "  }) : () -> () loc(#loc2)",
        )
    )


NESTED_MODULE = "\n".join(
    (
        '  "builtin.module"() ({',
        *(f"  {line}" for line in host().splitlines()),
        "  }) : () -> () loc(#loc2)",
    )
)


def launch(kernel: str) -> str:
    return (
        f'"gpu.launch_func"(%0, %0, %0, %0, %0, %0, %1) <{{kernel = @{kernel}, operandSegmentSizes = '
        "array<i32: 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 0>}> : "
        "(index, index, index, index, index, index, f32) -> () loc(#loc2)"
    )


def split(text: str, source: str = SOURCE, llvm_major: int = 22) -> SplitProgram:
    return split_program(
        text, SplitOptions(source_text=source, unit_id="unit", llvm_major=llvm_major)
    )


def test_host_and_device_are_separated() -> None:
    program = split(module(gpu_module(), host(launch("m::@k"))))

    assert '  gpu.binary @m [#gpu.object<#rocdl.target, "m">] loc(#loc1)' in program.host_text
    assert "gpu.func" not in program.host_text
    assert "func.func" not in program.modules[0].text
    assert program.has_gpu


def test_a_program_without_gpu_code_has_no_modules() -> None:
    program = split(module(host()))

    assert not program.has_gpu


def test_a_module_without_kernels_is_left_out() -> None:
    text = module(gpu_module().replace("gpu.kernel, ", ""), host())

    program = split(text)

    assert not program.has_gpu
    assert "gpu.binary" not in program.host_text


def test_a_kernel_that_the_author_named_keeps_its_name() -> None:
    program = split(module(gpu_module(), host(launch("m::@k"))))

    assert program.modules[0].kernels[0].symbol == "k"


def test_an_outlined_kernel_is_named_after_its_unit() -> None:
    text = module(gpu_module(name="main_kernel"), host(launch("main_kernel::@k")))

    program = split(text, source="gpu.launch")

    symbol = program.modules[0].kernels[0].symbol
    assert symbol.startswith("__mo_")
    assert symbol.endswith("_main_kernel__k")
    assert program.modules[0].kernels[0].name == "k"
    assert f'sym_name = "{symbol}"' in program.modules[0].text
    assert f"kernel = @main_kernel::@{symbol}" in program.host_text


def test_kernels_of_one_name_are_told_apart_by_module() -> None:
    text = module(
        gpu_module(name="a"), gpu_module(name="b"), host(launch("a::@k"), launch("b::@k"))
    )

    program = split(text, source="gpu.module @a {}\ngpu.module @b {}")

    symbols = [item.kernels[0].symbol for item in program.modules]
    assert len(set(symbols)) == 2
    assert all(f"::@{symbol}," in program.host_text for symbol in symbols)


def test_a_name_that_nvptx_refuses_is_coded() -> None:
    symbols = assign_symbols(
        {"m": ("a.b", "a-b", "1st", "ok")}, named=frozenset({"m"}), unit_of=str
    )

    assert symbols["m", "ok"] == "ok"
    assert all(symbol.isascii() and symbol.isidentifier() for symbol in symbols.values())
    assert len(set(symbols.values())) == 4


def test_a_module_of_any_name_stands_in_the_host_without_quotes() -> None:
    text = module(gpu_module(name="a b"), gpu_module(name="a_20b"), host(launch('"a b"::@k')))

    program = split(text)

    assert "gpu.binary @a_20b [" in program.host_text
    assert "gpu.binary @a_20b_ [" in program.host_text
    symbol = program.modules[0].kernels[0].symbol
    assert f"kernel = @a_20b_::@{symbol}" in program.host_text


def test_equal_names_in_two_units_differ() -> None:
    one, two = (
        assign_symbols({"m": ("k",)}, named=frozenset(), unit_of={"m": unit}.__getitem__)["m", "k"]
        for unit in ("one", "two")
    )

    assert one != two


@pytest.mark.parametrize(
    "source",
    [
        "gpu.module @m {",
        "gpu.module  @m [#nvvm.target]",
        'gpu.module @"m" {',
        '"gpu.module"() <{sym_name = "m"}> ({',
        '"gpu.module"() ({\n}) {sym_name = "m"} : () -> ()',
        "ML\u00efR...gpu.module\0m\0",
        "ML\udcefR...gpu.module\0m\0",
    ],
)
def test_a_module_that_the_author_wrote_is_recognised(source: str) -> None:
    assert named_modules(["m"], source) == {"m"}


@pytest.mark.parametrize(
    "source", ["// gpu.module @m {", "gpu.module @mm {", "ML\u00efR...gpu.launch\0main\0"]
)
def test_a_module_that_outlining_made_is_recognised(source: str) -> None:
    assert named_modules(["m"], source) == frozenset()


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (
            '"scf.if"(%9) ({\n        %1 = "gpu.all_reduce"(%arg0) ({\n        }) : (f32) -> f32 loc(#loc2)\n      }, {\n      }) : (i1) -> ()',
            "'uniform'",
        ),
        (
            '%1 = "gpu.all_reduce"(%arg0) <{op = #gpu<all_reduce_op add>, uniform}> ({\n      }) : (i128) -> i128',
            "at most 64 bits",
        ),
        ('%1:2 = "gpu.shuffle"(%arg0, %2, %3) <{mode = #gpu<x>}> : (i128, i32, i32) -> (i128, i1)', "gpu.shuffle on i128"),
        ('%1 = "gpu.subgroup_reduce"(%arg0) <{op = #gpu<all_reduce_op add>}> : (f80) -> f80', "on f80"),
        ('%1 = "gpu.subgroup_broadcast"(%arg0) <{broadcast_type = #gpu<broadcast first_active_lane>}> : (f32) -> f32', "run independently"),
        (
            '%1 = "memref.generic_atomic_rmw"(%2, %3) ({\n      }) : (memref<?xf32>, index) -> f32',
            "generic_atomic_rmw",
        ),
        ('%1 = "llvm.call_intrinsic"() <{intrin = "llvm.amdgcn.workitem.id.x"}> : () -> i32', "intrinsic of AMD GPUs"),
    ],
)  # fmt: skip
def test_device_operations_without_a_lowering_are_refused(operation: str, message: str) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        split(module(gpu_module(f"{operation} loc(#loc2)")))

    assert caught.value.location == "p.mlir:3:4"
    assert caught.value.hint


@pytest.mark.parametrize(
    "operation",
    [
        '%1 = "gpu.all_reduce"(%arg0) <{op = #gpu<all_reduce_op add>, uniform}> ({\n      }) : (f32) -> f32',
        '%1:2 = "gpu.shuffle"(%arg0, %2, %3) <{mode = #gpu<x>}> : (f64, i32, i32) -> (f64, i1)',
        '%1 = "memref.generic_atomic_rmw"(%2, %3) ({\n      }) : (memref<?xi32>, index) -> i32',
    ],
)
def test_their_lowered_forms_are_accepted(operation: str) -> None:
    assert split(module(gpu_module(f"{operation} loc(#loc2)"))).has_gpu


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (NESTED_MODULE, "module inside a module"),
        ('  "gpu.binary"() <{sym_name = "b"}> : () -> () loc(#loc2)', "contains no object"),
        (
            '  "llvm.func"() <{sym_name = "k"}> ({\n  }) {nvvm.kernel} : () -> () loc(#loc2)',
            "outside of a gpu.module",
        ),
        (
            '  "llvm.func"() <{sym_name = "f", target_cpu = "sm_60"}> ({\n  }) : () -> () loc(#loc2)',
            "compiled for a GPU",
        ),
        (
            (
                '  "func.func"() <{sym_name = "f"}> ({\n    "gpu.module"() <{sym_name = "n"}> ({\n'
                "    }) : () -> () loc(#loc2)\n  }) : () -> () loc(#loc1)"
            ),
            "inside of func.func",
        ),
    ],
)
def test_what_must_not_stand_there_is_refused(body: str, message: str) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        split(module(body))

    assert caught.value.location == "p.mlir:3:4"


def test_a_declared_device_function_is_refused() -> None:
    text = module(gpu_module()).replace(
        '    "gpu.func"',
        '    "func.func"() <{function_type = (f32) -> f32, sym_name = "ext"}> ({\n'
        '    }) : () -> () loc(#loc2)\n    "gpu.func"',
        1,
    )

    with pytest.raises(SourceError, match="@ext is declared") as caught:
        split(text)

    assert caught.value.location == "p.mlir:3:4"
    assert "llvm.func @ext" in caught.value.hint


def test_a_kernel_that_returns_a_value_is_refused() -> None:
    text = (
        module(gpu_module())
        .replace('"gpu.func"', '"func.func"')
        .replace("(f32) -> ()", "(f32) -> i32")
    )
    with pytest.raises(SourceError, match="kernel @k returns a value"):
        split(text)


def test_an_nvvm_operation_on_the_host_is_refused() -> None:
    with pytest.raises(SourceError, match=r"nvvm\.barrier0 is not supported in host code"):
        split(module(host('"nvvm.barrier0"() : () -> () loc(#loc2)')))


def test_reductions_decide_what_a_module_needs() -> None:
    uniform = '%1 = "gpu.subgroup_reduce"(%arg0) <{op = #gpu<all_reduce_op add>, uniform}> : (i32) -> i32 loc(#loc2)'
    other = '%2 = "gpu.subgroup_reduce"(%arg0) <{op = #gpu<all_reduce_op add>}> : (f32) -> f32 loc(#loc2)'

    assert split(module(gpu_module())).modules[0].needs == frozenset()
    assert split(module(gpu_module(uniform))).modules[0].needs == {"subgroup_reduce", "redux"}
    assert split(module(gpu_module(uniform, other))).modules[0].needs == frozenset()
    assert '"gpu.subgroup_reduce"' not in split(module(gpu_module(uniform, other))).modules[0].text


@pytest.mark.parametrize(
    ("attribute", "major", "complaint"),
    [
        ("known_block_size = array<i32: 64, 8, 4>", 22, "@k has 2048 threads"),
        ("gpu.known_block_size = array<i32: 64, 8, 4>", 22, "@k has 2048 threads"),
        ("known_block_size = array<i32: 64, 8, 2>", 22, ""),
        ("rocdl.waves_per_eu = 8 : i32", 19, "drops rocdl.waves_per_eu of @k"),
        ("rocdl.waves_per_eu = 8 : i32", 22, ""),
    ],
)
def test_launch_bounds_that_nothing_would_heed_are_refused(
    attribute: str, major: int, complaint: str
) -> None:
    text = module(gpu_module().replace("{gpu.kernel", f"{{{attribute}, gpu.kernel"))
    if not complaint:
        assert split_program(
            text, SplitOptions(source_text=SOURCE, unit_id="p", llvm_major=major)
        ).modules
        return
    with pytest.raises(SourceError, match=complaint):
        split_program(text, SplitOptions(source_text=SOURCE, unit_id="p", llvm_major=major))


@pytest.mark.parametrize(("major", "is_kept"), [(21, False), (22, True)])
def test_default_flags_that_llvm_21_reads_as_those_of_arith_are_left_out(
    *, major: int, is_kept: bool
) -> None:
    call = '%9 = "llvm.call"() <{callee = @f, fastmathFlags = #llvm.fastmath<none>}> : () -> i32 loc(#loc2)'
    options = SplitOptions(source_text=SOURCE, unit_id="p", llvm_major=major)
    text = split_program(module(host(call)), options).host_text
    assert ("#llvm.fastmath<none>" in text) == is_kept
    assert "callee = @f" in text


def main_of(kind: str) -> str:
    name = "llvm" if kind.startswith("!llvm.func") else "func"
    return "\n".join(
        (
            '"builtin.module"() ({',
            f'  "{name}.func"() <{{function_type = {kind}, sym_name = "main"}}> ({{',
            f'    "{name}.return"() : () -> () loc(#loc2)',
            '  }) : () -> () loc("p.mlir":7:3)',
            "}) : () -> () loc(#loc2)",
            "#loc2 = loc(unknown)",
        )
    )


@pytest.mark.parametrize(
    "kind",
    [
        "() -> ()",
        "() -> i32",
        "() -> index",
        "() -> i8",
        "(i32) -> i64",
        "(i32, !llvm.ptr) -> ()",
        "(i32, !llvm.ptr, !llvm.ptr) -> i32",
        "!llvm.func<void ()>",
        "!llvm.func<i32 (i32, ptr)>",
    ],
)
def test_a_main_that_a_program_can_start_with_is_accepted(kind: str) -> None:
    split_program(
        main_of(kind), SplitOptions(source_text="", unit_id="unit", llvm_major=22, is_program=True)
    )


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("() -> f32", "() -> (f32)"),
        ("() -> (i32, i32)", "() -> (i32, i32)"),
        ("(memref<4xf32>) -> ()", "(memref<4xf32>) -> ()"),
        ("(i64, !llvm.ptr) -> ()", "(i64, !llvm.ptr) -> ()"),
        ("(i32, !llvm.ptr, !llvm.ptr, i32) -> ()", "(i32, !llvm.ptr, !llvm.ptr, i32) -> ()"),
        ("() -> i128", "() -> (i128)"),
        ("!llvm.func<i32 (i32, ...)>", "(i32, ...) -> (i32)"),
        ("!llvm.func<struct<(i32, i32)> ()>", "() -> (!llvm.struct<(i32, i32)>)"),
    ],
)
def test_a_main_that_no_program_can_start_with_is_an_error(kind: str, shown: str) -> None:
    with pytest.raises(SourceError) as caught:
        split_program(
            main_of(kind),
            SplitOptions(source_text="", unit_id="unit", llvm_major=22, is_program=True),
        )
    assert caught.value.message == f"a program cannot start with @main of type {shown}"
    assert caught.value.location == "p.mlir:7:3"
    split(main_of(kind))


def test_only_code_for_a_program_must_have_a_main_that_starts_one() -> None:
    programs = [("k.mlir",), ("-c", "k.mlir")]
    libraries = [("-shared", "k.mlir"), ("-c", "-fPIC", "k.mlir")]
    assert all(parse_arguments(arguments).makes_program for arguments in programs)
    assert not any(parse_arguments(arguments).makes_program for arguments in libraries)


def lowered_function(name: str, types: str, attributes: str) -> str:
    return "\n".join(
        (
            f'    "llvm.func"() <{{function_type = !llvm.func<{types}>, sym_name = "{name}"}}> ({{',
            '      "llvm.return"() : () -> () loc(#loc1)',
            f"    }}) {{{attributes}}} : () -> () loc(#loc1)",
        )
    )


def lowered_module(*functions: str) -> str:
    return module(
        '  "gpu.module"() <{sym_name = "m"}> ({', *functions, "  }) : () -> () loc(#loc1)"
    )


@pytest.mark.parametrize(
    ("form", "given", "marked"),
    [
        ("nvvm32", "gpu.kernel", "nvvm.kernel, gpu.kernel"),
        ("rocdl64", "gpu.kernel", "rocdl.kernel, gpu.kernel"),
        ("rocdl64", "gpu.kernel, nvvm.kernel", "gpu.kernel, rocdl.kernel"),
        ("nvvm32", "gpu.kernel, rocdl.kernel", "gpu.kernel, nvvm.kernel"),
        ("nvvm32", "rocdl.kernel", "nvvm.kernel"),
        ("nvvm32", "gpu.kernel, nvvm.kernel", "gpu.kernel, nvvm.kernel"),
    ],
)
def test_a_lowered_kernel_gets_the_mark_of_its_back_end(form: str, given: str, marked: str) -> None:
    text = lowered_module(lowered_function("k", "void (f32)", given))
    program = split_program(
        text, SplitOptions(source_text=SOURCE, unit_id="u", llvm_major=22, forms=[parse_form(form)])
    )

    assert [kernel.name for kernel in program.modules[0].kernels] == ["k"]
    assert f"    }}) {{{marked}}} : () -> ()" in program.modules[0].text


IMPORTED = """\
  "gpu.module"() <{sym_name = "m"}> ({
    "llvm.func"() <{CConv = #llvm.cconv<FUNCTION>, function_type = !llvm.func<void ()>, passthrough = \
[["target-cpu", "sm_90"], "norecurse", ["target-features", "+ptx88"]], sym_name = "f", target_cpu = "sm_90", \
target_features = #llvm.target_features<["+ptx88"]>}> ({
      "llvm.return"() : () -> () loc(#loc1)
    }) : () -> () loc(#loc1)
    "llvm.func"() <{CConv = #llvm.cconv<KERNEL>, function_type = !llvm.func<void ()>, sym_name = "k"}> ({
      "llvm.call"() <{CConv = #llvm.cconv<FUNCTION>, callee = @f}> : () -> () loc(#loc1)
      "llvm.return"() : () -> () loc(#loc1)
    }) : () -> () loc(#loc1)
  }) : () -> () loc(#loc1)"""


@pytest.mark.parametrize(
    ("kernel", "function"),
    [
        ("ptx_kernelcc", "ptx_devicecc"),
        ("spir_kernelcc", "spir_funccc"),
        ("amdgpu_kernelcc", "amdgpu_gfxcc"),
    ],
)
def test_what_clang_compiled_for_one_device_is_for_any(kernel: str, function: str) -> None:
    program = split(module(IMPORTED.replace("KERNEL", kernel).replace("FUNCTION", function)))

    (made,) = program.modules
    assert [kernel.name for kernel in made.kernels] == ["k"]
    assert made.text.count("CConv = #llvm.cconv<ccc>") == made.text.count("CConv") == 3
    assert "{nvvm.kernel, gpu.kernel}" in made.text
    assert 'passthrough = ["norecurse"]' in made.text
    assert "sm_90" not in made.text
    assert "ptx88" not in made.text


def test_a_lowered_function_that_returns_a_value_is_no_kernel() -> None:
    text = lowered_module(
        lowered_function("k", "void ()", "gpu.kernel"),
        lowered_function("fma", "f32 (f32)", "gpu.kernel"),
    )
    program = split(text)

    assert [kernel.name for kernel in program.modules[0].kernels] == ["k"]
    with pytest.raises(SourceError, match="launch of kernel @m::@fma") as caught:
        split(text.replace("}) {gpu.container_module}", f"{host(launch('m::@fma'))}\n}}) {{a}}"))
    assert "returns nothing" in caught.value.hint


SCRIPT = (
    '  "transform.named_sequence"() <{sym_name = "__transform_main"}> ({\n'
    '    "transform.yield"() : () -> () loc(#loc1)\n'
    "  }) : () -> () loc(#loc2)"
)
NESTED_SCRIPT = (
    '  "builtin.module"() ({\n'
    + "\n".join(f"  {line}" for line in SCRIPT.splitlines())
    + "\n  }) {transform.with_named_sequence} : () -> () loc(#loc2)"
)
ERASED_SCRIPT = (
    '  "builtin.module"() ({\n  ^bb0:\n  }) {transform.with_named_sequence} : () -> () loc(#loc2)'
)


@pytest.mark.parametrize("script", [SCRIPT, NESTED_SCRIPT, ERASED_SCRIPT])
def test_a_transform_script_that_was_run_is_dropped(script: str) -> None:
    text = module(gpu_module(), host(launch("m::@k")), script)
    program = split_program(
        text, SplitOptions(source_text=SOURCE, unit_id="u", llvm_major=22, is_transformed=True)
    )

    assert "transform." not in program.host_text
    assert program.host_text.count('"builtin.module"(') == 1


@pytest.mark.parametrize("script", [SCRIPT, NESTED_SCRIPT])
def test_a_transform_script_that_no_pass_has_run_is_refused_with_the_pipeline(script: str) -> None:
    with pytest.raises(SourceError, match="but no pass runs it") as caught:
        split(module(host(), script))

    assert caught.value.location == "p.mlir:3:4"
    assert "--pipeline=transform-interpreter,gpu" in caught.value.hint


@pytest.mark.parametrize(
    ("form", "assembly", "message"),
    [
        ("rocdl64", "mov.u32 $0, %laneid;", "inline PTX assembly"),
        ("rocdl32", "{ .reg .pred p;\\0A  @p bra L; }", ""),
        ("rocdl64", "@p ld.global.f32 $0, [$1];", "inline PTX assembly"),
        ("rocdl64", "v_mov_b32 $0, 1.5", ""),
        ("spirv32", "mov.u32 $0, %laneid;", "not supported for spirv64"),
        ("nvvm32", "mov.u32 $0, %laneid;", ""),
    ],
)
def test_inline_assembly_of_another_gpu_is_refused(form: str, assembly: str, message: str) -> None:
    line = f'%1 = "llvm.inline_asm"() <{{asm_string = "{assembly}", constraints = "=r"}}> : () -> i32 loc(#loc2)'
    text = module(gpu_module(line))
    made = partial(
        split_program,
        text,
        SplitOptions(source_text=SOURCE, unit_id="u", llvm_major=22, forms=[parse_form(form)]),
    )
    if not message:
        made()
        return
    with pytest.raises(SourceError, match=message) as caught:
        made()
    assert caught.value.location == "p.mlir:3:4"


STRIDED = "memref<4xf32, strided<[?], offset: ?>>"


@pytest.mark.parametrize(
    ("operation", "becomes"),
    [
        ('"gpu.memcpy"(%0, %1) : (memref<4xf32>, memref<4xf32>) -> ()', '"gpu.memcpy"('),
        (f'"gpu.memcpy"(%0, %1) : (memref<4xf32>, {STRIDED}) -> ()', "@mgpuMemcpyMemRef("),
        (f'"gpu.memcpy"(%0, %1) : ({STRIDED}, memref<4xf32>) -> ()', "@mgpuMemcpyMemRef("),
        ('"gpu.memset"(%0, %1) : (memref<4xf32>, f32) -> ()', '"gpu.memset"('),
        ('"gpu.memset"(%0, %1) : (memref<4xf64>, f64) -> ()', "@mgpuMemsetMemRef("),
        (
            '%2 = "gpu.alloc"() <{operandSegmentSizes = array<i32: 0, 0, 0>}> : () -> memref<4xf32>',
            ": (!gpu.async.token) -> (memref<4xf32>, !gpu.async.token)",
        ),
        (
            '%2 = "gpu.alloc"(%0, %1) <{operandSegmentSizes = array<i32: 0, 0, 2>}> : (index, index) -> '
            + STRIDED,
            "memref.reinterpret_cast",
        ),
    ],
)  # fmt: skip
def test_memory_of_the_host_is_rewritten_where_the_stock_lowering_is_wrong(
    operation: str, becomes: str
) -> None:
    text = split(module(host(f"{operation} loc(#loc2)"))).host_text
    assert becomes in text
    assert ("mgpuMem" in text or "reinterpret_cast" in text) is (becomes[0] in "@m")


@pytest.mark.parametrize("chip", ["", "sm_80"])
def test_what_is_attached_to_a_module_is_read_where_something_is(chip: str) -> None:
    attached = f', targets = [#nvvm.target<chip = "{chip}">]' if chip else ""
    text = module(gpu_module().replace('sym_name = "m"', f'sym_name = "m"{attached}'))
    (made,) = split(text).modules
    assert [target.chip for target in made.targets] == [chip] * bool(chip)
