module attributes {gpu.container_module} {
  gpu.module @k {
    llvm.func @twice(f32) -> f32
    llvm.func @thrice(f32) -> f32
    gpu.func @run(%a: memref<4xf32>) kernel attributes {known_block_size = array<i32: 4, 1, 1>} {
      %i = gpu.thread_id x
      %v = memref.load %a[%i] : memref<4xf32>
      %w = llvm.call @twice(%v) : (f32) -> f32
      %z = llvm.call @thrice(%w) : (f32) -> f32
      memref.store %z, %a[%i] : memref<4xf32>
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
