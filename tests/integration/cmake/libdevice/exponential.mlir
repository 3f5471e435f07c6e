func.func @exponential(%x: f32) -> f32 {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %host = memref.alloc() : memref<1xf32>
  %device = gpu.alloc() : memref<1xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %one, %gy = %one, %gz = %one)
             threads(%tx, %ty, %tz) in (%sx = %one, %sy = %one, %sz = %one) {
    %exponential = math.exp %x : f32
    memref.store %exponential, %device[%tx] : memref<1xf32>
    gpu.terminator
  }
  gpu.memcpy %host, %device : memref<1xf32>, memref<1xf32>
  gpu.dealloc %device : memref<1xf32>
  %exponential = memref.load %host[%zero] : memref<1xf32>
  memref.dealloc %host : memref<1xf32>
  return %exponential : f32
}
