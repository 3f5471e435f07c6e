module attributes {gpu.container_module} {
  gpu.module @across {
    // Waits for other threads: on the CPU a caller has to know.
    func.func @thrice(%x: f32) -> f32 {
      %one = arith.constant 1 : i32
      %width = arith.constant 32 : i32
      %y, %valid = gpu.shuffle xor %x, %one, %width : f32
      gpu.barrier
      return %y : f32
    }
  }
}
