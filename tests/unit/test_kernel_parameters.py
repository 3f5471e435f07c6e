"""The parts of memrefs that kernels get as parameters, and the attributes of the pointers."""

from __future__ import annotations

import re

import pytest

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.kernel import ParameterForm, parse_descriptor
from mlir_offload.translate.legalize.split import SplitOptions, SplitProgram, split_program

LOAD = '%v = "memref.load"(%x, %i) : (memref<?xf32>, index) -> f32'
STORE = '"memref.store"(%v, %y, %i) : (f32, memref<?xf32>, index) -> ()'
BARRIER = '"gpu.barrier"() : () -> ()'
TYPES = "(memref<?xf32>, memref<?xf32>, index)"


def program(body: str, host: str = "", *, x: str = "memref<?xf32>") -> str:
    """Return a program in generic form: a kernel of an outlined module, and a launch."""
    types = f"{x}, memref<?xf32>, index"
    allocated = host or "\n".join(
        f'%{name} = "gpu.alloc"(%n) <{{operandSegmentSizes = array<i32: 0, 1, 0>}}> : (index) -> {kind}'
        for name, kind in (("a", x), ("b", "memref<?xf32>"))
    )
    return f"""
"builtin.module"() ({{
  "gpu.module"() <{{sym_name = "m"}}> ({{
    "gpu.func"() <{{function_type = ({types}) -> ()}}> ({{
    ^bb0(%x: {x}, %y: memref<?xf32>, %i: index):
      {body}
      "gpu.return"() : () -> ()
    }}) {{gpu.kernel, sym_name = "k"}} : () -> ()
  }}) : () -> ()
  "func.func"() <{{function_type = (index, memref<?xf32>) -> (), sym_name = "f"}}> ({{
  ^bb0(%n: index, %given: memref<?xf32>):
    {allocated}
    "gpu.launch_func"(%n, %n, %n, %n, %n, %n, %a, %b, %n) <{{kernel = @m::@k, operandSegmentSizes = array<i32: 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 3, 0>}}> : (index, index, index, index, index, index, {types}) -> ()
    "func.return"() : () -> ()
  }}) : () -> ()
}}) {{gpu.container_module}} : () -> ()
"""


def split(
    text: str,
    form: ParameterForm = ParameterForm.NEEDED,
    *,
    source: str = "gpu.launch",
    bits: int = 64,
) -> SplitProgram:
    return split_program(
        text,
        SplitOptions(
            source_text=source, unit_id="u", llvm_major=22, parameters=form, index_bits=bits
        ),
    )


def kernel_type(made: SplitProgram) -> str:
    found = re.search(r"function_type = (\([^)]*\)) -> \(\)", made.modules[0].text)
    assert found
    return found[1]


def attributes(made: SplitProgram) -> str:
    found = re.search(r"arg_attrs = (\[[^\]]*\])", made.modules[0].text)
    return found[1] if found else ""


def launched(made: SplitProgram) -> str:
    line = next(one for one in made.host_text.splitlines() if "gpu.launch_func" in one)
    return line.partition(" : ")[2]


def test_a_kernel_of_the_program_alone_is_passed_the_parts_that_it_reads() -> None:
    made = split(program(f"{LOAD}\n{STORE}"))
    assert kernel_type(made) == "(!llvm.ptr, !llvm.ptr, index)"
    assert "index, !llvm.ptr, !llvm.ptr, index) ->" in launched(made)


def test_a_parameter_without_a_use_is_not_passed() -> None:
    made = split(program(LOAD))
    assert kernel_type(made) == "(!llvm.ptr, index)"
    assert "!llvm.ptr, index)" in launched(made)


def test_a_size_is_passed_if_the_kernel_asks_for_it() -> None:
    body = '%d = "memref.dim"(%x, %i) : (memref<?xf32>, index) -> index'
    assert kernel_type(split(program(body))) == "(!llvm.ptr, i64, index)"


def test_a_kernel_that_others_may_launch_keeps_all_parts() -> None:
    made = split(program(f"{LOAD}\n{STORE}"), source="gpu.module @m")
    parts = ", ".join(["!llvm.ptr, !llvm.ptr, i64, i64, i64"] * 2)
    assert kernel_type(made) == f"({parts}, index)"
    assert TYPES[1:-1] in launched(made)


def test_without_optimisation_a_kernel_takes_memrefs() -> None:
    assert kernel_type(split(program(f"{LOAD}\n{STORE}"), ParameterForm.WHOLE)) == TYPES


def test_pointers_are_aligned_as_their_elements() -> None:
    load = LOAD.replace("f32", "complex<f64>")
    made = split(program(load, x="memref<?xcomplex<f64>>"))
    assert attributes(made) == "[{llvm.align = 8 : i64, llvm.noalias}, {}]"


def test_memory_that_was_allocated_apart_is_noalias() -> None:
    made = split(program(f"{LOAD}\n{STORE}"))
    assert attributes(made).count("llvm.noalias") == 2


@pytest.mark.parametrize(
    "host",
    [
        (
            '%a = "gpu.alloc"(%n) <{operandSegmentSizes = array<i32: 0, 1, 0>}> : (index) -> memref<?xf32>\n'
            '%b = "memref.cast"(%a) : (memref<?xf32>) -> memref<?xf32>'
        ),
        (
            '%a = "gpu.alloc"(%n) <{operandSegmentSizes = array<i32: 0, 1, 0>}> : (index) -> memref<?xf32>\n'
            '%b = "memref.cast"(%given) : (memref<?xf32>) -> memref<?xf32>'
        ),
    ],
    ids=["the same memory twice", "memory of the caller"],
)
def test_memory_that_another_argument_may_be_is_not_noalias(host: str) -> None:
    assert "llvm.noalias" not in attributes(split(program(f"{LOAD}\n{STORE}", host)))


def test_memory_that_is_written_is_not_noalias_in_a_kernel_whose_threads_wait() -> None:
    # For LLVM, no other function can change noalias memory, so that a barrier would not make writes visible.
    made = split(program(f"{LOAD}\n{BARRIER}\n{STORE}"))
    assert attributes(made) == "[{llvm.align = 4 : i64, llvm.noalias}, {llvm.align = 4 : i64}, {}]"


def test_narrow_indices_are_made_of_the_same_parameters_and_checked_at_the_launch() -> None:
    made = split(program(f"{LOAD}\n{STORE}"), bits=32)
    assert kernel_type(made) == "(!llvm.ptr, !llvm.ptr, i64)"
    assert '"arith.index_cast"' in made.modules[0].text
    assert '"cf.assert"' in made.host_text


@pytest.mark.parametrize(
    "kind",
    ["memref<?xindex>", "memref<?xmemref<4xf32>>", "memref<?xf32, affine_map<(d0) -> (d0 + 1)>>"],
)
def test_narrow_indices_are_refused_for_memory_that_they_would_change(kind: str) -> None:
    with pytest.raises(SourceError, match="kernel @k takes memref"):
        split(program("", x=kind), bits=32)


@pytest.mark.parametrize(
    ("kind", "sizes", "strides", "offset"),
    [
        ("memref<f32>", (), (), 0),
        ("memref<4x?x2xf32>", (4, None, 2), (None, 2, 1), 0),
        ("memref<?x4xf32, 1>", (None, 4), (4, 1), 0),
        ("memref<?x4xf32, strided<[?, 1], offset: ?>>", (None, 4), (None, 1), None),
        ("memref<8xf32, strided<[2]>, #gpu.address_space<global>>", (8,), (2,), 0),
    ],
)
def test_what_is_known_of_a_descriptor_is_in_its_type(
    kind: str, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int | None
) -> None:
    found = parse_descriptor(kind)
    assert found
    assert (found.sizes, found.strides, found.offset) == (sizes, strides, offset)


@pytest.mark.parametrize(
    "kind", ["f32", "memref<*xf32>", "memref<4xf32, 3>", "memref<4xf32, affine_map<(d0) -> (d0)>>"]
)
def test_other_types_are_passed_as_they_are(kind: str) -> None:
    assert parse_descriptor(kind) is None
