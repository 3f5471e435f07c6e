// Called from main.c: x[i] is replaced by 2 * x[i].

func.func @scale(%x: memref<?xf32>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %block = arith.constant 128 : index
  %n = memref.dim %x, %c0 : memref<?xf32>
  %grid = arith.ceildivui %n, %block : index
  %d = gpu.alloc(%n) : memref<?xf32>
  gpu.memcpy %d, %x : memref<?xf32>, memref<?xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %grid, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %block, %sy = %c1, %sz = %c1) {
    %start = arith.muli %bx, %sx : index
    %i = arith.addi %start, %tx : index
    %inside = arith.cmpi ult, %i, %n : index
    scf.if %inside {
      %constant = arith.constant 2.0 : f32
      %old = memref.load %d[%i] : memref<?xf32>
      %new = arith.mulf %old, %constant : f32
      memref.store %new, %d[%i] : memref<?xf32>
    }
    gpu.terminator
  }
  gpu.memcpy %x, %d : memref<?xf32>, memref<?xf32>
  gpu.dealloc %d : memref<?xf32>
  return
}
