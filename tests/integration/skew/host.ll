; Programs that hit one construct each; each tells by its exit status how it was understood.
; `since`: the oldest release of LLVM that has the construct. Triple and layout are put in.
;--- gep_constant
; Record 32 of the constants since LLVM 19; an older reader takes a record that it does not know as undef.
@cells = internal global [4 x i32] [i32 3, i32 5, i32 7, i32 9]
@place = internal global ptr getelementptr inbounds (i8, ptr @cells, i64 8)
define i32 @main() {
  %p = load volatile ptr, ptr @place
  %v = load i32, ptr %p
  ret i32 %v
}
;--- gep_sizeof
declare ptr @malloc(i64)
define i32 @main() {
  %p = call ptr @malloc(i64 ptrtoint (ptr getelementptr (i32, ptr null, i64 4) to i64))
  %q = getelementptr inbounds i32, ptr %p, i64 3
  store volatile i32 6, ptr %q
  %v = load volatile i32, ptr %q
  ret i32 %v
}
;--- gep_inrange since=19
@table = internal constant { [2 x ptr], [2 x i32] } { [2 x ptr] [ptr null, ptr @main], [2 x i32] [i32 1, i32 8] }
@place = internal global ptr getelementptr inbounds inrange(-16, 8) ({ [2 x ptr], [2 x i32] }, ptr @table, i64 0, i32 1, i64 0)
define i32 @main() {
  %p = load volatile ptr, ptr @place
  %q = getelementptr i32, ptr %p, i64 1
  %v = load i32, ptr %q
  ret i32 %v
}
;--- gep_nuw since=19
; Older readers take any flag for inbounds, which promises that nothing but null plus zero is null.
@base = internal global ptr null
define i32 @main(i32 %argc) {
  %q = load volatile ptr, ptr @base
  %n = zext i32 %argc to i64
  %p = getelementptr nuw i8, ptr %q, i64 %n
  %is_null = icmp eq ptr %p, null
  %v = select i1 %is_null, i32 1, i32 5
  ret i32 %v
}
;--- gep_inbounds_nuw since=19
define i32 @main(i32 %argc) {
  %a = alloca [4 x i32]
  %i = zext i32 %argc to i64
  %p = getelementptr inbounds nuw i32, ptr %a, i64 %i
  store i32 11, ptr %p
  %v = load i32, ptr %p
  ret i32 %v
}
;--- cast_constants
@cells = internal global [4 x i8] c"abcd"
@number = internal global i64 sub (i64 ptrtoint (ptr getelementptr (i8, ptr @cells, i64 3) to i64), i64 ptrtoint (ptr @cells to i64))
define i32 @main() {
  %v = load volatile i64, ptr @number
  %w = trunc i64 %v to i32
  ret i32 %w
}
;--- memory_errno since=21
; What this function writes is "other" memory, which older readers find in the bits of none.
@cell = internal global i32 0
define void @set(i32 %v) #0 {
  store i32 %v, ptr @cell
  ret void
}
define i32 @main() {
  call void @set(i32 7)
  %v = load i32, ptr @cell
  ret i32 %v
}
attributes #0 = { noinline nounwind willreturn optnone memory(write, argmem: none, inaccessiblemem: none, errnomem: none) }
;--- memory_words since=16
@cell = internal global i32 0
define void @set(i32 %v) #0 {
  store i32 %v, ptr @cell
  ret void
}
define i32 @get() #1 {
  %v = load i32, ptr @cell
  ret i32 %v
}
define i32 @main() {
  call void @set(i32 7)
  %v = call i32 @get()
  ret i32 %v
}
attributes #0 = { noinline nounwind willreturn memory(write, argmem: none, inaccessiblemem: none) }
attributes #1 = { noinline nounwind willreturn memory(read, argmem: none) }
;--- memory_none
define i32 @one(ptr %p) #0 {
  %v = load i32, ptr %p
  ret i32 %v
}
define i32 @main() {
  %p = alloca i32
  store i32 9, ptr %p
  %v = call i32 @one(ptr %p)
  ret i32 %v
}
attributes #0 = { noinline nounwind willreturn argmemonly readonly }
;--- memory_target since=22
; Older readers find no effect at all, and drop the call.
declare void @exit(i32)
define void @leave(i32 %v) #0 {
  call void @exit(i32 %v)
  ret void
}
define i32 @main() {
  call void @leave(i32 7)
  ret i32 0
}
attributes #0 = { noinline nounwind willreturn optnone memory(target_mem0: readwrite) }
;--- wide_layout
@table = internal global [2 x { i8, i128 }] [{ i8, i128 } { i8 1, i128 2 }, { i8, i128 } { i8 3, i128 4 }]
define i32 @main() {
  %p = load volatile ptr, ptr @place
  %v = load i128, ptr %p, align 8
  %w = trunc i128 %v to i32
  %size = add i32 %w, ptrtoint (ptr getelementptr ({ i8, i128 }, ptr null, i64 1) to i32)
  ret i32 %size
}
@place = internal global ptr getelementptr inbounds ([2 x { i8, i128 }], ptr @table, i64 0, i64 1, i32 1)
;--- intrinsic_tan since=19
declare double @llvm.tan.f64(double)
define i32 @main(i32 %argc) {
  %x = sitofp i32 %argc to double
  %y = call double @llvm.tan.f64(double %x)
  %z = fmul double %y, 1.0e+01
  %v = fptosi double %z to i32
  ret i32 %v
}
;--- intrinsic_ucmp since=19
declare i8 @llvm.ucmp.i8.i32(i32, i32)
define i32 @main(i32 %argc) {
  %v = call i8 @llvm.ucmp.i8.i32(i32 %argc, i32 0)
  %w = zext i8 %v to i32
  ret i32 %w
}
;--- intrinsic_minimumnum since=20
declare float @llvm.minimumnum.f32(float, float)
define i32 @main(i32 %argc) {
  %x = sitofp i32 %argc to float
  %y = call float @llvm.minimumnum.f32(float %x, float 5.0)
  %v = fptosi float %y to i32
  ret i32 %v
}
;--- intrinsic_ldexp since=17
declare double @llvm.ldexp.f64.i32(double, i32)
define i32 @main(i32 %argc) {
  %y = call double @llvm.ldexp.f64.i32(double 3.0, i32 %argc)
  %v = fptosi double %y to i32
  ret i32 %v
}
;--- intrinsic_unused since=19
; Declared and never called: nothing is lost.
declare double @llvm.tan.f64(double)
define i32 @main() {
  ret i32 4
}
;--- intrinsic_old
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i32 @llvm.ctpop.i32(i32)
define i32 @main() {
  %a = alloca i32
  %b = alloca i32
  store i32 255, ptr %a
  call void @llvm.memcpy.p0.p0.i64(ptr %b, ptr %a, i64 4, i1 false)
  %v = load i32, ptr %b
  %n = call i32 @llvm.ctpop.i32(i32 %v)
  ret i32 %n
}
;--- lifetime_size until=21
declare void @llvm.lifetime.start.p0(i64, ptr nocapture)
declare void @llvm.lifetime.end.p0(i64, ptr nocapture)
define i32 @main() {
  %a = alloca i32
  call void @llvm.lifetime.start.p0(i64 4, ptr %a)
  store i32 3, ptr %a
  %v = load i32, ptr %a
  call void @llvm.lifetime.end.p0(i64 4, ptr %a)
  ret i32 %v
}
;--- lifetime since=22
declare void @llvm.lifetime.start.p0(ptr captures(none))
declare void @llvm.lifetime.end.p0(ptr captures(none))
define i32 @main() {
  %a = alloca i32
  call void @llvm.lifetime.start.p0(ptr %a)
  store i32 3, ptr %a
  %v = load i32, ptr %a
  call void @llvm.lifetime.end.p0(ptr %a)
  ret i32 %v
}
;--- splat since=19
@values = internal global <4 x i32> splat (i32 3)
define i32 @main() {
  %v = load volatile <4 x i32>, ptr @values
  %w = add <4 x i32> %v, splat (i32 2)
  %x = extractelement <4 x i32> %w, i32 2
  ret i32 %x
}
;--- range since=19
define range(i32 0, 100) i32 @small(i32 range(i32 0, 50) %v) noinline {
  %w = add i32 %v, 1
  ret i32 %w
}
define i32 @main(i32 %argc) {
  %v = call range(i32 0, 100) i32 @small(i32 %argc)
  ret i32 %v
}
;--- initializes since=19
define void @set(ptr initializes((0, 4)) %p) noinline {
  store i32 5, ptr %p
  ret void
}
define i32 @main() {
  %p = alloca i32
  call void @set(ptr %p)
  %v = load i32, ptr %p
  ret i32 %v
}
;--- captures since=21
define i32 @get(ptr captures(none) %p) noinline {
  %v = load i32, ptr %p
  ret i32 %v
}
define i32 @main() {
  %p = alloca i32
  store i32 6, ptr %p
  %v = call i32 @get(ptr %p)
  ret i32 %v
}
;--- nocapture until=20
define i32 @get(ptr nocapture readonly %p) noinline {
  %v = load i32, ptr %p
  ret i32 %v
}
define i32 @main() {
  %p = alloca i32
  store i32 6, ptr %p
  %v = call i32 @get(ptr %p)
  ret i32 %v
}
;--- attribute_kinds since=22
define i32 @main() nocreateundeforpoison {
  ret i32 2
}
;--- attribute_nofpclass since=17
define float @one(float nofpclass(nan inf) %x) noinline {
  ret float %x
}
define i32 @main() {
  %x = call float @one(float 3.0)
  %v = fptosi float %x to i32
  ret i32 %v
}
;--- attribute_strings since=15
define i32 @main() "unknown-to-all"="yes" "frame-pointer"="all" "no-trapping-math"="true" {
  ret i32 8
}
;--- flags since=19
; Promises to the optimiser, which older readers lose or refuse.
define i32 @main(i32 %argc) {
  %a = shl i32 %argc, 4
  %b = or disjoint i32 %a, 3
  %c = zext nneg i32 %b to i64
  %d = trunc nuw nsw i64 %c to i32
  %e = uitofp nneg i32 %d to double
  %f = fptosi double %e to i32
  ret i32 %f
}
;--- samesign since=20
define i32 @main(i32 %argc) {
  %a = icmp samesign ult i32 %argc, 9
  %b = zext i1 %a to i32
  ret i32 %b
}
;--- fast_casts since=20
define i32 @main(i32 %argc) {
  %x = sitofp i32 %argc to double
  %y = fptrunc fast double %x to float
  %z = fpext nnan ninf float %y to double
  %v = fptosi double %z to i32
  ret i32 %v
}
;--- ptrtoaddr since=22
@cell = internal global i32 4
define i32 @main() {
  %p = ptrtoaddr ptr @cell to i64
  %q = inttoptr i64 %p to ptr
  %v = load i32, ptr %q
  ret i32 %v
}
;--- ptrtoaddr_constant since=22
@cell = internal global i32 4
@number = internal global i64 ptrtoaddr (ptr @cell to i64)
define i32 @main() {
  %p = load volatile i64, ptr @number
  %q = inttoptr i64 %p to ptr
  %v = load i32, ptr %q
  ret i32 %v
}
;--- atomics
@n = internal global i32 5
define i32 @main() {
  %a = atomicrmw add ptr @n, i32 2 seq_cst
  %b = atomicrmw umax ptr @n, i32 9 monotonic
  %c = cmpxchg ptr @n, i32 9, i32 11 acq_rel monotonic
  %v = load atomic i32, ptr @n acquire, align 4
  ret i32 %v
}
;--- atomics_wrap since=17
@n = internal global i32 5
define i32 @main() {
  %a = atomicrmw uinc_wrap ptr @n, i32 5 seq_cst
  %b = atomicrmw udec_wrap ptr @n, i32 7 seq_cst
  %v = load i32, ptr @n
  ret i32 %v
}
;--- atomics_saturating since=20
@n = internal global i32 5
define i32 @main() {
  %a = atomicrmw usub_sat ptr @n, i32 9 seq_cst
  %v = load i32, ptr @n
  ret i32 %v
}
;--- atomics_maximum since=21
@x = internal global float 1.5
define i32 @main() {
  %a = atomicrmw fmaximum ptr @x, float 4.5 seq_cst
  %v = load float, ptr @x
  %i = fptosi float %v to i32
  ret i32 %i
}
;--- code_model since=18
@big = internal global [4 x i32] [i32 1, i32 2, i32 3, i32 4], code_model "large"
define i32 @main(i32 %argc) {
  %i = zext i32 %argc to i64
  %p = getelementptr [4 x i32], ptr @big, i64 0, i64 %i
  %v = load i32, ptr %p
  ret i32 %v
}
;--- preserve_none since=18
define preserve_nonecc i32 @callee(i32 %v) noinline {
  %w = add i32 %v, 6
  ret i32 %w
}
define i32 @main(i32 %argc) {
  %v = call preserve_nonecc i32 @callee(i32 %argc)
  ret i32 %v
}
;--- debug_records since=19
define i32 @main(i32 %argc) !dbg !4 {
    #dbg_value(i32 %argc, !7, !DIExpression(), !8)
  ret i32 %argc, !dbg !8
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3}
!0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, emissionKind: FullDebug)
!1 = !DIFile(filename: "a.c", directory: "/")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !{i32 7, !"Dwarf Version", i32 5}
!4 = distinct !DISubprogram(name: "main", scope: !1, file: !1, line: 1, type: !5, unit: !0, spFlags: DISPFlagDefinition)
!5 = !DISubroutineType(types: !6)
!6 = !{null}
!7 = !DILocalVariable(name: "argc", arg: 1, scope: !4, file: !1, line: 1)
!8 = !DILocation(line: 2, scope: !4)
;--- debug_intrinsic
define i32 @main(i32 %argc) !dbg !4 {
  call void @llvm.dbg.value(metadata i32 %argc, metadata !7, metadata !DIExpression()), !dbg !8
  ret i32 %argc, !dbg !8
}
declare void @llvm.dbg.value(metadata, metadata, metadata)
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3}
!0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, emissionKind: FullDebug)
!1 = !DIFile(filename: "a.c", directory: "/")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !{i32 7, !"Dwarf Version", i32 5}
!4 = distinct !DISubprogram(name: "main", scope: !1, file: !1, line: 1, type: !5, unit: !0, spFlags: DISPFlagDefinition)
!5 = !DISubroutineType(types: !6)
!6 = !{null}
!7 = !DILocalVariable(name: "argc", arg: 1, scope: !4, file: !1, line: 1)
!8 = !DILocation(line: 2, scope: !4)
;--- block_address
define i32 @main(i32 %argc) {
  %p = load volatile ptr, ptr @place
  indirectbr ptr %p, [label %left, label %right]
left:
  ret i32 4
right:
  ret i32 5
}
@place = internal global ptr blockaddress(@main, %right)
;--- equivalent since=16
declare i32 @abs(i32)
@place = internal global i32 trunc (i64 sub (i64 ptrtoint (ptr dso_local_equivalent @one to i64), i64 ptrtoint (ptr @place to i64)) to i32)
define hidden i32 @one() {
  ret i32 1
}
define i32 @main() {
  %v = call i32 @abs(i32 -6)
  ret i32 %v
}
;--- extended_bfloat
@x = internal global bfloat 0xR4040
define i32 @main() {
  %v = load bfloat, ptr @x
  %w = fpext bfloat %v to float
  %i = fptosi float %w to i32
  ret i32 %i
}
;--- bundle_unknown since=19
define i32 @callee(i32 %v) noinline convergent {
  ret i32 %v
}
define i32 @main(i32 %argc) convergent {
  %token = call token @llvm.experimental.convergence.entry()
  %v = call i32 @callee(i32 12) [ "convergencectrl"(token %token) ]
  ret i32 %v
}
declare token @llvm.experimental.convergence.entry() convergent nocallback nofree nosync nounwind willreturn memory(none)
