// 150000 launches in a loop, on one stream and one by one; then counts.
func.func @main() -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant 150000 : index
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %buf = gpu.alloc host_shared () : memref<1xi32>
  memref.store %zero, %buf[%c0] : memref<1xi32>
  scf.for %i = %c0 to %n step %c1 {
    gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
               threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
      %v = memref.load %buf[%tx] : memref<1xi32>
      %w = arith.addi %v, %one : i32
      memref.store %w, %buf[%tx] : memref<1xi32>
      gpu.terminator
    }
  }
  %t0 = gpu.wait async
  %t = scf.for %i = %c0 to %n step %c1 iter_args(%tok = %t0) -> (!gpu.async.token) {
    %next = gpu.launch async [%tok] blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
               threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
      %v = memref.load %buf[%tx] : memref<1xi32>
      %w = arith.addi %v, %one : i32
      memref.store %w, %buf[%tx] : memref<1xi32>
      gpu.terminator
    }
    scf.yield %next : !gpu.async.token
  }
  gpu.wait [%t]
  %got = memref.load %buf[%c0] : memref<1xi32>
  %want = arith.constant 300000 : i32
  %bad = arith.cmpi ne, %got, %want : i32
  %rc = arith.extui %bad : i1 to i32
  gpu.dealloc %buf : memref<1xi32>
  return %rc : i32
}
