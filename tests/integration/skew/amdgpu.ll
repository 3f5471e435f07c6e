; Kernels that hit one construct of AMDGPU each.
;--- abi_absent
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) {
  store i32 1, ptr addrspace(1) %p
  ret void
}
;--- abi_implicit
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) {
  %a = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %v = load i16, ptr addrspace(4) %a, align 4
  store i16 %v, ptr addrspace(1) %p
  ret void
}
;--- abi_400 since=19
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) {
  store i32 1, ptr addrspace(1) %p
  ret void
}
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 400}
;--- abi_500 since=19
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) {
  store i32 1, ptr addrspace(1) %p
  ret void
}
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}
;--- abi_600 since=19
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) {
  store i32 1, ptr addrspace(1) %p
  ret void
}
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 600}
;--- abi_old_400 until=16
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) {
  store i32 1, ptr addrspace(1) %p
  ret void
}
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdgpu_code_object_version", i32 400}
;--- abi_old_500 until=16
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) {
  store i32 1, ptr addrspace(1) %p
  ret void
}
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdgpu_code_object_version", i32 500}
;--- abi_implicit_400 since=19
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) {
  %a = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %v = load i16, ptr addrspace(4) %a, align 4
  store i16 %v, ptr addrspace(1) %p
  ret void
}
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 400}
;--- abi_implicit_500 since=19
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) {
  %a = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %v = load i16, ptr addrspace(4) %a, align 4
  store i16 %v, ptr addrspace(1) %p
  ret void
}
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}
;--- abi_implicit_unused since=19
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) {
  store i16 1, ptr addrspace(1) %p
  ret void
}
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}
;--- abi_implicit_old_500 until=16
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) {
  %a = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %v = load i16, ptr addrspace(4) %a, align 4
  store i16 %v, ptr addrspace(1) %p
  ret void
}
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdgpu_code_object_version", i32 500}
;--- bounds
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) #0 {
  store i32 1, ptr addrspace(1) %p
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="64,128" "amdgpu-waves-per-eu"="2,4" }
;--- required_size
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) !reqd_work_group_size !0 {
  store i32 1, ptr addrspace(1) %p
  ret void
}
!0 = !{i32 64, i32 2, i32 1}
;--- workgroups since=19
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) "amdgpu-max-num-workgroups"="4,4,1" {
  store i32 1, ptr addrspace(1) %p
  ret void
}
;--- barrier
declare void @llvm.amdgcn.s.barrier()
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  call void @llvm.amdgcn.s.barrier()
  store i32 %t, ptr addrspace(1) %p
  ret void
}
;--- intrinsic_new since=19
declare i32 @llvm.amdgcn.permlane16.i32(i32, i32, i32, i32, i1, i1)
declare i32 @llvm.amdgcn.wave.reduce.umax.i32(i32, i32)
define amdgpu_kernel void @kernel(ptr addrspace(1) %p, i32 %x) {
  %v = call i32 @llvm.amdgcn.wave.reduce.umax.i32(i32 %x, i32 1)
  store i32 %v, ptr addrspace(1) %p
  ret void
}
;--- atomic_attribute until=19
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) "amdgpu-unsafe-fp-atomics"="true" {
  %a = atomicrmw fadd ptr addrspace(1) %p, float 1.0 syncscope("agent") monotonic
  ret void
}
;--- atomic_metadata since=20
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) {
  %a = atomicrmw fadd ptr addrspace(1) %p, float 1.0 syncscope("agent") monotonic, !amdgpu.no.fine.grained.memory !0, !amdgpu.ignore.denormal.mode !0
  ret void
}
!0 = !{}
;--- private_memory
define amdgpu_kernel void @kernel(ptr addrspace(1) %p, i32 %i) {
  %a = alloca [4 x i32], addrspace(5)
  %q = getelementptr [4 x i32], ptr addrspace(5) %a, i32 0, i32 %i
  store volatile i32 3, ptr addrspace(5) %q
  %v = load volatile i32, ptr addrspace(5) %q
  store i32 %v, ptr addrspace(1) %p
  ret void
}
;--- shared_memory
@tile = internal addrspace(3) global [64 x float] undef
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) {
  %v = load float, ptr addrspace(3) @tile
  store float %v, ptr addrspace(1) %p
  ret void
}
;--- gep_constant
@cells = addrspace(1) global [4 x i32] [i32 3, i32 5, i32 7, i32 9]
@place = addrspace(1) global ptr addrspace(1) getelementptr inbounds (i8, ptr addrspace(1) @cells, i64 8)
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) {
  %v = load ptr addrspace(1), ptr addrspace(1) @place
  %w = load i32, ptr addrspace(1) %v
  store i32 %w, ptr addrspace(1) %p
  ret void
}
;--- minimum
declare float @llvm.minimum.f32(float, float)
define amdgpu_kernel void @kernel(ptr addrspace(1) %p, float %x) {
  %d = call float @llvm.minimum.f32(float %x, float 3.0)
  store float %d, ptr addrspace(1) %p
  ret void
}
;--- chain_convention since=18
define amdgpu_cs_chain void @chain(<3 x i32> inreg %a) {
  ret void
}
;--- buffer_pointer since=17 until=21
define amdgpu_kernel void @kernel(ptr addrspace(1) %p, i16 %stride) {
  %b = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %p, i16 %stride, i32 64, i32 0)
  %v = call float @llvm.amdgcn.raw.ptr.buffer.load.f32(ptr addrspace(8) %b, i32 0, i32 0, i32 0)
  store float %v, ptr addrspace(1) %p
  ret void
}
declare ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1), i16, i32, i32)
declare float @llvm.amdgcn.raw.ptr.buffer.load.f32(ptr addrspace(8), i32, i32, i32 immarg)
;--- buffer_pointer_wide since=22
define amdgpu_kernel void @kernel(ptr addrspace(1) %p, i16 %stride) {
  %b = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %p, i16 %stride, i64 64, i32 0)
  %v = call float @llvm.amdgcn.raw.ptr.buffer.load.f32(ptr addrspace(8) %b, i32 0, i32 0, i32 0)
  store float %v, ptr addrspace(1) %p
  ret void
}
declare ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1), i16, i64, i32)
declare float @llvm.amdgcn.raw.ptr.buffer.load.f32(ptr addrspace(8), i32, i32, i32 immarg)
;--- math
declare float @llvm.fma.f32(float, float, float)
declare float @llvm.sqrt.f32(float)
define amdgpu_kernel void @kernel(ptr addrspace(1) %p, float %x) {
  %a = call float @llvm.fma.f32(float %x, float %x, float 1.0)
  %b = call float @llvm.sqrt.f32(float %a)
  store float %b, ptr addrspace(1) %p
  ret void
}
