; ModuleID = 'LLVMDialectModule'
source_filename = "LLVMDialectModule"
target datalayout = "e-i64:64-i128:128-f80:128"

%0 = type { ptr, ptr, i64, i64, i64 }

@kernels_binary = internal constant [7 x i8] c"kernels", align 8
@kernels_module = internal global ptr null
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 123, ptr @kernels_load, ptr null }]
@llvm.global_dtors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 123, ptr @kernels_unload, ptr null }]
@kernels_scale_name = private unnamed_addr constant [6 x i8] c"scale\00", align 1

define i32 @main() {
  %1 = call ptr @mgpuMemAlloc(i64 16, ptr null, i8 1)
  %2 = alloca %0, align 8
  %3 = alloca ptr, i64 5, align 8
  %4 = getelementptr inbounds nuw %0, ptr %2, i32 0, i32 0
  store ptr %1, ptr %4, align 8
  %5 = getelementptr ptr, ptr %3, i32 0
  store ptr %4, ptr %5, align 8
  %6 = getelementptr inbounds nuw %0, ptr %2, i32 0, i32 1
  store ptr %1, ptr %6, align 8
  %7 = getelementptr ptr, ptr %3, i32 1
  store ptr %6, ptr %7, align 8
  %8 = getelementptr inbounds nuw %0, ptr %2, i32 0, i32 2
  store i64 0, ptr %8, align 8
  %9 = getelementptr ptr, ptr %3, i32 2
  store ptr %8, ptr %9, align 8
  %10 = getelementptr inbounds nuw %0, ptr %2, i32 0, i32 3
  store i64 4, ptr %10, align 8
  %11 = getelementptr ptr, ptr %3, i32 3
  store ptr %10, ptr %11, align 8
  %12 = getelementptr inbounds nuw %0, ptr %2, i32 0, i32 4
  store i64 1, ptr %12, align 8
  %13 = getelementptr ptr, ptr %3, i32 4
  store ptr %12, ptr %13, align 8
  %14 = load ptr, ptr @kernels_module, align 8
  %15 = call ptr @mgpuModuleGetFunction(ptr %14, ptr @kernels_scale_name)
  %16 = call ptr @mgpuStreamCreate()
  call void @mgpuLaunchKernel(ptr %15, i64 1, i64 1, i64 1, i64 4, i64 1, i64 1, i32 0, ptr %16, ptr %3, ptr null, i64 5)
  call void @mgpuStreamSynchronize(ptr %16)
  call void @mgpuStreamDestroy(ptr %16)
  ret i32 0
}

declare ptr @mgpuMemAlloc(i64, ptr, i8)

define internal void @kernels_load() section ".text.startup" {
entry:
  %0 = call ptr @mgpuModuleLoad(ptr @kernels_binary, i64 7)
  store ptr %0, ptr @kernels_module, align 8
  ret void
}

declare ptr @mgpuModuleLoad(ptr, i64)

define internal void @kernels_unload() section ".text.startup" {
entry:
  %0 = load ptr, ptr @kernels_module, align 8
  call void @mgpuModuleUnload(ptr %0)
  ret void
}

declare void @mgpuModuleUnload(ptr)

declare ptr @mgpuModuleGetFunction(ptr, ptr)

declare ptr @mgpuStreamCreate()

declare void @mgpuLaunchKernel(ptr, i64, i64, i64, i64, i64, i64, i32, ptr, ptr, ptr, i64)

declare void @mgpuStreamSynchronize(ptr)

declare void @mgpuStreamDestroy(ptr)

!llvm.module.flags = !{!0}

!0 = !{i32 2, !"Debug Info Version", i32 3}
