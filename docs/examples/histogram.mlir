// How often does each byte occur in 262144 pseudo-random ones?
//
// Shows: atomic additions, first in fast workgroup memory, then in device memory.
//
//   mlir-offload run histogram.mlir

module attributes {gpu.container_module} {

gpu.module @kernels {
  // Blocks of 256 threads: thread t looks after bin t when the bins are cleared and merged.
  gpu.func @histogram(%data: memref<?xi8>, %bins: memref<256xi32>)
      workgroup(%local: memref<256xi32, #gpu.address_space<workgroup>>)
      kernel attributes {gpu.known_block_size = array<i32: 256, 1, 1>} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %tx = gpu.thread_id x
    %bx = gpu.block_id x
    %size = gpu.block_dim x
    %blocks = gpu.grid_dim x
    memref.store %zero, %local[%tx] : memref<256xi32, #gpu.address_space<workgroup>>
    gpu.barrier

    // Threads of one block may hit the same bin at once: the addition must be atomic.
    %start = arith.muli %bx, %size : index
    %first = arith.addi %start, %tx : index
    %threads = arith.muli %blocks, %size : index
    %n = memref.dim %data, %c0 : memref<?xi8>
    scf.for %i = %first to %n step %threads {
      %byte = memref.load %data[%i] : memref<?xi8>
      %bin = arith.index_castui %byte : i8 to index
      %before = memref.atomic_rmw addi %one, %local[%bin]
          : (i32, memref<256xi32, #gpu.address_space<workgroup>>) -> i32
    }
    gpu.barrier

    // Blocks may merge at once, too.
    %count = memref.load %local[%tx] : memref<256xi32, #gpu.address_space<workgroup>>
    %total = memref.atomic_rmw addi %count, %bins[%tx] : (i32, memref<256xi32>) -> i32
    gpu.return
  }
}

llvm.func @printf(!llvm.ptr, ...) -> i32
llvm.mlir.global internal constant @ok("histogram: ok, %d bytes counted\0A\00")
llvm.mlir.global internal constant @bad("histogram: WRONG, %d bytes counted, %d bins differ\0A\00")

// Fill with the upper byte of a linear congruential generator, squared so that bins differ in size.
func.func private @fill(%data: memref<?xi8>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %seed = arith.constant 12345 : i32
  %factor = arith.constant 1664525 : i32
  %increment = arith.constant 1013904223 : i32
  %shift = arith.constant 24 : i32
  %eight = arith.constant 8 : i32
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%state = %seed) -> i32 {
    %product = arith.muli %state, %factor : i32
    %next = arith.addi %product, %increment : i32
    %high = arith.shrui %next, %shift : i32
    %square = arith.muli %high, %high : i32
    %skewed = arith.shrui %square, %eight : i32
    %byte = arith.trunci %skewed : i32 to i8
    memref.store %byte, %data[%i] : memref<?xi8>
    scf.yield %next : i32
  }
  return
}

func.func @main() -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant 262144 : index
  %c256 = arith.constant 256 : index
  %blocks = arith.constant 32 : index
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32

  %data = memref.alloc(%n) : memref<?xi8>
  %bins = memref.alloc() : memref<256xi32>
  %expected = memref.alloc() : memref<256xi32>
  call @fill(%data, %n) : (memref<?xi8>, index) -> ()

  %ddata = gpu.alloc(%n) : memref<?xi8>
  %dbins = gpu.alloc() : memref<256xi32>
  gpu.memcpy %ddata, %data : memref<?xi8>, memref<?xi8>
  gpu.memset %dbins, %zero : memref<256xi32>, i32
  gpu.launch_func @kernels::@histogram blocks in (%blocks, %c1, %c1) threads in (%c256, %c1, %c1)
      args(%ddata : memref<?xi8>, %dbins : memref<256xi32>)
  gpu.memcpy %bins, %dbins : memref<256xi32>, memref<256xi32>
  gpu.dealloc %ddata : memref<?xi8>
  gpu.dealloc %dbins : memref<256xi32>

  // Count again, one byte after the other.
  scf.for %bin = %c0 to %c256 step %c1 {
    memref.store %zero, %expected[%bin] : memref<256xi32>
  }
  scf.for %i = %c0 to %n step %c1 {
    %byte = memref.load %data[%i] : memref<?xi8>
    %bin = arith.index_castui %byte : i8 to index
    %before = memref.load %expected[%bin] : memref<256xi32>
    %after = arith.addi %before, %one : i32
    memref.store %after, %expected[%bin] : memref<256xi32>
  }
  %sum:2 = scf.for %bin = %c0 to %c256 step %c1 iter_args(%total = %zero, %wrong = %zero) -> (i32, i32) {
    %got = memref.load %bins[%bin] : memref<256xi32>
    %want = memref.load %expected[%bin] : memref<256xi32>
    %same = arith.cmpi eq, %got, %want : i32
    %step = arith.select %same, %zero, %one : i32
    %new_total = arith.addi %total, %got : i32
    %new_wrong = arith.addi %wrong, %step : i32
    scf.yield %new_total, %new_wrong : i32, i32
  }
  memref.dealloc %data : memref<?xi8>
  memref.dealloc %bins : memref<256xi32>
  memref.dealloc %expected : memref<256xi32>

  %right = arith.cmpi eq, %sum#1, %zero : i32
  %text_ok = llvm.mlir.addressof @ok : !llvm.ptr
  %text_bad = llvm.mlir.addressof @bad : !llvm.ptr
  %text = arith.select %right, %text_ok, %text_bad : !llvm.ptr
  llvm.call @printf(%text, %sum#0, %sum#1) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i32, i32) -> i32
  %status = arith.select %right, %zero, %one : i32
  return %status : i32
}

}
