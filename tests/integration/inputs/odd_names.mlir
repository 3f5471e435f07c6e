// Names and strings that look like code, which no rewrite may touch; main has no result.
module attributes {gpu.container_module} {
  gpu.module @m {
    llvm.mlir.global external constant @"text%2, a" ("linkage = #llvm.linkage<external> call void @vprintf(") {addr_space = 0 : i32}
    llvm.mlir.global internal constant @other("@\22text%2, a\22 ptr addrspace(3) \00") {addr_space = 0 : i32}
    func.func @"help%2, ptr("(%x: f32) -> f32 {
      %c = arith.constant 2.0 : f32
      %y = arith.mulf %x, %c : f32
      return %y : f32
    }
    gpu.func @k(%s: !llvm.struct<"a>b, (", (f32, i32)>) kernel {
      %f = llvm.extractvalue %s[0] : !llvm.struct<"a>b, (", (f32, i32)>
      %y = func.call @"help%2, ptr("(%f) : (f32) -> f32
      %p = llvm.mlir.addressof @"text%2, a" : !llvm.ptr
      %b = llvm.load %p : !llvm.ptr -> i8
      gpu.printf "= #arith.fastmath<none> linkage = #llvm.linkage<external>; %%2 %f %c\n", %y, %b : f32, i8
      gpu.return
    }
  }
  func.func @main() {
    %c1 = arith.constant 1 : index
    %f = arith.constant 4.0 : f32
    %i = arith.constant 4 : i32
    %u = llvm.mlir.undef : !llvm.struct<"a>b, (", (f32, i32)>
    %v = llvm.insertvalue %f, %u[0] : !llvm.struct<"a>b, (", (f32, i32)>
    %s = llvm.insertvalue %i, %v[1] : !llvm.struct<"a>b, (", (f32, i32)>
    gpu.launch_func @m::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%s : !llvm.struct<"a>b, (", (f32, i32)>)
    return
  }
}
