// Division that rounds up or down.
// prints: -4 -3 -3 -3 -3 -3 -2 -2 -2 -2 -2 -1 -1 -1 -1 -1 0 0 0 0 0 1 1 1 1 1 2 2 2 2 2 3
module attributes {gpu.container_module} {

llvm.func @printf(!llvm.ptr, ...) -> i32
llvm.mlir.global internal constant @number(" %d\00")

gpu.module @micro {
  gpu.func @kernel(%x: memref<?xi32>) kernel {
    %i = gpu.thread_id x
    %minus = arith.constant -50 : i32
    %three = arith.constant 3 : i32
    %five = arith.constant 5 : i32
    %v = memref.load %x[%i] : memref<?xi32>
    %tripled = arith.muli %v, %three : i32
    %moved = arith.addi %tripled, %minus : i32
    %up = arith.ceildivsi %moved, %five : i32
    %down = arith.floordivsi %up, %three : i32
    memref.store %down, %x[%i] : memref<?xi32>
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
  gpu.launch_func @micro::@kernel blocks in (%c1, %c1, %c1) threads in (%n, %c1, %c1)
      args(%device : memref<?xi32>)
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
