; ModuleID = 'LLVMDialectModule'
source_filename = "LLVMDialectModule"
target triple = "nvptx64-nvidia-cuda"

@printfFormat_0 = internal constant [10 x i8] c"hello %d\0A\00"

declare i32 @vprintf(ptr, ptr)

define void @__mo_k2(ptr %0, ptr %1, i64 %2, i64 %3, i64 %4) {
  %6 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %7 = sext i32 %6 to i64
  %8 = trunc i64 %7 to i32
  %9 = alloca { i32 }, i64 1, align 8
  %10 = getelementptr { i32 }, ptr %9, i32 0, i32 0
  store i32 %8, ptr %10, align 4
  %11 = call i32 @vprintf(ptr @printfFormat_0, ptr %9)
  %12 = getelementptr float, ptr %1, i64 %7
  store float 1.000000e+00, ptr %12, align 4
  ret void
}

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef i32 @llvm.nvvm.read.ptx.sreg.tid.x() #0

attributes #0 = { nocallback nofree nosync nounwind speculatable willreturn memory(none) }

!llvm.module.flags = !{!0}
!nvvm.annotations = !{!1}

!0 = !{i32 2, !"Debug Info Version", i32 3}
!1 = !{ptr @__mo_k2, !"kernel", i32 1}
