#loc3 = loc("scale.mlir":12:21)
"builtin.module"() ({
  "gpu.module"() <{sym_name = "kernels"}> ({
    "llvm.func"() <{CConv = #llvm.cconv<ccc>, arg_attrs = [{}, {llvm.align = 4 : i64}, {}, {}, {}], function_type = !llvm.func<void (ptr, ptr, i64, i64, i64)>, linkage = #llvm.linkage<external>, sym_name = "scale", visibility_ = 0 : i64}> ({
    ^bb0(%arg0: !llvm.ptr loc("scale.mlir":12:21), %arg1: !llvm.ptr loc("scale.mlir":12:21), %arg2: i64 loc("scale.mlir":12:21), %arg3: i64 loc("scale.mlir":12:21), %arg4: i64 loc("scale.mlir":12:21)):
      %0 = "rocdl.workitem.id.x"() : () -> i32 loc(#loc4)
      %1 = "llvm.sext"(%0) : (i32) -> i64 loc(#loc4)
      %2 = "llvm.getelementptr"(%arg1, %1) <{elem_type = f32, noWrapFlags = 7 : i32, rawConstantIndices = array<i32: -2147483648>}> : (!llvm.ptr, i64) -> !llvm.ptr loc(#loc5)
      %3 = "llvm.load"(%2) <{ordering = 0 : i64}> : (!llvm.ptr) -> f32 loc(#loc5)
      %4 = "llvm.intr.exp"(%3) <{fastmathFlags = #llvm.fastmath<none>}> : (f32) -> f32 loc(#loc6)
      "llvm.store"(%4, %2) <{ordering = 0 : i64}> : (f32, !llvm.ptr) -> () loc(#loc7)
      "llvm.return"() : () -> () loc(#loc8)
    }) {gpu.kernel, rocdl.kernel} : () -> () loc(#loc2)
  }) {llvm.data_layout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128:128:48-p9:192:256:256:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"} : () -> () loc(#loc1)
}) {gpu.container_module, llvm.data_layout = "e-p3:32:32-p5:32:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-A5-G1"} : () -> () loc(#loc)
#loc = loc("scale.mlir":1:1)
#loc1 = loc("scale.mlir":11:3)
#loc2 = loc("scale.mlir":12:5)
#loc4 = loc("scale.mlir":13:12)
#loc5 = loc("scale.mlir":14:12)
#loc6 = loc("scale.mlir":15:12)
#loc7 = loc("scale.mlir":16:7)
#loc8 = loc("scale.mlir":17:7)

