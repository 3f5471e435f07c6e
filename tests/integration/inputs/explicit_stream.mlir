module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @fill(%buffer: memref<?xf32>) kernel {
      gpu.return
    }
  }
  func.func @run(%stream: !llvm.ptr, %buffer: memref<?xf32>) attributes {llvm.emit_c_interface} {
    %c1 = arith.constant 1 : index
    gpu.launch_func <%stream : !llvm.ptr> @kernels::@fill blocks in (%c1, %c1, %c1)
        threads in (%c1, %c1, %c1) args(%buffer : memref<?xf32>)
    return
  }
}
