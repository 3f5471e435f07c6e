#loc4 = loc("scale.mlir":12:21)
"builtin.module"() ({
  "gpu.module"() <{sym_name = "kernels"}> ({
    "llvm.func"() <{CConv = #llvm.cconv<ccc>, function_type = !llvm.func<f32 (f32)>, linkage = #llvm.linkage<external>, sym_name = "__nv_expf", visibility_ = 0 : i64}> ({
    }) : () -> () loc(#loc2)
    "llvm.func"() <{CConv = #llvm.cconv<ccc>, arg_attrs = [{}, {llvm.align = 4 : i64}, {}, {}, {}], function_type = !llvm.func<void (ptr, ptr, i64, i64, i64)>, linkage = #llvm.linkage<external>, sym_name = "scale", visibility_ = 0 : i64}> ({
    ^bb0(%arg0: !llvm.ptr loc("scale.mlir":12:21), %arg1: !llvm.ptr loc("scale.mlir":12:21), %arg2: i64 loc("scale.mlir":12:21), %arg3: i64 loc("scale.mlir":12:21), %arg4: i64 loc("scale.mlir":12:21)):
      %0 = "nvvm.read.ptx.sreg.tid.x"() : () -> i32 loc(#loc5)
      %1 = "llvm.sext"(%0) : (i32) -> i64 loc(#loc5)
      %2 = "llvm.getelementptr"(%arg1, %1) <{elem_type = f32, noWrapFlags = 7 : i32, rawConstantIndices = array<i32: -2147483648>}> : (!llvm.ptr, i64) -> !llvm.ptr loc(#loc6)
      %3 = "llvm.load"(%2) <{ordering = 0 : i64}> : (!llvm.ptr) -> f32 loc(#loc6)
      %4 = "llvm.call"(%3) <{CConv = #llvm.cconv<ccc>, TailCallKind = #llvm.tailcallkind<none>, callee = @__nv_expf, fastmathFlags = #llvm.fastmath<none>, op_bundle_sizes = array<i32>, operandSegmentSizes = array<i32: 1, 0>}> : (f32) -> f32 loc(#loc2)
      "llvm.store"(%4, %2) <{ordering = 0 : i64}> : (f32, !llvm.ptr) -> () loc(#loc7)
      "llvm.return"() : () -> () loc(#loc8)
    }) {gpu.kernel, nvvm.kernel} : () -> () loc(#loc3)
  }) : () -> () loc(#loc1)
}) {gpu.container_module, llvm.data_layout = "e-i64:64-i128:128-v16:16-v32:32"} : () -> () loc(#loc)
#loc = loc("scale.mlir":1:1)
#loc1 = loc("scale.mlir":11:3)
#loc2 = loc("scale.mlir":15:12)
#loc3 = loc("scale.mlir":12:5)
#loc5 = loc("scale.mlir":13:12)
#loc6 = loc("scale.mlir":14:12)
#loc7 = loc("scale.mlir":16:7)
#loc8 = loc("scale.mlir":17:7)

