// two kernels
module attributes {gpu.container_module} {
  gpu.module @scaling {
    gpu.func @scale(%data: memref<?xf32>, %by: f32) kernel {
      %i = gpu.thread_id x
      %old = memref.load %data[%i] : memref<?xf32>
      %new = arith.mulf %old, %by : f32
      memref.store %new, %data[%i] : memref<?xf32>
      gpu.return
    }
  }
  func.func @run(%data: memref<?xf32>) {
    %one = arith.constant 1 : index
    %n = arith.constant 64 : index
    %by = arith.constant 3.0 : f32
    gpu.launch_func @scaling::@scale blocks in (%one, %one, %one) threads in (%n, %one, %one)
        args(%data : memref<?xf32>, %by : f32)
    gpu.launch blocks(%bx, %by_, %bz) in (%gx = %one, %gy = %one, %gz = %one)
               threads(%tx, %ty, %tz) in (%sx = %n, %sy = %one, %sz = %one) {
      %old = memref.load %data[%tx] : memref<?xf32>
      %new = math.exp %old : f32
      memref.store %new, %data[%tx] : memref<?xf32>
      gpu.terminator
    }
    return
  }
}
