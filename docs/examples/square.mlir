// Functions for a C program: see main.c.
//
// Shows: a function exported to C by llvm.emit_c_interface. C calls _mlir_ciface_square and hands
// over pointers to memref descriptors; numbers are passed as they are.
//
//   mlir-offload square.mlir main.c -o square && ./square
//
// or in steps, as in a Makefile:
//
//   mlir-offload -c square.mlir -o square.o
//   mlir-offload square.o main.c -o square

// y[i] = x[i] * x[i]; x and y are memory of the caller.
func.func @square(%x: memref<?xf32>, %y: memref<?xf32>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %block = arith.constant 128 : index
  %n = memref.dim %x, %c0 : memref<?xf32>
  %grid = arith.ceildivui %n, %block : index
  %dx = gpu.alloc(%n) : memref<?xf32>
  %dy = gpu.alloc(%n) : memref<?xf32>
  gpu.memcpy %dx, %x : memref<?xf32>, memref<?xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %grid, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %block, %sy = %c1, %sz = %c1) {
    %start = arith.muli %bx, %sx : index
    %i = arith.addi %start, %tx : index
    %inside = arith.cmpi ult, %i, %n : index
    scf.if %inside {
      %value = memref.load %dx[%i] : memref<?xf32>
      %square = arith.mulf %value, %value : f32
      memref.store %square, %dy[%i] : memref<?xf32>
    }
    gpu.terminator
  }
  gpu.memcpy %y, %dy : memref<?xf32>, memref<?xf32>
  gpu.dealloc %dx : memref<?xf32>
  gpu.dealloc %dy : memref<?xf32>
  return
}
