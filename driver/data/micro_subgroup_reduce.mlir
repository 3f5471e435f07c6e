// A sum over a subgroup.
// prints: 496 497 498 499 500 501 502 503 504 505 506 507 508 509 510 511 512 513 514 515 516 517 518 519 520 521 522 523 524 525 526 527
module attributes {gpu.container_module} {

llvm.func @printf(!llvm.ptr, ...) -> i32
llvm.mlir.global internal constant @number(" %d\00")

gpu.module @micro {
  gpu.func @kernel(%x: memref<?xi32>) kernel {
    %i = gpu.thread_id x
    %v = memref.load %x[%i] : memref<?xi32>
    %sum = gpu.subgroup_reduce add %v : (i32) -> i32
    %both = arith.addi %sum, %v : i32
    memref.store %both, %x[%i] : memref<?xi32>
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
