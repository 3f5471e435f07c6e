module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @shift(%m: memref<?xf32>) workgroup(%s : memref<64xf32, #gpu.address_space<workgroup>>) kernel {
      %t = gpu.thread_id x
      %c63 = arith.constant 63 : index
      %v = memref.load %m[%t] : memref<?xf32>
      memref.store %v, %s[%t] : memref<64xf32, #gpu.address_space<workgroup>>
      // gpu.barrier is missing here.
      %o = arith.subi %c63, %t : index
      %w = memref.load %s[%o] : memref<64xf32, #gpu.address_space<workgroup>>
      memref.store %w, %m[%t] : memref<?xf32>
      gpu.return
    }
  }
  func.func @main() -> i32 {
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 1 : index
    %n = arith.constant 64 : index
    %m = gpu.alloc (%n) : memref<?xf32>
    gpu.launch_func @kernels::@shift blocks in (%c3, %c1, %c1) threads in (%n, %c1, %c1) args(%m : memref<?xf32>)
    gpu.launch_func @kernels::@shift blocks in (%c3, %c1, %c1) threads in (%n, %c1, %c1) args(%m : memref<?xf32>)
    gpu.dealloc %m : memref<?xf32>
    %z = arith.constant 0 : i32
    return %z : i32
  }
}
