;--- presplitcoroutine
declare void @f() presplitcoroutine
;--- allockind(
declare i8* @f(i64) allockind("alloc,uninitialized")
;--- memory(
declare void @f() memory(none)
;--- atomicrmw uinc_wrap
define void @f(ptr %p) {
 %r = atomicrmw uinc_wrap ptr %p, i32 1 seq_cst
 ret void
}
;--- target("
declare void @f(target("spirv.Event"))
;--- skipprofile
declare void @f() skipprofile
;--- nofpclass(
declare void @f(float nofpclass(nan))
;--- amdgpu_cs_chain
target triple = "amdgcn-amd-amdhsa"
declare amdgpu_cs_chain void @f()
;--- zext nneg
define void @f(i32 %i) {
 %r = zext nneg i32 %i to i64
 ret void
}
;--- or disjoint
define void @f(i32 %i) {
 %r = or disjoint i32 %i, 1
 ret void
}
;--- writable
declare void @f(ptr writable)
;--- dead_on_unwind
declare void @f(ptr dead_on_unwind)
;--- optdebug
declare void @f() optdebug noinline
;--- coro_only_destroy_when_complete
declare void @f() coro_only_destroy_when_complete
;--- splat (
define <4 x i32> @f() {

 ret <4 x i32> splat (i32 1)
}
;--- code_model
@g = global i32 0, code_model "large"
;--- frame-pointer=reserved
define void @f() "frame-pointer"="reserved" { ret void }
;--- !range of a vector
declare <2 x i32> @g()
define <2 x i32> @f() {
  %v = call <2 x i32> @g(), !range !0
  ret <2 x i32> %v
}
!0 = !{i32 0, i32 5}
;--- uitofp nneg
define void @f(i32 %i) {
 %r = uitofp nneg i32 %i to float
 ret void
}
;--- trunc nuw
define void @f(i64 %i) {
 %r = trunc nuw i64 %i to i32
 ret void
}
;--- getelementptr nuw
define void @f(ptr %p) {
 %r = getelementptr nuw i32, ptr %p, i64 1
 ret void
}
;--- inrange(
@a = external global [4 x i32]
@g = global ptr getelementptr inbounds inrange(-4, 4) (i8, ptr @a, i64 4)
;--- range(
declare void @f(i32 range(i32 0, 4))
;--- initializes(
declare void @f(ptr initializes((0, 4)))
;--- ptrauth (
@a = external global i32
@g = global ptr ptrauth (ptr @a, i32 0)
;--- atomicrmw of a vector
define void @f(ptr %p, <2 x half> %v) {
 %r = atomicrmw fadd ptr %p, <2 x half> %v seq_cst
 ret void
}
;--- preserve_nonecc
declare preserve_nonecc void @f()
;--- sanitize_numerical_stability
declare void @f() sanitize_numerical_stability
;--- weights of branches that are expected
define void @f(i1 %c) {
 br i1 %c, label %a, label %a, !prof !0
a:
 ret void
}
!0 = !{!"branch_weights", !"expected", i32 1, i32 2}
;--- #dbg_value
define void @f(i32 %x) !dbg !3 {
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
;--- icmp samesign
define void @f(i64 %i) {
 %r = icmp samesign ult i64 %i, 4
 ret void
}
;--- captures(
declare void @f(ptr captures(none))
;--- noext
declare void @f(i32 noext)
;--- atomicrmw usub_cond
define void @f(ptr %p) {
 %r = atomicrmw usub_cond ptr %p, i32 1 seq_cst
 ret void
}
;--- fast-math flags of fpext and fptrunc
define void @f(float %x) {
 %r = fpext fast float %x to double
 ret void
}
;--- sanitize_realtime
declare void @f() sanitize_realtime
;--- sanitize_type
declare void @f() sanitize_type
;--- nodivergencesource
declare void @f() nodivergencesource
;--- coro_elide_safe
declare void @g()
define void @f() {
 call void @g() coro_elide_safe
 ret void
}
;--- dead_on_return
declare void @f(ptr dead_on_return)
;--- memory(errnomem:)
declare void @f() memory(errnomem: write)
;--- atomicrmw fmaximum
define void @f(ptr %p) {
 %r = atomicrmw fmaximum ptr %p, float 1.0 seq_cst
 ret void
}
;--- atomGroup:
define void @f(i32 %x) !dbg !3 {
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
!7 = !DILocation(line: 1, scope: !3, atomGroup: 1, atomRank: 1)
!8 = !DIBasicType(name: "int", size: 32, encoding: DW_ATE_signed)
;--- keyInstructions:
define void @f(i32 %x) !dbg !3 {
 ret void, !dbg !7
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2}
!0 = distinct !DICompileUnit(language: DW_LANG_C99, file: !1, emissionKind: FullDebug)
!1 = !DIFile(filename: "a.c", directory: "/")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = distinct !DISubprogram(name: "f", scope: !1, file: !1, line: 1, type: !4, spFlags: DISPFlagDefinition, unit: !0, keyInstructions: true)
!4 = !DISubroutineType(types: !5)
!5 = !{null}
!6 = !DILocalVariable(name: "x", arg: 1, scope: !3, file: !1, line: 1, type: !8)
!7 = !DILocation(line: 1, scope: !3)
!8 = !DIBasicType(name: "int", size: 32, encoding: DW_ATE_signed)
;--- !DILabel(column:)
!named = !{!0}
!0 = !DILabel(scope: !1, name: "a", file: !3, line: 1, column: 2)
!1 = distinct !DISubprogram(name: "f", scope: !3, file: !3, line: 1, type: !4, unit: !2, spFlags: DISPFlagDefinition)
!2 = distinct !DICompileUnit(language: DW_LANG_C, file: !3, emissionKind: FullDebug)
!3 = !DIFile(filename: "a", directory: "b")
!4 = !DISubroutineType(types: !5)
!5 = !{}
!llvm.dbg.cu = !{!2}
!llvm.module.flags = !{!6}
!6 = !{i32 2, !"Debug Info Version", i32 3}
;--- frame-pointer=non-leaf-no-reserve
define void @f() "frame-pointer"="non-leaf-no-reserve" { ret void }
;--- nocreateundeforpoison
declare void @f() nocreateundeforpoison
;--- sanitize_alloc_token
declare void @f() sanitize_alloc_token
;--- memory(target_mem0:)
declare void @f() memory(target_mem0: read)
;--- memory(target_mem:)
declare void @f() memory(target_mem: read)
;--- dead_on_return(
declare void @f(ptr dead_on_return(8))
;--- denormal_fpenv(
declare void @f() denormal_fpenv(float: preservesign)
;--- nooutline, flatten, noipa
declare void @f() nooutline flatten noipa
;--- atomicrmw fmaximumnum
define void @f(ptr %p) {
 %r = atomicrmw fmaximumnum ptr %p, float 1.0 seq_cst
 ret void
}
;--- a byte type
define b8 @f(b8 %p) {
 ret b8 %p
}
;--- f0x
@g = global double f0x41E0000000000001
;--- +inf or +qnan
@g = global float +inf
;--- fast-math flags of sitofp and uitofp
define float @f(i32 %a) {
 %r = sitofp contract i32 %a to float
 ret float %r
}
;--- ptrtoaddr
define void @f(ptr %p) {
 %r = ptrtoaddr ptr %p to i64
 ret void
}
;--- sourceLanguageName:
define void @f(i32 %x) !dbg !3 {
 ret void, !dbg !7
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2}
!0 = distinct !DICompileUnit(sourceLanguageName: DW_LNAME_C, file: !1, emissionKind: FullDebug)
!1 = !DIFile(filename: "a.c", directory: "/")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = distinct !DISubprogram(name: "f", scope: !1, file: !1, line: 1, type: !4, spFlags: DISPFlagDefinition, unit: !0)
!4 = !DISubroutineType(types: !5)
!5 = !{null}
!6 = !DILocalVariable(name: "x", arg: 1, scope: !3, file: !1, line: 1, type: !8)
!7 = !DILocation(line: 1, scope: !3)
!8 = !DIBasicType(name: "int", size: 32, encoding: DW_ATE_signed)
;--- a division of constants
@a = global i32 0
@g = global i64 udiv (i64 ptrtoint (i32* @a to i64), i64 2)
;--- a select of constants
@a = global i32 0
@b = global i32 0
@g = global i32 select (i1 icmp eq (i32* @a, i32* @b), i32 1, i32 2)
;--- a zext of a constant
@a = global i32 0
@g = global i64 zext (i32 ptrtoint (i32* @a to i32) to i64)
;--- a conversion of a floating-point constant
@a = global i32 0
@g = global float uitofp (i32 ptrtoint (i32* @a to i32) to float)
;--- an lshr, ashr, and, or of constants
@a = global i32 0
@g = global i64 and (i64 ptrtoint (i32* @a to i64), i64 2)
;--- a shl of constants
@a = global i32 0
@g = global i64 shl (i64 ptrtoint (i32* @a to i64), i64 2)
;--- an icmp of constants
@a = global i32 0
@b = global i32 0
@g = global i1 icmp eq (i32* @a, i32* @b)
;--- inrange before an index
@a = external global [4 x i32]
@g = global i32* getelementptr inbounds ([4 x i32], [4 x i32]* @a, inrange i32 0, i32 1)
;--- x86_mmx
declare void @f(x86_mmx)
;--- a mul of constants
@a = global i32 0
@g = global i64 mul (i64 ptrtoint (i32* @a to i64), i64 2)
;--- !noundef of a call
declare i32 @g()
define i32 @f() {
 %r = call i32 @g(), !noundef !0
 ret i32 %r
}
!0 = !{}
