"""Modules with one construct each that some LLVM release cannot read, and the expected findings.

Each is text that the release `writer` assembles. If `silent`, older readers misread the construct; otherwise
a reader rejects it exactly if there is a finding.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """`rules` are the expected findings in the bitcode for readers before the release `since`."""

    text: str
    rules: tuple[str, ...]
    since: int
    silent: bool = False
    writer: int = 22


def function(body: str, parameters: str = "", result: str = "void") -> str:
    return f"define {result} @f({parameters}) {{\n{body}\n}}\n"


def attribute(words: str, since: int, rule: str = "BC010") -> Case:
    return Case(f"define void @f() {words} {{\n ret void\n}}\n", (rule,), since)


def parameter(words: str, since: int) -> Case:
    return Case(f"define void @f({words}) {{\n ret void\n}}\n", ("BC010",), since)


def constant(value: str, kind: str, since: int) -> Case:
    # Readers silently replace the constant by undef.
    return Case(
        f"@a = external global [4 x i32]\n@g = global {kind} {value}\n",
        ("BC012",),
        since,
        silent=True,
    )


DEBUG = """define void @f(i32 %x) !dbg !3 {
  #dbg_value(i32 %x, !6, !DIExpression(), !7)
 ret void, !dbg !7
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2}
!0 = distinct !DICompileUnit(language: DW_LANG_C99, file: !1, emissionKind: FullDebug)
!1 = !DIFile(filename: "a.c", directory: "/")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = distinct !DISubprogram(name: "f", scope: !1, file: !1, line: 1, type: !4, spFlags: DISPFlagDefinition, unit: !0)
!4 = !DISubroutineType(types: !5)
!5 = !{null}
!6 = !DILocalVariable(name: "x", arg: 1, scope: !3, file: !1, line: 1, type: !8)
!7 = !DILocation(line: 1, scope: !3)
!8 = !DIBasicType(name: "int", size: 32, encoding: DW_ATE_signed)
"""
NVPTX = 'target triple = "nvptx64-nvidia-cuda"\n'
AMDGPU = 'target triple = "amdgcn-amd-amdhsa"\n'
HIDDEN = (
    AMDGPU + "declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()\n"
    "define amdgpu_kernel void @k(ptr addrspace(1) %p) {\n"
    "  %a = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()\n"
    "  store ptr addrspace(4) %a, ptr addrspace(1) %p\n  ret void\n}\n"
)
BOUNDED = NVPTX + 'define ptx_kernel void @f() "nvvm.maxntid"="128" {\n ret void\n}\n'
WIDE = (
    'target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"\n'
    'target triple = "x86_64-unknown-linux-gnu"\n@g = global { i8, i128 } { i8 1, i128 2 }\n'
)
BARRIER = "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)\n" + function(
    " call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n ret void"
)
LANE = "declare i32 @llvm.amdgcn.readfirstlane.i32(i32)\n" + function(
    " %r = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %x)\n ret i32 %r", "i32 %x", "i32"
)
LIFETIME = "declare void @llvm.lifetime.start.p0(ptr)\n" + function(
    " %a = alloca i32\n call void @llvm.lifetime.start.p0(ptr %a)\n ret void"
)

CASES: dict[str, Case] = {
    "memory": attribute("memory(none)", 16),
    "skipprofile": attribute("skipprofile", 16),
    "nofpclass": parameter("float nofpclass(nan) %p", 17),
    "optdebug": attribute("optdebug noinline", 18),
    "writable": parameter("ptr writable %p", 18),
    "dead_on_unwind": parameter("ptr dead_on_unwind %p", 18),
    "range": parameter("i32 range(i32 0, 4) %p", 19),
    "initializes": parameter("ptr initializes((0, 4)) %p", 19),
    "numerical": attribute("sanitize_numerical_stability", 19),
    "realtime": attribute("sanitize_realtime", 20),
    "noext": parameter("i32 noext %p", 20),
    "captures": parameter("ptr captures(none) %p", 20),
    "dead_on_return": parameter("ptr dead_on_return %p", 21),
    "nocreateundeforpoison": attribute("nocreateundeforpoison", 22),
    "calling convention": Case(
        "define preserve_nonecc void @f() {\n ret void\n}\n", ("BC026",), 19, silent=True
    ),
    "call-site attribute": Case(
        "declare void @g(ptr)\n"
        + function(" call void @g(ptr captures(none) %p)\n ret void", "ptr %p"),
        ("BC010",),
        20,
    ),
    "getelementptr constant": constant("getelementptr inbounds (i8, ptr @a, i64 4)", "ptr", 19),
    "ptrauth constant": constant("ptrauth (ptr @a, i32 0)", "ptr", 22),
    "ptrtoaddr constant": constant("ptrtoaddr (ptr @a to i64)", "i64", 22),
    "local constant": Case(
        "@a = external global [4 x i32]\n"
        + function(" ret ptr getelementptr inbounds (i8, ptr @a, i64 4)", "", "ptr"),
        ("BC012",),
        19,
        silent=True,
    ),
    "zext nneg": Case(
        function(" %r = zext nneg i32 %i to i64\n ret i64 %r", "i32 %i", "i64"), ("BC021",), 18
    ),
    "trunc": Case(function(" %r = trunc i64 %i to i32\n ret i32 %r", "i64 %i", "i32"), (), 15),
    "trunc of a later value": Case(
        "define i32 @f(i1 %c) {\n br label %a\nl:\n %r = trunc i64 %v to i32\n ret i32 %r\n"
        "a:\n %v = load i64, ptr null\n br label %l\n}\n",
        (),
        15,
    ),
    "icmp samesign": Case(
        function(" %r = icmp samesign ult i64 %i, 4\n ret i1 %r", "i64 %i", "i1"), ("BC021",), 20
    ),
    "fcmp fast": Case(
        function(" %r = fcmp fast oeq float %i, 4.0\n ret i1 %r", "float %i", "i1"), (), 15
    ),
    "ptrtoaddr": Case(
        function(" %r = ptrtoaddr ptr %p to i64\n ret i64 %r", "ptr %p", "i64"), ("BC021",), 22
    ),
    "atomicrmw uinc_wrap": Case(
        function(" %r = atomicrmw uinc_wrap ptr %p, i32 1 seq_cst\n ret i32 %r", "ptr %p", "i32"),
        ("BC021",),
        16,
    ),
    "atomicrmw usub_cond": Case(
        function(" %r = atomicrmw usub_cond ptr %p, i32 1 seq_cst\n ret i32 %r", "ptr %p", "i32"),
        ("BC021",),
        20,
    ),
    "atomicrmw fmaximum": Case(
        function(
            " %r = atomicrmw fmaximum ptr %p, float 1.0 seq_cst\n ret float %r", "ptr %p", "float"
        ),
        ("BC021",),
        21,
    ),
    "target type": Case('declare void @f(target("spirv.Event"))\n', ("BC022",), 16),
    "debug information": Case(DEBUG, ("BC017",), 22),
    "getelementptr nuw": Case(
        function(" %r = getelementptr nuw i32, ptr %p, i64 1\n ret ptr %r", "ptr %p", "ptr"),
        ("BC020",),
        19,
        silent=True,
    ),
    "getelementptr inbounds nuw": Case(
        function(
            " %r = getelementptr inbounds nuw i32, ptr %p, i64 1\n ret ptr %r", "ptr %p", "ptr"
        ),
        (),
        15,
    ),
    "effects on other memory": Case(
        "declare void @f() memory(write, argmem: none, inaccessiblemem: none, errnomem: none)\n",
        ("BC013",),
        21,
        silent=True,
    ),
    "effects on target memory": Case(
        "declare void @f() memory(target_mem0: read)\n", ("BC013",), 22, silent=True
    ),
    "effects on arguments": Case("declare void @f(ptr) memory(argmem: read)\n", (), 16),
    "intrinsic": Case(BARRIER, ("BC014",), 21, silent=True),
    "intrinsic with a type": Case(LANE, ("BC014",), 19, silent=True),
    "intrinsic with fewer parameters": Case(LIFETIME, ("BC023",), 22),
    "launch bounds": Case(BOUNDED, ("BC015",), 21, silent=True),
    "launch bounds, annotated": Case(
        BOUNDED + '!nvvm.annotations = !{!0}\n!0 = !{ptr @f, !"maxntidx", i32 128}\n',
        (),
        15,
        # LLVM 20 and newer drop the annotations when they read them.
        writer=19,
    ),
    "128-bit integers": Case(WIDE, ("BC018",), 18, silent=True),
    "intrinsic with hidden arguments": Case(
        HIDDEN
        + '!llvm.module.flags = !{!0}\n!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}\n',
        ("AM004",),
        18,
        silent=True,
    ),
    "code object version of old": Case(
        AMDGPU
        + '!llvm.module.flags = !{!0}\n!0 = !{i32 1, !"amdgpu_code_object_version", i32 400}\n',
        (),
        15,
        writer=16,
    ),
}
