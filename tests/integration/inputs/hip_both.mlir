module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @scale(%x: !llvm.ptr, %a: f32, %n: i64) kernel {
      llvm.store %a, %x : f32, !llvm.ptr
      gpu.return
    }
  }
  gpu.module @hip {
    llvm.func @shift(!llvm.ptr, f32, i64) attributes {gpu.kernel}
  }
  llvm.func @run_in_mlir(%x: !llvm.ptr) {
    %one = arith.constant 1 : index
    %a = arith.constant 2.5 : f32
    %n = arith.constant 7 : i64
    gpu.launch_func @hip::@shift blocks in (%one, %one, %one) threads in (%one, %one, %one) args(%x : !llvm.ptr, %a : f32, %n : i64)
    llvm.return
  }
}
