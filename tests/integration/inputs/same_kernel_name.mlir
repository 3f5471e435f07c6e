// Two modules whose kernels and device functions bear the same names.
module attributes {gpu.container_module} {
  gpu.module @first {
    func.func @amount() -> f32 {
      %value = arith.constant 1.0 : f32
      return %value : f32
    }
    gpu.func @step(%buffer: memref<?xf32>) kernel {
      %i = gpu.thread_id x
      %value = func.call @amount() : () -> f32
      memref.store %value, %buffer[%i] : memref<?xf32>
      gpu.return
    }
  }
  gpu.module @second {
    func.func @amount() -> f32 {
      %value = arith.constant 2.0 : f32
      return %value : f32
    }
    gpu.func @step(%buffer: memref<?xf32>) kernel {
      %i = gpu.thread_id x
      %value = func.call @amount() : () -> f32
      memref.store %value, %buffer[%i] : memref<?xf32>
      gpu.return
    }
    gpu.func @only_here(%buffer: memref<?xf32>) kernel {
      gpu.return
    }
  }
  func.func @main(%buffer: memref<?xf32>) {
    %c1 = arith.constant 1 : index
    gpu.launch_func @first::@step blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        args(%buffer : memref<?xf32>)
    gpu.launch_func @second::@step blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        args(%buffer : memref<?xf32>)
    gpu.launch_func @second::@only_here blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        args(%buffer : memref<?xf32>)
    return
  }
}
