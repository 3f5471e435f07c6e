// Some threads wait at the first barrier of the kernel, the others at the second one.
func.func @main() -> i32 {
  %zero = arith.constant 0 : i32
  %limit = arith.constant 20 : i32
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %data = memref.alloc() : memref<64xi32>
  memref.store %limit, %data[%c1] : memref<64xi32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    %n = memref.load %data[%c1] : memref<64xi32>
    %i = arith.index_cast %tx : index to i32
    %is_first = arith.cmpi slt, %i, %n : i32
    scf.if %is_first {
      memref.store %n, %data[%tx] : memref<64xi32>
      gpu.barrier
      memref.store %i, %data[%tx] : memref<64xi32>
    } else {
      gpu.barrier
      memref.store %n, %data[%tx] : memref<64xi32>
    }
    gpu.terminator
  }
  return %zero : i32
}
