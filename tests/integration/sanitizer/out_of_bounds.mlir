module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @oob(%m: memref<?xf32>, %n: index) kernel {
      %b = gpu.block_id x
      %d = gpu.block_dim x
      %t = gpu.thread_id x
      %o = arith.muli %b, %d : index
      %i = arith.addi %o, %t : index
      %c = arith.constant 1.0 : f32
      memref.store %c, %m[%i] : memref<?xf32>
      gpu.return
    }
  }
  func.func @main() -> i32 {
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %n = arith.constant 100 : index
    %c32 = arith.constant 32 : index
    %m = gpu.alloc (%n) : memref<?xf32>
    gpu.launch_func @kernels::@oob blocks in (%c4, %c1, %c1) threads in (%c32, %c1, %c1) args(%m : memref<?xf32>, %n : index)
    gpu.dealloc %m : memref<?xf32>
    %z = arith.constant 0 : i32
    return %z : i32
  }
}
