; ModuleID = 'LLVMDialectModule'
source_filename = "LLVMDialectModule"

define amdgpu_kernel void @scale(ptr %0, ptr align 4 %1, i64 %2, i64 %3, i64 %4) #0 {
  %6 = call i32 @llvm.amdgcn.workitem.id.x()
  %7 = sext i32 %6 to i64
  %8 = getelementptr inbounds nuw float, ptr %1, i64 %7
  %9 = load float, ptr %8, align 4
  %10 = call float @llvm.exp.f32(float %9)
  store float %10, ptr %8, align 4
  ret void
}

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 1024) i32 @llvm.amdgcn.workitem.id.x() #1

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare float @llvm.exp.f32(float) #2

attributes #0 = { "amdgpu-flat-work-group-size"="1,256" "uniform-work-group-size"="true" }
attributes #1 = { nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #2 = { nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }

!llvm.module.flags = !{!0}

!0 = !{i32 2, !"Debug Info Version", i32 3}
