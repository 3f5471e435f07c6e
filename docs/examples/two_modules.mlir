// Two gpu.modules whose kernels have the same name, and which have a helper of the same name.
//
// Shows: kernels are distinguished by module and name, in one program as across linked files.
//
//   mlir-offload run two_modules.mlir

module attributes {gpu.container_module} {

gpu.module @doubling {
  func.func private @change(%value: i32) -> i32 {
    %two = arith.constant 2 : i32
    %result = arith.muli %value, %two : i32
    return %result : i32
  }
  gpu.func @apply(%data: memref<64xi32>) kernel {
    %i = gpu.thread_id x
    %value = memref.load %data[%i] : memref<64xi32>
    %result = func.call @change(%value) : (i32) -> i32
    memref.store %result, %data[%i] : memref<64xi32>
    gpu.return
  }
}

gpu.module @adding {
  func.func private @change(%value: i32, %summand: i32) -> i32 {
    %result = arith.addi %value, %summand : i32
    return %result : i32
  }
  // The same name as above, and another signature.
  gpu.func @apply(%data: memref<64xi32>, %summand: i32) kernel {
    %i = gpu.thread_id x
    %value = memref.load %data[%i] : memref<64xi32>
    %result = func.call @change(%value, %summand) : (i32, i32) -> i32
    memref.store %result, %data[%i] : memref<64xi32>
    gpu.return
  }
}

llvm.func @printf(!llvm.ptr, ...) -> i32
llvm.mlir.global internal constant @ok("two_modules: ok, %d of 64 elements right\0A\00")
llvm.mlir.global internal constant @bad("two_modules: WRONG, %d of 64 elements right\0A\00")

func.func @main() -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %seven = arith.constant 7 : i32
  %all = arith.constant 64 : i32

  %data = memref.alloc() : memref<64xi32>
  scf.for %i = %c0 to %c64 step %c1 {
    %value = arith.index_cast %i : index to i32
    memref.store %value, %data[%i] : memref<64xi32>
  }
  %device = gpu.alloc() : memref<64xi32>
  gpu.memcpy %device, %data : memref<64xi32>, memref<64xi32>
  gpu.launch_func @doubling::@apply blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1)
      args(%device : memref<64xi32>)
  gpu.launch_func @adding::@apply blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1)
      args(%device : memref<64xi32>, %seven : i32)
  gpu.memcpy %data, %device : memref<64xi32>, memref<64xi32>
  gpu.dealloc %device : memref<64xi32>

  // 2 i + 7. One kernel run twice, or in the wrong order, gives something else.
  %count = scf.for %i = %c0 to %c64 step %c1 iter_args(%acc = %zero) -> i32 {
    %value = arith.index_cast %i : index to i32
    %doubled = arith.muli %value, %two : i32
    %expected = arith.addi %doubled, %seven : i32
    %got = memref.load %data[%i] : memref<64xi32>
    %same = arith.cmpi eq, %got, %expected : i32
    %step = arith.select %same, %one, %zero : i32
    %new = arith.addi %acc, %step : i32
    scf.yield %new : i32
  }
  memref.dealloc %data : memref<64xi32>

  %right = arith.cmpi eq, %count, %all : i32
  %text_ok = llvm.mlir.addressof @ok : !llvm.ptr
  %text_bad = llvm.mlir.addressof @bad : !llvm.ptr
  %text = arith.select %right, %text_ok, %text_bad : !llvm.ptr
  llvm.call @printf(%text, %count) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i32) -> i32
  %status = arith.select %right, %zero, %one : i32
  return %status : i32
}

}
