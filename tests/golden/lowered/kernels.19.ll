; ModuleID = 'LLVMDialectModule'
source_filename = "LLVMDialectModule"
target triple = "nvptx64-nvidia-cuda"

@__dynamic_shmem__0 = internal addrspace(3) global [0 x i8] undef, align 16

declare float @__nv_expf(float)

define void @saxpy(i64 %0, float %1, ptr %2, ptr %3, i64 %4, i64 %5, i64 %6, ptr %7, ptr %8, i64 %9, i64 %10, i64 %11) {
  %13 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %14 = sext i32 %13 to i64
  %15 = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %16 = sext i32 %15 to i64
  %17 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %18 = sext i32 %17 to i64
  %19 = mul i64 %14, %16
  %20 = add i64 %19, %18
  %21 = icmp ult i64 %20, %0
  br i1 %21, label %22, label %30

22:                                               ; preds = %12
  %23 = getelementptr float, ptr %3, i64 %20
  %24 = load float, ptr %23, align 4
  %25 = call float @__nv_expf(float %24)
  %26 = getelementptr float, ptr %8, i64 %20
  %27 = load float, ptr %26, align 4
  %28 = fmul float %1, %25
  %29 = fadd float %28, %27
  store float %29, ptr %26, align 4
  br label %30

30:                                               ; preds = %22, %12
  ret void
}

define void @other(ptr %0, ptr %1, i64 %2, i64 %3, i64 %4) {
  %6 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %7 = sext i32 %6 to i64
  %8 = getelementptr float, ptr %1, i64 %7
  %9 = load float, ptr %8, align 4
  %10 = getelementptr float, ptr addrspace(3) @__dynamic_shmem__0, i64 %7
  store float %9, ptr addrspace(3) %10, align 4
  call void @llvm.nvvm.barrier0()
  %11 = load float, ptr addrspace(3) @__dynamic_shmem__0, align 4
  store float %11, ptr %8, align 4
  ret void
}

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef i32 @llvm.nvvm.read.ptx.sreg.ctaid.x() #0

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef i32 @llvm.nvvm.read.ptx.sreg.ntid.x() #0

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef i32 @llvm.nvvm.read.ptx.sreg.tid.x() #0

; Function Attrs: convergent nocallback nounwind
declare void @llvm.nvvm.barrier0() #1

attributes #0 = { nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #1 = { convergent nocallback nounwind }

!llvm.module.flags = !{!0}
!nvvm.annotations = !{!1, !2}

!0 = !{i32 2, !"Debug Info Version", i32 3}
!1 = !{ptr @saxpy, !"kernel", i32 1}
!2 = !{ptr @other, !"kernel", i32 1}
