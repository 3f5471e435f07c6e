func.func @kernel(%x: i32) -> i32 {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %host = memref.alloc() : memref<1xi32>
  %device = gpu.alloc() : memref<1xi32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %one, %gy = %one, %gz = %one)
             threads(%tx, %ty, %tz) in (%sx = %one, %sy = %one, %sz = %one) {
    %square = arith.muli %x, %x : i32
    memref.store %square, %device[%tx] : memref<1xi32>
    gpu.terminator
  }
  gpu.memcpy %host, %device : memref<1xi32>, memref<1xi32>
  gpu.dealloc %device : memref<1xi32>
  %square = memref.load %host[%zero] : memref<1xi32>
  memref.dealloc %host : memref<1xi32>
  return %square : i32
}
