func.func @main() -> i32 {
  %one = arith.constant 1 : index
  %zero = arith.constant 0 : i32
  %buffer = gpu.alloc() : memref<1xi32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %one, %gy = %one, %gz = %one)
             threads(%tx, %ty, %tz) in (%sx = %one, %sy = %one, %sz = %one) {
    memref.store %zero, %buffer[%tx] : memref<1xi32>
    gpu.terminator
  }
  gpu.dealloc %buffer : memref<1xi32>
  return %zero : i32
}
