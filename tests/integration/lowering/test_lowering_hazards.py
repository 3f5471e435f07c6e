"""What upstream MLIR lowers wrongly or drops: corrected or rejected, with every release."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlir_offload.toolchain.errors import SourceError

Lower = Callable[..., Any]


STREAM_AS_NUMBER = (
    (Path(__file__).resolve().parent.parent / "inputs" / "explicit_stream.mlir")
    .read_text(encoding="utf-8")
    .replace("stream: !llvm.ptr", "stream: i64")
    .replace("stream : !llvm.ptr", "stream : i64")
)


def calls(function: str) -> list[str]:
    return re.findall(r"call [^@\n]*@(mgpu\w+|llvm\.stack\w+)", function)


def test_a_launch_in_a_loop_gives_its_stack_back(lower: Lower) -> None:
    sequence = calls(lower(Path("launch_in_loop.mlir")).function("repeat"))

    assert sequence[0] == "llvm.stacksave"
    assert sequence[sequence.index("mgpuLaunchKernel") + 1] == "llvm.stackrestore"


def test_a_chain_of_launches_over_a_loop_waits_for_its_stream(lower: Lower) -> None:
    sequence = calls(lower(Path("launch_in_loop.mlir")).function("chain"))

    assert sequence[0] == "mgpuStreamCreate"
    assert sequence[-2:] == ["mgpuStreamSynchronize", "mgpuStreamDestroy"]
    assert "mgpuEventSynchronize" not in sequence


def test_synchronous_and_asynchronous_operations_mix(lower: Lower) -> None:
    sequence = calls(lower(Path("mixed_async.mlir")).function("main"))

    assert Counter(sequence)["mgpuMemcpy"] == 5
    first = [name for name in sequence if "Module" not in name][:7]
    assert first == [
        "mgpuStreamCreate",
        "mgpuMemAlloc",
        "mgpuMemcpy",
        "mgpuLaunchKernel",
        "mgpuMemcpy",
        "mgpuStreamSynchronize",
        "mgpuStreamDestroy",
    ]


def test_every_stream_and_event_is_destroyed_once(lower: Lower) -> None:
    function = lower(Path("mixed_async.mlir")).function("main")

    for made, destroyed in (("StreamCreate", "StreamDestroy"), ("EventCreate", "EventDestroy")):
        created = re.findall(rf"(%\d+) = call ptr @mgpu{made}", function)
        gone = re.findall(rf"@mgpu{destroyed}\(ptr (%\d+)\)", function)
        assert sorted(created) == sorted(gone)


def test_a_shared_allocation_is_synchronous(lower: Lower) -> None:
    function = lower(Path("mixed_async.mlir")).function("main")

    assert len(re.findall(r"@mgpuMemAlloc\(.*, ptr null, i8 1\)", function)) == 1


def test_the_stream_of_a_launch_is_not_dropped(lower: Lower) -> None:
    result = lower(Path("explicit_stream.mlir"))

    assert re.search(r"@mgpuLaunchKernel\([^)]*i32 0, ptr %0, ptr", result.function("run"))
    assert "mgpuStreamCreate" not in result.function("run")


def test_two_modules_may_have_kernels_and_functions_of_one_name(lower: Lower) -> None:
    result = lower(Path("same_kernel_name.mlir"))

    exported = [
        name
        for text in result.devices
        for name in re.findall(r"^define (?!internal)[^@]*@(\w+)", text, re.MULTILINE)
    ]
    assert sorted(exported) == sorted(
        kernel.symbol for module in result.program.modules for kernel in module.kernels
    )
    assert len(set(exported)) == 3
    assert "only_here" in exported
    assert all(f'c"{name}\\00"' in result.host for name in exported)


def test_a_device_assertion_tells_message_and_place(lower: Lower) -> None:
    text = lower(Path("device_assert.mlir")).devices[0]

    assert 'c"index \\22out\\22 of range\\00"' in text
    places = re.findall(r"@__assertfail\(ptr @\w+, ptr @\w+, i32 (\d+), ptr @\w+, i64 1\)", text)
    assert sorted(places) == ["10", "6"]
    assert re.search(
        r"@\w+ = internal constant \[\d+ x i8\] c\"[^\"]*device_assert\.mlir\\00\"", text
    )


def test_device_globals_of_two_modules_do_not_clash(lower: Lower) -> None:
    program = """
      gpu.module @m {
        memref.global constant @table : memref<2xf32> = dense<[1.0, 2.0]>
        memref.global @tile : memref<4xf32, 3> = uninitialized
        gpu.func @k(%out: memref<2xf32>, %i: index) kernel {
          %t = memref.get_global @table : memref<2xf32>
          %s = memref.get_global @tile : memref<4xf32, 3>
          %v = memref.load %t[%i] : memref<2xf32>
          memref.store %v, %s[%i] : memref<4xf32, 3>
          memref.store %v, %out[%i] : memref<2xf32>
          gpu.return
        }
      }
    """
    text = lower(program).devices[0]

    assert re.search(r"@table = internal constant", text)
    assert re.search(r"@tile = internal addrspace\(3\) global", text)


def kernel(body: str) -> str:
    return (
        "module attributes {gpu.container_module} {\n gpu.module @m {\n"
        "  gpu.func @k(%i: index, %p: memref<?xf32>, %q: memref<?xi32>) kernel {\n"
        f"{body}\n   gpu.return\n  }}\n }}\n}}\n"
    )


def host(body: str, operand: str = "") -> str:
    return (
        "module attributes {gpu.container_module} {\n"
        " gpu.module @m { gpu.func @k(%p: memref<?xf32>) kernel { gpu.return } }\n"
        f" func.func @main({operand}) {{\n  %c1 = arith.constant 1 : index\n{body}\n  return\n }}\n}}\n"
    )


LAUNCH = "gpu.launch_func @m::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)"


@pytest.mark.parametrize(
    ("program", "line", "message"),
    [
        pytest.param("module {\n  module { func.func @f() { return } }\n}\n", 2, "module inside a module", id="nested module"),
        pytest.param(
            kernel("%v = memref.load %p[%i] : memref<?xf32>\n%c = arith.cmpi eq, %i, %i : index\nscf.if %c {\n%s = gpu.all_reduce add %v {} : (f32) -> f32\n}"),
            7, "'uniform'", id="all_reduce",
        ),
        pytest.param(
            kernel(
                '%v = memref.load %q[%i] : memref<?xi32>\nemitc.call_opaque "f"() : () -> ()\n'
                "memref.store %v, %q[%i] : memref<?xi32>"
            ),
            5, "emitc.call_opaque is not supported in a kernel", id="left over in a kernel",
        ),
        pytest.param(
            host("%x = gpu.thread_id x\nvector.print %x : index"),
            5, "gpu.thread_id is not supported in host code", id="left over in the host",
        ),
        pytest.param(
            "func.func @f(%t: tensor<4xf32>) -> tensor<4xf32> {\n %x = arith.addf %t, %t : tensor<4xf32>\n"
            " return %x : tensor<4xf32>\n}\n",
            2, "on tensors", id="tensors",
        ),
        pytest.param(
            host("gpu.memset %p, %v : memref<4xi128>, i128", "%p: memref<4xi128>, %v: i128"),
            5, "at most 64 bits", id="memset",
        ),
        pytest.param("func.func @f() {\n  %c = arith.constant 1 :: index\n}\n", 2, "expected", id="syntax"),
        pytest.param('func.func @f() {\n  "foo.bar"() : () -> ()\n}\n', 2, "'foo.bar'", id="unknown operation"),
        pytest.param("func.func @f() {\n  foo.baz\n}\n", 2, "no dialect 'foo'", id="unknown dialect"),
        pytest.param("func @f() {\n}\n", 1, "before 2022", id="old text"),
        pytest.param(host(LAUNCH.replace("@k", "@kk")), 5, "@m::@kk, which does not exist", id="no kernel"),
        pytest.param(host(LAUNCH.replace("@m", "@n")), 5, "gpu.module @n, which", id="no module"),
        pytest.param(host(LAUNCH), 5, "passes 0 arguments to a kernel that takes 1", id="argument count"),
        pytest.param(
            host(f"{LAUNCH} args(%p : memref<?xf64>)", "%p: memref<?xf64>"),
            5, "another type", id="argument type",
        ),
        pytest.param(host("").replace("gpu.func @k", "gpu.func @k @k"), 2, "expected", id="syntax in a kernel"),
        pytest.param(kernel("   xegpu.fence memory_kind = global, fence_scope = workgroup"), 4, "xegpu.fence is not supported: ", id="xegpu"),
        pytest.param(
            kernel("   %a = arith.constant dense<1.0> : vector<4x1xf32>\n   %b = arith.constant dense<1.0> : vector<2x1xf32>\n"
                   "   %c = arith.constant dense<1.0> : vector<2x2xf32>\n"
                   "   %d = nvgpu.mma.sync (%a, %b, %c) {mmaShape = [16, 8, 8]} : "
                   "(vector<4x1xf32>, vector<2x1xf32>, vector<2x2xf32>) -> vector<2x2xf32>"),
            7, "marked 'tf32Enabled'", id="f32 without tf32",
        ),
        # LLVM 19 does not have the dialect.
        pytest.param(kernel("   xevm.memfence <{addrspace = #xevm.addr_space<global>, scope = #xevm.mem_scope<workgroup>}>"), 4, "xevm", id="xevm"),
        pytest.param(STREAM_AS_NUMBER, 9, "the stream of a launch is i64, which has no lowering", id="stream as a number"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line_and_reason(
    lower: Lower, program: str, line: int, message: str
) -> None:
    with pytest.raises(SourceError, match=re.escape(message)) as caught:
        lower(program)

    assert re.search(rf"program\.mlir:{line}:\d+$", caught.value.location)
