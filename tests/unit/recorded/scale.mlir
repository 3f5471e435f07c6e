module attributes {gpu.container_module} {
  func.func @main() -> i32 {
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %zero = arith.constant 0 : i32
    %memory = gpu.alloc host_shared () : memref<4xf32>
    gpu.launch_func @kernels::@scale blocks in (%c1, %c1, %c1) threads in (%c4, %c1, %c1)
        args(%memory : memref<4xf32>)
    return %zero : i32
  }
  gpu.module @kernels {
    gpu.func @scale(%memory: memref<4xf32>) kernel {
      %i = gpu.thread_id x
      %x = memref.load %memory[%i] : memref<4xf32>
      %y = math.exp %x : f32
      memref.store %y, %memory[%i] : memref<4xf32>
      gpu.return
    }
  }
}
