module attributes {gpu.container_module} {
  gpu.module @own {
    gpu.func @run(%p: !llvm.ptr) kernel {
      %x = llvm.load %p : !llvm.ptr -> f32
      %y = arith.addf %x, %x : f32
      llvm.store %y, %p : f32, !llvm.ptr
      gpu.return
    }
  }
  func.func @go(%p: !llvm.ptr) {
    %c1 = arith.constant 1 : index
    gpu.launch_func @own::@run blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%p : !llvm.ptr)
    return
  }
}
