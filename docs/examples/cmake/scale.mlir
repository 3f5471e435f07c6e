// y[i] = factor * x[i] on the device; x and y are memory of the caller, of one size.
func.func @scale(%factor: f32, %x: memref<?xf32>, %y: memref<?xf32>)
    attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %block = arith.constant 128 : index
  %n = memref.dim %x, %c0 : memref<?xf32>
  %grid = arith.ceildivui %n, %block : index
  %device = gpu.alloc(%n) : memref<?xf32>
  gpu.memcpy %device, %x : memref<?xf32>, memref<?xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %grid, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %block, %sy = %c1, %sz = %c1) {
    %start = arith.muli %bx, %sx : index
    %i = arith.addi %start, %tx : index
    %inside = arith.cmpi ult, %i, %n : index
    scf.if %inside {
      %value = memref.load %device[%i] : memref<?xf32>
      %scaled = arith.mulf %factor, %value : f32
      memref.store %scaled, %device[%i] : memref<?xf32>
    }
    gpu.terminator
  }
  gpu.memcpy %y, %device : memref<?xf32>, memref<?xf32>
  gpu.dealloc %device : memref<?xf32>
  return
}
