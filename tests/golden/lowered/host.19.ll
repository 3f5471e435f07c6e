; ModuleID = 'LLVMDialectModule'
source_filename = "LLVMDialectModule"

%0 = type { i64, float, ptr, ptr, i64, i64, i64, ptr, ptr, i64, i64, i64 }
%1 = type { ptr, ptr, i64, i64, i64 }
%2 = type { ptr, ptr, i64, i64, i64 }

@kernels_bin_cst = internal constant [7 x i8] c"kernels", align 8
@second_bin_cst = internal constant [6 x i8] c"second", align 8
@kernels_saxpy_kernel_name = private unnamed_addr constant [6 x i8] c"saxpy\00", align 1
@kernels_other_kernel_name = private unnamed_addr constant [6 x i8] c"other\00", align 1
@second___mo_k2_kernel_name = private unnamed_addr constant [8 x i8] c"__mo_k2\00", align 1

define void @run(i64 %0, ptr %1, ptr %2, i64 %3, i64 %4, i64 %5, ptr %6, ptr %7, i64 %8, i64 %9, i64 %10) {
  %12 = alloca %0, align 8
  %13 = alloca ptr, i64 12, align 8
  %14 = getelementptr inbounds %0, ptr %12, i32 0, i32 0
  store i64 %0, ptr %14, align 4
  %15 = getelementptr ptr, ptr %13, i32 0
  store ptr %14, ptr %15, align 8
  %16 = getelementptr inbounds %0, ptr %12, i32 0, i32 1
  store float 2.000000e+00, ptr %16, align 4
  %17 = getelementptr ptr, ptr %13, i32 1
  store ptr %16, ptr %17, align 8
  %18 = getelementptr inbounds %0, ptr %12, i32 0, i32 2
  store ptr %1, ptr %18, align 8
  %19 = getelementptr ptr, ptr %13, i32 2
  store ptr %18, ptr %19, align 8
  %20 = getelementptr inbounds %0, ptr %12, i32 0, i32 3
  store ptr %2, ptr %20, align 8
  %21 = getelementptr ptr, ptr %13, i32 3
  store ptr %20, ptr %21, align 8
  %22 = getelementptr inbounds %0, ptr %12, i32 0, i32 4
  store i64 %3, ptr %22, align 4
  %23 = getelementptr ptr, ptr %13, i32 4
  store ptr %22, ptr %23, align 8
  %24 = getelementptr inbounds %0, ptr %12, i32 0, i32 5
  store i64 %4, ptr %24, align 4
  %25 = getelementptr ptr, ptr %13, i32 5
  store ptr %24, ptr %25, align 8
  %26 = getelementptr inbounds %0, ptr %12, i32 0, i32 6
  store i64 %5, ptr %26, align 4
  %27 = getelementptr ptr, ptr %13, i32 6
  store ptr %26, ptr %27, align 8
  %28 = getelementptr inbounds %0, ptr %12, i32 0, i32 7
  store ptr %6, ptr %28, align 8
  %29 = getelementptr ptr, ptr %13, i32 7
  store ptr %28, ptr %29, align 8
  %30 = getelementptr inbounds %0, ptr %12, i32 0, i32 8
  store ptr %7, ptr %30, align 8
  %31 = getelementptr ptr, ptr %13, i32 8
  store ptr %30, ptr %31, align 8
  %32 = getelementptr inbounds %0, ptr %12, i32 0, i32 9
  store i64 %8, ptr %32, align 4
  %33 = getelementptr ptr, ptr %13, i32 9
  store ptr %32, ptr %33, align 8
  %34 = getelementptr inbounds %0, ptr %12, i32 0, i32 10
  store i64 %9, ptr %34, align 4
  %35 = getelementptr ptr, ptr %13, i32 10
  store ptr %34, ptr %35, align 8
  %36 = getelementptr inbounds %0, ptr %12, i32 0, i32 11
  store i64 %10, ptr %36, align 4
  %37 = getelementptr ptr, ptr %13, i32 11
  store ptr %36, ptr %37, align 8
  %38 = call ptr @mgpuModuleLoad(ptr @kernels_bin_cst, i64 7)
  %39 = call ptr @mgpuModuleGetFunction(ptr %38, ptr @kernels_saxpy_kernel_name)
  %40 = call ptr @mgpuStreamCreate()
  call void @mgpuLaunchKernel(ptr %39, i64 10, i64 1, i64 1, i64 64, i64 1, i64 1, i32 0, ptr %40, ptr %13, ptr null, i64 12)
  call void @mgpuStreamSynchronize(ptr %40)
  call void @mgpuStreamDestroy(ptr %40)
  call void @mgpuModuleUnload(ptr %38)
  %41 = alloca %1, align 8
  %42 = alloca ptr, i64 5, align 8
  %43 = getelementptr inbounds %1, ptr %41, i32 0, i32 0
  store ptr %6, ptr %43, align 8
  %44 = getelementptr ptr, ptr %42, i32 0
  store ptr %43, ptr %44, align 8
  %45 = getelementptr inbounds %1, ptr %41, i32 0, i32 1
  store ptr %7, ptr %45, align 8
  %46 = getelementptr ptr, ptr %42, i32 1
  store ptr %45, ptr %46, align 8
  %47 = getelementptr inbounds %1, ptr %41, i32 0, i32 2
  store i64 %8, ptr %47, align 4
  %48 = getelementptr ptr, ptr %42, i32 2
  store ptr %47, ptr %48, align 8
  %49 = getelementptr inbounds %1, ptr %41, i32 0, i32 3
  store i64 %9, ptr %49, align 4
  %50 = getelementptr ptr, ptr %42, i32 3
  store ptr %49, ptr %50, align 8
  %51 = getelementptr inbounds %1, ptr %41, i32 0, i32 4
  store i64 %10, ptr %51, align 4
  %52 = getelementptr ptr, ptr %42, i32 4
  store ptr %51, ptr %52, align 8
  %53 = call ptr @mgpuModuleLoad(ptr @kernels_bin_cst, i64 7)
  %54 = call ptr @mgpuModuleGetFunction(ptr %53, ptr @kernels_other_kernel_name)
  %55 = call ptr @mgpuStreamCreate()
  call void @mgpuLaunchKernel(ptr %54, i64 10, i64 1, i64 1, i64 64, i64 1, i64 1, i32 256, ptr %55, ptr %42, ptr null, i64 5)
  call void @mgpuStreamSynchronize(ptr %55)
  call void @mgpuStreamDestroy(ptr %55)
  call void @mgpuModuleUnload(ptr %53)
  br label %56

56:                                               ; preds = %59, %11
  %57 = phi i64 [ %75, %59 ], [ 0, %11 ]
  %58 = icmp slt i64 %57, 10
  br i1 %58, label %59, label %76

59:                                               ; preds = %56
  %60 = alloca %2, align 8
  %61 = alloca ptr, i64 5, align 8
  %62 = getelementptr inbounds %2, ptr %60, i32 0, i32 0
  store ptr %6, ptr %62, align 8
  %63 = getelementptr ptr, ptr %61, i32 0
  store ptr %62, ptr %63, align 8
  %64 = getelementptr inbounds %2, ptr %60, i32 0, i32 1
  store ptr %7, ptr %64, align 8
  %65 = getelementptr ptr, ptr %61, i32 1
  store ptr %64, ptr %65, align 8
  %66 = getelementptr inbounds %2, ptr %60, i32 0, i32 2
  store i64 %8, ptr %66, align 4
  %67 = getelementptr ptr, ptr %61, i32 2
  store ptr %66, ptr %67, align 8
  %68 = getelementptr inbounds %2, ptr %60, i32 0, i32 3
  store i64 %9, ptr %68, align 4
  %69 = getelementptr ptr, ptr %61, i32 3
  store ptr %68, ptr %69, align 8
  %70 = getelementptr inbounds %2, ptr %60, i32 0, i32 4
  store i64 %10, ptr %70, align 4
  %71 = getelementptr ptr, ptr %61, i32 4
  store ptr %70, ptr %71, align 8
  %72 = call ptr @mgpuModuleLoad(ptr @second_bin_cst, i64 6)
  %73 = call ptr @mgpuModuleGetFunction(ptr %72, ptr @second___mo_k2_kernel_name)
  %74 = call ptr @mgpuStreamCreate()
  call void @mgpuLaunchKernel(ptr %73, i64 10, i64 1, i64 1, i64 64, i64 1, i64 1, i32 0, ptr %74, ptr %61, ptr null, i64 5)
  call void @mgpuStreamSynchronize(ptr %74)
  call void @mgpuStreamDestroy(ptr %74)
  call void @mgpuModuleUnload(ptr %72)
  %75 = add i64 %57, 1
  br label %56

76:                                               ; preds = %56
  ret void
}

declare ptr @mgpuModuleLoad(ptr, i64)

declare ptr @mgpuModuleGetFunction(ptr, ptr)

declare ptr @mgpuStreamCreate()

declare void @mgpuLaunchKernel(ptr, i64, i64, i64, i64, i64, i64, i32, ptr, ptr, ptr, i64)

declare void @mgpuStreamSynchronize(ptr)

declare void @mgpuStreamDestroy(ptr)

declare void @mgpuModuleUnload(ptr)

!llvm.module.flags = !{!0}

!0 = !{i32 2, !"Debug Info Version", i32 3}
