// Four threads print a line each.
//
// Shows: gpu.printf. It is here in MLIR's generic form because the short form changed:
// up to LLVM 20 it is `gpu.printf "%lld\n" %i : index`, from LLVM 21 on `gpu.printf "%lld\n", %i : index`.
// Write whichever your release of LLVM knows.
//
//   mlir-offload run printf.mlir

llvm.func @printf(!llvm.ptr, ...) -> i32
llvm.mlir.global internal constant @ok("printf: ok, %d threads counted\0A\00")
llvm.mlir.global internal constant @bad("printf: WRONG, %d threads counted\0A\00")

func.func @main() -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %four = arith.constant 4 : i32
  %count = memref.alloc() : memref<1xi32>
  %device = gpu.alloc() : memref<1xi32>
  gpu.memset %device, %zero : memref<1xi32>, i32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c4, %sy = %c1, %sz = %c1) {
    %int = arith.index_cast %tx : index to i32
    %float = arith.sitofp %int : i32 to f32
    %half = arith.constant 0.5 : f32
    %value = arith.mulf %float, %half : f32
    "gpu.printf"(%tx, %value) <{format = "thread %lld: half of it is %.1f\0A"}> : (index, f32) -> ()
    %before = memref.atomic_rmw addi %one, %device[%c0] : (i32, memref<1xi32>) -> i32
    gpu.terminator
  }
  // What kernels printed appears at the latest when the host waits for them.
  gpu.memcpy %count, %device : memref<1xi32>, memref<1xi32>
  gpu.dealloc %device : memref<1xi32>
  %got = memref.load %count[%c0] : memref<1xi32>
  memref.dealloc %count : memref<1xi32>

  %right = arith.cmpi eq, %got, %four : i32
  %text_ok = llvm.mlir.addressof @ok : !llvm.ptr
  %text_bad = llvm.mlir.addressof @bad : !llvm.ptr
  %text = arith.select %right, %text_ok, %text_bad : !llvm.ptr
  llvm.call @printf(%text, %got) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i32) -> i32
  %status = arith.select %right, %zero, %one : i32
  return %status : i32
}
