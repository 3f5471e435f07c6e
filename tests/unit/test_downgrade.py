"""Downgrade LLVM IR for an older release: each row of the table, verified by the real readers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.translate.downgrade.same_kernels import check_same_kernels
from mlir_offload.translate.downgrade.table import DowngradeRow, load_rows
from mlir_offload.translate.downgrade.text import downgrade
from mlir_offload.translate.ir_tokens import spell, tokenize

NEWEST, READERS = 22, (15, 16, 19)
NVPTX = 'target triple = "nvptx64-nvidia-cuda"\n'
UNIT = (
    "!llvm.dbg.cu = !{!0}\n!llvm.module.flags = !{!2}\n"
    "!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, emissionKind: FullDebug)\n"
    '!1 = !DIFile(filename: "a", directory: "b")\n!2 = !{i32 2, !"Debug Info Version", i32 3}\n'
    '!4 = distinct !DISubprogram(name: "f", scope: !1, file: !1, line: 1, type: !5, unit: !0, '
    "spFlags: DISPFlagDefinition)\n!5 = !DISubroutineType(types: !6)\n!6 = !{}\n"
    '!7 = !DIBasicType(name: "i", size: 32, encoding: DW_ATE_signed)\n'
    '!8 = !DILocalVariable(name: "a", scope: !4, file: !1, type: !7)\n'
    "!9 = !DILocation(line: 1, scope: !4)\n"
)


def function(body: str, *, head: str = "define void @f(i32 %a, i64 %b, ptr %p)") -> str:
    return f"{head} {{\n  {body}\n  ret void\n}}\n"


def traced(record: str) -> str:
    return (
        function(
            f"{record}\n  ret void, !dbg !9", head="define void @f(i32 %a, ptr %p) !dbg !4"
        ).replace("  ret void, !dbg !9\n  ret void\n", "  ret void, !dbg !9\n")
        + UNIT
    )


def bounded(*attributes: str) -> str:
    return f"{NVPTX}define ptx_kernel void @k() {' '.join(attributes)} {{\n  ret void\n}}\n"


def nvvm(call: str, declaration: str) -> str:
    return f"{NVPTX}declare {declaration}\n" + function(
        call, head="define void @f(i32 %a, i1 %c, float %x)"
    )


VECTORS = "define void @f(ptr %p, <4 x i1> %m, <4 x i32> %q)"
# IR for each row, by its name in the table.
SAMPLES = {
    "branch-weights": (
        "define void @f(i1 %c) {\n  br i1 %c, label %a, label %a, !prof !0\na:\n  ret void\n}\n"
        '!0 = !{!"branch_weights", !"expected", i32 1, i32 2}\n'
    ),
    "label-columns": traced("#dbg_label(!20, !9)")
    + '!20 = !DILabel(scope: !4, name: "a", file: !1, line: 1, column: 3)\n',
    "captures-none": "declare void @f(ptr captures(none))\n",
    "captures": "declare void @f(ptr captures(address))\n",
    "range": "declare range(i32 0, 5) i32 @g()\n" + function("%x = call range(i32 0, 5) i32 @g()"),
    "vector-range": "declare <2 x i32> @g()\n"
    + function("%x = call <2 x i32> @g(), !range !0")
    + "!0 = !{i32 0, i32 5}\n",
    "memory-locations": "declare void @f() memory(write, argmem: none, errnomem: none)\n",
    "memory": "declare void @f() memory(argmem: read)\n",
    "promises-of-22": "declare void @f() #0\nattributes #0 = { nocreateundeforpoison }\n",
    "attributes-of-20": "declare void @f(i32 noext)\n",
    "attributes-of-19": "declare void @f(ptr writable dead_on_unwind initializes((0, 4)) dereferenceable(4))\n",
    "skipprofile": function("", head="define void @f() skipprofile"),
    "frame-pointer": 'declare void @f() "frame-pointer"="non-leaf-no-reserve"\n',
    "gep-flags": "@g = global [4 x i8] zeroinitializer\n"
    "@h = global ptr getelementptr inbounds nuw (i8, ptr @g, i64 1)\n"
    "@i = global ptr getelementptr inbounds inrange(-1, 3) (i8, ptr @g, i64 1)\n",
    "disjoint": function("%x = or disjoint i32 %a, 1"),
    "nneg": function("%x = zext nneg i32 %a to i64"),
    "trunc-flags": function("%x = trunc nuw nsw i64 %b to i32"),
    "samesign": function("%x = icmp samesign ult i32 %a, 1"),
    "conversion-flags": "define float @f(double %a) {\n  %x = fptrunc fast double %a to float\n  ret float %x\n}\n",
    "ptrtoaddr": function("%x = ptrtoaddr ptr %p to i64"),
    "splat": "@g = global <2 x float> splat (float 1.0)\n"
    + function("%x = add <4 x i32> %q, splat (i32 3)", head=VECTORS)
    + "define void @v(<vscale x 4 x i32> %w) {\n  %x = add <vscale x 4 x i32> %w, splat (i32 3)\n  ret void\n}\n",
    "ptrauth": "@g = global i32 0\n@h = global ptr ptrauth (ptr @g, i32 0)\n",
    "target-type": 'declare void @f(target("spirv.Image"))\n',
    "preserve_nonecc": function("", head="define preserve_nonecc void @f()"),
    "atomic-extrema": function(
        'store float 1.0, ptr %p\n  %x = atomicrmw volatile fmaximum ptr %p, float 1.0 syncscope("s") acq_rel, align 8'
    ),
    "atomics-of-22": 'target triple = "nvptx64-nvidia-cuda"\n'
    + function("%x = atomicrmw fmaximum ptr %p, float 1.0 seq_cst"),
    "atomics-of-20": function("%x = atomicrmw usub_cond ptr %p, i32 1 seq_cst"),
    "atomics-of-16": function("%x = atomicrmw uinc_wrap ptr %p, i32 1 seq_cst"),
    "atomic-vectors": function("%x = atomicrmw fadd ptr %p, <2 x half> zeroinitializer seq_cst"),
    "code_model": '@g = global i32 0, code_model "small"\n',
    "lifetime": "declare void @llvm.lifetime.start.p0(ptr captures(none))\n"
    + function("%x = alloca i32\n  call void @llvm.lifetime.start.p0(ptr nonnull %x)"),
    "masked-load": "declare <4 x i32> @llvm.masked.load.v4i32.p0(ptr, <4 x i1>, <4 x i32>)\n"
    + function(
        "%x = call <4 x i32> @llvm.masked.load.v4i32.p0(ptr align 4 %p, <4 x i1> %m, <4 x i32> %q)",
        head=VECTORS,
    ),
    "masked-store": "declare void @llvm.masked.store.v4i32.p0(<4 x i32>, ptr, <4 x i1>)\n"
    + function(
        "call void @llvm.masked.store.v4i32.p0(<4 x i32> %q, ptr align 4 %p, <4 x i1> %m)",
        head=VECTORS,
    ),
    "implicit-declaration": function("%x = call i32 @llvm.umin.i32(i32 %a, i32 1)"),
    "dbg_value": traced("  #dbg_value(i32 %a, !8, !DIExpression(), !9)"),
    "dbg_declare": traced("  #dbg_declare(ptr %p, !8, !DIExpression(), !9)"),
    "dbg_label": traced("  #dbg_label(!10, !9)")
    + '!10 = !DILabel(scope: !4, name: "l", file: !1, line: 1)\n',
    "dbg_assign": traced(
        "  %x = alloca i32, !DIAssignID !10\n"
        "  #dbg_assign(i32 %a, !8, !DIExpression(), !10, ptr %x, !DIExpression(), !9)"
    )
    + "!10 = distinct !DIAssignID()\n",
    "dbg-assign-call": traced(
        "  %x = alloca i32, !DIAssignID !10\n"
        "  call void @llvm.dbg.assign(metadata i32 %a, metadata !8, metadata !DIExpression(), "
        "metadata !10, metadata ptr %x, metadata !DIExpression()), !dbg !9"
    )
    + "!10 = distinct !DIAssignID()\n"
    "declare void @llvm.dbg.assign(metadata, metadata, metadata, metadata, metadata, metadata)\n",
    "assign-id": function("%x = alloca i32, !DIAssignID !0") + "!0 = distinct !DIAssignID()\n",
    "dbg_declare_value": traced("  #dbg_declare_value(i32 %a, !8, !DIExpression(), !9)"),
    "fields-of-22": '!named = !{!0}\n!0 = !DIBasicType(name: "dataSize:", size: 32, dataSize: 8)\n',
    "source-language": UNIT.replace("language: DW_LANG_C,", "sourceLanguageName: DW_LNAME_C,"),
    "nodes-of-22": '!named = !{!0}\n!0 = !DISubrangeType(name: "i", size: 32)\n',
}  # fmt: skip
# IR that an older release silently misreads, with text that the downgraded IR must contain.
SILENT = {
    "debug-operations": (
        traced(
            "  #dbg_value(i32 %a, !8, !DIExpression(DW_OP_lit1, DW_OP_rot, DW_OP_stack_value), !9)"
        ),
        "#dbg_value(i32 poison, !8, !DIExpression(), !9)",
    ),
    "extrema": (
        "declare float @llvm.vector.reduce.fmaximum.v2f32(<2 x float>)\n"
        + function(
            "%x = call float @llvm.vector.reduce.fmaximum.v2f32(<2 x float> %v)",
            head="define void @f(<2 x float> %v)",
        ),
        "call float @mo.maximum.f32(float %v0, float %v1)",
    ),
    "thread-local": (
        "@x = thread_local global i32 0\ndeclare ptr @llvm.threadlocal.address.p0(ptr)\n"
        + function("%y = call align 4 ptr @llvm.threadlocal.address.p0(ptr align 4 @x)"),
        "%y = getelementptr i8, ptr @x, i64 0\n",
    ),
    "stack": (
        "declare ptr @llvm.stacksave.p0()\n" + function("%x = call ptr @llvm.stacksave.p0()"),
        "%x = call ptr @llvm.stacksave()",
    ),
    "stack-restore": (
        "declare void @llvm.stackrestore.p0(ptr)\n"
        + function("call void @llvm.stackrestore.p0(ptr %p)"),
        "call void @llvm.stackrestore(ptr %p)",
    ),
    "arguments": (
        "declare void @llvm.va_start.p0(ptr)\n"
        + function("call void @llvm.va_start.p0(ptr %p)"),
        "call void @llvm.va_start(ptr %p)",
    ),
    "arguments-copy": (
        "declare void @llvm.va_copy.p0(ptr, ptr)\n"
        + function("call void @llvm.va_copy.p0(ptr %p, ptr %p)"),
        "call void @llvm.va_copy(ptr %p, ptr %p)",
    ),
    "type-identity": (
        "declare i32 @llvm.eh.typeid.for.p0(ptr)\n"
        + function("%x = call i32 @llvm.eh.typeid.for.p0(ptr %p)"),
        "%x = call i32 @llvm.eh.typeid.for(ptr %p)",
    ),
    "barrier-all": (
        nvvm("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",
             "void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)"),
        "call void @llvm.nvvm.barrier0()",
    ),
    "barrier-n": (
        nvvm("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 %a)",
             "void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)"),
        "call void @llvm.nvvm.barrier.n(i32 %a)",
    ),
    "barrier-count": (
        nvvm("call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 %a, i32 64)",
             "void @llvm.nvvm.barrier.cta.sync.aligned.count(i32, i32)"),
        "call void @llvm.nvvm.barrier(i32 %a, i32 64)",
    ),
    "barrier-sync": (
        nvvm("call void @llvm.nvvm.barrier.cta.sync.all(i32 %a)",
             "void @llvm.nvvm.barrier.cta.sync.all(i32)"),
        "call void @llvm.nvvm.barrier.sync(i32 %a)",
    ),
    "barrier-sync-count": (
        nvvm("call void @llvm.nvvm.barrier.cta.sync.count(i32 %a, i32 64)",
             "void @llvm.nvvm.barrier.cta.sync.count(i32, i32)"),
        "call void @llvm.nvvm.barrier.sync.cnt(i32 %a, i32 64)",
    ),
    "barrier-popc": (
        nvvm("%r = call i32 @llvm.nvvm.barrier.cta.red.popc.aligned.all(i32 0, i1 %c)",
             "i32 @llvm.nvvm.barrier.cta.red.popc.aligned.all(i32, i1)"),
        "%r = call i32 @llvm.nvvm.barrier0.popc(i32 %mo.older.1)",
    ),
    "barrier-and-or": (
        nvvm("%r = call i1 @llvm.nvvm.barrier.cta.red.or.aligned.all(i32 0, i1 %c)",
             "i1 @llvm.nvvm.barrier.cta.red.or.aligned.all(i32, i1)"),
        "%r = icmp ne i32 %mo.older.2, 0",
    ),
    "math-names": (
        nvvm("%r = call float @llvm.nvvm.fabs.f32(float %x)", "float @llvm.nvvm.fabs.f32(float)"),
        "%r = call float @llvm.nvvm.fabs.f(float %x)",
    ),
    "maxntid": (bounded('"nvvm.maxntid"="8,4"'), '!"maxntidx", i32 8, !"maxntidy", i32 4'),
    "reqntid": (bounded('"nvvm.reqntid"="8"'), '!"reqntidx", i32 8'),
    "minctasm": (bounded('"nvvm.minctasm"="2"'), '!"minctasm", i32 2'),
    "maxnreg": (bounded('"nvvm.maxnreg"="32"'), '!"maxnreg", i32 32'),
    "cluster_dim": (bounded('"nvvm.cluster_dim"="2,1,1"'), '!"cluster_dim_x", i32 2'),
    "maxclusterrank": (bounded('"nvvm.maxclusterrank"="8"'), '!"maxclusterrank", i32 8'),
    "grid_constant": (
        bounded().replace("@k()", '@k(i32 %a, ptr byval(i32) "nvvm.grid_constant" %b)'),
        '!"grid_constant", !{i32 2}',
    ),
    "ptx-features": (
        bounded('"target-features"="+ptx90,+ptx78,+sm_80"'), '"target-features"="+ptx78,+sm_80"',
    ),
    "code-object-version": (
        '!llvm.module.flags = !{!0}\n!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}\n',
        '!"amdgpu_code_object_version"',
    ),
}  # fmt: skip
# IR that is rejected although an older release would read it.
WRONG = {
    "i128": 'target datalayout = "e-m:e-i64:64-i128:128-f80:128-S128"\n@g = global i128 0\n',
    "cluster": bounded('"nvvm.cluster_dim"="2,1,1"'),
    "cluster-rank": bounded('"nvvm.maxclusterrank"="8"'),
    "grid_constant-copied": bounded()
    .replace("@k()", '@k(ptr byval(i32) "nvvm.grid_constant" %b)')
    .replace("  ret", "  %p = ptrtoint ptr %b to i64\n  ret"),
    "blocksareclusters": bounded('"nvvm.blocksareclusters"'),
}
NUMBERS_OF_23 = (
    "@a = global float 1.000000e-01\n@b = global float +inf\n@c = global float +nan(0x1)\n"
    "@d = global half 9.997550e-02\n@e = global bfloat 1.000980e-01\n@f = global x86_fp80 1.000000e-01\n"
    "@g = global fp128 f0x3FFB9999999999999999999999999999\n@h = global float 2.500000e-01\n"
    '@i = global [4 x i8] c"+inf"\n@"float 1.000000e-01" = global double 1.000000e-01 ; float 0.1e-01\n'
    "define double @n(double %x) {\n  %r = fmul double %x, f0x41E0000000000001\n  ret double %r\n}\n"
)
NUMBERS_OF_22 = (
    "@a = global float 0x3FB99999A0000000\n@b = global float 0x7FF0000000000000\n"
    "@c = global float 0x7FF8000020000000\n@d = global half 0xH2E66\n@e = global bfloat 0xR3DCD\n"
    "@f = global x86_fp80 0xK3FFBCCCCCCCCCCCCCCCD\n"
    "@g = global fp128 0xL99999999999999993FFB999999999999\n@h = global float 2.500000e-01\n"
    '@i = global [4 x i8] c"+inf"\n@"float 1.000000e-01" = global double 1.000000e-01 ; float 0.1e-01\n'
    "define double @n(double %x) {\n  %r = fmul double %x, 0x41E0000000000001\n  ret double %r\n}\n"
)
# IR of LLVM 23, with the form of LLVM 22.
NEWER = {
    "conversion-flags-of-23": (
        "define float @f(i32 %a) {\n  %r = uitofp nneg contract i32 %a to float\n  ret float %r\n}\n",
        "uitofp nneg i32",
    ),
    "numbers-of-23": (NUMBERS_OF_23, NUMBERS_OF_22),
    "target-memory": (
        "declare void @f() memory(read, inaccessiblemem: none, target_mem: none)\n",
        "memory(read, inaccessiblemem: none, target_mem0: none, target_mem1: none)",
    ),
    "retained-nodes": (
        traced("")
        .replace("define", "@s = global i32 0, !dbg !13\ndefine")
        .replace("unit: !0", "unit: !0, retainedNodes: !10")
        .replace("FullDebug", "FullDebug, globals: !14")
        + "!10 = !{!8, !11, !13}\n!11 = !DIDerivedType(tag: DW_TAG_typedef, scope: !4, baseType: !7)\n"
        '!12 = distinct !DIGlobalVariable(name: "s", scope: !4, type: !7)\n'
        "!13 = !DIGlobalVariableExpression(var: !12, expr: !DIExpression())\n!14 = !{!13}\n",
        "retainedNodes: !{!8}",
    ),
    "size-dead-on-return": (
        "declare void @f(ptr dead_on_return(8) dereferenceable(8), ptr dead_on_return)\n",
        "(ptr dead_on_return dereferenceable(8), ptr dead_on_return)",
    ),
    "promises-of-23": (
        "declare void @f() nooutline cold flatten noipa\n",
        "declare void @f() cold",
    ),
}
ROWS = {row.what: row for row in load_rows()}


def reads(major: int, text: str) -> str:
    """Return what a release says against a module; nothing where it reads it."""
    llvm_as = Path(f"/usr/lib/llvm-{major}/bin/llvm-as")
    if not llvm_as.exists():
        pytest.skip(f"no llvm-as of LLVM {major}")
    argv = [str(llvm_as), "-o", "/dev/null", "-"]
    return subprocess.run(argv, input=text, text=True, capture_output=True, check=False).stderr


def older_reader(row: DowngradeRow) -> int:
    return max(major for major in READERS if major < row.since)


def test_every_row_is_shown_here() -> None:
    assert sorted((*SAMPLES, *SILENT, *WRONG, *NEWER)) == sorted(ROWS)


@pytest.mark.llvm(22)
@pytest.mark.llvm(19)
@pytest.mark.llvm(16)
@pytest.mark.llvm(15)
@pytest.mark.parametrize("what", SAMPLES)
def test_what_an_older_release_does_not_read_is_put_so_that_it_does(what: str) -> None:
    row, text = ROWS[what], SAMPLES[what]
    reader = older_reader(row)
    assert reads(NEWEST, text) == ""
    assert reads(reader, text) != ""
    if row.is_refused:
        with pytest.raises(CompatibilityError, match=f"no form that LLVM {reader} reads"):
            downgrade(text, reader=reader)
        return
    assert reads(reader, downgrade(text, reader=reader)) == ""
    # The downgraded IR is valid for all releases in between, too.
    assert reads(NEWEST, downgrade(text, reader=reader)) == ""


@pytest.mark.parametrize("what", SILENT)
def test_what_an_older_release_misreads_in_silence_is_put_in_its_own_words(what: str) -> None:
    text, expected = SILENT[what]
    # LLVM 20 is the first release that reads the cluster size from an annotation.
    older = downgrade(text, reader=20 if what == "cluster_dim" else older_reader(ROWS[what]))
    assert expected in older
    assert expected not in text


def test_nvidia_gpus_have_maximum_and_minimum_in_every_release() -> None:
    call = "%y = call float @llvm.maximum.f32(float %x, float %x)"
    text = NVPTX + function(call, head="define void @f(float %x)")
    assert call in downgrade(text, reader=16)


@pytest.mark.llvm(16)
@pytest.mark.llvm(15)
@pytest.mark.parametrize("reader", [15, 16])
@pytest.mark.parametrize(
    ("value", "operations"),
    [
        ("i32 %a", "DW_OP_lit0, DW_OP_ne, DW_OP_stack_value"),
        ("<2 x i32> splat (i32 1)", "DW_OP_ne, DW_OP_LLVM_fragment, 0, 16"),
        ("!DIArgList(i32 %a, i32 1)", "DW_OP_LLVM_arg, 0, DW_OP_LLVM_arg, 1, DW_OP_ne"),
        ("!{}", "DW_OP_ne"),
    ],
)
def test_a_value_that_an_older_release_cannot_compute_costs_no_other_debug_information(
    value: str, operations: str, reader: int
) -> None:
    record = f"  #dbg_value({value}, !8, !DIExpression({operations}), !9)"
    older = downgrade(traced(record), reader=reader)
    opt = (f"/usr/lib/llvm-{reader}/bin/opt", "-passes=verify", "-S", "-o", "-")
    read = subprocess.run(opt, input=older, capture_output=True, text=True, check=True)
    assert "!DICompileUnit" in read.stdout
    assert " poison, metadata " in read.stdout
    assert ("DW_OP_LLVM_fragment, 0, 16)" in read.stdout) is ("fragment" in operations)


@pytest.mark.llvm(22)
@pytest.mark.parametrize("what", NEWER)
def test_text_of_llvm_23_is_put_so_that_llvm_22_reads_it(what: str) -> None:
    text, expected = NEWER[what]
    older = downgrade(text, reader=22)
    assert expected in older
    assert reads(22, text) != ""
    assert reads(22, older) == ""


def test_what_becomes_of_subnormal_numbers_is_not_left_out() -> None:
    with pytest.raises(CompatibilityError, match=r"denormal_fpenv.*\[LL001\]"):
        downgrade("declare void @f() denormal_fpenv(preservesign)\n", reader=22)


def test_text_that_no_row_makes_older_is_checked_for_its_reader() -> None:
    text = 'declare void @f() "denormal-fp-math"="preserve-sign,preserve-sign"\n'
    with pytest.raises(CompatibilityError, match=r"denormal-fp-math.*\[LL003\]"):
        downgrade(text, reader=23)
    assert downgrade(text, reader=22) == text


def test_a_list_of_what_a_function_retains_stays_for_others_that_use_it() -> None:
    text = NEWER["retained-nodes"][0].replace("retainedNodes: !10", "retainedNodes: !14")
    older = downgrade(text, reader=22)
    assert older == text.replace("retainedNodes: !14", "retainedNodes: !{}")
    assert downgrade(older, reader=22) == older


@pytest.mark.parametrize("what", WRONG)
def test_what_would_be_wrong_without_a_word_is_refused(what: str) -> None:
    with pytest.raises(CompatibilityError, match="has no form"):
        downgrade(WRONG[what], reader=older_reader(ROWS[what]))


@pytest.mark.parametrize("reader", READERS)
def test_a_parameter_in_constant_memory_that_is_loaded_only_needs_no_mark(reader: int) -> None:
    text = SILENT["grid_constant"][0].replace(
        "  ret", "  %q = getelementptr i32, ptr %b, i64 %i\n  %v = load i32, ptr %q\n  ret"
    )
    made = downgrade(text.replace("@k(", "@k(i64 %i, "), reader=reader)
    is_annotated = '!"grid_constant", !{i32 3}' in made
    assert is_annotated == (
        ROWS["grid_constant-copied"].since <= reader < ROWS["grid_constant"].since
    )


@pytest.mark.parametrize("what", [*SAMPLES, *SILENT, *WRONG])
def test_text_for_its_own_release_is_not_changed(what: str) -> None:
    text = SAMPLES.get(what) or WRONG.get(what) or SILENT[what][0]
    assert downgrade(text, reader=NEWEST) == text


@pytest.mark.parametrize("reader", READERS)
def test_what_was_downgraded_is_not_changed_again(reader: int) -> None:
    for what, text in SAMPLES.items():
        if reader < ROWS[what].since and not ROWS[what].is_refused:
            older = downgrade(text, reader=reader)
            assert downgrade(older, reader=reader) == older


def test_result_that_the_reader_would_misread_is_rejected_with_its_rule() -> None:
    text = "declare void @llvm.coro.await.suspend.void(ptr, ptr, ptr)\n" + function(
        "call void @llvm.coro.await.suspend.void(ptr %p, ptr %p, ptr %p)"
    )
    with pytest.raises(CompatibilityError, match=r"llvm\.coro\.await\.suspend\.void.*\[BC014\]"):
        downgrade(text, reader=16)


def test_strings_comments_and_quoted_names_are_left_alone() -> None:
    text = (
        '@"range(i32 0, 5)" = constant [20 x i8] c"or disjoint captures"\n'
        "; captures(none) nneg splat (i32 1)\n"
        '@g = global i32 0, section "nuw inrange(1, 2)" ; or disjoint\n'
        '!0 = !{!"splat (i32 1) memory(errnomem: read)"}\n'
        'define void @"or disjoint"() "target"="nneg" {\nwritable:\n  ret void\n}\n'
    )
    assert downgrade(text, reader=15) == text


def test_an_error_names_construct_function_and_the_way_out() -> None:
    text = SAMPLES["atomics-of-22"].replace("@f(", '@"a b"(')
    with pytest.raises(CompatibilityError) as caught:
        downgrade(text, reader=19, location="k.mlir")
    assert "'atomicrmw fmaximum' in @\"a b\" has no form" in caught.value.message
    assert "--device-code=object" in caught.value.hint
    assert caught.value.location == "k.mlir"


@pytest.mark.parametrize(
    ("given", "older"),
    [
        ("write, argmem: none, inaccessiblemem: none, errnomem: none", "write, argmem: none, inaccessiblemem: none"),
        ("none, errnomem: write", "write, argmem: none, inaccessiblemem: none"),
        ("target_mem0: read", "read, argmem: none"),
        ("argmem: readwrite, errnomem: none", "argmem: readwrite"),
    ],
)  # fmt: skip
def test_no_function_promises_more_than_before(given: str, older: str) -> None:
    text = f"declare void @f() memory({given})\n"
    assert downgrade(text, reader=19) == f"declare void @f() memory({older})\n"


def test_the_range_of_a_result_stays_known_to_the_optimiser() -> None:
    older = downgrade(SAMPLES["range"], reader=16)
    assert "%x = call i32 @g(), !range !0\n" in older
    assert "!0 = !{i32 0, i32 5}\n" in older


@pytest.mark.llvm(16)
def test_the_range_of_the_elements_of_a_vector_is_left_out_for_releases_that_reject_it() -> None:
    text = SAMPLES["range"].replace("> i32", "> <2 x i32>").replace(") i32 @", ") <2 x i32> @")
    assert "  %x = call <2 x i32> @g()\n" in downgrade(text, reader=16)
    assert "  %x = call <2 x i32> @g(), !range !0\n" in downgrade(text, reader=17)


@given(st.text("%@!#\"'\\();:,.= x0é\u2028\U0001f600\n\t\0", max_size=200))
def test_tokens_lose_nothing(text: str) -> None:
    assert spell(tokenize(text)) == text


PTX = (
    ".version 7.8\n.target sm_80\n.address_size 64\n"
    ".visible .entry k()\n.maxntid 8, 4, 1\n{\n\tret;\n}\n"
)


def test_ptx_with_the_same_kernels_passes() -> None:
    check_same_kernels(bounded('"nvvm.maxntid"="8,4"'), memory_view(PTX.encode(), location="k.s"))


@pytest.mark.parametrize(
    ("ptx", "lost"),
    [
        (PTX.replace(".entry", ".func"), "the kernel of 'k'"),
        (PTX.replace(".maxntid 8, 4, 1\n", ""), "the largest block of 'k'"),
        (PTX.replace("entry k()", "entry k(.param .u32 a)"), "a parameter of 'k'"),
        (f"{PTX}.extern .func llvm.nvvm.new()\n;\n", "llvm.nvvm.new is unknown"),
    ],
)
def test_ptx_that_lost_something_is_refused(ptx: str, lost: str) -> None:
    with pytest.raises(CompatibilityError, match=lost):
        check_same_kernels(
            bounded('"nvvm.maxntid"="8,4"'), memory_view(ptx.encode(), location="k.s")
        )
