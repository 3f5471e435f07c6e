module attributes {gpu.container_module} {
  gpu.module @k [#nvvm.target<O = 3, chip = "sm_90", flags = {fast, ftz}, link = ["library.bc"]>] {
    llvm.func @thrice(f32) -> f32
    gpu.func @run(%a: memref<4xf32>) kernel {
      %i = gpu.thread_id x
      %v = memref.load %a[%i] : memref<4xf32>
      %w = llvm.call @thrice(%v) : (f32) -> f32
      %d = arith.divf %w, %v : f32
      memref.store %d, %a[%i] : memref<4xf32>
      gpu.return
    }
  }
  gpu.module @old [#nvvm.target<chip = "sm_80">] {
    gpu.func @run(%a: memref<4xf32>) kernel {
      %i = gpu.thread_id x
      %v = memref.load %a[%i] : memref<4xf32>
      memref.store %v, %a[%i] : memref<4xf32>
      gpu.return
    }
  }
  func.func @go(%a: memref<4xf32>) {
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    gpu.launch_func @k::@run blocks in (%c1, %c1, %c1) threads in (%c4, %c1, %c1) args(%a : memref<4xf32>)
    return
  }
}
