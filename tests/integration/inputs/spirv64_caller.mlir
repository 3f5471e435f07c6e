module attributes {gpu.container_module} {
  gpu.module @caller {
    llvm.func @twice(f32) -> f32
    gpu.func @doubled(%x: memref<?xf32>) kernel {
      %i = gpu.thread_id x
      %v = memref.load %x[%i] : memref<?xf32>
      %r = llvm.call @twice(%v) : (f32) -> f32
      memref.store %r, %x[%i] : memref<?xf32>
      gpu.return
    }
  }
  func.func @main() -> i32 {
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c2 = arith.constant 2 : index
    %f = arith.constant 2.5 : f32
    %m = gpu.alloc host_shared (%c4) : memref<?xf32>
    memref.store %f, %m[%c2] : memref<?xf32>
    gpu.launch_func @caller::@doubled blocks in (%c1, %c1, %c1) threads in (%c4, %c1, %c1) args(%m : memref<?xf32>)
    %v = memref.load %m[%c2] : memref<?xf32>
    %status = arith.fptosi %v : f32 to i32
    return %status : i32
  }
}
