"""The host's LLVM IR after mlir-translate."""

from __future__ import annotations

from mlir_offload.translate.host.module import legalize_host_ir

LAUNCH = """\
  %3 = alloca %0, align 8
  %4 = alloca ptr, i64 2, align 8
  %5 = call ptr @mgpuModuleGetFunction(ptr null, ptr @name)
  call void @mgpuLaunchKernel(ptr %5, i64 1, i64 1, i64 1, i64 1, i64 1, i64 1, i32 0, ptr null, ptr %4, ptr null, i64 2), !dbg !7
"""
SAVE = "call ptr @llvm.stacksave.p0()"
RESTORE = "call void @llvm.stackrestore.p0(ptr %mo.stack.0)"


def function(body: str) -> str:
    return f"define void @f(i1 %0) {{\n{body}  ret void\n}}\n\ndeclare ptr @mgpuStreamCreate()\n"


def test_ir_without_the_runtime_is_unchanged() -> None:
    text = "define i32 @main() {\n  ret i32 0\n}\n"

    assert legalize_host_ir(text) == text


def test_a_main_without_a_result_returns_zero() -> None:
    text = (
        "define void @_mlir_ciface_main() {\n  call void @main()\n  ret void\n}\n"
        "define void @main() !dbg !3 {\n  br i1 %0, label %1, label %2\n1:\n  ret void, !dbg !4\n"
        "2:\n  ret void\n}\ndefine void @mainly() {\n  ret void\n}\n"
    )
    assert legalize_host_ir(text) == (
        "define void @_mlir_ciface_main() {\n  call i32 @main()\n  ret void\n}\n"
        "define i32 @main() !dbg !3 {\n  br i1 %0, label %1, label %2\n1:\n  ret i32 0, !dbg !4\n"
        "2:\n  ret i32 0\n}\ndefine void @mainly() {\n  ret void\n}\n"
    )
    assert legalize_host_ir("define i8 @main() {\n") == "define signext i8 @main() {\n"


def test_a_launch_outside_of_the_entry_block_gives_its_stack_back() -> None:
    lines = legalize_host_ir(function("  br label %2\n\n2:\n" + LAUNCH)).splitlines()

    saved = lines.index(f"  %mo.stack.0 = {SAVE}")
    restored = lines.index(f"  {RESTORE}, !dbg !7")
    assert lines[saved + 1] == "  %3 = alloca %0, align 8"
    assert "mgpuLaunchKernel" in lines[restored - 1]
    assert "declare ptr @llvm.stacksave.p0()" in lines


def test_a_launch_in_the_entry_block_needs_nothing() -> None:
    text = function(LAUNCH)

    assert legalize_host_ir(text) == text


def test_a_stream_that_nothing_destroys_is_destroyed_behind_its_last_use() -> None:
    body = (
        "  %2 = call ptr @mgpuStreamCreate()\n"
        "  call void @mgpuMemcpy(ptr null, ptr null, i64 4, ptr %2)\n"
        "  %3 = call ptr @mgpuEventCreate()\n"
        "  call void @mgpuEventRecord(ptr %3, ptr %2), !dbg !9\n"
        "  call void @other(ptr %3)\n"
    )

    lines = legalize_host_ir(function(body)).splitlines()

    destroyed = lines.index("  call void @mgpuStreamDestroy(ptr %2), !dbg !9")
    assert "mgpuEventRecord" in lines[destroyed - 1]
    assert lines.count("declare void @mgpuStreamDestroy(ptr)") == 1


def test_a_stream_that_is_destroyed_or_leaves_its_block_is_left_alone() -> None:
    destroyed = "  %2 = call ptr @mgpuStreamCreate()\n  call void @mgpuStreamDestroy(ptr %2)\n"
    passed_on = "  %2 = call ptr @mgpuStreamCreate()\n  call void @keep(ptr %2)\n"
    carried = (
        "  %2 = call ptr @mgpuStreamCreate()\n  br label %3\n\n3:\n"
        "  call void @mgpuMemcpy(ptr null, ptr null, i64 4, ptr %2)\n"
    )

    for body in (destroyed, passed_on, carried):
        assert legalize_host_ir(function(body)) == function(body)


def test_an_existing_declaration_is_not_repeated() -> None:
    text = function("  %2 = call ptr @mgpuStreamCreate()\n")
    text += "\ndeclare !dbg !3 void @mgpuStreamDestroy(ptr)\n"

    assert legalize_host_ir(text).count("@mgpuStreamDestroy(ptr)") == 1


def test_sizes_are_written_as_every_release_reads_them() -> None:
    """LLVM 19 writes products of constants for memref.copy, which LLVM 20 and newer do not read."""
    one = "ptrtoint (ptr getelementptr ({}, ptr null, i32 1) to i64)"
    call = "  call void @llvm.memcpy.p0.p0.i64(ptr %a, ptr %b, i64 {}, i1 false)\n"
    text = "define void @f(ptr %a, ptr %b) {{\n{}  ret void\n}}\n"
    for kind in ("i64", "{ float, [2 x i8] }"):
        written = text.format(call.format(f"mul (i64 {one.format(kind)}, i64 9)"))
        read = call.format(f"ptrtoint (ptr getelementptr ({kind}, ptr null, i64 9) to i64)")
        assert legalize_host_ir(written) == text.format(read)
