// A launch in a task of the async dialect.
// prints: 5 6 9 14 21 30 41 54 69 86 105 126 149 174 201 230 261 294 329 366 405 446 489 534 581 630 681 734 789 846 905 966
module attributes {gpu.container_module} {

llvm.func @printf(!llvm.ptr, ...) -> i32
llvm.mlir.global internal constant @number(" %d\00")

gpu.module @micro {
  gpu.func @kernel(%x: memref<?xi32>, %step: i32) kernel {
    %i = gpu.thread_id x
    %v = memref.load %x[%i] : memref<?xi32>
    %product = arith.muli %v, %v : i32
    %sum = arith.addi %product, %step : i32
    memref.store %sum, %x[%i] : memref<?xi32>
    gpu.return
  }
}

func.func @main() -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant 32 : index
  %x = memref.alloc(%n) : memref<?xi32>
  scf.for %i = %c0 to %n step %c1 {
    %v = arith.index_cast %i : index to i32
    memref.store %v, %x[%i] : memref<?xi32>
  }
  %device = gpu.alloc(%n) : memref<?xi32>
  gpu.memcpy %device, %x : memref<?xi32>, memref<?xi32>
  %step = arith.constant 5 : i32
  %token = async.execute {
    gpu.launch_func @micro::@kernel blocks in (%c1, %c1, %c1) threads in (%n, %c1, %c1)
        args(%device : memref<?xi32>, %step : i32)
    async.yield
  }
  async.await %token : !async.token
  gpu.memcpy %x, %device : memref<?xi32>, memref<?xi32>
  gpu.dealloc %device : memref<?xi32>
  %text = llvm.mlir.addressof @number : !llvm.ptr
  scf.for %i = %c0 to %n step %c1 {
    %v = memref.load %x[%i] : memref<?xi32>
    %printed = llvm.call @printf(%text, %v) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i32) -> i32
  }
  memref.dealloc %x : memref<?xi32>
  %success = arith.constant 0 : i32
  return %success : i32
}

}
