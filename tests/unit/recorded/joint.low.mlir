#loc10 = loc("scale.mlir":12:21)
"builtin.module"() ({
  "builtin.module"() ({
    "llvm.func"() <{CConv = #llvm.cconv<ccc>, function_type = !llvm.func<i32 ()>, linkage = #llvm.linkage<external>, sym_name = "main", visibility_ = 0 : i64}> ({
      %5 = "llvm.mlir.constant"() <{value = 0 : index}> : () -> i64 loc(#loc3)
      %6 = "llvm.mlir.constant"() <{value = 1 : i8}> : () -> i8 loc(#loc3)
      %7 = "llvm.mlir.constant"() <{value = 1 : index}> : () -> i64 loc(#loc)
      %8 = "llvm.mlir.constant"() <{value = 4 : index}> : () -> i64 loc(#loc)
      %9 = "llvm.mlir.constant"() <{value = 0 : i32}> : () -> i32 loc(#loc4)
      %10 = "llvm.mlir.zero"() : () -> !llvm.ptr loc(#loc)
      %11 = "llvm.getelementptr"(%10) <{elem_type = f32, noWrapFlags = 0 : i32, rawConstantIndices = array<i32: 4>}> : (!llvm.ptr) -> !llvm.ptr loc(#loc3)
      %12 = "llvm.ptrtoint"(%11) : (!llvm.ptr) -> i64 loc(#loc3)
      %13 = "llvm.call"(%12, %10, %6) <{CConv = #llvm.cconv<ccc>, TailCallKind = #llvm.tailcallkind<none>, callee = @mgpuMemAlloc, fastmathFlags = #llvm.fastmath<none>, op_bundle_sizes = array<i32>, operandSegmentSizes = array<i32: 3, 0>}> : (i64, !llvm.ptr, i8) -> !llvm.ptr loc(#loc3)
      "gpu.launch_func"(%7, %7, %7, %8, %7, %7, %13, %13, %5, %8, %7) <{kernel = @kernels::@scale, operandSegmentSizes = array<i32: 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 5, 0>}> : (i64, i64, i64, i64, i64, i64, !llvm.ptr, !llvm.ptr, i64, i64, i64) -> () loc(#loc5)
      "llvm.return"(%9) : (i32) -> () loc(#loc6)
    }) : () -> () loc(#loc2)
    "gpu.binary"() <{objects = [#gpu.object<#rocdl.target, "kernels">], offloadingHandler = #gpu.select_object, sym_name = "kernels"}> : () -> () loc(#loc7)
    "llvm.func"() <{CConv = #llvm.cconv<ccc>, function_type = !llvm.func<ptr (i64, ptr, i8)>, linkage = #llvm.linkage<external>, sym_name = "mgpuMemAlloc", visibility_ = 0 : i64}> ({
    }) : () -> () loc(#loc3)
  }) {gpu.container_module, llvm.data_layout = "e-i64:64-i128:128-f80:128"} : () -> () loc(#loc1)
  "gpu.module"() <{sym_name = "devices"}> ({
    "builtin.module"() ({
      "gpu.module"() <{sym_name = "kernels"}> ({
        "llvm.func"() <{CConv = #llvm.cconv<ccc>, function_type = !llvm.func<f32 (f32)>, linkage = #llvm.linkage<external>, sym_name = "__nv_expf", visibility_ = 0 : i64}> ({
        }) : () -> () loc(#loc8)
        "llvm.func"() <{CConv = #llvm.cconv<ccc>, arg_attrs = [{}, {llvm.align = 4 : i64}, {}, {}, {}], function_type = !llvm.func<void (ptr, ptr, i64, i64, i64)>, linkage = #llvm.linkage<external>, sym_name = "scale", visibility_ = 0 : i64}> ({
        ^bb0(%arg0: !llvm.ptr loc("scale.mlir":12:21), %arg1: !llvm.ptr loc("scale.mlir":12:21), %arg2: i64 loc("scale.mlir":12:21), %arg3: i64 loc("scale.mlir":12:21), %arg4: i64 loc("scale.mlir":12:21)):
          %0 = "nvvm.read.ptx.sreg.tid.x"() : () -> i32 loc(#loc11)
          %1 = "llvm.sext"(%0) : (i32) -> i64 loc(#loc11)
          %2 = "llvm.getelementptr"(%arg1, %1) <{elem_type = f32, noWrapFlags = 7 : i32, rawConstantIndices = array<i32: -2147483648>}> : (!llvm.ptr, i64) -> !llvm.ptr loc(#loc12)
          %3 = "llvm.load"(%2) <{ordering = 0 : i64}> : (!llvm.ptr) -> f32 loc(#loc12)
          %4 = "llvm.call"(%3) <{CConv = #llvm.cconv<ccc>, TailCallKind = #llvm.tailcallkind<none>, callee = @__nv_expf, fastmathFlags = #llvm.fastmath<none>, op_bundle_sizes = array<i32>, operandSegmentSizes = array<i32: 1, 0>}> : (f32) -> f32 loc(#loc8)
          "llvm.store"(%4, %2) <{ordering = 0 : i64}> : (f32, !llvm.ptr) -> () loc(#loc13)
          "llvm.return"() : () -> () loc(#loc14)
        }) {gpu.kernel, nvvm.kernel} : () -> () loc(#loc9)
      }) : () -> () loc(#loc7)
    }) {gpu.container_module, llvm.data_layout = "e-i64:64-i128:128-v16:16-v32:32"} : () -> () loc(#loc1)
  }) : () -> () loc(#loc)
}) : () -> () loc(#loc)
#loc = loc(unknown)
#loc1 = loc("scale.mlir":1:1)
#loc2 = loc("scale.mlir":2:3)
#loc3 = loc("scale.mlir":6:15)
#loc4 = loc("scale.mlir":5:13)
#loc5 = loc("scale.mlir":7:5)
#loc6 = loc("scale.mlir":9:5)
#loc7 = loc("scale.mlir":11:3)
#loc8 = loc("scale.mlir":15:12)
#loc9 = loc("scale.mlir":12:5)
#loc11 = loc("scale.mlir":13:12)
#loc12 = loc("scale.mlir":14:12)
#loc13 = loc("scale.mlir":16:7)
#loc14 = loc("scale.mlir":17:7)

