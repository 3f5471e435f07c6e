"""Legalization of the host's async GPU operations."""

from __future__ import annotations

import re

from mlir_offload.translate.host.async_chain import AsyncRewriter
from mlir_offload.translate.mlir.module import parse_operations

TOKEN = "!gpu.async.token"  # noqa: S105 (a type)
LOC = "loc(#loc1)"


def rewrite(*body: str) -> list[str]:
    lines = [
        '  "func.func"() <{function_type = () -> (), sym_name = "f"}> ({',
        *(f"    {line}" for line in body),
        "  }) : () -> () loc(#loc1)",
    ]
    (function,) = parse_operations(lines)
    AsyncRewriter().rewrite_function(function)
    return [line.strip() for line in function.lines()[1:-1]]


def operations(lines: list[str]) -> list[str]:
    found = re.findall(r'"(gpu\.\w+)"|llvm\.call @(\w+)', "\n".join(lines))
    return [name or call for name, call in found]


def sync(name: str = "memcpy", operands: str = "%a, %b", types: str = "m, m") -> str:
    return f'"gpu.{name}"({operands}) : ({types}) -> () {LOC}'


def chained(result: str, *dependencies: str) -> str:
    operands = ", ".join([*dependencies, "%a", "%b"])
    types = ", ".join([*(TOKEN for _ in dependencies), "m", "m"])
    return f'{result} = "gpu.memcpy"({operands}) : ({types}) -> {TOKEN} {LOC}'


def wait(*tokens: str, result: str = "") -> str:
    types = ", ".join(TOKEN for _ in tokens)
    given = f"{result} = " if result else ""
    return (
        f'{given}"gpu.wait"({", ".join(tokens)}) : ({types}) -> {TOKEN if result else "()"} {LOC}'
    )


def launch(token: str = "", result: str = "", *, stream: str = "") -> str:
    operands = [*([token] if token else []), "%n", "%x", *([stream] if stream else [])]
    types = [*([TOKEN] if token else []), "index", "f32", *(["!llvm.ptr"] if stream else [])]
    segments = f"{int(bool(token))}, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, {int(bool(stream))}"
    given = f"{result} = " if result else ""
    return (
        f'{given}"gpu.launch_func"({", ".join(operands)}) <{{kernel = @m::@k, operandSegmentSizes = '
        f"array<i32: {segments}>}}> : ({', '.join(types)}) -> {TOKEN if result else '()'} {LOC}"
    )


def test_a_function_without_gpu_operations_is_unchanged() -> None:
    line = f'"func.return"() : () -> () {LOC}'

    assert rewrite(line) == [line]


def test_a_synchronous_operation_runs_on_a_stream_of_its_own() -> None:
    assert operations(rewrite(sync())) == ["gpu.wait", "gpu.memcpy", "gpu.wait"]


def test_neighbours_share_a_stream() -> None:
    constant = f'%c = "arith.constant"() <{{value = 1 : index}}> : () -> index {LOC}'

    lines = rewrite(sync(), constant, launch(), sync())

    assert operations(lines) == [
        "gpu.wait",
        "gpu.memcpy",
        "gpu.launch_func",
        "gpu.memcpy",
        "gpu.wait",
    ]
    assert constant in lines


def test_what_may_look_at_the_result_waits_for_it() -> None:
    load = f'%v = "memref.load"(%a, %i) : (m, index) -> f32 {LOC}'

    lines = rewrite(sync(), load, sync())

    assert operations(lines[: lines.index(load)]) == ["gpu.wait", "gpu.memcpy", "gpu.wait"]


def test_a_launch_alone_is_left_as_it_is() -> None:
    assert rewrite(launch()) == [launch()]


def test_an_asynchronous_operation_has_exactly_one_dependency() -> None:
    none = rewrite(chained("%1"), wait("%1"))
    two = rewrite(wait(result="%1"), wait(result="%2"), chained("%3", "%1", "%2"), wait("%3"))

    assert operations(none) == ["gpu.wait", "gpu.memcpy", "gpu.wait"]
    assert re.search(r'"gpu\.wait"\(%1, %2\)', "\n".join(two))
    assert all(line.count("%1, %2") == 0 for line in two if "memcpy" in line)


def test_a_chain_that_converts_is_left_as_it_is() -> None:
    lines = [wait(result="%1"), chained("%2", "%1"), wait("%2")]

    assert [
        line.replace("(!gpu.async.token) loc", "!gpu.async.token loc") for line in rewrite(*lines)
    ] == lines


def test_a_token_used_twice_is_forked_behind_its_definition() -> None:
    lines = rewrite(
        wait(result="%1"), chained("%2", "%1"), chained("%3", "%2"), chained("%4", "%2"), wait("%3", "%4")
    )  # fmt: skip

    fork = next(i for i, line in enumerate(lines) if '"gpu.wait"(%2)' in line)
    assert lines[fork - 1].startswith("%2 = ")
    assert sum("(%2," in line or "(%2)" in line for line in lines) == 2


def test_a_shared_allocation_is_synchronous_and_its_token_follows_the_dependencies() -> None:
    alloc = (
        f'%5:2 = "gpu.alloc"(%1) <{{hostShared, operandSegmentSizes = array<i32: 1, 0, 0>}}> : '
        f"({TOKEN}) -> (m, {TOKEN}) {LOC}"
    )
    store = f'"memref.store"(%v, %5#0, %i) : (f32, m, index) -> () {LOC}'

    lines = rewrite(wait(result="%1"), alloc, store, wait("%5#1"))

    made = next(line for line in lines if "gpu.alloc" in line)
    assert "array<i32: 0, 0, 0>" in made
    assert made.split(" = ")[0] in next(line for line in lines if "memref.store" in line)
    assert not any("%5" in line for line in lines)


def test_the_stream_of_a_launch_that_must_be_converted_becomes_its_token() -> None:
    lines = rewrite(launch(stream="%s"))

    assert '"builtin.unrealized_conversion_cast"(%s) : (!llvm.ptr)' in lines[0]
    assert "array<i32: 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 0>" in lines[1]
    assert "%s" not in lines[1]


def test_a_lowered_launch_keeps_its_stream() -> None:
    line = launch(stream="%s").replace("index", "i64")

    assert rewrite(line) == [line]


def test_a_token_out_of_control_flow_is_waited_for_as_a_stream() -> None:
    lines = rewrite(
        f'%9 = "scf.for"(%a, %b, %c, %1) ({{}}) : (index, index, index, {TOKEN}) -> {TOKEN} {LOC}', wait("%9")
    )  # fmt: skip

    assert operations(lines) == ["mgpuStreamSynchronize", "mgpuStreamDestroy"]


CARRIED = [
    '%9 = "scf.for"(%a, %1) ({',
    f"^bb0(%arg0: index {LOC}, %arg1: {TOKEN} {LOC}):",
    f'"scf.yield"(%arg1) : ({TOKEN}) -> () {LOC}',
    f"}}) : (index, {TOKEN}) -> {TOKEN} {LOC}",
]


def test_a_token_out_of_control_flow_is_joined_by_calls() -> None:
    lines = rewrite(*CARRIED, wait(result="%5"), wait("%9", "%5", result="%10"))

    assert operations(lines[5:]) == ["gpu.wait", "mgpuStreamWaitEvent", "mgpuStreamDestroy"]
    assert '"gpu.wait"(%5)' in lines[5]
    waiting, waited = (re.search(r"(%\S+) = .*cast\"\((%\w+)\)", line) for line in lines[6:8])
    assert waiting
    assert waited
    assert (waiting[2], waited[2]) == ("%10", "%9")
    assert f"@mgpuStreamWaitEvent({waiting[1]}, {waited[1]})" in lines[8]


def test_a_token_out_of_control_flow_used_twice_is_forked_behind_its_operation() -> None:
    lines = rewrite(*CARRIED, chained("%2", "%9"), chained("%3", "%9"), wait("%2", "%3"))

    assert operations(lines[4:6]) == ["gpu.wait"]
    # The other chain still uses it.
    assert "mgpuStreamDestroy" not in operations(lines)[:3]
    assert sum(line.startswith(("%2 =", "%3 =")) and "(%9," in line for line in lines) == 1


def test_a_token_of_an_argument_used_twice_is_forked_at_the_head_of_its_block() -> None:
    block = f"^bb0(%arg0: {TOKEN} loc(unknown), %arg1: m {LOC}):"
    lines = rewrite(block, chained("%2", "%arg0"), chained("%3", "%arg0"), wait("%2", "%3"))

    assert lines[0] == block
    assert operations(lines[1:5]) == ["gpu.wait", "mgpuStreamWaitEvent"]


def test_a_token_that_a_loop_takes_and_another_operation_uses_is_forked() -> None:
    lines = rewrite(wait(result="%1"), *CARRIED, chained("%2", "%1"))

    assert lines[1] == f'%mo_token_1 = "gpu.wait"(%1) : ({TOKEN}) -> {TOKEN} {LOC}'
    assert lines[-1] == chained("%2", "%mo_token_1")
