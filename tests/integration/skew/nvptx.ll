; Kernels that hit one construct of NVPTX each.
;--- kernel_convention
define ptx_kernel void @kernel(ptr addrspace(1) %p) {
  store i32 1, ptr addrspace(1) %p
  ret void
}
;--- kernel_annotation
define void @kernel(ptr addrspace(1) %p) {
  store i32 1, ptr addrspace(1) %p
  ret void
}
!nvvm.annotations = !{!0}
!0 = !{ptr @kernel, !"kernel", i32 1}
;--- bounds_annotation
define void @kernel(ptr addrspace(1) %p) {
  store i32 1, ptr addrspace(1) %p
  ret void
}
!nvvm.annotations = !{!0, !1}
!0 = !{ptr @kernel, !"kernel", i32 1}
!1 = !{ptr @kernel, !"maxntidx", i32 128, !"maxntidy", i32 2, !"maxntidz", i32 1, !"minctasm", i32 2, !"maxnreg", i32 64}
;--- bounds_annotation_text raw=yes
define void @kernel(ptr addrspace(1) %p) {
  store i32 1, ptr addrspace(1) %p
  ret void
}
!nvvm.annotations = !{!0, !1}
!0 = !{ptr @kernel, !"kernel", i32 1}
!1 = !{ptr @kernel, !"maxntidx", i32 128, !"maxntidy", i32 2, !"maxntidz", i32 1, !"minctasm", i32 2, !"maxnreg", i32 64}
;--- maxntid since=21
define ptx_kernel void @kernel(ptr addrspace(1) %p) #0 {
  store i32 1, ptr addrspace(1) %p
  ret void
}
attributes #0 = { "nvvm.maxntid"="128,2,1" }
;--- reqntid since=21
define ptx_kernel void @kernel(ptr addrspace(1) %p) #0 {
  store i32 1, ptr addrspace(1) %p
  ret void
}
attributes #0 = { "nvvm.reqntid"="64" }
;--- minctasm since=21
define ptx_kernel void @kernel(ptr addrspace(1) %p) #0 {
  store i32 1, ptr addrspace(1) %p
  ret void
}
attributes #0 = { "nvvm.minctasm"="2" }
;--- maxnreg since=21
define ptx_kernel void @kernel(ptr addrspace(1) %p) #0 {
  store i32 1, ptr addrspace(1) %p
  ret void
}
attributes #0 = { "nvvm.maxnreg"="64" }
;--- cluster since=21 arch=sm_90
define ptx_kernel void @kernel(ptr addrspace(1) %p) #0 {
  store i32 1, ptr addrspace(1) %p
  ret void
}
attributes #0 = { "nvvm.cluster_dim"="2,1,1" "nvvm.maxclusterrank"="4" "nvvm.reqntid"="64" }
;--- grid_constant since=21
define ptx_kernel void @kernel(ptr byval([4 x i32]) align 4 "nvvm.grid_constant" %c, ptr addrspace(1) %p) {
  %q = getelementptr i32, ptr %c, i64 2
  %v = load i32, ptr %q
  store i32 %v, ptr addrspace(1) %p
  ret void
}
;--- bounds_both since=21
; Attributes and annotations say the same: every release reads one of them.
define ptx_kernel void @kernel(ptr addrspace(1) %p) #0 {
  store i32 1, ptr addrspace(1) %p
  ret void
}
attributes #0 = { "nvvm.maxntid"="128" "nvvm.minctasm"="2" }
!nvvm.annotations = !{!0}
!0 = !{ptr @kernel, !"kernel", i32 1, !"maxntidx", i32 128, !"minctasm", i32 2}
;--- bounds_both_text since=21 raw=yes
; Attributes and annotations say the same: every release reads one of them.
define ptx_kernel void @kernel(ptr addrspace(1) %p) #0 {
  store i32 1, ptr addrspace(1) %p
  ret void
}
attributes #0 = { "nvvm.maxntid"="128" "nvvm.minctasm"="2" }
!nvvm.annotations = !{!0}
!0 = !{ptr @kernel, !"kernel", i32 1, !"maxntidx", i32 128, !"minctasm", i32 2}
;--- bounds_device_function since=21
; On a function that is no kernel the attribute means nothing.
define void @helper(ptr %p) #0 {
  store i32 1, ptr %p
  ret void
}
define ptx_kernel void @kernel(ptr %p) {
  call void @helper(ptr %p)
  ret void
}
attributes #0 = { noinline "nvvm.maxntid"="128" }
;--- barrier_old until=20
declare void @llvm.nvvm.barrier0()
define ptx_kernel void @kernel() {
  call void @llvm.nvvm.barrier0()
  ret void
}
;--- barrier_new since=21
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
define ptx_kernel void @kernel() {
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  ret void
}
;--- barrier_count since=21
declare void @llvm.nvvm.barrier.cta.sync.aligned.count(i32, i32)
define ptx_kernel void @kernel() {
  call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 1, i32 64)
  ret void
}
;--- special_registers
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)
declare float @llvm.nvvm.sqrt.rn.f(float)
define ptx_kernel void @kernel(ptr addrspace(1) %p) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %s = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %t, i32 1, i32 31)
  %f = sitofp i32 %s to float
  %r = call float @llvm.nvvm.sqrt.rn.f(float %f)
  store float %r, ptr addrspace(1) %p
  ret void
}
;--- atomics
define ptx_kernel void @kernel(ptr addrspace(1) %p, ptr addrspace(1) %f) {
  %a = atomicrmw add ptr addrspace(1) %p, i32 1 monotonic
  %b = atomicrmw fadd ptr addrspace(1) %f, float 1.0 monotonic
  %c = cmpxchg ptr addrspace(1) %p, i32 1, i32 2 monotonic monotonic
  ret void
}
;--- atomics_scope since=20
; Scopes and orders that older back ends pass over.
define ptx_kernel void @kernel(ptr addrspace(1) %p) {
  %a = atomicrmw add ptr addrspace(1) %p, i32 1 syncscope("block") acq_rel
  %v = load atomic i32, ptr addrspace(1) %p syncscope("device") acquire, align 4
  store atomic i32 %v, ptr addrspace(1) %p syncscope("device") release, align 4
  ret void
}
;--- fence since=20
define ptx_kernel void @kernel(ptr addrspace(1) %p) {
  store i32 1, ptr addrspace(1) %p
  fence syncscope("block") acq_rel
  store i32 2, ptr addrspace(1) %p
  ret void
}
;--- atomics_order
define ptx_kernel void @kernel(ptr addrspace(1) %p) {
  %v = load atomic i32, ptr addrspace(1) %p acquire, align 4
  store atomic i32 %v, ptr addrspace(1) %p release, align 4
  ret void
}
;--- atomics_wrap since=17
define ptx_kernel void @kernel(ptr addrspace(1) %p) {
  %a = atomicrmw uinc_wrap ptr addrspace(1) %p, i32 5 monotonic
  ret void
}
;--- shared_memory
@tile = internal addrspace(3) global [64 x float] undef
@dynamic = external addrspace(3) global [0 x float], align 16
define ptx_kernel void @kernel(ptr addrspace(1) %p) {
  %v = load float, ptr addrspace(3) @tile
  %w = load float, ptr addrspace(3) @dynamic
  %s = fadd float %v, %w
  store float %s, ptr addrspace(1) %p
  ret void
}
;--- texture since=15
@image = internal addrspace(1) global i64 0
declare { float, float, float, float } @llvm.nvvm.tex.unified.1d.v4f32.s32(i64, i32)
define ptx_kernel void @kernel(i64 %t, ptr addrspace(1) %p) {
  %v = call { float, float, float, float } @llvm.nvvm.tex.unified.1d.v4f32.s32(i64 %t, i32 3)
  %x = extractvalue { float, float, float, float } %v, 0
  store float %x, ptr addrspace(1) %p
  ret void
}
!nvvm.annotations = !{!0}
!0 = !{ptr addrspace(1) @image, !"texture", i32 1}
;--- managed
@shared = addrspace(1) externally_initialized global i32 3, align 4
define ptx_kernel void @kernel(ptr addrspace(1) %p) {
  store i32 1, ptr addrspace(1) @shared
  ret void
}
!nvvm.annotations = !{!0}
!0 = !{ptr addrspace(1) @shared, !"managed", i32 1}
;--- gep_constant
@cells = addrspace(1) global [4 x i32] [i32 3, i32 5, i32 7, i32 9]
@place = addrspace(1) global ptr addrspace(1) getelementptr inbounds (i8, ptr addrspace(1) @cells, i64 8)
define ptx_kernel void @kernel(ptr addrspace(1) %p) {
  %v = load ptr addrspace(1), ptr addrspace(1) @place
  %w = load i32, ptr addrspace(1) %v
  store i32 %w, ptr addrspace(1) %p
  ret void
}
;--- math
declare float @llvm.fma.f32(float, float, float)
declare float @llvm.sqrt.f32(float)
declare float @llvm.minnum.f32(float, float)
define ptx_kernel void @kernel(ptr addrspace(1) %p, float %x) {
  %a = call float @llvm.fma.f32(float %x, float %x, float 1.0)
  %b = call float @llvm.sqrt.f32(float %a)
  %c = fdiv float %b, %x
  %d = call float @llvm.minnum.f32(float %c, float 3.0)
  store float %d, ptr addrspace(1) %p
  ret void
}
;--- minimum
declare float @llvm.minimum.f32(float, float)
define ptx_kernel void @kernel(ptr addrspace(1) %p, float %x) {
  %d = call float @llvm.minimum.f32(float %x, float 3.0)
  store float %d, ptr addrspace(1) %p
  ret void
}
;--- new_architecture since=20 arch=sm_100
define ptx_kernel void @kernel(ptr addrspace(1) %p) "target-cpu"="sm_100" {
  store i32 1, ptr addrspace(1) %p
  ret void
}
;--- tensor_memory since=21 arch=sm_100a
declare void @llvm.nvvm.tcgen05.alloc.shared.cg1(ptr addrspace(3), i32)
@place = internal addrspace(3) global i32 undef
define ptx_kernel void @kernel() "target-cpu"="sm_100a" {
  call void @llvm.nvvm.tcgen05.alloc.shared.cg1(ptr addrspace(3) @place, i32 64)
  ret void
}
;--- wide
define ptx_kernel void @kernel(ptr addrspace(1) %p, i128 %x) {
  %y = add i128 %x, 5
  store i128 %y, ptr addrspace(1) %p
  ret void
}
;--- splat_and_range since=19
define internal range(i32 0, 64) i32 @small(i32 range(i32 0, 64) %v) noinline {
  ret i32 %v
}
define ptx_kernel void @kernel(ptr addrspace(1) %p) {
  %a = call i32 @small(i32 4)
  store i32 %a, ptr addrspace(1) %p
  store <2 x i32> splat (i32 3), ptr addrspace(1) %p
  ret void
}
