// One launch after another, with synchronous and with asynchronous order between them.
func.func @repeat(%buffer: memref<?xf32>, %count: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %step = %c0 to %count step %c1 {
    gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
               threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
      %old = memref.load %buffer[%tx] : memref<?xf32>
      %new = arith.addf %old, %old : f32
      memref.store %new, %buffer[%tx] : memref<?xf32>
      gpu.terminator
    }
  }
  return
}

func.func @chain(%buffer: memref<?xf32>, %count: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %start = gpu.wait async
  %end = scf.for %step = %c0 to %count step %c1 iter_args(%token = %start) -> (!gpu.async.token) {
    %next = gpu.launch async [%token] blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
               threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
      %one = arith.constant 1.0 : f32
      memref.store %one, %buffer[%tx] : memref<?xf32>
      gpu.terminator
    }
    scf.yield %next : !gpu.async.token
  }
  gpu.wait [%end]
  return
}
