// Functions for C, C++ and Python: see calling.c, calling.cpp, calling.py and ../calling.md.
//
// Shows: memrefs of two ranks, numbers, several results, memory that is returned, and a stream of
// the caller.
//
//   mlir-offload --emit-header=calling.h calling.mlir calling.c -o calling && ./calling
//   mlir-offload -shared -fPIC calling.mlir -o libcalling.so && python calling.py ./libcalling.so

// y[i, j] = a * x[i, j]; x may have gaps between its rows, y has none.
func.func @scale(%a: f32, %x: memref<?x?xf32, strided<[?, 1]>>, %y: memref<?x?xf32>)
    attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %rows = memref.dim %x, %c0 : memref<?x?xf32, strided<[?, 1]>>
  %columns = memref.dim %x, %c1 : memref<?x?xf32, strided<[?, 1]>>
  // A GPU copies memory without gaps only.
  %dense = memref.alloc(%rows, %columns) : memref<?x?xf32>
  scf.for %i = %c0 to %rows step %c1 {
    scf.for %j = %c0 to %columns step %c1 {
      %value = memref.load %x[%i, %j] : memref<?x?xf32, strided<[?, 1]>>
      memref.store %value, %dense[%i, %j] : memref<?x?xf32>
    }
  }
  %d = gpu.alloc(%rows, %columns) : memref<?x?xf32>
  gpu.memcpy %d, %dense : memref<?x?xf32>, memref<?x?xf32>
  memref.dealloc %dense : memref<?x?xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %rows, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %columns, %sy = %c1, %sz = %c1) {
    %value = memref.load %d[%bx, %tx] : memref<?x?xf32>
    %scaled = arith.mulf %a, %value : f32
    memref.store %scaled, %d[%bx, %tx] : memref<?x?xf32>
    gpu.terminator
  }
  gpu.memcpy %y, %d : memref<?x?xf32>, memref<?x?xf32>
  gpu.dealloc %d : memref<?x?xf32>
  return
}

// Returns 0, 1, 2 ... in new memory, and their sum.
func.func @count(%n: index) -> (memref<?xi64>, i64) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0 : i64
  %numbers = memref.alloc(%n) : memref<?xi64>
  %sum = scf.for %i = %c0 to %n step %c1 iter_args(%before = %zero) -> i64 {
    %number = arith.index_cast %i : index to i64
    memref.store %number, %numbers[%i] : memref<?xi64>
    %after = arith.addi %before, %number : i64
    scf.yield %after : i64
  }
  return %numbers, %sum : memref<?xi64>, i64
}

// Doubles what is in device memory, in order on the caller's stream, and returns at once.
func.func @double(%stream: !gpu.async.token, %x: memref<?xf32>)
    attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.dim %x, %c0 : memref<?xf32>
  %done = gpu.launch async [%stream] blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
    %value = memref.load %x[%bx] : memref<?xf32>
    %twice = arith.addf %value, %value : f32
    memref.store %twice, %x[%bx] : memref<?xf32>
    gpu.terminator
  }
  return
}
