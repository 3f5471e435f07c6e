// y = 2 * x + y over the rows of a matrix, then y = y + x over its columns, with fewer threads than elements in a row:
// the exit status is the number of wrong elements, at most 100.

func.func private @update(%x: memref<?x?xf32>, %y: memref<?x?xf32>, %blocks: index, %threads: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = arith.constant 2.0 : f32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %blocks, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %rows = memref.dim %x, %c0 : memref<?x?xf32>
    %columns = memref.dim %x, %c1 : memref<?x?xf32>
    %base = arith.muli %bx, %sx : index
    %first = arith.addi %base, %tx : index
    %step = arith.muli %gx, %sx : index
    scf.for %row = %c0 to %rows step %c1 {
      scf.for %column = %first to %columns step %step {
        %old = memref.load %y[%row, %column] : memref<?x?xf32>
        // Lowered by a pass that knows no width of index.
        %factors = vector.transfer_read %x[%row, %column], %a {in_bounds = [true]} : memref<?x?xf32>, vector<1xf32>
        %factor = vector.extract %factors[0] : f32 from vector<1xf32>
        %product = arith.mulf %a, %factor : f32
        %new = arith.addf %old, %product : f32
        memref.store %new, %y[%row, %column] : memref<?x?xf32>
      }
    }
    scf.for %column = %first to %columns step %step {
      scf.for %row = %c0 to %rows step %c1 {
        %old = memref.load %y[%row, %column] : memref<?x?xf32>
        %factor = memref.load %x[%row, %column] : memref<?x?xf32>
        %new = arith.addf %old, %factor : f32
        memref.store %new, %y[%row, %column] : memref<?x?xf32>
      }
    }
    gpu.terminator
  }
  return
}

func.func private @value(%row: index, %column: index) -> f32 {
  %c7 = arith.constant 7 : index
  %left = arith.muli %row, %c7 : index
  %sum = arith.addi %left, %column : index
  %number = arith.index_cast %sum : index to i32
  %float = arith.sitofp %number : i32 to f32
  return %float : f32
}

func.func @main() -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %blocks = arith.constant 2 : index
  %threads = arith.constant 16 : index
  %rows = arith.constant 3 : index
  %columns = arith.constant 301 : index
  %four = arith.constant 4.0 : f32
  %hx = memref.alloc(%rows, %columns) : memref<?x?xf32>
  %hy = memref.alloc(%rows, %columns) : memref<?x?xf32>
  scf.for %i = %c0 to %rows step %c1 {
    scf.for %j = %c0 to %columns step %c1 {
      %v = func.call @value(%i, %j) : (index, index) -> f32
      memref.store %v, %hx[%i, %j] : memref<?x?xf32>
      memref.store %v, %hy[%i, %j] : memref<?x?xf32>
    }
  }
  %x = gpu.alloc(%rows, %columns) : memref<?x?xf32>
  %y = gpu.alloc(%rows, %columns) : memref<?x?xf32>
  gpu.memcpy %x, %hx : memref<?x?xf32>, memref<?x?xf32>
  gpu.memcpy %y, %hy : memref<?x?xf32>, memref<?x?xf32>
  func.call @update(%x, %y, %blocks, %threads) : (memref<?x?xf32>, memref<?x?xf32>, index, index) -> ()
  gpu.memcpy %hy, %y : memref<?x?xf32>, memref<?x?xf32>
  gpu.dealloc %x : memref<?x?xf32>
  gpu.dealloc %y : memref<?x?xf32>
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %wrong = scf.for %i = %c0 to %rows step %c1 iter_args(%outer = %zero) -> i32 {
    %inner = scf.for %j = %c0 to %columns step %c1 iter_args(%count = %outer) -> i32 {
      %v = func.call @value(%i, %j) : (index, index) -> f32
      %expected = arith.mulf %v, %four : f32
      %got = memref.load %hy[%i, %j] : memref<?x?xf32>
      %differs = arith.cmpf une, %got, %expected : f32
      %more = arith.extui %differs : i1 to i32
      %next = arith.addi %count, %more : i32
      scf.yield %next : i32
    }
    scf.yield %inner : i32
  }
  %most = arith.constant 100 : i32
  %status = arith.minsi %wrong, %most : i32
  return %status : i32
}
